"""What everything stands on: files that are written whole or not at all, paths, digests, the terminal, the hub."""
