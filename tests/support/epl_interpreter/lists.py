"""Methods of lists that ask something of each element, one element after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter import values as v


def enumerated(node: e.FunctionCall, scope: v.Scope) -> Any:
    """What a method makes of a list; None of one that is null.

    Raises:
        NotImplementedError: There is no such method here.
    """
    if isinstance(node.of, q.Subquery):
        rows: Any = scope.around.rows_of(node.of.query, scope)
    else:
        assert node.of is not None
        rows = v.evaluate(node.of, scope)
    if rows is None:
        return None
    given = node.arguments[0] if node.arguments else None
    if given is not None and not isinstance(given, e.LambdaFunction):
        other = v.evaluate(given, scope)
        return _BESIDE[node.name](rows, other)
    if node.name not in METHODS:
        raise NotImplementedError(f"method {node.name} of lists")
    return METHODS[node.name](rows, _valued(given, rows, scope))


def _valued(function: e.LambdaFunction | None, rows: Sequence[Any], scope: v.Scope) -> list[Any]:
    if function is None:
        return list(rows)
    found = []
    for at, row in enumerate(rows):
        local = dict(zip(function.parameters, (row, at, len(rows)), strict=False))
        found.append(v.evaluate(function.body, replace(scope, local={**scope.local, **local})))
    return found


def _numbers(values: Sequence[Any]) -> list[Any]:
    return [each for each in values if each is not None]


def _where(rows: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    return [row for row, value in zip(rows, values, strict=True) if value is True]


def _extreme(rows: Sequence[Any], values: Sequence[Any], better: Callable[[Any, Any], bool]) -> Any:
    best = None
    for row, value in zip(rows, values, strict=True):
        if value is not None and (best is None or better(value, best[1])):
            best = row, value
    return best


def _ordered(rows: Sequence[Any], values: Sequence[Any], *, down: bool) -> list[Any]:
    order = sorted(range(len(rows)), key=lambda at: _rank(values[at]), reverse=False)
    if down:
        order = [
            at
            for key in sorted({_rank(each) for each in values}, reverse=True)
            for at in order
            if _rank(values[at]) == key
        ]
    return [rows[at] for at in order]


def _rank(value: Any) -> tuple[bool, Any]:
    return value is not None, 0 if value is None else value


def _while(rows: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    wrong = next((at for at, value in enumerate(values) if value is not True), len(rows))
    return list(rows[:wrong])


def _distinct(rows: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    return [row for at, (row, value) in enumerate(zip(rows, values, strict=True)) if value not in values[:at]]


def _frequent(values: Sequence[Any], most: bool) -> Any:  # noqa: FBT001
    counts = Counter(values)  # in the order in which values came first
    return (max if most else min)(counts, key=lambda value: counts[value]) if counts else None


METHODS: Mapping[str, Callable[[Sequence[Any], Sequence[Any]], Any]] = {
    "allOf": lambda rows, values: all(each is True for each in values),
    "anyOf": lambda rows, values: any(each is True for each in values),
    "where": _where,
    "countOf": lambda rows, values: len(rows) if values == list(rows) else len(_where(rows, values)),
    "firstOf": lambda rows, values: next(iter(_where(rows, values)), None),
    "lastOf": lambda rows, values: next(iter(_where(rows, values)[::-1]), None),
    "takeWhile": _while,
    "takeWhileLast": lambda rows, values: _while(rows[::-1], values[::-1])[::-1],
    "selectFrom": lambda rows, values: list(values),
    "arrayOf": lambda rows, values: list(values),
    "sumOf": lambda rows, values: sum(_numbers(values)) if _numbers(values) else None,
    "average": lambda rows, values: sum(_numbers(values)) / len(_numbers(values)) if _numbers(values) else None,
    "min": lambda rows, values: min(_numbers(values), default=None),
    "max": lambda rows, values: max(_numbers(values), default=None),
    "minBy": lambda rows, values: (_extreme(rows, values, lambda one, other: one < other) or (None,))[0],
    "maxBy": lambda rows, values: (_extreme(rows, values, lambda one, other: one > other) or (None,))[0],
    "orderBy": lambda rows, values: _ordered(rows, values, down=False),
    "orderByDesc": lambda rows, values: _ordered(rows, values, down=True),
    "distinctOf": _distinct,
    "mostFrequent": lambda rows, values: _frequent(values, most=True),
    "leastFrequent": lambda rows, values: _frequent(values, most=False),
    "reverse": lambda rows, values: list(rows[::-1]),
}
_BESIDE: Mapping[str, Callable[[list[Any], Any], Any]] = {
    "take": lambda rows, count: None if count is None else rows[: max(count, 0)],
    "takeLast": lambda rows, count: None if count is None else rows[max(0, len(rows) - count) :],
    "except": lambda rows, other: list(dict.fromkeys(each for each in rows if each not in other)),
    "intersect": lambda rows, other: list(dict.fromkeys(each for each in rows if each in other)),
    "union": lambda rows, other: [*rows, *other],
    "sequenceEqual": lambda rows, other: rows == other,
}
NAMES = frozenset({*METHODS, *_BESIDE})
