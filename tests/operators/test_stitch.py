"""Stitch by some of the columns: what the brute force says, on every device, and live in any cut."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support import reference
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.examples import examples
from tests.support.reference import Event, key_value
from tests.support.rows import check, rows, stream, to_table

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.float64()), ("v", pa.int64()), ("w", pa.string())])

EVENTS = st.lists(
    st.builds(
        lambda start, length, k, x, v, w: Event(start, start + length, {"k": k, "x": x, "v": v, "w": w}),
        st.integers(0, 8),
        st.integers(1, 4),
        st.sampled_from(["a", None]),
        st.sampled_from([0.0, -0.0, float("nan")]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, "p", "q"]),
    ),
    max_size=9,
)


def joined(events: list[Event], on: tuple[str, ...]) -> list[Event]:
    """The lifetimes of what is equal in some columns, with the other ones of the first event that begins there."""
    rest = [name for name in SCHEMA.names if name not in on]

    def place(event: Event) -> list[tuple[bool, Any]]:
        return [(event.payload[name] is not None, event.payload[name] or 0) for name in rest]

    def equal(one: Event, other: Event) -> bool:
        return all(repr(key_value(one.payload[name])) == repr(key_value(other.payload[name])) for name in on)

    found = []
    for each in reference.stitch(reference.select(events, lambda event: {name: event.payload[name] for name in on})):
        begin = [event for event in events if event.start == each.start and equal(event, each)]
        first = min(begin, key=place)
        found.append(each._replace(payload={**each.payload, **{name: first.payload[name] for name in rest}}))
    return found


@examples(30)
@given(events=EVENTS, on=st.sampled_from([("k",), ("k", "x"), ("x", "k")]), chance=st.randoms(use_true_random=False))
def test_it_joins_what_is_equal_in_these_columns(
    device_name: str, events: list[Event], on: tuple[str, ...], chance: random.Random
) -> None:
    shuffled = events.copy()
    chance.shuffle(shuffled)
    if "x" not in on:  # 0.0 and -0.0 are of one rank, and NaN has none in Python
        shuffled = [each._replace(payload={**each.payload, "x": 1.0}) for each in shuffled]
    check(stream(shuffled, SCHEMA).stitch(on=on), device_name, joined(shuffled, on))


@examples(30, dear=True)
@given(events=EVENTS, on=st.sampled_from([("k",), ("x", "k")]), chance=st.randoms(use_true_random=False))
def test_live_is_batch_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory,
    device_name: str,
    events: list[Event],
    on: tuple[str, ...],
    chance: random.Random,
) -> None:
    query = stream(events, SCHEMA).stitch(on=on)
    folder = tmp_path_factory.mktemp("live") if chance.random() < 0.5 else None
    pushed = in_any_cut(query, in_some_order(to_table(events, SCHEMA), chance), device_name, chance, folder)
    assert rows(pushed) == rows(query.collect(device=device_name))


def test_the_others_are_those_of_the_event_that_begins(device_name: str) -> None:
    # zone 1: [0 5) fare 3 and [5 9) fare 4; of two that begin at 20 the cheaper one is the first
    rides = [
        Event(0, 5, {"zone": 1, "fare": 3}),
        Event(5, 9, {"zone": 1, "fare": 4}),
        Event(20, 22, {"zone": 1, "fare": 8}),
        Event(20, 25, {"zone": 1, "fare": 7}),
    ]
    expected = [
        Event(0, 9, {"zone": 1, "fare": 3}),
        Event(20, 22, {"zone": 1, "fare": 7}),
        Event(20, 25, {"zone": 1, "fare": 7}),
    ]
    check(stream(rides).stitch(on="zone"), device_name, expected)


def test_of_events_that_begin_at_one_time_the_first_by_payload_speaks_for_all(device_name: str) -> None:
    # fares 9 and 3 begin at 0; what goes on from fare 9 has fare 3 all the same, and null is before all else
    rides = [
        Event(0, 5, {"zone": 1, "fare": 9, "tip": 0}),
        Event(0, 7, {"zone": 1, "fare": 3, "tip": 2}),
        Event(0, 8, {"zone": 1, "fare": 3, "tip": 1}),
        Event(5, 6, {"zone": 1, "fare": 1, "tip": 0}),
        Event(0, 5, {"zone": 2, "fare": 9, "tip": 0}),
        Event(0, 6, {"zone": 2, "fare": None, "tip": 5}),
    ]
    one, other = {"zone": 1, "fare": 3, "tip": 1}, {"zone": 2, "fare": None, "tip": 5}
    expected = [
        Event(0, 6, one),
        Event(0, 7, one),
        Event(0, 8, one),
        Event(0, 5, other),
        Event(0, 6, other),
    ]
    check(stream(rides).stitch(on="zone"), device_name, expected)


def test_by_all_columns_it_is_as_without() -> None:
    s = stream([Event(0, 1, {"a": 1, "b": 2})])
    assert s.stitch(on=["b", "a"]).explain(device="cpu") == s.stitch().explain(device="cpu")


def test_within_groups_each_is_by_itself(device_name: str) -> None:
    rides = [Event(0, 5, {"zone": 1, "car": "a", "fare": 3}), Event(5, 9, {"zone": 1, "car": "b", "fare": 4})]
    apart = stream(rides).by("car").apply(lambda each: each.stitch(on="zone"))
    check(apart, device_name, rides)


def test_what_it_does_not_compare() -> None:
    s = stream([Event(0, 1, {"a": 1})])
    with pytest.raises(ColumnError, match="b"):
        s.stitch(on="b")
    with pytest.raises(PlanError, match="no column"):
        s.stitch(on=[])
    with pytest.raises(ColumnError, match="no equality"):
        g.events(pa.table({"start": [0], "a": [1], "l": [[1]]}), start="start", unit="us").stitch(on="a")
