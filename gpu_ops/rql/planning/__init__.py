"""From the syntax tree of a query to the nodes that answer it."""
