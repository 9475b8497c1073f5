"""The candidates for an extreme of a running window: for each group the events that can still become the extreme.

An event drops out as soon as another event of its group is as great and lives as long. The remaining events form a
Pareto run: the later they end, the smaller they are. So between two CTIs a group's greatest event ends in between,
or is the first to end after them; a step reads no other events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.aggregates.selection import Extremum
from gpu_ops.operators.row_order import run_starts
from gpu_ops.operators.state.fields import row_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, concat_rows

CODES = ("order", "numbers")
"""The column of order codes: the greater, the nearer to the extreme. Codes of ranks compare only within a run."""


class ParetoRuns(RowRuns):
    """The events that can still become one extreme, in runs by group and end.

    Rows that have ended, or that a row of another run beats, are kept until runs are merged or
    most of a run has ended: every row ends once, in a step of its group, and is counted then.

    Args:
        extreme: The extreme.
        device: Where arrays live.
    """

    _whole = True

    def __init__(self, extreme: Extremum, device: Device) -> None:
        super().__init__(("group", "high"), device)
        self.extreme = extreme
        self._none: AxisRows | None = None

    def reach(self, touched: Any, done: int, limit: int) -> AxisRows | None:
        """The rows that a step needs: for each run and group the rows that end in the step, and the first one after.

        Args:
            touched: int64 numbers of the step's groups.
            done: The place of the last step's CTI.
            limit: That of this one's.

        Returns:
            The rows, which are kept; None before any row was added.
        """
        kernels, self._done = self._device.kernels, limit
        groups = touched.astype(np.int32)
        # Two searches for each group, one behind the other: the second begins near its result.
        twice = np.repeat(groups, 2)
        places = np.full_like(twice, limit, dtype=np.int64)
        places[::2] = done
        pieces = []
        for run in self.runs:
            found = kernels.search_pairs(run.rows.code, run.rows.high, twice, places)
            begin, end = found[::2].copy(), found[1::2].copy()
            last = len(run.rows) - 1
            follows = (end <= last) & (kernels.take(run.rows.code, np.minimum(end, last)) == groups)
            run.left -= int((end - begin).sum())
            source, offset = kernels.expand(end - begin + follows)
            pieces.append(run.rows.take(kernels.take(begin, source) + offset, self._device))
        return concat_rows(pieces, self._device) if pieces else self._none

    def add(self, rows: AxisRows) -> None:
        """Add rows: a `pareto_run` in which no row has ended."""
        self._none = rows.cut(0, 0, self._device) if self._none is None else self._none
        super().add(rows)

    def rows(self) -> AxisRows | None:
        """All that have not ended, as one Pareto run; None if there is none."""
        pieces = self.pieces()
        # Ranked anew, the same rows have the same codes, whatever other rows came in between.
        return self._coded(self._merged(pieces)) if pieces else None

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

    def put_back(self, rows: AxisRows) -> None:
        """What `rows` gave, in any order."""
        self.add(self._merged([self._ordered(rows)]))

    def _merged(self, pieces: Sequence[AxisRows]) -> AxisRows:
        return pareto_run(self._coded(super()._merged(pieces)), self._device)

    def _coded(self, rows: AxisRows) -> AxisRows:
        """The rows, with codes that compare across all of them."""
        if not self.extreme.by_rank:
            return rows
        return replace(rows, columns={CODES: Column((self.extreme.ranked(rows.frame, self._device),), None)})


def pareto_run(rows: AxisRows, device: Device) -> AxisRows:
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
    # A row drops out if a later row of its group is at least as great.
    left = rows.take(kernels.keep(order > kernels.range_max(order, group, places, len(rows), places)), device)
    # Of rows that end together the first is the greatest.
    first = run_starts(left.code, left.high)
    return left if bool(first.all()) else left.take(kernels.keep(first), device)
