"""NEXMark: an online auction as three streams of events, and questions about them.

`generate` makes the auction, `gpu_ops.apps.nexmark.queries` asks; ``docs/nexmark.md`` lists the questions, and what is
another here than in the benchmark. ``import gpu_ops`` loads nothing of it, and `gpu_ops.apps.nexmark.spark` alone loads
Spark.

Sources: Tucker, Tufte, Papadimos and Maier, "NEXMark: A Benchmark for Queries over Data Streams" (2002); the variants
of Apache Beam and of nexmark-flink, whose proportions, columns and defaults these are.

Examples:
    >>> from gpu_ops.apps import nexmark
    >>> auction = nexmark.generate(events=1000, seed=1)
    >>> auction.persons.num_rows, auction.auctions.num_rows, auction.bids.num_rows
    (20, 60, 920)
"""

from __future__ import annotations

from gpu_ops.apps.nexmark.generator import KINDS, SCHEMAS, Generator, Kind, Tables, batches, generate, side_input

__all__ = ["KINDS", "SCHEMAS", "Generator", "Kind", "Tables", "batches", "generate", "side_input"]
