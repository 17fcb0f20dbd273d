"""What is shown: the journal turned into tables, ranks, flags, figures and one HTML page."""
