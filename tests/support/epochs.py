"""Streams of Spark that are read in given epochs, and what a live query over them has to give, written out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
SCHEMA = pa.schema([("at", pa.int64()), ("till", pa.int64()), ("item", pa.string()), ("price", pa.int64())])
COLUMNS = "at long, till long, item string, price long"

Epoch = Sequence[tuple[int, int, str, int]]
"""Events: start and end in seconds, a key, a value."""


def table(epoch: Epoch) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in epoch], SCHEMA)


def put(folder: Path, number: int, epoch: Epoch) -> None:
    """A file of an epoch: one is read per epoch, the oldest first."""
    put_table(folder, number, table(epoch))


def put_table(folder: Path, number: int, rows: pa.Table) -> None:
    """As `put`, of any columns."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (1_000 + number, 1_000 + number))


def read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def admitted(epochs: Sequence[Epoch], *, every: int, delay: int, late: str) -> tuple[Epoch, Epoch]:
    """What the rows of some epochs are to a query, and which of them are late; times in seconds.

    A CTI is made after an epoch, of its latest start.
    """
    cti: int | None = None
    taken: list[tuple[int, int, str, int]] = []
    missed: list[tuple[int, int, str, int]] = []
    for epoch in epochs:
        for row in epoch:
            start, end, item, price = row
            if cti is None or start >= cti:
                taken.append(row)
                continue
            missed.append(row)
            if late == "adjust" and end > cti:
                taken.append((cti, end, item, price))
        latest = max((row[0] for row in epoch), default=None)
        if latest is not None and (cti is None or latest - cti >= every):
            cti = max(latest - delay, latest - delay if cti is None else cti)
    return taken, missed


def same(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.types[2:] == expected.schema.types[2:]
    assert rows(found) == rows(expected)


def run(query: Any, **where: Any) -> None:
    """Run a query over all that is there, and wait for it."""
    from gpu_ops.engines.spark.checks import our_errors

    with our_errors():
        query.start_on_spark(trigger={"availableNow": True}, **where).awaitTermination()
