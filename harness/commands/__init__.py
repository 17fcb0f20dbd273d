"""Longer parts of the verbs of `lethe`."""
