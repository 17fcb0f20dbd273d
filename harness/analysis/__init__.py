"""Numbers of a sweep, computed from its journal."""
