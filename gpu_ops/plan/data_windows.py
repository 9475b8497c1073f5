"""Data windows: when each event enters and leaves a window, as in Esper, StreamCruncher and StreamInsight.

A data window changes lifetimes: each event of a group gets the stretch ``[enter, leave)`` for which it is in the
window; an event that never enters is dropped. Aggregates over a data window are snapshots of those lifetimes, and its
insert and remove streams are their starts and ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, format_span, format_time
from gpu_ops.core.turns import PLACE
from gpu_ops.errors import ColumnError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.calendars import Calendar
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Computed, Node, Unary, check_flat, check_known, selected
from gpu_ops.plan.splits import Split, one_order
from gpu_ops.plan.window_conditions import condition_fields
from gpu_ops.plan.window_kinds import (
    UNKNOWN,
    AsPart,
    Assigned,
    DataWindowKind,
    Enters,
    GapHalo,
    GridHalo,
    Halo,
    LiveHalo,
    NoHalo,
    Remains,
    RememberedTime,
    RowHalo,
    RowNote,
)
from gpu_ops.plan.windows import check_names

_FIRST = "which events come first depends on all earlier events"


@dataclass(frozen=True)
class Last(Assigned):
    """The last ``count`` rows, moving at each ``every``-th row; without ``partial`` empty until there are ``count``.

    Row r, counted from 0, enters at the first moving row at or after it, and leaves at the first one at which it is no
    longer among the last (Esper: length, length_batch; StreamCruncher: last N).
    """

    count: int
    every: int = 1
    partial: bool = True

    leaves = "later"
    ties = "by place"
    remains = "all"
    stays_in_halo = True

    def __str__(self) -> str:
        every = "" if self.every == 1 else f" every={self.every}"
        return f"last {self.count}{every}{'' if self.partial else ' partial=False'}"

    @property
    def enters(self) -> Enters:
        return "at its start" if self.every == 1 and self.partial else "later"

    @property
    def halo(self) -> Halo:
        # The last n rows at each multiple of m hold a row until at most n + m - 1 rows after it.
        return RowHalo(self.count + self.every - 1, self.every)

    @property
    def as_part(self) -> AsPart | None:
        if self.partial:
            return AsPart() if self.every == 1 else None
        return AsPart(batches=True) if self.every == self.count else None


@dataclass(frozen=True)
class LastStarts(Assigned):
    """The events of the last ``count`` distinct starts, once there are that many (StreamInsight: count window)."""

    count: int

    enters = "later"
    leaves = "later"
    ties = "alike"
    remains = "all"
    counts = "starts"
    stays_in_halo = True

    def __str__(self) -> str:
        return f"count window {self.count}"

    @property
    def halo(self) -> Halo:
        return RowHalo(self.count, starts=True)


@dataclass(frozen=True)
class First(Assigned):
    """The first ``count`` rows, forever (Esper: firstlength, firstunique)."""

    count: int

    enters = "at its start"
    leaves = "known"
    ties = "by place"
    remains = "all"
    halo = _FIRST
    as_part = AsPart()

    def __str__(self) -> str:
        return f"first {self.count}"


@dataclass(frozen=True)
class FirstSpan(Assigned):
    """Events that start within a span after the group's first start, or after a time, forever (Esper: firsttime)."""

    span: int
    since: int | None = None

    enters = "at its start"
    leaves = "known"
    ties = "alike"

    def __str__(self) -> str:
        if self.is_all:
            return "keep all"
        since = "" if self.since is None else f" since={format_time(self.since)}"
        return f"first span {format_span(self.span)}{since}"

    @property
    def row_by_row(self) -> bool:
        return self.since is not None or self.is_all

    @property
    def is_all(self) -> bool:
        return self.span > MAX_TIME - MIN_TIME

    @property
    def remains(self) -> Remains:
        return "all" if self.since is None else "nothing"

    @property
    def halo(self) -> str:
        return "all events stay, so a slice would need all earlier events" if self.is_all else _FIRST

    @property
    def as_part(self) -> AsPart:
        return AsPart(remains="all" if self.since is None else "nothing")


@dataclass(frozen=True)
class Session(Assigned):
    """Sessions: a session ends ``gap`` after its last start, or at its cap.

    A session that opens at t ends at ``t + cap`` at the latest. ``grid_cap`` m is Trill's cap: the second point of the
    grid ``align + k * m`` after t, or the first point if t is on the grid or if the previous session was cut. Events
    are in from the session's first start to its end; with ``running`` each event is in from its own start.
    """

    gap: int
    cap: int | None = None
    grid_cap: int | None = None
    align: int = MIN_TIME
    running: bool = False

    leaves = "later"
    leaves_together = True
    stays_in_halo = True
    ties = "alike"
    note = RowNote("cap", UNKNOWN, most=UNKNOWN, after_start=True)
    """The latest possible end of the row's session, once it is known."""

    def __str__(self) -> str:
        cap = "" if self.cap is None else f" cap={format_span(self.cap)}"
        grid = "" if self.grid_cap is None else f" grid_cap={format_span(self.grid_cap)}"
        align = "" if self.align == MIN_TIME else f" align={format_time(self.align)}"
        return f"session gap={format_span(self.gap)}{cap}{grid}{align}{' running' * self.running}"

    @property
    def enters(self) -> Enters:
        return "at its start" if self.running else "with the first"

    @property
    def remains(self) -> Remains:
        # Trill's cap depends on whether the previous session was cut.
        return "nothing" if self.grid_cap is None else "all"

    @property
    def halo(self) -> Halo:
        return GapHalo(self.gap)


@dataclass(frozen=True)
class TimeBatches(Assigned):
    """The events of each span ``[align + k * span, + span)`` during the next one (Esper: time_batch).

    Without ``align`` the first span begins at the group's first start. With a ``calendar`` its windows are the spans.
    """

    span: int
    align: int | None = None
    calendar: Calendar | None = None

    enters = "later"
    leaves = "known"
    ties = "alike"
    stays_in_halo = True

    def __str__(self) -> str:
        if self.calendar is not None:
            return f"time batches of {self.calendar}"
        align = "first" if self.align is None else format_time(self.align)
        return f"time batches {format_span(self.span)} align={align}"

    @property
    def remains(self) -> Remains:
        return "all" if self.align is None and self.calendar is None else "nothing"

    @property
    def halo(self) -> Halo:
        return GridHalo(self.span, self.align, self.calendar)

    def duration(self, given: int | None) -> int | None:
        return self.span if self.calendar is None else None

    @property
    def as_part(self) -> AsPart | None:
        remains: Literal["all", "nothing"] = "all" if self.align is None else "nothing"
        return AsPart(batches=True, remains=remains) if self.calendar is None else None


@dataclass(frozen=True)
class TimeLengthBatches(Assigned):
    """Batches that are complete with ``count`` events, or when a clock runs out (Esper: time_length_batch).

    A group's first event sets the clock, or it runs ``since`` a time; without events it stops, or ``runs`` on.
    """

    span: int
    count: int
    since: int | None = None
    runs: bool = False

    enters = "later"
    leaves = "at once"
    ties = "by place"
    stays_in_halo = True

    def __str__(self) -> str:
        since = "" if self.since is None else f" since={format_time(self.since)}"
        return f"batches {format_span(self.span)} or {self.count}{since}{' idle=run' * self.runs}"

    @property
    def remains(self) -> Remains:
        # The clock stops when it has been set again and no row has come.
        return "all" if self.runs else RememberedTime(2 * self.span, self.since)

    @property
    def halo(self) -> Halo | str:
        if self.since is not None or self.runs:
            return "the times at which the clock runs out depend on all earlier events"
        # The clock runs out for the gathering batch, for the batch that is in, and once more without events.
        return GapHalo(3 * self.span)

    @property
    def as_part(self) -> AsPart | None:
        plain = self.since is None and not self.runs
        return AsPart(batches=True, timer=True, remains="all") if plain else None


@dataclass(frozen=True)
class Best(Assigned):
    """The ``count`` rows with the greatest (``highest``) or least values; of equal values the oldest leaves first.

    With ``unique`` there is at most one row of each combination of these columns: a later row replaces the earlier one.
    A row whose value is null never enters (Esper: sort, rank; StreamCruncher: highest, lowest, with update group).
    """

    count: int
    by: str
    highest: bool = True
    unique: tuple[str, ...] = ()

    enters = "at its start"
    leaves = "later"
    ties = "by payload"
    remains = "nothing"
    as_part = AsPart()

    def __str__(self) -> str:
        unique = f" unique={', '.join(self.unique)}" if self.unique else ""
        return f"{'highest' if self.highest else 'lowest'} {self.count} by {self.by}{unique}"

    @property
    def halo(self) -> str:
        return f"which values are the {'highest' if self.highest else 'lowest'} so far depends on all earlier events"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.by, *self.unique)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.unique

    def renamed(self, names: Mapping[str, str]) -> Self:
        return replace(self, by=names.get(self.by, self.by))


Refused = Literal["dropped", "shown"]
"""What becomes of a row that leaves with its own arrival: nothing, or it is in for a tick."""


@dataclass(frozen=True)
class Sorted(Assigned):
    """The ``count`` rows that come first in an order; of equal rows the oldest leaves first (Esper: sort, rank).

    Attributes:
        count: How many rows are in.
        by: Pairs (column, whether the greatest come first); null is less than all values.
        unique: Columns of which each combination of values has at most one row, the latest.
        refused: What becomes of a row that is after all others as it comes.
    """

    count: int
    by: tuple[tuple[str, bool], ...]
    unique: tuple[str, ...] = ()
    refused: Refused = "dropped"

    enters = "at its start"
    leaves = "at once"
    ties = "by payload"
    remains = "nothing"
    halo = "which rows come first depends on all earlier events"
    as_part = AsPart()

    def __str__(self) -> str:
        by = ", ".join(f"{name}{' desc' * descending}" for name, descending in self.by)
        unique = f" unique={', '.join(self.unique)}" if self.unique else ""
        return f"first {self.count} by {by}{unique}{'' if self.refused == 'dropped' else ' refused=shown'}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (*(name for name, _ in self.by), *self.unique)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.unique


@dataclass(frozen=True)
class Sample(Assigned):
    """A sample of ``count`` rows: those with the least hashes of the seed, the start and the number within it."""

    count: int
    seed: int

    enters = "at its start"
    leaves = "later"
    ties = "by payload"
    remains = "all"
    halo = "which events are drawn depends on all earlier events"
    note = RowNote("hash")

    def __str__(self) -> str:
        return f"sample {self.count} seed={self.seed}"


@dataclass(frozen=True)
class Alive(Assigned):
    """Events are in while they live."""

    enters = "at its start"
    leaves = "at its end"
    ties = "alike"
    remains = "nothing"
    halo = NoHalo()

    def __str__(self) -> str:
        return "alive"


Output = Literal["alive", "insert", "remove", "changes", "each", "prior", "gathering", "posts"]

STATUS = "status"
"""The column of `changes` that says whether an event enters (new) or leaves (dead)."""


@dataclass(frozen=True, eq=False)
class DataWindow(Unary):
    """Each event with the lifetime for which it is in the window of its group.

    Attributes:
        window: The kind of window.
        within: Columns besides the key: there is a window for each combination of their values.
        order: Columns that order events of one start, before the payload does.
        output: ``"alive"`` the events while they are in; ``"gathering"``, for batches: the events from their own starts
            until their batch is complete, or another window drops them; ``"insert"``, ``"remove"`` a point at each
            one's enter or leave; ``"changes"`` both, with a column ``status``: ``"new"`` or ``"dead"``; ``"each"`` a
            point at each one's enter, with aggregates over the rows that are in then; ``"prior"``, for the last n rows:
            the events themselves, with columns of the row n before; ``"posts"``, of windows that a clock drives.
        aggregates: The aggregates, over plain columns.
        prior: Pairs (name, column of the row before).
    """

    window: DataWindowKind
    within: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    output: Output = "alive"
    aggregates: tuple[Aggregate, ...] = ()
    prior: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        known = self.input.schema.names
        groups = {*self.within, *self.window.groups} if PLACE in known else set()
        check_known(self.input.schema, groups)
        for name in (*self.within, *self.order, *self.window.reads):
            if name not in groups:
                check_flat(self.input.schema, name, "has no order here")
        check_names([aggregate.name for aggregate in self.aggregates], known)
        if self.output == "changes" and STATUS in known:
            raise ColumnError(
                "changes adds a column of this name.",
                column=STATUS,
                remedy="Rename the payload's column first: .with_columns(…).select(…).",
            )

    @cached_property
    def schema(self) -> pa.Schema:
        schema = self.input.schema
        if self.output == "changes":
            return schema.append(pa.field(STATUS, pa.string()))
        before = (schema.field(column).with_name(name).with_nullable(True) for name, column in self.prior)
        return pa.schema([*schema, *before, *(aggregate.field(schema) for aggregate in self.aggregates)])

    @property
    def computed(self) -> tuple[Computed, ...]:
        return self.window.computed(lambda: condition_fields(self.input.schema))

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that decide which window an event belongs to."""
        return tuple(dict.fromkeys((*self.input.key, *self.within)))

    @property
    def counts_rows(self) -> bool:
        """Whether the order of events of one start matters."""
        return self.output == "each" or self.window.ties != "alike"

    @property
    def _by_place(self) -> bool:
        """Whether it is on turns, and each row's place says all about the order of its rows."""
        return PLACE in self.order and self.window.ties == "by place"

    def needed(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that it needs of its input to give the wanted ones."""
        names = tuple(self.input.schema.names)
        if self.counts_rows and not self._by_place:
            # The whole payload decides the order of events of one start, or a condition may read it.
            return names
        taken = {str(bare_column(each)) for aggregate in self.aggregates for each in aggregate.reads}
        read = {*wanted, *self.group, *self.window.reads, *self.order, *taken, *(column for _, column in self.prior)}
        return tuple(name for name in names if name in read)

    @cached_property
    def duration(self) -> int | None:
        if self.output == "prior":
            return self.input.duration
        if self.output == "gathering":
            return None
        if self.output != "alive":
            return TICK
        return self.window.duration(self.input.duration)

    @property
    def halo(self) -> Halo | str:
        """Which rows a slice of time needs besides its own; or, in words, why there is no bound.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 1], "v": [1, 2]}), start="at", unit="s")
            >>> str(s.last(3).rows()._node.halo)
            'a slice is shown 3 events before it and after it'
            >>> s.first(3).rows()._node.halo
            'which events come first depends on all earlier events'
        """
        if self.output != "each":
            return self.window.halo
        if self.within:
            return "each event gets aggregates over the windows of all other values too, which a slice does not see"
        return LiveHalo() if self.window.is_lifetime else self.window.halo

    stateless = False

    @property
    def grouped(self) -> tuple[str, ...]:
        return self.group

    @property
    def time_rule(self) -> str:
        return self.window.time_rule(self.output)

    @property
    def held(self) -> str:
        one_by_one = ", and taken one by one on the host" * self.window.on_host
        return f"all events of its input are held in memory{one_by_one}"

    handed = "needed"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        # With the wanted columns equal within a start, and equal lifetimes, any order gives the same result.
        alike = self.window.ties == "by place" and self.input.duration is not None
        if alike and self.output == "alive" and self.group and {*wanted} <= {*self.group}:
            return [self.group]
        return [self.needed(tuple(wanted))]

    def lighter(self, wanted: Collection[str]) -> Node:
        """On turns it holds its rows for long; elsewhere engines leave columns out themselves."""
        return replace(self, input=selected(self.input, self.needed(tuple(wanted)))) if self._by_place else self

    @property
    def arriving(self) -> Node | None:
        return self.input if self.window.is_all and self.output == "alive" else None

    @property
    def gathers(self) -> bool:
        return not self.passes_on

    @property
    def passes_on(self) -> bool:
        """Whether events are in while they live, so that it changes nothing."""
        return self.window.is_lifetime and self.output == "alive"

    @property
    def together(self) -> tuple[str, ...]:
        # By the key alone, if there is one: nodes above it may then share its task. Besides, aggregates of "each" need
        # all windows of a key.
        return self.key or (() if self.output == "each" else self.group)

    @property
    def matched(self) -> tuple[tuple[str, ...], ...]:
        return (self.key or self.group,)

    def split(self, below: Sequence[Split]) -> Split:
        what = f"The window {self.window}"
        if self.output not in {"alive", "gathering"}:
            raise one_order(f"{what}, of which {self.output} is asked,")
        return below[0] if self.window.row_by_row else below[0].by(self.group, what)

    def _whole(self) -> tuple[str, ...] | None:
        return None if self.output == "changes" else self.group

    def describe(self) -> str:
        within = f" for each {', '.join(self.within)}" if self.within else ""
        order = f" order={', '.join(self.order)}" if self.order else ""
        output = "" if self.output == "alive" else f" {self.output}"
        if self.aggregates:
            output += f" {', '.join(str(aggregate) for aggregate in self.aggregates)}"
        output += "".join(f" {name}={column}" for name, column in self.prior)
        return f"DataWindow {self.window}{within}{order}{output}"
