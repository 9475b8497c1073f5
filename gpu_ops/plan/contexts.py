"""Contexts: instances that start and end, and rows within them (Esper: context partitions).

An instance is known by two points: where it starts, and where it ends. An event is within it from the place where it
starts on, which is that of the event that starts it, and before the place where it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, DUE, ENDED, INSTANCE, NEW, OLD, ORDER, PLACE, ROW
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.expression_text import line_text
from gpu_ops.plan.expressions import check_boolean, column_names, copied, output_schema
from gpu_ops.plan.joins import On
from gpu_ops.plan.nodes import Computed, Ends, Node, Project, selected
from gpu_ops.plan.splits import Split, matched, one_order


def until_of(called: str) -> str:
    """The column with the time at which the clock ends an instance of a context of some name."""
    return f"@{called} ends"


@dataclass(frozen=True)
class AtOnce:
    """A span of no time: what waits for it happens at the next tick, and first where the context begins."""

    def __str__(self) -> str:
        return "0s"


Timing: TypeAlias = ClockSpan | CrontabTimes | AtOnce
"""When the clock starts an instance: so long after the one before has ended, or at the times of a crontab."""


class _OverInstances(Node):
    """What nodes over points on turns have in common."""

    duration: ClassVar[int | None] = TICK
    stateless = False
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    time_rule = "the oldest CTI of all inputs leaves"


@dataclass(frozen=True, eq=False)
class Instances(_OverInstances):
    """The instances of a context: a point where each starts, and one where it ends, which say so in `ENDED`.

    Attributes:
        called: The name of the context, which its columns have.
        ticks: The ticks. The first one is where the context begins.
        starts: Points at which an instance may start, on turns: it has their columns. None if only the clock does.
        ends_at: Points at which an instance may end, behind the one at which it has started. None for no such points.
        outer: Points of the instances that these are within, with their numbers in the column `outer_number`: these end
            with theirs. None if they are within none.
        outer_number: The name of that column.
        outer_since: The name of their column with the time at which they started.
        keys: Columns of which each combination of values has at most one instance at a time: what may start one while
            there is one starts none. Null is a value. None if each start makes an instance.
        keyed: Those of them that ends have too: they end the instance with the same values alone.
        on: Pairs (column of starts, column of ends) that are equal, where an end ends an instance. Null equals nothing.
        condition: What else holds then, over the columns of both.
        begins: When the clock starts an instance; with keys when none is there.
        lasts: When the clock ends one.
        now: Whether an instance starts where the context begins, or where one of `outer` starts.
        preset: How many start there instead, which have the numbers from 0 on in a column.
        number: The name of that column.
        shows: The columns of ends that instances have where they end.
        inclusive: Whether the event at whose place an instance starts is within it.
    """

    called: str
    ticks: Node
    starts: Node | None = None
    ends_at: Node | None = None
    outer: Node | None = None
    outer_number: str = ""
    outer_since: str = ""
    keys: tuple[str, ...] | None = ()
    keyed: tuple[str, ...] = ()
    on: On = ()
    condition: nw.Expr | None = None
    begins: Timing | None = None
    lasts: ClockSpan | CrontabTimes | None = None
    now: bool = False
    preset: int = 0
    number: str = ""
    shows: tuple[str, ...] = ()
    inclusive: bool = True

    def __post_init__(self) -> None:
        if self.begins is not None and (self.outer is not None or self.keys):
            raise PlanError("What the clock starts has no keys, and is within nothing.", remedy="Start it by events.")
        if self.condition is not None:
            check_boolean(self.met, self.condition, where="the condition of an end")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.ticks, *(each for each in (self.starts, self.ends_at, self.outer) if each is not None))

    @property
    def sides(self) -> tuple[str, ...]:
        """What its inputs are called."""
        named = {"starts": self.starts, "ends": self.ends_at, "outer": self.outer}
        return ("ticks", *(name for name, each in named.items() if each is not None))

    def over(self, *inputs: Node) -> Node:
        given = dict(zip(self.sides, inputs, strict=True))
        return replace(
            self,
            ticks=given["ticks"],
            starts=given.get("starts"),
            ends_at=given.get("ends"),
            outer=given.get("outer"),
        )

    @property
    def since(self) -> str:
        """The column with the time at which an instance started."""
        return f"@{self.called} starts"

    @property
    def until(self) -> str:
        """The column with the time at which the clock ends it; null if it does not."""
        return until_of(self.called)

    @cached_property
    def started(self) -> pa.Schema:
        """The columns that an instance has of what started it."""
        fields: list[pa.Field] = []
        if self.starts is not None:
            fields = [each for each in self.starts.schema if each.name not in {CLOCK, PLACE}]
        elif self.outer is not None:
            fields = [each for each in self.outer.schema if each.name != ENDED]
        if self.preset and self.number not in [each.name for each in fields]:
            fields.append(pa.field(self.number, pa.int32()))
        return pa.schema([each.with_nullable(True) for each in fields])

    @cached_property
    def met(self) -> pa.Schema:
        """The columns of an instance and of an end that it meets."""
        ends = [] if self.ends_at is None else list(self.ends_at.schema)
        return pa.schema([*self.started, *(each for each in ends if each.name not in self.started.names)])

    @cached_property
    def schema(self) -> pa.Schema:
        shown = [] if self.ends_at is None else [self.ends_at.schema.field(name) for name in self.shows]
        return pa.schema(
            [
                pa.field(INSTANCE, pa.int64(), nullable=False),
                *self.started,
                pa.field(self.since, TIME_TYPE),
                pa.field(self.until, TIME_TYPE),
                *(each.with_nullable(True) for each in shown),
                pa.field(ENDED, pa.bool_(), nullable=False),
            ]
        )

    @property
    def computed(self) -> tuple[Computed, ...]:
        return () if self.condition is None else ((self.condition, self.met),)

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [(CLOCK, ASK), *(tuple(each.schema.names) for each in self.inputs[1:])]

    def split(self, below: Sequence[Split]) -> Split:
        what = f"The context {self.called}"
        given = dict(zip(self.sides, below, strict=True))
        if "starts" not in given or self.keys == () or self.begins is not None or self.now or self.preset:
            raise one_order(what)
        # An instance that the clock ends is told the first move past its time; no other asks for moves.
        starts = given["starts"]
        if self.lasts is not None:
            starts = starts.seeing(
                self.lasts.ticks if isinstance(self.lasts, ClockSpan) and not self.lasts.months else None
            )
        starts = starts.by(self.keys, what) if self.keys else starts
        if "outer" in given:
            number = [(self.outer_number, self.outer_number)]
            starts = matched(starts, given["outer"], number, what, (self.started.names, ()))
        if "ends" in given:
            pairs = [*((name, name) for name in self.keyed), *self.on]
            starts = matched(starts, given["ends"], pairs, what, (self.started.names, ()))
        return _of_instances(starts, INSTANCE).made()

    def describe(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        at_most = "" if self.keys is None else f" one at a time{by}"
        on = ", ".join(f"{mine}={other}" for mine, other in self.on)
        parts = [
            f"Instances of {self.called}{at_most}",
            f"{self.preset} from the beginning" if self.preset else "one from the beginning" if self.now else "",
            "" if self.begins is None else f"begins {self.begins}",
            "" if self.lasts is None else f"lasts {self.lasts}",
            f"ends on {on}" if on else "",
            "" if self.condition is None else f"where {line_text(self.condition)}",
        ]
        return ", ".join(each for each in parts if each)


@dataclass(frozen=True, eq=False)
class Within(_OverInstances):
    """Events with the instances that they are within: a row for each of them, at the event's place.

    The row's ``@place`` is a number of its own, between those of the events of other turns and levels.

    Attributes:
        rows: The events, on turns.
        instances: The points of instances.
        on: Pairs (column of events, column of instances) that are equal; null equals null.
        carries: The columns of instances that rows get.
        number: The column with the number of an instance.
    """

    rows: Node
    instances: Node
    on: On = ()
    carries: tuple[str, ...] = ()
    number: str = INSTANCE

    def __post_init__(self) -> None:
        for mine, other in self.on:
            one, two = self.rows.schema.field(mine).type, self.instances.schema.field(other).type
            if one != two:
                raise ColumnError(f"The key is of {two}, and {mine!r} is of {one}.", column=other, remedy="Cast one.")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, self.instances

    def over(self, *inputs: Node) -> Node:
        rows, instances = inputs
        return replace(self, rows=rows, instances=instances)

    @cached_property
    def schema(self) -> pa.Schema:
        carried = [self.instances.schema.field(name) for name in self.carries]
        return pa.schema([*self.rows.schema, pa.field(self.number, pa.int64(), nullable=False), *carried])

    @property
    def read(self) -> tuple[str, ...]:
        """The columns of instances that it reads."""
        return tuple(dict.fromkeys((self.number, *(other for _, other in self.on), *self.carries, ENDED)))

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        mine = {*wanted, PLACE, *(name for name, _ in self.on)}
        return [tuple(name for name in self.rows.schema.names if name in mine), self.read]

    def lighter(self, wanted: Collection[str]) -> Node:
        made = replace(self, carries=tuple(name for name in self.carries if name in wanted))
        (mine, _) = made.needs([name for name in self.rows.schema.names if name in wanted])
        return replace(made, rows=selected(self.rows, mine))

    def split(self, below: Sequence[Split]) -> Split:
        known = (self.rows.schema.names, self.carries)
        rows = matched(below[0], below[1], self.on, "What all instances of a context take in", known)
        return replace(_of_instances(rows, self.number), arrive=below[0].arrive)

    def describe(self) -> str:
        on = ", ".join(f"{mine}={other}" for mine, other in self.on)
        return f"Within instances{f' on {on}' if on else ''}"


@dataclass(frozen=True, eq=False)
class OfInstances(_OverInstances):
    """Rows of instances while these last, with more of their columns; rows of those that have ended are gone.

    Attributes:
        rows: Points at places, with the number of an instance.
        instances: The points of instances.
        carries: The columns of instances that rows get.
        ending: Whether rows of an instance stay at the place where it ends: they are what is output there.
        in_time: Whether rows stay that come at that place: what makes them fell due before it ended.
    """

    rows: Node
    instances: Node
    carries: tuple[str, ...] = ()
    ending: bool = False
    in_time: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, self.instances

    def over(self, *inputs: Node) -> Node:
        rows, instances = inputs
        return replace(self, rows=rows, instances=instances)

    @cached_property
    def schema(self) -> pa.Schema:
        carried = [self.instances.schema.field(name).with_nullable(True) for name in self.carries]
        return pa.schema([*(each for each in self.rows.schema if each.name not in self.carries), *carried])

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        own = tuple(name for name in self.rows.schema.names if name not in self.carries and name in {*wanted, *_ROWS})
        return [own, (INSTANCE, *self.carries, ENDED)]

    def lighter(self, wanted: Collection[str]) -> Node:
        return replace(self, carries=tuple(name for name in self.carries if name in wanted))

    def split(self, below: Sequence[Split]) -> Split:
        names = [name for name in self.rows.schema.names if name not in self.carries]
        return matched(below[0], below[1], [(INSTANCE, INSTANCE)], "A context", (names, self.carries))

    def describe(self) -> str:
        words = "where these end " * self.ending + "in time " * self.in_time
        return f"OfInstances {words}{', '.join(self.carries)}".rstrip()


_ROWS = (INSTANCE, ROW, ORDER)


@dataclass(frozen=True, eq=False)
class LeavesInTime(_OverInstances):
    """Rows in windows, of which none leaves at the tick that ends its instance unless one of them fell due before.

    At one tick the clock does what fell due first; and what ends an instance before what its windows do then
    (Esper: an advance runs callbacks in order of due time, then of creation). A window's rows that are due by the clock
    leave together, when the first of them falls due.

    Attributes:
        rows: Rows with the number of an instance and ``@due``.
        instances: The points of instances.
        until: Their columns with the times at which the clock ends them, or what these are within.
    """

    rows: Node
    instances: Node
    until: tuple[str, ...]

    duration: ClassVar[int | None] = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, self.instances

    def over(self, *inputs: Node) -> Node:
        rows, instances = inputs
        return replace(self, rows=rows, instances=instances)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def ends(self, at: int) -> Ends:
        return "needed" if at else "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(dict.fromkeys((*wanted, INSTANCE, DUE))), (INSTANCE, *self.until, ENDED)]

    def split(self, below: Sequence[Split]) -> Split:
        return matched(below[0], below[1], [(INSTANCE, INSTANCE)], "A context", (self.schema.names, ()))

    def describe(self) -> str:
        return f"LeavesInTime before {', '.join(self.until)}"


@dataclass(frozen=True, eq=False)
class InstanceContent(OfInstances):
    """The content of instances, as an iterator shows it, and as what is output where they end.

    At such a place rows of the content of the instance that ends are new ones, and those of others are gone; where it
    has none there is an empty delivery. Other rows are as in `OfInstances`.
    """

    def describe(self) -> str:
        return f"InstanceContent {', '.join(self.carries)}".rstrip()


@dataclass(frozen=True, eq=False)
class EndOutput(OfInstances):
    """Rows held back until so many have come in their instance, or until it ends, where they are output.

    Where an instance ends that has no rows to show, there is an empty delivery. Rows of the content pass (Esper: output
    every so many events, output when terminated). A mark at an end is a row that is output there if no other is.

    Attributes:
        by: Columns of whose values each combination has last rows.
        last: Whether the last new row and the last old row are output; else all.
        first_old: Whether with `last` it is the first old row.
        shows: Which kinds of rows are output.
        every: They are output where so many new rows have come since the last output, or so many old ones; 0 for never.
        inserts: Whether new rows alone are counted for that.
        at_ends: Whether they are output where the instance ends; if not, what is held back then is gone.
        least: Where so many new rows are held back there, or more; if not, nothing is delivered.
        every_group: Whether with `last` each combination that has ever been there has a row in every output.
    """

    by: tuple[str, ...] = ()
    last: bool = False
    first_old: bool = False
    shows: tuple[int, ...] = (NEW,)
    every: int = 0
    inserts: bool = False
    at_ends: bool = True
    least: int = 0
    every_group: bool = False

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        rows, instances = super().needs((*wanted, *self.by))
        return [rows, instances]

    def describe(self) -> str:
        by = f" of each {', '.join(self.by)}" if self.by else ""
        shown = " and ".join(word for kind, word in ((NEW, "new"), (OLD, "old")) if kind in self.shows)
        every = f", every {self.every}{' new' * self.inserts} rows" if self.every else ""
        least = f" of {self.least} or more" if self.least else ""
        ends = f", at ends{least}" if self.at_ends else ""
        which = "the last" if self.last else "all"
        which += " (of all that were there)" * self.every_group
        return f"EndOutput of {which} {shown} rows{by}{every}{ends}"


@dataclass(frozen=True, eq=False)
class TimedOutput(EndOutput):
    """Rows held back within their instance for so long, from its first one on; then they are output, at the next tick.

    Each instance has a grid of its own (Esper: output every so long, within a context). A tick that passes several of
    its points outputs once. Where an instance ends at the tick, it has ended before.

    Attributes:
        ticks: The ticks.
        span: How far the points of a grid are apart, in ticks of time.
        times: The times of a crontab, which are the points of all instances instead.
        first: Whether the first delivery behind each point is output, as it comes, and all others are gone.
        current: Whether each combination has the last row that it had where it has none.
    """

    ticks: Node | None = None
    span: int = 0
    times: CrontabTimes | None = None
    first: bool = False
    current: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        assert self.ticks is not None  # noqa: S101  (it has them)
        return self.rows, self.instances, self.ticks

    def over(self, *inputs: Node) -> Node:
        rows, instances, ticks = inputs
        return replace(self, rows=rows, instances=instances, ticks=ticks)

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [*super().needs(wanted), (CLOCK, ASK)]

    def split(self, below: Sequence[Split]) -> Split:
        return super().split(below[:2]).seeing(None)

    def describe(self) -> str:
        which = "the first delivery" if self.first else super().describe().removeprefix("EndOutput of ")
        when = f"every {ClockSpan(0, self.span)}" if self.times is None else f"at {self.times}"
        return f"TimedOutput of {which}{' (or its last one)' * self.current}, {when}"


@dataclass(frozen=True, eq=False)
class InstanceAsks(_OverInstances):
    """Where the content of instances is asked for, as points with their numbers.

    Attributes:
        instances: The points of instances.
        ticks: The ticks.
        at_ends: Whether it is asked where an instance ends: as what is output there (`ROW` is `NEW`).
        at_asks: Whether it is where a tick asks: for each instance that lasts (`ROW` is `HELD`).
    """

    instances: Node
    ticks: Node
    at_ends: bool = False
    at_asks: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.instances, self.ticks

    def over(self, *inputs: Node) -> Node:
        instances, ticks = inputs
        return replace(self, instances=instances, ticks=ticks)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(INSTANCE, pa.int64(), nullable=False),
                pa.field(CLOCK, TIME_TYPE),
                pa.field(PLACE, pa.int64(), nullable=False),
                pa.field(ROW, pa.int8(), nullable=False),
                pa.field(ORDER, pa.int64(), nullable=False),
            ]
        )

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [(INSTANCE, ENDED), (CLOCK, ASK)]

    def split(self, below: Sequence[Split]) -> Split:
        return below[0].picked({INSTANCE: INSTANCE})

    def describe(self) -> str:
        where = " and ".join(word for word, there in (("ends", self.at_ends), ("asks", self.at_asks)) if there)
        return f"InstanceAsks at {where}"


def _of_instances(split: Split, number: str) -> Split:
    """Rows of instances: those that have the number of one are of one key, whatever task numbers them."""
    keys = split.keys
    if keys is None:  # The number of an instance says which event started it, and so all columns of that.
        keys = frozenset(key for each in split.columns.values() for key in each)
    return replace(split, columns={**split.columns, number: keys})


def check_unnumbered(plan: Node) -> None:
    """Refuse results that depend on the numbers of instances, which count those of all keys.

    Numbers tell rows of instances apart in any case: as `INSTANCE`, and copied to other columns of ours, which joins,
    patterns and sub-queries compare. Such names begin with ``@``; what a user names is a value.

    Raises:
        PlanError: An expression reads the number of an instance, and its value is a result or decides one.
    """
    numbers: dict[Node, frozenset[str]] = {}
    valued: dict[Node, frozenset[str]] = {}
    for each in plan.walk():
        below = frozenset(name for under in each.inputs for name in valued[under])
        known = frozenset({INSTANCE, *(name for under in each.inputs for name in numbers[under])})
        if isinstance(each, Project):
            copies, values = _passed_on(each, known, below)
        else:
            expressions = {name for one, schema in each.computed for name in column_names(one, schema.names)}
            if not (known | below).isdisjoint(expressions) or not below.isdisjoint(each.decisive):
                raise one_order(_NUMBERED)
            copies, values = known, below
        numbers[each] = copies.intersection(each.schema.names)
        valued[each] = values.intersection(each.schema.names)
    if valued[plan] or numbers[plan]:
        raise one_order(_NUMBERED)


_NUMBERED = "The number of an instance of a context, which counts those of all keys,"


def _passed_on(node: Project, numbers: frozenset[str], valued: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """(the columns of ours with numbers of instances, the other columns with values that depend on some)."""
    names = node.input.schema.names
    copies, values = {name for name in numbers if node.keeps(name)}, {name for name in valued if node.keeps(name)}
    for one in node.expressions:
        made = set(output_schema(node.input.schema, (one,), where="select", only_columns=True).names)
        copies -= made
        values -= made
        if (numbers | valued).isdisjoint(column_names(one, names)):
            continue
        copied_from = copied([one], names) or {}
        ours = {new for new, old in copied_from.items() if old in numbers and new.startswith("@")}
        copies |= ours
        values |= made - ours
    return frozenset(copies), frozenset(values)


def condition_columns(node: Instances) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the columns of instances that the condition of their ends reads, those of ends)."""
    if node.condition is None or node.ends_at is None:
        return (), ()
    read = column_names(node.condition, node.met.names)
    mine = tuple(name for name in read if name in node.started.names)
    return mine, tuple(name for name in read if name not in mine)
