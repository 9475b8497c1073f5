"""Spans of the clock's time: months of the calendar beside naive arithmetic of dates."""

from __future__ import annotations

import calendar
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.errors import PlanError
from gpu_ops.plan.clock_windows import ClockSpan

TIMES = st.datetimes(datetime.fromisoformat("1900-01-01"), datetime.fromisoformat("2200-01-01"))


def ticks(time: datetime) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([time], "datetime64[us]").astype(np.int64)


def months_after(time: datetime, months: int) -> datetime:
    years, month = divmod(time.month - 1 + months, 12)
    last = calendar.monthrange(time.year + years, month + 1)[1]
    return time.replace(time.year + years, month + 1, min(time.day, last))


@given(time=TIMES, months=st.integers(1, 30), rest=st.integers(0, 10**12))
def test_months_after_a_time(time: datetime, months: int, rest: int) -> None:
    wanted = months_after(time, months) + timedelta(microseconds=rest)
    assert ClockSpan(months, rest).after(ticks(time)) == ticks(wanted)


@given(point=TIMES, time=TIMES, months=st.integers(1, 30))
def test_the_next_point_of_a_grid_of_months(point: datetime, time: datetime, months: int) -> None:
    turn = 0
    while months_after(point, turn * months) > time:
        turn -= 1
    while months_after(point, turn * months) <= time:
        turn += 1
    assert ClockSpan(months).next_end(ticks(time), ticks(point)) == ticks(months_after(point, turn * months))


def test_a_span_goes_forward() -> None:
    with pytest.raises(PlanError, match="A window lasts"):
        ClockSpan(0, 0)
