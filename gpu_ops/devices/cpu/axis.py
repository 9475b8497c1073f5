"""The window axis on the CPU: each group's boundaries in time, and joining events that touch."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INTS, Bools, Codes, Ints, inlined, kernel, unsigned
from gpu_ops.devices.cpu.order import group_order, is_ordered, slot_order, take
from gpu_ops.devices.cpu.ranges import keep


def axis(codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints, Ints]:
    """The distinct boundaries of each group, ascending, and which of them each event lies between.

    Per group a merge of starts and ends, from both sides at once; ends that do not ascend are sorted first.

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
    # The boundaries of starts, then those of ends: in one array, each step of the merge is one store.
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
        first, last = start[unsigned(begun)], end[unsigned(ended)]
        is_start = int(first <= last)
        axis_time[unsigned(front)] = min(first, last)
        slots[unsigned(begun if is_start else events + ended)] = front
        begun += is_start
        ended += 1 - is_start
        front += 1

        first, last = start[unsigned(begins)], end[unsigned(ends)]
        is_end = int(first <= last)
        axis_time[unsigned(back)] = max(first, last)
        slots[unsigned(events + ends if is_end else begins)] = back
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
            slots[at] = size + moved[unsigned(slots[at] - size)]
            slots[slots.size // 2 + at] = size + moved[unsigned(slots[slots.size // 2 + at] - size)]
    return count - repeats


def stitch_order(codes: Codes, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Events of one group joined where one ends exactly at the start of another (Trill's Stitch).

    Examples:
        >>> stitch_order(np.zeros(3, np.int32), np.array([1, 2, 4]), np.array([4, 3, 5]))
        (array([0, 1]), array([2, 1]))
    """
    axis_code, _, first, last = axis(codes, start, end)
    by_end, ended = slot_order(last, axis_code.size)
    # Counting sorts keep the order of equals: this one is by start, then end.
    order, begun = slot_order(take(first, by_end), axis_code.size)
    leads, reach = _stitch(by_end, ended, take(by_end, order), begun)
    chosen = keep(leads)
    return chosen, take(reach, chosen)


@kernel(INTS, INTS, INTS, INTS)
def _stitch(by_end: Ints, ended: Ints, by_start: Ints, begun: Ints) -> tuple[Bools, Ints]:
    """Which events lead a chain, and of each the last event of its chain; each order comes with its slots' bounds."""
    events, size = by_end.size, ended.size - 1
    follower = np.full(events, -1, np.int64)
    leads = np.ones(events, np.bool_)
    for slot in range(size):
        for rank in range(min(ended[slot + 1] - ended[slot], begun[slot + 1] - begun[slot])):
            event = by_start[begun[slot] + rank]
            follower[by_end[ended[slot] + rank]] = event
            leads[event] = False
    # A follower starts later than the event it follows, so it stands behind it.
    reach = np.arange(events)
    for event in range(events - 1, -1, -1):
        if follower[event] >= 0:
            reach[event] = reach[follower[event]]
    return leads, reach
