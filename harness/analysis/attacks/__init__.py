"""What attacks bring back of the erased texts, against the model that never saw them."""
