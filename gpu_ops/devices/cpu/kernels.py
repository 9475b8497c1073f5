"""Kernels on the CPU: ordering events by group, window axes, and aggregates over ranges of slots, by Numba.

Pure functions of one-dimensional contiguous arrays: times are int64 ticks, group codes int32, everything else int64
unless said. They trust their arguments: an index out of range is not noticed. ``devices/gpu/kernels.py`` has the same
names and gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from gpu_ops.devices.cpu.compiling import BOOLS, CODES, INT, INTS, inlined, kernel, output
from gpu_ops.devices.cpu.numbers import (
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

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

_LEAST = np.iinfo(np.int64).min

# How many events are looked at before a loop that may end early tests whether to: inside, it can use wide instructions.
_CHUNK = 4096

# Loops copy and fill here, since Numba takes seconds to compile an assignment to a part of an array.

# An index that is known not to be negative is made unsigned: Numba then leaves out the test for counting from the end.
_at = np.uint64


# Order


@kernel(CODES, INT)
def group_bounds(codes: Codes, groups: int) -> Ints:
    """Where each group begins once events stand in group order.

    Args:
        codes: int32 group of each event, ``0 … groups - 1``.
        groups: How many groups there are; some may be empty.

    Returns:
        int64[groups + 1]: group g's events are ``bounds[g] … bounds[g + 1] - 1``.

    Examples:
        >>> group_bounds(np.array([2, 0, 2], np.int32), 3)
        array([0, 1, 1, 3])
    """
    return _group_bounds(codes, groups)


@inlined
def _group_bounds(codes: Codes, groups: int) -> Ints:
    bounds = np.zeros(groups + 1, np.int64)
    for event in range(codes.size):
        bounds[_at(codes[event]) + _at(1)] += 1
    for group in range(groups):
        bounds[group + 1] += bounds[group]
    return bounds


@kernel(INTS)
def group_codes(bounds: Ints) -> Codes:
    """The codes of events in group order: int32, group g as often as it has events, counted from the first bound.

    Examples:
        >>> group_codes(np.array([0, 1, 1, 3]))
        array([0, 2, 2], dtype=int32)
    """
    codes = np.empty(bounds[-1] - bounds[0], np.int32)
    for group in range(bounds.size - 1):
        for at in range(bounds[group] - bounds[0], bounds[group + 1] - bounds[0]):
            codes[at] = group
    return codes


@kernel(CODES, INTS)
def is_ordered(codes: Codes, start: Ints) -> bool:
    """Whether events stand in order of group and start already.

    Examples:
        >>> is_ordered(np.array([0, 0, 1], np.int32), np.array([3, 3, 1]))
        True
    """
    for low in range(0, codes.size, _CHUNK):
        # Parts of arrays, not offsets into them: the compiler then sees that it may use wide instructions.
        code, time = codes[low : low + _CHUNK], start[low : low + _CHUNK]
        next_code, next_time = codes[low + 1 : low + 1 + _CHUNK], start[low + 1 : low + 1 + _CHUNK]
        misplaced = 0
        for at in range(next_code.size):
            misplaced += (code[at] > next_code[at]) | ((code[at] == next_code[at]) & (time[at] > next_time[at]))
        if misplaced:
            return False
    return True


@kernel(INTS)
def ascends(values: Ints) -> bool:
    """Whether no value is less than the one before.

    Examples:
        >>> ascends(np.array([1, 1, 3]))
        True
    """
    return _ascends(values)


@kernel(INTS)
def extent(values: Ints) -> tuple[int, int]:
    """The least and the greatest value; there is at least one.

    Examples:
        >>> extent(np.array([3, 1, 2]))
        (1, 3)
    """
    least = most = values[0]
    for at in range(values.size):
        least, most = min(least, values[at]), max(most, values[at])
    return least, most


@kernel(CODES, INT, INTS)
def group_order(codes: Codes, groups: int, start: Ints) -> Ints:
    """The order of events by group, then start; events equal in both keep theirs.

    A counting sort by group: some 5 ns an event where each group's events arrive in order of time. Groups that do not
    are sorted by start, in O(events) by digits.

    Args:
        codes: int32 group of each event, ``0 … groups - 1``.
        groups: How many groups there are.
        start: int64 ticks.

    Returns:
        int64 indices of the events.

    Examples:
        >>> group_order(np.array([1, 0, 1], np.int32), 2, np.array([7, 9, 5]))
        array([1, 2, 0])
    """
    events = codes.size
    in_time = _ascends(start)
    if in_time and groups == 1:
        return np.arange(events)
    bounds = _group_bounds(codes, groups)
    order = np.empty(events, np.int64)
    place = bounds.copy()
    for event in range(events):
        code = _at(codes[event])
        order[_at(place[code])] = event
        place[code] += 1
    if in_time:
        return order
    keys, items = np.empty((2, 0), np.int64), np.empty((2, 0), np.int64)
    for group in range(groups):
        low, count = bounds[group], bounds[group + 1] - bounds[group]
        if keys.shape[1] < count:
            # At least twice as large as before: few allocations, however the groups' sizes grow.
            room = min(events, 2 * count)
            keys, items = np.empty((2, room), np.int64), np.empty((2, room), np.int64)
        for at in range(count):
            items[0, at] = order[low + at]
            keys[0, at] = start[_at(items[0, at])]
        if not _ascends(keys[0, :count]):
            _sort_pairs(keys, items, count)
            for at in range(count):
                order[low + at] = items[0, at]
    return order


@inlined
def _ascends(values: Ints) -> bool:
    following = values[1:]
    descents = 0
    for at in range(following.size):
        descents += values[at] > following[at]
    return descents == 0


@inlined
def _sort_pairs(keys: Ints, items: Ints, count: int) -> None:
    """Sort the first ``count`` keys of row 0, their items along with them; equal keys keep their order.

    Row 1 of both is room to work in: digit by digit, numbers go from one row to the other.
    """
    if count <= 32:
        for at in range(1, count):
            key, item = keys[0, at], items[0, at]
            to = at
            while to > 0 and keys[0, to - 1] > key:
                keys[0, to], items[0, to] = keys[0, to - 1], items[0, to - 1]
                to -= 1
            keys[0, to], items[0, to] = key, item
    else:
        least = most = keys[0, 0]
        for at in range(count):
            least, most = min(least, keys[0, at]), max(most, keys[0, at])
        # As unsigned numbers the distances from the least key are right even where the signed difference overflows.
        base = np.uint64(least)
        spread = np.uint64(most) - base
        bits = 1
        while bits < 64 and spread >> np.uint64(bits) != 0:
            bits += 1
        widest = 8 if count < 4096 else 11
        digits = (bits + widest - 1) // widest
        width = (bits + digits - 1) // digits
        mask = np.uint64((1 << width) - 1)
        place = np.empty((1 << width) + 1, np.int64)
        row = 0
        for digit in range(digits):
            shift = np.uint64(digit * width)
            for value in range(place.size):
                place[value] = 0
            for at in range(count):
                place[(((np.uint64(keys[row, at]) - base) >> shift) & mask) + _at(1)] += 1
            for value in range(1 << width):
                place[value + 1] += place[value]
            for at in range(count):
                found = ((np.uint64(keys[row, at]) - base) >> shift) & mask
                free = _at(place[found])
                keys[1 - row, free], items[1 - row, free] = keys[row, at], items[row, at]
                place[found] += 1
            row = 1 - row
        if row == 1:
            for at in range(count):
                items[0, at] = items[1, at]


def take(values: Array, indices: Ints) -> Array:
    """The values at these indices: numbers or bools of any width, several times as fast as indexing.

    Examples:
        >>> take(np.array([2.5, 3.5, 4.5]), np.array([2, 0]))
        array([4.5, 2.5])
    """
    made = np.empty(len(indices), values.dtype)
    _take[values.itemsize](_bits(values), indices, _bits(made))
    return made


def _take_bits(values: Array, indices: Ints, into: Array) -> None:
    for at in range(indices.size):
        into[at] = values[_at(indices[at])]


def _scatter_bits(codes: Codes, bounds: Ints, values: Array, into: Array) -> None:
    place = bounds.copy()
    for event in range(codes.size):
        code = _at(codes[event])
        into[_at(place[code])] = values[event]
        place[code] += 1


_WIDTHS = {1: numba.types.int8, 2: numba.types.int16, 4: numba.types.int32, 8: numba.types.int64}
_take = {
    width: kernel(numba.types.Array(bits, 1, "C", readonly=True), INTS, output(bits))(_take_bits)
    for width, bits in _WIDTHS.items()
}
_scatter = {
    width: kernel(CODES, INTS, numba.types.Array(bits, 1, "C", readonly=True), output(bits))(_scatter_bits)
    for width, bits in _WIDTHS.items()
}


def _bits(values: Array) -> Array:
    return values.view(f"i{values.itemsize}")


@kernel(CODES)
def _grouped(codes: Codes) -> bool:
    for low in range(0, codes.size, _CHUNK):
        code, following = codes[low : low + _CHUNK], codes[low + 1 : low + 1 + _CHUNK]
        misplaced = 0
        for at in range(following.size):
            misplaced += code[at] > following[at]
        if misplaced:
            return False
    return True


def partition(codes: Codes, groups: int, arrays: Sequence[Array]) -> tuple[Codes, Ints, list[Array]]:
    """Events ordered by group, then start, whichever way is quickest for the order they come in.

    Args:
        codes: int32 group of each event, ``0 … groups - 1``.
        groups: How many groups there are.
        arrays: What belongs to the events, numbers or bools of any width; the first is their start, int64 ticks.

    Returns:
        (codes, bounds, arrays): the same in the new order; group g's events are ``bounds[g] … bounds[g + 1] - 1``,
        and ``bounds`` is a host array. What was in order already is handed back as it is.

    Examples:
        >>> partition(np.array([1, 0, 1], np.int32), 2, [np.array([5, 6, 7]), np.array([0.5, 1.5, 2.5])])
        (array([0, 1, 1], dtype=int32), array([0, 1, 3]), [array([6, 5, 7]), array([1.5, 0.5, 2.5])])
    """
    bounds = group_bounds(codes, groups)
    placed = list(arrays)
    if groups > 1 and not _grouped(codes):
        placed = [np.empty_like(values) for values in arrays]
        for values, into in zip(arrays, placed, strict=True):
            _scatter[values.itemsize](codes, bounds, _bits(values), _bits(into))
        codes = group_codes(bounds)
    if not is_ordered(codes, placed[0]):
        # Within its group an event is moved near by: this is the quick kind of gathering.
        order = group_order(codes, groups, placed[0])
        placed = [take(values, order) for values in placed]
    return codes, bounds, placed


# The window axis


def axis(codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints, Ints]:
    """The distinct boundaries of each group, ascending, and which of them each event lies between.

    Per group a merge of starts and ends, from both sides at once; ends that do not ascend are sorted first.

    Args:
        codes: int32 group of each event; events are ordered by group, then start.
        start: int64 ticks.
        end: int64 ticks, after the start.

    Returns:
        (axis_code int32, axis_time, first, last): boundary ``first[e]`` is event e's start in its group, and boundary
        ``last[e]`` its end.

    Examples:
        >>> axis(np.array([0, 0, 1], np.int32), np.array([1, 2, 1]), np.array([3, 3, 2]))
        (array([0, 0, 0, 1, 1], dtype=int32), array([1, 2, 3, 1, 2]), array([0, 1, 3]), array([2, 2, 4]))
    """
    if is_ordered(codes, end):
        return _axis(codes, start, end)
    order = group_order(codes - codes[0], int(codes[-1] - codes[0]) + 1, end)
    axis_code, axis_time, first, of_ordered = _axis(codes, start, take(end, order))
    last = np.empty_like(of_ordered)
    last[order] = of_ordered
    return axis_code, axis_time, first, last


@kernel(CODES, INTS, INTS)
def _axis(codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints, Ints]:
    """`axis` where the ends ascend in each group as the starts do."""
    events = codes.size
    axis_code, axis_time = np.empty(2 * events, np.int32), np.empty(2 * events, np.int64)
    # Starts' boundaries, then ends': one array, so that a step of the merge is one store whichever it takes.
    slots = np.empty(2 * events, np.int64)
    low = size = 0
    while low < events:
        high = low + 1
        while high + 64 <= events and codes[high + 63] == codes[low]:
            high += 64
        while high < events and codes[high] == codes[low]:
            high += 1
        _merge(start, end, low, high, axis_time, slots, size)
        distinct = _without_repeats(axis_time, axis_code, slots, size, low, high)
        for at in range(size, size + distinct):
            axis_code[at] = codes[low]
        size += distinct
        low = high
    return axis_code[:size], axis_time[:size], slots[:events], slots[events:]


@inlined
def _merge(start: Ints, end: Ints, low: int, high: int, axis_time: Ints, slots: Ints, size: int) -> None:
    """Merge a group's starts and ends, repeats included; where both are equal starts come first.

    Each round takes one boundary from the front and one from the back. A step waits for the comparison of the one
    before; two chains of steps that do not wait for each other take little longer than one.
    """
    events = start.size
    begun = ended = low  # the first start and the first end not taken from the front
    begins = ends = high - 1  # the last ones not taken from the back
    front, back = size, size + 2 * (high - low) - 1
    for _ in range(low, high):
        first, last = start[_at(begun)], end[_at(ended)]
        is_start = int(first <= last)
        axis_time[_at(front)] = min(first, last)
        slots[_at(begun if is_start else events + ended)] = front
        begun += is_start
        ended += 1 - is_start
        front += 1

        first, last = start[_at(begins)], end[_at(ends)]
        is_end = int(first <= last)
        axis_time[_at(back)] = max(first, last)
        slots[_at(events + ends if is_end else begins)] = back
        ends -= is_end
        begins -= 1 - is_end
        back -= 1


@inlined
def _without_repeats(axis_time: Ints, axis_code: Codes, slots: Ints, size: int, low: int, high: int) -> int:
    """Close up equal neighbours among a group's boundaries; how many are left."""
    count = 2 * (high - low)
    times = axis_time[size : size + count]
    following = times[1:]
    repeats = 0
    for at in range(following.size):
        repeats += times[at] == following[at]
    if repeats:
        # The codes of this group are not written yet: their place holds each boundary's new position meanwhile.
        moved = axis_code[size : size + count]
        moved[0] = 0
        for at in range(1, count):
            moved[at] = moved[at - 1] + (times[at] != times[at - 1])
        for at in range(count):
            times[moved[at]] = times[at]
        for at in range(low, high):
            slots[at] = size + moved[_at(slots[at] - size)]
            slots[slots.size // 2 + at] = size + moved[_at(slots[slots.size // 2 + at] - size)]
    return count - repeats


def stitch_order(codes: Codes, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Events of one group joined where one ends exactly at the start of another (Trill's Stitch).

    Of several that end at a time, in order of their starts, the k-th goes on as the k-th of those that start there, in
    order of their ends: first in, first out. So the joined lifetimes do not depend on the order of equal events.

    Args:
        codes: int32 group of each event; events are ordered by group, then start.
        start: int64 ticks.
        end: int64 ticks, after the start.

    Returns:
        (start, end, representative): the joined events' lifetimes, and the index of the first event in each.

    Examples:
        >>> stitch_order(np.zeros(3, np.int32), np.array([1, 2, 4]), np.array([4, 3, 5]))
        (array([1, 2]), array([5, 3]), array([0, 1]))
    """
    axis_code, _, first, last = axis(codes, start, end)
    return _stitch(first, last, start, end, len(axis_code))


@kernel(INTS, INTS, INTS, INTS, INT)
def _stitch(first: Ints, last: Ints, start: Ints, end: Ints, size: int) -> tuple[Ints, Ints, Ints]:
    events = first.size
    # By (last, first), then, of these, by (first, last): two counting sorts.
    ended = np.zeros(size + 1, np.int64)
    begun = np.zeros(size + 1, np.int64)
    for event in range(events):
        ended[last[event] + 1] += 1
        begun[first[event] + 1] += 1
    for slot in range(size):
        ended[slot + 1] += ended[slot]
        begun[slot + 1] += begun[slot]
    by_end, by_start = np.empty(events, np.int64), np.empty(events, np.int64)
    place = ended.copy()
    for event in range(events):
        by_end[place[last[event]]] = event
        place[last[event]] += 1
    place = begun.copy()
    for at in range(events):
        event = by_end[at]
        by_start[place[first[event]]] = event
        place[first[event]] += 1
    follower = np.full(events, -1, np.int64)
    leads = np.ones(events, np.bool_)
    for slot in range(size):
        for rank in range(min(ended[slot + 1] - ended[slot], begun[slot + 1] - begun[slot])):
            event = by_start[begun[slot] + rank]
            follower[by_end[ended[slot] + rank]] = event
            leads[event] = False
    # A follower starts later than the event it follows, so it stands behind it.
    reach = end.copy()
    for event in range(events - 1, -1, -1):
        if follower[event] >= 0:
            reach[event] = reach[follower[event]]
    chosen = _keep(leads)
    return start[chosen], reach[chosen], chosen


# Aggregates over ranges of slots


@kernel(INTS, INTS, INT)
def occupied(first: Ints, last: Ints, size: int) -> tuple[Ints, Ints]:
    """The slots that hold any event, and how many each holds.

    Args:
        first: Each event's first slot.
        last: One past its last slot.
        size: How many slots there are.

    Returns:
        (slots, counts): ascending slot numbers, and the number of events with ``first <= slot < last`` for each.

    Examples:
        >>> occupied(np.array([0, 3]), np.array([2, 4]), 5)
        (array([0, 1, 3]), array([1, 1, 1]))
    """
    changes = np.zeros(size + 1, np.int64)
    for event in range(first.size):
        changes[_at(first[event])] += 1
        changes[_at(last[event])] -= 1
    slots = np.empty(size + 1, np.int64)
    found = count = 0
    for slot in range(size):
        count += changes[slot]
        # Written in any case, and kept if the next one goes elsewhere; the changes up to here are not needed again.
        slots[_at(found)] = slot
        changes[_at(found)] = count
        found += count > 0
    return slots[:found], changes[:found]


@kernel(CODES, INTS, INTS)
def slot_bounds(axis_code: Codes, axis_time: Ints, slots: Ints) -> tuple[Codes, Ints, Ints]:
    """Group, begin and end of slots that hold events (so that each has a next boundary in its group).

    Examples:
        >>> slot_bounds(np.array([0, 0, 1, 1], np.int32), np.array([5, 7, 1, 2]), np.array([0, 2]))
        (array([0, 1], dtype=int32), array([5, 1]), array([7, 2]))
    """
    codes, low, high = np.empty(slots.size, np.int32), np.empty(slots.size, np.int64), np.empty(slots.size, np.int64)
    for at in range(slots.size):
        slot = _at(slots[at])
        codes[at] = axis_code[slot]
        low[at] = axis_time[slot]
        high[at] = axis_time[slot + _at(1)]
    return codes, low, high


@kernel(INTS, INTS, INT, INTS)
def range_count(first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
    """How many events hold each of some slots.

    Args:
        first: Each event's first slot.
        last: One past its last slot.
        size: How many slots there are.
        slots: The slots asked for, ascending.

    Returns:
        int64: for each of them the number of events with ``first <= slot < last``.

    Examples:
        >>> range_count(np.array([0, 1]), np.array([2, 3]), 4, np.array([0, 1, 3]))
        array([1, 2, 0])
    """
    changes = np.zeros(size + 1, np.int64)
    for event in range(first.size):
        changes[_at(first[event])] += 1
        changes[_at(last[event])] -= 1
    return _running_at(changes, slots)


@kernel(INTS, INTS, INTS, INT, INTS)
def range_sum(values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
    """The sum of the events' values in each of some slots, modulo 2**64: the caller knows that it fits, or sums limbs.

    Args:
        values: int64 value of each event.
        first: Each event's first slot.
        last: One past its last slot.
        size: How many slots there are.
        slots: The slots asked for, ascending.

    Examples:
        >>> range_sum(np.array([5, 7]), np.array([0, 1]), np.array([2, 3]), 4, np.array([0, 1, 3]))
        array([ 5, 12,  0])
    """
    changes = np.zeros(size + 1, np.int64)
    for event in range(first.size):
        value = values[event]
        changes[_at(first[event])] += value
        changes[_at(last[event])] -= value
    return _running_at(changes, slots)


@inlined
def _running_at(changes: Ints, slots: Ints) -> Ints:
    """The running sums at some ascending places, in the place of the sums before them."""
    total = slot = 0
    for at in range(slots.size):
        while slot <= slots[at]:
            total += changes[_at(slot)]
            slot += 1
        changes[_at(at)] = total
    return changes[: slots.size]


@kernel(INTS, INTS, INTS, INT, INTS)
def range_max(values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
    """The greatest of the events' values in each of some slots, the least int64 where there is none.

    O(events + slots) where first and last both ascend, else O(events + slots x log(longest range)). The minimum is
    ``~range_max(~values, …)``.

    Args:
        values: int64 value (or order code) of each event.
        first: Each event's first slot.
        last: One past its last slot.
        size: How many slots there are.
        slots: The slots asked for, ascending.

    Examples:
        >>> range_max(np.array([5, 7]), np.array([0, 1]), np.array([2, 3]), 3, np.array([0, 2]))
        array([5, 7])
    """
    if _ascends(first) and _ascends(last):
        return _sliding_max(values, first, last, slots)
    greatest = _painted_max(values, first, last, size)
    for at in range(slots.size):
        greatest[at] = greatest[_at(slots[at])]
    return greatest[: slots.size]


@inlined
def _sliding_max(values: Ints, first: Ints, last: Ints, slots: Ints) -> Ints:
    """Slot i holds the events ``low … high - 1``, both bounds ascending: a queue of two stacks.

    ``tails[e]`` is the greatest of the events e … pivot - 1, ``head`` that of pivot … high - 1; when the last event
    before the pivot has left, the pivot moves up to ``high`` and the tails are made anew, once for each event.
    """
    events = first.size
    greatest = np.empty(slots.size, np.int64)
    tails = np.empty(events, np.int64)
    low = high = pivot = 0
    head = _LEAST
    for at in range(slots.size):
        slot = slots[at]
        while high < events and first[high] <= slot:
            head = max(head, values[high])
            high += 1
        while low < high and last[low] <= slot:
            low += 1
        if low > pivot:
            pivot, head = high, _LEAST
            tail = _LEAST
            for event in range(high - 1, low - 1, -1):
                tail = max(tail, values[event])
                tails[event] = tail
        greatest[at] = max(head, tails[low]) if low < pivot else head
    return greatest


@inlined
def _painted_max(values: Ints, first: Ints, last: Ints, size: int) -> Ints:
    """Each range is covered by two of the greatest power of two's length that fits: a sparse table, from top to bottom.

    Going down, ``greatest[i]`` is what the ranges met so far put on slots i … i + 2**level - 1.
    """
    events = first.size
    levels = np.empty(events, np.int64)
    place = np.zeros(65, np.int64)
    for event in range(events):
        length = last[event] - first[event]
        level = -1
        while length >> (level + 1) > 0:
            level += 1
        levels[event] = level
        place[level + 2] += 1
    for level in range(64):
        place[level + 1] += place[level]
    bounds = place.copy()
    order = np.empty(events, np.int64)
    for event in range(events):
        order[place[levels[event] + 1]] = event
        place[levels[event] + 1] += 1
    greatest = np.full(size, _LEAST, np.int64)
    for level in range(62, -1, -1):
        length = 1 << level
        for at in range(bounds[level + 1], bounds[level + 2]):
            event = order[at]
            value, left, right = values[event], first[event], last[event] - length
            greatest[left] = max(greatest[left], value)
            greatest[right] = max(greatest[right], value)
        half = length >> 1
        if half and bounds[level + 1] < events:
            for slot in range(size - 1, half - 1, -1):
                greatest[slot] = max(greatest[slot], greatest[slot - half])
    return greatest


@kernel(INTS)
def expand(counts: Ints) -> tuple[Ints, Ints]:
    """Each index as often as its count says.

    Args:
        counts: How often, none negative.

    Returns:
        (source, offset): index i ``counts[i]`` times, and 0, 1, … within each.

    Examples:
        >>> expand(np.array([2, 0, 1]))
        (array([0, 0, 2]), array([0, 1, 0]))
    """
    total = 0
    for index in range(counts.size):
        total += counts[index]
    source, offset = np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for index in range(counts.size):
        for number in range(counts[index]):
            source[_at(at + number)] = index
            offset[_at(at + number)] = number
        at += counts[index]
    return source, offset


@kernel(BOOLS)
def keep(mask: Bools) -> Ints:
    """The indices at which a mask holds, ascending.

    Examples:
        >>> keep(np.array([True, False, True]))
        array([0, 2])
    """
    return _keep(mask)


@inlined
def _keep(mask: Bools) -> Ints:
    count = 0
    for index in range(mask.size):
        count += mask[index]
    # Every index is written, and kept if the next one goes elsewhere; hence one place more.
    indices = np.empty(count + 1, np.int64)
    at = 0
    for index in range(mask.size):
        indices[_at(at)] = index
        at += mask[index]
    return indices[:count]


# Grids of windows


@kernel(INTS, INTS, INT, INT, INT)
def grid_ranges(start: Ints, end: Ints, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
    """Which windows of a grid each event overlaps; window k is ``[align + k hop, align + k hop + size)``.

    Moving ``align`` by whole hops renumbers the windows at no cost. Where neighbouring events have the same windows, as
    they mostly have in order of time, nothing is divided.

    Args:
        start: int64 ticks.
        end: int64 ticks, after the start.
        size: The windows' length in ticks, positive, at most the span of time there is.
        hop: Ticks from one window's start to the next's, positive, likewise.
        align: Where window 0 starts, in ticks, likewise. (So no sum here overflows.)

    Returns:
        (first, last): the event overlaps windows ``first … last - 1``; none if ``first == last``, in a gap.

    Examples:
        >>> grid_ranges(np.array([9, 10]), np.array([10, 31]), 20, 10, 0)
        (array([-1,  0]), array([1, 4]))
    """
    events = start.size
    first, last = np.empty(events, np.int64), np.empty(events, np.int64)
    if events == 0:
        return first, last
    step = np.uint64(hop)
    low = (start[0] - size - align) // hop + 1
    low_from = align + (low - 1) * hop + size  # starts from here, for one hop, have the same first window
    high = (end[0] - 1 - align) // hop + 1
    high_from = align + (high - 1) * hop + 1  # and ends from here the same last
    for event in range(events):
        if np.uint64(start[event] - low_from) >= step:
            low = (start[event] - size - align) // hop + 1
            low_from = align + (low - 1) * hop + size
        if np.uint64(end[event] - high_from) >= step:
            high = (end[event] - 1 - align) // hop + 1
            high_from = align + (high - 1) * hop + 1
        first[event] = low
        last[event] = high
    return first, last


def grid_ranges_by_start(start: Ints, size: int, hop: int, align: int) -> tuple[Ints, Ints]:
    """Which windows hold each event's start, in Trill's numbering: window k is ``(align + k hop - size, align + k hop]``.

    Args:
        start: int64 ticks.
        size: The windows' length in ticks, positive.
        hop: Ticks from one window's end to the next's, positive.
        align: Where window 0 ends, in ticks.

    Returns:
        (first, last): the start lies in windows ``first … last - 1``; in none if ``first == last``, in a gap.

    Examples:
        >>> grid_ranges_by_start(np.array([10, 11]), 20, 10, 0)
        (array([1, 2]), array([3, 4]))
    """
    # Of whole ticks, window k is [align + k hop - size + 1, align + k hop + 1), and the start is one tick long.
    return grid_ranges(start, start + 1, size, hop, align - size + 1)


# Dense grids: a slot for every (window, group), for few groups and events in about the order of time


def dense_zeros(like: Array, groups: int, windows: int) -> Ints:
    """What `dense_count` and `dense_sum` add to: differences between a window and the one before, all zero.

    Args:
        like: Any array of the device.
        groups: How many groups there are.
        windows: How many windows there are, numbered from 0.

    Returns:
        int64[(windows + 1) x groups]; group g of window w is at ``w x groups + g``.

    Examples:
        >>> dense_zeros(np.array([0]), 2, 3).shape
        (8,)
    """
    del like
    return np.zeros((windows + 1) * groups, np.int64)


_CHANGED = output(numba.types.int64)


@kernel(_CHANGED, CODES, INTS, INTS, INT)
def dense_count(into: Ints, codes: Codes, first: Ints, last: Ints, groups: int) -> Ints:
    """Count events into a dense grid.

    Args:
        into: From `dense_zeros` or an earlier call. It is used up: on the CPU the result is made in it.
        codes: int32 group of each event.
        first: Each event's first window, from 0.
        last: One past its last window, at most the number of windows.
        groups: How many groups there are.

    Returns:
        ``into`` with the events added; `dense_totals` turns it into counts.

    Examples:
        >>> grid = dense_zeros(np.array([0]), 1, 3)
        >>> grid = dense_count(grid, np.array([0, 0], np.int32), np.array([0, 1]), np.array([2, 2]), 1)
        >>> dense_totals(grid, 1)
        array([1, 2, 0])
    """
    events = codes.size
    if groups == 1:
        # In order of time, long runs have the same windows; adding each to one number would wait for the last.
        run = 0
        for event in range(events):
            run += 1
            if event + 1 == events or first[event] != first[event + 1] or last[event] != last[event + 1]:
                into[_at(first[event])] += run
                into[_at(last[event])] -= run
                run = 0
        return into
    for event in range(events):
        into[_at(first[event] * groups + codes[event])] += 1
        into[_at(last[event] * groups + codes[event])] -= 1
    return into


@kernel(_CHANGED, CODES, INTS, INTS, INTS, INT)
def dense_sum(into: Ints, codes: Codes, first: Ints, last: Ints, values: Ints, groups: int) -> Ints:
    """Sum events' values into a dense grid, modulo 2**64.

    Args:
        into: From `dense_zeros` or an earlier call. It is used up: on the CPU the result is made in it.
        codes: int32 group of each event.
        first: Each event's first window, from 0.
        last: One past its last window, at most the number of windows.
        values: int64 value of each event.
        groups: How many groups there are.

    Returns:
        ``into`` with the values added; `dense_totals` turns it into sums.

    Examples:
        >>> grid = dense_zeros(np.array([0]), 1, 3)
        >>> codes, values = np.array([0, 0], np.int32), np.array([5, 7])
        >>> dense_totals(dense_sum(grid, codes, np.array([0, 1]), np.array([2, 2]), values, 1), 1)
        array([ 5, 12,  0])
    """
    for event in range(codes.size):
        value = values[event]
        into[_at(first[event] * groups + codes[event])] += value
        into[_at(last[event] * groups + codes[event])] -= value
    return into


@kernel(_CHANGED, INT)
def dense_totals(into: Ints, groups: int) -> Ints:
    """From differences to totals: a running sum down the windows of each group.

    Args:
        into: From `dense_count` or `dense_sum`; used up, as there.
        groups: How many groups there are.

    Returns:
        int64[windows x groups]; group g of window w is at ``w x groups + g``.

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
