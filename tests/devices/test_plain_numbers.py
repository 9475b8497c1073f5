"""Expressions over whole numbers by NumPy give what Polars gives, in values and in type."""

from __future__ import annotations

import math
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices.cpu import plain_numbers as module
from gpu_ops.devices.cpu.plain_numbers import plain_numbers

LEAST, MOST, NAN = -(1 << 63), (1 << 63) - 1, math.nan

LITERALS = st.integers(-4, 4) | st.sampled_from([LEAST, MOST, 1 << 31, -(1 << 31) - 1])
FLOATS = st.sampled_from([-4.0, -0.5, -0.0, 0.5, 3.0, 2.0**53 - 1, 1 - 2.0**53])
COLUMNS = st.sampled_from(["a", "b"]).map(nw.col)


def numbers(depth: int) -> st.SearchStrategy[nw.Expr]:
    """Expressions whose values are numbers, at most so many functions deep."""
    if not depth:
        return COLUMNS
    one = numbers(depth - 1)
    return (
        COLUMNS
        | st.builds(lambda one, other: one + other, one, one | LITERALS)
        | st.builds(lambda one, other: one - other, one, one | LITERALS.map(nw.lit))
        | st.builds(lambda one, other: one * other, one, one | LITERALS)
        | st.builds(lambda one, other: other - one, one, LITERALS)
        | st.builds(lambda one, by: one % by, one, st.integers(1, 5) | st.just(MOST))
        | st.builds(lambda one: -one, one)
        | st.builds(lambda one, value: one.fill_null(value), one, LITERALS)
        | st.builds(lambda one: one.cast(nw.Int64), one)
        | st.builds(lambda flag, one, other: nw.when(flag).then(one).otherwise(other), flags(depth - 1), one, one)
    )


def flags(depth: int) -> st.SearchStrategy[nw.Expr]:
    """Conditions."""
    one = numbers(depth)
    compared = (
        st.builds(lambda one, other: one < other, one, one | LITERALS)
        | st.builds(lambda one, other: one >= other, one, one | LITERALS.map(nw.lit))
        | st.builds(lambda one, other: one == other, one, one | LITERALS)
        | st.builds(lambda one, other: (one <= other) & (one != other), one, LITERALS)
        | st.builds(lambda one, than: one.cast(nw.Float64) < than, one, FLOATS)
        | st.builds(lambda one, than: one.cast(nw.Float64) <= than, one, FLOATS)
        | st.builds(lambda one, than: one.cast(nw.Float64) > than, one, FLOATS | FLOATS.map(nw.lit))
        | st.builds(lambda one, than: one.cast(nw.Float64) > nw.lit(than, nw.Float64), one, FLOATS)
        | st.builds(lambda one, than: one.cast(nw.Float64) >= than, one, FLOATS)
        | st.builds(lambda one, among: one.is_in(among), one, st.lists(LITERALS, min_size=1, max_size=4))
    )
    if not depth:
        return compared
    flag = flags(depth - 1)
    return (
        compared
        | st.builds(lambda one, other: one | ~other, flag, flag)
        | st.builds(lambda one, value: one.fill_null(value), flag, st.booleans())
        | st.builds(lambda one, other: nw.all_horizontal(one, other, ignore_nulls=False), flag, flag)
        | st.builds(lambda one, other: nw.any_horizontal(one, other, ignore_nulls=False), flag, flag)
    )


VALUES = st.integers(-5, 5) | st.sampled_from([LEAST, MOST, LEAST + 1, (1 << 53) - 1, (1 << 53) + 1, -(1 << 53)])


@pytest.mark.parametrize("piece", [2, 1 << 13])
@given(
    expression=numbers(3).map(lambda each: each * 3) | flags(2),
    rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5),
)
def test_values_and_types_are_those_of_polars(piece: int, expression: nw.Expr, rows: list[tuple[int, int]]) -> None:
    columns = {name: np.array([row[at] for row in rows], np.int64) for at, name in enumerate("ab")}
    wanted = nw.from_native(pl.DataFrame(columns)).select(expression.alias("x")).to_native()["x"]
    plain = plain_numbers(expression.alias("y"))
    assert plain is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        found = plain.over(columns)
    assert pl.Series("x", found).equals(wanted, check_dtypes=True)


@pytest.mark.parametrize(
    "expression",
    [
        nw.lit(1),
        nw.col("a", "b") + 1,
        nw.col("a") / 2,
        nw.col("a") // 2,
        nw.col("a") % 0,
        nw.col("a") % -2,
        nw.col("a") % nw.col("b"),
        nw.col("a") < 0.5,
        nw.col("a") < (1 << 63),
        nw.col("a") + True,
        nw.col("a") & nw.col("b"),
        nw.col("a") < nw.lit(1, nw.Int8),
        nw.when(nw.col("a") < 1).then(nw.lit(1)).otherwise(nw.lit(2)),
        nw.when(nw.col("a") < 1).then(nw.col("a")),
        nw.col("a").is_null(),
        nw.col("a").cast(nw.Int32) + 1,
        nw.lit(1).cast(nw.Int64) + nw.col("a"),
        nw.col("a").cast(nw.Float64),
        nw.col("a").cast(nw.Float64) + 1,
        nw.col("a").cast(nw.Float64).cast(nw.Int64),
        nw.col("a").cast(nw.Float64) == 2.0,
        nw.col("a").cast(nw.Float64) < 2.0**53,
        nw.col("a").cast(nw.Float64) < NAN,
        nw.col("a").cast(nw.Float64) < math.inf,
        nw.col("a").cast(nw.Float64).is_in([1.0]),
        nw.col("a").cast(nw.Float64).fill_null(0),
        nw.col("a").cast(nw.Float64).is_between(0, 1),
        nw.col("a").cast(nw.Float64).alias("b"),
        nw.col("a").cast(nw.Float64) < nw.col("b"),
        nw.col("a").cast(nw.Float64) < True,
        nw.col("a").cast(nw.Float64) < nw.lit(7.1, nw.Float32),
        (nw.col("a") < 1).cast(nw.Int64),
        (nw.col("a") < 1).fill_null(1),
        nw.col("a").fill_null(0.5),
        nw.col("a").fill_null(True),
        nw.col("a").fill_null(1 << 63),
        nw.col("a").fill_null(nw.col("b")),
        nw.col("a").fill_null(strategy="forward"),
        nw.col("a").is_in([]),
        nw.col("a").is_in([1, None]),
        nw.col("a").is_in([1, 2.5]),
        nw.col("a").is_in([1, 2, 3, 4, 5]),
        (nw.col("a") < 1).is_in([True]),
    ],
    ids=repr,
)
def test_all_else_is_left_to_polars(expression: Any) -> None:
    assert plain_numbers(expression) is None


def test_a_part_that_stands_there_twice_is_computed_once() -> None:
    twice = nw.col("a") * 2
    plain = plain_numbers((twice < 5) | (twice > 9))
    assert plain is not None
    assert len(plain._steps) == 4


def test_where_nothing_is_null_a_column_is_itself() -> None:
    plain, column = plain_numbers(nw.col("a").fill_null(0)), np.array([3])
    assert plain is not None
    assert plain.over({"a": column}) is column


def test_numbers_that_are_compared_for_being_the_same_may_be_narrow() -> None:
    plain = plain_numbers(nw.col("a").is_in([3, 300]) | (nw.col("b") < 1))
    assert plain is not None
    assert plain.read == {"a", "b"}
    assert plain.wide == {"b"}
    assert plain.over({"a": np.array([3, 4], np.int8), "b": np.array([1, 1])}).tolist() == [True, False]
