"""A tuned sweep's search: what is tried next, and what is measured of it."""
