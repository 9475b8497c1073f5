"""The rows of a group in one batch as one row.

row       0   1   2   3   4   5
k         a   b   a   a   b   a
v         5   7   6   1   2   9
due       10  10  10  10  20  20
merged    a: 5 + 6 + 1 x 3, b: 7 x 1 | b: 2 x 1, a: 9 x 1
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, PLACE
from gpu_ops.devices import choose
from gpu_ops.operators.deliveries import merged_rows
from gpu_ops.operators.deliveries.merged_rows import MergedRows, weights_of
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.deliveries import Delivered, Deliveries
from gpu_ops.plan.nodes import Feed
from tests.support.devices import HERE

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("w", pa.int32()),
        ("few", pa.bool_()),
        (CLOCK, TIME_TYPE),
        (PLACE, pa.int64()),
    ]
)
TICKS = Feed(pa.schema([(CLOCK, TIME_TYPE), (ASK, pa.bool_())]), (), 1)


def merging(*aggregates: Any, keys: tuple[str, ...] = ("k",), device: str = "cpu") -> MergedRows | None:
    named = tuple(Delivered(replace(each, name=f"{at}")) for at, each in enumerate(aggregates))
    return MergedRows.of(Deliveries(Feed(SCHEMA, (), 1), TICKS, "group", (keys,), named), choose(device))


def rows(values: list[int | None], device: str) -> AxisRows:
    own, count = choose(device), len(values)
    due = [10 if at < 4 else 20 for at in range(count)]
    frame = pa.table({"k": ["abaaba"[at % 6] for at in range(count)], "v": pa.array(values, pa.int64())})
    array = own.columns.array
    low, high = (array(np.array(each, np.int64)) for each in (range(count), due))
    return AxisRows(array(np.zeros(count, np.int32)), low, high, {}, own.columns.from_arrow(frame))


def shown(found: AxisRows, device: str) -> list[tuple[Any, ...]]:
    columns = choose(device).columns
    table = columns.to_arrow(found.frame, pa.schema([("k", pa.string()), ("v", pa.int64())]))
    arrays = [columns.host(each).tolist() for each in (found.low, found.high, weights_of(found))]
    return [*zip(table["k"].to_pylist(), table["v"].to_pylist(), *arrays, strict=True)]


@pytest.fixture(autouse=True)
def _of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_rows, "_FEW", 0)
    monkeypatch.setattr(merged_rows, "_SPARSE", 1)


@pytest.mark.parametrize("device", HERE)
def test_rows_of_a_group_and_a_batch_are_one(device: str) -> None:
    made = merging(g.count(), g.sum("v"), g.mean("v"), device=device)
    assert made is not None
    assert shown(made.merged(rows([5, 7, 6, 1, 2, 9], device)), device) == [
        ("a", 12, 0, 10, 3),
        ("b", 7, 1, 10, 1),
        ("b", 2, 4, 20, 1),
        ("a", 9, 5, 20, 1),
    ]


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("value", [None, 1 << 60, -(1 << 60), -(1 << 63)])
def test_rows_with_nulls_and_with_sums_past_64_bits_stay_as_they_are(value: int | None, device: str) -> None:
    made = merging(g.count(), g.sum("v"), device=device)
    assert made is not None
    given = rows([5, 7, value, 1, 2, 9], device)
    found = shown(made.merged(given), device)
    assert [each[1] for each in found] == [5, 7, value, 1, 2, 9]
    assert {each[-1] for each in found} == {1}


def test_few_rows_and_rows_of_many_groups_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = merging(g.count()), rows([5, 7, 6, 1, 2, 9], "cpu")
    assert made is not None
    assert len(made.merged(given)) == 4
    monkeypatch.setattr(merged_rows, "_SPARSE", 2)
    assert len(made.merged(given)) == 6
    monkeypatch.setattr(merged_rows, "_SPARSE", 1)
    monkeypatch.setattr(merged_rows, "_FEW", 6)
    assert len(made.merged(given)) == 6


def test_which_aggregates_take_merged_rows() -> None:
    made = merging(g.count(), g.sum("v"), g.mean("v"))
    assert made is not None
    assert made.sums == ("v",)
    for others in (
        [g.count("v")],
        [g.count(where=g.col("few"))],
        [g.sum("w")],
        [g.variance("v")],
        [g.sum("v", distinct=True)],
    ):
        assert merging(g.count(), *others) is None
    assert merging(g.sum("v"), keys=("v",)) is None


def test_weights_that_are_there_stay() -> None:
    made = merging(g.count())
    assert made is not None
    merged = made.merged(rows([5, 7, 6, 1, 2, 9], "cpu"))
    assert weights_of(made.weighed(merged)) is weights_of(merged)
    assert weights_of(rows([5], "cpu")) is None
