"""The windows of a grid by their numbers: by arithmetic where they are regular, else as they are listed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.devices import Device
from gpu_ops.operators.events import check_times
from gpu_ops.operators.windows import calendars
from gpu_ops.plan.window_kinds import GridKind, Hopping


def overlapped(window: GridKind, start: Any, end: Any | int, device: Device) -> tuple[Any, Any]:
    """(low, high): each event overlaps the windows ``low … high - 1``, also those past the grid's bound.

    Args:
        window: The windows.
        start: int64 ticks.
        end: int64 ticks or a duration; an event that never ends has any ``high``.
        device: Where they are.
    """
    if not len(start):
        return start, start
    regular = window.regular
    if regular is None:
        return calendars.overlapped(window, start, start + end if isinstance(end, int) else end, device)
    return device.kernels.grid_ranges(start, end, regular.size, regular.hop, regular.align)


def ranges(window: GridKind, start: Any, end: Any | int, device: Device) -> tuple[Any, Any]:
    """(low, high): each event is in the windows ``low … high - 1``, and in none if ``high`` is not above ``low``."""
    end, regular = ends_by(window, start, end), window.regular
    if regular is None:
        low, high = overlapped(window, start, end, device)
    else:
        low, high = device.kernels.grid_ranges(start, *grid_arguments(regular, end))
    return low, high if window.until is None else np.where(start < window.until, high, low)


def ends_by(window: GridKind, start: Any, end: Any | int) -> Any:
    """The ends of events, those past the grid's bound at it; an event that starts there lasts one tick."""
    if window.until is None:
        return end
    return np.maximum(np.minimum(start + end if isinstance(end, int) else end, window.until), start + TICK)


def grid_arguments(window: Hopping, end: Any | int) -> tuple[Any | int, int, int, int]:
    """(end, size, hop, align): with the starts, what `Kernels.grid_ranges` takes for an event's windows."""
    if window.membership == "start":
        # Of whole ticks, Trill's window (a - size, a] is [a - size + 1, a + 1), and what it holds is one tick long.
        return TICK, window.size, window.hop, window.align - window.size + TICK
    return end, window.size, window.hop, window.align


def windows_of(window: GridKind, start: Any, end: Any | int, device: Device) -> tuple[Any, Any, Any | None]:
    """(low, high, indices): the numbers ``low … high - 1`` of each event's windows.

    Events that are in no window are left out; then ``indices`` says which events remain, else it is None.
    """
    low, high = ranges(window, start, end, device)
    regular = window.regular
    if regular is not None and regular.until is None and regular.hop <= regular.size:
        return low, high, None
    inside = high > low
    if bool(inside.all()):
        return low, high, None
    at = device.kernels.keep(inside)
    return device.kernels.take(low, at), device.kernels.take(high, at), at


def regular_times(window: Hopping, point: Any, device: Device) -> tuple[Any, int]:
    """(start, duration) of the results of the windows at some grid points, in ticks."""
    begin, finish = window.lifetime
    start = point + begin if begin else point
    check_times(start, finish - begin, device, verb="hopping")
    return start, finish - begin


def result_times(window: GridKind, numbers: Any, device: Device) -> tuple[Any, Any]:
    """(start, end or duration) of the results of some windows, by their numbers."""
    regular = window.regular
    if regular is not None:
        return regular_times(regular, numbers * regular.hop + regular.align, device)
    start, end = calendars.lifetimes(window, numbers, device)
    return (end, TICK) if window.output == "point" else (start, end)


def first_open(window: GridKind, time: int) -> int:
    """The number of the first window that events from a time on can be in."""
    regular = window.regular
    if regular is None:
        return calendars.first_open(window, time)
    align = regular.align - regular.size + TICK if regular.membership == "start" else regular.align
    return (time - regular.size - align) // regular.hop + 1


def first_start(window: GridKind, number: int) -> int:
    """A time before which no result of a window starts, nor of those after it."""
    regular = window.regular
    if regular is None:
        return calendars.begin_of(window, number)
    return regular.align + number * regular.hop + regular.lifetime[0]


def starting_from(window: GridKind, times: Any, device: Device) -> Any:
    """int64: for each of some times the number of the first window whose result starts then or later."""
    regular = window.regular
    if regular is not None:
        return -(-(times - regular.lifetime[0] - regular.align) // regular.hop)
    least, most = device.kernels.extent(times)
    span = max(int(least) - TICK, MIN_TIME), min(int(most) + TICK, MAX_TIME)
    first, begins, finishes = calendars.table(window, *span)
    known = finishes if window.output == "point" else begins
    return first + np.searchsorted(device.columns.array(known), times)
