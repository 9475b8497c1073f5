"""One step of a running query on the CPU: the axis of its window, and where to look in what is remembered."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INT, INTS, Codes, Ints, inlined, kernel


@kernel(CODES, INTS, INTS, INT, INTS, INT, INT, INT)
def step_axis(
    codes: Codes, low: Ints, high: Ints, earlier: int, known: Ints, force: int, before: int, after: int
) -> tuple[Codes, Ints, Ints, Ints, Ints, Ints, Ints, Ints]:
    """The distinct boundaries of each group of a step, and which of them each event lies between.

    Examples:
        >>> codes, low, high = np.zeros(2, np.int32), np.array([0, 4]), np.array([6, 99])
        >>> made = step_axis(codes, low, high, 1, np.array([2]), 99, -99, 99)
        >>> made[1], made[2], made[3]
        (array([-99,   2,   4,   6,  99]), array([0, 2]), array([3, 4]))
    """
    events, groups = codes.size, known.size
    begins, ends = np.zeros(groups + 1, np.int64), np.zeros(groups + 1, np.int64)
    _count(codes, high, earlier, known, force, before, after, begins, ends)
    start_time, start_of = np.empty(begins[groups], np.int64), np.full(begins[groups], -1)
    end_time, end_of = np.empty(ends[groups], np.int64), np.full(ends[groups], -1)
    _place_starts(codes, low, earlier, known, before, begins, start_time, start_of)
    _place_ends(codes, high, force, after, ends, end_time, end_of)
    axis_code = np.empty(start_time.size + end_time.size, np.int32)
    axis = np.empty(start_time.size + end_time.size, np.int64)
    first, last = np.empty(events, np.int64), np.empty(events, np.int64)
    from_slot, to_slot = np.empty(groups, np.int64), np.empty(groups, np.int64)
    size = 0
    for group in range(groups):
        _sort(start_time, start_of, begins[group], begins[group + 1])
        _sort(end_time, end_of, ends[group], ends[group + 1])
        from_slot[group] = size
        begun, ended = begins[group], ends[group]
        while ended < ends[group + 1]:
            is_start = begun < begins[group + 1] and start_time[begun] <= end_time[ended]
            place = start_time[begun] if is_start else end_time[ended]
            if size == from_slot[group] or axis[size - 1] != place:
                axis[size], axis_code[size] = place, group
                size += 1
            owner = start_of[begun] if is_start else end_of[ended]
            if owner >= 0:
                (first if is_start else last)[owner] = size - 1
            begun += is_start
            ended += not is_start
        to_slot[group] = size - 1
    for event in range(events):
        if event < earlier:
            first[event] = from_slot[codes[event]]
        if high[event] >= after:
            last[event] = to_slot[codes[event]]
    slots, owners = np.empty(size - groups, np.int64), np.empty(size - groups, np.int64)
    slot = 0
    for group in range(groups):
        for at in range(from_slot[group], to_slot[group]):
            slots[slot], owners[slot] = at, group
            slot += 1
        from_slot[group] -= group
        to_slot[group] -= group + 1
    return axis_code[:size], axis[:size], first, last, slots, owners, from_slot, to_slot


@inlined
def _count(
    codes: Codes, high: Ints, earlier: int, known: Ints, force: int, before: int, after: int, begins: Ints, ends: Ints
) -> None:
    """Where each group's starts and ends begin, once all are placed."""
    groups = known.size
    for group in range(groups):
        begins[group + 1] = 1 + int(known[group] > before)
        ends[group + 1] = 1 + int(force < after)
    for event in range(codes.size):
        begins[codes[event] + 1] += event >= earlier
        ends[codes[event] + 1] += high[event] < after
    for group in range(groups):
        begins[group + 1] += begins[group]
        ends[group + 1] += ends[group]


@inlined
def _place_starts(
    codes: Codes, low: Ints, earlier: int, known: Ints, before: int, begins: Ints, times: Ints, owners: Ints
) -> None:
    place = begins.copy()
    for group in range(known.size):
        times[place[group]] = before
        place[group] += 1
        if known[group] > before:
            times[place[group]] = known[group]
            place[group] += 1
    for event in range(earlier, codes.size):
        at = place[codes[event]]
        times[at], owners[at] = low[event], event
        place[codes[event]] += 1


@inlined
def _place_ends(codes: Codes, high: Ints, force: int, after: int, ends: Ints, times: Ints, owners: Ints) -> None:
    place = ends.copy()
    for event in range(codes.size):
        if high[event] < after:
            at = place[codes[event]]
            times[at], owners[at] = high[event], event
            place[codes[event]] += 1
    for group in range(ends.size - 1):
        times[ends[group + 1] - 1] = after
        if force < after:
            times[ends[group + 1] - 2] = force


@inlined
def _sort(times: Ints, owners: Ints, low: int, high: int) -> None:
    """Put a stretch of times in order, with their owners, unless it is."""
    ordered = True
    for at in range(low + 1, high):
        ordered = ordered and times[at - 1] <= times[at]
    if not ordered:
        order = np.argsort(times[low:high])
        some, theirs = times[low:high].copy(), owners[low:high].copy()
        for at in range(order.size):
            times[low + at], owners[low + at] = some[order[at]], theirs[order[at]]


@kernel(CODES, INTS, CODES, INTS)
def search_pairs(codes: Codes, places: Ints, of_codes: Codes, of_places: Ints) -> Ints:
    """For each (group, place) pair, the first row that is greater.

    Each takes the logarithm of how far it is from the one before, if pairs ascend, and else from the first row.

    Examples:
        >>> codes, places = np.array([0, 0, 2], np.int32), np.array([4, 7, 1])
        >>> search_pairs(codes, places, np.array([0, 1, 2], np.int32), np.array([4, 9, 5]))
        array([1, 2, 3])
    """
    found = np.empty(of_codes.size, np.int64)
    low = 0
    for at in range(of_codes.size):
        code, place = of_codes[at], of_places[at]
        if at and (of_codes[at - 1] > code or (of_codes[at - 1] == code and of_places[at - 1] > place)):
            low = 0
        high, stride = low, 1
        while high < codes.size and _is_upto(codes, places, high, code, place):
            low = high + 1
            high, stride = high + stride, 2 * stride
        high = min(high, codes.size)
        while low < high:
            middle = (low + high) >> 1
            if _is_upto(codes, places, middle, code, place):
                low = middle + 1
            else:
                high = middle
        found[at] = low
    return found


@inlined
def _is_upto(codes: Codes, places: Ints, row: int, code: int, place: int) -> bool:
    return bool(codes[row] < code or (codes[row] == code and places[row] <= place))


def moment_places(
    codes: Codes, times: Ints, turns: Ints, of_codes: Codes, of_times: Ints, of_turns: Ints
) -> tuple[Ints, Ints]:
    """The places of moments among each other, from 1 on, and of others the place of the first moment at or after each.

    Linear where both are in order.

    Examples:
        >>> group, last = np.zeros(2, np.int32), np.array([-1, -1])
        >>> moment_places(group, np.array([1, 5]), np.array([0, 1]), group, np.array([5, 9]), last)
        (array([1, 2]), array([2, 3]))
    """
    placed = _places_in_order(codes, times, turns)
    if placed.size == codes.size:
        return placed, _first_from(codes, times, turns, placed, of_codes, of_times, of_turns)
    order = np.lexsort((turns, times, codes))
    codes, times, turns = codes[order], times[order], turns[order]
    in_order = _places_in_order(codes, times, turns)
    placed = np.empty_like(in_order)
    placed[order] = in_order
    return placed, _first_from(codes, times, turns, in_order, of_codes, of_times, of_turns)


@kernel(CODES, INTS, INTS)
def _places_in_order(codes: Codes, times: Ints, turns: Ints) -> Ints:
    """The places of moments that are in order; none if they are not."""
    places = np.empty(codes.size, np.int64)
    place = 0
    for at in range(codes.size):
        if at and _is_before(codes, times, turns, at, codes[at - 1], times[at - 1], turns[at - 1]):
            return places[:0]
        place += at == 0 or _is_before(codes, times, turns, at - 1, codes[at], times[at], turns[at])
        places[at] = place
    return places


@kernel(CODES, INTS, INTS, INTS, CODES, INTS, INTS)
def _first_from(
    codes: Codes, times: Ints, turns: Ints, places: Ints, of_codes: Codes, of_times: Ints, of_turns: Ints
) -> Ints:
    """The place of the first moment at or after each of some others, sought from where the one before it was found."""
    found = np.empty(of_codes.size, np.int64)
    beyond = 1 + (places[places.size - 1] if places.size else 0)
    at = 0
    for other in range(of_codes.size):
        code, time, turn = of_codes[other], of_times[other], of_turns[other]
        low, high, stride = at, at, 1
        if at and not _is_before(codes, times, turns, at - 1, code, time, turn):
            low, high = 0, at - 1
        else:
            while high < codes.size and _is_before(codes, times, turns, high, code, time, turn):
                low = high + 1
                high, stride = high + stride, 2 * stride
            high = min(high, codes.size)
        while low < high:
            middle = (low + high) >> 1
            if _is_before(codes, times, turns, middle, code, time, turn):
                low = middle + 1
            else:
                high = middle
        at = low
        found[other] = places[at] if at < places.size else beyond
    return found


@inlined
def _is_before(codes: Codes, times: Ints, turns: Ints, at: int, code: int, time: int, turn: int) -> bool:
    """Whether a moment is before another one."""
    if codes[at] != code:
        return bool(codes[at] < code)
    if times[at] != time:
        return bool(times[at] < time)
    return bool(turns[at] < turn)
