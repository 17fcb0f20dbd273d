"""One trial in one process."""
