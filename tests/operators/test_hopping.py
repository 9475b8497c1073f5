from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import PlanError, TimeError
from gpu_ops.plan.window_kinds import WindowOutput
from tests.support.reference import FIRST_TIME, Event
from tests.support.rows import check, rows, stream, to_events
from tests.support.ticks import at_us, us
from tests.support.timeline import timeline


def test_an_event_is_in_each_window_that_it_overlaps(device_name: str) -> None:
    rides = timeline("""
        a:   *
        b:     [=====)
    """)
    n = timeline(
        """
        1: [===)
        1:     [===|===)
        """,
        label="n",
    )
    check(stream(rides).tumbling("4us", align=at_us(0)).agg(n=g.count()), device_name, n)


def test_windows_that_overlap_each_hold_the_event(device_name: str) -> None:
    rides = timeline("""
        a:     *
        b:      [==)
    """)
    n = timeline(
        """
        2: [=====)
        2:   [=====)
        2:     [=====)
        1:       [=====)
        """,
        label="n",
    )
    check(stream(rides).hopping("6us", "2us", align=at_us(0)).agg(n=g.count()), device_name, n)


def test_an_end_on_a_boundary_is_not_in_the_next_window(device_name: str) -> None:
    rides = timeline("a: [===)")
    check(stream(rides).tumbling("4us", align=at_us(0)).agg(n=g.count()), device_name, timeline("1: [===)", label="n"))


def test_the_size_need_be_no_multiple_of_the_hop(device_name: str) -> None:
    rides = timeline("a:     *")
    n = timeline(
        """
        1: [====)
        1:   [====)
        1:     [====)
        """,
        label="n",
    )
    check(stream(rides).hopping("5us", "2us", align=at_us(0)).agg(n=g.count()), device_name, n)


def test_a_hop_longer_than_the_size_leaves_gaps(device_name: str) -> None:
    rides = timeline("""
        a: *    *
        b:     *
        c:   [==)
        d:     [====)
    """)
    n = timeline(
        """
        1: [=)
        2:      [=)
        """,
        label="n",
    )
    check(stream(rides).hopping("2us", "5us", align=at_us(0)).agg(n=g.count()), device_name, n)


def test_a_long_event_is_in_all_windows_of_its_life(device_name: str) -> None:
    answer = stream([Event(3, 1_000_003, {"v": 5})]).tumbling("10us", align=at_us(0)).agg(v=g.sum("v"))
    events = to_events(answer.collect(device=device_name))
    assert sorted(event.start for event in events) == list(range(0, 1_000_001, 10))
    assert {(event.end - event.start, event.payload["v"]) for event in events} == {(10, 5)}


def test_negative_times_and_a_negative_alignment(device_name: str) -> None:
    rides = [Event(-11, -10, {"v": 1}), Event(-1, 1, {"v": 2})]
    expected = [
        Event(-13, -8, {"total": 1}),
        Event(-3, 2, {"total": 2}),
    ]
    check(stream(rides).tumbling("5us", align=at_us(-13)).agg(total=g.sum("v")), device_name, expected)
    check(stream(rides).tumbling("5us", align=at_us(1_002)).agg(total=g.sum("v")), device_name, expected)


def test_weeks_begin_on_mondays_unless_aligned_otherwise(device_name: str) -> None:
    sunday = pa.table({"at": [datetime(2026, 3, 1, 12, tzinfo=UTC)], "v": [1]})
    week = g.events(sunday, start="at").tumbling("7d").agg(n=g.count()).collect(device=device_name)
    assert str(week["start"][0])[:10] == "2026-02-23"
    offset = g.events(sunday, start="at").tumbling("7d", align="2026-03-01T00:00Z").agg(n=g.count())
    assert str(offset.collect(device=device_name)["start"][0])[:10] == "2026-03-01"


@pytest.mark.parametrize(("output", "lifetime"), [("window", (0, 6)), ("point", (6, 7)), ("hop", (0, 3))])
def test_the_output_policy_says_when_a_result_lives(
    device_name: str, output: WindowOutput, lifetime: tuple[int, int]
) -> None:
    rides = [Event(1, 2, {"v": 1})]
    windows = stream(rides).hopping("6us", "3us", align=at_us(0), output=output)
    expected = [Event(lifetime[0] + k, lifetime[1] + k, {"n": 1}) for k in (-3, 0)]
    check(windows.agg(n=g.count()), device_name, expected)


def test_an_open_end_is_refused_unless_bounded(device_name: str) -> None:
    rides = timeline("""
        a: [==)
        b:    [==>
        c:             [=>
    """)
    with pytest.raises(TimeError, match="never ends"):
        stream(rides).tumbling("4us", align=at_us(0)).agg(n=g.count()).collect(device=device_name)
    n = timeline(
        """
        2: [===)
        1:     [===|===)
        """,
        label="n",
    )
    check(stream(rides).tumbling("4us", align=at_us(0), until=at_us(11)).agg(n=g.count()), device_name, n)


def test_a_window_before_the_first_time_is_an_error(device_name: str) -> None:
    rides = [Event(FIRST_TIME, FIRST_TIME + 1, {"v": 1})]
    with pytest.raises(TimeError, match="years 1 to 9999"):
        stream(rides).hopping("10us", "5us").agg(n=g.count()).collect(device=device_name)
    expected = [Event(FIRST_TIME, FIRST_TIME + 10, {"n": 1})]
    check(stream(rides).tumbling("10us").agg(n=g.count()), device_name, expected)


def test_no_event(device_name: str) -> None:
    nothing = stream([], pa.schema([("v", pa.int64())]))
    check(nothing.hopping("4us", "2us").agg(n=g.count()), device_name, [])


def test_membership_by_start_counts_at_each_grid_point_what_started_before_it(device_name: str) -> None:
    """Trill's repetitive hopping: at T the starts in (T - size, T], on until the next grid point."""
    rides = timeline("""
        a: *  [===========)
        b:     *
    """)
    # The starts are 0, 3 and 4. At 4, the one at 0 is four ticks old and out; so is the one at 4, at 8.
    n = timeline(
        """
        1: [=|=)
        2:     [=|=)
        """,
        label="n",
    )
    check(stream(rides).hopping("4us", "2us", align=at_us(0), membership="start").agg(n=g.count()), device_name, n)
    trill = (
        stream(rides).hop_lifetime("4us", "2us", align=at_us(0)).chop("2us", align=at_us(0)).snapshot().agg(n=g.count())
    )
    check(trill, device_name, n)


def test_membership_by_start_takes_open_ends_and_until(device_name: str) -> None:
    rides = timeline("""
        a: *  [=>
        b:         *
    """)
    windows = stream(rides).tumbling("4us", align=at_us(0), membership="start", until=at_us(8))
    n = timeline("1: [===|===)", label="n")
    check(windows.agg(n=g.count()), device_name, n)


def test_membership_by_start_of_a_long_hop_leaves_starts_out(device_name: str) -> None:
    rides = timeline("a: *  * *")
    windows = stream(rides).hopping("2us", "5us", align=at_us(0), membership="start", output="window")
    # Of the windows (-2, 0] and (3, 5] the first holds the start at 0, the second the one at 5.
    check(windows.agg(n=g.count()), device_name, [Event(-2, 0, {"n": 1}), Event(3, 5, {"n": 1})])


def test_the_same_windows_from_durations_of_any_kind(device_name: str) -> None:
    rides = pa.table({"at": [0, 61], "v": [1, 2]})
    events = g.events(rides, start="at", unit="s")
    answers = [
        rows(events.hopping(us(size), us(every)).agg(n=g.count()).collect(device=device_name))
        for size, every in (("2min", "1min"), ("120s", 60_000_000), ("1m 60s", "60000ms"))
    ]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize(("size", "every"), [(0, 1), (1, 0), (-1, 1), ("1s", "-1s"), ("0s", "1s")])
def test_spans_have_to_be_positive(size: str | int, every: str | int) -> None:
    with pytest.raises(PlanError, match="longer than zero"):
        stream(timeline("a: *")).hopping(us(size), us(every))


def test_options_are_checked_when_the_plan_is_made() -> None:
    events = stream(timeline("a: *"))
    with pytest.raises(PlanError, match="membership 'end' is unknown"):
        events.hopping("2us", "1us", membership="end")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="output 'start' is unknown"):
        events.hopping("2us", "1us", output="start")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="has no zone"):
        events.hopping("2us", "1us", align="2026-03-01T00:00")
