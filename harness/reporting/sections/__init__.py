"""One file is one section of the report."""
