"""What an expression of Esper's language is worth for one row. Windows and aggregates are not computed here."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
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
        case Call():
            return _called(expression, scope)
        case Period():
            raise UnsupportedError("EPL: no spans in expressions")


def _called(call: Call, scope: Scope) -> Any:
    """The value of a function, of a method of what another expression gives, or of a map's property."""
    name, of = call.name, call.of
    given = (value(argument, scope) for argument in call.arguments)
    known = name if of is None else f"{_class(of)}.{name}"
    if known in _FUNCTIONS:
        return _FUNCTIONS[known](*given)
    if of is not None and name in METHODS:
        return METHODS[name](value(of, scope), *given)
    event = scope.event or {}
    if of is None and isinstance(event.get(name), Mapping):
        return event[name].get(*given)
    raise UnsupportedError(f"EPL: no function {known}")


def _class(of: Expression) -> str:
    """The name of a class of Java's, whose package may be said."""
    match of:
        case Name(name) | Member(Member(Name("java"), "lang"), name):
            return name
    return ""


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


def _and(*given: bool | None) -> bool | None:
    """SQL's and: null where none is false and one is null."""
    return False if False in given else None if None in given else True


def _or(*given: bool | None) -> bool | None:
    return True if True in given else None if None in given else False


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    marks = {"%": ".*", "_": "."}
    parts = re.findall(f"{re.escape(escape)}?.", pattern, re.DOTALL)
    made = "".join(marks.get(part, re.escape(part.removeprefix(escape) or part)) for part in parts)
    return re.fullmatch(made, text, re.DOTALL) is not None


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
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "like": _like,
    "regexp": lambda text, pattern: re.fullmatch(pattern, text) is not None,
    "between": _between,
}

_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "and": _and,
    "or": _or,
    "any": lambda name, left, *values: _or(*(_OPERATIONS[name](left, each) for each in values)),
    "all": lambda name, left, *values: _and(*(_OPERATIONS[name](left, each) for each in values)),
    "array": lambda *values: list(values),
    "element": lambda values, at: values[at] if values is not None and 0 <= at < len(values) else None,
    "is": operator.eq,
    "is not": operator.ne,
    "in": _in,
    **{name: _strict(function) for name, function in _STRICT.items()},
}


def _day(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)


_OF_LISTS: Mapping[str, Callable[..., Any]] = {
    "countOf": len,
    "firstOf": lambda given: given[0] if given else None,
    "lastOf": lambda given: given[-1] if given else None,
    "sumOf": lambda given: sum(each for each in given if each is not None),
    "min": lambda given: min((each for each in given if each is not None), default=None),
    "max": lambda given: max((each for each in given if each is not None), default=None),
    "reverse": lambda given: given[::-1],
    "take": lambda given, count: given[:count],
    "takeLast": lambda given, count: given[max(0, len(given) - count) :],
}
_OF_TEXTS: Mapping[str, Callable[..., Any]] = {
    "length": len,
    "toUpperCase": str.upper,
    "toLowerCase": str.lower,
    "trim": str.strip,
    "contains": lambda given, part: part in given,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "indexOf": str.find,
    "substring": lambda given, start, end=None: given[start:end],
    "concat": operator.add,
    "equals": operator.eq,
}
_OF_TIMES: Mapping[str, Callable[..., Any]] = {
    "getDayOfWeek": lambda time: _day(time).isoweekday() % 7 + 1,
    "getDayOfMonth": lambda time: _day(time).day,
    "getDayOfYear": lambda time: _day(time).timetuple().tm_yday,
    "getMonthOfYear": lambda time: _day(time).month - 1,
    "getYear": lambda time: _day(time).year,
    "getHourOfDay": lambda time: _day(time).hour,
    "getMinuteOfHour": lambda time: _day(time).minute,
    "getSecondOfMinute": lambda time: _day(time).second,
    "getMillisOfSecond": lambda time: _day(time).microsecond // 1000,
}

METHODS: Mapping[str, Callable[..., Any]] = {
    name: _strict(method) for name, method in {**_OF_LISTS, **_OF_TEXTS, **_OF_TIMES}.items()
}
"""Methods of lists, of Java's strings, and of times: a time is milliseconds since 1970, in UTC, as Java's calendar."""

_PLAIN: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "max": max,
    "min": min,
    "pow": math.pow,
    "sqrt": math.sqrt,
    "floor": lambda given: float(math.floor(given)),
    "ceil": lambda given: float(math.ceil(given)),
    "round": lambda given: math.floor(given + 0.5),
    "signum": lambda given: math.copysign(1.0, given) if given else given,
}


def _cast(given: Any, kind: str) -> Any:
    if kind not in _CASTS:
        raise UnsupportedError(f"EPL: no cast to {kind}")
    return None if given is None else _CASTS[kind](given)


_CASTS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("int", "long", "integer", "short", "byte"), int),
    **dict.fromkeys(("double", "float"), float),
    **dict.fromkeys(("string", "java.lang.String"), str),
}

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "coalesce": lambda *given: next((each for each in given if each is not None), None),
    "min": _strict(min),
    "max": _strict(max),
    **{f"Math.{name}": _strict(function) for name, function in _PLAIN.items()},
    "Integer.toString": _strict(str),
    "Integer.valueOf": _strict(int),
    "cast": _cast,
}
