"""Sweep files that Lethe writes itself, for `lethe init` and `lethe audit`."""
