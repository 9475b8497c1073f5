"""Order on the CPU: events by group and start, and moving what belongs to them along.

What takes long over many rows runs on several threads: each has a part of the rows, and writes where no other one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numba
import numpy as np

from gpu_ops.core.arrow_buffers import room
from gpu_ops.core.threads import PART, in_parallel, parts
from gpu_ops.devices.cpu.compiling import (
    BOOLS,
    CODES,
    INT,
    INTS,
    Array,
    Bools,
    Codes,
    Ints,
    inlined,
    kernel,
    output,
    unsigned,
)

# A loop that may end early tests for it after this many events: in between it can use wide instructions.
_CHUNK = 4096

_Part = tuple[int, int, Ints]
"""(low, upto, places): some events, and for each group the place of the first of them in group order."""


def group_bounds(codes: Codes, groups: int) -> Ints:
    """Where each group begins when events are in group order.

    Examples:
        >>> group_bounds(np.array([2, 0, 2], np.int32), 3)
        array([0, 1, 1, 3])
    """
    return _places(codes, groups)[0]


def _places(codes: Codes, groups: int) -> tuple[Ints, list[_Part]]:
    """(where each group begins in group order, parts of the events and the places of each)."""
    # Together, the tables of all parts are a quarter as long as the events at most.
    cut = parts(codes.size, 4 * groups)
    made = in_parallel(lambda part: _group_bounds(codes[part[0] : part[1]], groups), cut)
    if len(cut) == 1:
        return made[0], [(*cut[0], made[0])]
    bounds, ends = np.sum(made, axis=0), np.cumsum(np.diff(made), axis=0)
    places = bounds[:-1] + np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
    return bounds, [(*part, each) for part, each in zip(cut, places, strict=True)]


@kernel(CODES, INT)
def _group_bounds(codes: Codes, groups: int) -> Ints:
    bounds = np.zeros(groups + 1, np.int64)
    for event in range(codes.size):
        bounds[unsigned(codes[event]) + unsigned(1)] += 1
    for group in range(groups):
        bounds[group + 1] += bounds[group]
    return bounds


def group_codes(bounds: Ints) -> Codes:
    """The codes of events in group order: int32, each group as often as it has events.

    Examples:
        >>> group_codes(np.array([0, 1, 1, 3]))
        array([0, 2, 2], dtype=int32)
    """
    begin = int(bounds[0])
    codes = room(int(bounds[-1]) - begin, np.int32)
    in_parallel(lambda part: _group_codes(bounds, begin + part[0], codes[part[0] : part[1]]), parts(codes.size))
    return codes


@kernel(INTS, INT, output(numba.types.int32))
def _group_codes(bounds: Ints, low: int, into: Codes) -> None:
    """The codes of the events from ``low`` on, of groups that begin at ``bounds``."""
    group = np.searchsorted(bounds, low, side="right") - 1
    at = 0
    while at < into.size:
        upto = min(bounds[group + 1] - low, into.size)
        code, same = np.int32(group), into[at:upto]
        for event in range(same.size):
            same[event] = code
        at = upto
        group += 1


def is_ordered(codes: Codes, start: Ints) -> bool:
    """Whether events are in order of group, then start.

    Examples:
        >>> is_ordered(np.array([0, 0, 1], np.int32), np.array([3, 3, 1]))
        True
    """
    # Each part with the first event of the next one.
    return all(
        in_parallel(
            lambda part: _is_ordered(codes[part[0] : part[1] + 1], start[part[0] : part[1] + 1]),
            parts(codes.size),
        )
    )


@kernel(CODES, INTS)
def _is_ordered(codes: Codes, start: Ints) -> bool:
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


def ascends(values: Ints) -> bool:
    """Whether no value is less than the one before.

    Examples:
        >>> ascends(np.array([1, 1, 3]))
        True
    """
    if values.size < PART:
        return _all_ascend(values)
    return all(in_parallel(lambda part: _all_ascend(values[part[0] : part[1] + 1]), parts(values.size)))


@kernel(INTS)
def _all_ascend(values: Ints) -> bool:
    return _ascends(values)


def extent(values: Array) -> tuple[int, int]:
    """The least and the greatest of integers of any width; there is at least one.

    Examples:
        >>> extent(np.array([3, 1, 2], np.int16))
        (1, 3)
    """
    extent_of = _extent[values.dtype]
    if values.size < PART:
        return extent_of(values)
    found = in_parallel(lambda part: extent_of(values[slice(*part)]), parts(values.size))
    return min(least for least, _ in found), max(most for _, most in found)


def extent_moved(values: Ints, by: int, into: Ints) -> tuple[int, int]:
    """`extent`, and the values moved by a number into an array, in one pass.

    Examples:
        >>> into = np.zeros(3, np.int64)
        >>> extent_moved(np.array([3, 1, 2]), 1, into), into
        ((1, 3), array([4, 2, 3]))
    """
    found = in_parallel(lambda part: _extent_moved(values[slice(*part)], by, into[slice(*part)]), parts(values.size))
    return min(least for least, _ in found), max(most for _, most in found)


@kernel(INTS, INT, output(numba.types.int64), allocates=False)
def _extent_moved(values: Ints, by: int, into: Ints) -> tuple[int, int]:
    least = most = values[0]
    for at in range(values.size):
        value = values[at]
        least, most = min(least, value), max(most, value)
        into[at] = value + by
    return least, most


def lifetimes_extent(start: Ints, end: Ints) -> tuple[int, int, int, bool]:
    """(the least start, the greatest start, the greatest end, whether each end is after its start) of some lifetimes.

    Examples:
        >>> lifetimes_extent(np.array([3, 1]), np.array([5, 9]))
        (1, 3, 9, True)
    """
    found = in_parallel(lambda part: _lifetimes_extent(start[slice(*part)], end[slice(*part)]), parts(start.size))
    least, most, latest, after = zip(*found, strict=True)
    return min(least), max(most), max(latest), all(after)


@kernel(INTS, INTS)
def _lifetimes_extent(start: Ints, end: Ints) -> tuple[int, int, int, bool]:
    least, most, latest, wrong = start[0], start[0], end[0], 0
    for at in range(start.size):
        begin, finish = start[at], end[at]
        least, most, latest = min(least, begin), max(most, begin), max(latest, finish)
        wrong += begin >= finish
    return least, most, latest, wrong == 0


def _least_and_most(values: Array) -> tuple[int, int]:
    least = most = values[0]
    for at in range(values.size):
        least, most = min(least, values[at]), max(most, values[at])
    return least, most


_extent = {
    np.dtype(name): kernel(numba.types.Array(getattr(numba.types, name), 1, "C", readonly=True))(_least_and_most)
    for name in (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
}


def group_order(codes: Codes, groups: int, start: Ints) -> Ints:
    """The order of events by group, then start; a stable sort.

    A counting sort by group: some 5 ns an event where each group's events arrive in order of time. Groups that do not
    are sorted by start, in O(events) by digits.

    Examples:
        >>> group_order(np.array([1, 0, 1], np.int32), 2, np.array([7, 9, 5]))
        array([1, 2, 0])
    """
    in_time = ascends(start)
    if in_time and groups == 1:
        return np.arange(codes.size)
    bounds, placed = _places(codes, groups)
    order = room(codes.size, np.int64)
    in_parallel(lambda part: _scatter_rows(codes[part[0] : part[1]], part[2], part[0], order), placed)
    if not in_time:
        in_parallel(lambda cut: _sort_groups(start, cut, order), _group_cuts(bounds))
    return order


def _group_cuts(bounds: Ints) -> list[Ints]:
    """The bounds of the groups in parts of about equally many events, each part with the end of its last group."""
    at = [0, *(int(np.searchsorted(bounds, upto)) for _, upto in parts(int(bounds[-1])))]
    at[-1] = bounds.size - 1
    return [bounds[low : upto + 1] for low, upto in pairwise(at)]


@kernel(CODES, INTS, INT, output(numba.types.int64))
def _scatter_rows(codes: Codes, places: Ints, low: int, into: Ints) -> None:
    """The indices of the events from ``low`` on, in group order."""
    place = places.copy()
    for event in range(codes.size):
        code = unsigned(codes[event])
        into[unsigned(place[code])] = low + event
        place[code] += 1


@kernel(INTS, INTS, output(numba.types.int64))
def _sort_groups(start: Ints, bounds: Ints, order: Ints) -> None:
    """Sort the events of some groups by start, where they are not in order of start; a stable sort."""
    groups, events = bounds.size - 1, bounds[bounds.size - 1] - bounds[0]
    keys, items = np.empty((2, 0), np.int64), np.empty((2, 0), np.int64)
    for group in range(groups):
        low, count = bounds[group], bounds[group + 1] - bounds[group]
        if keys.shape[1] < count:
            # At least twice as large as before: few allocations, however the groups' sizes grow.
            room = min(events, 2 * count)
            keys, items = np.empty((2, room), np.int64), np.empty((2, room), np.int64)
        for at in range(count):
            items[0, at] = order[low + at]
            keys[0, at] = start[unsigned(items[0, at])]
        if not _ascends(keys[0, :count]):
            _sort_pairs(keys, items, count)
            for at in range(count):
                order[low + at] = items[0, at]


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
                place[(((np.uint64(keys[row, at]) - base) >> shift) & mask) + unsigned(1)] += 1
            for value in range(1 << width):
                place[value + 1] += place[value]
            for at in range(count):
                found = ((np.uint64(keys[row, at]) - base) >> shift) & mask
                free = unsigned(place[found])
                keys[1 - row, free], items[1 - row, free] = keys[row, at], items[row, at]
                place[found] += 1
            row = 1 - row
        if row == 1:
            for at in range(count):
                items[0, at] = items[1, at]


@kernel(INTS, INT)
def slot_order(slots: Ints, size: int) -> tuple[Ints, Ints]:
    """Events in order of their slots, ``0 … size``, and where each slot's begin: a counting sort.

    Examples:
        >>> slot_order(np.array([1, 0, 1]), 1)
        (array([1, 0, 2]), array([0, 1, 3]))
    """
    bounds = np.zeros(size + 2, np.int64)
    for event in range(slots.size):
        bounds[unsigned(slots[event] + 1)] += 1
    for slot in range(size + 1):
        bounds[slot + 1] += bounds[slot]
    events, place = np.empty(slots.size, np.int64), bounds.copy()
    for event in range(slots.size):
        at = unsigned(slots[event])
        events[unsigned(place[at])] = event
        place[at] += 1
    return events, bounds


_FEW = 1 << 14
"""Up to this many values, NumPy gathers in less time than it takes to call a kernel."""


def take(values: Array, indices: Ints) -> Array:
    """The values at these indices: numbers or bools of any width, several times as fast as indexing.

    Args:
        values: The values.
        indices: Integers of any width.

    Examples:
        >>> take(np.array([2.5, 3.5, 4.5]), np.array([2, 0]))
        array([4.5, 2.5])
    """
    if len(indices) < _FEW:
        few: Array = values.take(indices)
        return few
    made = room(len(indices), values.dtype)
    take_into(values, indices, made)
    return made


def take_into(values: Array, indices: Ints, into: Array) -> None:
    """`take` into an array."""
    moved, given, made = _take[values.itemsize], _bits(np.ascontiguousarray(values)), _bits(into)
    indices = np.ascontiguousarray(indices, np.int64)
    in_parallel(lambda part: moved(given, indices[part[0] : part[1]], made[part[0] : part[1]]), parts(indices.size))


def kept(values: Array, flags: Bools, count: int) -> Array:
    """The values of rows for which a flag holds, numbers or bools of any width; they are not few.

    Args:
        values: A value for each row.
        flags: A flag for each row.
        count: For how many rows it holds.

    Examples:
        >>> kept(np.array([2.5, 3.5, 4.5]), np.array([True, False, True]), 2)
        array([2.5, 4.5])
    """
    made = room(count + 1, values.dtype)  # what is not kept is written behind what is, and then written over
    cut = parts(flags.size)
    if len(cut) > 1:
        take_into(values, np.flatnonzero(flags), made[:count])
    else:
        _kept[values.itemsize](_bits(values), flags, _bits(made))
    return made[:count]


def _keep_bits(values: Array, flags: Bools, into: Array) -> None:
    place = unsigned(0)
    for row in range(flags.size):
        into[place] = values[row]
        place += unsigned(flags[row])


def _take_bits(values: Array, indices: Ints, into: Array) -> None:
    for at in range(indices.size):
        into[at] = values[unsigned(indices[at])]


def _scatter_bits(codes: Codes, places: Ints, values: Array, into: Array) -> None:
    place = places.copy()
    for event in range(codes.size):
        code = unsigned(codes[event])
        into[unsigned(place[code])] = values[event]
        place[code] += 1


_WIDTHS = {1: numba.types.int8, 2: numba.types.int16, 4: numba.types.int32, 8: numba.types.int64}
_take = {
    width: kernel(numba.types.Array(bits, 1, "C", readonly=True), INTS, output(bits))(_take_bits)
    for width, bits in _WIDTHS.items()
}
_kept = {
    width: kernel(numba.types.Array(bits, 1, "C", readonly=True), BOOLS, output(bits), allocates=False)(_keep_bits)
    for width, bits in _WIDTHS.items()
}
_scatter = {
    width: kernel(CODES, INTS, numba.types.Array(bits, 1, "C", readonly=True), output(bits))(_scatter_bits)
    for width, bits in _WIDTHS.items()
}


def _bits(values: Array) -> Array:
    return values.view(f"i{values.itemsize}")


def partition(codes: Codes, groups: int, arrays: Sequence[Array]) -> tuple[Codes, Ints, list[Array]]:
    """Events ordered by group, then start, by the quickest way for their present order.

    Examples:
        >>> partition(np.array([1, 0, 1], np.int32), 2, [np.array([5, 6, 7]), np.array([0.5, 1.5, 2.5])])
        (array([0, 1, 1], dtype=int32), array([0, 1, 3]), [array([6, 5, 7]), array([1.5, 0.5, 2.5])])
    """
    placed = list(arrays)
    if is_ordered(codes, placed[0]):
        return codes, group_bounds(codes, groups), placed
    bounds, found = _places(codes, groups)
    if not _codes_ascend(codes):
        placed = [room(len(values), values.dtype) for values in arrays]
        moves = [(part, *move) for move in zip(arrays, placed, strict=True) for part in found]
        if codes.size < PART:
            for move in moves:
                _scattered(codes, *move)
        else:
            in_parallel(lambda move: _scattered(codes, *move), moves)
        codes = group_codes(bounds)
    if not is_ordered(codes, placed[0]):
        # Within its group an event moves only a short way, which gathers quickly.
        order = group_order(codes, groups, placed[0])
        placed = [take(values, order) for values in placed]
    return codes, bounds, placed


def _scattered(codes: Codes, part: _Part, values: Array, into: Array) -> None:
    """Write the values of a part into their places."""
    low, upto, places = part
    _scatter[values.itemsize](codes[low:upto], places, _bits(values)[low:upto], _bits(into))


@kernel(CODES)
def _codes_ascend(codes: Codes) -> bool:
    for low in range(0, codes.size, _CHUNK):
        code, next_code = codes[low : low + _CHUNK], codes[low + 1 : low + 1 + _CHUNK]
        descents = 0
        for at in range(next_code.size):
            descents += code[at] > next_code[at]
        if descents:
            return False
    return True
