"""Events that are there several times: what the brute force says, on every device, and live."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError
from tests.support.cuts import in_any_cut
from tests.support.examples import examples
from tests.support.reference import NEVER, Event
from tests.support.rows import check, rows, stream, to_table

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
EVENTS = st.lists(
    st.builds(
        lambda start, length, k, n: Event(start, NEVER if length is None else start + length, {"k": k, "n": n}),
        st.integers(0, 20),
        st.none() | st.integers(1, 9),
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(-2, 4),
    ),
    max_size=9,
)


@examples(30, dear=True)
@given(events=EVENTS, chance=st.randoms(use_true_random=False))
def test_each_is_there_as_often_as_it_says(device_name: str, events: list[Event], chance: random.Random) -> None:
    expected = [event for event in events for _ in range(max(0, event.payload["n"] or 0))]
    query = stream(events, SCHEMA).repeat("n")
    check(query, device_name, expected)
    assert rows(in_any_cut(query, to_table(events, SCHEMA), device_name, chance)) == rows(expected)


def test_how_often_may_be_computed(device_name: str) -> None:
    s = stream([Event(0, 5, {"v": 3}), Event(2, 3, {"v": 0})])
    check(s.repeat(g.col("v") - 1), device_name, [Event(0, 5, {"v": 3})] * 2)
    check(s.repeat(g.lit(2)).repeat(g.col("v")), device_name, [Event(0, 5, {"v": 3})] * 6)


def test_narrow_and_unsigned_numbers(device_name: str) -> None:
    for dtype in (pa.int8(), pa.uint8(), pa.uint64()):
        s = g.events(pa.table({"at": [0, 1], "n": pa.array([2, None], dtype)}), start="at", unit="us")
        assert s.repeat("n").collect(device=device_name)["n"].to_pylist() == [2, 2]


@pytest.mark.parametrize("times", [g.col("v") / 2, "k"])
def test_how_often_is_a_whole_number(times: object) -> None:
    s = stream([Event(0, 1, {"v": 1, "k": "a"})])
    with pytest.raises(ColumnError, match="whole number"):
        s.repeat(times)  # type: ignore[arg-type]
