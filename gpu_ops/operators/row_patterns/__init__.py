"""Row patterns: matches in the rows of partitions, and what is told of them."""
