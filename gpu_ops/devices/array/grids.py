"""Grids of windows in array form: which an event overlaps, and totals for every window and group."""

from __future__ import annotations

from array_api_compat import array_namespace

from gpu_ops.devices.array.ranges import keep, running_sums
from gpu_ops.devices.kernels import Array


def grid_ranges(start: Array, end: Array | int, size: int, hop: int, align: int) -> tuple[Array, Array]:
    """Which windows of a grid each event overlaps."""
    end = start + end if isinstance(end, int) else end
    return (start - (size + align)) // hop + 1, (end - (1 + align)) // hop + 1


def grid_ranges_by_start(start: Array, size: int, hop: int, align: int) -> tuple[Array, Array]:
    """Which windows hold each event's start, in Trill's numbering."""
    return grid_ranges(start, 1, size, hop, align - size + 1)


# Dense grids: a slot for every (window, group)


def dense_zeros(like: Array, groups: int, windows: int) -> Array:
    """What `dense_count` and `dense_sum` add to.

    Examples:
        >>> import numpy as np
        >>> dense_zeros(np.array([0]), 2, 3).shape
        (8,)
    """
    xp = array_namespace(like)
    return xp.zeros((windows + 1) * groups, dtype=xp.int64)


def dense_places(
    start: Array, end: Array | int, size: int, hop: int, align: int, windows: int | None
) -> tuple[Array, Array]:
    """Where events are on a grid: their first windows, and one past their last ones."""
    first, last = grid_ranges(start, end, size, hop, align)
    if windows is None:
        return first, last
    xp = array_namespace(start)
    return xp.clip(first, 0, windows), xp.clip(last, 0, windows)


def dense_count(into: Array, codes: Array, places: tuple[Array, Array], groups: int) -> Array:
    """Count events into a dense grid; the result is a new array."""
    xp = array_namespace(into)
    edges = xp.arange(into.shape[0] + 1, dtype=xp.int64)
    for sign, windows in ((1, places[0]), (-1, places[1])):
        bounds = xp.searchsorted(xp.sort(windows * groups + codes), edges)
        into = into + sign * xp.astype(bounds[1:] - bounds[:-1], xp.int64)
    return into


def dense_sum(into: Array, codes: Array, places: tuple[Array, Array], values: Array, groups: int) -> Array:
    """Sum events' values into a dense grid; the result is a new array."""
    xp = array_namespace(into)
    edges = xp.arange(into.shape[0] + 1, dtype=xp.int64)
    for sign, windows in ((1, places[0]), (-1, places[1])):
        slots = windows * groups + codes
        order = xp.argsort(slots, stable=True)
        sums = xp.take(running_sums(xp, xp.take(values, order)), xp.searchsorted(xp.take(slots, order), edges))
        into = into + sign * (sums[1:] - sums[:-1])
    return into


def dense_totals(into: Array, groups: int) -> Array:
    """From differences to totals: a running sum over the windows of each group."""
    xp = array_namespace(into)
    rows = xp.reshape(into, (-1, groups))
    return xp.reshape(xp.cumulative_sum(rows[:-1, :], axis=0), (-1,))


def dense_slots(counts: Array, groups: int, start: int, hop: int) -> tuple[Array, Array, Array, Array]:
    """The places of a dense grid that hold events."""
    xp = array_namespace(counts)
    slots = keep(counts > 0)
    return slots, start + slots // groups * hop, xp.astype(slots % groups, xp.int32), xp.take(counts, slots)
