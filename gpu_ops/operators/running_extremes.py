"""What a running window remembers of an extreme: per group, the events that can still become it.

An event cannot, once another of its group is as great and lives as long. Those that can are a staircase: the later they
end, the less they are worth. So while time goes from one CTI to the next, a group's greatest is one of those that end
in between or the first one after them; no step has to look at the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import Column
from gpu_ops.operators.choices import Extremum
from gpu_ops.operators.state import Rows, concat_rows
from gpu_ops.operators.state_fields import row_columns
from gpu_ops.state_tables import Field, StateTable

CODES = ("order", "numbers")
"""The column of order codes: the greater, the nearer to the extreme. Of ranked values they compare within a run."""


@dataclass
class _Run:
    """Rows in order of group and end; how many of them have ended."""

    rows: Rows
    ended: int = 0


class Staircases:
    """The events that can still become one extreme, as a few runs, each more than twice as long as the next.

    Each run is a staircase for itself. Rows that have ended, or are worth less than one of another run, stay until runs
    are merged, or until most of a run has ended: every row ends once, in a step of its group, and is counted then.

    Args:
        extreme: Of what.
        device: Where arrays live.
    """

    def __init__(self, extreme: Extremum, device: Device) -> None:
        self.extreme, self._device = extreme, device
        self._runs: list[_Run] = []
        self._none: Rows | None = None

    def reach(self, touched: Any, done: int, limit: int) -> Rows | None:
        """The rows that a step needs: per run and group those that end in it, and the first one after them.

        Args:
            touched: int64 numbers of the step's groups.
            done: The place of the last step's CTI.
            limit: That of this one's.

        Returns:
            The rows, still there; None before any were added.
        """
        kernels = self._device.kernels
        groups = touched.astype(np.int32)
        # Two searches for each group, one after the other, so that the second has hardly any way to go.
        twice = np.repeat(groups, 2)
        places = np.full_like(twice, limit, dtype=np.int64)
        places[::2] = done
        pieces = []
        for run in self._runs:
            found = kernels.search_pairs(run.rows.code, run.rows.high, twice, places)
            begin, end = found[::2].copy(), found[1::2].copy()
            last = len(run.rows) - 1
            follows = (end <= last) & (kernels.take(run.rows.code, np.minimum(end, last)) == groups)
            run.ended += int((end - begin).sum())
            source, offset = kernels.expand(end - begin + follows)
            pieces.append(run.rows.take(kernels.take(begin, source) + offset, self._device))
        return concat_rows(pieces, self._device) if pieces else self._none

    def add(self, rows: Rows, done: int) -> None:
        """More rows.

        Args:
            rows: A `staircase`; none has ended.
            done: The place of the CTI.
        """
        self._none = rows.cut(0, 0, self._device) if self._none is None else self._none
        made: list[_Run] = []
        for run in (*self._runs, _Run(rows)):
            made.append(_Run(self._alive(run, done)) if 2 * run.ended > len(run.rows) else run)
            if not len(made[-1].rows):
                made.pop()
            while len(made) > 1 and len(made[-2].rows) < 2 * len(made[-1].rows):
                made[-2:] = [_Run(self._merged([self._alive(each, done) for each in made[-2:]]))]
        self._runs = made

    def rows(self, done: int) -> Rows | None:
        """All that have not ended at a place, as one staircase; None if there is none."""
        whole: list[Rows] = []
        for run in reversed(self._runs):
            alive = self._alive(run, done)
            whole = [self._merged([alive, *whole])] if len(alive) else whole
        # Ranked among themselves, the same rows have the same codes, whatever came between.
        return self._coded(whole[0]) if whole else None

    def declared(self, name: str, place: Field, groups: int, schema: pa.Schema) -> StateTable:
        """The table of `rows`.

        Args:
            name: Its name.
            place: What holds for the places where rows end.
            groups: How many groups there are.
            schema: Types of the columns that are ranked.
        """
        frame = pa.schema([schema.field(each) for each in self.extreme.framed])
        order = {CODES: Field(pa.int64())}
        return StateTable(name, row_columns(place, place, groups, numbers=order, frame=frame))

    def restore(self, rows: Rows, groups: int) -> None:
        """What `rows` gave, in any order."""
        order = self._device.kernels.group_order(rows.code, groups, rows.high)
        self._runs = []
        self.add(self._merged([rows.take(order, self._device)]), 0)

    def renumber(self, numbers: Any, done: int) -> None:
        """Give each group ``g`` the number ``numbers[g]``; groups that have ended have none. Their order stays."""
        alive = [self._alive(run, done) for run in self._runs]
        self._runs = [_Run(replace(rows, code=numbers[rows.code])) for rows in alive if len(rows)]

    def _alive(self, run: _Run, done: int) -> Rows:
        if not run.ended:
            return run.rows
        return run.rows.take(self._device.kernels.keep(run.rows.high > done), self._device)

    def _merged(self, pieces: Sequence[Rows]) -> Rows:
        """One run of at most two."""
        rows, device = concat_rows(pieces, self._device), self._device
        if len(pieces) == 2:
            early, late = pieces
            before = device.kernels.search_pairs(early.code, early.high, late.code, late.high)
            at = before + device.columns.array(np.arange(len(late)))
            is_early = np.ones_like(rows.code, dtype=np.bool_)
            is_early[at] = False
            order = np.empty_like(rows.high)
            order[at] = device.columns.array(np.arange(len(early), len(rows)))
            order[device.kernels.keep(is_early)] = device.columns.array(np.arange(len(early)))
            rows = rows.take(order, device)
        return staircase(self._coded(rows), device)

    def _coded(self, rows: Rows) -> Rows:
        """The rows, with codes that compare among them all."""
        if not self.extreme.by_rank:
            return rows
        return replace(rows, columns={CODES: Column((self.extreme.ranked(rows.frame, self._device),), None)})


def staircase(rows: Rows, device: Device) -> Rows:
    """The rows that can still become an extreme: no other of their group lives as long and is as great.

    Args:
        rows: In order of group and end.
        device: Where arrays live.
    """
    kernels = device.kernels
    if len(rows) < 2:
        return rows
    order = rows.columns[CODES].arrays[0]
    places = device.columns.array(np.arange(len(rows)))
    group = np.searchsorted(rows.code, rows.code).astype(np.int64, copy=False)
    # A row stands in the way of all before it in its group.
    left = rows.take(kernels.keep(order > kernels.range_max(order, group, places, len(rows), places)), device)
    # Of those that end together the first is the greatest.
    first = np.ones_like(left.code, dtype=np.bool_)
    first[1:] = (left.code[1:] != left.code[:-1]) | (left.high[1:] != left.high[:-1])
    return left if bool(first.all()) else left.take(kernels.keep(first), device)
