"""The types that expressions give, function by function, are those that Polars gives the whole expressions."""

from __future__ import annotations

import datetime as dt
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.plan.expression_types import type_of

TYPES: dict[str, pl.DataType] = {
    "i8": pl.Int8(),
    "i32": pl.Int32(),
    "i64": pl.Int64(),
    "u8": pl.UInt8(),
    "u64": pl.UInt64(),
    "f32": pl.Float32(),
    "f64": pl.Float64(),
    "d": pl.Decimal(20, 2),
    "b": pl.Boolean(),
    "s": pl.String(),
    "t": pl.Datetime("us", "UTC"),
    "p": pl.Duration("us"),
    "e": pl.Enum(["x", "y"]),
    "r": pl.Struct({"v": pl.Int8(), "s": pl.String()}),
}
CONSTANTS: tuple[Any, ...] = (
    *(0, 1, -1, 127, 128, -129, 1 << 31, -(1 << 31), 1 << 40, 1 << 63, 1 << 65, True, None, 1.5, 2.0, float("nan")),
    *("x", "z", "", dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.timedelta(days=1)),
)
LITERALS = [nw.lit(each) for each in CONSTANTS] + [nw.lit(each, nw.Int64) for each in (1, 1 << 40, 1 << 63, None, 1.5)]

WIDE: list[Any] = [nw.Int32, nw.Float64, nw.String]

LEAVES = st.sampled_from([*map(nw.col, TYPES), *LITERALS])
"""Columns and constants."""


def _deeper(below: st.SearchStrategy[nw.Expr]) -> st.SearchStrategy[nw.Expr]:
    names = ["add", "sub", "mul", "truediv", "floordiv", "mod", "gt", "eq"]
    binary = st.tuples(st.sampled_from([f"__{name}__" for name in names]), below, below)
    unary = st.sampled_from(["__invert__", "is_null", "abs"])
    return st.one_of(
        binary.map(lambda each: getattr(each[1], each[0])(each[2])),
        st.tuples(unary, below).map(lambda each: getattr(each[1], each[0])()),
        st.tuples(below, st.sampled_from(WIDE)).map(lambda each: each[0].cast(each[1])),
        st.tuples(below, below, below).map(lambda each: nw.when(each[0]).then(each[1]).otherwise(each[2])),
        st.tuples(below, below).map(lambda each: nw.coalesce(*each)),
        st.tuples(below, below).map(lambda each: nw.struct(each[0].alias("v"), each[1].alias("w"))),
        below.map(lambda each: each.struct.field("v")),
        st.tuples(below, below).map(lambda each: each[0].is_null() & (each[1] == 1)),
        below.map(lambda each: each.alias("named")),
        below.map(lambda each: each.is_in([1, 2])),
    )


@given(expression=st.recursive(LEAVES, _deeper, max_leaves=6))
def test_types_are_those_of_whole_expressions(expression: nw.Expr) -> None:
    found = type_of(expression, TYPES)
    if found is None:
        return
    try:
        made = nw.from_native(pl.DataFrame(schema=TYPES)).select(made=expression)
    except (nw.exceptions.NarwhalsError, pl.exceptions.PanicException):  # Polars compares no records with numbers
        return
    assert made.to_native().dtypes == [found]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (nw.col("i8") * 2 + 300, pl.Int16()),
        (nw.col("i64") * 2 + 300, pl.Int64()),
        (nw.when(nw.col("b")).then(1).otherwise(2) * nw.col("i8"), None),
        (nw.struct(nw.col("i8"), nw.col("s").alias("v")), pl.Struct({"i8": pl.Int8(), "v": pl.String()})),
        (nw.col("i64") > "x", None),
        (nw.col("unknown") + 1, None),
    ],
    ids=["a greater constant", "one that fits", "a choice of constants", "names", "other types", "no column"],
)
def test_what_is_known_without_asking(expression: nw.Expr, expected: pl.DataType | None) -> None:
    assert type_of(expression, TYPES) == expected
