"""Operators between numbers, texts and bits.

Whole numbers are exact or an error, where Java's wrap around. Division gives a double, an infinity or NaN for a zero
divisor. A remainder has the sign of the dividend; by zero it is null, where Java fails.
"""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type, beside, constant_bound
from gpu_ops.texts.expressions import Constant, Expression
from gpu_ops.texts.placed_error import failure_at, unsupported

_RANGES = {"int": 1 << 31, "long": 1 << 63}


def calculated(node: Expression, operator: str, left: Bound, right: Bound) -> Bound:
    """`left operator right` for `+ - * / %`."""
    for each in (left, right):
        if not t.is_numeric(each.type) and each.type != t.NULL:
            remedy = "Texts are joined by ||." if operator == "+" and each.type == t.TEXT else ""
            raise failure_at(each, f"{operator!r} takes numbers, and {each.typed}.", remedy)
    known = [each.type for each in (left, right) if each.type != t.NULL]
    if len(known) < 2:
        return _null(t.arithmetic_type(operator, known[0], known[0]) if known else t.INT)
    made = t.arithmetic_type(operator, left.type, right.type)
    if made is None:
        types = " and ".join(dict.fromkeys(t.type_name(each.type) for each in (left, right)))
        raise unsupported(node, f"{operator!r} of {types}", _remedy(operator, left, right))
    if left.constant is not None and right.constant is not None and not t.is_decimal(made):
        return _folded(node, operator, left.constant, right.constant, made)
    if operator == "/":
        return Bound(as_type(left, made) / as_type(right, made), made)
    if operator == "%":
        by = None if right.constant is None else right.constant.value
        if isinstance(by, int) and 0 < abs(by) < _RANGES.get(t.type_name(made), 0):
            return Bound(_remainder_by(as_type(left, made), nw.lit(abs(by), t.narwhals_type(made))), made)
        return Bound(_remainder(as_type(left, made), as_type(right, made)), made)
    return Bound(_APPLIED[operator](beside(left, right, made), beside(right, left, made)), made)


_APPLIED: dict[str, Any] = {"+": operators.add, "-": operators.sub, "*": operators.mul}


def _remedy(operator: str, left: Bound, right: Bound) -> str:
    if operator == "%" and (t.is_float(left.type) or t.is_float(right.type)):
        return "Cast both to long."
    return "Cast both to double."


def _null(dtype: pa.DataType | None) -> Bound:
    made = dtype or t.DOUBLE
    return Bound(nw.lit(None, t.narwhals_type(made)), made)


def _remainder(left: nw.Expr, right: nw.Expr) -> nw.Expr:
    """Java's, from one that has the sign of the divisor."""
    divisor = nw.when(right != 0).then(right)
    rest = left % divisor
    other = (rest != 0) & ((left < 0) != (divisor < 0))
    return nw.when(other).then(rest - divisor).otherwise(rest)


def _remainder_by(left: nw.Expr, positive: nw.Expr) -> nw.Expr:
    """Java's by a number, whose sign does not matter, from one that has the sign of the divisor."""
    rest = left % positive
    return nw.when((rest != 0) & (left < 0)).then(rest - positive).otherwise(rest)


def _folded(node: Expression, operator: str, left: Constant, right: Constant, dtype: pa.DataType) -> Bound:
    one, other = left.value, right.value
    assert isinstance(one, int | float) and isinstance(other, int | float)  # noqa: S101, PT018  (numbers have such types)
    kind = t.type_name(dtype)
    value: float
    if operator == "/":
        value = _quotient(float(one), float(other))
    elif operator == "%":
        if other == 0:
            return _null(dtype)
        value = int(math.copysign(1, one)) * (abs(one) % abs(other))
    else:
        if kind not in _RANGES:
            one, other = float(one), float(other)
        value = _APPLIED[operator](one, other)
    return constant_bound(whole(node, Constant(value, kind)))  # type: ignore[arg-type]


def _quotient(one: float, other: float) -> float:
    if other != 0:
        return one / other
    if one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


def whole(node: Expression, constant: Constant) -> Constant:
    """A constant, whose whole number fits its type."""
    bound = _RANGES.get(constant.type)
    value = constant.value
    if bound is not None and isinstance(value, int) and not -bound <= value < bound:
        remedy = "Write a number as long: 1L." if constant.type == "int" else ""
        raise failure_at(node, f"{value} does not fit the type {constant.type}.", remedy)
    return constant


def signed(operator: str, operand: Bound) -> Bound:
    """`-operand` or `+operand`."""
    if not t.is_numeric(operand.type) and operand.type != t.NULL:
        raise failure_at(operand, f"{operator!r} takes a number, and {operand.typed}.")
    if operator == "+" or operand.type == t.NULL:
        return operand
    constant = operand.constant
    if constant is not None:
        assert isinstance(constant.value, int | float)  # noqa: S101  (a number has such a type)
        value, kind = -constant.value, constant.type
        # 2147483648 is a long; with a minus before it, it is an int.
        kind = "int" if kind == "long" and value == -_RANGES["int"] else kind
        return constant_bound(Constant(value, kind))
    made = t.arithmetic_type("*", t.INT, operand.type)
    assert made is not None  # noqa: S101  (int goes with all numbers)
    return Bound(-as_type(operand, made), made)


def bits(node: Expression, operator: str, left: Bound, right: Bound) -> Bound:
    """`left operator right` for `& | ^` between whole numbers, or between conditions; null where one is null."""
    dtype = t.common_type([left.type, right.type])
    if dtype is None or not (t.is_integer(dtype) or dtype in {t.BOOLEAN, t.NULL}):
        types = " and ".join(t.type_name(each.type) for each in (left, right))
        raise failure_at(
            node,
            f"{operator!r} takes two whole numbers or two conditions, not {types}.",
            "Texts are joined by ||; conditions by 'and' and 'or'." if operator != "^" else "",
        )
    one, other = as_type(left, dtype), as_type(right, dtype)
    if dtype == t.NULL:
        return Bound(one, dtype)
    value = _BITS[operator](one, other)
    if dtype == t.BOOLEAN and operator != "^":
        value = nw.when(~one.is_null() & ~other.is_null()).then(value)
    return Bound(value, dtype)


_BITS: dict[str, Any] = {"&": operators.and_, "|": operators.or_, "^": operators.xor}


def joined(parts: Sequence[Bound]) -> Bound:
    """`a || b || c`: null where one is null."""
    for each in parts:
        if each.type not in {t.TEXT, t.NULL}:
            raise failure_at(each, f"'||' joins texts, and {each.typed}.", f"Write cast({each.text}, string).")
    constants = [each.constant for each in parts]
    if all(each is not None and isinstance(each.value, str) for each in constants):
        return constant_bound(Constant("".join(str(each.value) for each in constants if each is not None), "string"))
    return Bound(nw.concat_str(*(as_type(each, t.TEXT) for each in parts), ignore_nulls=False), t.TEXT)
