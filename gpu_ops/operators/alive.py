"""What a running query of two streams remembers of either: events that later ones of the other may meet."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import Column
from gpu_ops.operators.state import Rows, concat_rows

CURSOR = ("cursor", "numbers")
"""The column that says from where on nothing has been given of an event yet."""

_FEW = 1024


@dataclass
class Run:
    """Rows in order of group and place.

    Attributes:
        rows: The rows.
        by_end: int64 indices in order of end.
        ends: The ends in that order.
        ended: How many of these have ended.
        gone: Which rows are no longer wanted though they have not ended; None if nobody says so.
        lost: How many of these there are.
    """

    rows: Rows
    by_end: Any
    ends: Any
    ended: int = 0
    gone: Any | None = None
    lost: int = 0

    def __len__(self) -> int:
        return len(self.rows) - self.ended - self.lost

    def cursors(self) -> Any:
        """From where on nothing has been given of each event; to be written into."""
        return self.rows.columns[CURSOR].arrays[0]


class Alive:
    """Events by group, as a few runs, each more than twice as long as the next, the newest last.

    What has ended stays until runs are merged or half of one has ended.

    Args:
        place: By which place they stand within their group.
        device: Where arrays live.
        last: Whether only the last row of each group is wanted.
    """

    def __init__(self, place: Literal["low", "high"], device: Device, *, last: bool = False) -> None:
        self._place, self._device, self._last = place, device, last
        self.runs: list[Run] = []

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def add(self, rows: Rows, done: int) -> None:
        """More rows, in any order; those that end at or before ``done`` may be left out from now on."""
        made: list[Run] = []
        fresh = [self._run(ordered(rows, self._place, self._device))] if len(rows) else []
        for run in (*self.runs, *fresh):
            made.append(self._run(self._wanted(run, done)) if 2 * len(run) < len(run.rows) else run)
            if not len(made[-1].rows):
                made.pop()
            while len(made) > 1 and len(made[-2].rows) < 2 * len(made[-1].rows):
                pieces = [self._wanted(each, done) for each in made[-2:]]
                made[-2:] = [self._run(ordered(concat_rows(pieces, self._device), self._place, self._device))]
        self.runs = made

    def _run(self, rows: Rows) -> Run:
        if self._last and len(rows):
            later = np.concatenate([rows.code[1:] == rows.code[:-1], np.zeros_like(rows.code, shape=1, dtype=np.bool_)])
            rows = rows.take(self._device.kernels.keep(~later), self._device)
        by_end = np.argsort(rows.high, kind="stable")
        return Run(_own(rows), by_end, self._device.kernels.take(rows.high, by_end))

    def _wanted(self, run: Run, done: int) -> Rows:
        alive = run.rows.high > done
        if run.gone is not None:
            alive = alive & ~run.gone
        return run.rows if bool(alive.all()) else run.rows.take(self._device.kernels.keep(alive), self._device)

    def ended(self, limit: int) -> Iterator[tuple[Run, Any]]:
        """Per run the rows that have ended at a place, each once; those that were dropped before are left out."""
        for run in self.runs:
            before, run.ended = run.ended, max(run.ended, int(np.searchsorted(run.ends, limit, side="right")))
            at = run.by_end[before : run.ended]
            if run.gone is not None:
                gone = run.gone[at]
                run.lost -= int(gone.sum())
                at = at[~gone]
            yield run, at

    def drop(self, run: Run, at: Any) -> None:
        """Rows of a run are no longer wanted; they are wanted so far."""
        if run.gone is None:
            run.gone = np.zeros_like(run.rows.code, dtype=np.bool_)
        run.gone[at] = True
        run.lost += len(at)

    def rows(self, done: int) -> Rows | None:
        """All that are wanted; None if there are none."""
        pieces = [self._wanted(run, done) for run in self.runs]
        pieces = [piece for piece in pieces if len(piece)]
        return concat_rows(pieces, self._device) if pieces else None

    def renumber(self, numbers: Any, done: int) -> None:
        """Give each group ``g`` the number ``numbers[g]``."""
        kept = [self._wanted(run, done) for run in self.runs]
        self.runs = [self._run(replace(rows, code=numbers[rows.code])) for rows in kept if len(rows)]


def ordered(rows: Rows, place: Literal["low", "high"], device: Device) -> Rows:
    """Rows in order of group and place."""
    places = getattr(rows, place)
    if device.kernels.is_ordered(rows.code, places):
        return rows
    code, groups = rows.code, int(rows.code.max()) + 1
    if groups > 8 * len(rows) + _FEW:
        # A table of all groups would cost more than the rows.
        present, local = np.unique(code, return_inverse=True)
        code, groups = local.astype(np.int32), len(present)
    return rows.take(device.kernels.group_order(code, groups, places), device)


def _own(rows: Rows) -> Rows:
    """The rows with columns that may be written into."""
    columns = {
        name: replace(each, arrays=tuple(part.copy() for part in each.arrays)) for name, each in rows.columns.items()
    }
    return replace(rows, columns=columns)


def with_cursor(rows: Rows, cursor: Any) -> Rows:
    """Rows, and from where on nothing has been given of each."""
    return replace(rows, columns={CURSOR: Column((cursor,), None)})


class Least:
    """The least of some times that come and go, at the cost of a heap."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []

    def add(self, times: Any) -> None:
        """More times."""
        for time, count in _counted(times):
            if time not in self._counts:
                heapq.heappush(self._heap, time)
            self._counts[time] = self._counts.get(time, 0) + count

    def remove(self, times: Any) -> None:
        """Times that were added, one of each."""
        for time, count in _counted(times):
            self._counts[time] -= count
            if not self._counts[time]:
                del self._counts[time]

    def least(self, otherwise: int) -> int:
        """The least time; ``otherwise`` if that is less, or if there is none."""
        while self._heap and self._heap[0] not in self._counts:
            heapq.heappop(self._heap)
        return min(self._heap[0], otherwise) if self._heap else otherwise


def _counted(times: Any) -> Iterator[tuple[int, int]]:
    found, counts = np.unique(times, return_counts=True)
    return zip(found.tolist(), counts.tolist(), strict=True)
