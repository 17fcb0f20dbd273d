"""One trial, in one process: erase, measure, journal."""
