"""Grids of windows on the CPU: which windows an event overlaps, and totals with a slot for every window and group."""

from __future__ import annotations

import numba
import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INT, INTS, Codes, Ints, inlined, kernel, output, unsigned


def grid_ranges(start: Ints, end: Ints | int, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
    """Which windows of a grid each event overlaps; window k is ``[align + k hop, align + k hop + size)``.

    If neighbouring events have the same windows, as most have in order of time, nothing is divided.

    Examples:
        >>> grid_ranges(np.array([9, 10]), np.array([10, 31]), 20, 10, 0)
        (array([-1,  0]), array([1, 4]))
    """
    ends, later = (start, end) if isinstance(end, int) else (end, 0)
    return _grid_ranges(start, ends, later, size, hop, align)


@kernel(INTS, INTS, INT, INT, INT, INT)
def _grid_ranges(start: Ints, end: Ints, later: int, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
    """`grid_ranges` of events that end ``later`` ticks after ``end``."""
    events = start.size
    first, last = np.empty(events, np.int64), np.empty(events, np.int64)
    if events == 0:
        return first, last
    low = high = 0
    step = np.uint64(hop)
    # For one hop, starts from `low_from` on have the same first window, and ends from `high_from` on the same last one.
    low_from, high_from = start[0] - hop, end[0] - hop
    for event in range(events):
        if np.uint64(start[event] - low_from) >= step:
            low = (start[event] - size - align) // hop + 1
            low_from = align + (low - 1) * hop + size
        if np.uint64(end[event] - high_from) >= step:
            high = (end[event] + later - 1 - align) // hop + 1
            high_from = align + (high - 1) * hop + 1 - later
        first[event] = low
        last[event] = high
    return first, last


def grid_ranges_by_start(start: Ints, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
    """Which windows hold each event's start, as Trill numbers them.

    Examples:
        >>> grid_ranges_by_start(np.array([10, 11]), 20, 10, 0)
        (array([1, 2]), array([3, 4]))
    """
    # Of whole ticks, window k is [align + k hop - size + 1, align + k hop + 1), and the start is one tick long.
    return grid_ranges(start, 1, size, hop, align - size + 1)


# Dense grids: a slot for every (window, group), for few groups and events in about the order of time


_CHANGED = output(numba.types.int64)

_PIECE = 256
"""Events that are tested together: most often all of them have the windows of the event before, and add up to one."""


def dense_places(
    start: Ints, end: Ints | int, size: int, hop: int, align: int, windows: int | None
) -> tuple[Ints, Ints, int, int, int, int]:
    """Where events are on a grid: the times and the grid, which cost nothing until they are counted."""
    del windows  # what is counted is within the table anyway
    ends, later = (start, end) if isinstance(end, int) else (end, 0)
    return start, ends, later, size, hop, align


def dense_count(into: Ints, codes: Codes, places: tuple[Ints, Ints, int, int, int, int], groups: int) -> Ints:
    """Count events into a dense grid.

    Examples:
        >>> codes, places = np.zeros(2, np.int32), dense_places(np.array([0, 10]), 1, 10, 10, 0, None)
        >>> dense_totals(dense_count(np.zeros(4, np.int64), codes, places, 1), 1)
        array([1, 1, 0])
    """
    return _dense_count(into, codes, *places, None, groups)


def dense_sum(
    into: Ints, codes: Codes, places: tuple[Ints, Ints, int, int, int, int], values: Ints, groups: int
) -> Ints:
    """Sum events' values into a dense grid, modulo 2**64.

    Examples:
        >>> codes, places = np.zeros(2, np.int32), dense_places(np.array([0, 10]), 15, 10, 10, 0, None)
        >>> dense_totals(dense_sum(np.zeros(4, np.int64), codes, places, np.array([5, 7]), 1), 1)
        array([ 5, 12,  7])
    """
    return _dense_sum(into, codes, *places, values, groups)


def _dense_add(
    into: Ints,
    codes: Codes,
    start: Ints,
    end: Ints,
    later: int,
    size: int,
    hop: int,
    align: int,
    values: Ints | None,
    groups: int,
) -> Ints:
    """Add 1 for each event, or its value, to its windows' differences. Events end ``later`` ticks after ``end``."""
    if start.size == 0:
        return into
    low = high = 0
    windows = into.size // groups - 1
    # As in `_grid_ranges`.
    low_from, high_from = start[0] - hop, end[0] - hop
    for piece in range(0, start.size, _PIECE):
        starts, ends, code = start[piece : piece + _PIECE], end[piece : piece + _PIECE], codes[piece : piece + _PIECE]
        same = _all_within(starts, low_from, hop) and _all_within(ends, high_from, hop)
        if same and groups == 1:
            total = starts.size
            if values is not None:
                total = int(values[piece : piece + _PIECE].sum())
            into[unsigned(low)] += total
            into[unsigned(high)] -= total
        elif same:
            begun, ended = into[low * groups : (low + 1) * groups], into[high * groups : (high + 1) * groups]
            for at in range(starts.size):
                change = 1 if values is None else values[unsigned(piece + at)]
                begun[unsigned(code[at])] += change
                ended[unsigned(code[at])] -= change
        else:
            for at in range(starts.size):
                if np.uint64(starts[at] - low_from) >= np.uint64(hop):
                    low = (starts[at] - size - align) // hop + 1
                    low_from = align + (low - 1) * hop + size
                    low = min(max(low, 0), windows)
                if np.uint64(ends[at] - high_from) >= np.uint64(hop):
                    high = (ends[at] + later - 1 - align) // hop + 1
                    high_from = align + (high - 1) * hop + 1 - later
                    high = min(max(high, 0), windows)
                change = 1 if values is None else values[unsigned(piece + at)]
                into[unsigned(low * groups + code[at])] += change
                into[unsigned(high * groups + code[at])] -= change
    return into


@inlined
def _all_within(times: Ints, since: int, span: int) -> bool:
    """Whether all times are in ``[since, since + span)``."""
    outside = 0
    for at in range(times.size):
        outside += int(np.uint64(times[at] - since) >= np.uint64(span))
    return outside == 0


_dense_count = kernel(_CHANGED, CODES, INTS, INTS, INT, INT, INT, INT, numba.types.none, INT)(_dense_add)
_dense_sum = kernel(_CHANGED, CODES, INTS, INTS, INT, INT, INT, INT, INTS, INT)(_dense_add)


@kernel(_CHANGED, INT)
def dense_totals(into: Ints, groups: int) -> Ints:
    """From differences to totals: a running sum over the windows of each group.

    Examples:
        >>> dense_totals(np.array([1, 2, 3, 4, 0, 0]), 2)
        array([1, 2, 4, 6])
    """
    windows = into.size // groups - 1
    for window in range(1, windows):
        before, row = into[(window - 1) * groups : window * groups], into[window * groups : (window + 1) * groups]
        for group in range(groups):
            row[group] += before[group]
    return into[: windows * groups]


@kernel(INTS, INT, INT, INT)
def dense_slots(counts: Ints, groups: int, start: int, hop: int) -> tuple[Ints, Ints, Codes, Ints]:
    """The places of a dense grid that hold events.

    Examples:
        >>> dense_slots(np.array([0, 2, 3, 0]), 2, 100, 10)
        (array([1, 2]), array([100, 110]), array([1, 0], dtype=int32), array([2, 3]))
    """
    slots, starts = np.empty(counts.size + 1, np.int64), np.empty(counts.size + 1, np.int64)
    codes, held = np.empty(counts.size + 1, np.int32), np.empty(counts.size + 1, np.int64)
    found = slot = 0
    for row in range(counts.size // groups):
        time = start + row * hop
        for group in range(groups):
            # Always written; kept only if the place advances.
            slots[unsigned(found)] = slot
            starts[unsigned(found)] = time
            codes[unsigned(found)] = group
            held[unsigned(found)] = counts[unsigned(slot)]
            found += counts[unsigned(slot)] > 0
            slot += 1
    return slots[:found], starts[:found], codes[:found], held[:found]
