"""What a trial will need: its own code run on tensors that have shapes and no contents, and every byte counted."""
