"""Ranges of slots in array form: counts, sums and extremes of the events that hold each slot."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, to_device

from gpu_ops.devices.array.order import group_order
from gpu_ops.devices.kernels import Array

_LEAST = -(1 << 63)


def occupied(first: Array, last: Array, size: int) -> tuple[Array, Array]:
    """The slots that hold any event, and the number of events in each: begun events less ended ones."""
    xp = array_namespace(first)
    every = xp.arange(size, dtype=xp.int64)
    counts = count_upto(xp, first, every) - count_upto(xp, last, every)
    slots = keep(counts > 0)
    return slots, xp.take(counts, slots)


def slot_bounds(axis_code: Array, axis_time: Array, slots: Array) -> tuple[Array, Array, Array]:
    """Group, begin and end of slots that hold events."""
    xp = array_namespace(slots)
    return xp.take(axis_code, slots), xp.take(axis_time, slots), xp.take(axis_time, slots + 1)


def range_count(first: Array, last: Array, size: int, slots: Array) -> Array:
    """How many events hold each of some slots."""
    xp = array_namespace(first)
    return count_upto(xp, first, slots) - count_upto(xp, last, slots)


def range_sum(values: Array, first: Array, last: Array, size: int, slots: Array) -> Array:
    """The sum of the events' values in each of some slots, modulo 2**64: what has begun, less what has ended."""
    xp = array_namespace(values)
    return sum_upto(xp, values, first, slots) - sum_upto(xp, values, last, slots)


def count_upto(xp: Any, values: Array, bounds: Array) -> Array:
    """For each bound, how many values are at most as great."""
    return xp.astype(xp.searchsorted(xp.sort(values), bounds, side="right"), xp.int64)


def sum_upto(xp: Any, values: Array, places: Array, slots: Array) -> Array:
    """For each slot the sum of the values whose places are at most as great."""
    order = xp.argsort(places, stable=True)
    upto = xp.searchsorted(xp.take(places, order), slots, side="right")
    return xp.take(running_sums(xp, xp.take(values, order)), upto)


def running_sums(xp: Any, values: Array) -> Array:
    """0, and the sums of the first 1, 2, … values."""
    return xp.concat([xp.zeros(1, dtype=xp.int64), xp.cumulative_sum(values)])


def range_max(values: Array, first: Array, last: Array, size: int, slots: Array) -> Array:
    """The greatest of the events' values in each of some slots.

    Each range is covered by two of the greatest power of two's length that fits. A sparse table from top to bottom:
    going down, ``greatest[i]`` is what the ranges met so far put on slots i … i + 2**level - 1.
    """
    xp = array_namespace(values)
    some = xp.nonzero(last > first)[0]
    values, first, last = xp.take(values, some), xp.take(first, some), xp.take(last, some)
    greatest = xp.zeros(size, dtype=xp.int64) + _LEAST
    if some.shape[0] == 0:
        return xp.take(greatest, slots)
    level = _floor_log2(xp, last - first)
    # Of events that cover the same slots, only the greatest is painted, so that no index is written twice.
    cover = xp.concat([level * size + first, level * size + last - (xp.ones_like(level) << level)])
    values = xp.concat([values, values])
    order = group_order(cover, 0, values)
    cover, values = xp.take(cover, order), xp.take(values, order)
    best = xp.nonzero(xp.concat([cover[1:] != cover[:-1], xp.ones(1, dtype=xp.bool)]))[0]
    cover, values = xp.take(cover, best), xp.take(values, best)
    top = int(cover[-1]) // size
    bounds = to_device(xp.searchsorted(cover, xp.arange(top + 2, dtype=xp.int64) * size), "cpu").tolist()
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


def occurring(codes: Array, count: int) -> Array:
    """The codes that occur, ascending: those that are marked."""
    xp = array_namespace(codes)
    there = xp.zeros(count, dtype=xp.bool)
    there[codes] = True
    return keep(there)


def keep(mask: Array) -> Array:
    """The indices at which a mask holds, ascending."""
    return array_namespace(mask).nonzero(mask)[0]


def differs(xp: Any, values: Array) -> Array:
    """Whether each value differs from the one before; the first does."""
    first = xp.ones(min(1, values.shape[0]), dtype=xp.bool)
    return xp.concat([first, values[1:] != values[:-1]])


def running_max(values: Array) -> Array:
    """The greatest of the first 1, 2, … values: each round looks twice as far back."""
    xp = array_namespace(values)
    step = 1
    while step < values.shape[0]:
        values = xp.concat([values[:step], xp.maximum(values[step:], values[:-step])])
        step *= 2
    return values


def quotient(totals: Array, counts: Array) -> Array:
    """Totals over counts, each rounded to float64 first."""
    xp = array_namespace(totals)
    return xp.astype(totals, xp.float64) / xp.astype(counts, xp.float64)
