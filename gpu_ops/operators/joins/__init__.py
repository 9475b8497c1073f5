"""What compares lifetimes of several events: joins, clipping, coverage, stitch; in a batch and step by step."""
