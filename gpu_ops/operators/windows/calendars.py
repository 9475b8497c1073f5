"""Grids whose windows are listed, such as the calendar's: when windows begin and end, and which events overlap them.

A listed grid computes when the windows of some numbers begin and end (`GridKind`); the calendar follows local clocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.ingest.zones import Zone
from gpu_ops.plan.calendars import Calendar, CalendarSpan
from gpu_ops.plan.window_kinds import LISTINGS, GridKind, ListedGrid

Ticks = npt.NDArray[np.int64]

_DAY = 86_400_000_000
_FIRST, _LAST = MIN_TIME // _DAY + 2, MAX_TIME // _DAY - 2
"""The days that any zone's clocks can show, since 1970."""
_MARGIN = 2
"""Periods by which a guess from UTC may be wrong: local clocks differ from UTC by at most a day."""


def overlapped(window: GridKind, start: Any, end: Any, device: Device) -> tuple[Any, Any]:
    """(low, high): each event overlaps the windows ``low … high - 1``.

    Args:
        window: The windows.
        start: int64 ticks, of one event at least.
        end: int64 ticks after the start; the ends of events that never end are not read.
        device: Where they are.
    """
    kernels, array = device.kernels, device.columns.array
    least, most = kernels.extent(start)
    finite = np.where(end == MAX_TIME, start + 1, end)
    first, begin, finish = table(window, int(least), max(int(most), int(kernels.extent(finite)[1])))
    low = first + np.searchsorted(array(finish), start, side="right")
    return low, first + np.searchsorted(array(begin), finite, side="left")


def lifetimes(window: GridKind, numbers: Any, device: Device) -> tuple[Any, Any]:
    """(start, end) of some windows, in ticks."""
    host = device.columns.host(numbers)
    least, most = int(host.min()), int(host.max())
    known = np.arange(least, most + 1)
    at = numbers - least
    begin, finish = (device.columns.array(function(known)) for function in (window.begins, window.finishes))
    return device.kernels.take(begin, at), device.kernels.take(finish, at)


def first_open(window: GridKind, time: int) -> int:
    """The number of the first window that ends after a time."""
    first, _, finish = table(window, time, time)
    return first + int(np.searchsorted(finish, time, side="right"))


@lru_cache(maxsize=64)
def begin_of(window: GridKind, number: int) -> int:
    """When one window begins, in ticks."""
    return int(window.begins(np.array([number]))[0])


def table(window: GridKind, least: int, most: int) -> tuple[int, Ticks, Ticks]:
    """(number of the first, begins, ends) of all windows that events between two times can overlap, and some more."""
    return _made(window, window.around(least)[0], window.around(most)[1])


@lru_cache(maxsize=8)  # the days of all time take 60 MB
def _made(window: GridKind, first: int, last: int) -> tuple[int, Ticks, Ticks]:
    numbers = np.arange(first, last + 1)
    return first, window.begins(numbers), window.finishes(numbers)


# The calendar


def begins(window: Calendar, numbers: Ticks) -> Ticks:
    """When some windows begin, by their numbers; times outside of the years 1 to 9999 are clipped to their days."""
    return _to_utc(window, _local(window.every, window.anchor, numbers))


def finishes(window: Calendar, numbers: Ticks) -> Ticks:
    """When they end."""
    span, every = window.size, window.every
    if span.months:
        return _to_utc(window, _local(CalendarSpan(months=1), window.anchor, numbers * every.months + span.months))
    return _to_utc(window, _local(every, window.anchor, numbers) + span.days * _DAY)


def around(window: Calendar, time: int) -> tuple[int, int]:
    """(least, most) of the numbers of the windows that hold a time."""
    reach = -(-_days(window.size) // _days(window.every)) + _MARGIN
    guess = _guess(window, time)
    return guess - reach, guess + _MARGIN


def _days(span: CalendarSpan) -> int:
    return span.days or 28 * span.months


def _guess(window: Calendar, time: int) -> int:
    """A guess of the number of the period that holds a time."""
    if window.every.days:
        return (time - window.anchor) // (window.every.days * _DAY)
    months = np.array([time, window.anchor], "datetime64[us]").astype("datetime64[M]").astype(np.int64)
    return int(months[0] - months[1]) // window.every.months


def _local(every: CalendarSpan, anchor: int, numbers: Ticks) -> Ticks:
    """The local times at which periods begin, as ticks; ``anchor`` is the beginning of period 0."""
    if every.days:
        return anchor + numbers * (every.days * _DAY)
    month = np.array(anchor, "datetime64[us]").astype("datetime64[M]")
    into = anchor - int(month.astype("datetime64[us]").astype(np.int64))
    starts = (month + numbers * every.months).astype("datetime64[us]").astype(np.int64)
    return np.asarray(starts + into)


def _to_utc(window: Calendar, local: Ticks) -> Ticks:
    known = np.clip(local, _FIRST * _DAY, _LAST * _DAY)
    # Of a midnight that comes twice the first one counts; a skipped midnight is the moment at which the clock goes on.
    instants, _ = Zone(window.zone).to_utc(known, "earliest", "shift_forward")
    return instants


LISTINGS[Calendar] = ListedGrid(begins, finishes, around)
