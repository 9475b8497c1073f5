"""Esper's conditions on events, and on what is in a window (expr, expr_batch), as expressions of the public API."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import gpu_ops as g
from tests.conformance.epl import Call, Case, Expression, Literal, Member, Name, Operation, Star
from tests.conformance.unsupported import UnsupportedError

CLOCK = Name("engine's time")
"""What oldest_timestamp and newest_timestamp are the oldest and newest of."""

TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    **dict.fromkeys(("int", "long", "short", "byte"), pa.int64()),
    **dict.fromkeys(("double", "float"), pa.float64()),
}
"""What properties are here."""

RESERVED = {"start", "end"}
"""Properties that can be no columns: a stream's columns of that name are its lifetimes."""

_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "negative": operator.neg,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "between": lambda given, low, high: given.is_between(low, high),
}


def condition(expression: Expression, column: Callable[[Expression], str], alone: str = "newest") -> Any:
    """A condition on a window.

    Args:
        expression: What Esper says.
        column: Makes a column of an expression of single events, and names it.
        alone: Whether properties by themselves are those of the newest event or of the oldest.

    Raises:
        UnsupportedError: It speaks of something else.
    """
    match expression:
        case Literal(given):
            return g.lit(given)
        case Name("current_count") | Call("count", (Star(),), (), of=None):
            return g.window.count
        case Name(("oldest_timestamp" | "newest_timestamp") as which):
            return _of_one(which, column(CLOCK))
        case Member(Name(("oldest_event" | "newest_event") as which), name):
            return _of_one(which, column(Name(name)))
        case Name(name) if name not in {"expired_count", "view_reference"}:
            return _of_one(f"{alone}_event", column(expression))
        case Call("first" | "last" as which, (Name() as shown,), (), of=None):
            return _of_one("oldest" if which == "first" else "newest", column(shown))
        case Call("sum" | "avg" | "count" as which, (given, *conditions), options, distinct=False, of=None):
            conditions = [*conditions, *dict(options).get("filter", ())]
            there: Expression = Operation("and", (Operation("is not", (given, Literal(None))), *conditions))
            if isinstance(given, Star):
                there = Operation("and", tuple(conditions)) if conditions else Literal(value=True)
            count = g.window.sum(column(Case(((there, Literal(1)),), Literal(0))))
            if which == "count":
                return count
            total = g.window.sum(column(Case(((there, given),), Literal(None))))
            return total if which == "sum" else total / count
        case Operation(name, operands) if name in _OPERATORS:
            return _OPERATORS[name](*(condition(operand, column, alone) for operand in operands))
    raise UnsupportedError(f"EPL: no word for a window's {_word(expression)}")


def of_events(expression: Expression, fields: Mapping[str, str]) -> Any:
    """A condition on single events with these properties.

    Raises:
        UnsupportedError: There is no word for it.
    """
    match expression:
        case Literal(given) if given is not None:
            return g.lit(given)
        case Name(name) if fields.get(name) in TYPES and name not in RESERVED:
            return g.col(name)
        case Operation("is", (operand, Literal(None))):
            return of_events(operand, fields).is_null()
        case Operation("is not", (operand, Literal(None))):
            return ~of_events(operand, fields).is_null()
        case Operation("in", (operand, *values)) if all(
            isinstance(one, Literal) and one.value is not None for one in values
        ):
            return of_events(operand, fields).is_in([one.value for one in values if isinstance(one, Literal)])
        case Operation(name, operands) if name in _OPERATORS and name != "between":  # Esper turns its bounds round
            return _OPERATORS[name](*(of_events(operand, fields) for operand in operands))
    raise UnsupportedError(f"EPL: no word for an event's {_word(expression)}")


def _of_one(which: str, column: str) -> Any:
    return g.window.oldest(column) if which.startswith("oldest") else g.window.newest(column)


def _word(expression: Expression) -> str:
    match expression:
        case Name(name) | Call(name) | Operation(name):
            return name
        case Member(of, name):
            return f"{_word(of)}.{name}"
    return type(expression).__name__
