"""Event patterns: rows and ticks become turns of the machine, and its matches become events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.numbered_runs import NumberedRuns
from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import MANY, Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import ARRIVED, CLOCK, PLACE, SINCE
from gpu_ops.devices import Device
from gpu_ops.devices.columns import Frame
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import InParts, StepInput
from gpu_ops.operators.patterns.cells import KeptCells
from gpu_ops.operators.patterns.chains import PatternChains
from gpu_ops.operators.patterns.machine import PatternMachine
from gpu_ops.operators.patterns.tables import pattern_tables
from gpu_ops.operators.patterns.turns import PatternTurns
from gpu_ops.operators.row_windows.ticks import TickQueue
from gpu_ops.operators.state.arrival_numbers import ArrivalNumbers
from gpu_ops.operators.state.fields import NUMBERED_TIME, nullable_columns
from gpu_ops.plan.pattern_matches import Pattern

_NOT_SHOWN = -(1 << 62)
"""The clock before it was shown."""


class PatternOperator(InParts, OnTicks, nodes=(Pattern,)):
    """The matches of a pattern, whole turns at a time. The machine runs on the host, whatever the device.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Pattern

    def __init__(self, node: Pattern, device: Device) -> None:
        super().__init__(node, device)
        self._ticks = TickQueue(device)
        self._waiting = [WaitingPoints(f"waiting {at}", each.schema, device) for at, each in enumerate(node.streams)]
        self._static = pattern_tables(node)
        chain = node.starts
        self._machine: PatternMachine | PatternChains = (
            PatternMachine(self._static, node) if isinstance(chain, str) else PatternChains(self._static, node, chain)
        )
        self._clock, self._matches = _NOT_SHOWN, 0
        empty = device.columns.from_arrow
        self._rows = [[empty(each.schema.empty_table())] for each in node.streams]
        self._counts = [0] * len(node.streams)
        self._numbers = [ArrivalNumbers() for _ in node.streams]
        self._runs = [NumberedRuns(ARRIVED) for _ in node.streams]
        self._cells = KeptCells(self._static, len(node.streams), device, shares=not isinstance(chain, str))

    @property
    def active_atoms(self) -> int:
        """How many atoms wait for an event (Esper: how many filters are active)."""
        return self._machine.active_atoms

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The matches that turns before the CTI complete.

        Raises:
            IntegerOverflowError: A whole number in a condition does not fit its type.
        """
        cti = min(ctis)
        due = [waits.before(cti, fed.events) for waits, fed in zip(self._waiting, given[:-1], strict=True)]
        fresh = [None if each is None else self._in_order(each) for each in due]
        moves = self._ticks.through(concat(given[-1].events, self._device), cti)
        host = self._device.columns.host
        clocks = np.concatenate([[self._first_clock(fresh)], host(moves.clock)]).astype(np.int64, copy=False)
        places = [np.zeros(0, np.int64) if each is None else host(each.start) for each in fresh]
        turns = PatternTurns.of(np.ascontiguousarray(host(moves.place)), clocks, places, self._counts)
        if not len(turns):
            return StepInput(), cti
        masks = self._masks(fresh)
        if cti == MAX_TIME and not any(self._counts):
            self._cells.take_all_at_once()
        self._add(fresh)
        made = self._matched(turns, masks)
        self._clock = int(clocks[-1])
        if cti < MAX_TIME and self._machine.has_grown(sum(self._counts)):
            self._compact()
        return StepInput(made), cti

    def _in_order(self, events: Events) -> Events:
        """Events by their places."""
        if self._device.kernels.ascends(events.start):
            return events
        return events.take(np.argsort(events.start, kind="stable"), self._device)

    def _first_clock(self, fresh: Sequence[Events | None]) -> int:
        """What the clock shows as the step begins: before it was ever shown, what events say."""
        if self._clock != _NOT_SHOWN:
            return self._clock
        columns = self._device.columns
        return min((columns.extent(each.frame, CLOCK)[0] for each in fresh if each is not None), default=self._clock)

    def _add(self, fresh: Sequence[Events | None]) -> None:
        """Keep the rows."""
        for at, each in enumerate(fresh):
            if each is not None and len(each):
                self._rows[at] = [*self._rows[at], each.frame] if self._counts[at] else [each.frame]
                self._counts[at] += len(each)
                self._numbers[at].add(len(each))
        self._cells.add([None if each is None else each.frame for each in fresh])

    def _kept(self, stream: int) -> Frame:
        """The rows of a stream that it keeps."""
        self._rows[stream] = [self._device.columns.concat(self._rows[stream])]
        return self._rows[stream][0]

    def _masks(self, fresh: Sequence[Events | None]) -> tuple[Any, Any]:
        """Which of the rows that have come each atom may take, and where those of each atom are for a row 0."""
        columns, masks, bases = self._device.columns, [np.zeros(0, np.bool_)], []
        for stream, holds in zip(self._static.atoms[:, 1], self._static.holds, strict=True):
            events = fresh[stream]
            bases.append(self._counts[stream])
            if events is None or not holds:
                masks.append(np.ones(0 if events is None else len(events), np.bool_))
                continue
            values, valid = columns.values(events.frame, holds)
            holding = columns.host(values).astype(np.bool_)
            masks.append(holding if valid is None else holding & columns.host(valid))
        begins = np.cumsum([len(each) for each in masks[:-1]]) - np.array(bases)
        return np.concatenate(masks), begins.astype(np.int64)

    def _matched(self, turns: PatternTurns, masks: tuple[Any, Any]) -> list[Events]:
        places, clocks, matches = self._machine.run(turns, masks, self._cells.values(self._kept))
        if not len(matches):
            return []
        number = self._matches + np.arange(len(matches))
        self._matches += len(matches)
        columns, node, parts, nested = self._device.columns, self._node, [], dict[str, pa.Array]()
        members = [*self._machine.members(matches)]
        for tag, rows in zip(node.tags, members, strict=True):
            if not tag.repeated:
                parts += self._properties(tag.stream, node.columns_of(tag), rows)
            if node.has_record(tag):
                made = self._lists(tag.stream, tag.properties, *rows) if tag.repeated else None
                nested[tag.name] = self._records(tag.stream, tag.properties, rows) if made is None else made
        if nested:
            parts.append(columns.from_arrow(pa.table(nested, schema=pa.schema([node.schema.field(n) for n in nested]))))
        place, clock = columns.array(places), columns.array(clocks)
        if node.has_since:
            since = columns.array(self._since(members, clocks))
            parts.append(columns.build({SINCE: (since, None, TIME_TYPE)}))
        parts.append(columns.build({CLOCK: (clock, None, TIME_TYPE), PLACE: (columns.array(number), None, pa.int64())}))
        return [Events(place, TICK, columns.select(columns.beside(*parts), node.schema.names))]

    def _since(self, members: Sequence[Any], clock: Any) -> Any:
        """int64: what the clock showed at the first event of each match; at the match if it names none."""
        columns, since = self._device.columns, clock.copy()
        for tag, rows in zip(self._node.tags, members, strict=True):
            own = columns.host(columns.values(self._kept(tag.stream), CLOCK)[0])
            if tag.repeated:
                offsets, elements, _ = rows
                match = np.repeat(np.arange(len(clock)), np.diff(offsets))
                np.minimum.at(since, match, own[elements])
            else:
                match = np.flatnonzero(rows >= 0)
                since[match] = np.minimum(since[match], own[rows[match]])
        return since

    def _properties(self, stream: int, named: Sequence[tuple[str, str]], rows: Any) -> list[Frame]:
        """Properties of the events of some rows, as columns of other names; null for -1."""
        if not named:
            return []
        columns, there = self._device.columns, rows >= 0
        frame = columns.select(self._kept(stream), [name for _, name in named])
        if there.all():
            frame = columns.take(frame, columns.array(rows))
        elif there.any():
            frame = columns.take(frame, columns.array(np.maximum(rows, 0)))
            frame = columns.null_where(frame, columns.array(there))
        else:
            frame = columns.nulls(frame, len(rows))
        return [columns.rename(columns.select(frame, [name]), name, called) for called, name in named]

    def _records(self, stream: int, names: tuple[str, ...], rows: Any) -> pa.Array:
        """The events of some rows as records; null for -1."""
        columns, schema = self._device.columns, self._node.streams[stream].schema
        fields = [schema.field(name) for name in names]
        there = rows >= 0
        if not there.any():
            return pa.nulls(len(rows), pa.struct(fields))
        frame = columns.take(columns.select(self._kept(stream), names), columns.array(np.maximum(rows, 0)))
        table = columns.to_arrow(frame, pa.schema(fields)).combine_chunks()
        arrays = [table[name].combine_chunks() for name in names]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=None if there.all() else pa.array(~there))

    def _lists(self, stream: int, names: tuple[str, ...], offsets: Any, rows: Any, there: Any) -> pa.Array:
        """The events of lists of rows as lists of records; null where there is no list."""
        records = self._records(stream, names, rows)
        begins = pa.array(offsets.astype(np.int32), mask=np.append(~there, False))
        return pa.ListArray.from_arrays(begins, records)

    def _compact(self) -> None:
        """Keep the rows that are needed alone."""
        columns = self._device.columns
        for at, rows in enumerate(self._machine.compact(self._counts, self._clock)):
            if len(rows) < self._counts[at]:
                self._numbers[at].keep(rows)
                none = columns.cut(self._rows[at][0], 0, 0)
                self._rows[at] = [columns.take(self._kept(at), columns.array(rows)) if len(rows) else none]
                self._cells.take(at, rows)
                self._counts[at] = len(rows)
        self._cells.forget(self._kept)

    # State

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return [*self._waiting, self._ticks]

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return self.waiting + sum(self._counts)

    def tables(self) -> dict[str, pa.Table]:
        """What `state_parts` makes up, without what is not needed."""
        self._compact()
        return self._machine.needed(super().tables())

    def state_parts(self) -> Parts:
        """What waits, the machine, and the rows that it needs, with some that it needs no longer."""
        made: dict[str, Any] = in_parts(OnTicks.tables(self))
        numbers = [each.every for each in self._numbers]
        made |= self._machine.state_parts(numbers)
        known = {"clock": self._clock, "matches": self._matches}
        known |= {f"came {at}": each.came for at, each in enumerate(self._numbers)}
        made |= in_parts({"clock": pa.table({name: pa.array([each]) for name, each in known.items()})})
        for at, runs in enumerate(self._runs):
            made[f"rows {at}"] = runs.parts({ARRIVED: numbers[at]}, partial(self._saved_rows, at, numbers[at]))
        return made

    def _saved_rows(self, stream: int, numbers: Any, at: Any) -> pa.Table:
        """Some rows that it keeps, with their numbers."""
        columns, schema = self._device.columns, self._node.streams[stream].schema
        rows = columns.to_arrow(columns.take(self._kept(stream), columns.array(at)), schema)
        return rows.append_column(ARRIVED, pa.array(numbers[at]))

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """The rows: the machine has their numbers."""
        return (*(f"rows {at}" for at in range(len(self._rows))), *self._machine.entire_tables)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        for at, each in enumerate(self._node.streams):
            number = Field(pa.int64(), least=0, most=MANY, ascends=True, optional=True)
            columns = {**nullable_columns(each.schema, ""), ARRIVED: number}
            yield StateTable(f"rows {at}", columns, required=True)
        yield from self._machine.declared(tables, [_numbers_in(tables[f"rows {at}"]) for at in range(len(self._rows))])
        clock = replace(NUMBERED_TIME, besides=(_NOT_SHOWN,))
        count = Field(pa.int64(), least=0, most=MANY)
        numbers = {"clock": clock, "matches": count}
        numbers |= {f"came {at}": replace(count, optional=True) for at in range(len(self._numbers))}
        yield StateTable("clock", numbers, rows=1, required=True)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        tables = whole(parts)
        OnTicks.restore(self, tables)
        self._clock, self._matches = (tables["clock"][name][0].as_py() for name in ("clock", "matches"))
        for at, runs in enumerate(self._runs):
            table = tables[f"rows {at}"]
            came = f"came {at}"
            known = tables["clock"][came][0].as_py() if came in tables["clock"].column_names else None
            self._numbers[at].restore(_numbers_in(table), known)
            names = self._node.streams[at].schema.names
            self._rows[at], self._counts[at] = [self._device.columns.from_arrow(table.select(names))], table.num_rows
            runs.restore(parts[f"rows {at}"])
        self._machine.put_back(parts, [each.every for each in self._numbers])
        self._cells.restore([each[0] for each in self._rows])


def _numbers_in(rows: pa.Table) -> Any:
    """int64: the numbers of rows of a state; older ones have none."""
    if ARRIVED not in rows.column_names:
        return np.arange(rows.num_rows)
    return rows[ARRIVED].to_numpy().astype(np.int64)
