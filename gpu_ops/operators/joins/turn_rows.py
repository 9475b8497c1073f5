"""Rows of a step of a join on turns: what comes in of a stream, and what each join hands to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import CLOCK, PLACE, of_stream
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.aggregates.forms import Columns
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_windows.data_windows import hashes
from gpu_ops.operators.state.fields import row_columns
from gpu_ops.operators.state.row_runs import RowRuns, parts_of, restore_runs
from gpu_ops.operators.state.rows import AxisRows, concat_rows
from gpu_ops.plan.turn_joins import TurnJoin

OPEN = 1 << 62
"""The place at which a row leaves that has not left: past all places."""

IDENTITIES = OPEN - 1
"""The bits of a row's number of its own."""

ID, AT, NEW, OLD = ("row", "id"), ("row", "clock"), ("row", "new"), ("row", "old")
"""The columns of rows: a number of its own, the clock, and whether it is delivered where it enters or leaves."""

PLACES = Field(pa.int64(), least=-OPEN, most=OPEN)


@dataclass
class Moved:
    """The rows of one side that move in a step; as their places they have even ones.

    Attributes:
        entered: Rows that enter in it; those that stay leave at `OPEN`.
        closed: Rows that entered earlier and leave in it.
        points: Rows that are in for no time, for one tick each: from an even place on they meet the others as they are
            after that moment, up to an even place the others as they were before it.
    """

    entered: list[AxisRows] = field(default_factory=list)
    closed: list[AxisRows] = field(default_factory=list)
    points: list[AxisRows] = field(default_factory=list)


def shown_places(places: Any) -> pa.Array:
    """Places as tables of a state have them."""
    return to_arrow(places, pa.int64())


def column(rows: AxisRows, name: tuple[str, str]) -> Any:
    """The values of one of the columns above."""
    return rows.columns[name].arrays[0]


def with_columns(rows: AxisRows, **values: Any) -> AxisRows:
    """Rows with other values of some columns."""
    return replace(rows, columns=rows.columns | made_columns(**values))


def made_columns(**values: Any) -> Columns:
    """Columns of some values by names."""
    return {("row", name): Column((each,), None) for name, each in values.items()}


def some_of(rows: AxisRows, mask: Any, device: Device) -> AxisRows:
    """The rows at which a mask holds."""
    return rows if bool(mask.all()) else rows.take(device.kernels.keep(mask), device)


class TurnInput:
    """One stream of a join: its rows wait until all streams have come to their places.

    Args:
        node: The join.
        number: The stream's number.
        device: Where arrays live.
    """

    def __init__(self, node: TurnJoin, number: int, device: Device) -> None:
        self._number, self._device, self._schema = number, device, node.columns(number)
        self._is_alone = number in node.unidirectional
        self._has_points = not node.unidirectional
        self._waiting, self._ending = RowRuns(("low",), device), RowRuns(("high",), device)

    def moved(self, given: StepInput, cti: int, done: int) -> Moved:
        """The rows that move from one CTI to another."""
        device, limit = self._device, cti if cti == MAX_TIME else cti - 1
        fresh = [self._rows(piece, is_open=False) for piece in self._pieces(given.events)]
        fresh += [self._rows(piece, is_open=True) for piece in self._pieces(given.opened)]
        over = [self._rows(piece, is_open=False) for piece in self._pieces(given.closed)]
        entering, made = self._waiting.through(fresh, limit), Moved()
        if self._is_alone:
            if entering is not None:
                made.points = [self._point(entering, is_new=True)]
            return made
        leaving = self._ending.through(over, limit)
        if entering is not None:
            instant = entering.low == entering.high
            if bool(instant.any()):
                points = some_of(entering, instant, device)
                if self._has_points:
                    made.points = [self._point(points, is_new=True), self._point(points, is_new=False)]
                entering = entering.take(device.kernels.keep(~instant), device)
            now = entering.high <= limit
            self._ending.add(some_of(entering, ~now & (entering.high < OPEN), device))
            made.entered = [replace(with_columns(entering, old=now), high=np.where(now, entering.high, OPEN))]
        if leaving is not None:
            made.closed = [with_columns(leaving, old=np.ones_like(column(leaving, OLD)))]
            self._brief(made, done)
        for name in ("entered", "closed", "points"):
            setattr(made, name, [each for each in getattr(made, name) if len(each)])
        return made

    def _brief(self, made: Moved, done: int) -> None:
        """Rows that were opened and closed before the other streams came to their places enter and leave now."""
        (leaving,), device = made.closed, self._device
        brief = leaving.low >= done
        if not bool(brief.any()):
            return
        rows = some_of(leaving, brief, device)
        made.closed = [leaving.take(device.kernels.keep(~brief), device)]
        order = np.argsort(column(rows, ID))
        known, high = column(rows, ID)[order], rows.high[order]
        for at, each in enumerate(made.entered):
            ids = column(each, ID)
            found = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            here = known[found] == ids
            ends = np.where(here, high[found], each.high)
            made.entered[at] = replace(with_columns(each, old=column(each, OLD) | here), high=ends)

    def _pieces(self, pieces: Sequence[Events]) -> list[Events]:
        whole = concat(pieces, self._device)
        return [] if whole is None or not len(whole) else [whole]

    def _rows(self, events: Events, *, is_open: bool) -> AxisRows:
        columns, number = self._device.columns, self._number
        low = events.start & ~1
        place = columns.values(events.frame, of_stream(PLACE, number))[0]
        never = np.full_like(low, OPEN)
        yes = np.ones_like(low, dtype=np.bool_)
        return AxisRows(
            np.zeros_like(low, dtype=np.int32),
            low,
            never if is_open else np.where(events.ends >= MAX_TIME, never, events.ends & ~1),
            made_columns(
                id=hashes(number, place, np.zeros_like(place)) & IDENTITIES,
                clock=columns.values(events.frame, of_stream(CLOCK, number))[0],
                new=yes,
                old=~yes,
            ),
            columns.select(events.frame, self._schema.names),
        )

    def _point(self, rows: AxisRows, *, is_new: bool) -> AxisRows:
        """Rows for a tick: with the others as they are after a moment, or as they were before it."""
        low = rows.low if is_new else rows.low - 1
        told = np.ones_like(column(rows, NEW))
        return replace(
            with_columns(rows, new=told if is_new else ~told, old=~told if is_new else told), low=low, high=low + 1
        )

    # The state

    @property
    def waiting(self) -> int:
        """How many rows wait for the other streams."""
        return len(self._waiting)

    @property
    def _runs(self) -> dict[str, RowRuns]:
        return {f"waiting {self._number}": self._waiting, f"ending {self._number}": self._ending}

    def state_parts(self) -> Parts:
        """The rows that wait to enter, and those whose leaves are known already."""
        return parts_of(self._runs, self._table)

    def _table(self, name: str, rows: AxisRows) -> pa.Table:
        del name
        return rows.to_arrow(self._schema, self._device, shown_places)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `state_parts` gives."""
        del tables
        none = np.zeros(0, np.bool_)
        numbers = {ID: Field(pa.int64(), least=0, most=IDENTITIES), AT: Field(pa.int64())}
        columns = row_columns(
            PLACES, PLACES, 1, columns=made_columns(new=none, old=none), numbers=numbers, frame=self._schema
        )
        for name in self._runs:
            yield StateTable(name, columns)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        restore_runs(self._runs, parts, self._device)


def together(pieces: Sequence[AxisRows], device: Device) -> AxisRows | None:
    """All pieces as one; None if there are none."""
    return concat_rows(pieces, device) if pieces else None
