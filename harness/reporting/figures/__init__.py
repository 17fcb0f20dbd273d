"""Figures: one file is one figure, in one dress."""
