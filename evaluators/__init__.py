"""The evaluators, one file each, and formulas of several in `metrics/`."""
