"""Files, digests, messages, settings and the hub."""
