"""Deliveries: what a listener is handed at each turn, from the rows that enter and leave a window."""
