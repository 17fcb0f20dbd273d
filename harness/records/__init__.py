"""The journal of every trial, artifacts that trials share, and MLflow's copy."""
