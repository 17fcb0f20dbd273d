"""The ground: files that are written whole or not at all, digests, messages, settings, the hub."""
