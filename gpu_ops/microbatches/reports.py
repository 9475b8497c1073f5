"""What a store tells: a batch, events within a time, and what was found when every byte was read."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import booleans
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.ingest.rows import keep_rows, whole


@dataclass(frozen=True)
class StoredBatch:
    """A batch of a store.

    Attributes:
        sequence: Its number: 1, 2, 3 …
        events: Its events: ``start``, ``end`` (``timestamp[us, UTC]``) and the payload. None where there was only a
            CTI, or where batches have expired, which are one batch with the number of the last.
        cti: The CTI after it in ticks; None before there was any.
        expired: Whether it stands for batches that have expired. A reader that goes on ``since`` an earlier one may
            have missed events.
        lost: Then, the number of the last batch that may have held events. A reader that goes on ``since`` this one or
            a later one has missed none.
    """

    sequence: int
    events: pa.Table
    cti: int | None
    expired: bool = False
    lost: int | None = None


@dataclass(frozen=True)
class StoreReport:
    """What `Store.verify` found.

    Attributes:
        files: How many files hold the batches.
        rows: How many events.
        sequence: The number of the last batch.
        cti: The CTI after it in ticks.
        damaged: What is wrong, for each file of which something is.
        foreign: Files that no store made; they are not looked at.
        leftovers: Files of writes that did not end, or that wider files hide. A writer removes them when it opens;
            the folders that Spark jobs were writing to are not, as the jobs may run.
        unreadable: What the file system said, for each file that it did not let be read; that is no sign of damage.
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
        """Whether every byte was read and is the one that was sealed."""
        return not self.damaged and not self.unreadable


def alive(table: pa.Table, start: int | None, end: int | None) -> pa.Table:
    """The events that are alive within ``[start, end)``."""
    tests = [(pc.greater, "end", start), (pc.less, "start", end)]
    for holds, side, bound in tests:
        if bound is not None:
            mask = pc.fill_null(holds(table[side], pa.scalar(bound, TIME_TYPE)), fill_value=False)
            table = keep_rows(table, booleans(whole(mask)))
    return table
