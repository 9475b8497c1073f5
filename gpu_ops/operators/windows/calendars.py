"""Grids whose windows are listed, such as the calendar's: when windows begin and end, and which events overlap them.

A listed grid says itself when the windows of some numbers begin and end (`GridKind`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.ingest.zones import Ticks
from gpu_ops.plan.window_kinds import GridKind


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
