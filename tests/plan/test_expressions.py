"""What the plan sees inside Narwhals' expressions; fails when Narwhals changes its inner nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.plan.expressions import bare_column, check_row_wise, column_names, output_schema

SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.float64()), ("s", pa.string()), ("d", pa.dictionary(pa.int8(), pa.string()))]
)

ROW_WISE = {
    "column": nw.col("a"),
    "literal": nw.lit(1),
    "arithmetic": nw.col("a") * 2 + nw.col("b"),
    "comparison": (nw.col("a") > 1) & ~nw.col("b").is_null(),
    "membership": nw.col("s").is_in(["x", "y"]),
    "conditional": nw.when(nw.col("a") > 1).then(nw.col("b")).otherwise(nw.lit(0.0)),
    "text": nw.col("s").str.to_uppercase(),
    "cast": nw.col("a").cast(nw.Float64).alias("c"),
    "horizontal": nw.sum_horizontal("a", "b"),
    "lifetime": nw.col("end") - nw.col("start"),
}

NOT_ROW_WISE = {
    "aggregate": nw.col("a").mean(),
    "aggregate inside": nw.col("a") - nw.col("a").min(),
    "aggregate in a branch": nw.when(nw.col("a") > nw.col("a").max()).then(nw.lit(1)).otherwise(nw.lit(0)),
    "cumulative": nw.col("a").cum_sum(),
    "shift": nw.col("a").shift(1),
    "rank": nw.col("a").rank(),
    "over": nw.col("a").sum().over("s"),
    "length": nw.len(),
    "fill from neighbours": nw.col("a").fill_null(strategy="forward"),
    "any function": nw.col("a").map_batches(lambda series: series),
}


@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise_expressions_pass(name: str) -> None:
    check_row_wise(ROW_WISE[name], where="filter")


@pytest.mark.parametrize("name", NOT_ROW_WISE)
def test_expressions_that_look_at_other_rows_are_refused(name: str) -> None:
    with pytest.raises(g.PlanError, match="other rows"):
        check_row_wise(NOT_ROW_WISE[name], where="filter")


def test_columns_that_are_read() -> None:
    known = ["a", "b", "c", "s"]
    assert column_names(nw.col("a") + nw.col("b"), known) == ["a", "b"]
    assert column_names(nw.when(nw.col("s") == "x").then(nw.col("a")), known) == ["a", "s"]
    assert column_names(nw.sum_horizontal("a", "c"), known) == ["a", "c"]
    assert column_names(nw.all(), known) == known
    assert column_names(nw.lit(1), known) == []


def test_bare_column() -> None:
    assert bare_column(nw.col("a")) == "a"
    assert bare_column(nw.col("a", "b")) is None
    assert bare_column(nw.col("a").alias("b")) is None
    assert bare_column(nw.col("a") + 1) is None


def test_types_of_what_is_computed() -> None:
    made = output_schema(
        SCHEMA,
        [nw.col("d"), (nw.col("a") * 2).alias("twice"), nw.col("s").str.to_uppercase().alias("u")],
        where="select",
        only_columns=True,
    )
    assert made == pa.schema([("d", SCHEMA.field("d").type), ("twice", pa.int32()), ("u", pa.string())])


def test_untouched_columns_keep_their_declared_types() -> None:
    made = output_schema(SCHEMA, [(nw.col("b") + 1).alias("c")], where="with_columns", only_columns=False)
    assert made == pa.schema([*SCHEMA, ("c", pa.float64())])


def test_types_that_do_not_fit_are_refused_when_the_plan_is_made() -> None:
    with pytest.raises(g.PlanError, match="does not fit"):
        output_schema(SCHEMA, [nw.col("s") - nw.col("a")], where="select", only_columns=True)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        (lambda v: v / 3, 5, 5 / 3),
        (lambda v: v / nw.lit(3), 5.0, 5 / 3),
        (lambda v: v // 0.2, 0.6, 0.6 // 0.2),
        (lambda v: v % 0.2, 0.6, 0.6 % 0.2),
        (lambda v: (v / 3).abs() + v / 7, -5, 5 / 3 - 5 / 7),
        (lambda v: nw.when(v / 3 >= 5 / 3).then(v / 100).otherwise(0.0), 5, 0.05),
        (lambda v: 7 / v, 3, 7 / 3),
        (lambda v: v / nw.coalesce(nw.lit(49.0), nw.lit(1.0)), 5 / 7, 5 / 7 / 49),
        (lambda v: v / (nw.lit(48.0) + 1), 5 / 7, 5 / 7 / 49),
        (lambda v: v / nw.lit(49).cast(nw.Float64), 5 / 7, 5 / 7 / 49),
        (lambda v: v / nw.when(v > 0).then(nw.lit(49.0)), 5 / 7, 5 / 7 / 49),
        (lambda v: v / 300, 5 / 7, 5 / 7 / 300),
        (lambda v: v / -0.0, 5.0, -math.inf),
        (lambda v: v / 0.0, 5.0, math.inf),
        (lambda v: v / nw.coalesce(nw.lit(0.0), nw.lit(1.0)), 5.0, math.inf),
        (lambda v: v / (nw.lit(-1.0) * 0.0), 5.0, -math.inf),
        (lambda v: v / 2, Decimal("0.04"), Decimal("0.02")),
    ],
)
def test_a_quotient_is_the_nearest_float_in_any_number_of_rows(
    expression: Callable[[nw.Expr], nw.Expr], value: Any, expected: Any, count: int
) -> None:
    table = pa.table({"at": range(count), "v": [value] * count})
    stream = g.events(table, start="at", unit="s").select(q=expression(g.col("v")))
    assert stream.collect(device="cpu")["q"].to_pylist() == [expected] * count
    live = stream.start(device="cpu")
    live.push(table.slice(0, 1))
    assert live.results()["q"].to_pylist() == [expected]


@pytest.mark.parametrize("divisor", [nw.lit(49.0), nw.lit(49), nw.when(nw.col("v") > 0).then(nw.lit(49.0))])
def test_a_quotient_by_a_selected_constant_is_the_nearest_float(divisor: nw.Expr) -> None:
    values = [number / 7 for number in range(1, 100)]
    stream = g.events(pa.table({"at": range(len(values)), "v": values}), start="at", unit="s")
    made = stream.with_columns(c=divisor).with_columns(d=g.col("c") * 1).select(q=g.col("v") / g.col("d"))
    assert made.collect(device="cpu")["q"].to_pylist() == [each / 49 for each in values]


def test_a_quotient_of_float32_by_a_literal_is_one_of_float32() -> None:
    values = np.arange(1, 100, dtype=np.float32) / np.float32(7)
    stream = g.events(pa.table({"at": range(len(values)), "v": values}), start="at", unit="s")
    made = stream.select(q=g.col("v") / 49.0).collect(device="cpu")["q"]
    assert made.type == pa.float32()
    assert made.to_pylist() == (values / np.float32(49)).tolist()


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("dtype", [pa.int8(), pa.int64(), pa.uint8(), pa.uint64()])
def test_whole_numbers_by_zero_are_null(dtype: pa.DataType, device: str) -> None:
    columns = {"at": [0, 1, 2], "v": pa.array([7, 0, None], dtype), "zero": pa.array([0, 0, 0], dtype)}
    stream = g.events(pa.table(columns), start="at", unit="s")
    by_zero = stream.select(
        a=g.col("v") // 0,
        b=g.col("v") % 0,
        c=g.col("v") // g.col("zero"),
        d=g.col("v") % g.col("zero"),
        e=7 // g.col("zero"),
    )
    answer = by_zero.collect(device=device, exact=True)
    assert [answer[name].null_count for name in "abcde"] == [3] * 5


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint32()], ids=str)
@pytest.mark.parametrize("divisor", [1, 3, 7, 100])
def test_whole_numbers_over_a_literal_are_rounded_down_as_in_python(kind: pa.DataType, divisor: int) -> None:
    whole = [-128, -7, -1, 0, 1, 6, 127] if pa.types.is_signed_integer(kind) else [0, 1, 99, 2**32 - 1]
    table = pa.table({"v": pa.array([*whole, None], kind)})
    events = g.events(table.append_column("at", pa.array(range(len(table)))), start="at", unit="us")
    made = events.select(a=g.col("v") // divisor, b=g.col("v") % divisor).collect()
    assert made["a"].to_pylist() == [*(each // divisor for each in whole), None]
    assert made["b"].to_pylist() == [*(each % divisor for each in whole), None]
