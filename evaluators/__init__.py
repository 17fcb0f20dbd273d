"""The evaluators: one file each, named as in a sweep; formulas of several lie in `metrics/`."""
