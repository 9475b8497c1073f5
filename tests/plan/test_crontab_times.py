"""Crontabs in time zones: the next time is the first at which the clocks of the zone show what is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.plan.crontab_times import CrontabTimes, zone_of

_TICKS = timedelta(microseconds=1)
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def _next(times: CrontabTimes, at: datetime) -> datetime:
    return _ZERO + times.next_after((at - _ZERO) // _TICKS) * _TICKS


@given(
    st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001  (UTC beside)
    st.integers(4, 23),
    st.sampled_from([0, 15, 59]),
    st.sampled_from(["Europe/Vienna", "America/New_York", "GMT-5", "GMT+05:30", "Australia/Lord_Howe"]),
)
def test_the_next_time_of_a_day(at: datetime, hour: int, minute: int, zone: str) -> None:
    """Of the minutes of two days the first that shows the hour and the minute; clocks change before four o'clock."""
    times = CrontabTimes(minutes=frozenset({minute}), hours=frozenset({hour}), zone=zone)
    start = at.replace(second=0, microsecond=0)
    minutes = (start + timedelta(minutes=count) for count in range(2 * 26 * 60))
    shown = ((each, each.astimezone(zone_of(zone))) for each in minutes if each > at)
    assert _next(times, at) == next(each for each, local in shown if (local.hour, local.minute) == (hour, minute))


@given(
    st.integers(0, 100_000_000_000),
    st.sampled_from([None, {0}, {3, 7}]),
    st.sampled_from([None, {0}, {200}, {0, 250, 999}]),
    st.sampled_from(["", "GMT-5"]),
)
def test_the_next_millisecond(time: int, seconds: set[int] | None, milliseconds: set[int] | None, zone: str) -> None:
    """Of all milliseconds of two minutes the first one whose second and millisecond are named."""
    named = [None if each is None else frozenset(each) for each in (seconds, milliseconds)]
    times = CrontabTimes(seconds=named[0], milliseconds=named[1], zone=zone)
    first = time // 1000 + 1
    wanted = next(
        at
        for at in range(first, first + 120_000)
        if (seconds is None or at // 1000 % 60 in seconds) and (milliseconds is None or at % 1000 in milliseconds)
    )
    assert times.next_after(time) == wanted * 1000


def test_where_clocks_change() -> None:
    """At half past two in Vienna: on March 29 there is none, and on October 25 there are two."""
    times = CrontabTimes(minutes=frozenset({30}), hours=frozenset({2}), zone="Europe/Vienna")
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert _next(times, spring) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert _next(times, autumn) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert _next(times, _next(times, autumn)) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("GMT-5", timezone(timedelta(hours=-5))),
        ("UTC+0230", timezone(timedelta(hours=2, minutes=30))),
        ("Europe/Vienna", ZoneInfo("Europe/Vienna")),
        ("GMT+25", None),
        ("../etc", None),
        ("Mars", None),
    ],
)
def test_zones_by_name(name: str, zone: object) -> None:
    assert zone_of(name) == zone
