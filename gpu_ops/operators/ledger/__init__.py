"""Events to turns, and back: where the order in which things happen is computed."""
