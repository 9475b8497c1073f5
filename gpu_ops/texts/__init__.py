"""What the languages share: expressions with their places, their errors, and how they are bound to columns."""
