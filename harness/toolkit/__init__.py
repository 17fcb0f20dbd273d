"""What plugin authors may use: tensors and models, and nothing of the harness above them."""
