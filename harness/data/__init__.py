"""Texts: the forget set, retain data and utility texts, from files, arrays or data sets."""
