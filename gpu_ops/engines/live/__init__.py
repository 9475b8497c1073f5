"""The engine of running queries: events and CTIs are pushed in, final results come out."""
