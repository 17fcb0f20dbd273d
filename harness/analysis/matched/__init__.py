"""What each method pays where all erase equally much, and what it erases where all pay equally much."""
