"""Kafka's topics: as sources of events, and as sinks of results."""
