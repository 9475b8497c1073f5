"""Partitions in cycles (StreamCruncher): arrivals become points at cycles, and rows live from cycle to cycle."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.cycles import CYCLE_NUMBER, INSTANT, MS, STATUS, WHENEVER, WINDOW, Schedule
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, PLACE
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.cycle_picks import CyclePick, LastMilliseconds, Size
from gpu_ops.plan.lifetimes import AlterLifetime, Lifetime, PointAtEnd, ToPoint
from gpu_ops.plan.nodes import Ends, Node, Project, check_known

_OF_CYCLES = (pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64()))
"""The columns of rows of aggregates, behind their own."""

BEAT = "@beat"
"""The only column of cycles."""


@dataclass(frozen=True, eq=False)
class InCycles(Node):
    """What nodes in cycles have in common: they need all that happens in its order, and no task of Spark has that."""

    stateless = False
    gathers = True
    collects = True
    in_pieces = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Intake(InCycles):
    """Arrivals as points at the cycles that take them.

    Attributes:
        rows: Arrivals on turns, with ``@clock`` and ``@place``.
        clocks: The streams that the arrivals are of, whose CTIs say how far the clock is; or the ticks alone.
        ticks: Whether `clocks` are the ticks.
        schedule: When the query may run.
    """

    rows: Node
    clocks: tuple[Node, ...]
    ticks: bool
    schedule: Schedule = WHENEVER

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, *self.clocks

    def over(self, *inputs: Node) -> Node:
        rows, *clocks = inputs
        return replace(self, rows=rows, clocks=tuple(clocks))

    @cached_property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    duration: ClassVar[int | None] = TICK
    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "the oldest CTI leaves, as the place of the cycle at its millisecond"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, CLOCK, PLACE}
        mine = tuple(name for name in self.rows.schema.names if name in read)
        return [mine, *((CLOCK, ASK) if self.ticks else tuple(each.schema.names[:1]) for each in self.clocks)]

    def describe(self) -> str:
        return f"Intake {self.schedule}"


@dataclass(frozen=True)
class Weight:
    """What rows of a stream weigh, and for how long they stay.

    Attributes:
        weight: The query runs when those that have come weigh one together.
        span: For how many milliseconds a row stays, by `stamp`, and the query runs when its time is up; None without.
        stamp: As `gpu_ops.plan.cycle_picks.LastMilliseconds`.
    """

    weight: float
    span: Size | None = None
    stamp: str = CLOCK


@dataclass(frozen=True, eq=False)
class Weighed(InCycles):
    """Points at the cycles that take them, where the query does not run for each of them.

    A row that is taken by several partitions weighs once.

    Attributes:
        parts: The points that come to each partition of a query.
        weights: What they weigh.
        gives: The number of the partition whose points it gives.
        schedule: When the query may run.
    """

    parts: tuple[Node, ...]
    weights: tuple[Weight, ...]
    gives: int
    schedule: Schedule = WHENEVER

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def over(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.parts[self.gives].schema

    duration: ClassVar[int | None] = TICK
    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "the oldest CTI leaves"
    held = "rows that wait until there are enough"

    def kept(self, at: int, wanted: Sequence[str]) -> tuple[str, ...]:
        """The columns of a partition's points that it needs to give the wanted ones."""
        weight = self.weights[at]
        read = {CLOCK, PLACE, weight.stamp, *([weight.span] if isinstance(weight.span, str) else [])}
        read |= {*wanted} if at == self.gives else set()
        return tuple(name for name in self.parts[at].schema.names if name in read)

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [self.kept(at, wanted) for at in range(len(self.parts))]

    def describe(self) -> str:
        return f"Weighed {', '.join(f'{each.weight:g}' for each in self.weights)}"


@dataclass(frozen=True, eq=False)
class CycleWindow(InCycles):
    """Rows while they are in the window of their key: they live from the cycle that lets them in to that which expels.

    Attributes:
        rows: Points at cycles, in the order of ``@place`` within one.
        pick: What a window keeps.
        by: The columns that have a window for each combination of their values.
        schedule: When the query may run.
        pinned: Whether the window of a key stays when it is empty.
        beats: What the query runs for beside these rows, of windows that expel in each cycle.
    """

    rows: Node
    pick: CyclePick
    by: tuple[str, ...] = ()
    schedule: Schedule = WHENEVER
    pinned: bool = False
    beats: Node | None = None

    def __post_init__(self) -> None:
        names = self.rows.schema.names
        for name in (CLOCK, PLACE):
            if name not in names:
                raise ColumnError("A partition needs rows in cycles.", column=name, remedy="Begin with g.cycles(…).")
        check_known(self.rows.schema, self.by)
        if len({*self.by}) < len(self.by):
            raise PlanError(f"The partition is by one column twice: {', '.join(self.by)}.", remedy="Name it once.")
        self.pick.check(self.rows.schema)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.rows,) if self.beats is None else (self.rows, self.beats)

    def over(self, *inputs: Node) -> Node:
        rows, *beats = inputs
        return replace(self, rows=rows, beats=beats[0] if beats else None)

    @cached_property
    def schema(self) -> pa.Schema:
        kept = [each for each in self.rows.schema if each.name != WINDOW]
        return pa.schema([*kept, (WINDOW, pa.int64())])

    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "CTI T leaves as T; rows that are in hold it back unless their ends may come later"

    @property
    def held(self) -> str:
        return "rows that are in, and rows that wait"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, CLOCK, PLACE, *self.by, *self.pick.reads} - {WINDOW}
        mine = tuple(name for name in self.rows.schema.names if name in read)
        return [mine] if self.beats is None else [mine, (BEAT,)]

    def describe(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"CycleWindow{by} {self.pick}{' pinned' * self.pinned}"


@dataclass(frozen=True, eq=False)
class TimedWindow(CycleWindow):
    """Rows until their time is up, of windows of one span without a number of rows.

    When each leaves is known as it comes: so no window is walked through, no key is read, and no row is kept.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.takes(self.pick):
            raise PlanError("Rows of these windows may have to wait.", remedy="Take a CycleWindow.")

    @property
    def span(self) -> int:
        """For how many milliseconds rows stay."""
        return self._pick.span if isinstance(self._pick.span, int) else 0

    @property
    def stamp(self) -> str:
        """The column of rows' own times."""
        return self._pick.stamp

    @property
    def _pick(self) -> LastMilliseconds:
        assert isinstance(self.pick, LastMilliseconds)  # noqa: S101  (it was asked before)
        return self.pick

    @staticmethod
    def takes(pick: CyclePick) -> bool:
        """Whether a row of windows of some kind comes in at once, and leaves when its time is up."""
        return isinstance(pick, LastMilliseconds) and pick.most is None and isinstance(pick.span, int)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([each for each in self.rows.schema if each.name != WINDOW])

    time_rule = "CTI T leaves as T"
    held = "rows that wait"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, PLACE, *self.pick.reads} - {WINDOW}
        return [tuple(name for name in self.rows.schema.names if name in read)]

    def describe(self) -> str:
        return f"TimedWindow {self.pick}"


@dataclass(frozen=True, eq=False)
class AtCycles(InCycles):
    """A point for each row in each cycle that it lives through: the content of a partition, cycle by cycle.

    Attributes:
        rows: Rows that live from cycle to cycle.
        beats: The cycles.
        stated: Whether it says what each row is, and gives rows in the cycle that expels them too.
    """

    rows: Node
    beats: Node
    stated: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, self.beats

    def over(self, *inputs: Node) -> Node:
        rows, beats = inputs
        return replace(self, rows=rows, beats=beats)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.rows.schema.append(pa.field(STATUS, pa.int8())) if self.stated else self.rows.schema

    duration: ClassVar[int | None] = TICK

    def ends(self, at: int) -> Ends:
        return "later" if at == 0 else "unread"

    time_rule = "the older CTI leaves"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        names = self.rows.schema.names
        return [tuple(name for name in names if name in {*wanted, PLACE}), (BEAT,)]

    def describe(self) -> str:
        return f"AtCycles{' stated' * self.stated}"


@dataclass(frozen=True, eq=False)
class Beats(InCycles):
    """The cycles in which any of some points is, each as often as there are points in it.

    Attributes:
        points: The points.
    """

    points: tuple[Node, ...]
    collects = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.points

    def over(self, *inputs: Node) -> Node:
        return replace(self, points=inputs)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(BEAT, pa.int8())])

    duration: ClassVar[int | None] = TICK
    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "the oldest CTI leaves"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(each.schema.names[:1]) for each in self.points]

    def describe(self) -> str:
        return "Beats"


@dataclass(frozen=True, eq=False)
class FixedBeats(InCycles):
    """The cycles of a query that runs at fixed times: from the first in which anything happens to the last.

    Attributes:
        beats: The cycles in which anything happens.
        schedule: When the query runs.
        until: The last millisecond at which it may, if it runs up to there; None for the last cycle of `beats`.
    """

    beats: Node
    schedule: Schedule
    until: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.beats,)

    def over(self, *inputs: Node) -> Node:
        (beats,) = inputs
        return replace(self, beats=beats)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.beats.schema

    duration: ClassVar[int | None] = TICK
    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "CTI T leaves as T, or as the first cycle of which it is not known whether it runs"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [(BEAT,)]

    def describe(self) -> str:
        return f"FixedBeats every {self.schedule.every} ms"


@dataclass(frozen=True, eq=False)
class NumberedCycles(InCycles):
    """Points at cycles as events at the times that the clock shows, with the number of the cycle.

    Attributes:
        rows: The points.
        beats: The cycles.
        schedule: When the query may run.
        until: The last millisecond that is shown; None for all.
    """

    rows: Node
    beats: Node
    schedule: Schedule = WHENEVER
    until: int | None = None

    def __post_init__(self) -> None:
        if CYCLE_NUMBER in self.rows.schema.names:
            raise ColumnError("Results have a column of this name.", column=CYCLE_NUMBER, remedy="Rename it first.")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, self.beats

    def over(self, *inputs: Node) -> Node:
        rows, beats = inputs
        return replace(self, rows=rows, beats=beats)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(CYCLE_NUMBER, pa.int64()), *self.rows.schema])

    duration: ClassVar[int | None] = TICK
    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "CTI T leaves as what the clock shows at T"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        names = self.rows.schema.names
        return [tuple(name for name in names if name in {*wanted}) or tuple(names[:1]), (BEAT,)]

    def describe(self) -> str:
        return f"NumberedCycles{'' if self.until is None else f' until {self.until} ms'}"


def became(rows: Node, status: str) -> Node:
    """The rows of a partition as points in the cycle that made them ``"new"`` or ``"dead"``."""
    return Lifetime(rows, ToPoint() if status == "new" else PointAtEnd())


def beats_of(*points: Node) -> Node:
    """The cycles in which any of some points is: several may be of one cycle."""
    return Beats(points)


def asked_by(window: CycleWindow) -> tuple[Node, ...]:
    """The points of the cycles that a partition runs in beside those in which rows come to it."""
    # Whatever else the query runs for, rows enter in the same cycles.
    alone = window if window.beats is None else replace(window, beats=None)
    return tuple(became(alone, status) for status in window.pick.asks)


def table_in_cycles(rows: Node, schedule: Schedule, refresh: int = 1) -> Node:
    """Rows of a table, which are there from their starts to their ends by the clock, as rows in cycles.

    Args:
        rows: The rows.
        schedule: That of the query.
        refresh: Milliseconds between two times at which the query looks at the table.
    """

    def place(time: nw.Expr) -> nw.Expr:
        """The place of the first cycle that sees what happens at a time."""
        begin = -((-time.dt.timestamp("us")) // (MS * refresh)) * refresh - schedule.since
        low, high = MIN_TIME // INSTANT + 1, MAX_TIME // INSTANT
        bounded = nw.when(begin < low).then(nw.lit(low)).otherwise(begin)
        ticks = nw.when(bounded >= high).then(nw.lit(MAX_TIME)).otherwise(bounded * INSTANT)
        return ticks.cast(nw.Datetime("us", "UTC"))

    return Lifetime(rows, AlterLifetime(place(nw.col("start")), None, place(nw.col("end"))))


def ticks_of(points: Node) -> Node:
    """Points at cycles as ticks."""
    clock = nw.col(CLOCK) if CLOCK in points.schema.names else nw.lit(0).cast(nw.Datetime("us", "UTC"))
    return Project(points, (clock.alias(CLOCK), nw.lit(value=False).alias(ASK)), keep=False)


HELD = "@held"
"""The column of evaluated aggregates that says how many rows the window has (int64, null for none)."""


@dataclass(frozen=True, eq=False)
class Issued(InCycles):
    """Rows of aggregates: one is issued where a value has changed, and lives until it is superseded or dropped.

    Attributes:
        rows: The values of each window in each cycle that concerned it: points, with ``@window`` and `HELD`.
        by: The columns of the partition.
        values: The columns of the aggregates.
        differences: Which of them are issued as the difference from what they were before: columns and what they are
            the difference from in each case, None for the value before.
        schedule: When the query may run.
        pinned: Whether an empty window stays, and issues its values.
    """

    rows: Node
    by: tuple[str, ...]
    values: tuple[str, ...]
    differences: tuple[tuple[str, float | None], ...] = ()
    schedule: Schedule = WHENEVER
    pinned: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.rows,)

    def over(self, *inputs: Node) -> Node:
        (rows,) = inputs
        return replace(self, rows=rows)

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [self.rows.schema.field(name) for name in (*self.by, *self.values)]
        return pa.schema([*fields, *_OF_CYCLES])

    takes_ends: ClassVar[Ends] = "unread"
    time_rule = "CTI T leaves as T; rows that are not superseded hold it back unless their ends may come later"
    held = "the last values of each window"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [(*self.by, *self.values, WINDOW, HELD)]

    def describe(self) -> str:
        return f"Issued {', '.join(self.values)}{' pinned' * self.pinned}"


@dataclass(frozen=True)
class Total:
    """A count or a sum of the rows of a window.

    Attributes:
        name: The column of its values.
        column: The column of whole numbers that it sums, or of which it counts the values; None to count rows.
        counts: Whether it counts.
        entrance: Whether rows that leave still count.
        double: Whether it sums the nearest doubles, to a double; else int64, and a sum beyond is an error.
    """

    name: str
    column: str | None = None
    counts: bool = True
    entrance: bool = False
    double: bool = False

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""
        return pa.float64() if self.double else pa.int64()

    def __str__(self) -> str:
        what = f"{'count' if self.counts else 'sum'}({self.column or '*'}{' as double' * self.double})"
        return f"{what}{' entrance' * self.entrance} as {self.name}"


@dataclass(frozen=True, eq=False)
class IssuedTotals(InCycles):
    """Rows of counts and sums of whole numbers, as `Issued` gives them, straight from the rows of windows.

    Attributes:
        rows: Rows that live from cycle to cycle.
        by: The columns of the partition.
        totals: The counts and sums.
        schedule: When the query may run.
        pinned: Whether an empty window stays, and issues its values.
        drops: Which of ``@clock`` and ``@place`` the rows do not have.
    """

    rows: Node
    by: tuple[str, ...]
    totals: tuple[Total, ...]
    schedule: Schedule = WHENEVER
    pinned: bool = False
    drops: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_known(self.rows.schema, [*self.by, *(each.column for each in self.totals if each.column is not None)])

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.rows,)

    def over(self, *inputs: Node) -> Node:
        (rows,) = inputs
        return replace(self, rows=rows)

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [self.rows.schema.field(name) for name in self.by]
        totals = [pa.field(each.name, each.type) for each in self.totals]
        own = [each for each in _OF_CYCLES if each.name not in self.drops]
        return pa.schema([*fields, *totals, *own])

    def lighter(self, wanted: Collection[str]) -> Node:
        return replace(self, drops=frozenset({CLOCK, PLACE} - {*wanted}))

    takes_ends: ClassVar[Ends] = "later"
    time_rule = "CTI T leaves as T; rows that are not superseded hold it back unless their ends may come later"
    held = "the last values of each window, and what rows that are in add to them"

    @property
    def numbered(self) -> bool:
        """Whether the rows say which window they are of; else a key's window is numbered as it begins."""
        return WINDOW in self.rows.schema.names

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = [*self.by, *(each.column for each in self.totals if each.column is not None)]
        return [tuple(dict.fromkeys([*read, PLACE, *([WINDOW] if self.numbered else [])]))]

    def describe(self) -> str:
        return f"IssuedTotals {', '.join(map(str, self.totals))}{' pinned' * self.pinned}"
