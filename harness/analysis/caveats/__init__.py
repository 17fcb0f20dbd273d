"""What limits a sweep's numbers."""
