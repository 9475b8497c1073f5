"""Functions of single rows, and methods of texts, numbers, times and arrays, by their names in Esper and in Java."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK
from gpu_ops.texts.binding import date_times, text_methods, text_times
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type, constant_bound, literal
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.expressions import Cast, Constant, FunctionCall, Syntax
from gpu_ops.texts.placed_error import failure_at, unsupported

_Function = Callable[[FunctionCall, Sequence[Bound]], Bound]


def current_timestamp() -> Bound:
    """The engine's time in milliseconds, a long."""
    return Bound(nw.col(CLOCK).dt.timestamp("ms"), t.LONG, "current_timestamp()")


def _shared(node: FunctionCall, given: Sequence[Bound]) -> pa.DataType:
    dtype = t.common_type([each.type for each in given])
    if dtype is None:
        kinds = " and ".join(dict.fromkeys(t.type_name(each.type) for each in given))
        raise failure_at(node, f"{node.name}(…) takes values of one type, not {kinds}.", "Cast them.")
    return dtype


def _coalesce(node: FunctionCall, given: Sequence[Bound]) -> Bound:
    _count(node, given, 2, None)
    dtype = _shared(node, given)
    return Bound(nw.coalesce(*(as_type(each, dtype) for each in given)), dtype)


def _extreme(node: FunctionCall, given: Sequence[Bound]) -> Bound:
    """The least or greatest of several numbers; null where one is null."""
    _count(node, given, 2, None)
    _numbers(node, given)
    dtype = _shared(node, given)
    if dtype == t.NULL:
        return given[0]
    greatest = node.name.lower() == "max"
    operands = values = [as_type(each, dtype) for each in given]
    absent = nw.any_horizontal(*(each.is_null() for each in values), ignore_nulls=False)
    # By pairs, then pairs of these: a value stands in the expression a few times, not twice as often for each other.
    while len(values) > 1:
        pairs = [values[at : at + 2] for at in range(0, len(values), 2)]
        values = [_chosen(*pair, greatest=greatest) if len(pair) > 1 else pair[0] for pair in pairs]
    made = values[0]
    if t.is_float(dtype) and not greatest:
        # As in Java, NaN is both the least and the greatest; the backend's is the greatest number.
        undefined = nw.any_horizontal(*(each.is_nan() for each in operands), ignore_nulls=False)
        made = nw.when(undefined).then(literal(math.nan, dtype)).otherwise(made)
    return Bound(nw.when(~absent).then(made), dtype)


def _chosen(one: nw.Expr, other: nw.Expr, *, greatest: bool) -> nw.Expr:
    return nw.when(one >= other if greatest else one <= other).then(one).otherwise(other)


def flat_arguments(node: FunctionCall) -> Sequence[Syntax]:
    """The arguments of a function: the least of one value and the least of two others is the least of all three."""
    if node.name.lower() not in {"min", "max"} or len(node.arguments) < 2:
        return node.arguments
    flat: list[Syntax] = []
    for each in node.arguments:
        if isinstance(each, FunctionCall) and (each.name, each.of) == (node.name, node.of) and _takes_all(each):
            flat += flat_arguments(each)
        else:
            flat.append(each)
    return flat


def _takes_all(node: FunctionCall) -> bool:
    """Whether it is the least or greatest of its values: of one it is that of many rows, and Math's take two."""
    return len(node.arguments) == 2 or (len(node.arguments) > 2 and node.of is None)


def _typeof(node: FunctionCall, given: Sequence[Bound]) -> Bound:
    _count(node, given, 1, 1)
    (value,) = given
    if value.type == t.NULL:
        return Bound(nw.lit(None, nw.String()), t.TEXT)
    return Bound(nw.when(~value.value.is_null()).then(nw.lit(t.java_name(value.type))), t.TEXT)


FUNCTIONS: Mapping[str, _Function] = {
    "coalesce": _coalesce,
    "min": _extreme,
    "max": _extreme,
    "typeof": _typeof,
    "current_timestamp": lambda node, given: current_timestamp(),
}
"""Those without a dot, by their names in small letters."""


def _count(node: FunctionCall, given: Sequence[object], least: int, most: int | None) -> None:
    if len(given) < least or (most is not None and len(given) > most):
        wanted = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise failure_at(node, f"{node.name}(…) takes {wanted} values, not {len(given)}.")


def _numbers(node: FunctionCall, given: Sequence[Bound]) -> None:
    for each in given:
        if not t.is_numeric(each.type) and each.type != t.NULL:
            raise failure_at(each, f"{node.name}(…) takes numbers, and {each.typed}.")


# Classes of Java


def _absolute(node: FunctionCall, given: Sequence[Bound]) -> Bound:
    _count(node, given, 1, 1)
    _numbers(node, given)
    dtype = t.arithmetic_type("*", t.INT, given[0].type) if given[0].type != t.NULL else t.INT
    assert dtype is not None  # noqa: S101  (int goes with all numbers)
    return Bound(as_type(given[0], dtype).abs(), dtype)


def _of_double(compute: Callable[[nw.Expr], nw.Expr], made: pa.DataType = t.DOUBLE) -> _Function:
    def apply(node: FunctionCall, given: Sequence[Bound]) -> Bound:
        _count(node, given, 1, 1)
        _numbers(node, given)
        return Bound(compute(as_type(given[0], t.DOUBLE)), made)

    return apply


def _power(node: FunctionCall, given: Sequence[Bound]) -> Bound:
    _count(node, given, 2, 2)
    _numbers(node, given)
    one, other = (as_type(each, t.DOUBLE) for each in given)
    return Bound(one**other, t.DOUBLE)


def _sign(value: nw.Expr) -> nw.Expr:
    above = (value > 0) & ~value.is_nan()  # where NaN is the greatest value, it is above zero
    return nw.when(above).then(1.0).otherwise(nw.when(value < 0).then(-1.0).otherwise(value))


def _math(node: FunctionCall, given: Sequence[Bound]) -> Bound:
    _count(node, node.arguments, 2, 2)
    return _extreme(node, given)


def _parsed(dtype: pa.DataType) -> _Function:
    def apply(node: FunctionCall, given: Sequence[Bound]) -> Bound:
        _count(node, given, 1, 1)
        return cast_to(node, given[0], dtype)

    return apply


STATIC: Mapping[str, _Function] = {
    "Math.abs": _absolute,
    "Math.max": _math,
    "Math.min": _math,
    "Math.sqrt": _of_double(lambda value: value.sqrt()),
    "Math.floor": _of_double(lambda value: value.floor()),
    "Math.ceil": _of_double(lambda value: value.ceil()),
    "Math.round": _of_double(lambda value: (value + 0.5).floor().cast(nw.Int64()), t.LONG),
    "Math.exp": _of_double(lambda value: value.exp()),
    "Math.log": _of_double(lambda value: value.log()),
    "Math.sin": _of_double(lambda value: value.sin()),
    "Math.cos": _of_double(lambda value: value.cos()),
    "Math.signum": _of_double(_sign),
    "Math.pow": _power,
    "Integer.valueOf": _parsed(t.INT),
    "Integer.parseInt": _parsed(t.INT),
    "Integer.toString": _parsed(t.TEXT),
    "Long.valueOf": _parsed(t.LONG),
    "Long.parseLong": _parsed(t.LONG),
    "Long.toString": _parsed(t.TEXT),
    "Double.valueOf": _parsed(t.DOUBLE),
    "Double.parseDouble": _parsed(t.DOUBLE),
    "String.valueOf": _parsed(t.TEXT),
}
"""Static methods of classes of Java, whose package may be said."""
CLASSES = frozenset(name.partition(".")[0] for name in STATIC)


# Methods


_OF_NUMBERS = {"intValue": t.INT, "longValue": t.LONG, "doubleValue": t.DOUBLE, "toString": t.TEXT}
_OF_ARRAYS: Mapping[str, Callable[[nw.Expr], nw.Expr]] = {
    "size": lambda values: values.list.len().cast(nw.Int32()),
    "countOf": lambda values: values.list.len().cast(nw.Int32()),
    "isEmpty": lambda values: values.list.len() == 0,
    "firstOf": lambda values: element(values, 0),
}
_ENUMERATIONS = """
    aggregate allof anyof average countof distinctof except firstof groupby intersect lastof leastfrequent max maxby min
    minby mostfrequent orderby orderbydesc reverse selectfrom sequenceequal sumof take takelast takewhile
    takewhilelast tomap union where arrayof
"""
_MISSING = frozenset(_ENUMERATIONS.split())
"""Esper's further methods of arrays, in small letters."""


def element(values: nw.Expr, index: int) -> nw.Expr:
    """An element of arrays; null where an array is not so long."""
    long = nw.when(values.list.len() > index).then(values)
    made: nw.Expr = long.list.get(index)
    return made


def method(node: FunctionCall, of: Bound, given: Sequence[Bound]) -> Bound:
    """A method of a value, by the type of that."""
    name = node.name
    kind = of.type
    if pa.types.is_list(kind):
        return _of_array(node, of, given)
    if pa.types.is_struct(kind) and name in {"firstOf", "lastOf"} and not given:
        return of  # an event is a list of itself
    if name == "equals" and len(given) == 1:
        return Bound((of.value == as_type(given[0], kind)).fill_null(False), t.BOOLEAN)
    if kind == t.TEXT and name in text_methods.NAMES:
        return text_methods.text_method(node, of, given)
    if kind == t.LONG and name in date_times.NAMES:
        return date_times.date_time_method(node, of, given)
    if t.is_numeric(kind) and name in _OF_NUMBERS and not given:
        return cast_to(node, of, _OF_NUMBERS[name])
    known: list[str] = ["equals"]
    if kind == t.TEXT:
        known += text_methods.NAMES
    elif t.is_numeric(kind):
        known += [*_OF_NUMBERS, *(date_times.NAMES if kind == t.LONG else ())]
    problem = f"gpu_ops knows no method {name!r} of {of.said}, which is of type {t.type_name(kind)}."
    raise unknown(node, problem, name, known, known, "Methods")


def _of_array(node: FunctionCall, of: Bound, given: Sequence[Bound]) -> Bound:
    inner = of.type.value_type
    if node.name == "contains" and len(given) == 1 and given[0].constant is not None:
        value: Any = given[0].constant.value
        return Bound(of.value.list.contains(value), t.BOOLEAN)
    if node.name not in _OF_ARRAYS or given:
        if node.name.lower() in _MISSING:
            raise unsupported(node, f"method {node.name!r} of arrays")
        known = [*_OF_ARRAYS, "contains"]
        raise unknown(node, f"gpu_ops knows no method {node.name!r} of arrays.", node.name, known, known, "Methods")
    made = {"size": t.INT, "countOf": t.INT, "isEmpty": t.BOOLEAN}.get(node.name, inner)
    return Bound(_OF_ARRAYS[node.name](of.value), made)


# Casts


def cast(node: Cast, value: Bound) -> Bound:
    """`cast(value, type)`."""
    if node.options:
        return text_times.time_of_text(node, value)
    name = str(node.type).replace("`", "")
    dtype = t.type_of(name)
    if dtype is None:
        raise unsupported(node.type, f"cast to {name!r}", "Cast to int, long, short, byte, float, double or string.")
    return cast_to(node, value, dtype)


def cast_to(node: Syntax, value: Bound, dtype: pa.DataType) -> Bound:
    """A value as one of another type: a number loses its fraction; a value that does not fit is an error."""
    if value.type == dtype:
        return value
    if value.type == t.NULL:
        return Bound(nw.lit(None, t.narwhals_type(dtype)), dtype)
    kinds = f"{t.type_name(value.type)} to {t.type_name(dtype)}"
    if dtype == t.TEXT and (t.is_integer(value.type) or value.type == t.BOOLEAN):
        return Bound(value.value.cast(nw.String()), dtype)
    if not t.is_numeric(dtype) or not (t.is_numeric(value.type) or value.type == t.TEXT):
        raise unsupported(node, f"cast of {kinds}")
    if t.is_decimal(dtype) and not t.is_integer(value.type):
        raise unsupported(node, f"cast of {kinds}")
    if value.constant is not None and t.is_integer(value.type) and dtype in {t.LONG, t.DOUBLE}:
        kind: Any = t.type_name(dtype)
        number: Any = value.constant.value
        return constant_bound(Constant(float(number) if dtype == t.DOUBLE else number, kind))
    return Bound(value.value.cast(t.narwhals_type(dtype)), dtype)
