"""Operators of partitions in cycles."""
