"""Patterns that start and end the instances of contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.patterns import PatternPlanner
from gpu_ops.epl.planning.planned import Ledger
from gpu_ops.epl.planning.subqueries import Subqueries
from gpu_ops.epl.planning.variables import VariableColumns
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.texts import expressions as e
from gpu_ops.texts.placed_error import unsupported


def single_event(source: p.EventFilter | q.PatternSource) -> tuple[p.EventFilter, str] | None:
    """(the event that a condition is about, its tag), if it is about one event alone; None for other patterns."""
    if isinstance(source, p.EventFilter):
        return source, ""
    term = source.pattern
    if isinstance(term, p.PatternEvery) and term.distinct is None:
        term = term.pattern
    if isinstance(term, p.PatternEvents) and not term.annotations and not source.annotations:
        return term.events, term.tag
    return None


def by_clock(condition: s.Condition | None) -> s.Condition | None:
    """A condition; of a pattern that waits for the clock alone, `after` or the crontab that says the same."""
    if not isinstance(condition, s.ContextCondition) or not isinstance(condition.source, q.PatternSource):
        return condition
    term, annotated = condition.source.pattern, condition.source.annotations or condition.annotations
    if isinstance(term, p.PatternEvery) and term.distinct is None:
        term = term.pattern
    if not isinstance(term, p.PatternObserver) or annotated or condition.alias or term.namespace.lower() != "timer":
        return condition
    known = not any(isinstance(part, e.Name | e.Member) for part in parts(term.arguments))
    match term.name.lower(), term.arguments:
        case "interval", (e.Period() as span,) if known:
            return span
        case "interval", (e.Expression() as seconds,) if known:
            return e.Period(((seconds, "second"),), place=term.place)
        case "at", fields:
            return q.Crontab(fields, place=term.place)
    return condition


def is_inclusive(condition: s.ContextCondition) -> bool:
    """Whether what completes a pattern is within the instance that it starts.

    Raises:
        PlacedError: There is another annotation.
    """
    for each in condition.annotations:
        if each.name.lower() != "inclusive":
            raise unsupported(each, f"@{each.name} of a context's condition")
    return bool(condition.annotations)


def matches_of(
    source: q.PatternSource, ledger: Ledger, *, remembers: bool, first: Sequence[p.EventFilter] = ()
) -> tuple[Pattern, dict[str, pa.DataType], list[str]]:
    """Where a pattern that starts instances matches.

    A pattern is started anew where it has matched and none of its parts goes on by itself.

    Args:
        source: The pattern.
        ledger: What it is planned over.
        remembers: Whether it may match by what came before the instance around, or the last one, had ended.
        first: Events that come before the others of one place.

    Returns:
        (points with the tags as records, the types of these, the types of events that it reads).

    Raises:
        PlacedError: The pattern cannot be planned, or gpu_ops does not start instances by it.
    """
    terms = [part for part in parts(source.pattern) if isinstance(part, p.PatternTerm)]
    if not remembers and any(
        not isinstance(each, p.PatternEvents | p.PatternEvery | p.PatternLogical) for each in terms
    ):
        raise unsupported(source, "patterns that start one instance at a time, or one within another")
    if not remembers and any(isinstance(each, p.PatternLogical) and each.operator == "and" for each in terms):
        raise unsupported(source, "patterns that start one instance at a time, or one within another")
    if not any(isinstance(each, p.PatternEvery) for each in terms):
        source = replace(source, pattern=p.PatternEvery(source.pattern, place=source.place))
    outside = ContextNames(None, None)
    planner = PatternPlanner(ledger, Subqueries(ledger, outside), VariableColumns(ledger.variables, ()), outside)
    node, _ = planner.plan(source, first=first)
    tags = {each.name: each.type for each in node.schema if each.name not in {CLOCK, PLACE}}
    return node, single_events(tags, source), planner.reads


def single_events(tags: dict[str, pa.DataType], of: e.Syntax) -> dict[str, pa.DataType]:
    """The tags of a match, none of which is a list of events.

    Raises:
        PlacedError: One is.
    """
    for name, dtype in tags.items():
        if not pa.types.is_struct(dtype):
            raise unsupported(of, f"contexts by the tag {name}, which is a list of events")
    return tags


def with_tags(node: Node, tags: dict[str, pa.DataType], named: str, further: Sequence[str] = ()) -> Node:
    """Matches with a column for each property of each tag, whose names begin in one way, and with further ones."""
    columns = [
        nw.col(tag).struct.field(each.name).alias(f"{named}{tag} {each.name}")
        for tag, dtype in tags.items()
        for each in dtype
    ]
    return Project(node, (*columns, *map(nw.col, (*further, CLOCK, PLACE))), keep=False)


def read_before(source: q.PatternSource) -> set[str]:
    """The types of the events that a match of a pattern may have before the one that completes it."""
    term = source.pattern
    if isinstance(term, p.PatternEvery):
        term = term.pattern
    earlier: object = term
    if isinstance(term, p.PatternFollowedBy) and single_event(q.PatternSource(term.patterns[-1])) is not None:
        earlier = term.patterns[:-1]
    elif not any(isinstance(part, p.PatternFollowedBy | p.PatternUntil | p.PatternLogical) for part in parts(term)):
        return set()
    return {part.type_name for part in parts(earlier) if isinstance(part, p.EventFilter)}
