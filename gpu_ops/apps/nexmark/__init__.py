"""NEXMark: an online auction as three streams of events, and queries over them.

`generate` makes the auction, and `gpu_ops.apps.nexmark.queries` holds the queries. ``docs/nexmark.md`` lists them and
their differences to the benchmark. ``import gpu_ops`` does not load this package, and only
`gpu_ops.apps.nexmark.spark` loads Spark.

Sources: Tucker, Tufte, Papadimos and Maier, "NEXMark: A Benchmark for Queries over Data Streams" (2002). Proportions,
columns and defaults are those of the variants in Apache Beam and nexmark-flink.

Examples:
    >>> from gpu_ops.apps import nexmark
    >>> auction = nexmark.generate(events=1000, seed=1)
    >>> auction.persons.num_rows, auction.auctions.num_rows, auction.bids.num_rows
    (20, 60, 920)
"""

from __future__ import annotations

from gpu_ops.apps.nexmark.generator import KINDS, SCHEMAS, Generator, Kind, Tables, batches, generate, side_input

__all__ = ["KINDS", "SCHEMAS", "Generator", "Kind", "Tables", "batches", "generate", "side_input"]
