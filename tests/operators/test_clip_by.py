from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.examples import examples
from tests.support.join_reference import clip_by
from tests.support.reference import NEVER, Event
from tests.support.rows import stream
from tests.support.timeline import timeline
from tests.support.two_streams import KEYS, LEFT, RIGHT, Events, check, named, sides, streams


def test_the_first_later_start_ends_an_event(device_name: str) -> None:
    """What starts together with it, or is alive already, does not; nor does what starts when it is over."""
    rides = timeline("""
        a:   [======)
        a:     [====>
        a:        [=)
        b:  [====)
    """)
    calls = timeline("""
        a: [====)*     *
        a:   [)
        b:       *
    """)
    clipped = timeline("""
        a:   [===)
        a:     [=)
        a:        [=)
        b:  [====)
    """)
    check(stream(rides).clip_by(stream(calls), on="name"), device_name, clipped)


def test_without_a_key_every_later_start_ends_an_event(device_name: str) -> None:
    rides = timeline("a: [======)\nb:    [==)\nc: *")
    clipped = timeline("a: [==)\nb:    [==)\nc: *")
    check(stream(rides).clip_by(stream(timeline("x:    *", label="other"))), device_name, clipped)


def test_each_reading_lasts_until_the_next_of_its_sensor(device_name: str) -> None:
    """With itself: readings that come together end when the next comes, not one another."""
    readings = timeline(
        """
        a: [==>
        a:     [==>
        a:     [==>
        a:        [==>
        b:  [==>
        """
    )
    until = timeline(
        """
        a: [===)
        a:     [==)
        a:     [==)
        a:        [==>
        b:  [==>
        """
    )
    asked = stream(readings)
    check(asked.clip_by(asked, on="name"), device_name, until)


def test_nothing_ends_where_there_is_nothing(device_name: str) -> None:
    some = timeline("a: [==)", label="k")
    one, nothing = stream(some), stream([], pa.schema([("k", pa.string())]))
    check(one.clip_by(nothing, on="k"), device_name, some)
    check(nothing.clip_by(one, on="k"), device_name, [])


def test_points_stay_points(device_name: str) -> None:
    points = g.events(pa.table({"at": [1, 5]}).append_column("v", [[1, 2]]), start="at", unit="us")
    check(points.clip_by(points), device_name, [Event(1, 2, {"v": 1}), Event(5, 6, {"v": 2})])


def test_null_keys_end_nothing(device_name: str) -> None:
    left = [Event(0, 9, {"k": None}), Event(0, 9, {"k": 1})]
    right = [Event(4, 5, {"k": None}), Event(6, 7, {"k": 1})]
    expected = [Event(0, 9, {"k": None}), Event(0, 6, {"k": 1})]
    check(stream(left).clip_by(stream(right), on="k"), device_name, expected)


def test_the_columns_are_the_lefts() -> None:
    left, right = streams([], [])
    assert left.clip_by(right, on={"k": "w"}).schema.names == LEFT.names
    assert right.clip_by(left).schema.names == RIGHT.names


def test_what_cannot_be_is_refused() -> None:
    left, right = streams([], [])
    with pytest.raises(ColumnError, match=r"left stream has no such column.*'w'"):
        left.clip_by(right, on="w")
    with pytest.raises(ColumnError, match="no common type"):
        left.clip_by(right, on={"k": "v"})
    with pytest.raises(PlanError, match="str"):
        left.clip_by("right")  # type: ignore[arg-type]


@examples(dear=True)
@given(both=sides(), key=st.sampled_from(KEYS))
def test_every_clip_is_the_brute_forces(device_name: Any, both: tuple[Events, Events], key: Mapping[str, str]) -> None:
    left, right = both
    one, two = streams(left, right)
    check(one.clip_by(two, on=named(key)), device_name, clip_by(left, right, key))


@examples(dear=True)
@given(both=sides())
def test_clipped_by_itself(device_name: Any, both: tuple[Events, Events]) -> None:
    left, _ = both
    one, _ = streams(left, [])
    endless = [Event(event.start, NEVER, event.payload) for event in left]
    check(one.clip_by(one, on="k"), device_name, clip_by(left, left, {"k": "k"}))
    last = stream(endless, LEFT).clip_by(one, on="k").select("v")
    expected = [Event(e.start, e.end, {"v": e.payload["v"]}) for e in clip_by(endless, left, {"k": "k"})]
    check(last, device_name, expected)
    counted = stream(endless, LEFT).clip_by(one, on="k").to_point().sliding("1us").agg(n=g.count())
    assert sum(counted.collect(device=device_name)["n"].to_pylist()) == len(left)
