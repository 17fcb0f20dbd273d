"""What a plugin must not do to the trials after it, and what ends a trial before its time."""
