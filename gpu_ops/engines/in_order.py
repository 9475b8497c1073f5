"""More rows than memory holds: sorted by start in files, then run through a plan in order of time.

A plan that is run so remembers what is alive and nothing else, as a running query does; its results are those of one
step over all rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.buffers import integers
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.steps import Fed, running
from gpu_ops.plan.lifetimes import AlterLifetime, Lifetime
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.time import MAX_TIME

_ROWS = 1 << 14
"""Rows that are read of a file at once."""


def can_run_in_order(node: Node) -> bool:
    """Whether a plan gives the same when its rows come in order of start: no verb moves starts as it likes."""
    changes = [each.change for each in node.walk() if isinstance(each, Lifetime)]
    return not any(isinstance(change, AlterLifetime) and change.start is not None for change in changes)


@contextmanager
def in_order(
    batches: Iterable[pa.RecordBatch], budget: int
) -> Iterator[Iterator[tuple[pa.Table, int]] | list[pa.RecordBatch]]:
    """Batches as they are if they fit in memory, else in order of their column ``start``.

    Args:
        batches: With a column ``start`` of timestamps, all of one schema.
        budget: Bytes of batches that are held at once. Sorting them takes as much again.

    Yields:
        The batches; or (table, CTI) pairs: no row that comes in a later pair starts before the CTI.

    Examples:
        >>> rows = pa.record_batch({"start": pa.array([3, 1, 2], pa.timestamp("us"))})
        >>> with in_order([rows, rows], budget=1) as found:
        ...     [(table.num_rows, cti) for table, cti in found]
        [(6, 3)]
    """
    held: list[pa.RecordBatch] = []
    size = 0
    with tempfile.TemporaryDirectory(prefix="gpu_ops-") as folder:
        files: list[Path] = []

        def spill() -> None:
            nonlocal held, size
            files.append(Path(folder, f"{len(files)}.arrow"))
            _write(pa.Table.from_batches(held), files[-1])
            held, size = [], 0

        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > budget:
                spill()
        if not files:
            yield held
            return
        if held:
            spill()
        yield _merged(files)


def _write(table: pa.Table, path: Path) -> None:
    ordered = table.take(pa.array(np.argsort(_starts(table), kind="stable")))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(path, ordered.schema, options=options) as writer:
        writer.write_table(ordered, max_chunksize=_ROWS)


def _starts(table: pa.Table) -> Any:
    return integers(table["start"].combine_chunks())


def _merged(files: list[Path]) -> Iterator[tuple[pa.Table, int]]:
    """Rows of sorted files up to the least start at which what is read of one of them ends, again and again."""
    readers = [pa.ipc.open_file(pa.OSFile(str(path))) for path in files]
    left = {at: _batches(reader) for at, reader in enumerate(readers)}
    heads: dict[int, pa.Table] = {}
    while True:
        for at in [at for at in left if at not in heads]:
            head = next(left[at], None)
            if head is None:
                del left[at]
            else:
                heads[at] = head
        if not heads:
            return
        ends = {at: int(_starts(head.slice(head.num_rows - 1))[0]) for at, head in heads.items()}
        bound = min(ends.values())
        taken = []
        for at, head in list(heads.items()):
            count = int(np.searchsorted(_starts(head), bound, side="right"))
            taken.append(head.slice(0, count))
            if count == head.num_rows:
                del heads[at]
            else:
                heads[at] = head.slice(count)
        yield pa.concat_tables(taken), bound


def _batches(reader: pa.ipc.RecordBatchFileReader) -> Iterator[pa.Table]:
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def run_in_order(
    node: Node, pieces: Iterable[tuple[Mapping[Feed, list[Events]], int]], device: Device
) -> Iterator[Events]:
    """Run a plan step by step.

    Args:
        node: A plan whose leaves are `Feed`s.
        pieces: What each leaf gets, and what then is promised of all of them, in ticks.
        device: Where arrays live.

    Yields:
        Results, as they become final.
    """
    plan = running(node, device)
    feeds = [each.node for each in plan.walk() if not each.below]

    def step(given: Mapping[Any, list[Events]], cti: int) -> Iterator[Events]:
        events, _ = plan.step({(feed, "whole"): (Fed(given.get(feed, [])), cti) for feed in feeds}, device)
        plan.rest()
        yield from events.events

    for given, cti in pieces:
        yield from step(given, cti)
    yield from step({}, MAX_TIME)
