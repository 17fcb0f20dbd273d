"""Tables, figures, pages and cards of a sweep."""
