"""Conditions: comparisons, `between`, `in`, `any` and `all`, `like` and `regexp`, and what joins them.

Null is unknown, as in SQL, but for `is` and for `between`, which is never unknown. NaN equals itself, and is neither
less nor greater than any number. Text is ordered by code points.
"""

from __future__ import annotations

import math
import operator as operators
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa

from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type, beside, is_finite
from gpu_ops.texts.placed_error import HasPlace, PlacedError, failure_at, unsupported

_APPLIED: dict[str, Any] = {
    "=": operators.eq,
    "!=": operators.ne,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
UNKNOWN = nw.lit(None, nw.Boolean())
"""The condition that is always null."""


def condition(value: nw.Expr) -> Bound:
    """A condition."""
    return Bound(value, t.BOOLEAN)


def truth(bound: Bound, where: str) -> nw.Expr:
    """The value of what has to be a condition."""
    if bound.type not in {t.BOOLEAN, t.NULL}:
        raise failure_at(bound, f"{where[:1].upper()}{where[1:]} takes a condition, and {bound.typed}.", "Compare it.")
    return as_type(bound, t.BOOLEAN)


def joined_by(operator: str, values: Sequence[nw.Expr]) -> Bound:
    """Conditions joined by `and` or `or`, in SQL's logic of three values."""
    join = nw.all_horizontal if operator == "and" else nw.any_horizontal
    return condition(join(*values, ignore_nulls=False))


# Comparisons


def compared_as(*operands: Bound, ordered: bool = False) -> pa.DataType:
    """The type in which values are compared."""
    dtype = t.common_type([each.type for each in operands])
    if dtype is None:
        first, second = _clashing(operands)
        kinds = [t.type_name(each.type) for each in (first, second)]
        if all(t.is_numeric(each.type) for each in (first, second)):
            raise unsupported(second, f"comparison of {kinds[0]} and {kinds[1]}", "Cast one of them.")
        raise failure_at(
            second,
            f"{first.typed}, and {second.said} of type {kinds[1]}: they cannot be compared.",
            "Cast one of them.",
        )
    if ordered and not (t.is_numeric(dtype) or dtype in {t.TEXT, t.NULL}):
        wrong = next(each for each in operands if each.type != t.NULL)
        raise failure_at(wrong, f"{wrong.typed}, which has no order.")
    return dtype


def _clashing(operands: Sequence[Bound]) -> tuple[Bound, Bound]:
    for at, second in enumerate(operands):
        for first in operands[:at]:
            if t.common_type([first.type, second.type]) is None:
                return first, second
    return operands[0], operands[-1]


def compared(operator: str, left: Bound, right: Bound) -> Bound:
    """`left operator right` for `= != < <= > >= is`, `is not`."""
    if operator.startswith("is"):
        same = _same(left, right)
        return condition(~same if operator == "is not" else same)
    dtype = compared_as(left, right, ordered=operator not in {"=", "!="})
    return condition(_compared(operator, left, right, dtype))


def _compared(operator: str, left: Bound, right: Bound, dtype: pa.DataType) -> nw.Expr:
    if _null(left) or _null(right):
        return UNKNOWN
    one, other = beside(left, right, dtype), beside(right, left, dtype)
    apply = _APPLIED[operator]
    finite = all(is_finite(each.constant.value) for each in (left, right) if each.constant is not None)
    equality = operator in {"=", "!="}
    if not t.is_float(dtype) or (equality and (not finite or left.maybe_nan == right.maybe_nan)):
        return apply(one, other)  # type: ignore[no-any-return]
    # The backend's NaN is the greatest number: here it is replaced by one for which the comparison fails. So is it
    # beside a finite number where it is right already, for that means the same on all backends.
    least, most = -math.inf, math.inf
    if left.maybe_nan and right.maybe_nan and operator in {"<=", ">="}:
        plain = apply(one.fill_nan(0.0), other.fill_nan(0.0))
        return nw.when(one.is_nan() | other.is_nan()).then(plain & ~plain).otherwise(plain)
    if not finite:
        plain = apply(one, other)
        return nw.when(one.is_nan() | other.is_nan()).then(plain & ~plain).otherwise(plain)
    if left.maybe_nan:
        one = one.fill_nan(most if operator.startswith("<") else least)
    if right.maybe_nan:
        other = other.fill_nan(least if operator.startswith("<") else most)
    return apply(one, other)  # type: ignore[no-any-return]


def _null(bound: Bound) -> bool:
    return bound.type == t.NULL or (bound.constant is not None and bound.constant.value is None)


def _same(left: Bound, right: Bound) -> nw.Expr:
    """Whether both are null, or both are the same value."""
    dtype = compared_as(left, right)
    if _null(left) and _null(right):
        return nw.lit(True)
    if _null(left) or _null(right):
        return (left if _null(right) else right).value.is_null()
    one, other = beside(left, right, dtype), beside(right, left, dtype)
    equal = (one == other).fill_null(False)
    if left.constant is not None or right.constant is not None:
        return equal
    return equal | (one.is_null() & other.is_null())


def chosen_by(subject: Bound, value: Bound) -> nw.Expr:
    """Whether a case's subject is the value behind `when`; null is null."""
    return _same(subject, value)


# Ranges and lists


def ranged(value: Bound, low: Bound, high: Bound, *, with_low: bool = True, with_high: bool = True) -> nw.Expr:
    """Whether a value is between two bounds, whichever is the greater; false where one of the three is null.

    A bound that is left out is the lesser (`with_low`) or the greater one (`with_high`), as in Esper.
    """
    dtype = compared_as(value, low, high, ordered=True)
    above, below = (">=" if with_low else ">"), ("<=" if with_high else "<")

    def inside(least: Bound, most: Bound) -> nw.Expr:
        return _compared(above, value, least, dtype) & _compared(below, value, most, dtype)

    constants = [each.constant for each in (low, high)]
    if all(each is not None and each.value is not None for each in constants):
        least, most = sorted((low, high), key=lambda each: each.constant.value)  # type: ignore[union-attr,arg-type,return-value]
        return inside(least, most).fill_null(False)
    return (inside(low, high) | inside(high, low)).fill_null(False)


def outside(value: Bound, inside: nw.Expr) -> nw.Expr:
    """`not between`: not true of null either."""
    return ~inside & ~value.value.is_null()


def included(value: Bound, options: Sequence[Bound]) -> nw.Expr:
    """Whether a value equals one of several; unknown where none does, and it or one of them is null."""
    if not options:
        return nw.lit(False)
    lists = [each for each in options if pa.types.is_list(each.type) and not pa.types.is_list(value.type)]
    plain = [each for each in options if each not in lists]
    dtype = compared_as(value, *plain) if plain else value.type
    if _null(value):
        return UNKNOWN
    found = [_contained(value, each) for each in lists]
    constants = [each.constant for each in plain]
    if plain and all(each is not None and each.value is not None for each in constants):
        values = [_plain(each.value, dtype) for each in constants if each is not None]
        given = as_type(value, dtype)
        given = given.fill_nan(math.inf) if value.maybe_nan and all(map(is_finite, values)) else given
        found.append(given.is_in(values))
    else:
        found.extend(_compared("=", value, each, dtype) for each in plain)
    return found[0] if len(found) == 1 else nw.any_horizontal(*found, ignore_nulls=False)


def _plain(value: Any, dtype: pa.DataType) -> Any:
    return float(value) if t.is_float(dtype) else value


def _contained(value: Bound, values: Bound) -> nw.Expr:
    inner = values.type.value_type
    if t.common_type([value.type, inner]) != inner:
        compared_as(value, replace(values, type=inner))
    if value.constant is None:
        raise unsupported(value, "'in' of an array for a value that is no constant")
    return values.value.list.contains(_plain(value.constant.value, inner))


def quantified(operator: str, quantity: str, value: Bound, options: Sequence[Bound]) -> nw.Expr:
    """`value operator any (options)`, or all of them.

    With `<` and the like Esper skips null among the options of `any`, and stops at null among those of `all`.
    """
    for each in options:
        if pa.types.is_list(each.type):
            raise unsupported(each, f"{quantity!r} of an array", "List its values.")
    if not options:
        return nw.lit(quantity == "all")
    ordered = operator not in {"=", "!=", "is", "is not"}
    dtype = compared_as(value, *options, ordered=ordered)
    plain = {"is": "=", "is not": "!="}.get(operator, operator)
    found = [_compared(plain, value, each, dtype) for each in options]
    if not ordered:
        join = nw.any_horizontal if quantity == "any" else nw.all_horizontal
        return join(*found, ignore_nulls=False)
    if quantity == "any":
        nulls = [nw.lit(True) if _null(each) else each.value.is_null() for each in options]
        unknown = as_type(value, dtype).is_null() | nw.all_horizontal(*nulls, ignore_nulls=False)
        return nw.when(~unknown).then(nw.any_horizontal(*(each.fill_null(False) for each in found), ignore_nulls=False))
    made = nw.lit(True)
    for holds in reversed(found):
        made = nw.when(holds).then(made).otherwise(holds)
    return made


# Texts


def matched(operator: str, value: Bound, pattern: Bound, escape: Bound | None) -> nw.Expr:
    """`value like pattern escape '!'`, or `value regexp pattern`, where all of the text has to match."""
    if t.is_integer(value.type):
        value = Bound(value.value.cast(nw.String()), t.TEXT, value.text)
    for each in (value, pattern):
        if each.type not in {t.TEXT, t.NULL}:
            raise failure_at(each, f"{operator!r} takes texts, and {each.typed}.")
    if _null(value) or _null(pattern):
        return UNKNOWN
    if pattern.constant is None:
        raise unsupported(pattern, f"{operator!r} with a pattern that is no constant", "Write the pattern as a text.")
    text = as_type(value, t.TEXT)
    if operator == "regexp":
        return text.str.contains(regular(pattern, str(pattern.constant.value)))
    return _like(text, str(pattern.constant.value), _escape(escape))


def _escape(escape: Bound | None) -> str:
    if escape is None:
        return "\\"
    constant = escape.constant
    if constant is None or not isinstance(constant.value, str) or len(constant.value) != 1:
        raise failure_at(escape, f"The escape of 'like' is one character, not {escape.text}.")
    return constant.value


def _like(text: nw.Expr, pattern: str, escape: str) -> nw.Expr:
    """By a function for plain texts where the pattern is so simple, which means the same on all devices."""
    parts = _like_parts(pattern, escape)
    plain = "".join(character for kind, character in parts if kind == "t")
    shape = "".join(kind for kind, _ in parts)
    match re.sub(r"(t|%)\1+", r"\1", shape):
        case "" | "t":
            return text == plain
        case "%" | "t%":
            return text.str.starts_with(plain)
        case "%t":
            return text.str.ends_with(plain)
        case "%t%":
            return text.str.contains(plain, literal=True)
    made = "".join({"%": ".*", "_": "."}.get(kind, re.escape(character)) for kind, character in parts)
    return text.str.contains(f"(?s)\\A{made}\\z")


def _like_parts(pattern: str, escape: str) -> list[tuple[str, str]]:
    """The characters of a pattern, with what each is: `%`, `_`, or `t` for one that stands for itself."""
    found, rest = [], iter(pattern)
    for character in rest:
        if character == escape:
            found.append(("t", next(rest, "")))
        else:
            found.append((character if character in {"%", "_"} else "t", character))
    return found


_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0B\f\r"}
"""Java's, which have no character beyond ASCII."""


def regular(place: HasPlace, pattern: str, *, whole: bool = True) -> str:
    """The pattern in the dialect of the backend, for all of a text or for a part of it.

    Raises:
        PlacedError: It is no regular expression, or the backend does not have it.
    """

    def translated(found: re.Match[str]) -> str:
        mark = found[0][1:]
        inner = _CLASSES.get(mark.lower())
        if inner is None:
            return found[0]
        return f"[{'^' if mark.isupper() else ''}{inner}]"

    inner = re.sub(r"\\.", translated, pattern, flags=re.DOTALL)
    made = f"\\A(?:{inner})\\z" if whole else inner
    try:
        pl.Series([""]).str.contains(made)
    except pl.exceptions.ComputeError as error:
        raise _irregular(place, pattern) from error
    return made


def _irregular(place: HasPlace, pattern: str) -> PlacedError:
    try:
        re.compile(pattern)
    except re.error as error:
        return failure_at(place, f"{pattern!r} is no regular expression: {error}.")
    return unsupported(place, "look-around and references in regular expressions", "Write it without them.")
