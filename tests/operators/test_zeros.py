"""Signed zeros and NaNs with a payload: what is handed on is as it came; what stands for equals is one form."""

from __future__ import annotations

import struct
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g

ODD_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
VALUES = [0.0, -0.0, ODD_NAN, 1.0]
HANDED_ON = {
    "all": g.collect_list("v"),
    "second": g.nth("v", 1),
    "greatest": g.top("v", 3),
    "least": g.bottom("v", 2),
}


def bits(value: Any) -> Any:
    if isinstance(value, list):
        return [bits(each) for each in value]
    return struct.pack(">d", value).hex() if isinstance(value, float) else value


def of(values: list[float]) -> g.Stream:
    return g.events(pa.table({"at": [5] * len(values), "v": pa.array(values, pa.float64())}), start="at", unit="s")


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_what_is_handed_on_is_as_it_came_in_one_order(device: str) -> None:
    expected = {
        "all": [-0.0, 0.0, 1.0, ODD_NAN],
        "second": 0.0,
        "greatest": [ODD_NAN, 1.0, -0.0],
        "least": [-0.0, 0.0],
    }
    for values in [*permutations(VALUES)][::5]:
        query = of(list(values)).tumbling("1min").agg(**HANDED_ON)
        (row,) = query.collect(device=device).drop_columns(["start", "end"]).to_pylist()
        assert bits(list(row.values())) == bits(list(expected.values()))
        with query.start(device=device) as live:
            for value in values:
                live.push({"at": [5], "v": [value]})
        (row,) = live.results().drop_columns(["start", "end"]).to_pylist()
        assert bits(list(row.values())) == bits(list(expected.values()))


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("value", [-0.0, ODD_NAN])
def test_rows_that_stay_are_as_they_came(device: str, value: float) -> None:
    stream = of([value])
    lasting = stream.set_duration("1s")
    for query in (
        stream.select("v"),
        stream.last(1).rows(),
        stream.tumbling("1min").top(1, by="v"),
        lasting.join(lasting.select("v", w="v"), on="v"),
        lasting.asof_join(lasting.select("v", w="v"), on="v"),
        stream.union(stream).filter(g.col("v").is_null() | True),
    ):
        answer = query.collect(device=device)
        assert {bits(each) for each in answer["v"].to_pylist()} == {bits(value)}
        assert {bits(each) for each in answer["w" if "w" in answer.column_names else "v"].to_pylist()} == {bits(value)}


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(("value", "form"), [(-0.0, 0.0), (ODD_NAN, float("nan"))])
def test_what_stands_for_equal_values_is_one_form(device: str, value: float, form: float) -> None:
    stream = of([value])
    chosen = (g.min, g.max, g.first, g.last, g.mode)
    made = stream.tumbling("1min").agg(
        **{each.__name__: each("v") for each in chosen},
        least=g.arg_min("v", by="v"),
        middle=g.quantile("v", 0.5, interpolation="lower"),
        all=g.collect_set("v"),
    )
    (row,) = made.collect(device=device).drop_columns(["start", "end"]).to_pylist()
    assert bits(list(row.values())) == bits([form] * 7 + [[form]])
    for query in (stream.by("v").tumbling("1min").agg(n=g.count()), stream.distinct("v"), stream.stitch()):
        assert bits(query.collect(device=device)["v"].to_pylist()) == [bits(form)]


def test_equal_values_are_one_key_and_one_value() -> None:
    stream = of([0.0, -0.0, ODD_NAN, float("nan")])
    assert stream.by("v").tumbling("1min").agg(n=g.count()).collect().num_rows == 2
    assert stream.tumbling("1min").agg(n=g.count_distinct("v")).collect()["n"].to_pylist() == [2]
    assert stream.join(stream.select("v", w="v"), on="v").collect().num_rows == 8
