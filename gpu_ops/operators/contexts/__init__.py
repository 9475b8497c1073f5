"""Contexts: where instances start and end, and what is within them."""
