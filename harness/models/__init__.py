"""Models: loading checkpoints, naming their blocks, and keeping an erasure as a patch."""
