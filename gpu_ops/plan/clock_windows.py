"""Data windows on streams on turns whose rows leave when a clock has advanced: Esper's windows of time.

Such a stream has places instead of times (`gpu_ops.core.turns`). Each row has the column ``@clock`` with the engine's
time when it came, and a second stream has the ticks: the places at which the clock was moved, with the clock after it.
What falls due at a time happens at the first tick whose clock is at or past it, at none in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import TIME_TYPE, format_span
from gpu_ops.core.turns import ASK, BATCH_DUE, CLOCK, DUE, PLACE
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.nodes import Ends, Node, Unary
from gpu_ops.plan.splits import Split, one_order
from gpu_ops.plan.window_kinds import UNKNOWN, AsPart, Assigned, Remains, RowNote

_DAY = 86_400_000_000

_HELD_BACK = "CTI T leaves as T, or as the place of the oldest row that may yet leave after T"
_BY_TIME = "rows that have not left, in order of the times at which they do"


@dataclass(frozen=True)
class ClockSpan:
    """A span of time: months of the calendar (UTC), and ticks.

    Examples:
        >>> january = np.array(["2026-01-31T05:00"], "datetime64[us]").astype(np.int64)
        >>> ClockSpan(months=1).after(january).astype("datetime64[us]")
        array(['2026-02-28T05:00:00.000000'], dtype='datetime64[us]')
        >>> ClockSpan(ticks=10).next_end(np.array([4, 5, 14, 15]), 5)
        array([ 5, 15, 15, 25])
    """

    months: int = 0
    ticks: int = 0

    def __post_init__(self) -> None:
        """Refuse a span that does not go forward."""
        if self.months < 0 or self.ticks < 0 or not self.months + self.ticks:
            raise PlanError(f"A window lasts {self}.", remedy="Give a span of time that is longer than nothing.")

    def __str__(self) -> str:
        months = f"{self.months}mo" if self.months else ""
        ticks = format_span(self.ticks) if self.ticks or not months else ""
        return f"{months}{' ' * bool(months and ticks)}{ticks}"

    @property
    def length(self) -> timedelta:
        """What it is beside the months."""
        return timedelta(microseconds=self.ticks)

    def after(self, times: Any) -> Any:
        """Times that are this span after others, int64 ticks; on the last day of a month that is too short.

        With months, these are host arrays.
        """
        return (_months_after(times, self.months) if self.months else times) + self.ticks

    def next_end(self, times: Any, point: Any) -> Any:
        """The first times of a grid of this span that are after others; each grid is given by a point of it.

        With months, these are host arrays.
        """
        if not self.months:
            return times + self.ticks - (times - point) % self.ticks
        turns = (_month_of(times) - _month_of(point)) // self.months
        found = _months_after(point, (turns + 1) * self.months)
        for turn in (turns, turns - 1):
            earlier = _months_after(point, turn * self.months)
            found = np.where(earlier > times, earlier, found)
        return found


def _month_of(times: Any) -> Any:
    """Months since 1970."""
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _months_after(times: Any, months: Any) -> Any:
    moments = times.astype("datetime64[us]")
    begins = moments.astype("datetime64[M]")
    into = (moments - begins.astype("datetime64[us]")).astype(np.int64)
    later = begins + months
    days = ((later + 1).astype("datetime64[D]") - later.astype("datetime64[D]")).astype(np.int64)
    into = np.minimum(into // _DAY, days - 1) * _DAY + into % _DAY
    return later.astype("datetime64[us]").astype(np.int64) + into


def check_ticks(ticks: Node) -> None:
    """Refuse a stream that has no clock.

    Raises:
        ColumnError: It has no clock, or does not say where content is asked for.
    """
    for name, dtype in ((CLOCK, TIME_TYPE), (ASK, pa.bool_())):
        _check_column(ticks, name, dtype, "ticks")


def _check_column(node: Node, name: str, dtype: pa.DataType, what: str) -> None:
    schema = node.schema
    if name not in schema.names or schema.field(name).type != dtype:
        raise ColumnError(f"The {what} need a column of {dtype}.", column=name, remedy="Make them on turns.")


def _check_room(node: Node) -> None:
    for name in (DUE, BATCH_DUE):
        if name in node.schema.names:
            raise ColumnError(
                "A window that the clock drives adds a column of this name.",
                column=name,
                remedy="Select the others first.",
            )


@dataclass(frozen=True, eq=False)
class UntilTick(Node):
    """Rows until the first tick at or past a time (Esper: time, timetolive, time_order).

    A row whose time is not after its own ``@clock`` is in at its own place alone. A row without a time never leaves.
    The rows get a column ``@due`` with that time.

    Attributes:
        arrivals: Points at places, with ``@clock``.
        ticks: Points at places, with ``@clock`` and ``@ask``.
        since: The column that the time is, or that the span is counted from.
        span: The span; None for none.
    """

    arrivals: Node
    ticks: Node
    since: str = CLOCK
    span: ClockSpan | None = None

    def __post_init__(self) -> None:
        check_ticks(self.ticks)
        for name in (CLOCK, self.since):
            _check_column(self.arrivals, name, TIME_TYPE, "arrivals")
        _check_room(self.arrivals)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.arrivals, self.ticks

    def over(self, *inputs: Node) -> Node:
        arrivals, ticks = inputs
        return replace(self, arrivals=arrivals, ticks=ticks)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.arrivals.schema.append(pa.field(DUE, TIME_TYPE))

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.arrivals.key

    stateless = False
    gathers = True
    collects = True
    takes_ends: ClassVar[Ends] = "unread"

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        by_arrival = self.since == CLOCK and self.span is not None and not self.span.months
        return below[0].seeing(self.span.ticks if by_arrival and self.span is not None else None)

    @property
    def time_rule(self) -> str:
        return _HELD_BACK

    @property
    def held(self) -> str:
        return _BY_TIME

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, CLOCK, self.since}
        return [tuple(name for name in self.arrivals.schema.names if name in read), (CLOCK, ASK)]

    def describe(self) -> str:
        return f"UntilTick {self.since}{'' if self.span is None else f' + {self.span}'}"


@dataclass(frozen=True, eq=False)
class UntilStamp(Unary):
    """Rows until one comes whose stamp is a span or more after theirs: `StampSpan` without groups (Esper: ext_timed).

    Attributes:
        stamp: The column of stamps, which are times.
        span: The span.
    """

    stamp: str
    span: ClockSpan

    def __post_init__(self) -> None:
        _check_column(self.input, self.stamp, TIME_TYPE, "arrivals")

    @cached_property
    def duration(self) -> int | None:
        return None

    stateless = False
    gathers = True
    takes_ends: ClassVar[Ends] = "unread"

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        raise one_order("A window by stamps without a key")

    @property
    def time_rule(self) -> str:
        return _HELD_BACK

    @property
    def held(self) -> str:
        return _BY_TIME

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, self.stamp}
        return [tuple(name for name in self.schema.names if name in read)]

    def describe(self) -> str:
        return f"UntilStamp {self.span} by {self.stamp}"


# Windows of groups


@dataclass(frozen=True)
class Accumulated(Assigned):
    """Rows from their own places on; all leave together when no row has come for a span (Esper: time_accum)."""

    span: ClockSpan

    enters = "at its start"
    leaves = "later"
    leaves_together = True
    ties = "by place"
    remains = "nothing"
    halo = "ticks make rows leave"
    as_part = AsPart(timer=True, remains="all")
    by_clock: ClassVar[bool] = True

    @property
    def sees(self) -> int | None:
        return None if self.span.months else self.span.ticks

    def __str__(self) -> str:
        return f"accumulated {self.span}"


@dataclass(frozen=True)
class ClockBatches(Assigned):
    """The rows of each span of a grid, from the tick at its end to the next such tick (Esper: time_batch).

    After a tick that is late the grid goes on from what the clock shows: the next end is the first one after that.

    Attributes:
        span: The distance of the grid's points.
        align: A point of the grid; None for the clock of the group's first row.
        since: What the clock showed when it began to post, if ``runs``; None for when the group's first row comes.
        runs: Whether it posts at each end of a span, be it nothing (FORCE_UPDATE).
    """

    span: ClockSpan
    align: int | None = None
    since: int | None = None
    runs: bool = False

    enters = "later"
    leaves = "later"
    ties = "by place"
    halo = "ticks make rows enter and leave"
    note = RowNote("due", UNKNOWN, most=UNKNOWN)
    by_clock: ClassVar[bool] = True

    def __str__(self) -> str:
        align = "first" if self.align is None else str(self.align)
        since = "" if self.since is None else f" since={self.since}"
        return f"batches {self.span} align={align}{since}{' runs' * self.runs}"

    @property
    def remains(self) -> Remains:
        return "all" if self.align is None or self.runs else "nothing"

    @property
    def as_part(self) -> AsPart:
        return AsPart(batches=True, timer=True, remains="all")


@dataclass(frozen=True)
class ClockLengthBatches(Assigned):
    """Batches that are complete with ``count`` rows, or at a tick a span after the last one (Esper: time_length_batch).

    Attributes:
        span: From when a batch is complete, or from its first row, to when it is complete at the latest.
        count: How many rows complete it.
        since: What the clock showed when the first span began; None for the group's first row.
        runs: Whether spans follow each other when no row comes (FORCE_UPDATE).
    """

    span: ClockSpan
    count: int
    since: int | None = None
    runs: bool = False

    enters = "later"
    leaves = "later"
    ties = "by place"
    remains = "all"
    halo = "ticks make rows enter and leave"
    as_part = AsPart(batches=True, timer=True, remains="all")
    by_clock: ClassVar[bool] = True

    def __str__(self) -> str:
        since = "" if self.since is None else f" since={self.since}"
        return f"batches {self.span} or {self.count}{since}{' runs' * self.runs}"


@dataclass(frozen=True)
class FirstClock(Assigned):
    """Rows that come while the clock shows less than a span after a time, forever (Esper: firsttime).

    Attributes:
        span: The span.
        since: The time; None for the clock of the group's first row.
    """

    span: ClockSpan
    since: int | None = None

    enters = "at its start"
    leaves = "known"
    ties = "by place"
    remains = "all"
    halo = "which rows come first depends on all earlier rows"

    def __str__(self) -> str:
        return f"first {self.span}{'' if self.since is None else f' since={self.since}'}"

    @property
    def row_by_row(self) -> bool:
        return self.since is not None

    @property
    def as_part(self) -> AsPart:
        return AsPart(timer=self.since is None, remains="all")

    reads = (CLOCK,)


@dataclass(frozen=True)
class StampSpan(Assigned):
    """Rows until one comes whose stamp is a span or more after theirs (Esper: ext_timed).

    The oldest row leaves first: one that came with an earlier stamp stays until those before it have left.

    Attributes:
        span: The span.
        stamp: The column of stamps.
    """

    span: ClockSpan
    stamp: str

    enters = "at its start"
    leaves = "later"
    ties = "by place"
    remains = "nothing"
    halo = "which row has the latest stamp depends on all earlier rows"
    note = RowNote("greatest", UNKNOWN, most=UNKNOWN)

    as_part = AsPart()

    def __str__(self) -> str:
        return f"last {self.span} by {self.stamp}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.stamp,)


@dataclass(frozen=True)
class StampBatches(Assigned):
    """The rows of each span of a grid of stamps, from the first row past its end to the next such row.

    A late row belongs to the batch that gathers (Esper: ext_timed_batch).

    Attributes:
        span: The distance of the grid's points.
        stamp: The column of stamps.
        align: A point of the grid; None for the stamp of the group's first row.
    """

    span: ClockSpan
    stamp: str
    align: int | None = None

    enters = "later"
    leaves = "later"
    ties = "by place"
    remains = "all"
    halo = "which row has the latest stamp depends on all earlier rows"
    note = RowNote("over", UNKNOWN, most=UNKNOWN)

    def __str__(self) -> str:
        return f"batches {self.span} by {self.stamp} align={'first' if self.align is None else self.align}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.stamp,)


@dataclass(frozen=True, eq=False)
class ClockedWindow(DataWindow):
    """A data window that the clock drives: its rows also leave, or batches are complete, at ticks.

    Its rows have a column ``@due`` more: the time at which a row's leave fell due, where the clock makes it leave.
    Where rows enter later they have ``@batch due`` too: likewise of their enter. With the output ``"posts"`` its rows
    are points at the ticks at which the window posts, be it nothing, with ``@due``.

    Attributes:
        ticks: The ticks.
        drops: Columns that it does not hand on, as nobody reads them.
    """

    ticks: Node = field(kw_only=True)
    drops: frozenset[str] = field(default=frozenset(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ticks(self.ticks)
        _check_column(self.input, CLOCK, TIME_TYPE, "arrivals")
        _check_room(self.input)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.input, self.ticks

    def over(self, *inputs: Node) -> Node:
        below, ticks = inputs
        return replace(self, input=below, ticks=ticks)

    @cached_property
    def schema(self) -> pa.Schema:
        if self.output == "posts":
            return pa.schema([pa.field(DUE, TIME_TYPE)])
        own = [pa.field(name, TIME_TYPE) for name in self.dues]
        return pa.schema([each for each in (*super().schema, *own) if each.name not in self.drops])

    @property
    def dues(self) -> tuple[str, ...]:
        """The columns that it adds."""
        return (DUE, BATCH_DUE) if self.window.enters == "later" else (DUE,)

    def lighter(self, wanted: Collection[str]) -> Node:
        made = super().lighter(wanted)
        return replace(made, drops=frozenset(self.schema.names) - {*wanted, *self.key, PLACE})  # type: ignore[call-arg]

    def ends(self, at: int) -> Ends:
        return "unread"

    def split(self, below: Sequence[Split]) -> Split:
        return super().split(below).seeing(self.window.sees)

    collects = True

    def needed(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        return super().needed((*wanted, CLOCK))

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [self.needed(tuple(wanted)), (CLOCK, ASK)]

    def describe(self) -> str:
        return f"Clocked{super().describe()}"
