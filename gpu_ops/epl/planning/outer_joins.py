"""Which aggregates over outer joins are Esper's.

Esper aggregates what is delivered: a row with an event that has no match enters, and is not taken back when the match
comes; when the event leaves beside its match, the row with the match leaves. So a count of all rows drifts away from
the rows that stand. What is null in all rows without a match does not: each of its values enters and leaves with its
own row. With groups Esper also counts the rows of each, and forgets a group of which all have left. That happens too
early where a row without a match leaves that never entered; but where all events of a group have the same matches, the
others of its group have none either then, and there is nothing to forget.

Other counts, and sums and means of whole numbers, are those of what is delivered: no count goes below nothing, and a
sum begins anew where its count is nothing, as in Esper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.joins import conjuncts
from gpu_ops.plan.expressions import bare_column
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.scope import StreamScope
from gpu_ops.texts.placed_error import PlacedError, unsupported

_OF_VALUES = frozenset({"count", "sum", "avg", "min", "max", "median", "stddev", "avedev"})
_OF_DELIVERED = frozenset({"count", "sum", "avg"})
_STRICT = frozenset({"+", "-", "*", "/", "%"})


def drifting(query: q.Query, events: StreamScope) -> Callable[[e.FunctionCall], bool] | None:
    """Whether an aggregate over an outer join is not that of the rows that stand; None if no aggregate is another.

    It raises `PlacedError` for those that gpu_ops does not have.
    """
    outer = [join for join in query.joins if join.kind not in {"cross", "inner"}]
    if not outer or any(term.unidirectional for term in query.streams):
        return None
    of_one = len(query.joins) == 1 and outer[0].kind != "full"
    optional = 1 if outer[0].kind == "left" else 0
    same = not query.group_by or _has_same_matches(query, optional, events)
    stream = query.streams[optional]
    name = stream.alias or str(stream.source)

    def drifts(call: e.FunctionCall) -> bool:
        plain = [each for each in call.arguments if not isinstance(each, e.NamedArgument)]
        named = {each.name.lower() for each in call.arguments if isinstance(each, e.NamedArgument)}
        stands = of_one and bool(plain) and _is_null_without(plain[0], optional, events)
        if stands and same and call.name in _OF_VALUES and "group_by" not in named:
            return False
        if call.name in _OF_DELIVERED and not call.quantity and "group_by" not in named:
            return True
        remedy = "Take count, sum or avg of whole numbers."
        if call.name in _OF_VALUES and "group_by" not in named and of_one:
            remedy = f"Aggregate what has no value where {name!r} has no event: {call.name}({name}.x)."
            if stands:
                remedy = "Let 'on' compare keys for equality alone, and group by all those of one stream."
        raise unsupported(call, f"{call} over such an outer join", remedy)

    return drifts


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
