"""The formulas: each in a file of its own, pure, with its source and a worked example."""
