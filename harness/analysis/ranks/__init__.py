"""The rule by which rows are ranked, and the same rule applied to draws of every number."""
