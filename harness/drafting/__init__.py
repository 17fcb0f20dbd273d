"""Sweep files that `lethe init` and `lethe audit` write."""
