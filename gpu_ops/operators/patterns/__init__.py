"""The operator of event patterns."""
