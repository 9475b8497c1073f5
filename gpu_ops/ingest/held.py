"""Payload rows that wait: for their turn, or for their end edge. Each is known by the number of its arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.devices.cpu import columns
from gpu_ops.frames import to_frame

Numbers = npt.NDArray[np.int64]


@dataclass
class _Run:
    """Rows by ascending number; some of them have gone."""

    numbers: Numbers
    frame: pl.DataFrame
    here: npt.NDArray[np.bool_]
    count: int


class HeldRows:
    """Rows under their numbers. Adding, finding and dropping cost what is added, found and dropped, amortised.

    Rows are kept in runs, each at least twice as long as the next: a run that has become too short, or of which most
    rows have gone, is copied together with the one beside it.

    Examples:
        >>> held = HeldRows(pa.schema([("v", pa.int64())]))
        >>> held.add(np.array([3, 5, 8]), to_frame(pa.table({"v": [30, 50, 80]})))
        >>> held.drop(np.array([5]))
        >>> held.find(np.array([8, 3]))["v"].to_list()
        [80, 30]
        >>> len(held)
        2
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._none = to_frame(pa.Table.from_batches([], schema))
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(run.count for run in self._runs)

    def add(self, numbers: Numbers, frame: pl.DataFrame) -> None:
        """Rows whose numbers are ascending, and above all that are there."""
        if not len(numbers):
            return
        run = _Run(numbers, frame, np.ones(len(numbers), np.bool_), len(numbers))
        count, at = run.count, len(self._runs)
        while at and self._runs[at - 1].count < 2 * count:
            at -= 1
            count += self._runs[at].count
        self._runs[at:] = [_together([*self._runs[at:], run])]

    def find(self, numbers: Numbers, newer: tuple[int, pl.DataFrame] | None = None) -> pl.DataFrame:
        """The rows of some numbers, in their order.

        Args:
            numbers: Each of a row that is there, or of a newer one.
            newer: Rows that are not there, and the number of the first: theirs follow each other.
        """
        if not len(numbers):
            return self._none
        # In order of their numbers each run is gone through once, from its old rows to its young ones.
        order = np.argsort(numbers)
        ordered = numbers[order]
        held = len(ordered) if newer is None else int(np.searchsorted(ordered, newer[0]))
        parts = [(run.frame, at) for _, run, at in self._by_run(ordered[:held])]
        if newer is not None and held < len(ordered):
            parts.append((newer[1], ordered[held:] - newer[0]))
        back = np.empty(len(numbers), np.int64)
        back[order] = np.arange(len(numbers))
        if len(parts) == 1:
            frame, at = parts[0]
            return columns.take(frame, at[back])
        return columns.take(pl.concat([columns.take(*part) for part in parts]), back)

    def drop(self, numbers: Numbers) -> None:
        """Forget rows that are there."""
        for index, run, at in self._by_run(np.sort(numbers)):
            run.here[at] = False
            run.count -= len(at)
            if 2 * run.count < len(run.numbers):
                self._runs[index] = _packed(run)
        self._runs = [run for run in self._runs if run.count]

    def _by_run(self, ordered: Numbers) -> list[tuple[int, _Run, npt.NDArray[np.intp]]]:
        """The runs that have rows of ascending numbers: (index, run, where in it)."""
        firsts = np.array([run.numbers[0] for run in self._runs], np.int64)
        bounds = [*np.searchsorted(ordered, firsts).tolist(), len(ordered)]
        return [
            (index, run, np.searchsorted(run.numbers, ordered[bounds[index] : bounds[index + 1]]))
            for index, run in enumerate(self._runs)
            if bounds[index] < bounds[index + 1]
        ]


def _packed(run: _Run) -> _Run:
    if run.count == len(run.numbers):
        return run
    kept = np.flatnonzero(run.here)
    return _Run(run.numbers[kept], columns.take(run.frame, kept), np.ones(len(kept), np.bool_), len(kept))


def _together(runs: list[_Run]) -> _Run:
    if len(runs) == 1:
        return runs[0]
    packed = [_packed(run) for run in runs]
    numbers = np.concatenate([run.numbers for run in packed])
    frame = pl.concat([run.frame for run in packed], rechunk=True)
    return _Run(numbers, frame, np.ones(len(numbers), np.bool_), len(numbers))
