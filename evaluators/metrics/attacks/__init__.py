"""Formulas of what is tried to bring erased texts back, and of what is left of them."""
