"""The copy of the journal in MLflow: which runs there are, what they hold, and how they are kept up to date."""
