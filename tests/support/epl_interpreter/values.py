"""What an expression is worth for one row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter import lists
from tests.support.epl_interpreter.clock import Span, whole_milliseconds


class Event:
    """An event. Two events are two, even if they say the same."""

    def __init__(self, type_name: str, properties: dict[str, Any]) -> None:
        self.type_name = type_name
        self.properties = properties


Events = tuple[Event | None, ...]
"""An event of each stream of a from clause: one only, unless it is a join; None where an outer join found none."""


@dataclass(frozen=True)
class Source:
    """What expressions know of a stream.

    Attributes:
        name: What it is called, its type's name if it has no name of its own.
        type_name: The type of its events.
        properties: The names that its events have. The dict is the type's own, which may get more.
    """

    name: str
    type_name: str
    properties: Mapping[str, Any]


class Surroundings(Protocol):
    """What a statement knows beside the events of a row."""

    @property
    def now(self) -> int:
        """The clock."""

    @property
    def variables(self) -> Mapping[str, Any]:
        """The values of variables."""

    @property
    def declarations(self) -> Mapping[str, e.Expression | e.LambdaFunction]:
        """The bodies of expressions that are declared."""

    def special(self, call: e.FunctionCall, scope: Scope) -> tuple[Any] | None:
        """The value of an aggregate or of what looks at other events; None where a call is none."""

    def rows_of(self, query: q.Query, scope: Scope) -> list[Any]:
        """The rows of a sub-query, each the value of its column, or an event."""


@dataclass(frozen=True)
class Scope:
    """What the expressions of a row are about.

    Attributes:
        sources: The streams.
        events: Their events.
        around: The statement.
        is_new: Whether the row is one of the insert stream.
        fixed: Expressions whose values are known, such as the keys that a rollup leaves out.
        local: Names that are known here only: parameters, what an expr window tells of itself.
        outer: The row of the query around a sub-query.
        group: The key of the row's group, if it has one.
        level: Which keys of a rollup the row is grouped by.
        turns_bounds: Whether a range whose low bound is the greater one is turned round. In the where clause of a join
            it is empty.
    """

    sources: Sequence[Source]
    events: Events
    around: Surroundings
    is_new: bool = True
    fixed: Mapping[Any, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    outer: Scope | None = None
    group: tuple[Any, ...] | None = None
    level: int = 0
    turns_bounds: bool = True

    def source_of(self, name: str) -> int | None:
        """The stream that has a property."""
        return next((at for at, source in enumerate(self.sources) if name in source.properties), None)

    def source_called(self, name: str) -> int | None:
        """The stream of a name."""
        return next((at for at, source in enumerate(self.sources) if source.name == name), None)


class MakeScope(Protocol):
    """Makes what the expressions of a row are about."""

    def __call__(self, events: Events, *, is_new: bool, group: tuple[Any, ...] | None = None, level: int = 0) -> Scope:
        """For these events; none stand for all of them null."""


def evaluate(node: Any, scope: Scope) -> Any:
    """The value, with SQL's null; an event where a stream stands for it.

    Raises:
        NotImplementedError: There is no meaning here for a part of the expression, which the message names.
    """
    if scope.fixed and isinstance(node, e.Expression) and node in scope.fixed:
        return scope.fixed[node]
    made = _MEANINGS.get(type(node))
    if made is None:
        raise NotImplementedError(f"expression {type(node).__name__}")
    return made(node, scope)


def holds(condition: e.Expression | None, scope: Scope) -> bool:
    """Whether a condition is true, which it is not where it is null."""
    return condition is None or evaluate(condition, scope) is True


def shown(value: Any) -> Any:
    """A value as a listener gets it: events are dicts."""
    if isinstance(value, Event):
        return {name: shown(each) for name, each in value.properties.items()}
    if isinstance(value, list):
        return [shown(each) for each in value]
    return value


def key_of(value: Any) -> Any:
    """A value as a part of a key of a dict."""
    if isinstance(value, list):
        return tuple(key_of(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, key_of(each)) for name, each in sorted(value.items()))
    return value


def parts(node: Any, into: Callable[[Any], bool] = lambda node: True) -> Iterator[Any]:
    """A node and all nodes within it, as far as one may look into them."""
    if isinstance(node, tuple):
        for each in node:
            yield from parts(each, into)
    elif is_dataclass(node):
        yield node
        if into(node):
            for each in fields(node):
                if each.name != "place":
                    yield from parts(getattr(node, each.name), into)


def span_of(node: Any, scope: Scope) -> Span:
    """A span of time; a plain number is of seconds."""
    if not isinstance(node, e.Period):
        return Span(0, whole_milliseconds(evaluate(node, scope)))
    months, seconds = 0, 0.0
    for amount, unit in node.parts:
        number = evaluate(amount, scope)
        if unit.rstrip("s") in {"year", "month"}:
            months += round(number * (12 if unit.startswith("year") else 1))
        else:
            seconds += number * _SECONDS[unit]
    return Span(months, whole_milliseconds(seconds))


_SECONDS: dict[str, float] = {
    "week": 7 * 86400,
    "day": 86400,
    "hour": 3600,
    "minute": 60,
    "second": 1,
    "millisecond": 0.001,
    "microsecond": 0.000001,
}


def sort_key(value: Any) -> tuple[Any, ...]:
    """A value as something to sort by: null is the least."""
    return (False,) if value is None else (True, key_of(value))


def compare_keys(nodes: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """Values as something that sorts by key expressions, some of which may descend."""
    return tuple(
        _Backwards(sort_key(value)) if isinstance(node, e.SortKey) and node.descending else sort_key(value)
        for node, value in zip(nodes, values, strict=True)
    )


@dataclass(frozen=True)
class _Backwards:
    """A key that is the less the more it says."""

    key: Any

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other.key < self.key)


# Names


def _name(node: e.Name, scope: Scope) -> Any:
    name = node.name
    if name in scope.local:
        return scope.local[name]
    if (at := scope.source_of(name)) is not None:
        event = scope.events[at]
        return None if event is None else event.properties.get(name)
    if (at := scope.source_called(name)) is not None:
        return scope.events[at]
    if name in scope.around.variables:
        return scope.around.variables[name]
    if name in scope.around.declarations:
        return _declared(name, (), scope)
    if scope.outer is not None:
        return evaluate(node, scope.outer)
    if node.dynamic or name.startswith("context."):  # the event of an instance that none has started (`@now`)
        return None
    raise NotImplementedError(f"name {name}")


def _member(node: e.Member, scope: Scope) -> Any:
    if isinstance(node.of, e.Name) and node.of.name not in scope.local and scope.source_of(node.of.name) is None:
        at = scope.source_called(node.of.name)
        if at is not None:
            event = scope.events[at]
            return None if event is None else _of(event, node)
        if scope.outer is not None and node.of.name not in scope.around.variables:
            return evaluate(node, scope.outer)
    return _of(evaluate(node.of, scope), node)


def _of(whole: Any, node: e.Member) -> Any:
    if whole is None:
        return None
    if isinstance(whole, Event):
        whole = whole.properties
    if not isinstance(whole, dict) or (node.name not in whole and not node.dynamic):
        raise NotImplementedError(f"property {node.name}")
    return whole.get(node.name)


def _wildcard(node: e.Wildcard, scope: Scope) -> Any:
    if node.of is not None:
        return evaluate(node.of, scope)
    if len(scope.events) != 1:
        raise NotImplementedError("wildcard of a join within an expression")
    return scope.events[0]


def _element(node: e.Element, scope: Scope) -> Any:
    whole, (at,) = evaluate(node.of, scope), (evaluate(each, scope) for each in node.indexes)
    if whole is None or at is None:
        return None
    if not isinstance(whole, list):
        raise NotImplementedError("element of what is no array")
    return whole[at] if 0 <= at < len(whole) else None


# Operators


def _compare(operator: str, left: Any, right: Any) -> bool | None:
    if operator in {"is", "is not"}:
        same = _same(left, right)
        return same is (operator == "is")
    if left is None or right is None:
        return None
    match operator:
        case "=":
            return _same(left, right)
        case "!=":
            return not _same(left, right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Event) or isinstance(right, Event):
        return left is right
    return bool(left == right)


def _operation(node: e.Operation, scope: Scope) -> Any:
    left, right = evaluate(node.left, scope), evaluate(node.right, scope)
    if node.operator in _COMPARISONS:
        return _compare(node.operator, left, right)
    if left is None or right is None:
        return None
    match node.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return divided(left, right)
        case "%":
            return _remainder(left, right)
        case "||":
            return str(left) + str(right)
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
    raise NotImplementedError(f"operator {node.operator}")


_COMPARISONS = {"=", "!=", "<", "<=", ">", ">=", "is", "is not"}


def divided(left: float, right: float) -> float:
    """Java's division of doubles, which whole numbers become."""
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder(left: float, right: float) -> float:
    """The remainder has the sign of what is divided."""
    if isinstance(left, int) and isinstance(right, int):
        if not right:
            raise NotImplementedError("remainder of a division of whole numbers by zero")
        return int(math.copysign(abs(left) % abs(right), left))
    return math.fmod(left, right) if right else math.nan


def _logical(node: e.Logical, scope: Scope) -> bool | None:
    """SQL's: null where neither a false nor, for `or`, a true operand decides, and one is null."""
    decisive: bool = node.operator == "or"
    has_null = False
    for operand in node.operands:
        value = evaluate(operand, scope)
        if value is decisive:
            return node.operator == "or"
        has_null = has_null or value is None
    return None if has_null else not decisive


def _prefixed(node: e.Prefixed, scope: Scope) -> Any:
    value = evaluate(node.operand, scope)
    if value is None:
        return None
    return not value if node.operator == "not" else -value if node.operator == "-" else value


def _options(nodes: Sequence[e.Expression], scope: Scope) -> list[Any]:
    """The values of a list: those of arrays and sub-queries each by itself."""
    values: list[Any] = []
    for node in nodes:
        if isinstance(node, q.Subquery):
            values += scope.around.rows_of(node.query, scope)
            continue
        value = evaluate(node, scope)
        values += value if isinstance(value, list) else [value]
    return values


def _inclusion(node: e.Inclusion, scope: Scope) -> bool | None:
    value, options = evaluate(node.value, scope), _options(node.options, scope)
    if not options:
        return node.negated
    if value is None:
        return None
    if any(each is not None and _same(value, each) for each in options):
        return not node.negated
    return None if None in options else node.negated


def _quantified(node: e.Quantified, scope: Scope) -> bool | None:
    value, options = evaluate(node.value, scope), _options(node.options, scope)
    decisive = node.quantity == "any"
    if not options:
        return not decisive
    if value is None:
        return None
    found = [_compare(node.operator, value, each) for each in options]
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def _range(node: e.RangeInclusion | e.Between, scope: Scope) -> bool:
    """Null is nowhere, neither in a range nor outside of one; everything else is outside of a range without a bound."""
    value, low, high = (evaluate(each, scope) for each in (node.value, node.low, node.high))
    if value is None:
        return False
    if low is None or high is None:
        return node.negated
    if low > high and scope.turns_bounds:
        low, high = high, low
    with_low, with_high = (True, True) if isinstance(node, e.Between) else (node.with_low, node.with_high)
    within = (low < value or (with_low and low == value)) and (value < high or (with_high and value == high))
    return within != node.negated


def _text_match(node: e.TextMatch, scope: Scope) -> bool | None:
    value, pattern = evaluate(node.value, scope), evaluate(node.pattern, scope)
    if value is None or pattern is None:
        return None
    if node.operator == "regexp":
        return (re.fullmatch(pattern, str(value)) is not None) != node.negated
    escape = None if node.escape is None else evaluate(node.escape, scope)
    made, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            made += re.escape(next(characters))
        else:
            made += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return (re.fullmatch(made, str(value), re.DOTALL) is not None) != node.negated


def _case(node: e.Case, scope: Scope) -> Any:
    for when, then in node.branches:
        if node.subject is None:
            chosen = evaluate(when, scope) is True
        else:
            chosen = _compare("is", evaluate(node.subject, scope), evaluate(when, scope)) is True
        if chosen:
            return evaluate(then, scope)
    return None if node.otherwise is None else evaluate(node.otherwise, scope)


def _cast(node: e.Cast, scope: Scope) -> Any:
    value = evaluate(node.value, scope)
    kind = node.type.name.removeprefix("java.lang.").lower()
    if node.options or node.type.dimensions or kind not in _CASTS:
        raise NotImplementedError(f"cast to {node.type}")
    return None if value is None else _CASTS[kind](value)


_CASTS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("int", "integer", "long", "short", "byte"), int),
    **dict.fromkeys(("double", "float"), float),
    "string": str,
}


# Calls


def _call(node: e.FunctionCall, scope: Scope) -> Any:
    found = scope.around.special(node, scope)
    if found is not None:
        return found[0]
    if node.of is None and node.name in scope.around.declarations:
        return _declared(node.name, node.arguments, scope)
    takes = any(isinstance(each, e.LambdaFunction) for each in node.arguments)
    asks = takes or isinstance(node.of, q.Subquery) or node.name not in _METHODS
    if node.of is not None and asks and node.name in lists.NAMES and _class(node.of) not in {"Math", "Integer"}:
        return lists.enumerated(node, scope)
    known = node.name if node.of is None else f"{_class(node.of)}.{node.name}"
    if known == "current_timestamp":
        return scope.around.now
    if known == "istream":
        return scope.is_new
    if known in _FUNCTIONS:
        return _FUNCTIONS[known](*(evaluate(each, scope) for each in node.arguments))
    if node.of is not None and node.name in _METHODS:
        whole = evaluate(node.of, scope)
        given = [evaluate(each, scope) for each in node.arguments]
        return None if whole is None or None in given else _METHODS[node.name](whole, *given)
    raise NotImplementedError(f"function {known}")


def _class(of: e.Expression) -> str:
    """The name of a class of Java's, whose package may be said."""
    match of:
        case e.Name(name) | e.Member(e.Member(e.Name("java"), "lang"), name):
            return name
    return ""


def _declared(name: str, arguments: Sequence[Any], scope: Scope) -> Any:
    body = scope.around.declarations[name]
    if not isinstance(body, e.LambdaFunction):
        return evaluate(body, scope)
    local = dict(scope.local)
    for parameter, argument in zip(body.parameters, arguments, strict=True):
        local[parameter] = evaluate(argument, scope)
    return evaluate(body.body, replace(scope, local=local))


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: None if any(each is None for each in given) else function(*given)


def _instant(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "coalesce": lambda *given: next((each for each in given if each is not None), None),
    "min": _strict(min),
    "max": _strict(max),
    "Math.abs": _strict(abs),
    "Math.max": _strict(max),
    "Math.min": _strict(min),
    "Math.pow": _strict(math.pow),
    "Math.sqrt": _strict(math.sqrt),
    "Math.floor": _strict(lambda given: float(math.floor(given))),
    "Math.ceil": _strict(lambda given: float(math.ceil(given))),
    "Math.round": _strict(lambda given: math.floor(given + 0.5)),
    "Integer.toString": _strict(str),
    "Integer.valueOf": _strict(int),
}

_METHODS: dict[str, Callable[..., Any]] = {
    "length": len,
    "toUpperCase": str.upper,
    "toLowerCase": str.lower,
    "trim": str.strip,
    "contains": lambda given, part: part in given,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "indexOf": str.find,
    "charAt": lambda given, at: given[at] if at < len(given) else None,
    "lastIndexOf": lambda given, part, start=None: given.rfind(part, 0, None if start is None else start + len(part)),
    "equalsIgnoreCase": lambda given, other: given.lower() == other.lower(),
    "substring": lambda given, start, end=None: given[start:end],
    "equals": lambda given, other: given == other,
    "countOf": len,
    "firstOf": lambda given: given[0] if given else None,
    "lastOf": lambda given: given[-1] if given else None,
    "getDayOfWeek": lambda time: _instant(time).isoweekday() % 7 + 1,
    "getDayOfMonth": lambda time: _instant(time).day,
    "getDayOfYear": lambda time: _instant(time).timetuple().tm_yday,
    "getMonthOfYear": lambda time: _instant(time).month - 1,
    "getYear": lambda time: _instant(time).year,
    "getHourOfDay": lambda time: _instant(time).hour,
    "getMinuteOfHour": lambda time: _instant(time).minute,
    "getSecondOfMinute": lambda time: _instant(time).second,
    "getMillisOfSecond": lambda time: _instant(time).microsecond // 1000,
}
"""Methods of Java's strings, of lists, and of times, which are milliseconds since 1970 in UTC."""


# Sub-queries


def _subquery(node: q.Subquery, scope: Scope) -> Any:
    rows = scope.around.rows_of(node.query, scope)
    return rows[0] if len(rows) == 1 else None


def _exists(node: q.Exists, scope: Scope) -> bool:
    return bool(scope.around.rows_of(node.query, scope))


_MEANINGS: dict[type, Callable[[Any, Scope], Any]] = {
    e.Constant: lambda node, scope: node.value,
    e.Name: _name,
    e.Member: _member,
    e.Element: _element,
    e.FunctionCall: _call,
    e.Wildcard: _wildcard,
    e.Prefixed: _prefixed,
    e.Operation: _operation,
    e.Logical: _logical,
    e.Quantified: _quantified,
    e.Inclusion: _inclusion,
    e.RangeInclusion: _range,
    e.Between: _range,
    e.TextMatch: _text_match,
    e.Case: _case,
    e.ArrayOf: lambda node, scope: [evaluate(each, scope) for each in node.items],
    e.Cast: _cast,
    e.SortKey: lambda node, scope: evaluate(node.expression, scope),
    q.Subquery: _subquery,
    q.Exists: _exists,
}
