"""Plans: immutable nodes that say what is asked. No data, no arrays, no engine."""
