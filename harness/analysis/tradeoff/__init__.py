"""What erasing costs, strength by strength: curves, trajectories, and where a method stands as a whole."""
