"""Batches for a store, and what a store holds."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

import gpu_ops as g

UTC = pa.timestamp("us", "UTC")

Lifetimes = Sequence[tuple[int, int]]


def table(lifetimes: Lifetimes, first: int = 0) -> pa.Table:
    """Events with these lifetimes, numbered."""
    return pa.table(
        {
            "start": pa.array([start for start, _ in lifetimes], pa.int64()).cast(UTC),
            "end": pa.array([end for _, end in lifetimes], pa.int64()).cast(UTC),
            "n": pa.array(range(first, first + len(lifetimes)), pa.int64()),
        }
    )


def numbers(found: pa.Table) -> list[int]:
    values: list[int] = found["n"].to_pylist()
    return values


def held(store: g.Store, since: int = 0) -> list[tuple[int, list[int], int | None]]:
    return [(batch.sequence, numbers(batch.events), batch.cti) for batch in store.batches(since)]
