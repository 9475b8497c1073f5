"""Row patterns step by step: the rows of open matches are kept, and looked at again with those that come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.deliveries.changes import between, changes_of, no_changes
from gpu_ops.operators.deliveries.window_content import WindowContent
from gpu_ops.operators.events import FEW, MANY, Events, concat, present
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.ledger.waiting import WaitingPoints
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.row_order import in_order, order_in_places, run_starts, stable_order
from gpu_ops.operators.row_patterns.matching import UNKNOWN, Matching, PartitionRows
from gpu_ops.operators.row_windows.clock_kinds import after
from gpu_ops.operators.row_windows.ticks import TickQueue, Ticks
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, row_columns
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, concat_rows
from gpu_ops.plan.row_matches import RowMatches

_MASK, _ID, _DUE, _PLACE_DUE = ("row", "mask"), ("row", "place"), ("row", "due"), ("row", "due place")


class RowMatchesOperator(IncrementalOperator, nodes=(RowMatches,)):
    """Partitions that rows come to, or in which one falls due or leaves, are looked at from their oldest open row on.

    What was found there before is found again, and left out: a match is delivered at a place, and places pass.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: RowMatches
    _may_batch = False

    def __init__(self, node: RowMatches, device: Device) -> None:
        schema = node.rows.schema
        runs = {"kept": RowRuns(("group", "low"), device)}
        super().__init__(node, node.partition, schema, device, runs)
        self._coming, self._ticks = WaitingPoints("coming", schema, device), TickQueue(device)
        self._clocks = Clocks(device)
        self._matching, self._number = Matching(node, device), 0
        self._read = pa.schema([schema.field(name) for name in node.read])
        self._named = [_MASK, *([_ID] if node.windowed else []), *([_DUE, _PLACE_DUE] if node.interval else [])]

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Any] | None = None) -> Operator:
        """Of content that is asked for another one."""
        del apart
        return ContentMatches(node, device) if node.content else cls(node, device)

    def opens(self, at: int) -> bool:
        """It takes open rows, and whole ticks."""
        return at == 0

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's enter and leave as they come."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        self._clocks.take(given[1].events)
        moves = self._ticks.through(events[1], cti)
        fresh, left = self._came(given[0], cti)
        kept, touched = self._kept(left, moves)
        made = self._matched(fresh, kept, touched, moves)
        self._done = max(self._done, cti)
        self._clocks.forget(cti)
        self._forget()
        return StepInput(made), cti

    # What comes in

    def _came(self, given: StepInput, cti: int) -> tuple[AxisRows | None, tuple[Any, Any] | None]:
        """(rows that come, (the places that name rows that leave, the places at which they do))."""
        columns, kernels, left = self._device.columns, self._device.kernels, None
        if not self._node.windowed:
            points = self._coming.before(cti, given.events)
            if points is None:
                return None, None
            frame, start, leave = points.frame, points.start, points.start
        else:
            changes = changes_of(given, cti, self._device)
            if changes is None:
                return None, None
            gone = kernels.keep(changes.leaves & ~changes.enters)
            if len(gone):
                names = columns.values(columns.take(columns.select(changes.frame, [PLACE]), gone), PLACE)[0]
                left = names, kernels.take(changes.leave, gone)
            come = kernels.keep(changes.enters)
            if not len(come):
                return None, left
            frame, start = columns.take(changes.frame, come), kernels.take(changes.enter, come)
            leave = kernels.take(np.where(changes.leaves, changes.leave, UNKNOWN), come)
        return self._rows(frame, start, leave), left

    def _rows(self, frame: Any, start: Any, leave: Any) -> AxisRows:
        """Rows in the order in which they come; where none ever leaves, nobody reads when they do."""
        columns, node = self._device.columns, self._node
        name, clock = columns.values(frame, PLACE)[0], columns.values(frame, CLOCK)[0]
        made = {_MASK: self._matching.mask(frame), _ID: name}
        if node.interval is not None:
            made |= {_DUE: after(node.interval, clock, self._device), _PLACE_DUE: np.full_like(start, UNKNOWN)}
        rows = AxisRows(
            self._groups.codes(columns.select(frame, list(node.partition))) if node.partition else self._one(start),
            start,
            leave,
            {key: Column((made[key],), None) for key in self._named},
            columns.select(frame, self._read.names),
        )
        # What comes by itself has its place for its name.
        if in_order([start, name]) if node.windowed else self._device.kernels.ascends(start):
            return rows
        return rows.take(stable_order([start, name], start, self._device), self._device)

    def _one(self, start: Any) -> Any:
        self._groups.see()
        return np.zeros_like(start, dtype=np.int32)

    def _kept(self, left: tuple[Any, Any] | None, moves: Ticks) -> tuple[AxisRows | None, Any | None]:
        """The kept rows with what is known of them now, and the groups in which something happens to them."""
        rows = self._runs["kept"].rows()
        if rows is None:
            return None, None
        happens = np.zeros_like(rows.low, dtype=np.bool_)
        if left is not None:
            names, places = left
            order = np.argsort(names, kind="stable")
            names, places = names[order], places[order]
            own = rows.columns[_ID].arrays[0]
            at = np.minimum(np.searchsorted(names, own), len(names) - 1)
            happens = self._device.kernels.take(names, at) == own
            rows = replace(rows, high=np.where(happens, self._device.kernels.take(places, at), rows.high))
        if self._node.interval is not None and len(moves):
            rows, due = self._due(rows, moves)
            happens = happens | due
        return rows, rows.code[happens]

    def _due(self, rows: AxisRows, moves: Ticks) -> tuple[AxisRows, Any]:
        """Rows with the places at which they fall due, and which of them do so now."""
        known = rows.columns[_PLACE_DUE].arrays[0]
        place = moves.places_at(moves.first_at(rows.columns[_DUE].arrays[0]))
        now = (known == UNKNOWN) & (place != UNKNOWN)
        made = Column((np.where(known == UNKNOWN, place, known),), None)
        return replace(rows, columns=rows.columns | {_PLACE_DUE: made}), now

    # Matches

    def _matched(
        self, fresh: AxisRows | None, kept: AxisRows | None, touched: Any | None, moves: Ticks
    ) -> list[Events]:
        device, keep = self._device, self._device.kernels.keep
        if fresh is not None and self._node.interval is not None:
            fresh, _ = self._due(fresh, moves)
        is_touched = np.zeros_like(np.zeros(0, np.bool_) if kept is None else kept.code, dtype=np.bool_)
        if kept is not None:
            some = np.zeros_like(kept.code, shape=(len(self._groups),), dtype=np.bool_)
            for codes in (touched, None if fresh is None else fresh.code):
                if codes is not None:
                    some[codes] = True
            is_touched = some[kept.code]
        pieces = [] if kept is None or not bool(is_touched.any()) else [kept.take(keep(is_touched), device)]
        pieces += [] if fresh is None else [fresh]
        rest = [] if kept is None or bool(is_touched.all()) else [kept.take(keep(~is_touched), device)]
        if not pieces:
            if kept is not None:
                self._runs["kept"].replace([kept])
            return []
        rows = concat_rows(pieces, device)
        found, opened = self._streamed(rows) if self._matching.streams else self._found(rows)
        rest += [rows.take(opened, device)] if len(opened) else []
        self._runs["kept"].replace([])
        if rest:
            self._runs["kept"].add(concat_rows(rest, device))
        return self._given(rows, found)

    def _partitions(self, rows: AxisRows) -> tuple[Any, int]:
        """(the number of each row's partition, how many there are)."""
        code, groups = rows.code, len(self._groups)
        if groups > MANY * len(rows) + FEW:
            # A table of all partitions would cost more than the rows.
            here = present(code, groups, self._device)
            code, groups = np.searchsorted(here, code).astype(np.int32), len(here)
        return code, groups

    def _streamed(self, rows: AxisRows) -> tuple[_Matched, Any]:
        """As `_found`, where rows are matched as they come: those of a partition stand in their order."""
        array, kernels = self._device.columns.array, self._device.kernels
        code, groups = self._partitions(rows)
        found = self._matching.streamed(code, rows.columns[_MASK].arrays[0], groups)
        at = kernels.take(rows.low, array(found.end))
        return _Matched(at, found.upto, found.labels, array(found.rows), None), kernels.keep(array(found.opened))

    def _found(self, rows: AxisRows) -> tuple[_Matched, Any]:
        """(the matches in some partitions, int64 indices of the rows of open ones)."""
        kernels, take, node = self._device.kernels, self._device.kernels.take, self._node
        code, groups = self._partitions(rows)
        if kernels.is_ordered(code, rows.low):
            order = np.arange(len(rows), like=rows.low)
        else:
            order = kernels.group_order(code, groups, rows.low)
        code, place, mask = (take(each, order) for each in (rows.code, rows.low, rows.columns[_MASK].arrays[0]))
        begins = kernels.keep(run_starts(code))
        begins = np.concatenate([begins, np.full_like(begins, len(rows), shape=(1,))])
        never = np.full_like(place, UNKNOWN) if not (node.windowed and node.interval) else place
        leave = take(rows.high, order) if node.windowed else never
        due = take(rows.columns[_PLACE_DUE].arrays[0], order) if node.interval else never
        frame = self._device.columns.take(rows.frame, order) if self._matching.has_programs else None
        found = self._matching.found(PartitionRows(frame, begins, place, mask, leave, due))
        opened = self._device.columns.array(found.opened)
        source, number = kernels.expand(begins[1:] - opened)
        array = self._device.columns.array
        made = _Matched(array(found.at), found.upto, found.labels, take(order, array(found.rows)), found.registers)
        return made, take(order, take(opened, source) + number)

    def _given(self, rows: AxisRows, found: _Matched) -> list[Events]:
        """The matches that are delivered in this step, with their measures."""
        columns, kernels = self._device.columns, self._device.kernels
        new = found.at >= self._done
        if not bool(new.any()):
            return []
        if not bool(new.all()):
            found = found.some(new, self._device)
        at, number = found.at, np.arange(self._number, self._number + len(found.at), like=found.at)
        frame = self._matching.measures(rows.frame, found.upto, found.labels, found.rows, found.registers)
        if not bool((at[1:] > at[:-1]).all()):
            first = kernels.take(found.rows, columns.array(np.concatenate([np.zeros(1, np.int64), found.upto[:-1]])))
            name = kernels.take(rows.columns[_ID].arrays[0] if self._node.windowed else rows.low, first)
            by_place, ordered = order_in_places(at, [name], self._device), number
            number = np.empty_like(by_place)
            number[by_place] = ordered
        self._number += len(at)
        own = columns.build({CLOCK: (self._clocks.at(at), None, TIME_TYPE), PLACE: (number, None, pa.int64())})
        made = own if frame is None else columns.beside(frame, own)
        return [Events(at, TICK, columns.select(made, self._node.schema.names))]

    # The state

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return super().alive + self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI past their places."""
        return len(self._coming) + len(self._ticks)

    def _frame(self, name: str) -> pa.Schema:
        return self._read

    def _plain_tables(self) -> dict[str, pa.Table]:
        """Partitions, the rows of open matches, what waits, and how many matches there were."""
        made = super()._plain_tables()
        for part in (self._coming, self._ticks, self._clocks):
            made |= part.tables()
        return made | {"matches": pa.table({"number": pa.array([self._number], pa.int64())})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if "groups" in tables:
            yield from self._groups_declared({})
        yield StateTable("clock", {"done": Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)}, 1)
        for part in (self._coming, self._ticks, self._clocks):
            yield from part.declared()
        yield StateTable("matches", {"number": Field(pa.int64(), least=0)}, 1, required=True)
        unknown = Field(pa.int64(), least=MIN_TIME, most=UNKNOWN)
        fields = {_MASK: Field(pa.int64()), _ID: NUMBERED_TIME, _DUE: unknown, _PLACE_DUE: unknown}
        numbers = {name: fields[name] for name in self._named}
        high = replace(TIME, nullable=True)
        groups = self._group_count(tables) if "groups" in tables else 1
        yield StateTable("kept", row_columns(TIME, high, groups, numbers=numbers, frame=self._read))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if "clock" in tables:  # without a row there are no partitions yet
            super().restore(tables)
        for part in (self._coming, self._ticks, self._clocks):
            part.restore(tables)
        if "matches" in tables:
            self._number = tables["matches"]["number"][0].as_py()


@dataclass(frozen=True)
class _Matched:
    """Matches.

    Attributes:
        at: int64: the place at which each is delivered.
        upto: int64, on the host: where its labels end.
        labels: int8, on the host: the variable of each row of each match.
        rows: int64: these rows.
        registers: As in `gpu_ops.devices.cpu.row_matches.FoundMatches`; None for none.
    """

    at: Any
    upto: Any
    labels: Any
    rows: Any
    registers: Any | None

    def some(self, chosen: Any, device: Device) -> _Matched:
        """Some of them."""
        which = device.columns.host(chosen)
        sizes = np.diff(self.upto, prepend=0)
        members = np.repeat(which, sizes)
        rows = self.rows[device.columns.array(members)]
        registers = None if self.registers is None else self.registers[which]
        return _Matched(self.at[chosen], np.cumsum(sizes[which]), self.labels[members], rows, registers)


class ContentMatches(Operator):
    """The matches in the rows that are in a window, where content is asked for.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: RowMatches

    def __init__(self, node: RowMatches, device: Device) -> None:
        super().__init__(node, device)
        self._held = WindowContent(node.rows.schema, device)
        self._matching, self._done, self._number = Matching(node, device), MIN_TIME, 0

    def opens(self, at: int) -> bool:
        """It takes open rows, and whole ticks."""
        return at == 0

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's enter and leave as they come."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The matches at each place where content is asked for."""
        cti, device = min(ctis), self._device
        ticks = concat(given[1].events, device)
        changes = changes_of(given[0], cti, device) or no_changes(self._node.rows.schema, device)
        made, asks = [], list[tuple[int, int]]()
        if ticks is not None:
            asked = device.columns.values(ticks.frame, ASK)[0].astype(np.bool_)
            clock = device.columns.values(ticks.frame, CLOCK)[0]
            host = device.columns.host
            asks = sorted(zip(host(ticks.start[asked]).tolist(), host(clock[asked]).tolist(), strict=True))
        for place, clock in asks:
            part = between(changes, self._done, place + TICK)
            if part is not None:
                self._held.step(part)
            self._done = place + TICK
            made += self._content(place, clock)
        part = between(changes, self._done, cti)
        if part is not None:
            self._held.step(part)
        self._done = max(self._done, cti)
        return StepInput(made), cti

    def _content(self, place: int, clock: int) -> list[Events]:
        columns, node, kernels = self._device.columns, self._node, self._device.kernels
        frame = self._held.rows()
        count = columns.rows(frame)
        if not count:
            return []
        name = columns.values(frame, PLACE)[0]
        codes = np.zeros_like(name, dtype=np.int32)
        if node.partition:
            codes, _, _ = columns.key_codes(columns.select(frame, list(node.partition)), node.partition)
        order = stable_order([codes, name], name, self._device)
        frame, codes, name = columns.take(frame, order), kernels.take(codes, order), kernels.take(name, order)
        begins = np.concatenate([kernels.keep(run_starts(codes)), np.full_like(name, count, shape=(1,))])
        never = np.full_like(name, UNKNOWN)
        rows = PartitionRows(frame, begins, np.full_like(name, place), self._matching.mask(frame), never, never)
        matched = self._matching.found(rows, together=True)
        at, begin = columns.array(matched.at), columns.array(matched.begin)
        if not len(at):
            return []
        order = stable_order([kernels.take(name, begin)], at, self._device)
        number = np.empty_like(order)
        number[order] = np.arange(len(order), like=order) + self._number
        self._number += len(order)
        own = columns.build({CLOCK: (np.full_like(at, clock), None, TIME_TYPE), PLACE: (number, None, pa.int64())})
        members = columns.array(matched.rows)
        found = self._matching.measures(frame, matched.upto, matched.labels, members, matched.registers)
        made = own if found is None else columns.beside(found, own)
        # They are there for this ask alone: a moment later they are gone.
        return [Events(at, 2 * TICK, columns.select(made, node.schema.names))]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return len(self._held)

    waiting = 0

    def tables(self) -> dict[str, pa.Table]:
        """The rows that are in the window, and up to where."""
        numbers = {"done": pa.array([self._done], pa.int64()), "number": pa.array([self._number], pa.int64())}
        return self._held.tables() | {"clock": pa.table(numbers)}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from self._held.declared()
        done, number = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME), Field(pa.int64(), least=0)
        yield StateTable("clock", {"done": done, "number": number}, 1, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if tables:
            self._number = tables["clock"]["number"][0].as_py()
            self._held.restore(tables)
            self._done = tables["clock"]["done"][0].as_py()
