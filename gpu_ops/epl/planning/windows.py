"""Esper's views as data windows on turns."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import CLOCK, DUE, PLACE
from gpu_ops.epl.planning.arguments import MILLISECOND, clock_span, milliseconds, whole_number
from gpu_ops.epl.planning.known_contexts import reads_context
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.window_terms import WindowScope
from gpu_ops.epl.queries import Retain, View
from gpu_ops.plan.clock_windows import (
    Accumulated,
    ClockBatches,
    ClockedWindow,
    ClockLengthBatches,
    ClockSpan,
    FirstClock,
    StampBatches,
    StampSpan,
    UntilStamp,
    UntilTick,
)
from gpu_ops.plan.data_windows import DataWindow, First, FirstSpan, Last, Output, Sorted
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Node, extended, selected
from gpu_ops.plan.window_conditions import NEWEST, OLDEST, Until, While, window_condition
from gpu_ops.plan.window_kinds import DataWindowKind
from gpu_ops.plan.window_sets import SetPart, UntilTime, WindowSet
from gpu_ops.texts.binding.expressions import Bound, bind, bind_condition, bind_period, constant
from gpu_ops.texts.binding.scope import BindingScope
from gpu_ops.texts.expressions import Argument, Constant, Expression, Name, Operation, SortKey, Syntax
from gpu_ops.texts.placed_error import failure_at, unsupported

_DERIVED = frozenset({"size", "uni", "linest", "correl", "weighted_avg", "merge"})
_NAMESPACES = {"": "", "win": "win", "std": "std", "ext": "ext", "stat": "stat"}
_OLD = {"groupby": "groupwin"}


@dataclass(frozen=True)
class StreamWindows:
    """The windows of a stream, as nodes of a plan.

    Attributes:
        memberships: The rows while they are in: places of enter and leave. Besides the columns of the arrivals, these
            have ``@due`` if a clock drives the window, and the columns of `order`.
        content: The rows that an iterator shows, while it does; of batches those that gather, else `memberships`.
        posts: Points at places at which there is a delivery even without rows (FORCE_UPDATE); None for no such places.
        in_batches: Whether rows enter together, in batches.
        order: Pairs (column, whether descending) in which the window keeps its rows; without any, as they came.
        in_other_order: Whether rows may enter in another order than they came: batches of several groups.
    """

    memberships: Node
    content: Node
    posts: Node | None = None
    in_batches: bool = False
    order: tuple[tuple[str, bool], ...] = ()
    in_other_order: bool = False


def windowed(
    arrivals: Node,
    ticks: Node,
    views: Sequence[View],
    retain: Retain,
    scope: BindingScope,
    *,
    deployed: int = 0,
    within: tuple[str, ...] = (),
) -> StreamWindows:
    """The data windows behind a stream's `#`.

    Args:
        arrivals: The stream on turns.
        ticks: The ticks.
        views: The views, at least one.
        retain: ``"union"``, or an intersection.
        scope: What names stand for in expressions of the stream's events.
        deployed: What the clock showed when the statement was deployed, in ticks.
        within: Columns of whose values each combination has windows of its own.

    Raises:
        PlacedError: There is no such view, or not with these arguments.
    """
    stream = _WindowPlanner(arrivals, ticks, scope, deployed)
    rest = list(views)
    groups = within
    while rest and _name(rest[0]) == "groupwin":
        groups += stream.groups(rest.pop(0))
    for view in rest:
        if _name(view) == "groupwin":
            raise failure_at(view, "groupwin stands before the windows that it groups.", "Write it first.")
    if not rest:
        raise failure_at(views[0], "groupwin groups the windows behind it.", "Write one: #groupwin(key)#length(2).")
    for view in rest if within else ():
        if _name(view) == "firsttime" or any("START_EAGER" in str(each).upper() for each in view.arguments):
            raise unsupported(view, f"{view.name} from the start of an instance")
    stream.grouped, stream.several = bool(groups or arrivals.key), len(rest) > 1
    made = [stream.window(view, at) for at, view in enumerate(rest)]
    return stream.plan(rest, made, groups, retain)


def _name(view: View) -> str:
    name = view.name.lower()
    return _OLD.get(name, name)


@dataclass
class _ViewKind:
    """A view: its kind of window, and what else the plan needs to know of it.

    Attributes:
        kind: The kind; `UntilTime` with a column for rows that leave at a time known as they come.
        within: Columns of whose values each combination has a window.
        order: As in `StreamWindows`.
        batches: Whether it makes batches.
        posts: Whether it posts without rows.
        due: For rows that leave at a time known as they come: the column that the time is counted from, and the span.
    """

    kind: DataWindowKind | UntilTime
    within: tuple[str, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    batches: bool = False
    posts: bool = False
    due: tuple[str, ClockSpan | None] = (CLOCK, None)


@dataclass
class _WindowPlanner:
    """A stream, and the columns that its windows need besides.

    Attributes:
        hidden: These columns, by their names.
        grouped: Whether there is a window for each group.
        several: Whether there are several windows.
    """

    arrivals: Node
    ticks: Node
    scope: BindingScope
    deployed: int
    hidden: dict[str, nw.Expr] = field(default_factory=dict)
    grouped: bool = False
    several: bool = False

    # Columns

    def column(self, value: nw.Expr) -> str:
        """The name of a column with the values of an expression."""
        bare = bare_column(value)
        if bare is not None and bare in self.arrivals.schema.names:
            return bare
        name = f"@window {len(self.hidden)}"
        self.hidden[name] = value
        return name

    def columns(self, view: View, arguments: Sequence[Argument]) -> tuple[str, ...]:
        """The columns of expressions."""
        return tuple(self.column(self.bound(view, each).value) for each in arguments)

    def bound(self, view: View, node: Argument) -> Bound:
        """An expression of single events."""
        return bind(_expression(view, node), self.scope)

    def groups(self, view: View) -> tuple[str, ...]:
        """The columns of groupwin."""
        return self.columns(view, _at_least(view, 1))

    def stamp(self, view: View, node: Argument) -> nw.Expr:
        """An expression of milliseconds as a time of the clock."""
        made = self.bound(view, node)
        if not pa.types.is_integer(made.type):
            raise failure_at(node, f"{view.name} needs milliseconds, and {node} is {made.type}.", "Give a long.")
        return (made.value.cast(nw.Int64) * MILLISECOND).cast(nw.Datetime("us", "UTC"))

    # Views

    def window(self, view: View, at: int) -> _ViewKind:
        """A view.

        Raises:
            PlacedError: There is no such view, or not with these arguments.
        """
        name = _name(view)
        if view.namespace.lower() not in _NAMESPACES:
            raise failure_at(
                view, f"There is no namespace {view.namespace!r} of views.", "Write: win, std, ext or none."
            )
        if name in _DERIVED:
            raise unsupported(view, f"view {view.name} here")
        make = _VIEWS.get(name)
        if make is None:
            near = difflib.get_close_matches(name, [*_VIEWS, "groupwin", *_DERIVED], 1)
            raise failure_at(
                view, f"There is no view {view.name!r}.", f"Did you mean {near[0]!r}?" if near else _known()
            )
        return make(self, view)

    # The plan

    def plan(
        self, views: Sequence[View], made: Sequence[_ViewKind], groups: tuple[str, ...], retain: Retain
    ) -> StreamWindows:
        """The plan of some windows over the stream."""
        for view, each in zip(views, made, strict=True):
            if each.posts and self.grouped:
                raise unsupported(view, "FORCE_UPDATE behind groupwin")
        if len(made) == 1:
            (one,) = made
            return self._nodes(one, one.kind, (*groups, *one.within), one.order)
        batches = [(view, each) for view, each in zip(views, made, strict=True) if each.batches]
        if len(batches) > 1:
            raise failure_at(batches[1][0], "Two windows make batches.", "Leave one of them out.")
        for view, each in zip(views, made, strict=True):
            if each.kind.as_part is None:
                raise unsupported(view, f"{view.name} together with other windows")
        timers = [view for view, each in zip(views, made, strict=True) if each.kind.as_part and each.kind.as_part.timer]
        if len(timers) > 1:
            raise unsupported(timers[1], f"{timers[1].name} together with {timers[0].name}")
        parts = tuple(SetPart(each.kind, each.within) for each in made)
        whole = WindowSet("any" if retain == "union" else "all", parts, "shown")
        together = _ViewKind(
            whole,
            batches=bool(batches) and retain != "union",
            posts=any(each.posts for each in made) and retain != "union",
        )
        return self._nodes(together, whole, groups, ())

    def _nodes(
        self,
        made: _ViewKind,
        kind: DataWindowKind | UntilTime,
        within: tuple[str, ...],
        order: tuple[tuple[str, bool], ...],
    ) -> StreamWindows:
        names = [*self.arrivals.schema.names, *(name for name, _ in order if name in self.hidden)]
        below = extended(self.arrivals, [value.alias(name) for name, value in self.hidden.items()])
        if isinstance(kind, UntilTime):
            # Each row leaves by itself: groups do not matter.
            rows = selected(UntilTick(below, self.ticks, *made.due), [*names, DUE])
            return StreamWindows(rows, rows, order=order)

        if isinstance(kind, StampSpan) and not within and not self.arrivals.key:
            rows = selected(UntilStamp(below, kind.stamp, kind.span), names)
            return StreamWindows(rows, rows, order=order)

        def rows_of(output: Output) -> Node:
            if not _by_clock(kind):
                return selected(DataWindow(below, kind, within, (PLACE,), output), names)
            window = ClockedWindow(below, kind, within, (PLACE,), output, ticks=self.ticks)
            return window if output == "posts" else selected(window, [*names, *window.dues])

        rows = rows_of("alive")
        content = rows_of("gathering") if made.batches else rows
        posts = rows_of("posts") if made.posts else None
        return StreamWindows(rows, content, posts, made.batches, order, made.batches and bool(within))


def _by_clock(kind: DataWindowKind | UntilTime) -> bool:
    if isinstance(kind, WindowSet):
        return any(isinstance(part.window, UntilTime) or _by_clock(part.window) for part in kind.parts)
    return bool(getattr(kind, "by_clock", False))


# Arguments


def _expression(view: View, node: Argument) -> Expression:
    if isinstance(node, SortKey) and not node.descending:
        return node.expression
    if not isinstance(node, Expression):
        raise failure_at(node, f"{view.name} takes no {node}.", "Give an expression.")
    return node


def _arguments(view: View, least: int, most: int | None = None) -> tuple[Argument, ...]:
    most = least if most is None else most
    if not least <= len(view.arguments) <= most:
        count = str(least) if most == least else f"{least} to {most}"
        raise failure_at(
            view,
            f"{view.name} takes {'no argument' if not most else f'{count} argument' + 's' * (most > 1)}, "
            f"and there {'is' if len(view.arguments) == 1 else 'are'} {len(view.arguments)}.",
            f"Write: {_USES[_name(view)]}." if _name(view) in _USES else "",
        )
    return view.arguments


def _at_least(view: View, least: int) -> tuple[Argument, ...]:
    return _arguments(view, least, 1_000)


_USES = {
    "length": "#length(5)",
    "length_batch": "#length_batch(5)",
    "time": "#time(10 sec)",
    "time_batch": '#time_batch(10 sec), or #time_batch(10 sec, 0, "FORCE_UPDATE, START_EAGER")',
    "time_length_batch": '#time_length_batch(10 sec, 5), or #time_length_batch(10 sec, 5, "FORCE_UPDATE, START_EAGER")',
    "time_accum": "#time_accum(10 sec)",
    "ext_timed": "#ext_timed(timestamp, 10 sec)",
    "ext_timed_batch": "#ext_timed_batch(timestamp, 10 sec), or #ext_timed_batch(timestamp, 10 sec, 0)",
    "time_order": "#time_order(timestamp, 10 sec)",
    "timetolive": "#timetolive(timestamp)",
    "firsttime": "#firsttime(10 sec)",
    "firstlength": "#firstlength(5)",
    "unique": "#unique(key)",
    "firstunique": "#firstunique(key)",
    "groupwin": "#groupwin(key)#length(2)",
    "sort": "#sort(5, price desc)",
    "rank": "#rank(key, 5, price desc)",
    "expr": "#expr(current_count <= 5)",
    "expr_batch": "#expr_batch(current_count >= 5)",
}


def _known() -> str:
    return f"Views: {', '.join(sorted([*_VIEWS, 'groupwin']))}."


def _flags(view: View, node: Syntax) -> tuple[bool, bool]:
    """(FORCE_UPDATE, START_EAGER)."""
    value = constant(node)
    words = {word.strip().upper() for word in str(value).split(",")}
    unknown = words - {"FORCE_UPDATE", "START_EAGER"}
    if not isinstance(value, str) or unknown:
        raise failure_at(node, f"{view.name} has no flag {node}.", 'Write "FORCE_UPDATE, START_EAGER" or one of them.')
    return "FORCE_UPDATE" in words, "START_EAGER" in words


def _batch_span(node: Syntax) -> ClockSpan:
    span = clock_span(node)
    if span.months and span.ticks:
        raise failure_at(
            node, "A batch lasts months, or days and less.", "Give one of them.", construct="mixed batches"
        )
    return span


# The views


def _of_context(view: View, node: Argument) -> bool:
    """Whether an argument is one of the context: it is the same for all rows of an instance.

    Raises:
        PlacedError: It reads an event too.
    """
    if not reads_context(node):
        return False
    for each in parts(node):
        if isinstance(each, Name):
            said = f"What {view.name} takes is known before any event, and {each} is of one."
            raise failure_at(each, said, "Read properties of the context alone.")
    return True


def _counted(view: View, node: Argument, operator: str) -> View:
    """The view that has so many rows, as a condition on their number."""
    condition = Operation(operator, Name("current_count", place=node.place), _expression(view, node), place=node.place)
    return replace(view, arguments=(condition,))


def _length(stream: _WindowPlanner, view: View) -> _ViewKind:
    if _of_context(view, (node := _arguments(view, 1)[0])):
        return _expr(stream, _counted(view, node, "<="))
    return _ViewKind(Last(whole_number(_arguments(view, 1)[0], "The length of a window")))


def _length_batch(stream: _WindowPlanner, view: View) -> _ViewKind:
    if _of_context(view, (node := _arguments(view, 1)[0])):
        return _expr_batch(stream, _counted(view, node, ">="))
    count = whole_number(_arguments(view, 1)[0], "The length of a batch")
    return _ViewKind(Last(count, count, partial=False), batches=True)


def _last_event(stream: _WindowPlanner, view: View) -> _ViewKind:
    _arguments(view, 0)
    return _ViewKind(Last(1))


def _first_length(stream: _WindowPlanner, view: View) -> _ViewKind:
    return _ViewKind(First(whole_number(_arguments(view, 1)[0], "The length of a window")))


def _first_event(stream: _WindowPlanner, view: View) -> _ViewKind:
    _arguments(view, 0)
    return _ViewKind(First(1))


def _keep_all(stream: _WindowPlanner, view: View) -> _ViewKind:
    _arguments(view, 0)
    return _ViewKind(FirstSpan(MAX_TIME - MIN_TIME + TICK, MIN_TIME))


def _unique(stream: _WindowPlanner, view: View) -> _ViewKind:
    return _ViewKind(Last(1), stream.columns(view, _at_least(view, 1)))


def _first_unique(stream: _WindowPlanner, view: View) -> _ViewKind:
    return _ViewKind(First(1), stream.columns(view, _at_least(view, 1)))


def _sort_keys(stream: _WindowPlanner, view: View, nodes: Sequence[Argument]) -> tuple[tuple[str, bool], ...]:
    keys = []
    for node in nodes:
        descending = isinstance(node, SortKey) and node.descending
        expression = node.expression if isinstance(node, SortKey) else node
        if pa.types.is_nested(stream.bound(view, expression).type):
            raise unsupported(node, f"{view.name} by arrays or records")
        (name,) = stream.columns(view, [expression])
        keys.append((name, descending))
    return tuple(keys)


def _sort(stream: _WindowPlanner, view: View) -> _ViewKind:
    count, *keys = _at_least(view, 2)
    order = _sort_keys(stream, view, keys)
    return _ViewKind(Sorted(whole_number(count, "The size of a sorted window"), order, refused="shown"), order=order)


def _rank(stream: _WindowPlanner, view: View) -> _ViewKind:
    arguments = _at_least(view, 3)
    at = next((at for at, each in enumerate(arguments) if isinstance(each, Constant)), 0)
    if not at or at == len(arguments) - 1:
        raise failure_at(view, "rank takes keys, a size, and what to sort by.", f"Write: {_USES['rank']}.")
    unique = stream.columns(view, arguments[:at])
    order = _sort_keys(stream, view, arguments[at + 1 :])
    count = whole_number(arguments[at], "The size of a ranked window")
    return _ViewKind(Sorted(count, order, unique, refused="shown"), order=order)


def _condition(stream: _WindowPlanner, view: View, alone: str) -> nw.Expr:
    node = _expression(view, view.arguments[0])
    if isinstance(node, Constant) and isinstance(node.value, bool):
        return nw.col("window count") > (0 if node.value else MAX_TIME)
    return bind_condition(node, WindowScope(stream.scope, stream.column, alone), f"'{view.name}'").value


def _expr(stream: _WindowPlanner, view: View) -> _ViewKind:
    _arguments(view, 1)
    return _ViewKind(While(_checked(stream, view, _condition(stream, view, OLDEST)), refused="shown"))


def _expr_batch(stream: _WindowPlanner, view: View) -> _ViewKind:
    arguments = _arguments(view, 1, 2)
    included = constant(arguments[1]) if len(arguments) > 1 else True
    if not isinstance(included, bool):
        raise failure_at(arguments[1], "Whether the last event is part of the batch is true or false.")
    return _ViewKind(Until(_checked(stream, view, _condition(stream, view, NEWEST)), included), batches=True)


def _checked(stream: _WindowPlanner, view: View, condition: nw.Expr) -> nw.Expr:
    below = extended(stream.arrivals, [value.alias(name) for name, value in stream.hidden.items()])
    return window_condition(below.schema, condition, where=view.name)


def _until(stream: _WindowPlanner, since: nw.Expr, span: ClockSpan | None = None) -> _ViewKind:
    name = stream.column(since)
    due = nw.col(name)
    if span is not None:
        due = due.dt.offset_by(f"{span.months}mo") if span.months else due
        due = due + nw.lit(span.length) if span.ticks else due
    # Together with other windows the time is a column of its own.
    kind = UntilTime(column=stream.column(due) if stream.several else name)
    return _ViewKind(kind, due=(name, span))


def _time(stream: _WindowPlanner, view: View) -> _ViewKind:
    if _of_context(view, (node := _arguments(view, 1)[0])):
        ticks = bind_period(node, stream.scope).value * MILLISECOND
        return _until(stream, (nw.col(CLOCK).cast(nw.Int64) + ticks).cast(nw.Datetime("us", "UTC")))
    return _until(stream, nw.col(CLOCK), clock_span(node))


def _time_to_live(stream: _WindowPlanner, view: View) -> _ViewKind:
    made = _until(stream, stream.stamp(view, _arguments(view, 1)[0]))
    return replace(made, order=((made.due[0], False),))


def _time_order(stream: _WindowPlanner, view: View) -> _ViewKind:
    stamp, span = _arguments(view, 2)
    made = _until(stream, stream.stamp(view, stamp), clock_span(span))
    return replace(made, order=((made.due[0], False),))


def _first_time(stream: _WindowPlanner, view: View) -> _ViewKind:
    return _ViewKind(FirstClock(clock_span(_arguments(view, 1)[0]), None if stream.grouped else stream.deployed))


def _accumulated(stream: _WindowPlanner, view: View) -> _ViewKind:
    return _ViewKind(Accumulated(clock_span(_arguments(view, 1)[0])))


def _time_batch(stream: _WindowPlanner, view: View) -> _ViewKind:
    span, *more = _arguments(view, 1, 3)
    align, runs, eager = None, False, False
    for at, each in enumerate(more):
        if at == 0 and not isinstance(constant(each), str):
            align = milliseconds(each, "The reference point of a batch")
        else:
            runs, eager = _flags(view, each)
    eager = eager and not stream.grouped  # a group's window is there from its first row on
    if eager and align is None:
        align = stream.deployed
    kind = ClockBatches(_batch_span(span), align, stream.deployed if eager and runs else None, runs)
    return _ViewKind(kind, batches=True, posts=runs)


def _time_length_batch(stream: _WindowPlanner, view: View) -> _ViewKind:
    span, count, *more = _arguments(view, 2, 3)
    runs, eager = _flags(view, more[0]) if more else (False, False)
    since = stream.deployed if eager and not stream.grouped else None
    kind = ClockLengthBatches(clock_span(span), whole_number(count, "The length of a batch"), since, runs or eager)
    return _ViewKind(kind, batches=True, posts=runs or eager)


def _ext_timed(stream: _WindowPlanner, view: View) -> _ViewKind:
    stamp, span = _arguments(view, 2)
    return _ViewKind(StampSpan(clock_span(span), stream.column(stream.stamp(view, stamp))))


def _ext_timed_batch(stream: _WindowPlanner, view: View) -> _ViewKind:
    stamp, span, *more = _arguments(view, 2, 3)
    align = milliseconds(more[0], "The reference point of a batch") if more else None
    return _ViewKind(StampBatches(_batch_span(span), stream.column(stream.stamp(view, stamp)), align), batches=True)


_VIEWS: Mapping[str, Callable[[_WindowPlanner, View], _ViewKind]] = {
    "keepall": _keep_all,
    "length": _length,
    "length_batch": _length_batch,
    "lastevent": _last_event,
    "firstlength": _first_length,
    "firstevent": _first_event,
    "firsttime": _first_time,
    "unique": _unique,
    "firstunique": _first_unique,
    "sort": _sort,
    "rank": _rank,
    "expr": _expr,
    "expr_batch": _expr_batch,
    "time": _time,
    "timetolive": _time_to_live,
    "time_order": _time_order,
    "time_accum": _accumulated,
    "time_batch": _time_batch,
    "time_length_batch": _time_length_batch,
    "ext_timed": _ext_timed,
    "ext_timed_batch": _ext_timed_batch,
}
"""What each view is, by its name without a namespace."""
