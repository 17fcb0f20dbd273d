"""Plugins of Lethe, in a package of their own."""
