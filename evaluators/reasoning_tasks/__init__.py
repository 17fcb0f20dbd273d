"""The six reasoning tasks: an lm-eval file each, and the reading of their local data."""
