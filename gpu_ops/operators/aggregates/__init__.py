"""Aggregates: their columns, what a block of windows computes of them, and their results."""
