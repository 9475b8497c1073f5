"""StreamCruncher's language: queries that run in cycles over partitions of streams."""
