"""Every number that is shown of a sweep: computed once, from its journal, and shown by nothing here."""
