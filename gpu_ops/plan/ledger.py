"""The ledger: what happens, in its order, as turns; and the way back from turns to times.

A turn is an event that comes, or a move of the clock. `gpu_ops.core.turns` says which place each turn has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE, format_time
from gpu_ops.core.turns import ASK, CLOCK, LEVEL, ORDER, PLACE, ROW, TURN
from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.nodes import Ends, Node
from gpu_ops.plan.splits import Split, united

TICKS = pa.schema([(CLOCK, TIME_TYPE), (ASK, pa.bool_())])
"""The columns of ticks."""

TURN_NUMBER = "@turn"
"""The column with the number of a row's turn (int64)."""

DEPTH = TURN // LEVEL - 2
"""How many streams may be made one of another."""


@dataclass(frozen=True, eq=False)
class TurnNumbers(Node):
    """Where the events of several streams come in one order, and where the clock moves: the numbers of all turns.

    Events come in order of their starts. Those of one start come in the order of a column; of several streams, in the
    order of the streams. The first turn is a tick that shows `since`. Where the clock moves, it does so before an event
    that starts later than it shows, by a turn of its own.

    It gives a piece for each stream, with the places of its events in their order, then a piece for the ticks; none is
    left out, and no step without turns gives any. `EventLedger` takes one of them.

    Attributes:
        streams: Streams of events, of which the starts are read.
        called: What errors call them.
        order: A column that each stream has; None where no two events of a stream start together.
        since: What the clock shows first, in ticks.
        until: What it shows last, if that is later than the last event; None for nothing more.
        moves: Whether the clock moves to each event's start; else it stays.
        shown: Whether the last stream shows moves of the clock alone: events of it that come together are one.

    Raises:
        ColumnError: A stream lacks the column, or it has no whole numbers and no times.
    """

    streams: tuple[Node, ...]
    called: tuple[str, ...]
    order: str | None = None
    since: int = 0
    until: int | None = None
    moves: bool = True
    shown: bool = False

    def __post_init__(self) -> None:
        for node, name in zip(self.streams, self.called, strict=True):
            schema = node.schema
            for own in (CLOCK, PLACE):
                if own in schema.names:
                    raise ColumnError(f"{name} is on turns already.", column=own, remedy="Select other columns first.")
            if self.order is None:
                continue
            if self.order not in schema.names:
                raise unknown_column(self.order, schema.names, what=f"stream {name}")
            dtype = storage(schema.field(self.order).type)
            if not (pa.types.is_timestamp(dtype) or (pa.types.is_integer(dtype) and dtype != pa.uint64())):
                raise ColumnError(
                    f"Events come in an order of whole numbers or times, and this is {dtype}.",
                    column=self.order,
                    remedy="Cast it first: .with_columns(g.col(…).cast(g.Int64)).",
                )
        kinds = {_kind_of(each, self.order) for each in self.streams}
        if self.order is not None and len(kinds) > 1:
            raise ColumnError(
                f"The streams have it as {' and as '.join(sorted(kinds))}.", column=self.order, remedy="Cast it first."
            )
        for said, time in (("since", self.since), ("until", self.until)):
            if time is not None and not MIN_TIME <= time < MAX_TIME:
                raise PlanError(f"{said} is not in the years 1 to 9999.", remedy="Give an earlier or a later time.")
        if self.until is not None and self.until < self.since:
            raise PlanError(
                f"The clock starts at {format_time(self.since)}, and cannot go back to {format_time(self.until)}.",
                remedy="Give a later time.",
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def over(self, *inputs: Node) -> Node:
        return replace(self, streams=inputs)

    schema = pa.schema([(CLOCK, TIME_TYPE)])
    duration: ClassVar[int | None] = TICK
    stateless = False
    takes_ends: ClassVar[Ends] = "unread"
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        return Split()

    time_rule = "the oldest CTI of all inputs leaves, as the place of the next turn"
    held = "the starts of events up to the oldest CTI, in order"

    def kept(self, at: int, wanted: Sequence[str] = ()) -> tuple[str, ...]:
        """The columns of a stream that are read to number its events, and some more."""
        names = self.streams[at].schema.names
        return tuple(name for name in names if name == self.order or name in wanted) or tuple(names[:1])

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [self.kept(at) for at in range(len(self.streams))]

    def describe(self) -> str:
        order = "" if self.order is None else f" order={self.order}"
        clock = "" if self.moves else ", the clock stays"
        until = "" if self.until is None else f" until={format_time(self.until)}"
        return f"TurnNumbers of {', '.join(self.called)}{order} since={format_time(self.since)}{until}{clock}"


@dataclass(frozen=True, eq=False)
class EventLedger(Node):
    """The arrivals of one of several streams, or the ticks, on turns.

    Attributes:
        numbers: The numbers of the turns.
        gives: The number of the stream whose arrivals it gives: its columns, ``@clock`` and ``@place``. None for the
            ticks.
        events: The events of that stream; None for the ticks.
    """

    numbers: TurnNumbers
    gives: int | None
    events: Node | None

    @classmethod
    def of(cls, numbers: TurnNumbers, gives: int | None) -> EventLedger:
        """What it gives of a stream, or the ticks."""
        return cls(numbers, gives, None if gives is None else numbers.streams[gives])

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.numbers,) if self.events is None else (self.numbers, self.events)

    def over(self, *inputs: Node) -> Node:
        numbers, *events = inputs
        assert isinstance(numbers, TurnNumbers)  # noqa: S101  (nothing comes between)
        return replace(self, numbers=numbers, events=events[0] if events else None)

    @cached_property
    def schema(self) -> pa.Schema:
        if self.events is None:
            return TICKS
        return pa.schema([*self.events.schema, (CLOCK, TIME_TYPE), (PLACE, pa.int64())])

    duration: ClassVar[int | None] = TICK
    stateless = False
    takes_ends: ClassVar[Ends] = "unread"
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        return Split() if self.gives is None else Split.of_stream(self.gives, self.schema.names)

    time_rule = "CTI T leaves as T"
    held = "events that have no number yet"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [(CLOCK,)] if self.gives is None else [(CLOCK,), self.numbers.kept(self.gives, wanted)]

    def describe(self) -> str:
        gives = "ticks" if self.gives is None else self.numbers.called[self.gives]
        return f"EventLedger {gives}"


def _kind_of(node: Node, order: str | None) -> str:
    """The type of a column by which events are ordered; all whole numbers are one."""
    dtype = None if order is None else storage(node.schema.field(order).type)
    return "whole numbers" if dtype is None or pa.types.is_integer(dtype) else str(dtype)


@dataclass(frozen=True, eq=False)
class Inserted(Node):
    """Rows of deliveries as arrivals of their own, behind all that their turns make (Esper: insert into).

    Attributes:
        parts: Deliveries with the same columns, of the rows that are inserted alone.
        ticks: The ticks.
        level: The number of streams that they were made by, one of another.
        name: What errors call the stream.
    """

    parts: tuple[Node, ...]
    ticks: Node
    level: int
    name: str

    def __post_init__(self) -> None:
        if not 1 <= self.level <= DEPTH:
            raise PlanError(f"More than {DEPTH} streams are made one of another.", remedy="Combine some of them.")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (*self.parts, self.ticks)

    def over(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs[:-1], ticks=inputs[-1])

    @cached_property
    def schema(self) -> pa.Schema:
        first, *others = (each.schema for each in self.parts)
        fields = [
            each.with_nullable(each.nullable or any(other.field(each.name).nullable for other in others))
            for each in first
            if each.name not in {ROW, ORDER}
        ]
        return pa.schema([*fields, (CLOCK, TIME_TYPE), (PLACE, pa.int64())])

    duration: ClassVar[int | None] = TICK
    stateless = False
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        # Each task numbers the rows of a turn that it has, in the order that all of them have.
        return united(below[:-1], f"What is inserted into {self.name!r}").made()

    time_rule = "CTI T leaves as the place of its turn"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, ROW, ORDER}
        return [*(tuple(name for name in each.schema.names if name in read) for each in self.parts), (CLOCK, ASK)]

    def describe(self) -> str:
        return f"Inserted into {self.name}, level {self.level}"


@dataclass(frozen=True, eq=False)
class AtClock(Node):
    """Deliveries as events at the times that the clock showed, in their order, with a column ``@turn``.

    Attributes:
        deliveries: Rows at places.
        ticks: The ticks.
    """

    deliveries: Node
    ticks: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.deliveries, self.ticks

    def over(self, *inputs: Node) -> Node:
        deliveries, ticks = inputs
        return replace(self, deliveries=deliveries, ticks=ticks)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.deliveries.schema.append(pa.field(TURN_NUMBER, pa.int64(), nullable=False))

    duration: ClassVar[int | None] = TICK
    stateless = False
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        return below[0]

    time_rule = "CTI T leaves as what the clock showed at T"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, ROW, ORDER}
        return [tuple(name for name in self.deliveries.schema.names if name in read), (CLOCK, ASK)]

    def describe(self) -> str:
        return "AtClock"
