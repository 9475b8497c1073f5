"""Kernels as functions of an array namespace: CuPy's on a GPU, NumPy's in tests.

The names, what they take and the bytes they give are those of ``devices/cpu/kernels.py``, where each is described. They
are built of stable sorts, searches and running sums of integers; where something is written by index, no index occurs
twice. So no result hangs on which thread comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace, to_device

from gpu_ops.devices.gpu.numbers import (
    exact_limbs_decimal,
    exact_limbs_int,
    float_limbs,
    join_decimal,
    join_int,
    join_unsigned,
    limb_plan,
    order_float,
    round_limbs,
    square_limbs,
    square_limbs_int,
    unorder_float,
    variance,
)

__all__ = [
    "ascends",
    "axis",
    "dense_count",
    "dense_sum",
    "dense_totals",
    "dense_zeros",
    "exact_limbs_decimal",
    "exact_limbs_int",
    "expand",
    "extent",
    "float_limbs",
    "grid_ranges",
    "grid_ranges_by_start",
    "group_bounds",
    "group_codes",
    "group_order",
    "is_ordered",
    "join_decimal",
    "join_int",
    "join_unsigned",
    "keep",
    "limb_plan",
    "occupied",
    "order_float",
    "partition",
    "range_count",
    "range_max",
    "range_sum",
    "round_limbs",
    "slot_bounds",
    "square_limbs",
    "square_limbs_int",
    "stitch_order",
    "take",
    "unorder_float",
    "variance",
]

Array = Any

_LEAST = -(1 << 63)


# Order


def group_bounds(codes: Array, groups: int) -> Array:
    """Where each group begins in group order: found in the sorted codes."""
    xp = array_namespace(codes)
    edges = xp.arange(groups + 1, dtype=xp.int32)
    return xp.astype(xp.searchsorted(xp.sort(codes), edges), xp.int64)


def group_codes(bounds: Array) -> Array:
    """The codes of events in group order."""
    xp = array_namespace(bounds)
    events = xp.arange(int(bounds[0]), int(bounds[-1]), dtype=xp.int64)
    return xp.astype(xp.searchsorted(bounds, events, side="right") - 1, xp.int32)


def is_ordered(codes: Array, start: Array) -> bool:
    """Whether events stand in order of group and start already."""
    xp = array_namespace(codes)
    if codes.shape[0] < 2:
        return True
    same = codes[:-1] == codes[1:]
    return bool(xp.all((codes[:-1] < codes[1:]) | (same & (start[:-1] <= start[1:]))))


def ascends(values: Array) -> bool:
    """Whether no value is less than the one before."""
    return values.shape[0] < 2 or bool(array_namespace(values).all(values[:-1] <= values[1:]))


def extent(values: Array) -> tuple[int, int]:
    """The least and the greatest value."""
    xp = array_namespace(values)
    return int(xp.min(values)), int(xp.max(values))


def group_order(codes: Array, groups: int, start: Array) -> Array:
    """The order of events by group, then start: two stable sorts."""
    del groups
    xp = array_namespace(codes)
    order = xp.argsort(start, stable=True)
    return xp.take(order, xp.argsort(xp.take(codes, order), stable=True))


def take(values: Array, indices: Array) -> Array:
    """The values at these indices."""
    return array_namespace(values).take(values, indices)


def partition(codes: Array, groups: int, arrays: Sequence[Array]) -> tuple[Array, Array, list[Array]]:
    """Events ordered by group, then start; the bounds of the groups are on the host."""
    bounds = group_bounds(codes, groups)
    if not is_ordered(codes, arrays[0]):
        order = group_order(codes, groups, arrays[0])
        codes, arrays = group_codes(bounds), [take(values, order) for values in arrays]
    return codes, to_device(bounds, "cpu"), list(arrays)


# The window axis


def axis(codes: Array, start: Array, end: Array) -> tuple[Array, Array, Array, Array]:
    """The distinct boundaries of each group, and which of them each event lies between: starts and ends in one sort."""
    xp = array_namespace(codes)
    events = codes.shape[0]
    both, times = xp.concat([codes, codes]), xp.concat([start, end])
    order = group_order(both, 0, times)
    both, times = xp.take(both, order), xp.take(times, order)
    new = _differs(xp, both) | _differs(xp, times)
    at = xp.nonzero(new)[0]
    slots = _placed(order, xp.cumulative_sum(xp.astype(new, xp.int64)) - 1)
    return xp.take(both, at), xp.take(times, at), slots[:events], slots[events:]


def _differs(xp: Any, values: Array) -> Array:
    """Whether each value differs from the one before; the first does."""
    first = xp.ones(min(1, values.shape[0]), dtype=xp.bool)
    return xp.concat([first, values[1:] != values[:-1]])


def _placed(order: Array, values: Array) -> Array:
    """Values back in the places that ``order``, a permutation, took them from."""
    xp = array_namespace(values)
    made = xp.empty_like(values)
    made[order] = values
    return made


def stitch_order(codes: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Events of one group joined where one ends at the start of another: each finds its follower, then all leap.

    After k leaps every event knows the one ``2**k`` further on in its chain, or the chain's last.
    """
    xp = array_namespace(codes)
    _, _, first, last = axis(codes, start, end)
    by_end = xp.argsort(last, stable=True)
    by_start = xp.take(by_end, xp.argsort(xp.take(first, by_end), stable=True))
    ended, begun = xp.take(last, by_end), xp.take(first, by_start)
    events = xp.arange(codes.shape[0], dtype=xp.int64)
    rank = events - xp.searchsorted(ended, ended)
    at = xp.searchsorted(begun, ended) + rank
    joined = at < xp.searchsorted(begun, ended, side="right")
    before = xp.take(by_end, xp.nonzero(joined)[0])
    after = xp.take(by_start, xp.take(at, xp.nonzero(joined)[0]))
    follower = xp.asarray(events, copy=True)
    follower[before] = after
    leads = xp.ones(events.shape, dtype=xp.bool)
    leads[after] = False
    while True:
        further = xp.take(follower, follower)
        if bool(xp.all(further == follower)):
            break
        follower = further
    chosen = xp.nonzero(leads)[0]
    return xp.take(start, chosen), xp.take(end, xp.take(follower, chosen)), chosen


# Aggregates over ranges of slots


def occupied(first: Array, last: Array, size: int) -> tuple[Array, Array]:
    """The slots that hold any event, and how many each holds: those that have begun, less those that have ended."""
    xp = array_namespace(first)
    counts = _upto(xp, xp.sort(first), size) - _upto(xp, xp.sort(last), size)
    slots = keep(counts > 0)
    return slots, xp.take(counts, slots)


def slot_bounds(axis_code: Array, axis_time: Array, slots: Array) -> tuple[Array, Array, Array]:
    """Group, begin and end of slots that hold events."""
    xp = array_namespace(slots)
    return xp.take(axis_code, slots), xp.take(axis_time, slots), xp.take(axis_time, slots + 1)


def range_count(first: Array, last: Array, size: int, slots: Array) -> Array:
    """How many events hold each of some slots."""
    xp = array_namespace(first)
    return _before(xp, first, slots) - _before(xp, last, slots)


def range_sum(values: Array, first: Array, last: Array, size: int, slots: Array) -> Array:
    """The sum of the events' values in each of some slots, modulo 2**64: what has begun, less what has ended."""
    xp = array_namespace(values)
    return _sum_upto(xp, values, first, slots) - _sum_upto(xp, values, last, slots)


def _before(xp: Any, places: Array, slots: Array) -> Array:
    """How many places are at most each slot."""
    return xp.astype(xp.searchsorted(xp.sort(places), slots, side="right"), xp.int64)


def _upto(xp: Any, ascending: Array, size: int) -> Array:
    """How many of the given slots are at most 0, 1, … size - 1."""
    return xp.astype(xp.searchsorted(ascending, xp.arange(size, dtype=xp.int64), side="right"), xp.int64)


def _sum_upto(xp: Any, values: Array, places: Array, slots: Array) -> Array:
    order = xp.argsort(places, stable=True)
    upto = xp.searchsorted(xp.take(places, order), slots, side="right")
    return xp.take(_running(xp, xp.take(values, order)), upto)


def _running(xp: Any, values: Array) -> Array:
    """0, and the sums of the first 1, 2, … values."""
    return xp.concat([xp.zeros(1, dtype=xp.int64), xp.cumulative_sum(values)])


def range_max(values: Array, first: Array, last: Array, size: int, slots: Array) -> Array:
    """The greatest of the events' values in each of some slots: each range is covered by two of a power of two's length.

    A sparse table from top to bottom: going down, ``greatest[i]`` is what the ranges met so far put on slots
    i … i + 2**level - 1.
    """
    xp = array_namespace(values)
    some = xp.nonzero(last > first)[0]
    values, first, last = xp.take(values, some), xp.take(first, some), xp.take(last, some)
    greatest = xp.zeros(size, dtype=xp.int64) + _LEAST
    if some.shape[0] == 0:
        return xp.take(greatest, slots)
    level = _floor_log2(xp, last - first)
    # Of those that cover the same slots only the greatest is painted, so that no index is written twice.
    cover = xp.concat([level * size + first, level * size + last - (xp.ones_like(level) << level)])
    values = xp.concat([values, values])
    order = group_order(cover, 0, values)
    cover, values = xp.take(cover, order), xp.take(values, order)
    best = xp.nonzero(xp.concat([cover[1:] != cover[:-1], xp.ones(1, dtype=xp.bool)]))[0]
    cover, values = xp.take(cover, best), xp.take(values, best)
    top = int(cover[-1]) // size
    bounds = [int(at) for at in xp.searchsorted(cover, xp.arange(top + 2, dtype=xp.int64) * size)]
    for height in range(top, -1, -1):
        of_height = slice(bounds[height], bounds[height + 1])
        at = cover[of_height] - height * size
        greatest[at] = xp.maximum(greatest[at], values[of_height])
        if height:
            half = 1 << (height - 1)
            greatest = xp.concat([greatest[:half], xp.maximum(greatest[half:], greatest[:-half])])
    return xp.take(greatest, slots)


def _floor_log2(xp: Any, values: Array) -> Array:
    logarithm = xp.zeros_like(values)
    for bits in (32, 16, 8, 4, 2, 1):
        more = xp.astype(values >> bits > 0, xp.int64) * bits
        values, logarithm = values >> more, logarithm + more
    return logarithm


def expand(counts: Array) -> tuple[Array, Array]:
    """Each index as often as its count says: found in the running sum of the counts."""
    xp = array_namespace(counts)
    ends = xp.cumulative_sum(counts)
    total = int(ends[-1]) if counts.shape[0] else 0
    at = xp.arange(total, dtype=xp.int64)
    source = xp.astype(xp.searchsorted(ends, at, side="right"), xp.int64)
    return source, at - xp.take(ends - counts, source)


def keep(mask: Array) -> Array:
    """The indices at which a mask holds, ascending."""
    return array_namespace(mask).nonzero(mask)[0]


# Grids of windows


def grid_ranges(start: Array, end: Array, size: int, hop: int, align: int) -> tuple[Array, Array]:
    """Which windows of a grid each event overlaps."""
    return (start - (size + align)) // hop + 1, (end - (1 + align)) // hop + 1


def grid_ranges_by_start(start: Array, size: int, hop: int, align: int) -> tuple[Array, Array]:
    """Which windows hold each event's start, in Trill's numbering."""
    return grid_ranges(start, start + 1, size, hop, align - size + 1)


# Dense grids: a slot for every (window, group)


def dense_zeros(like: Array, groups: int, windows: int) -> Array:
    """What `dense_count` and `dense_sum` add to."""
    xp = array_namespace(like)
    return xp.zeros((windows + 1) * groups, dtype=xp.int64)


def dense_count(into: Array, codes: Array, first: Array, last: Array, groups: int) -> Array:
    """Count events into a dense grid; the result is a new array."""
    xp = array_namespace(into)
    edges = xp.arange(into.shape[0] + 1, dtype=xp.int64)
    for sign, windows in ((1, first), (-1, last)):
        places = xp.searchsorted(xp.sort(windows * groups + codes), edges)
        into = into + sign * xp.astype(places[1:] - places[:-1], xp.int64)
    return into


def dense_sum(into: Array, codes: Array, first: Array, last: Array, values: Array, groups: int) -> Array:
    """Sum events' values into a dense grid; the result is a new array."""
    xp = array_namespace(into)
    edges = xp.arange(into.shape[0] + 1, dtype=xp.int64)
    for sign, windows in ((1, first), (-1, last)):
        slots = windows * groups + codes
        order = xp.argsort(slots, stable=True)
        sums = xp.take(_running(xp, xp.take(values, order)), xp.searchsorted(xp.take(slots, order), edges))
        into = into + sign * (sums[1:] - sums[:-1])
    return into


def dense_totals(into: Array, groups: int) -> Array:
    """From differences to totals: a running sum down the windows of each group."""
    xp = array_namespace(into)
    rows = xp.reshape(into, (-1, groups))
    return xp.reshape(xp.cumulative_sum(rows[:-1, :], axis=0), (-1,))
