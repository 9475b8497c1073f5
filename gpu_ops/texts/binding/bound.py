"""An expression of a text that is bound to columns: what computes it, and its type."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.texts.binding import types as t
from gpu_ops.texts.expressions import NOWHERE, Constant, Expression, TextPlace

_TYPES = {
    "int": t.INT,
    "long": t.LONG,
    "float": pa.float32(),
    "double": t.DOUBLE,
    "string": t.TEXT,
    "boolean": t.BOOLEAN,
    "null": t.NULL,
}


@dataclass(frozen=True, eq=False)
class Bound:
    """A typed expression over the columns of a plan.

    Attributes:
        value: What computes it, for each row by itself.
        type: The Arrow type of its values.
        text: How it is written in EPL.
        constant: What it always is, if it is a constant.
        place: Where it stands in the text.

    Examples:
        >>> Bound(nw.col("price"), pa.float64(), "price").type
        DataType(double)
    """

    value: nw.Expr
    type: pa.DataType
    text: str = ""
    constant: Constant | None = None
    place: TextPlace = NOWHERE

    def of(self, node: Expression) -> Bound:
        """The same with the text and the place of a node."""
        return replace(self, text=str(node), place=node.place)

    @property
    def said(self) -> str:
        """Its text as errors quote it."""
        return self.text if self.text.startswith("'") else f"'{self.text}'"

    @property
    def typed(self) -> str:
        """Its text and its type, as errors say them."""
        return f"{self.said} is of type {t.type_name(self.type)}"

    @property
    def maybe_nan(self) -> bool:
        """Whether it can be NaN, or an infinity."""
        return t.is_float(self.type) and self.constant is None


def constant_bound(constant: Constant) -> Bound:
    """A constant.

    Examples:
        >>> constant_bound(Constant(5, "long")).type
        DataType(int64)
    """
    dtype = _TYPES[constant.type]
    return Bound(literal(constant.value, dtype), dtype, str(constant), constant)


def literal(value: Any, dtype: pa.DataType) -> nw.Expr:
    """A constant of a type, which may be null."""
    if dtype == t.NULL:
        return nw.lit(None)
    if dtype in {t.BOOLEAN, t.TEXT, t.DOUBLE} and value is not None:
        return nw.lit(value)
    return nw.lit(value, t.narwhals_type(dtype))


def as_type(bound: Bound, dtype: pa.DataType) -> nw.Expr:
    """Its values in another type that holds them: null in any, a number in a wider one."""
    if bound.constant is not None and dtype != t.NULL:
        return literal(converted(bound.constant.value, dtype), dtype)
    if dtype in {bound.type, t.NULL}:
        return bound.value
    return bound.value.cast(t.narwhals_type(dtype))


def converted(value: Any, dtype: pa.DataType) -> Any:
    """A Python value as one of a type."""
    if value is None or isinstance(value, bool):
        return value
    if t.is_float(dtype):
        return float(value)
    if t.is_decimal(dtype):
        return Decimal(value)
    return value


def beside(bound: Bound, other: Bound, dtype: pa.DataType) -> nw.Expr:
    """The same as `as_type`; a constant takes the type of the other operand, which is quicker to plan."""
    constant, known = bound.constant, other.constant is None
    if constant is not None and known and t.is_integer(dtype) and isinstance(constant.value, int):
        return nw.lit(constant.value)
    return as_type(bound, dtype)


def is_finite(value: object) -> bool:
    """Whether a number is neither NaN nor an infinity."""
    return not isinstance(value, float) or math.isfinite(value)
