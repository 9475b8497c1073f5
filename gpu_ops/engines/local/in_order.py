"""An external sort: more rows than memory holds are sorted by start in files, then run through a plan in that order.

The plan then runs step by step, keeping only what is alive, as a running query does. Its results are those of a batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.microbatches.files import regrouped
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import running
from gpu_ops.plan.lifetimes import Lifetime
from gpu_ops.plan.nodes import Node

TOGETHER = 64
"""How many files are merged at once: a process may have as few as 256 open. More are merged in passes."""

_ROWS = (1 << 8, 1 << 14)
"""The least and the most rows that are read from a file at once, for one step of the plan."""


@dataclass(frozen=True)
class Spill:
    """Rows that did not fit in memory.

    Attributes:
        files: How many sorted files they were written to at first.
        size: How many bytes they had in memory.
        merged: How many files were then merged into others, so that at most `TOGETHER` were left.
    """

    files: int
    size: int
    merged: int


def can_run_in_order(node: Node) -> bool:
    """Whether a plan can take its rows in order of start: no verb moves starts by an expression."""
    return all(each.new_start is None for each in node.all(Lifetime))


@contextmanager
def in_order(
    batches: Iterable[pa.RecordBatch],
    budget: int,
    spilled: Callable[[Spill], None] | None = None,
    within: str | None = None,
) -> Iterator[SortedFiles | list[pa.RecordBatch]]:
    """Batches as they are if they fit in memory, else in order of their column ``start``.

    Args:
        batches: With a column ``start`` of timestamps, all of one schema.
        budget: Bytes of batches that are held at once. Sorting them takes as much again.
        spilled: Called with a `Spill` before the first sorted row is given.
        within: The folder for a temporary folder of files; None is the system's temporary folder.

    Yields:
        The batches; or (table, CTI) pairs, as often as they are asked for: no row of a later pair starts before the
        CTI.

    Examples:
        >>> rows = pa.record_batch({"start": pa.array([3, 1, 2], pa.timestamp("us"))})
        >>> with in_order([rows, rows], budget=1, spilled=print) as found:
        ...     [(table.num_rows, cti) for table, cti in found]
        Spill(files=2, size=48, merged=0)
        [(6, 3)]
    """
    held: list[pa.RecordBatch] = []
    size = whole = 0
    with tempfile.TemporaryDirectory(prefix="gpu_ops-", dir=within) as folder:
        runs = _Runs(Path(folder), budget)
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            whole += batch.nbytes
            if size > budget:
                runs.add(pa.Table.from_batches(held))
                held, size = [], 0
        if not runs.files:
            yield held
            return
        if held:
            runs.add(pa.Table.from_batches(held))
            held = []
        files = len(runs.files)
        merged = runs.merge()
        if spilled is not None:
            spilled(Spill(files, whole, merged))
        yield SortedFiles(tuple(runs.files))


@dataclass(frozen=True)
class SortedFiles:
    """Rows in order of their starts, from sorted files: (table, CTI) pairs, read anew each time.

    Attributes:
        files: The files.
    """

    files: tuple[Path, ...]

    def __iter__(self) -> Iterator[tuple[pa.Table, int]]:
        with _merged(self.files) as pieces:
            yield from pieces


class _Runs:
    """Sorted files, in the order in which their rows arrived.

    Args:
        folder: The folder of the files.
        budget: Bytes of rows that may be held at once.

    Attributes:
        files: The files.
    """

    def __init__(self, folder: Path, budget: int) -> None:
        self._folder, self._budget = folder, budget
        self._made = 0
        self.files: list[Path] = []

    def add(self, table: pa.Table) -> None:
        """Write rows to a file of their own."""
        # One piece of each file that is merged at once fits in the budget.
        rows = self._budget // TOGETHER * table.num_rows // max(table.nbytes, 1)
        self.files.append(self._written([table], table.schema, min(max(rows, _ROWS[0]), _ROWS[1])))

    def merge(self) -> int:
        """Merge neighbouring files until at most `TOGETHER` are left; return how many were merged."""
        read = 0
        while len(self.files) > TOGETHER:
            excess, before, self.files = len(self.files) - TOGETHER, self.files, []
            at = 0
            while at < len(before):
                some = before[at : at + min(TOGETHER, excess + 1)]
                at += len(some)
                if len(some) == 1:
                    self.files += some
                    continue
                excess -= len(some) - 1
                read += len(some)
                self.files.append(self._together(some))
        return read

    def _together(self, files: list[Path]) -> Path:
        with pa.OSFile(str(files[0])) as source, pa.ipc.open_file(source) as reader:
            schema, rows = reader.schema, reader.get_batch(0).num_rows
        with _merged(files) as pieces:
            made = self._written((table for table, _ in pieces), schema, rows)
        for file in files:
            file.unlink()
        return made

    def _written(self, tables: Iterable[pa.Table], schema: pa.Schema, rows: int) -> Path:
        """Sort each table and write them to one file; no row of a later table starts before those of an earlier one."""
        path = self._folder / f"{self._made}.arrow"
        self._made += 1
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        ordered = (table.take(pa.array(np.argsort(_starts(table), kind="stable"))) for table in tables)
        with pa.ipc.new_file(path, schema, options=options) as writer:
            for table in regrouped(ordered, schema, rows):
                writer.write_table(table)
        return path


def _starts(table: pa.Table) -> Any:
    return integers(table["start"].combine_chunks())


@contextmanager
def _merged(files: Sequence[Path]) -> Iterator[Iterator[tuple[pa.Table, int]]]:
    """The rows of sorted files, merged: each piece ends where the first of the pieces in memory ends."""
    with ExitStack() as opened:
        sources = [opened.enter_context(pa.OSFile(str(path))) for path in files]
        yield _pieces([_batches(opened.enter_context(pa.ipc.open_file(source))) for source in sources])


def _pieces(runs: list[Iterator[pa.Table]]) -> Iterator[tuple[pa.Table, int]]:
    left = dict(enumerate(runs))
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
    node: Node, pieces: Iterable[tuple[Mapping[Any, list[Events]], int]], device: Device
) -> Iterator[Events]:
    """Run a plan step by step.

    Args:
        node: A plan whose leaves give no open events.
        pieces: (events of each leaf, CTI of all leaves). The plan ends at the last one if its CTI is `MAX_TIME`.
        device: Where arrays live.

    Yields:
        Results, as they become final.
    """
    plan = running(node, device)
    feeds = [each.node for each in plan.walk() if not each.below]

    def step(given: Mapping[Any, list[Events]], cti: int) -> Iterator[Events]:
        events, _ = plan.step({(feed, "whole"): (StepInput(given.get(feed, [])), cti) for feed in feeds})
        plan.rest()
        yield from events.events

    cti = None
    for given, cti in pieces:
        yield from step(given, cti)
    if cti != MAX_TIME:
        yield from step({}, MAX_TIME)
