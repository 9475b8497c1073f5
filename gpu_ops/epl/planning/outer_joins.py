"""Which aggregates over outer joins are Esper's.

Esper aggregates what is delivered: a row with an event that has no match enters, and is not taken back when the match
comes; when the event leaves beside its match, the row with the match leaves. So a count of all rows drifts away from
the rows that stand. What is null in all rows without a match does not: each of its values enters and leaves with its
own row. With groups Esper also counts the rows of each, and forgets a group of which all have left. That happens too
early where a row without a match leaves that never entered; but where all events of a group have the same matches, the
others of its group have none either then, and there is nothing to forget.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.joins import conjuncts
from gpu_ops.plan.expressions import bare_column
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.scope import StreamScope
from gpu_ops.texts.placed_error import PlacedError, unsupported

_OF_VALUES = frozenset({"count", "sum", "avg", "min", "max", "median", "stddev", "avedev"})
_STRICT = frozenset({"+", "-", "*", "/", "%"})


def refuse_drifting(query: q.Query, aggregates: PlannedAggregates) -> None:
    """Refuse aggregates over an outer join that are not those of the rows that stand.

    Raises:
        PlacedError: There is one.
    """
    if all(join.kind in {"cross", "inner"} for join in query.joins):
        return
    if any(term.unidirectional for term in query.streams) or not aggregates.known:
        return
    if len(query.joins) > 1 or query.joins[0].kind == "full":
        which = "a full outer join" if len(query.joins) == 1 else "several outer joins"
        raise unsupported(query.joins[0], f"aggregates over {which}")
    optional = 1 if query.joins[0].kind == "left" else 0
    stream = query.streams[optional]
    name = stream.alias or str(stream.source)
    for call in aggregates.known:
        plain = [each for each in call.arguments if not isinstance(each, e.NamedArgument)]
        named = {each.name.lower() for each in call.arguments if isinstance(each, e.NamedArgument)}
        if (
            call.name not in _OF_VALUES
            or "group_by" in named
            or not plain
            or not _is_null_without(plain[0], optional, aggregates.events)
        ):
            remedy = f"Aggregate what has no value where {name!r} has no event: count({name}.x)."
            raise unsupported(call, f"{call} over an outer join", remedy)
    if query.group_by and not _has_same_matches(query, optional, aggregates.events):
        remedy = "Let 'on' compare keys for equality alone, and group by those of a stream, and by more if you want."
        raise unsupported(query.group_by[0], "such groups over an outer join", remedy)


def _is_null_without(node: object, optional: int, events: StreamScope) -> bool:
    """Whether an expression is null where a stream has no event."""
    match node:
        case e.Operation(operator, left, right) if operator in _STRICT:
            return any(_is_null_without(each, optional, events) for each in (left, right))
        case e.Prefixed("-", operand):
            return _is_null_without(operand, optional, events)
        case e.Name() | e.Member():
            return _column(node, events) in events.streams[optional].columns.values()
    return False


def _has_same_matches(query: q.Query, optional: int, events: StreamScope) -> bool:
    """Whether `on` compares keys alone, and the events of a group have the same ones."""
    keys = {0: set[str | None](), 1: set[str | None]()}
    for condition in conjuncts(query.joins[0].on):
        match condition:
            case e.Operation("=", e.Name() | e.Member() as left, e.Name() | e.Member() as right):
                sides = [_column(left, events), _column(right, events)]
            case _:
                return False
        for number, stream in enumerate(events.streams[:2]):
            keys[number] |= {side for side in sides if side in stream.columns.values()}
    grouped = set(_columns(query.group_by, events))
    if None in grouped or not all(keys.values()):
        return False
    return keys[1 - optional] <= grouped or keys[optional] <= grouped


def _columns(nodes: Iterable[object], events: StreamScope) -> Iterable[str | None]:
    return (_column(each, events) if isinstance(each, e.Name | e.Member) else None for each in nodes)


def _column(node: e.Name | e.Member, events: StreamScope) -> str | None:
    """The column of a property; None for what is none."""
    try:
        bound = events.property(node)
    except PlacedError:
        return None
    return None if bound is None else bare_column(bound.value)
