"""Execution on Ray."""
