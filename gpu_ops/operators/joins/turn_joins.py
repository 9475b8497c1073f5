"""Joins on turns, step by step: streams wait for each other, and are joined one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.core.state_parts import Parts, StatePart, in_parts, whole
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, IS_NEW, IS_OLD, PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.joins.turn_rows import AT, ID, NEW, OLD, OPEN, Moved, TurnInput, column, some_of
from gpu_ops.operators.joins.turn_stage import NULLS, TurnStage
from gpu_ops.operators.operator import BatchInput, InParts, Operator, StepInput
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.turn_joins import TurnJoin


class TurnJoinOperator(InParts, nodes=(TurnJoin,)):
    """The rows of a join on turns. Each pair of a row is given as the row enters, and again as it leaves.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: TurnJoin
    own_numbers = NULLS

    gives_open = True

    def __init__(self, node: TurnJoin, device: Device) -> None:
        super().__init__(node, device)
        self._done, self._opens = MIN_TIME, False
        self._streams = [TurnInput(node, number, device) for number in range(len(node.streams))]
        self._stages = self._made()

    def _made(self) -> list[TurnStage]:
        numbers = range(1, len(self._node.streams))
        return [TurnStage(self._node, number, self._device, opens=self._opens) for number in numbers]

    def open(self) -> None:
        """Emit rows as they enter, and again when they leave."""
        self._opens = True
        self._stages = self._made()

    def opens(self, at: int) -> bool:
        """It takes each stream's enters and leaves as they come."""
        return at not in self._node.unidirectional

    def with_open(self) -> Operator | None:
        """Itself."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        pieces = [concat(pieces, self._device) for pieces in whole.inputs]
        given = [StepInput([] if piece is None else [piece]) for piece in pieces]
        yield from self.step(given, [MAX_TIME] * len(given))[0].events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that enter and leave before the CTI."""
        cti, done = min(ctis), self._done
        sides = [stream.moved(fed, cti, done) for stream, fed in zip(self._streams, given, strict=True)]
        found = sides[0]
        for stage, side in zip(self._stages, sides[1:], strict=True):
            found = stage.step((found, side), done, cti)
        self._done = max(done, cti)
        return self._given(found), self._passed(cti)

    def _passed(self, cti: int) -> int:
        """The CTI behind which no row enters that is not given yet."""
        if self._opens or self._node.unidirectional or cti == MAX_TIME:
            return cti
        floors = [floor for stage in self._stages for floor in stage.floor(cti)]
        return max(floors) if all(how.kind == "inner" for how in self._node.further) else min(floors)

    def _given(self, found: Moved) -> StepInput:
        points = [self._events(each, each.low + (each.low & 1), TICK) for each in found.points]
        if self._node.unidirectional:
            return StepInput(points)
        entered, closed = found.entered, found.closed
        if not self._opens:
            whole = [some_of(each, each.high < OPEN, self._device) for each in entered]
            entered, closed = [*(each for each in whole if len(each)), *closed], []
        events, over = ([self._events(each, each.low, each.high) for each in some] for some in (entered, closed))
        return StepInput([*events, *points], closed=over)

    def _events(self, rows: AxisRows, start: Any, end: Any) -> Events:
        columns = self._device.columns
        own = {
            PLACE: (column(rows, ID), None, pa.int64()),
            IS_NEW: (column(rows, NEW), None, pa.bool_()),
            IS_OLD: (column(rows, OLD), None, pa.bool_()),
        }
        if CLOCK not in self._node.drops:
            own[CLOCK] = column(rows, AT), None, TIME_TYPE
        made = columns.build(own)
        frame = made if rows.frame is None else columns.beside(rows.frame, made)
        return Events(start, end, columns.select(frame, self._node.schema.names))

    # The state

    @property
    def _parts(self) -> list[TurnInput | TurnStage]:
        return [*self._streams, *self._stages]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return sum(each.alive for each in self._stages) + self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for the other streams."""
        return sum(each.waiting for each in self._streams)

    def state_parts(self) -> Parts:
        """The rows that wait, and those that stay."""
        made: dict[str, Sequence[StatePart]] = {
            **in_parts({"clock": pa.table({"done": pa.array([self._done], pa.int64())})})
        }
        for each in self._parts:
            made |= each.state_parts()
        return made

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """Those of keys."""
        return tuple(name for each in self._stages for name in each.entire_tables)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield StateTable("clock", {"done": Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)}, rows=1)
        for each in self._parts:
            yield from each.declared(tables)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        if not parts:
            return
        self._done = whole({"clock": parts["clock"]})["clock"]["done"][0].as_py()
        for each in self._parts:
            each.put_back(parts)
