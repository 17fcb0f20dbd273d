"""A plugin of Lethe, in a package of its own."""
