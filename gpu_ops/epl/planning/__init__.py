"""From what a statement says to a plan: which nodes compute its clauses."""
