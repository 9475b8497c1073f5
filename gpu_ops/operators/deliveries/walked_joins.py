"""Deliveries of a join of two windows of time: of each row that comes or goes the stretch of rows that it meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts, StatePart, in_parts, whole
from gpu_ops.core.state_tables import OLDER, StateTable, Tables
from gpu_ops.core.table_runs import TableRuns
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import CLOCK, HELD, NEW, OLD, ORDER, of_stream
from gpu_ops.devices import Device
from gpu_ops.errors import SourceError
from gpu_ops.operators.aggregates.forms import Column
from gpu_ops.operators.deliveries.rows import numbered, of_kind
from gpu_ops.operators.events import Events, concat, present
from gpu_ops.operators.joins import joins
from gpu_ops.operators.operator import BatchInput, InParts, StepInput
from gpu_ops.operators.row_order import in_order, stable_order
from gpu_ops.operators.row_windows.clock_kinds import after
from gpu_ops.operators.row_windows.ticks import AskQueue, TickQueue, Ticks
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, nullable_columns, row_columns
from gpu_ops.operators.state.row_runs import RowRuns, ordered, parts_of, restore_runs
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, concat_rows, shown_time
from gpu_ops.plan.walked_joins import WalkedJoin
from gpu_ops.plan.window_kinds import UNKNOWN

_Pairs = tuple[Any, Any, Any, Any]
"""Of each pair: the left row, the right one, the place at which it comes or goes, its number there; all int64."""

_LEAVE, _TURN = ("row", "leave"), ("row", "turn")
"""The columns of rows in a part of a step: where each leaves, `UNKNOWN` for those that stay; how many rows of both
sides come in it before, -1 for those that came earlier."""


class WalkedJoinOperator(InParts, nodes=(WalkedJoin,)):
    """The rows of both windows by key; a batch is one step.

    The rows of a key leave in the order in which they came, so that those that a row meets stand side by side.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: WalkedJoin

    def __init__(self, node: WalkedJoin, device: Device) -> None:
        super().__init__(node, device)
        names = tuple(mine for mine, _ in node.on)
        self._keys = pa.schema([node.left.schema.field(name).with_nullable(True) for name in names])
        self._groups, self._key_runs = GroupInterner(names, self._keys, device), TableRuns("")
        self._sides = [_Side(node, number, device) for number in range(2)]
        self._ticks, self._asks, self._shown = TickQueue(device), AskQueue(device), MIN_TIME

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * 3)
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The deliveries of all turns before the CTI."""
        cti = min(ctis)
        *arrived, ticks = (concat(fed.events, self._device) for fed in given)
        moves = self._ticks.through(ticks, cti)
        fresh = [side.came(events, cti, self._groups) for side, events in zip(self._sides, arrived, strict=True)]
        made = list[Events]()
        for ask in self._asks.through(ticks if self._node.content else None, cti):
            now, moves = moves.parted(ask)
            cuts = [int(np.searchsorted(rows.low, ask, side="right")) for rows in fresh]
            some = [rows.cut(0, at, self._device) for rows, at in zip(fresh, cuts, strict=True)]
            fresh = [rows.cut(at, len(rows), self._device) for rows, at in zip(fresh, cuts, strict=True)]
            made += [*self._part(some, now), *self._content(ask)]
        made += self._part(fresh, moves)
        if cti == MAX_TIME:
            for side in self._sides:
                side.kept.replace([])
        self._forget()
        return StepInput(made), cti

    # A part of a step

    def _part(self, fresh: Sequence[AxisRows], moves: Ticks) -> list[Events]:
        """What happens up to a place at which content is asked for, or up to the end of the step."""
        made, before = list[Events](), self._shown
        codes = [rows.code for rows in fresh]
        for side in self._sides:
            codes += side.left(moves.last) if moves.last is not None else []
        self._shown = before if moves.last is None else moves.last
        groups = np.concatenate(codes)
        if not len(groups):
            return []
        groups = present(groups, len(self._groups), self._device)
        order, _ = self._device.kernels.merged_order(*(each.low for each in fresh))
        turn = np.empty_like(order)
        turn[order] = np.arange(len(order), like=order)
        turns = turn[: len(fresh[0])], turn[len(fresh[0]) :]
        rows = [
            side.content(groups, _moving(each, number, moves), before, moves)
            for side, each, number in zip(self._sides, fresh, turns, strict=True)
        ]
        if not all(self._device.kernels.is_ordered(each.code, _column(each, _LEAVE)) for each in rows):
            raise SourceError("The state of a window is damaged: a row leaves it before an older one.", remedy=OLDER)
        if all(map(len, rows)):
            made += self._came(rows)
            made += self._gone(rows) if self._node.old else []
        for side, each in zip(self._sides, rows, strict=True):
            stays = self._device.kernels.keep((_column(each, _TURN) >= 0) & (_column(each, _LEAVE) == UNKNOWN))
            if len(stays):
                side.kept.add(replace(each, columns={}).take(stays, self._device))
        return made

    def _came(self, rows: Sequence[AxisRows]) -> list[Events]:
        """The pairs of which a row comes: it meets those that came before and have not left."""
        kernels, take = self._device.kernels, self._device.kernels.take
        own = [kernels.keep(_column(each, _TURN) >= 0) for each in rows]
        turn = np.concatenate([take(_column(each, _TURN), at) for each, at in zip(rows, own, strict=True)])
        order = np.empty_like(turn)
        order[turn] = np.arange(len(turn), like=turn)
        place = [take(each.low, at) for each, at in zip(rows, own, strict=True)]
        # Of two that come at one place the right one meets the left one.
        return self._given(NEW, rows, self._pairs(rows, order, own, place, gone=(0, 0), late=(1, 0)))

    def _gone(self, rows: Sequence[AxisRows]) -> list[Events]:
        """The pairs of which a row leaves: it met those that came before that and have not left earlier."""
        kernels, take = self._device.kernels, self._device.kernels.take
        own = [kernels.keep(_column(each, _LEAVE) != UNKNOWN) for each in rows]
        place = [take(_column(each, _LEAVE), at) for each, at in zip(rows, own, strict=True)]
        order = stable_order([np.concatenate(place)], np.concatenate(place), self._device)
        # Pairs of two that leave at one place are found with the left one.
        return self._given(OLD, rows, self._pairs(rows, order, own, place, gone=(1, 0), late=(1, 1)))

    def _content(self, place: int) -> list[Events]:
        """All pairs that are in, at a place."""
        kernels = self._device.kernels
        rows = [side.everything() for side in self._sides]
        if not all(map(len, rows)):
            return []
        left, right = rows
        first, last = (
            np.searchsorted(right.code, left.code, side=side).astype(np.int64, copy=False) for side in ("left", "right")
        )
        every = np.arange(len(left), like=left.low)
        order = kernels.group_order(np.zeros_like(left.code), 1, left.low)
        pairs = kernels.pairs_in_turn(order, every, first, last - first, np.full_like(every, place), len(left))
        return self._given(HELD, rows, pairs)

    def _pairs(
        self,
        rows: Sequence[AxisRows],
        order: Any,
        own: Sequence[Any],
        place: Sequence[Any],
        *,
        gone: tuple[int, int],
        late: tuple[int, int],
    ) -> _Pairs:
        """The pairs of some rows with those that are there at their places, in order of place and of both rows.

        Args:
            rows: The rows of both sides.
            order: int64 order of the rows that meet others, those of the left side before those of the right side.
            own: int64 indices of these on each side.
            place: int64 place of each.
            gone: As in `Kernels.met_stretches`, for those of each side.
            late: Likewise.
        """
        kernels, take = self._device.kernels, self._device.kernels.take
        stretches = []
        for mine, others in enumerate(reversed(rows)):
            code = take(rows[mine].code, own[mine])
            leave = _column(others, _LEAVE)
            found = kernels.met_stretches(code, place[mine], others.code, others.low, leave, gone[mine], late[mine])
            stretches.append(found)
        first, last = (np.concatenate([each[at] for each in stretches]) for at in range(2))
        when = np.concatenate(place)
        count = np.maximum(last - first, 0)
        left, right, where, number = kernels.pairs_in_turn(order, np.concatenate(own), first, count, when, len(own[0]))
        turns = take(when, order)
        if bool((turns[1:] == turns[:-1]).any()):
            keys = [where, take(rows[0].low, left), take(rows[1].low, right)]
            if not in_order(keys):
                order = stable_order(keys, where, self._device)
                left, right, where = (take(each, order) for each in (left, right, where))
                number = numbered(where, device=self._device)
        return left, right, where, number

    def _given(self, kind: int, rows: Sequence[AxisRows], pairs: _Pairs) -> list[Events]:
        *members, where, number = pairs
        if not len(where):
            return []
        columns = self._device.columns
        parts = [columns.take(side.frame, at) for side, at in zip(rows, members, strict=True) if side.frame is not None]
        parts += [of_kind(kind, len(where), self._device), columns.build({ORDER: (number, None, pa.int64())})]
        frame = columns.beside(*parts)
        return [Events(where, TICK, columns.select(frame, self._node.schema.names))]

    # The state

    def _forget(self) -> None:
        """Forget keys of which no row is left, once they are most of all."""
        if not self._groups.crowded:
            return
        used = np.zeros(len(self._groups), np.bool_)
        for side in self._sides:
            for rows in side.kept.pieces():
                used[self._device.columns.host(rows.code)] = True
        numbers = self._groups.forget(used)
        if numbers is not None:
            self._key_runs.forget()
            for side in self._sides:
                side.kept.renumber(numbers)

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return sum(len(side.kept) for side in self._sides) + self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI past their places."""
        return sum(len(side.waiting) for side in self._sides) + len(self._ticks) + len(self._asks)

    def state_parts(self) -> Parts:
        """The rows in the windows and those that wait, by the numbers of their keys, and what the clock shows."""
        made = self._ticks.tables() | self._asks.tables()
        made["clock"] = pa.table({"shown": pa.array([self._shown], pa.int64())})
        parts: dict[str, Sequence[StatePart]] = {**in_parts(made)}
        if self._groups.seen:
            parts["keys"] = self._key_runs.parts(len(self._groups), self._key_rows)
        for side in self._sides:
            parts |= side.state_parts()
        return parts

    def _key_rows(self, at: Any) -> pa.Table:
        keys = self._groups.keys_of(self._device.columns.array(at))
        return empty_table(self._keys) if keys is None else self._device.columns.to_arrow(keys, self._keys)

    entire_tables = ("keys",)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from self._ticks.declared()
        yield from self._asks.declared()
        yield StateTable("clock", {"shown": NUMBERED_TIME}, rows=1)
        yield StateTable("keys", nullable_columns(self._keys, ""), unique=tuple(self._keys.names))
        groups = tables["keys"].num_rows if "keys" in tables else 0
        for side in self._sides:
            yield from side.declared(groups)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        rows = {name for side in self._sides for name in side.runs}
        tables = whole({name: each for name, each in parts.items() if name not in rows})
        self._ticks.restore(tables)
        self._asks.restore(tables)
        if "clock" in tables:
            self._shown = tables["clock"]["shown"][0].as_py()
        self._key_runs.restore(parts.get("keys", ()))
        if "keys" in tables:
            self._groups.restore(self._device.columns.from_arrow(tables["keys"]))
        for side in self._sides:
            restore_runs(side.runs, parts, self._device, len(self._groups))


class _Side:
    """The rows of one stream: those that wait for a CTI past their places, and those in its window.

    Args:
        node: The join.
        number: The stream's number.
        device: Where arrays live.

    Attributes:
        waiting: Rows with the clock that they came at, in order of their places.
        kept: Rows with the time at which they are due, in order of their keys and places.
    """

    def __init__(self, node: WalkedJoin, number: int, device: Device) -> None:
        self._number, self._device, self._on, self._span = number, device, node.on, node.spans[number]
        self._shown = node.columns(number)
        schema, own = node.inputs[number].schema, {each[number] for each in node.on}
        self._read = pa.schema([each for each in schema if each.name in {*self._shown.names, *own}])
        self.waiting, self.kept = RowRuns(("low",), device), RowRuns(("group", "low"), device)

    def came(self, events: Events | None, cti: int, groups: GroupInterner) -> AxisRows:
        """The arrivals before the CTI that have a key, in order, each with the time at which it is due."""
        device, fresh = self._device, list[AxisRows]()
        if events is not None and len(events):
            clock = device.columns.values(events.frame, of_stream(CLOCK, self._number))[0]
            code = np.zeros_like(clock, dtype=np.int32)
            frame = device.columns.select(events.frame, self._read.names)
            fresh.append(AxisRows(code, events.start, clock, {}, frame))
        rows = self.waiting.through(fresh, cti if cti == MAX_TIME else cti - 1)
        if rows is None:
            return self._none()
        if not device.kernels.ascends(rows.low):
            rows = rows.take(np.argsort(rows.low, kind="stable"), device)
        names = [each[self._number] for each in self._on]
        known = joins.known_keys(names, rows.frame, device)
        if known is not None and not bool(known.all()):
            rows = rows.take(device.kernels.keep(known), device)
        keys = joins.right_keys(self._on, rows.frame, device) if self._number else rows.frame
        due = np.full_like(rows.high, UNKNOWN)
        if self._span is not None:
            due = after(self._span, rows.high, device)
            due = np.where(due > MAX_TIME, UNKNOWN, due)
        return AxisRows(groups.codes(keys), rows.low, due, {}, self._frame(rows.frame))

    def _frame(self, frame: Any) -> Any | None:
        """The columns that are shown; None if there are none."""
        return self._device.columns.select(frame, self._shown.names) if self._shown.names else None

    def _none(self) -> AxisRows:
        """No rows."""
        columns = self._device.columns
        none = columns.array(np.zeros(0, np.int64))
        return AxisRows(
            none.astype(np.int32), none, none, {}, self._frame(columns.from_arrow(empty_table(self._shown)))
        )

    def left(self, clock: int) -> list[Any]:
        """int32: the keys of the rows that are due by a time; behind this part they are no longer wanted."""
        return [self._device.kernels.take(run.rows.code, at) for run, at in self.kept.ended(clock)]

    def content(self, groups: Any, fresh: AxisRows, shown: int, moves: Ticks) -> AxisRows:
        """The rows of some keys that are due after a time, and new ones; in order of key and place."""
        device, rows = self._device, list[AxisRows]()
        for run, at in self.kept.of_groups(groups) if self.kept.runs else ():
            some = run.rows.take(at, device)
            some = some.take(device.kernels.keep(some.high > shown), device)
            rows += [_moving(some, np.full_like(some.low, -1), moves)] if len(some) else []
        rows += [fresh] if len(fresh) or not rows else []  # behind those that came before: mostly in order by key
        return ordered(concat_rows(rows, device), "low", device)

    def everything(self) -> AxisRows:
        """All rows in the window, in order of key and place."""
        rows = self.kept.rows()
        return self._none() if rows is None else ordered(rows, "low", self._device)

    # The state

    @property
    def runs(self) -> dict[str, RowRuns]:
        """Its rows by the names of their tables: those that wait, then those in the window."""
        side = ("left", "right")[self._number]
        return {f"waiting {side}": self.waiting, side: self.kept}

    def state_parts(self) -> Parts:
        """The rows."""
        return parts_of(self.runs, self._table)

    def _table(self, name: str, rows: AxisRows) -> pa.Table:
        schema = self._read if name.startswith("waiting") else self._shown
        return rows.to_arrow(schema, self._device, shown_time)

    def declared(self, groups: int) -> Iterator[StateTable]:
        """The tables that `state_parts` gives."""
        waiting, kept = self.runs
        yield StateTable(waiting, row_columns(TIME, TIME, 1, frame=self._read))
        yield StateTable(kept, row_columns(TIME, replace(TIME, nullable=True), groups, frame=self._shown))


def _moving(rows: AxisRows, turn: Any, moves: Ticks) -> AxisRows:
    """Rows in a part of a step, with the turn at which each comes."""
    kernels = moves.device.kernels
    if kernels.ascends(rows.high):
        leave = kernels.due_places(rows.high, moves.place, moves.clock)
        leave = np.concatenate([leave, np.full_like(leave, UNKNOWN, shape=(len(rows) - len(leave),))])
    else:
        leave = moves.places_at(moves.first_at(rows.high))
    return replace(rows, columns={_LEAVE: Column((leave,), None), _TURN: Column((turn,), None)})


def _column(rows: AxisRows, name: tuple[str, str]) -> Any:
    """The values of one of these columns."""
    return rows.columns[name].arrays[0]
