"""Protects later trials from a plugin's side effects, and ends trials before their time."""
