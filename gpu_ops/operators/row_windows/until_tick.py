"""Rows until a tick, or until a later stamp: when each is due is known as it comes, but not where it leaves then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, DUE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, InParts, StepInput
from gpu_ops.operators.row_windows.clock_kinds import after, stamps_of
from gpu_ops.operators.row_windows.ticks import TickQueue, Ticks
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, row_columns
from gpu_ops.operators.state.row_runs import RowRuns, parts_of, restore_runs
from gpu_ops.operators.state.rows import AxisRows, shown_time
from gpu_ops.plan.clock_windows import UntilStamp, UntilTick
from gpu_ops.plan.window_kinds import OUT, UNKNOWN

_LEAVE = ("row", "leave")

_PLACE = ("row", "place")
"""The column of a row's place, of which the least is asked for while the rows are in order of their times."""


class UntilTickOperator(InParts, nodes=(UntilTick,)):
    """The rows that are in, in order of the times at which they leave: a step looks at those alone that do.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: UntilTick

    def __init__(self, node: UntilTick, device: Device) -> None:
        super().__init__(node, device)
        self._waiting, self._kept, self._ticks = (
            RowRuns(("low",), device),
            RowRuns(("high",), device),
            TickQueue(device),
        )
        self._opens = False

    gives_open = True

    def open(self) -> None:
        """Emit rows as soon as they come, and again when they leave."""
        self._opens = True

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step; nothing is kept."""
        pieces = [concat(pieces, self._device) for pieces in whole.inputs]
        given = [StepInput([] if piece is None else [piece]) for piece in pieces]
        yield from self.step(given, [MAX_TIME] * len(given))[0].events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that came, and those that left."""
        cti, device = min(ctis), self._device
        arrivals, ticks = (concat(fed.events, device) for fed in given)
        moves, fresh = self._ticks.through(ticks, cti), self._came(arrivals, cti)
        if fresh is None:
            return self._passed(None, None, moves, cti)
        node, columns = self._node, device.columns
        due, valid = columns.values(fresh.frame, node.since)
        if valid is not None:
            due = np.where(valid, due, UNKNOWN)
        if node.span is not None:
            due = after(node.span, due, device)
        fresh = replace(fresh, high=np.where(due > MAX_TIME, UNKNOWN, due))
        # A row that stays is due after what the clock showed when it came, so that no earlier tick makes it leave.
        late = fresh.high <= columns.values(fresh.frame, CLOCK)[0]
        return self._passed(fresh, late, moves, cti)

    def _came(self, arrivals: Events | None, cti: int) -> AxisRows | None:
        """The rows whose places are before the CTI."""
        fresh = []
        if arrivals is not None and len(arrivals):
            code = np.zeros_like(arrivals.start, dtype=np.int32)
            fresh.append(AxisRows(code, arrivals.start, arrivals.start, {}, arrivals.frame))
        return self._waiting.through(fresh, cti if cti == MAX_TIME else cti - 1)

    def _passed(self, fresh: AxisRows | None, late: Any | None, moves: Ticks, cti: int) -> tuple[StepInput, int]:
        """What became of kept rows and of new ones.

        Args:
            fresh: New rows; as their ends the times when they are due.
            late: Which of them are in at their own places alone; None for none.
            moves: The moves of the clock.
            cti: The CTI.
        """
        opened, left = list[Events](), self._left(moves)
        made = [] if self._opens else left
        if fresh is not None:
            leave = moves.places_at(moves.first_at(fresh.high))
            if late is not None and bool(late.any()):
                leave = np.where(late, fresh.low + TICK, leave)
            if cti == MAX_TIME:
                leave = np.minimum(leave, MAX_TIME)
            gone, kept = self._parted(replace(fresh, columns={_LEAVE: Column((leave,), None)}))
            made += [self._given(each, each.columns[_LEAVE].arrays[0]) for each in gone]
            for each in kept:
                self._kept.add(replace(each, columns={_PLACE: Column((each.low,), None)}))
                if self._opens:
                    opened.append(self._given(each, TICK))
        if cti == MAX_TIME:
            rest = [] if self._opens else self._kept.pieces()
            made += [self._given(rows, np.full_like(rows.low, MAX_TIME)) for rows in rest]
            self._kept.replace([])
        floor = None if self._opens or cti == MAX_TIME else self._kept.least(_PLACE)
        passed = cti if floor is None else min(cti, floor)
        return StepInput(made, opened, left if self._opens else []), passed

    def _left(self, moves: Ticks) -> list[Events]:
        """The kept rows that leave."""
        if moves.last is None:
            return []
        left = self._kept.due(moves.last)
        return [self._given(rows, moves.places_at(moves.first_at(rows.high))) for rows in left]

    def _given(self, rows: AxisRows, leave: Any) -> Events:
        """Rows that are due at their ends, with the places at which they leave."""
        columns, known = self._device.columns, rows.high != UNKNOWN
        if bool(known.all()):
            due = columns.build({DUE: (rows.high, None, TIME_TYPE)})
        else:
            due = columns.build({DUE: (np.where(known, rows.high, 0), known, TIME_TYPE)})
        return Events(rows.low, leave, columns.beside(rows.frame, due))

    def _parted(self, rows: AxisRows) -> tuple[list[AxisRows], list[AxisRows]]:
        """(the rows whose leaves are known, the others)."""
        device = self._device
        stays = rows.columns[_LEAVE].arrays[0] == UNKNOWN
        count = len(rows) - int(np.count_nonzero(stays))
        if bool(stays[:count].any()):
            parts = [rows.take(device.kernels.keep(mask), device) for mask in (~stays, stays)]
        else:
            parts = [rows.cut(0, count, device), rows.cut(count, len(rows), device)]
        gone, kept = ([each] if len(each) else [] for each in parts)
        return gone, kept

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return len(self._kept) + self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI past their places."""
        return len(self._waiting) + len(self._ticks)

    def state_parts(self) -> Parts:
        """The rows and the ticks that wait, and the rows that are in."""
        return in_parts(self._ticks.tables()) | parts_of(self._runs, self._table)

    def _table(self, name: str, rows: AxisRows) -> pa.Table:
        del name
        return rows.to_arrow(self._payload, self._device, shown_time)

    @property
    def _payload(self) -> pa.Schema:
        return self._node.inputs[0].schema

    @property
    def _runs(self) -> dict[str, RowRuns]:
        return {"waiting": self._waiting, "kept": self._kept}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from self._ticks.declared()
        due = replace(TIME, nullable=True)
        schema = self._payload
        yield StateTable("waiting", row_columns(TIME, due, 1, frame=schema))
        yield StateTable("kept", row_columns(TIME, due, 1, numbers={_PLACE: NUMBERED_TIME}, frame=schema))

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        self._ticks.restore(whole({name: each for name, each in parts.items() if name not in self._runs}))
        restore_runs(self._runs, parts, self._device)


class UntilStampOperator(UntilTickOperator, nodes=(UntilStamp,)):
    """The same where the rows themselves move a clock, to the latest stamp so far.

    A row is due a span after the latest stamp when it came, since the rows before it leave first.
    """

    _node: UntilStamp  # type: ignore[assignment]

    def __init__(self, node: UntilStamp, device: Device) -> None:
        super().__init__(node, device)  # type: ignore[arg-type]
        self._latest = OUT

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that came, and those that left.

        Raises:
            TimeError: A stamp is null.
        """
        (cti,), (fed,), device = ctis, given, self._device
        fresh = self._came(concat(fed.events, device), cti)
        none = device.columns.array(np.zeros(0, np.int64))
        if fresh is None:
            return self._passed(None, None, Ticks(none, none, device), cti)
        if not device.kernels.ascends(fresh.low):
            fresh = fresh.take(np.argsort(fresh.low, kind="stable"), device)
        latest = device.kernels.running_max(np.maximum(stamps_of(self._node.stamp, fresh.frame, device), self._latest))
        self._latest = int(latest[-1])
        due = after(self._node.span, latest, device)
        moves = Ticks(fresh.low, latest, device)
        return self._passed(replace(fresh, high=np.where(due > MAX_TIME, UNKNOWN, due)), None, moves, cti)

    def _given(self, rows: AxisRows, leave: Any) -> Events:
        """Rows with the places at which they leave."""
        return Events(rows.low, leave, rows.frame)

    def state_parts(self) -> Parts:
        """The rows that wait, those that are in, and the latest stamp."""
        own = {} if self._latest == OUT else {"latest": pa.table({"stamp": pa.array([self._latest])})}
        return {**super().state_parts(), **in_parts(own)}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        yield StateTable("latest", {"stamp": NUMBERED_TIME}, 1)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        super().put_back(parts)
        if parts.get("latest"):
            (latest,) = parts["latest"]
            self._latest = latest.wanted()["stamp"][0].as_py()
