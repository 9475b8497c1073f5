"""What deliveries become within instances: rows of those that last, their content, and what is output at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import narwhals as nw

from gpu_ops.core.turns import ASK, CLOCK, DUE, INSTANCE, MARK, NEW, ROW
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.arguments import clock_span, whole_number
from gpu_ops.epl.planning.known_contexts import ContextNames, KnownContext
from gpu_ops.epl.planning.looking_in_joins import LookingInJoin
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.planned import Ledger
from gpu_ops.epl.planning.rates import crontab_times
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.contexts import (
    EndOutput,
    InstanceAsks,
    InstanceContent,
    LeavesInTime,
    OfInstances,
    TimedOutput,
    until_of,
)
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.joins import Union, cast_to
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.plan.rates import Kind
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.placed_error import failure_at, unsupported


def context_of(statement: s.Statement, ledger: Ledger) -> KnownContext | None:
    """The context of a statement; None if it is in none.

    Raises:
        PlacedError: There is no such context.
    """
    if not statement.context:
        return None
    found = ledger.contexts.get(statement.context)
    if found is None:
        known = list(ledger.contexts)
        name = statement.context
        raise unknown(statement, f"There is no context {name!r}.", name, known, known, "Known")
    return found


class InstancePlan:
    """The part of a query's plan that its context asks for.

    Args:
        names: The context, and its properties that the query reads.
        ledger: What the query is planned over.
        query: The query.

    Raises:
        PlacedError: gpu_ops does not have it within contexts.
    """

    def __init__(self, names: ContextNames, ledger: Ledger, query: q.Query) -> None:
        self._names, self._ledger, self._query, self._in_time = names, ledger, query, False
        output = query.output
        if names.context is None:
            return
        types = [each.source for each in query.streams]
        self._in_time = any(isinstance(each, q.PatternSource) for each in types)
        read = {part.type_name for part in parts(types) if isinstance(part, EventFilter)}
        read_windows = any(name in ledger.windows and ledger.windows[name].context for name in read)
        if read_windows:
            read = set()  # their rows know their instances
        for part in parts(query) if names.context.before else ():
            if isinstance(part, EventFilter) and part.type_name in names.context.before:
                raise unsupported(part, "the events of a pattern before the one that starts an instance (@Inclusive)")
        keyed = [level for level in names.context.levels if level.entering]
        for level in keyed if read else ():
            if not read & level.entering.keys():
                said = f"The context {level.called!r} is of the events {', '.join(level.entering)}"
                hint = "Read one of them, or name this type in the context too."
                raise failure_at(query.stream, f"{said}, and the statement reads none of them.", hint)
        selection = "" if output is None else output.selection
        for what, there in (
            ("output after … within contexts", output is not None and output.after),
            (
                "output rates within contexts",
                output is not None and output.rate is not None and not (self.every or self._by_clock),
            ),
            (f"output {selection} at rates within contexts", self.every and selection in {"first", "snapshot"}),
            (
                "'having' beside output rates within contexts",
                (self.every or self._by_clock) and query.having is not None,
            ),
            (
                "output first when terminated",
                output is not None and selection == "first" and not (self._by_clock and output.terminated is None),
            ),
        ):
            if there:
                raise unsupported(query if output is None else output, what)
        if output is not None and output.terminated is not None:
            if output.terminated.condition is not None and (not self._least or output.selection == "snapshot"):
                raise unsupported(output.terminated, "conditions of output when terminated")
            if output.terminated.assignments:
                raise unsupported(output.terminated, "output … then set")

    def refuse_in_join(self, looking: LookingInJoin) -> None:
        """Refuse joins that there are not within contexts."""
        query = self._query
        if self._names.context is None:
            return
        if looking.first is not None:
            raise unsupported(looking.first, f"{looking.first.name} of joins within contexts")
        if len(query.joins) > 1 and any(join.kind in {"left", "right", "full"} for join in query.joins):
            raise unsupported(query.joins[0], "outer joins of three streams within contexts")

    @property
    def holds(self) -> bool:
        """Whether rows are held back, until so many have come or their instance ends."""
        return bool(self.every) or self._by_clock or self.at_ends in {"all", "last"}

    @property
    def _by_clock(self) -> bool:
        """Whether a rate outputs by the clock."""
        return self._span is not None or self._times is not None

    @property
    def _times(self) -> CrontabTimes | None:
        """The times of the crontab that a rate says; None where it says none."""
        output = self._query.output
        if self._names.context is None or output is None or not isinstance(output.rate, q.Crontab):
            return None
        return crontab_times(output.rate.fields, output.rate)

    @property
    def _span(self) -> ClockSpan | None:
        """After what time there is output; None where that is not what a rate says."""
        output = self._query.output
        if self._names.context is None or output is None or not isinstance(output.rate, e.Period):
            return None
        return clock_span(output.rate)

    @property
    def every(self) -> int:
        """After how many rows of an instance these are output; 0 where that is not what a rate says."""
        match None if self._query.output is None or self._names.context is None else self._query.output.rate:
            case q.EventCount(count=count):
                return whole_number(count, "A number of events")
            case q.OutputWhen(condition=condition, assignments=()):
                return _least(condition)
        return 0

    @property
    def _least(self) -> int:
        """How many new rows are held back where there is output at an end; 0 for any number."""
        output = self._query.output
        terminated = None if output is None else output.terminated
        return 0 if terminated is None or terminated.condition is None else _least(terminated.condition)

    @property
    def at_ends(self) -> str:
        """Which rows are output where an instance ends: ``"snapshot"``, ``"all"`` or ``"last"``; nothing for none."""
        output = self._query.output
        if self._names.context is None or output is None or output.terminated is None:
            return ""
        return output.selection or "all"

    def delivers(self, kind: Kind, *, content: bool, is_kept: bool) -> tuple[bool, bool, Node]:
        """What deliveries give: (new rows, the content where it is asked for, what they take for ticks).

        Args:
            kind: The kind of query.
            content: Whether content may be asked for.
            is_kept: Whether there is any: without a window rows are none, but groups are.
        """
        ticks = self._ledger.ticks
        context = self._names.context
        if context is None:
            return True, content, ticks
        if kind == "row for all":
            return self.at_ends not in {"snapshot", "last"}, False, ticks
        if self.at_ends != "snapshot":
            return True, content, ticks
        if not is_kept:
            return False, False, ticks
        ends = Filter(InstanceAsks(context.leaf, ticks, at_ends=True, at_asks=False), nw.lit(value=True))
        asks = Project(ends, (nw.col(CLOCK), nw.lit(value=True).alias(ASK)), keep=False)
        return False, True, Union((ticks, asks))

    def in_time(self, windows: StreamWindows, views: Sequence[q.View]) -> StreamWindows:
        """Windows from which no row leaves at the tick that ends its instance unless that fell due before.

        Not of batches, of which it would have to look at what enters too; and groups fall due each by itself.
        """
        if views[0].name.lower() in {"groupwin", "groupby"}:
            return windows
        context, rows = self._names.context, windows.memberships
        until = (
            ()
            if context is None
            else tuple(
                name
                for name in (until_of(level.called) for level in context.levels)
                if name in context.node.schema.names
            )
        )
        if context is None or windows.in_batches or DUE not in rows.schema.names:
            return windows
        self._in_time = True
        made = LeavesInTime(rows, context.leaf, until)
        return replace(windows, memberships=made, content=made if windows.content is rows else windows.content)

    def of_rows(
        self, node: Node, rows: Node, aggregates: Sequence[Delivered], kind: Kind, *, is_iterable: bool
    ) -> Node:
        """Deliveries of the instances that last.

        Args:
            node: The deliveries.
            rows: The rows in the windows, with the columns that aggregates read.
            aggregates: The aggregates.
            kind: The kind of query.
            is_iterable: Whether content may be asked for.
        """
        context = self._names.context
        if context is None:
            return node
        late = [name for name in self._names.columns if name in context.ending or name not in node.schema.names]
        if kind != "row for all":
            if self.at_ends == "snapshot":
                return InstanceContent(node, context.leaf, tuple(late))
            return OfInstances(node, context.leaf, tuple(late), in_time=self._in_time)
        instead = self.at_ends in {"snapshot", "last"}
        parts: list[Node] = [] if instead else [OfInstances(node, context.leaf, tuple(late), in_time=self._in_time)]
        ends = bool(self.at_ends)
        if ends or is_iterable:
            asks = InstanceAsks(context.leaf, self._ledger.ticks, at_ends=ends, at_asks=is_iterable)
            found = self._looked(asks, rows, aggregates)
            schema = node.schema
            known = {name: name for name in found.schema.names if name in schema.names}
            held: Node = OfInstances(cast_to(found, schema, known, ()), context.leaf, tuple(late), ending=ends)
            if not instead:
                # An instance without deliveries has its row as it is.
                mark = nw.when(nw.col(ROW) == NEW).then(nw.lit(MARK, nw.Int8())).otherwise(nw.col(ROW))
                held = extended(held, [mark.cast(nw.Int8()).alias(ROW)])
            parts.append(held)
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    def _looked(self, asks: Node, rows: Node, aggregates: Sequence[Delivered]) -> Node:
        """What aggregates are where content is asked for."""
        for each in aggregates:
            if each.life not in {"alive", "ever"} or (each.life == "ever" and self._query.stream.views):
                raise unsupported(self._query, "aggregates of all that ever came or left, within contexts")
        on = ((INSTANCE, INSTANCE),)
        return Lookup(rows, asks, tuple(Looked(each.aggregate, on) for each in aggregates))

    def ended(self, node: Node, kind: Kind, groups: Sequence[str], shows: Sequence[int]) -> Node:
        """What is output where instances end, of all that would have been delivered until then."""
        context, output = self._names.context, self._query.output
        if context is None or output is None or not self.holds:
            return node
        at_once = [self._query.items, self._query.having, self._query.order_by]
        clock = next((each for each in parts(at_once) if getattr(each, "name", "") == "current_timestamp"), None)
        if clock is not None:
            # Esper asks the clock as rows are output, or as they come, by kind.
            raise unsupported(clock, "current_timestamp of rows that wait for an output within contexts")
        if self._by_clock:
            return self._timed(node, kind, groups, shows)
        if (self.every or self._least) and kind not in {"un-aggregated", "row per event"}:
            # Rows of groups, and rows for all, are counted for events: each event makes one, and none goes.
            plain = tuple(shows) == (NEW,) and not self._query.joins and not self._query.stream.views
            plain &= isinstance(output.rate, q.EventCount) and not self._least
            if (
                not plain
                or kind not in {"row per group", "row for all"}
                or (kind == "row for all" and self.at_ends == "last")
            ):
                raise unsupported(output, f"output rates and conditions of {kind} within contexts")
        if kind == "row for all" and self.at_ends == "last":
            if len(shows) > 1 or shows[0] != NEW:
                raise unsupported(self._query, "old rows of output last when terminated")
            return node
        last = output.selection == "last" or (output.selection == "all" and kind == "row per group")
        if kind == "row for all" and self._query.having is not None:
            raise unsupported(self._query, "'having' beside output when terminated of one row for all")
        if last and kind == "row per group" and self._query.having is not None:
            raise unsupported(self._query, "'having' beside output when terminated of groups")
        by = tuple(groups) if kind in {"row per group", "aggregated and grouped"} else ()
        late = tuple(name for name in self._names.columns if name in context.ending)
        first_old = kind == "row per group"
        return EndOutput(
            node,
            context.leaf,
            late,
            by=by,
            last=last,
            first_old=first_old,
            shows=tuple(shows),
            every=self.every,
            inserts=isinstance(output.rate, q.OutputWhen),
            at_ends=output.terminated is not None,
            least=self._least,
            every_group=bool(self.every) and output.selection == "all" and kind == "row per group",
        )

    def _timed(self, node: Node, kind: Kind, groups: Sequence[str], shows: Sequence[int]) -> Node:
        """What is output every so long in each instance, or at the times of a crontab."""
        context, query = self._names.context, self._query
        output, span = query.output, self._span
        assert context is not None and output is not None  # noqa: S101, PT018  (there is a rate within it)
        said, is_windowed = output.selection, any(each.views for each in query.streams)
        grouped, for_all = kind == "row per group", kind == "row for all"
        whole = (for_all and said in {"last", "snapshot"}) or (grouped and said in {"all", "snapshot"})
        views = [view.name.lower() for each in query.streams for view in each.views]
        by_clock = self._in_time or any(name in _BY_CLOCK for name in views)
        for what, there in (
            ("output rates by months within contexts", span is not None and span.months),
            ("output rates of windows of time within contexts", by_clock),
            (f"output {said} of {kind} within contexts", said == "first" and kind not in _SINGLE and not for_all),
            (f"output {said} of {kind} within contexts", said == "snapshot" and not whole),
            (f"output {said} of {kind} within contexts", said == "all" and kind == "aggregated and grouped"),
            (f"output {said} of {kind} in windows within contexts", grouped and whole and (is_windowed or query.joins)),
            (f"old rows of {kind} beside output rates within contexts", (whole or for_all) and tuple(shows) != (NEW,)),
            (
                f"output rates of {kind} and when terminated",
                output.terminated is not None and (whole or for_all or output.terminated.condition is not None),
            ),
        ):
            if there:
                raise unsupported(output, what)
        late = tuple(name for name in self._names.columns if name in context.ending)
        return TimedOutput(
            node,
            context.leaf,
            late,
            by=tuple(groups) if kind in {"row per group", "aggregated and grouped"} else (),
            last=said == "last" or whole,
            first_old=grouped,
            shows=tuple(shows),
            at_ends=output.terminated is not None,
            every_group=whole,
            ticks=self._ledger.ticks,
            span=1 if span is None else span.ticks,
            times=self._times,
            first=said == "first",
            current=for_all and not whole and said != "first",
        )


_SINGLE = frozenset({"un-aggregated", "row per event"})
_BY_CLOCK = frozenset(
    {"time", "time_batch", "time_length_batch", "time_accum", "time_order", "timetolive", "firsttime"}
)
"""Views from which the clock takes rows: what falls due first would say which output has them."""


def _least(condition: e.Expression) -> int:
    """How many new rows a condition asks for, if it does that alone: `count_insert > 1` asks for 2; else 0."""
    match condition:
        case e.Operation(
            operator=(">" | ">=") as operator, left=e.Name(name="count_insert"), right=e.Constant(value=count)
        ):
            if isinstance(count, int) and not isinstance(count, bool):
                return max(count + (operator == ">"), 0)
    return 0
