"""From trial specs to measurements: the jobs of a sweep, and two executors that run them."""
