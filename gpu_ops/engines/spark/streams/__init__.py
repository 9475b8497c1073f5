"""Live queries on Spark: epochs of streaming DataFrames through the live engine, each committed once by a manifest.

Spark's ``foreachBatch`` hands over the rows of an epoch. They go to their partitions by key, and one ``mapInArrow``
steps each partition's running query from the state of the last committed epoch. The driver then commits the epoch by
creating one file, the manifest, which names the state and the results. What no manifest names does not count.
"""
