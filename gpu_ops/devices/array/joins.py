"""Two streams in array form: ranges of overlapping events by search, pairs by their number, covers by counting."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace

from gpu_ops.devices.array.order import group_order, take
from gpu_ops.devices.array.ranges import expand, keep, running_sums
from gpu_ops.devices.array.steps import search_pairs
from gpu_ops.devices.kernels import Array


def starts_within(
    codes: Array, start: Array, end: Array, other_codes: Array, other_start: Array, other_end: Array
) -> tuple[Array, Array, Array, Array]:
    """For each event the others of its group that start within its lifetime, and for each other the events."""
    first = search_pairs(other_codes, other_start, codes, start - 1)
    last = search_pairs(other_codes, other_start, codes, end - 1)
    other_first = search_pairs(codes, start, other_codes, other_start)
    other_last = search_pairs(codes, start, other_codes, other_end - 1)
    return first, pair_offsets(first, last), other_first, pair_offsets(other_first, other_last)


def last_started(codes: Array, start: Array, other_codes: Array, other_start: Array) -> Array:
    """For each event, the last of the others of its group that starts at or before its start."""
    xp = array_namespace(start)
    last = search_pairs(other_codes, other_start, codes, start) - 1
    # One more, so that there is something to look at where there are no others.
    other = xp.take(xp.concat([other_codes, xp.zeros(1, dtype=xp.int32)]), xp.where(last < 0, last + 1, last))
    return xp.where((last >= 0) & (other == codes), last, -xp.ones_like(last))


def last_by_place(codes: Array, places: Array, other_codes: Array, other_places: Array, groups: int) -> Array:
    """The same of events and others in order of place: the others are put in order of their groups."""
    del groups
    xp = array_namespace(places)
    order = xp.argsort(other_codes, stable=True)
    last = last_started(codes, places, xp.take(other_codes, order), xp.take(other_places, order))
    known = xp.take(xp.concat([order, xp.zeros(1, dtype=order.dtype)]), xp.where(last < 0, xp.zeros_like(last), last))
    return xp.where(last < 0, last, known)


def pair_offsets(first: Array, last: Array) -> Array:
    """How many pairs come before those of each event, and how many there are."""
    return running_sums(array_namespace(first), last - first)


def meetings(
    first: Array, offsets: Array, end: Array, other_start: Array, other_end: Array, low: int, high: int
) -> tuple[Array, Array, Array, Array]:
    """A range of the pairs of events and the others that they meet, in order of the events, with their overlap."""
    xp = array_namespace(first)
    number = xp.arange(low, high, dtype=xp.int64)
    event = xp.astype(xp.searchsorted(offsets, number, side="right"), xp.int64) - 1
    other = xp.take(first, event) + number - xp.take(offsets, event)
    return event, other, xp.take(other_start, other), xp.minimum(xp.take(end, event), xp.take(other_end, other))


def meetings_in_order(
    first: Array,
    offsets: Array,
    new: Array,
    rank: Array,
    start: Array,
    end: Array,
    other_first: Array,
    other_offsets: Array,
    other_new: Array,
    other_rank: Array,
    other_start: Array,
    other_end: Array,
) -> tuple[Array, Array, Array, Array]:
    """Pairs in the order in which the later ones of them come, then in that of the earlier ones: a stable sort."""
    xp = array_namespace(first)
    event, late = _of_ranges(first, offsets)
    other, early = _of_ranges(other_first, other_offsets)
    order = xp.argsort(xp.concat([xp.take(other_rank, late), xp.take(rank, early)]), stable=True)
    event = xp.take(xp.concat([event, xp.take(new, early)]), order)
    other = xp.take(xp.concat([xp.take(other_new, late), other]), order)
    begin = xp.maximum(xp.take(start, event), xp.take(other_start, other))
    return event, other, begin, xp.minimum(xp.take(end, event), xp.take(other_end, other))


def _of_ranges(first: Array, offsets: Array) -> tuple[Array, Array]:
    """(event, other) of each pair, in order of the events."""
    event, number = expand(offsets[1:] - offsets[:-1])
    return event, array_namespace(first).take(first, event) + number


def joined(
    first: Array,
    offsets: Array,
    end: Array,
    other_start: Array,
    other_end: Array,
    mine: Sequence[Array],
    others: Sequence[Array],
    low: int,
    high: int,
) -> tuple[Array, Array, list[Array], list[Array]]:
    """A range of the pairs of events and the others that they meet, as `meetings`, with values of both."""
    event, other, start, until = meetings(first, offsets, end, other_start, other_end, low, high)
    return start, until, [take(values, event) for values in mine], [take(values, other) for values in others]


def coverage(codes: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
    """When at least one event of a group is alive: where the count of those alive rises from 0, and falls to it."""
    xp = array_namespace(start)
    code, time = xp.concat([codes, codes]), xp.concat([start, end])
    change = xp.concat([xp.ones_like(start), -xp.ones_like(end)])
    # Of one time starts come first (they are first in the array): what touches is one cover.
    order = group_order(code, 0, time)
    change = xp.take(change, order)
    alive = xp.cumulative_sum(change)
    begins = xp.take(order, keep((alive == 1) & (change == 1)))
    over = xp.take(order, keep(alive == 0))
    return xp.take(code, begins), xp.take(time, begins), xp.take(time, over)
