"""Patterns within contexts: each instance has one of its own, which begins as it starts and is over as it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, ENDED, INSTANCE, PLACE
from gpu_ops.epl.planning.known_contexts import ContextNames, KnownContext
from gpu_ops.plan import patterns as tree
from gpu_ops.plan.contexts import until_of
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.nodes import Filter, Node, Project, extended, selected
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.plan.pattern_streams import PatternColumns, PatternStreams, SetTag
from gpu_ops.plan.terms import renamed
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.scope import BoundStream
from gpu_ops.texts.placed_error import unsupported

STARTED = "@context"
"""The tag of the point at which an instance starts."""

_NUMBER = "@number"
"""The column of points with the number of their instance."""


@dataclass
class PatternInstances:
    """What a context makes of a pattern: one that begins at each start of an instance, about the events within it.

    The starts are the first stream: at one place the clock moves, then instances start, then events come.

    Attributes:
        context: The context.
        names: Its properties that the statement reads.
        streams: The streams of the pattern.
        starts: The number of the stream of starts.
        spans: The columns of starts with the milliseconds until the clock ends an instance.
    """

    context: KnownContext
    names: ContextNames
    streams: PatternStreams
    starts: int
    spans: tuple[str, ...]

    @classmethod
    def of(cls, names: ContextNames, streams: PatternStreams) -> PatternInstances | None:
        """Those of a statement; None if it is in no context."""
        context = names.context
        if context is None:
            return None
        known = context.leaf.schema
        since = nw.col(context.node.since)
        columns, spans = [nw.col(name) for name in names.early], list[str]()
        for level in context.levels:
            until = until_of(level.called)
            if until in known.names:
                spans.append(f"@lasts {len(spans)}")
                columns.append((nw.col(until) - since).dt.total_milliseconds().alias(spans[-1]))
        points = _points(context, columns, ended=False)
        schema = pa.schema([each for each in points.schema if each.name not in {CLOCK, PLACE}])
        number = streams.stream(points, schema)
        streams.tags[STARTED] = SetTag(number)
        return cls(context, names, streams, number, tuple(spans))

    def tags(self, streams: PatternStreams) -> dict[str, SetTag]:
        """The tags that are set as the pattern of an instance begins."""
        del streams
        return {STARTED: SetTag(self.starts)}

    def within(self, rows: Node, type_name: str) -> Node:
        """The arrivals of a type within instances."""
        return self.names.within(rows, type_name)

    def same(self, columns: PatternColumns, own: str = INSTANCE) -> list[nw.Expr]:
        """Whether the event that comes is within the instance of the pattern."""
        columns.own(pa.field(own, pa.int64()))
        return [nw.col(own) == nw.col(columns.of_tag(STARTED, _NUMBER))]

    def of_start(self, node: e.Name | e.Member, columns: PatternColumns) -> Bound | None:
        """Nothing: what started an instance are properties of the context."""
        del node, columns
        return None

    def property(self, node: e.ContextProperty, columns: PatternColumns) -> Bound | None:
        """A property of the context, as one of the point at which the instance started.

        Raises:
            PlacedError: There is no such property, or it is not known before the instance ends.
        """
        bound = self.names.special(node)
        if bound is None:
            return None
        used = column_names(bound.value, self.context.node.schema.names)
        if set(used) & self.context.ending:
            raise unsupported(node, "properties of what ends an instance in patterns")
        called = {name: _NUMBER if name == INSTANCE else name for name in used}
        places = {name: columns.of_tag(STARTED, to) for name, to in called.items()}
        return Bound(renamed(bound.value, places), bound.type, bound.text)

    def each(self, pattern: tree.PatternPart) -> tuple[tree.PatternPart, tuple[int, ...]]:
        """(a pattern for each instance, the streams of the points of these)."""
        ends = self.streams.stream(_points(self.context, [], ended=True), pa.schema([(_NUMBER, pa.int64())]))
        tags = self.tags(self.streams)
        columns = self.streams.columns(ends, tags)
        (same,) = self.same(columns, _NUMBER)
        end = self.streams.atom(ends, "", same, columns)
        whole: tree.PatternPart = tree.AllOf((pattern, tree.NoMatch(end)))
        for name in self.spans:
            columns = self.streams.columns(None, tags)
            span = self.streams.program(nw.col(columns.of_tag(STARTED, name)), columns)
            whole = tree.WithinGuard(whole, tree.ComputedSpan(span))
        start = tree.EventAtom(self.starts, STARTED)
        return tree.FollowedBy((tree.EveryMatch(start), whole), (None,)), (self.starts, ends)

    def matches(self, pattern: Pattern) -> Node:
        """The matches, with the number of their instance and the properties of the context."""
        called = {f"{STARTED}.{_NUMBER}": INSTANCE} | {f"{STARTED}.{name}": name for name in self.names.early}
        made = extended(pattern, [nw.col(name).alias(to) for name, to in called.items()])
        return selected(made, [name for name in made.schema.names if not name.startswith(STARTED)])


@dataclass
class StartedPoints:
    """A pattern that begins behind each point at which an instance starts, and matches once where it ends.

    The points are the last stream: an event that starts an instance is none of the pattern of its end.

    Attributes:
        points: The points, with the columns of what started the instance.
        known: What the events of that are called, and their columns.
        number: The column with what tells them apart.
    """

    points: Node
    known: Sequence[BoundStream]
    number: str
    starts: int = -1

    def tags(self, streams: PatternStreams) -> dict[str, SetTag]:
        """The tags that are set as the pattern begins."""
        schema = pa.schema([each for each in self.points.schema if each.name not in {CLOCK, PLACE}])
        self.starts = streams.stream(self.points, schema)
        streams.tags[STARTED] = SetTag(self.starts)
        return {STARTED: SetTag(self.starts)}

    def within(self, rows: Node, type_name: str) -> Node:
        """All arrivals of a type."""
        del type_name
        return rows

    def same(self, columns: PatternColumns) -> list[nw.Expr]:
        """No condition."""
        del columns
        return []

    def property(self, node: e.ContextProperty, columns: PatternColumns) -> Bound | None:
        """There is none: the statement is in no context."""
        del node, columns
        return None

    def of_start(self, node: e.Name | e.Member, columns: PatternColumns) -> Bound | None:
        """A property of an event that started the instance: `s0.id`, or `starter.s0.id`."""
        if not isinstance(node, e.Member):
            return None
        for each in self.known:
            if each.alias and each.alias == str(node.of) and node.name in each.columns:
                name = each.columns[node.name]
                return Bound(nw.col(columns.of_tag(STARTED, name)), each.schema.field(node.name).type, node.name)
        return None

    def each(self, pattern: tree.PatternPart) -> tuple[tree.PatternPart, tuple[int, ...]]:
        """(a pattern for each point, the stream of these)."""
        start = tree.EventAtom(self.starts, STARTED)
        return tree.FollowedBy((tree.EveryMatch(start), pattern), (None,)), (self.starts,)

    def matches(self, pattern: Pattern) -> Node:
        """The matches, with what tells their points apart."""
        made = extended(pattern, [nw.col(f"{STARTED}.{self.number}").alias(self.number)])
        return selected(made, [name for name in made.schema.names if not name.startswith(STARTED)])


def _points(context: KnownContext, columns: list[nw.Expr], *, ended: bool) -> Node:
    """Where instances start, or where they end."""
    which = nw.col(ENDED) if ended else ~nw.col(ENDED)
    own = (nw.col(INSTANCE).alias(_NUMBER), *columns, nw.col(INSTANCE).alias(PLACE))
    return Project(Filter(context.leaf, which), (*own, nw.col(context.node.since).alias(CLOCK)), keep=False)
