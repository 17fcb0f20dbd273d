"""Models: checkpoints, blocks, and erasures stored as patches."""
