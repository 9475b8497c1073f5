"""A store's answers: batches, events within a time, and the report of a verification."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import booleans, in_one
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.ingest.rows import keep_rows


@dataclass(frozen=True)
class StoredBatch:
    """A batch of a store.

    Attributes:
        sequence: The batch's number: 1, 2, 3 …
        events: ``start``, ``end`` (``timestamp[us, UTC]``) and the payload. No rows for a batch with only a CTI, and
            for expired batches, which count as one batch under the last of their numbers.
        cti: The CTI after it in ticks; None before there was any.
        expired: Whether it replaces expired batches. A reader that continues ``since`` an earlier batch may have missed
            events.
        lost: If so, the number of the last batch that may have held events. A reader that continues ``since`` this
            batch or a later one has missed none.
    """

    sequence: int
    events: pa.Table
    cti: int | None
    expired: bool = False
    lost: int | None = None


@dataclass(frozen=True)
class StoreReport:
    """The report of `Store.verify`.

    Attributes:
        files: The number of files with batches.
        rows: The number of events.
        sequence: The number of the last batch.
        cti: The CTI after it in ticks.
        damaged: The problem of each damaged file.
        foreign: Files that no store made; they are not read.
        leftovers: Files of unfinished writes, and files that were merged into another. A writer removes them when it
            opens, but not the folders of Spark jobs, which may still run.
        unreadable: The file system's error for each file that could not be read; that is no sign of damage.
    """

    files: int
    rows: int
    sequence: int
    cti: int | None
    damaged: tuple[str, ...]
    foreign: tuple[str, ...]
    leftovers: tuple[str, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether every file was read and is undamaged."""
        return not self.damaged and not self.unreadable


def alive(table: pa.Table, start: int | None, end: int | None) -> pa.Table:
    """The events that are alive within ``[start, end)``."""
    tests = [(pc.greater, "end", start), (pc.less, "start", end)]
    for holds, side, bound in tests:
        if bound is not None:
            mask = pc.fill_null(holds(table[side], pa.scalar(bound, TIME_TYPE)), fill_value=False)
            table = keep_rows(table, booleans(in_one(mask)))
    return table
