from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import gpu_ops as g
from tests.support.reference import FIRST_TIME, NEVER, Event
from tests.support.rows import check, stream, to_events
from tests.support.ticks import at_us
from tests.support.timeline import timeline


def test_the_answer_changes_where_a_lifetime_starts_or_ends(device_name: str) -> None:
    rides = timeline("""
        a: [====)
        b:   [====)
    """)
    busy = timeline(
        """
        1: [=)
        2:   [==)
        1:      [=)
        """,
        label="n",
    )
    check(stream(rides).snapshot().agg(n=g.count()), device_name, busy)


def test_a_gap_gives_nothing(device_name: str) -> None:
    rides = timeline("a: [==)    [==)")
    check(stream(rides).snapshot().agg(n=g.count()), device_name, timeline("1: [==)    [==)", label="n"))


def test_touching_lifetimes_stay_two_results_though_equal(device_name: str) -> None:
    rides = timeline("a: [==|===)")
    check(stream(rides).snapshot().agg(n=g.count()), device_name, timeline("1: [==|===)", label="n"))


def test_points_cut_what_is_alive_around_them(device_name: str) -> None:
    rides = timeline("""
        a: [=========)
        b:    *  *
    """)
    busy = timeline(
        """
        1: [==)[=)[==)
        2:    *  *
        """,
        label="n",
    )
    check(stream(rides).snapshot().agg(n=g.count()), device_name, busy)


def test_equal_lifetimes_are_counted_each(device_name: str) -> None:
    rides = timeline("""
        a: [===)
        a: [===)
        b: [===)
    """)
    check(stream(rides).snapshot().agg(n=g.count()), device_name, timeline("3: [===)", label="n"))


def test_open_ends_reach_to_the_end_of_time(device_name: str) -> None:
    rides = timeline("""
        a: [===>
        b:   [=)
        c:     [=>
    """)
    busy = timeline(
        """
        1: [=)
        2:   [=|=>
        """,
        label="n",
    )
    check(stream(rides).snapshot().agg(n=g.count()), device_name, busy)


def test_one_event(device_name: str) -> None:
    check(stream(timeline("a: *")).snapshot().agg(n=g.count()), device_name, timeline("1: *", label="n"))


def test_no_event_gives_no_row_and_all_columns(device_name: str) -> None:
    nothing = stream([], pa.schema([("k", pa.string()), ("v", pa.decimal128(9, 2))]))
    answer = nothing.by("k").snapshot().agg(n=g.count(), total=g.sum("v")).collect(device=device_name)
    assert answer.num_rows == 0
    assert answer.schema.names == ["start", "end", "k", "n", "total"]
    assert answer.schema.types[2:] == [pa.string(), pa.int64(), pa.decimal128(38, 2)]


def test_times_before_1970_and_at_the_ends_of_time(device_name: str) -> None:
    rides = [
        Event(FIRST_TIME, -5, {"v": 1}),
        Event(-7, 3, {"v": 2}),
        Event(NEVER - 1, NEVER, {"v": 4}),
    ]
    total = [
        Event(FIRST_TIME, -7, {"total": 1}),
        Event(-7, -5, {"total": 3}),
        Event(-5, 3, {"total": 2}),
        Event(NEVER - 1, NEVER, {"total": 4}),
    ]
    check(stream(rides).snapshot().agg(total=g.sum("v")), device_name, total)


def test_only_a_groups_own_events_cut_its_results(device_name: str) -> None:
    rides = timeline(
        """
        a: [=====)
        b:   [=)
        b:    [====)
        """,
        label="zone",
    )
    busy = [
        *timeline("a: [=====)          n=1", label="zone"),
        *timeline("b:   [)      n=1", label="zone"),
        *timeline("b:    [)     n=2", label="zone"),
        *timeline("b:     [===) n=1", label="zone"),
    ]
    check(stream(rides).by("zone").snapshot().agg(n=g.count()), device_name, busy)


def test_windows_nest(device_name: str) -> None:
    """How long was it how busy: windows over the results of windows."""
    rides = timeline("""
        a: [====)
        b:   [====)
    """)
    busy = stream(rides).snapshot().agg(n=g.count())
    most = busy.tumbling("4us", align=at_us(0)).agg(most=g.max("n"), pieces=g.count())
    expected = timeline(
        """
        2: [===)     pieces=2
        2:     [===) pieces=2
        """,
        label="most",
    )
    check(most, device_name, expected)


def test_sliding_sets_the_duration_and_extend_keeps_it(device_name: str) -> None:
    rides = timeline("""
        a: [=)
        b:    [====)
    """)
    sliding = timeline(
        """
        1: [==)
        2:    [)
        1:     [==)
        """,
        label="n",
    )
    check(stream(rides).sliding("4us").agg(n=g.count()), device_name, sliding)
    extended = timeline(
        """
        1: [==)
        2:    [==)
        1:       [=====)
        """,
        label="n",
    )
    check(stream(rides).extend("4us").snapshot().agg(n=g.count()), device_name, extended)


@pytest.mark.slow
def test_a_million_events_at_one_instant(device_name: str) -> None:
    count = 1_000_000
    values = np.arange(count) % 1000
    crowd = pa.table({"at": pa.array(np.full(count, 7), pa.int64()), "v": values, "x": values / 1000})
    windows = g.events(crowd, start="at", unit="us").snapshot()
    answer = windows.agg(n=g.count(), total=g.sum("v"), x=g.sum("x"), least=g.min("v"), most=g.max("x"))
    exact = float(1000 * sum(Fraction(i / 1000) for i in range(1000)))
    expected = [Event(7, 8, {"n": count, "total": 499_500_000, "x": exact, "least": 0, "most": 0.999})]
    assert to_events(answer.collect(device=device_name)) == expected
