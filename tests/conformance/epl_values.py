"""What an expression of Esper's language is worth for one row. Windows and aggregates are not computed here."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.conformance.epl import Call, Case, Expression, Literal, Member, Name, Operation, Ordered, Period, Star
from tests.conformance.unsupported import UnsupportedError


class Scope(Protocol):
    """What expressions of a row are about."""

    @property
    def event(self) -> Mapping[str, Any] | None:
        """The event of the row; None for a row of a group."""

    def known(self, expression: Expression) -> tuple[Any] | None:
        """The value of what is not computed from the event alone: aggregates, keys, other events."""


def value(expression: Expression, scope: Scope) -> Any:
    """The value, with SQL's null.

    Raises:
        UnsupportedError: It has a function that is not known here.
    """
    known = scope.known(expression)
    if known is not None:
        return known[0]
    match expression:
        case Literal(given):
            return given
        case Star():
            return scope.event
        case Name(name):
            return None if scope.event is None else _property(scope.event, name)
        case Member(of, name):
            whole = value(of, scope)
            return None if whole is None else _property(whole, name)
        case Ordered(inner):
            return value(inner, scope)
        case Case(branches, otherwise):
            for condition, then in branches:
                if value(condition, scope) is True:
                    return value(then, scope)
            return value(otherwise, scope)
        case Operation(name, operands):
            return _OPERATIONS[name](*(value(operand, scope) for operand in operands))
        case Call(name, arguments, of=of):
            called = name if of is None else f"{of.name if isinstance(of, Name) else ''}.{name}"
            if called not in _FUNCTIONS:
                raise UnsupportedError(f"EPL: no function {called}")
            return _FUNCTIONS[called](*(value(argument, scope) for argument in arguments))
        case Period():
            raise UnsupportedError("EPL: no spans in expressions")


def _property(whole: Any, name: str) -> Any:
    if not isinstance(whole, Mapping) or name not in whole:
        raise UnsupportedError(f"EPL: no property {name!r}")
    return whole.get(name)


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Null where an operand is null."""
    return lambda *given: None if any(each is None for each in given) else function(*given)


def _divide(left: float, right: float) -> float:
    """Java's division of doubles, which whole numbers become."""
    if right:
        return left / right
    return math.copysign(math.inf, left) if left and not math.isnan(left) else math.nan


def _remainder(left: float, right: float) -> float:
    return type(left + right)(math.fmod(left, right)) if right else math.nan


def _and(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001  (operands, not options)
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _like(text: str, pattern: str) -> bool:
    marks = {"%": ".*", "_": "."}
    return re.fullmatch("".join(marks.get(mark, re.escape(mark)) for mark in pattern), text, re.DOTALL) is not None


def _in(wanted: Any, *values: Any) -> bool | None:
    if wanted is None:
        return None
    if wanted in [each for each in values if each is not None]:
        return True
    return None if None in values else False


def _between(given: Any, low: Any, high: Any) -> bool:
    return min(low, high) <= given <= max(low, high)  # type: ignore[no-any-return]


_STRICT: Mapping[str, Callable[..., Any]] = {
    "not": operator.not_,
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
    "/": _divide,
    "%": _remainder,
    "||": operator.add,
    "like": _like,
    "regexp": lambda text, pattern: re.fullmatch(pattern, text) is not None,
    "between": _between,
}

_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "and": _and,
    "or": _or,
    "is": operator.eq,
    "is not": operator.ne,
    "in": _in,
    **{name: _strict(function) for name, function in _STRICT.items()},
}

_PLAIN: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "max": max,
    "min": min,
    "pow": math.pow,
    "sqrt": math.sqrt,
    "floor": lambda given: float(math.floor(given)),
    "ceil": lambda given: float(math.ceil(given)),
}

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "coalesce": lambda *given: next((each for each in given if each is not None), None),
    "min": _strict(min),
    "max": _strict(max),
    **{f"Math.{name}": _strict(function) for name, function in _PLAIN.items()},
}
