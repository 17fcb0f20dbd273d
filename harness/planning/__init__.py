"""Sweep file to trial specs, checked whole before anything runs."""
