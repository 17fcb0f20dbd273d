"""Estimates, intervals and tests of what items say: NumPy and SciPy only, no table and no sweep."""
