"""Spans and instants."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.time import MAX_TIME, MIN_TIME, format_span, format_time, instant, positive_ticks, ticks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1us", 1),
        ("10min", 600_000_000),
        ("1h 30m", 5_400_000_000),
        ("-5s", -5_000_000),
        ("2 d", 172_800_000_000),
        ("1W", 604_800_000_000),
    ],
)
def test_texts(text: str, expected: int) -> None:
    assert ticks(text) == expected


@pytest.mark.parametrize("wrong", ["", "5", "five minutes", "1 parsec", "1.5h", None, 1.5, True, "10 min ago"])
def test_what_is_no_span(wrong: object) -> None:
    with pytest.raises(g.PlanError, match="not a span of time"):
        ticks(wrong)  # type: ignore[arg-type]


def test_a_span_longer_than_time_is_refused() -> None:
    with pytest.raises(g.PlanError, match="longer than all of time"):
        ticks("99999999d")


@pytest.mark.parametrize("span", [0, -1, "0s", datetime.timedelta(0)])
def test_positive(span: object) -> None:
    with pytest.raises(g.PlanError, match="longer than zero"):
        positive_ticks(span, name="size")  # type: ignore[arg-type]


@given(st.integers(MIN_TIME - MAX_TIME, MAX_TIME - MIN_TIME))
def test_a_span_is_read_back_as_it_is_printed(span: int) -> None:
    assert ticks(format_span(span)) == span


@given(st.timedeltas(datetime.timedelta(days=-3_000_000), datetime.timedelta(days=3_000_000)))
def test_timedeltas_are_exact(span: datetime.timedelta) -> None:
    assert datetime.timedelta(microseconds=ticks(span)) == span


def test_instants() -> None:
    utc = datetime.UTC
    assert instant(datetime.datetime(1970, 1, 1, tzinfo=utc)) == 0
    assert instant(datetime.date(1970, 1, 2)) == 86_400_000_000
    assert instant("2026-01-01T01:00:00+01:00") == instant("2026-01-01T00:00:00Z")
    assert instant(datetime.datetime(1, 1, 1, tzinfo=utc)) == MIN_TIME
    assert instant(datetime.datetime.max.replace(tzinfo=utc)) == MAX_TIME
    assert datetime.date(1, 1, 1).weekday() == 0, "grids that begin there begin on a Monday"


@pytest.mark.parametrize("wrong", ["tomorrow", None, 1.5, True])
def test_what_is_no_instant(wrong: object) -> None:
    with pytest.raises(g.PlanError, match="not a point in time"):
        instant(wrong)  # type: ignore[arg-type]


def test_an_instant_has_a_zone() -> None:
    with pytest.raises(g.PlanError, match="no zone"):
        instant("2026-01-01T00:00:00")


def test_how_times_are_shown() -> None:
    assert format_time(MAX_TIME) == "infinity"
    assert format_time(MIN_TIME) == "0001-01-01T00:00:00Z"
    assert format_time(MAX_TIME + 1) == f"{MAX_TIME + 1} us"
