"""Estimates, intervals and tests, by NumPy and SciPy only."""
