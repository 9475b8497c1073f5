"""What operators keep from one step to the next: rows, runs and groups, as tables."""
