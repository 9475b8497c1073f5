from __future__ import annotations

import math
import random
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import PlanError
from tests.support.aggregate_reference import close
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import check, rows, stream, to_events, to_table
from tests.support.ticks import at_us, us
from tests.support.timeline import timeline

NAN, INF = math.nan, math.inf
PAYLOAD = pa.schema([("k", pa.string()), ("x", pa.float64()), ("v", pa.int64()), ("flag", pa.bool_())])
EVENTS = st.lists(
    st.builds(
        lambda start, length, *payload: Event(start, start + length, dict(zip(PAYLOAD.names, payload, strict=True))),
        st.integers(0, 40),
        st.integers(1, 25),
        st.sampled_from(["a", "b", None]),
        st.none() | st.sampled_from([0.1, -2.5, 1e9, 1e9 + 0.1, 7.0]),
        st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
        st.none() | st.booleans(),
    ),
    max_size=12,
)
GRIDS = st.sampled_from([(7, 7), (10, 4), (3, 8), (12, 1)])


def test_events_count_for_as_long_as_they_are_in_the_window(device_name: str) -> None:
    rides = timeline("""
        a: [=====)    v=6
        b:   [===)    v=2
    """)
    answer = (
        stream(rides)
        .tumbling("4us", align=at_us(0))
        .agg(
            us=g.integral("v", unit="1us"), mean=g.time_weighted_mean("v"), both=g.integral("v", unit="2us") / g.count()
        )
    )
    expected = [
        Event(0, 4, {"us": 28.0, "mean": 28 / 6, "both": 7.0}),
        Event(4, 8, {"us": 16.0, "mean": 4.0, "both": 4.0}),
    ]
    check(answer, device_name, expected)


def test_over_snapshots_all_events_last_as_long(device_name: str) -> None:
    rides = timeline("""
        a: [=====)    v=6
        b:   [=)      v=2
    """)
    answer = stream(rides).snapshot().agg(us=g.integral("v", unit="1us"), mean=g.time_weighted_mean("v"))
    made = [tuple(event.payload.values()) for event in sorted(to_events(answer.collect(device=device_name)))]
    assert made == [(12.0, 6.0), (16.0, 4.0), (12.0, 6.0)]


def exact(members: list[Event], column: str, start: int, end: int) -> tuple[Fraction, int] | None:
    """(sum of values times ticks, ticks) of the events of a window."""
    there = [event for event in members if event.payload[column] is not None]
    if not there:
        return None
    lengths = [min(event.end, end) - max(event.start, start) for event in there]
    total = sum((Fraction(e.payload[column]) * n for e, n in zip(there, lengths, strict=True)), start=Fraction(0))
    return total, sum(lengths)


UNTIL = st.none() | st.integers(1, 60)


@examples(dear=True)
@given(EVENTS, GRIDS, UNTIL, st.sampled_from(["x", "v"]), st.sampled_from(HERE))
def test_integrals_are_what_they_say(
    events: list[Event], grid: tuple[int, int], until: int | None, column: str, device: str
) -> None:
    asked = stream(events, PAYLOAD).by("k").hopping(*map(us, grid), until=at_us(until))
    if until is not None:  # lifetimes are clipped there first
        events = [Event(e.start, min(e.end, until), e.payload) for e in events if e.start < until]
    answer = asked.agg(i=g.integral(column, unit="3us"), m=g.time_weighted_mean(column), n=g.count())
    for result in to_events(answer.collect(device=device)):
        members = [
            event
            for event in events
            if event.payload["k"] == result.payload["k"] and event.start < result.end and event.end > result.start
        ]
        assert result.payload["n"] == len(members)
        wanted = exact(members, column, result.start, result.end)
        assert close(result.payload["i"], None if wanted is None else wanted[0] / 3, 3)
        assert result.payload["m"] == (None if wanted is None else float(wanted[0] / wanted[1]))


@examples(dear=True)
@given(EVENTS, GRIDS, UNTIL, st.sampled_from(HERE), st.randoms(use_true_random=False))
def test_live_is_batch(
    events: list[Event], grid: tuple[int, int], until: int | None, device: str, chance: random.Random
) -> None:
    arrived = in_some_order(to_table(events, PAYLOAD), chance)
    asked = (
        g.events(arrived, start="start", end="end")
        .by("k")
        .hopping(*map(us, grid), until=at_us(until))
        .agg(i=g.integral("x", where=g.col("flag")), m=g.time_weighted_mean("v"), n=g.count())
    )
    found = in_any_cut(asked, arrived, device, chance)
    batch = rows(asked.collect(device=device))
    assert rows(found) == batch
    assert batch == rows(asked.collect(device="cpu"))


def test_no_numbers_count_while_they_are_in_the_window(device_name: str) -> None:
    events = [Event(0, 3, {"x": value}) for value in (1.0, NAN)] + [Event(5, 6, {"x": INF}), Event(12, 13, {"x": 2.0})]
    answer = stream(events).tumbling("5us").agg(i=g.integral("x", unit="1us"), m=g.time_weighted_mean("x"))
    made = [event.payload for event in sorted(to_events(answer.collect(device=device_name)), key=lambda e: e.start)]
    assert math.isnan(made[0]["i"])
    assert math.isnan(made[0]["m"])
    assert made[1] == {"i": INF, "m": INF}
    assert made[2] == {"i": 2.0, "m": 2.0}


def test_windows_by_start_do_not_say_how_long_events_are_in_them() -> None:
    windows = stream([Event(0, 1, {"v": 1})]).hopping("4us", "2us", membership="start")
    with pytest.raises(PlanError, match="do not say"):
        windows.agg(r=g.integral("v"))


def test_what_never_ends_counts_until_the_bound(device_name: str) -> None:
    rides = timeline("""
        a: [========>    v=6
        b:   [=)         v=2
    """)
    answer = stream(rides).tumbling("4us", align=at_us(0), until=at_us(6)).agg(us=g.integral("v", unit="1us"))
    expected = [Event(0, 4, {"us": 28.0}), Event(4, 8, {"us": 12.0})]
    check(answer, device_name, expected)


def test_months_are_as_long_as_they_are(device_name: str) -> None:
    days = {"a": ["2024-01-31", "2024-02-10"], "b": ["2024-03-02", "2024-02-11"]}
    times = {
        name: pa.array(each).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")) for name, each in days.items()
    }
    events = g.events(pa.table({**times, "v": [2, 10]}), start="a", end="b")
    answer = events.tumbling("1mo", zone="UTC").agg(days=g.integral("v", unit="1d"), mean=g.time_weighted_mean("v"))
    made = [event.payload for event in sorted(to_events(answer.collect(device=device_name)), key=lambda e: e.start)]
    assert made == [{"days": 2.0, "mean": 2.0}, {"days": 68.0, "mean": 68 / 30}, {"days": 2.0, "mean": 2.0}]
