"""Data windows: from when to when each event is in a window, as Esper, StreamCruncher and StreamInsight say it.

A data window is a change of lifetimes: each event of a group gets the stretch ``[enter, leave)`` for which it is in the
window, and one that is never in is gone. Aggregates over it are snapshots of those lifetimes, and its insert and remove
streams are their two ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from gpu_ops.errors import ColumnError, unknown_column
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.arguments import whole
from gpu_ops.plan.calendars import Calendar
from gpu_ops.plan.nodes import Computed, Unary
from gpu_ops.plan.together import Ends, Together
from gpu_ops.plan.window_conditions import Until, While, condition_fields
from gpu_ops.time import MAX_TIME, MIN_TIME, TICK, format_span, format_time


@dataclass(frozen=True)
class Last:
    """The last ``count`` rows, moving at each ``every``-th one; without ``partial`` nothing before there are so many.

    Row r, counted from 0, enters at the first moving row at or after it, and leaves at the first one at which it is no
    longer among the last (Esper: length, length_batch; StreamCruncher: last N).
    """

    count: int
    every: int = 1
    partial: bool = True

    def __str__(self) -> str:
        every = "" if self.every == 1 else f" every={self.every}"
        return f"last {self.count}{every}{'' if self.partial else ' partial=False'}"


@dataclass(frozen=True)
class LastStarts:
    """The events of the last ``count`` distinct starts, once there are so many (StreamInsight: count window)."""

    count: int

    def __str__(self) -> str:
        return f"count window {self.count}"


@dataclass(frozen=True)
class First:
    """The first ``count`` rows, for ever (Esper: firstlength, firstunique)."""

    count: int

    def __str__(self) -> str:
        return f"first {self.count}"


@dataclass(frozen=True)
class FirstSpan:
    """What starts within a span from the group's first start, or from a time, for ever (Esper: firsttime)."""

    span: int
    since: int | None = None

    def __str__(self) -> str:
        if self.span > MAX_TIME - MIN_TIME:
            return "keep all"
        since = "" if self.since is None else f" since={format_time(self.since)}"
        return f"first span {format_span(self.span)}{since}"


@dataclass(frozen=True)
class Session:
    """Sessions: one ends ``gap`` after its last start, or at its cap.

    A session that opens at t lasts to ``t + cap`` at most. ``grid_cap`` m is Trill's: to the second point of the grid
    ``align + k * m`` after t, but to the first one if t is on the grid, or if it opens because the one before was cut.
    Its events live from its first start to its end; ``running``: each from its own start.
    """

    gap: int
    cap: int | None = None
    grid_cap: int | None = None
    align: int = MIN_TIME
    running: bool = False

    def __str__(self) -> str:
        cap = "" if self.cap is None else f" cap={format_span(self.cap)}"
        grid = "" if self.grid_cap is None else f" grid_cap={format_span(self.grid_cap)}"
        align = "" if self.align == MIN_TIME else f" align={format_time(self.align)}"
        return f"session gap={format_span(self.gap)}{cap}{grid}{align}{' running' * self.running}"


@dataclass(frozen=True)
class TimeBatches:
    """The events of each span ``[align + k * span, + span)`` during the next one (Esper: time_batch).

    Without ``align`` spans are counted from the group's first start. With a ``calendar`` its windows are the spans.
    """

    span: int
    align: int | None = None
    calendar: Calendar | None = None

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"time batches of {self.calendar}"
        align = "first" if self.align is None else format_time(self.align)
        return f"time batches {format_span(self.span)} align={align}"


@dataclass(frozen=True)
class TimeLengthBatches:
    """Batches complete with ``count`` events, or with the span's clock (Esper: time_length_batch).

    The clock is first set by a group's first event, or ``since`` a time; with nothing to do it stops, or ``runs`` on.
    """

    span: int
    count: int
    since: int | None = None
    runs: bool = False

    def __str__(self) -> str:
        since = "" if self.since is None else f" since={format_time(self.since)}"
        return f"batches {format_span(self.span)} or {self.count}{since}{' idle=run' * self.runs}"


@dataclass(frozen=True)
class Best:
    """The ``count`` rows with the greatest (``highest``) or least values; of equal ones the oldest leaves first.

    With ``unique`` at most one row of each combination of these columns: a later one takes the place of the one before.
    A row whose value is null is never in (Esper: sort, rank; StreamCruncher: highest, lowest, with update group).
    """

    count: int
    by: str
    highest: bool = True
    unique: tuple[str, ...] = ()

    def __str__(self) -> str:
        unique = f" unique={', '.join(self.unique)}" if self.unique else ""
        return f"{'highest' if self.highest else 'lowest'} {self.count} by {self.by}{unique}"


@dataclass(frozen=True)
class Sample:
    """``count`` rows drawn from all so far: those with the least hashes of seed, start, number among equal starts."""

    count: int
    seed: int

    def __str__(self) -> str:
        return f"sample {self.count} seed={self.seed}"


@dataclass(frozen=True)
class Alive:
    """Events are in for as long as they live."""

    def __str__(self) -> str:
        return "alive"


Kind = (
    Last
    | LastStarts
    | First
    | FirstSpan
    | Session
    | TimeBatches
    | TimeLengthBatches
    | Best
    | Sample
    | Alive
    | While
    | Until
    | Together
)
Output = Literal["alive", "insert", "remove", "changes", "each", "prior"]

STATUS = "status"
"""The column of `changes` that says whether an event is new or dead."""


@dataclass(frozen=True, eq=False)
class DataWindow(Unary):
    """Each event with the lifetime for which it is in the window of its group.

    Attributes:
        window: The kind of window.
        within: Columns beside the key: there is a window for each combination of their values.
        order: Columns by which events of one start are taken, before the payload decides.
        output: ``"alive"`` the events while they are in; ``"insert"``, ``"remove"`` a point at each one's enter or
            leave; ``"changes"`` both, with a column ``status``: ``"new"`` or ``"dead"``; ``"each"`` a point at each
            one's enter, with aggregates over what is in then; ``"prior"``, of the last n rows: the events as they are,
            beside columns of the row n before.
        aggregates: These, over plain columns.
        prior: (name, column of the row before) each.
    """

    window: Kind
    within: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    output: Output = "alive"
    aggregates: tuple[Aggregate, ...] = ()
    prior: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        known = self.input.schema.names
        asked = [*self.within, *self.order]
        if isinstance(self.window, Best):
            asked += [self.window.by, *self.window.unique]
        for name in asked:
            if name not in known:
                raise unknown_column(name, known)
            dtype = self.input.schema.field(name).type
            if pa.types.is_nested(dtype):
                raise ColumnError(
                    f"A column of {dtype} has no order here.",
                    column=name,
                    remedy="Take its fields or its text as columns first.",
                )
        for aggregate in self.aggregates:
            if aggregate.name in known:
                raise ColumnError(
                    "The result would have two columns of one name.",
                    column=aggregate.name,
                    remedy="Give the aggregate another name.",
                )
        if self.output == "changes" and STATUS in known:
            raise ColumnError(
                "changes gives a column of that name.",
                column=STATUS,
                remedy="Give the payload's another name before: .with_columns(…).select(…).",
            )

    @cached_property
    def _schema(self) -> pa.Schema:
        schema = self.input.schema
        if self.output == "changes":
            return schema.append(pa.field(STATUS, pa.string()))
        before = (schema.field(column).with_name(name).with_nullable(True) for name, column in self.prior)
        return pa.schema([*schema, *before, *(aggregate.field(schema) for aggregate in self.aggregates)])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def computed(self) -> tuple[Computed, ...]:
        if not isinstance(self.window, While | Until):
            return ()
        return ((self.window.condition, condition_fields(self.input.schema)),)

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that say which window an event belongs to."""
        return tuple(dict.fromkeys((*self.input.key, *self.within)))

    @property
    def counts_rows(self) -> bool:
        """Whether the order of events of one start matters."""
        kinds = Last | First | TimeLengthBatches | Best | Sample | While | Until | Together
        return self.output == "each" or isinstance(self.window, kinds)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that it reads itself."""
        if self.counts_rows:
            # Of events of one start the whole payload decides which comes first.
            return tuple(self.input.schema.names)
        return self.group

    def needed(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that it needs of its input to give the wanted ones."""
        read = {*wanted, *self.read}
        return tuple(name for name in self.input.schema.names if name in read)

    @property
    def duration(self) -> int | None:
        if self.output == "prior":
            return self.input.duration
        if self.output != "alive":
            return TICK
        if isinstance(self.window, Alive):
            return self.input.duration
        if isinstance(self.window, TimeBatches) and self.window.calendar is None:
            return self.window.span
        return None

    @property
    def stateless(self) -> bool:
        return False

    def describe(self) -> str:
        within = f" for each {', '.join(self.within)}" if self.within else ""
        order = f" order={', '.join(self.order)}" if self.order else ""
        output = "" if self.output == "alive" else f" {self.output}"
        if self.aggregates:
            output += f" {', '.join(str(aggregate) for aggregate in self.aggregates)}"
        output += "".join(f" {name}={column}" for name, column in self.prior)
        return f"DataWindow {self.window}{within}{order}{output}"


def enters_late(window: Kind) -> bool:
    """Whether rows may enter later than they start, or earlier: with others.

    Examples:
        >>> enters_late(Last(2)), enters_late(Last(2, every=2))
        (False, True)
    """
    if isinstance(window, Together):
        return any(not isinstance(part.window, Ends) and enters_late(part.window) for part in window.parts)
    if isinstance(window, Last):
        return window.every > 1 or not window.partial
    if isinstance(window, Session):
        return not window.running
    return isinstance(window, LastStarts | TimeBatches | TimeLengthBatches | Until)


def positive(value: object, *, name: str) -> int:
    """A whole number of at least one.

    Raises:
        PlanError: It is none.
    """
    return whole(value, name=name)
