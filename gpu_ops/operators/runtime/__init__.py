"""How the operators of a plan are stepped together."""
