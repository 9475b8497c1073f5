"""What an expression of EPL is worth for one row, computed literally: Java's numbers, null as Esper has it.

Values are Python's: None is null, an event is a mapping of its properties, an array is a list, a time is milliseconds.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_ops.texts import expressions as e


class _Computed:
    """Says that a node is worth what its parts make it."""


COMPUTED = _Computed()
Lookup = Callable[[e.Syntax], Any]
"""Asked for each node first: its value, or COMPUTED. A name or a function that is not known here must have a value."""


class UnknownNodeError(Exception):
    """A node has no value of its own, and is none that is computed here."""


def value(node: e.Syntax, lookup: Lookup) -> Any:  # noqa: C901, PLR0912  (a case for each kind of node)
    """The value of an expression for one row; of a period, its milliseconds."""
    known = lookup(node)
    if known is not COMPUTED:
        return known

    def of(part: e.Syntax) -> Any:
        return value(part, lookup)

    match node:
        case e.Constant(given):
            return given
        case e.Period(parts):
            return math.floor(sum(of(amount) * _MILLISECONDS[unit] for amount, unit in parts) + 0.5)
        case e.Member(inner, name):
            whole = of(inner)
            return None if whole is None else whole[name]
        case e.Element(inner, (index,)):
            return _element(of(inner), of(index))
        case e.FunctionCall():
            return _called(node, of)
        case e.Prefixed(sign, operand):
            return _strict(_SIGNS[sign])(of(operand))
        case e.Logical("and", operands):
            return all_of([of(each) for each in operands])
        case e.Logical("or", operands):
            return any_of([of(each) for each in operands])
        case e.Operation(sign, left, right):
            return operation(sign, of(left), of(right))
        case e.Between(given, low, high, negated):
            return ranged(of(given), of(low), of(high), negated=negated)
        case e.RangeInclusion(given, low, high, with_low, with_high, negated):
            bounds = {"with_low": with_low, "with_high": with_high}
            return ranged(of(given), of(low), of(high), negated=negated, **bounds)
        case e.Inclusion(given, options, negated):
            inside = included(of(given), _options(options, of))
            return None if inside is None else inside != negated
        case e.Quantified(sign, quantity, given, options):
            return quantified(sign, quantity, of(given), _options(options, of))
        case e.TextMatch(sign, given, pattern, escape, negated):
            found = _matched(sign, of(given), of(pattern), "\\" if escape is None else of(escape))
            return None if found is None else found != negated
        case e.Case(None, branches, otherwise):
            chosen = next((then for when, then in branches if of(when) is True), otherwise)
            return None if chosen is None else of(chosen)
        case e.Case(e.Expression() as subject, branches, otherwise):
            wanted = of(subject)
            chosen = next((then for when, then in branches if operation("is", wanted, of(when))), otherwise)
            return None if chosen is None else of(chosen)
        case e.Cast(given, kind):
            return cast(of(given), kind.name)
        case e.ArrayOf(items):
            return [of(item) for item in items]
    raise UnknownNodeError(str(node))


_MILLISECONDS = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
    "microsecond": 0.001,
}


def _options(options: Sequence[e.Expression], of: Callable[[e.Syntax], Any]) -> list[Any]:
    """The values of a list; those of an array in it are values too."""
    found: list[Any] = []
    for option in options:
        given = of(option)
        found.extend(given if isinstance(given, list) else [given])
    return found


def _element(values: Sequence[Any] | None, index: int | None) -> Any:
    return values[index] if values is not None and index is not None and 0 <= index < len(values) else None


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Null where an operand is null."""
    return lambda *given: None if any(each is None for each in given) else function(*given)


# Operators


def all_of(values: Sequence[bool | None]) -> bool | None:
    """SQL's `and`."""
    return False if False in values else None if None in values else True


def any_of(values: Sequence[bool | None]) -> bool | None:
    """SQL's `or`."""
    return True if True in values else None if None in values else False


def operation(sign: str, left: Any, right: Any) -> Any:
    """`left sign right`."""
    if sign in {"is", "is not"}:
        same = right is None if left is None else right is not None and _equal(left, right)
        return same == (sign == "is")
    return None if left is None or right is None else _OPERATIONS[sign](left, right)


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) or (_is_nan(left) and _is_nan(right))


def _is_nan(given: Any) -> bool:
    return isinstance(given, float) and math.isnan(given)


def divided(left: float, right: float) -> float:
    """Java's division of doubles, which whole numbers become."""
    left, right = float(left), float(right)
    if right:
        return left / right
    return math.copysign(math.inf, left) * math.copysign(1, right) if left and not _is_nan(left) else math.nan


def _remainder(left: float, right: float) -> float | None:
    """Java's has the sign of the dividend; of whole numbers by zero it is null here, where Java fails."""
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right) if right else math.nan
    return int(math.copysign(1, left)) * (abs(left) % abs(right)) if right else None


def _joined(left: str, right: str) -> str:
    return left + right


_SIGNS: Mapping[str, Callable[..., Any]] = {"not": operator.not_, "-": operator.neg, "+": operator.pos}
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "=": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divided,
    "%": _remainder,
    "||": _joined,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


# Conditions


def ranged(
    given: Any, low: Any, high: Any, *, negated: bool = False, with_low: bool = True, with_high: bool = True
) -> bool:
    """Never null: false of null, and neither between nor outside of bounds that are null."""
    if given is None:
        return False
    if low is None or high is None:
        return negated
    least, most = (low, high) if low <= high else (high, low)
    above = given >= least if with_low else given > least
    below = given <= most if with_high else given < most
    return bool(above and below) != negated


def included(given: Any, options: Sequence[Any]) -> bool | None:
    """Null where nothing equals, and the value or an option is null."""
    if options and given is None:
        return None
    if any(each is not None and _equal(given, each) for each in options):
        return True
    return None if None in options else False


def quantified(sign: str, quantity: str, given: Any, options: Sequence[Any]) -> bool | None:
    """`given sign any (options)`, or all of them, with Esper's own rules for null where values are ordered."""
    if not options:
        return quantity == "all"
    if sign in {"=", "!=", "is", "is not"}:
        plain = {"is": "=", "is not": "!="}.get(sign, sign)
        found = [operation(plain, given, each) for each in options]
        return any_of(found) if quantity == "any" else all_of(found)
    if quantity == "all":
        for each in options:
            if each is None or given is None:
                return None
            if not operation(sign, given, each):
                return False
        return True
    there = [each for each in options if each is not None]
    if given is None or not there:
        return None
    return any(operation(sign, given, each) for each in there)


def _matched(sign: str, given: Any, pattern: str | None, escape: str | None) -> bool | None:
    if given is None or pattern is None:
        return None
    if sign == "regexp":
        return re.fullmatch(pattern, str(given), re.ASCII) is not None
    return like(str(given), pattern, escape or "\\")


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """Whether a text matches, in which `%` is any text and `_` any character, unless the escape is before them."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape:
        return text[:1] == rest[:1] and like(text[1:], rest[1:], escape)
    if first == "%":
        return any(like(text[at:], rest, escape) for at in range(len(text) + 1))
    return bool(text) and first in {"_", text[0]} and like(text[1:], rest, escape)


# Functions


def cast(given: Any, kind: str) -> Any:
    """`cast(given, kind)`."""
    if given is None:
        return None
    name = kind.rpartition(".")[2].lower()
    if name in {"string", "char", "character"}:
        return str(given).lower() if isinstance(given, bool) else str(given)
    return float(given) if name in {"double", "float"} else int(given)


def _called(call: e.FunctionCall, of: Callable[[e.Syntax], Any]) -> Any:
    owner = "" if call.of is None else _class(call.of)
    known = f"{owner}.{call.name}" if owner else call.name.lower()
    if (call.of is None or owner) and known in _FUNCTIONS:
        return _FUNCTIONS[known](*(of(argument) for argument in call.arguments))
    if call.of is not None and call.name in _METHODS:
        return _strict(_METHODS[call.name])(of(call.of), *(of(argument) for argument in call.arguments))
    raise UnknownNodeError(str(call))


def _class(of: e.Expression) -> str:
    match of:
        case e.Name(name) | e.Member(e.Member(e.Name("java"), "lang"), name):
            return name if name in {"Math", "Integer", "Long", "Double", "String"} else ""
    return ""


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    """Null where an operand is null, NaN where one is."""
    return _strict(lambda *given: math.nan if any(map(_is_nan, given)) else choose(given))


def _day(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)


def _sign(given: float) -> float:
    return math.copysign(1.0, given) if given and not _is_nan(given) else float(given)


def _rounded(function: Callable[[float], int], given: float) -> float:
    """A double, with the sign that it had."""
    return math.copysign(float(function(given)), given) if math.isfinite(given) else float(given)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "coalesce": lambda *given: next((each for each in given if each is not None), None),
    "min": _extreme(min),
    "max": _extreme(max),
    "Math.abs": _strict(abs),
    "Math.min": _extreme(min),
    "Math.max": _extreme(max),
    "Math.sqrt": _strict(lambda given: math.sqrt(given) if given >= 0 else math.nan),
    "Math.floor": _strict(lambda given: _rounded(math.floor, given)),
    "Math.ceil": _strict(lambda given: _rounded(math.ceil, given)),
    "Math.round": _strict(lambda given: math.floor(given + 0.5)),
    "Math.signum": _strict(_sign),
    "Math.pow": _strict(math.pow),
    "Integer.valueOf": _strict(int),
    "Integer.toString": _strict(str),
    "Long.valueOf": _strict(int),
    "String.valueOf": _strict(str),
}

_METHODS: Mapping[str, Callable[..., Any]] = {
    "length": len,
    "isEmpty": lambda given: not given,
    "toUpperCase": str.upper,
    "toLowerCase": str.lower,
    "trim": lambda given: given.strip("".join(map(chr, range(33)))),
    "contains": lambda given, part: part in given,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "charAt": lambda given, at: given[at] if at < len(given) else None,
    "indexOf": lambda given, part, start=0: min(start, len(given)) if not part else given.find(part, start),
    "lastIndexOf": lambda given, part, start=None: given.rfind(part, 0, None if start is None else start + len(part)),
    "equalsIgnoreCase": lambda given, other: given.lower() == other.lower(),
    "replace": str.replace,
    "substring": lambda given, start, end=None: given[start:end],
    "concat": operator.add,
    "equals": operator.eq,
    "size": len,
    "countOf": len,
    "firstOf": lambda given: given[0] if given else None,
    "lastOf": lambda given: given[-1] if given else None,
    "min": lambda given: min((each for each in given if each is not None), default=None),
    "max": lambda given: max((each for each in given if each is not None), default=None),
    "intValue": int,
    "longValue": int,
    "doubleValue": float,
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
