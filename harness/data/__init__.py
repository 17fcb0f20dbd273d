"""Texts: the forget set, retain data and utility texts."""
