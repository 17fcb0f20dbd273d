"""Ray: its session, its workers, its faults, and its cluster."""
