"""Engines: what turns a loss into a step. The fine-tuning loop asks one, and methods never see it."""
