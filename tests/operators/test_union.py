from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.join_reference import union
from tests.support.reference import NEVER, Event
from tests.support.rows import stream, to_table
from tests.support.timeline import timeline
from tests.support.two_streams import BASES, LEFT, Events, check, events


def test_all_events_of_all(device_name: str) -> None:
    one = timeline("""
        a: [===)
        b:   [===>
    """)
    two = timeline("""
        a: [===)
        c:     *
    """)
    together = timeline("""
        a: [===)
        a: [===)
        b:   [===>
        c:     *
    """)
    check(stream(one).union(stream(two)), device_name, together)


def test_columns_go_together_by_name(device_name: str) -> None:
    one = stream([Event(0, 1, {"a": 1, "b": "x"})])
    two = stream([Event(1, 2, {"b": "y", "a": 2})])
    asked = one.union(two)
    assert asked.schema.names == ["a", "b"]
    check(asked, device_name, [Event(0, 1, {"a": 1, "b": "x"}), Event(1, 2, {"a": 2, "b": "y"})])


WIDER = [
    (pa.int32(), pa.int64(), pa.int64(), 7),
    (pa.int64(), pa.int8(), pa.int64(), 7),
    (pa.uint8(), pa.int8(), pa.int16(), 7),
    (pa.float32(), pa.float64(), pa.float64(), 0.5),
    (pa.null(), pa.string(), pa.string(), None),
    (pa.decimal128(9, 2), pa.decimal128(9, 2), pa.decimal128(9, 2), Decimal("1.25")),
]


@pytest.mark.parametrize(("one", "two", "both", "value"), WIDER, ids=str)
def test_types_become_one_that_holds_all(
    device_name: str, one: pa.DataType, two: pa.DataType, both: pa.DataType, value: Any
) -> None:
    left = stream([Event(0, 1, {"v": value})], pa.schema([("v", one)]))
    right = stream([Event(1, 2, {"v": value})], pa.schema([("v", two)]))
    asked = left.union(right)
    assert asked.schema.field("v").type == both
    check(asked, device_name, [Event(0, 1, {"v": value}), Event(1, 2, {"v": value})])


def test_three_streams_of_three_widths(device_name: str) -> None:
    """The last one is the widest: those before it follow."""
    types = [pa.int8(), pa.int16(), pa.int64()]
    first, *others = (stream([Event(0, 1, {"v": 1})], pa.schema([("v", dtype)])) for dtype in types)
    asked = first.union(*others)
    assert asked.schema.types == [pa.int64()]
    check(asked, device_name, [Event(0, 1, {"v": 1})] * 3)


@pytest.mark.parametrize("dtype", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_texts_go_together_however_they_are_held(device_name: str, dtype: pa.DataType) -> None:
    plain = stream([Event(0, 1, {"k": "a"})])
    held = stream([Event(1, 2, {"k": "b"}), Event(1, 2, {"k": None})], pa.schema([("k", dtype)]))
    expected = [Event(0, 1, {"k": "a"}), Event(1, 2, {"k": "b"}), Event(1, 2, {"k": None})]
    check(plain.union(held), device_name, expected)
    check(held.union(plain), device_name, expected)


def test_a_stream_with_itself_and_with_nobody(device_name: str) -> None:
    some = timeline("a: [==)")
    asked = stream(some)
    check(asked.union(asked, asked), device_name, some * 3)
    check(asked.union(), device_name, some)


def test_points_and_intervals(device_name: str) -> None:
    points = g.events(pa.table({"at": [3], "v": [1]}), start="at", unit="us")
    long = stream([Event(0, 9, {"v": 2})])
    check(points.union(long), device_name, [Event(3, 4, {"v": 1}), Event(0, 9, {"v": 2})])
    check(points.union(points).snapshot().agg(n=g.count()), device_name, [Event(3, 4, {"n": 2})])


# Points are given their ends while they are checked, where nothing comes between the source and the answer.
def test_points_pass_as_they_are(device_name: str) -> None:
    whole = g.events(pa.table({"at": [3, 1], "v": [7, 8]}), start="at", unit="us")
    bad = g.events(pa.table({"at": [None, 5], "v": [9, 10]}), start="at", unit="us", on_invalid="drop")
    empty = g.events(pa.table({"at": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}), start="at", unit="us")
    both = whole.by("v").union(bad, empty)
    for points, starts, lasts in (
        (both, [3, 1, 5], 1),
        (both.union(whole), [3, 1, 5, 3, 1], 1),
        (both.union(whole.filter(g.col("v") == 8).select("v")), [3, 1, 5, 1], 1),
        (both.union(whole.shift("2us")), [3, 1, 5, 5, 3], 1),
        (both.extend("2us"), [3, 1, 5], 3),
    ):
        table = points.collect(device=device_name)
        assert table["start"].cast(pa.int64()).to_pylist() == starts
        assert table["end"].cast(pa.int64()).to_pylist() == [start + lasts for start in starts]


def test_another_set_of_columns_is_refused() -> None:
    one = stream([], pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    with pytest.raises(ColumnError, match=r"Stream 2 .*lacks.*column 'b'"):
        one.union(stream([], pa.schema([("a", pa.int64())])))
    with pytest.raises(ColumnError, match=r"Stream 3 .*that the first lacks.*column 'c'"):
        one.union(one, one.with_columns(c=g.col("a")))


@pytest.mark.parametrize("dtype", [pa.string(), pa.float64(), pa.uint64(), pa.timestamp("us")], ids=str)
def test_types_without_one_that_holds_both_are_refused(dtype: pa.DataType) -> None:
    one, two = stream([], pa.schema([("v", pa.int64())])), stream([], pa.schema([("v", dtype)]))
    with pytest.raises(ColumnError, match=r"int64.*column 'v'.*Cast"):
        one.union(two)


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(PlanError, match="events"):
        stream([], LEFT).union(to_table([], LEFT))


@given(data=st.data())
def test_every_union_is_the_brute_forces(device_name: Any, data: st.DataObject) -> None:
    base = data.draw(BASES)
    parts: list[Events] = data.draw(st.lists(events(base, LEFT, most=4), min_size=1, max_size=4))
    first, *others = (stream(part, LEFT) for part in parts)
    check(first.union(*others), device_name, union(*parts))
    busy = first.union(*others).filter(g.col("v") > 1).select("v")
    expected = [Event(e.start, e.end, {"v": e.payload["v"]}) for e in union(*parts) if (e.payload["v"] or 0) > 1]
    check(busy, device_name, expected)


def test_a_union_at_the_end_of_time(device_name: str) -> None:
    ever = stream([Event(NEVER - 1, NEVER, {"v": 1})])
    check(
        ever.union(ever).by("v").snapshot().agg(n=g.count()), device_name, [Event(NEVER - 1, NEVER, {"v": 1, "n": 2})]
    )
