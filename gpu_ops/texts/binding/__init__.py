"""From the expressions of a text in EPL to typed expressions over the columns of a plan."""
