"""What is typed: one file is one verb of `lethe`."""
