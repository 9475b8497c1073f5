"""Forms of expressions for cuDF: over Arrow, which compares as IEEE 754 does, they give what Polars gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.operators.cudf_expressions import cudf_form, steps_on

NAN, INF = math.nan, math.inf
ROWS = [(x, y) for x in (1.5, NAN, None, INF) for y in (1.5, 2.0, NAN, None)]
TABLE = pa.table(
    {
        "x": pa.array([x for x, _ in ROWS], pa.float64()),
        "y": pa.array([y for _, y in ROWS], pa.float64()),
        "n": pa.array([None, 1, 2, 3] * 4, pa.int64()),
        "p": [None if n % 3 == 2 else n % 3 == 1 for n in range(16)],
        "q": [None if n // 3 % 3 == 2 else n // 3 % 3 == 1 for n in range(16)],
    }
)
COLUMNS = SimpleNamespace(POLARS=False, structs=lambda frame, name: pl.DataFrame({name: frame.to_struct()}))
ELSEWHERE: Any = SimpleNamespace(columns=COLUMNS)
x, y, n, p, q = (g.col(name) for name in TABLE.column_names)

FORMS = [
    x == y,
    x != y,
    x < y,
    x <= y,
    x > y,
    x >= y,
    x > 1.5,
    x >= 1.5,
    x < 1.5,
    x <= 1.5,
    x != 1.5,
    x > 2,
    x == nw.lit(NAN),
    x >= nw.lit(NAN),
    x > n,
    x >= n,
    n < x,
    n <= x,
    n >= x,
    x.is_null(),
    ~y.is_null() & (x > y),
    nw.coalesce(x, y),
    x.fill_null(y),
    x.fill_null(0.0),
    x.is_nan(),
    x.is_finite(),
    x.fill_nan(None),
    x.fill_nan(7.5),
    p & q,
    p | q,
    (p | q) & ~p,
    nw.all_horizontal(p, q, x > y, ignore_nulls=False),
    nw.any_horizontal(p, q, x > y, ignore_nulls=False),
    nw.when(p).then(None).otherwise(n),
    nw.when(p).then(nw.lit(NAN)).otherwise(x),
    nw.when(p).then(x).otherwise(nw.lit(NAN, nw.Float64)),
    n + nw.lit(NAN),
    nw.when(p).then(nw.lit(None, nw.Boolean)).otherwise(nw.when(q).then(x > y).otherwise(nw.lit(None, nw.Boolean))),
    nw.when(p).then(n).otherwise(None),
    nw.when(p & q).then(nw.lit(None).cast(nw.Float64)).otherwise(n),
]


def evaluated(frame: Any, expression: nw.Expr) -> list[str]:
    made = nw.from_native(frame).select(r=expression)["r"].to_list()
    return [repr(each) for each in made]


@pytest.mark.parametrize("expression", FORMS, ids=repr)
def test_a_form_gives_over_arrow_what_the_expression_gives_over_polars(expression: nw.Expr) -> None:
    form = cudf_form(expression, TABLE.schema).expression
    assert evaluated(TABLE, form) == evaluated(pl.DataFrame(TABLE), expression)


def test_structs_are_made_beside_the_frame() -> None:
    """Of frames, as Narwhals makes none of cuDF's columns; Polars makes them of frames too."""
    inner = nw.struct(n, (x + 1).alias("more"))
    steps: list[Callable[[Any], Any]] = [
        lambda frame: frame.with_columns(s=inner, t=nw.struct(inner.alias("in"), nw.lit(7).alias("seven"))),
        lambda frame: frame.with_columns(
            *(nw.struct(nw.lit(each).alias("one"), n).alias(name) for name, each in (("a", 1), ("b", "1"), ("c", True)))
        ),
        lambda frame: frame.filter(nw.struct(n, p).struct.field("n") > 1),
        lambda frame: frame.select(
            "s", "a", "b", "c", g.col("t").struct.field("seven"), u=nw.when(p).then(nw.struct(q, y))
        ),
    ]
    frame: Any = nw.from_native(pl.DataFrame(TABLE))
    expected, found = frame, frame
    for step, made in zip(steps, steps_on(ELSEWHERE, steps), strict=True):
        expected, found = step(expected), made(found)
        assert list(found.schema.items()) == list(expected.schema.items())
    assert found.to_native().equals(expected.to_native(), null_equal=True)
    assert {type(each) for each in found["u"].to_list()} == {dict, type(None)}


def test_null_and_nan_are_told_apart_where_nan_counts_as_null() -> None:
    """As on cuDF: pandas' own floats have no null but NaN."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.5, NAN]})
    form = cudf_form(x.is_null(), pa.schema([("x", pa.float64())])).expression
    assert evaluated(frame, form) == ["False", "False"]


def test_what_holds_no_floats_stays_as_it_is() -> None:
    for expression in (n > 1, n.is_null(), n.fill_null(0) + 1):
        assert repr(cudf_form(expression, TABLE.schema).expression) == repr(expression)
