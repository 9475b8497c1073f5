"""Operators of deliveries: what a listener gets at each place of a stream on turns."""
