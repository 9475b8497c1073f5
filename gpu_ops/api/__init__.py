"""The user's verbs, a module for each noun: they build plan nodes, and touch data in `execution` alone."""
