"""Figures of what attacks bring back."""
