"""Runs the trials of a sweep: jobs and two executors."""
