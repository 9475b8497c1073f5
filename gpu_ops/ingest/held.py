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
        self._runs.append(_Run(numbers, frame, np.ones(len(numbers), np.bool_), len(numbers)))
        while len(self._runs) > 1 and self._runs[-2].count < 2 * self._runs[-1].count:
            younger, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_together(older, younger))

    def find(self, numbers: Numbers) -> pl.DataFrame:
        """The rows of numbers that are there, in their order."""
        if not len(numbers):
            return self._none
        owners = self._owners(numbers)
        parts, order = [], []
        for index in np.unique(owners):
            mine = np.flatnonzero(owners == index)
            run = self._runs[index]
            parts.append(columns.take(run.frame, np.searchsorted(run.numbers, numbers[mine])))
            order.append(mine)
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(numbers), np.int64)
        back[np.concatenate(order)] = np.arange(len(numbers))
        return columns.take(pl.concat(parts), back)

    def drop(self, numbers: Numbers) -> None:
        """Forget rows that are there."""
        if not len(numbers):
            return
        owners = self._owners(numbers)
        for index in np.unique(owners):
            run = self._runs[index]
            gone = numbers[owners == index]
            run.here[np.searchsorted(run.numbers, gone)] = False
            run.count -= len(gone)
            if 2 * run.count < len(run.numbers):
                self._runs[index] = _packed(run)
        self._runs = [run for run in self._runs if run.count]

    def _owners(self, numbers: Numbers) -> npt.NDArray[np.intp]:
        firsts = np.array([run.numbers[0] for run in self._runs], np.int64)
        return np.searchsorted(firsts, numbers, side="right") - 1


def _packed(run: _Run) -> _Run:
    if run.count == len(run.numbers):
        return run
    kept = np.flatnonzero(run.here)
    return _Run(run.numbers[kept], columns.take(run.frame, kept), np.ones(len(kept), np.bool_), len(kept))


def _together(older: _Run, younger: _Run) -> _Run:
    older, younger = _packed(older), _packed(younger)
    return _Run(
        np.concatenate([older.numbers, younger.numbers]),
        pl.concat([older.frame, younger.frame], rechunk=True),
        np.concatenate([older.here, younger.here]),
        older.count + younger.count,
    )
