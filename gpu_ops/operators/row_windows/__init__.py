"""Data windows: when each row enters its window and leaves it, in a batch and step by step."""
