"""What is left of single sequences."""
