"""Ranges of slots on the CPU: counts, sums and extremes of the events that hold each slot."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import BOOLS, CODES, INT, INTS, Bools, Codes, Floats, Ints, inlined, kernel, unsigned
from gpu_ops.devices.cpu.order import ascends, slot_order, take

_LEAST = np.iinfo(np.int64).min


@kernel(INTS, INTS, INT)
def occupied(first: Ints, last: Ints, size: int) -> tuple[Ints, Ints]:
    """The slots that hold any event, and how many each holds.

    Examples:
        >>> occupied(np.array([0, 3]), np.array([2, 4]), 5)
        (array([0, 1, 3]), array([1, 1, 1]))
    """
    changes = _changes(first, last, size)
    slots = np.empty(size + 1, np.int64)
    found = count = 0
    for slot in range(size):
        count += changes[slot]
        # Always written; kept only if the place advances. The changes up to here are not needed again.
        slots[unsigned(found)] = slot
        changes[unsigned(found)] = count
        found += count > 0
    return slots[:found], changes[:found]


def slot_bounds(axis_code: Codes, axis_time: Ints, slots: Ints) -> tuple[Codes, Ints, Ints]:
    """Group, begin and end of slots that hold events, so that each has a next boundary in its group.

    Where all slots of one group hold events, begins and ends share memory: an end is the next slot's begin.

    Examples:
        >>> slot_bounds(np.array([0, 0, 1, 1], np.int32), np.array([5, 7, 1, 2]), np.array([0, 2]))
        (array([0, 1], dtype=int32), array([5, 1]), array([7, 2]))
    """
    # A group's last boundary begins no slot. So if one boundary alone does not, there is one group.
    if slots.size == axis_time.size - 1:
        return axis_code[:-1], axis_time[:-1], axis_time[1:]
    return _slot_bounds(axis_code, axis_time, slots)


@kernel(CODES, INTS, INTS)
def _slot_bounds(axis_code: Codes, axis_time: Ints, slots: Ints) -> tuple[Codes, Ints, Ints]:
    codes, low, high = np.empty(slots.size, np.int32), np.empty(slots.size, np.int64), np.empty(slots.size, np.int64)
    for at in range(slots.size):
        slot = unsigned(slots[at])
        codes[at] = axis_code[slot]
        low[at] = axis_time[slot]
        high[at] = axis_time[slot + unsigned(1)]
    return codes, low, high


@kernel(INTS, INTS, INT, INTS)
def range_count(first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
    """How many events hold each of some slots.

    Examples:
        >>> range_count(np.array([0, 1]), np.array([2, 3]), 4, np.array([0, 1, 3]))
        array([1, 2, 0])
    """
    return _running_totals(_changes(first, last, size), slots)


@inlined
def _changes(first: Ints, last: Ints, size: int) -> Ints:
    """By how much each slot holds more events than the one before."""
    changes = np.zeros(size + 1, np.int64)
    for event in range(first.size):
        changes[unsigned(first[event])] += 1
        changes[unsigned(last[event])] -= 1
    return changes


@kernel(INTS, INTS, INTS, INT, INTS)
def range_sum(values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
    """The sum of the events' values in each of some slots, modulo 2**64: the caller knows that it fits, or sums limbs.

    Examples:
        >>> range_sum(np.array([5, 7]), np.array([0, 1]), np.array([2, 3]), 4, np.array([0, 1, 3]))
        array([ 5, 12,  0])
    """
    changes = np.zeros(size + 1, np.int64)
    for event in range(first.size):
        value = values[event]
        changes[unsigned(first[event])] += value
        changes[unsigned(last[event])] -= value
    return _running_totals(changes, slots)


@inlined
def _running_totals(changes: Ints, slots: Ints) -> Ints:
    """The running sums at some ascending places, in the place of the sums before them."""
    total = slot = 0
    for at in range(slots.size):
        while slot <= slots[at]:
            total += changes[unsigned(slot)]
            slot += 1
        changes[unsigned(at)] = total
    return changes[: slots.size]


def range_max(values: Ints, first: Ints, last: Ints, size: int, slots: Ints) -> Ints:
    """The greatest of the events' values in each of some slots, the least int64 where there is none.

    O(events + slots) where first and last both ascend, else O(events + slots x log(longest range)).

    Examples:
        >>> range_max(np.array([5, 7]), np.array([0, 1]), np.array([2, 3]), 3, np.array([0, 2]))
        array([5, 7])
    """
    if ascends(first) and ascends(last):
        return _sliding_max(values, first, last, slots)
    # The exponent of a length counts its bits: one more than the level of the power of two that fits in it.
    order, bounds = slot_order(np.frexp(last - first)[1].astype(np.int64), 64)
    return take(_painted_max(values, first, last, order, bounds, size), slots)


@kernel(INTS, INTS, INTS, INTS)
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


@kernel(INTS, INTS, INTS, INTS, INTS, INT)
def _painted_max(values: Ints, first: Ints, last: Ints, order: Ints, bounds: Ints, size: int) -> Ints:
    """Each range is covered by two of the greatest power of two's length that fits: a sparse table, from top to bottom.

    Going down, ``greatest[i]`` is what the ranges met so far put on slots i … i + 2**level - 1. The ranges of a level
    are ``order[bounds[level + 1]] … order[bounds[level + 2] - 1]``.
    """
    events = first.size
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
    """Each index repeated by its count.

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
            source[unsigned(at + number)] = index
            offset[unsigned(at + number)] = number
        at += counts[index]
    return source, offset


@kernel(BOOLS)
def keep(mask: Bools) -> Ints:
    """The indices at which a mask holds, ascending.

    Examples:
        >>> keep(np.array([True, False, True]))
        array([0, 2])
    """
    count = 0
    for index in range(mask.size):
        count += mask[index]
    # Each index is written, and kept only if the place advances; hence one place more.
    indices = np.empty(count + 1, np.int64)
    at = 0
    for index in range(mask.size):
        indices[unsigned(at)] = index
        at += mask[index]
    return indices[:count]


def running_max(values: Ints) -> Ints:
    """The greatest of the first 1, 2, … values.

    Examples:
        >>> running_max(np.array([3, 1, 5]))
        array([3, 3, 5])
    """
    return np.maximum.accumulate(values)


def occurring(codes: Codes, count: int) -> Ints:
    """The codes that occur, ascending, of ``count`` codes. NumPy takes ten times as long to mark them.

    Examples:
        >>> occurring(np.array([3, 1, 3], np.int32), 5)
        array([1, 3])
    """
    return keep(_marked(codes, count))


@kernel(CODES, INT)
def _marked(codes: Codes, count: int) -> Bools:
    there = np.zeros(count, np.bool_)
    for row in range(codes.size):
        there[unsigned(codes[row])] = True
    return there


@kernel(INTS, INTS)
def quotient(totals: Ints, counts: Ints) -> Floats:
    """Totals over counts, each rounded to float64 first.

    Examples:
        >>> quotient(np.array([7, 9]), np.array([2, 3]))
        array([3.5, 3. ])
    """
    made = np.empty(totals.size, np.float64)
    for at in range(totals.size):
        made[at] = float(totals[at]) / float(counts[at])
    return made
