from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError
from tests.support.join_reference import distinct
from tests.support.reference import FIRST_TIME, NEVER, Event
from tests.support.rows import stream
from tests.support.timeline import timeline
from tests.support.two_streams import BASES, LEFT, RIGHT, Events, check, events


def test_each_value_once_as_long_as_can_be(device_name: str) -> None:
    """Overlapping, touching and equal lifetimes become one; a gap parts them."""
    rides = timeline(
        """
        a: [==)   [==)
        a:  [===|=)  [=)
        a: [==)
        b:     [)  [)
        b:       *
        """
    )
    there = timeline(
        """
        a: [===========)
        b:     [)* [)
        """
    )
    check(stream(rides).distinct("name"), device_name, there)


def test_an_event_that_never_ends(device_name: str) -> None:
    rides = timeline("a: [==)  [==>\na:  [=)    [==)")
    check(stream(rides).distinct("name"), device_name, timeline("a: [==)  [==>"))


def test_these_columns_alone(device_name: str) -> None:
    rides = [
        Event(0, 4, {"zone": "a", "kind": 1, "v": 1}),
        Event(2, 6, {"zone": "a", "kind": 1, "v": 2}),
        Event(2, 6, {"zone": "a", "kind": 2, "v": 3}),
    ]
    asked = stream(rides)
    check(asked.distinct("zone"), device_name, [Event(0, 6, {"zone": "a"})])
    both = [Event(0, 6, {"kind": 1, "zone": "a"}), Event(2, 6, {"kind": 2, "zone": "a"})]
    assert asked.distinct("kind", "zone").schema.names == ["kind", "zone"]
    check(asked.distinct("kind", "zone"), device_name, both)
    check(asked.distinct(), device_name, rides)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_null_is_a_value_and_nans_and_zeros_are_one_each(device_name: str, kind: pa.DataType) -> None:
    values = [None, math.nan, -math.nan, 0.0, -0.0, None]
    rides = [Event(at, at + 2, {"x": value}) for at, value in enumerate(values)]
    expected = [
        Event(0, 2, {"x": None}),
        Event(1, 4, {"x": math.nan}),
        Event(3, 6, {"x": 0.0}),
        Event(5, 7, {"x": None}),
    ]
    check(stream(rides, pa.schema([("x", kind)])).distinct("x"), device_name, expected)


def test_all_of_time_and_no_events(device_name: str) -> None:
    ever = [Event(FIRST_TIME, 0, {"k": 1}), Event(0, NEVER, {"k": 1})]
    check(stream(ever).distinct("k"), device_name, [Event(FIRST_TIME, NEVER, {"k": 1})])
    check(stream([], LEFT).distinct("k", "x"), device_name, [])


def test_types_stay(device_name: str) -> None:
    dtype = pa.dictionary(pa.int8(), pa.string())
    asked = stream([Event(0, 2, {"k": "a"}), Event(1, 3, {"k": "a"})], pa.schema([("k", dtype)])).distinct("k")
    assert asked.schema.types == [dtype]
    check(asked, device_name, [Event(0, 3, {"k": "a"})])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ColumnError, match=r"no such column.*'q'"):
        stream([], LEFT).distinct("q")
    nested = stream([], pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))]))
    with pytest.raises(ColumnError, match="'v'"):
        nested.distinct("k", "v")
    with pytest.raises(ColumnError, match="'v'"):
        nested.distinct()


def test_how_many_are_there(device_name: str) -> None:
    """What it is for: a count of values, not of events."""
    rides = timeline("a: [===)\na:   [===)\nb:    [=)")
    kinds = stream(rides).distinct("name").snapshot().agg(n=g.count())
    check(kinds, device_name, timeline("1: [==) [)\n2:    [=)", label="n"))


@given(data=st.data())
def test_every_distinct_is_the_brute_forces(device_name: Any, data: st.DataObject) -> None:
    drawn: Events = data.draw(BASES.flatmap(lambda base: events(base, RIGHT, most=12)))
    columns = data.draw(st.lists(st.sampled_from(RIGHT.names), min_size=1, max_size=3, unique=True))
    check(stream(drawn, RIGHT).distinct(*columns), device_name, distinct(drawn, columns))
