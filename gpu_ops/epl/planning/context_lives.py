"""Contexts of one instance at a time whose life is a pattern: what starts it, and then what ends it.

A start and an end that are patterns of several events begin anew with each other: the pattern of the start as an
instance has ended, and that of the end as one has started. So `every (start -> end)` matches where an instance ends,
and the start matches behind each of these points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.epl.planning.context_patterns import by_clock, matches_of, single_event, single_events
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.pattern_instances import StartedPoints
from gpu_ops.epl.planning.patterns import PatternPlanner
from gpu_ops.epl.planning.planned import Ledger
from gpu_ops.epl.planning.subqueries import Subqueries
from gpu_ops.epl.planning.variables import VariableColumns
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.texts import expressions as e
from gpu_ops.texts.placed_error import unsupported

_NEVER = e.Constant(10**11, "long")
"""So many seconds are longer than all years that there are."""
_ENDS = "@ends"
"""What the points at which instances end are called, where they are events of a pattern."""


@dataclass(frozen=True)
class ContextLife:
    """Where the instances of a context start and end.

    Attributes:
        starts: The points at which one starts, with its tags as records.
        ends: The same of those at which it ends.
        started: The tags of starts, with their types.
        ended: Those of ends.
        reads: The types of events that it reads.
    """

    starts: Node
    ends: Node
    started: dict[str, pa.DataType]
    ended: dict[str, pa.DataType]
    reads: list[str]


def is_life(kind: s.StartEndContext) -> bool:
    """Whether a start or an end is a pattern of several events, which begins anew with each instance."""
    return any(is_of_several(each) for each in (kind.start, kind.end))


def ends_behind(
    condition: s.ContextCondition, points: StartedPoints, ledger: Ledger
) -> tuple[Node, dict[str, pa.DataType], list[str]]:
    """Where a pattern ends instances of which each has one of its own.

    Returns:
        (points with the tags as records and what tells instances apart, the types of the tags, the types of events).

    Raises:
        PlacedError: The pattern cannot be planned, or gpu_ops does not end instances by it.
    """
    pattern, outside = _once(_pattern(condition)), ContextNames(None, None)
    started = {each.alias.partition(".")[0] for each in points.known if each.alias}
    if both := started & {*_tags(pattern)}:
        raise unsupported(condition, f"a start and an end that both call an event {min(both)!r}")
    planner = PatternPlanner(
        ledger, Subqueries(ledger, outside), VariableColumns(ledger.variables, ()), outside, behind=points
    )
    read = [part for part in parts(pattern) if isinstance(part, p.EventFilter)]
    node, ends = planner.plan(q.PatternSource(pattern, place=pattern.place), first=read)
    tags = {each.name: ends.schema.field(each.name).type for each in node.tags if each.name in ends.schema.names}
    return ends, single_events(tags, condition), planner.reads


def is_of_several(condition: s.Condition | None) -> bool:
    """Whether a condition is a pattern of several events."""
    condition = by_clock(condition)
    is_pattern = isinstance(condition, s.ContextCondition) and isinstance(condition.source, q.PatternSource)
    return is_pattern and single_event(condition.source) is None  # type: ignore[union-attr]


def life_of(kind: s.StartEndContext, ledger: Ledger) -> ContextLife:
    """The life of a context's instances.

    Raises:
        PlacedError: The patterns cannot be planned, or gpu_ops does not start or end instances by them.
    """
    start, end = _pattern(kind.start), _pattern(kind.end)
    started, ended = _tags(start), _tags(end)
    if both := [tag for tag in started if tag in ended]:
        raise unsupported(kind, f"a start and an end that both call an event {both[0]!r}")
    alias = getattr(kind.start, "alias", "")
    if alias and alias not in started:
        end = _without(end, alias)
    # A pattern that can match no more waits for ever: nothing begins anew behind it.
    begin, over = (p.PatternLogical("or", (_once(each), _never(each)), place=each.place) for each in (start, end))
    lives = p.PatternEvery(_followed(begin, over), place=start.place)
    ends, tags, reads = matches_of(q.PatternSource(lives, place=start.place), ledger, remembers=True)
    # The start waits anew from where the context begins, and behind each event that ends an instance.
    read = [part for part in parts(start) if isinstance(part, p.EventFilter)]
    points = Project(ends, (nw.col(CLOCK), nw.col(PLACE)), keep=False)
    ended_by = replace(
        ledger,
        types={**ledger.types, _ENDS: pa.schema([])},
        arrivals={**ledger.arrivals, _ENDS: points},
    )
    never = p.PatternNot(_never(start), place=start.place)
    again = p.PatternEvery(p.PatternEvents(p.EventFilter(_ENDS)), place=start.place)
    begins = _followed(p.PatternLogical("or", (never, again), place=start.place), _once(start))
    starts, own, _ = matches_of(q.PatternSource(begins, place=start.place), ended_by, remembers=True, first=read)
    return ContextLife(
        replace(starts, unseen=tuple(range(len(starts.streams)))),
        ends,
        {tag: own[tag] for tag in started if tag in own},
        {tag: tags[tag] for tag in ended if tag in tags},
        reads,
    )


def _pattern(condition: s.Condition | None) -> p.PatternTerm:
    """A condition as a pattern."""
    match condition:
        case None:
            return p.PatternObserver("timer", "interval", (_NEVER,))
        case s.ContextCondition(q.PatternSource(pattern=pattern) as source):
            if source.annotations:
                raise unsupported(source, f"@{source.annotations[0].name} of a context's condition")
            if isinstance(pattern, p.PatternEvery) and pattern.distinct is None:
                return pattern.pattern
            return pattern
        case s.ContextCondition(p.EventFilter() as event, alias):
            return p.PatternEvents(event, alias, place=event.place)
        case e.Period():
            return p.PatternObserver("timer", "interval", (condition,), place=condition.place)
        case q.Crontab(fields):
            return p.PatternObserver("timer", "at", fields, place=condition.place)
    raise AssertionError(condition)


def _followed(first: p.PatternTerm, second: p.PatternTerm) -> p.PatternTerm:
    return p.PatternFollowedBy((first, second), (None,), place=first.place)


def _never(beside: p.PatternTerm) -> p.PatternTerm:
    return p.PatternObserver("timer", "interval", (_NEVER,), place=beside.place)


def _once(pattern: p.PatternTerm) -> p.PatternTerm:
    """A pattern that matches once."""
    arguments = (_NEVER, e.Constant(1, "int"))
    return p.PatternGuard(pattern, "timer", "withinmax", arguments, place=pattern.place)


def _tags(pattern: p.PatternTerm) -> list[str]:
    found = [part.tag for part in parts(pattern) if isinstance(part, p.PatternEvents) and part.tag]
    return list(dict.fromkeys(found))


def _without(pattern: p.PatternTerm, alias: str) -> p.PatternTerm:
    """A pattern that calls the tags of the start by their names alone: `starter.a.id` is `a.id`."""

    def change(part: Any) -> Any:
        if isinstance(part, e.Member) and part.of == e.Name(alias):
            return replace(e.Name(part.name), place=part.place)
        return None

    made: p.PatternTerm = rebuilt(pattern, change)
    return made
