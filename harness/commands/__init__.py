"""Verbs of `lethe`, one file each."""
