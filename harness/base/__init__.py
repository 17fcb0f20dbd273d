"""Files, messages, settings and the hub."""
