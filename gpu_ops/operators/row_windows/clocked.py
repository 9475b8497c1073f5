"""Data windows that a clock drives, step by step: as other data windows, with the ticks of the step beside the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import BATCH_DUE, DUE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import Events, concat, present
from gpu_ops.operators.operator import BatchInput, StepInput
from gpu_ops.operators.row_windows import clock_kinds
from gpu_ops.operators.row_windows.groups import GroupStates
from gpu_ops.operators.row_windows.incremental import IncrementalDataWindow, Settled
from gpu_ops.operators.row_windows.ticks import TickQueue
from gpu_ops.operators.row_windows.window_state import ENTER, FLOOR, NUMBER
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.clock_windows import ClockedWindow
from gpu_ops.plan.data_windows import Output
from gpu_ops.plan.window_kinds import UNKNOWN, WindowRows

_NEVER = -(1 << 62)
"""Before all clocks."""


class IncrementalClockedWindow(IncrementalDataWindow, nodes=(ClockedWindow,)):
    """The steps of one data window that a clock drives. Groups are due at times of the clock.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _may_batch = False

    _node: ClockedWindow

    def __init__(self, node: ClockedWindow, device: Device) -> None:
        super().__init__(node, device)
        self._ticks = TickQueue(device)
        self._moves = self._ticks.through(None, 0)
        self._opening = None if node.group else clock_kinds.opening(node.window)

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """All columns of its rows, and the ticks."""
        return self._node.needs(wanted)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step; nothing is kept."""
        pieces = [concat(pieces, self._device) for pieces in whole.inputs]
        given = [StepInput([] if piece is None else [piece]) for piece in pieces]
        yield from self.step(given, [MAX_TIME, MAX_TIME])[0].events

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        self._moves = self._ticks.through(events[1], cti)
        if self._opening is not None and not self._groups.seen:
            # The clock of such a window runs before its first row.
            self._groups.see()
            self._known.grow(1)
            self._known.due[:], self._known.closed[:] = self._opening, self._opening
        made, passed = super()._moved(events, given, cti)
        return made, cti if self._node.output == "posts" else passed

    @property
    def _clock(self) -> int:
        """What the clock shows at the end of the step, if it was moved."""
        last = self._moves.last
        return _NEVER if last is None else last

    def _touched(self, fresh: AxisRows | None, ended: AxisRows | None, cti: int) -> Any:
        count = len(self._groups)
        due = self._device.kernels.keep(self._known.due[:count] <= self._clock)
        if cti == MAX_TIME:
            due = np.concatenate([due, self._kept_groups()])
        if fresh is not None:
            due = np.concatenate([due, present(fresh.code, count, self._device)])
        return present(due, count, self._device) if len(due) else due

    def _changes(self, touched: Any, before: Any, groups: GroupStates, cti: int) -> Any | None:
        return self._node.window.changed(before, groups.seen[touched], groups.due[touched], self._clock)

    def _held(self, rows: AxisRows, codes: Any, touched: Any, groups: GroupStates, before: Any, cti: int) -> WindowRows:
        held = super()._held(rows, codes, touched, groups, before, cti)
        return replace(held, ticks=self._moves, due=groups.due[touched])

    def _no_rows(self) -> AxisRows | None:
        """No rows, with their columns: a timer may go on without any."""
        columns, schema = self._device.columns, self._node.input.schema
        none = columns.array(np.zeros(0, np.int64))
        names = [NUMBER, ENTER, FLOOR]
        if self._node.window.note is not None:
            names.append(("row", self._node.window.note.name))
        made = {name: Column((none,), None) for name in names}
        return AxisRows(none.astype(np.int32), none, none, made, columns.from_arrow(empty_table(schema)))

    def _given(self, found: Settled) -> Settled:
        """The rows with the columns that are read, and the times at which their leaves, or their batches, fell due."""
        if self._node.output == "posts":
            return found
        columns, membership, names = self._device.columns, found.membership, self._node.schema.names
        times = {DUE: (membership.fell, membership.leave), BATCH_DUE: (membership.came, membership.enter)}
        parts = [columns.select(found.rows.frame, [name for name in names if name not in times])]
        for name, (fell, at) in times.items():
            if name in names:
                due = np.full_like(found.rows.low, UNKNOWN) if fell is None else fell
                known = (due != UNKNOWN) & (at < MAX_TIME)
                given = np.where(known, due, 0), None if bool(known.all()) else known, TIME_TYPE
                parts.append(columns.build({name: given}))
        return replace(found, rows=replace(found.rows, frame=columns.beside(*parts)))

    def _posts(self, found: Settled) -> list[Events]:
        """A point where the window posts."""
        if found.membership.posts is None:
            return []
        at, due = found.membership.posts
        if not len(at):
            return []
        return [Events(self._moves.places_at(at), TICK, self._device.columns.build({DUE: (due, None, TIME_TYPE)}))]

    _EMITTERS: ClassVar[dict[Output, Callable[[Any, Settled], list[Events]]]] = {
        **IncrementalDataWindow._EMITTERS,  # noqa: SLF001  (its own kind)
        "posts": _posts,
    }

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return super().alive + len(self._ticks)

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI past their places."""
        return super().waiting + len(self._ticks)

    def _plain_tables(self) -> dict[str, pa.Table]:
        """Those of a data window, and the ticks that wait."""
        return super()._plain_tables() | self._ticks.tables()

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        own = {name: table for name, table in tables.items() if name != "ticks"}
        yield from super().declared(own)
        yield from self._ticks.declared()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        self._ticks.restore(tables)
        super().restore({name: table for name, table in tables.items() if name != "ticks"})
