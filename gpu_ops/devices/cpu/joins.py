"""Two streams on the CPU: which events overlap, pair by pair, and what is covered.

Two lifetimes overlap where one starts within the other. So each pair is found once: at a right start within the left
lifetime, or at a left start within the right lifetime but after its start. Both are ranges of events in order of start,
so no event is compared with one that it does not meet, however long some lifetimes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from gpu_ops.core.arrow_buffers import room
from gpu_ops.core.threads import in_parallel, parts
from gpu_ops.devices.cpu.compiling import CODES, INT, INTS, Array, Codes, Ints, kernel, output, unsigned
from gpu_ops.devices.cpu.order import take_into
from gpu_ops.devices.cpu.steps import search_pairs

OUT = output(INT)

_NEAR = 16
"""How many events are counted one by one before a binary search of the rest."""

_FEW = 1 << 15
"""How many pairs' indices fit in the processor's cache together."""

_STRIDE = 4
"""How many indices are written at a time; the next ones overwrite the surplus."""


def starts_within(
    codes: Codes, start: Ints, end: Ints, other_codes: Codes, other_start: Ints, other_end: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """For each event the others of its group that start within its lifetime, and for each other the events that do.

    Examples:
        >>> zero = np.zeros(3, np.int32)
        >>> starts_within(zero[:1], np.array([3]), np.array([8]), zero, np.array([1, 3, 7]), np.array([4, 5, 9]))
        (array([1]), array([0, 2]), array([0, 1, 1]), array([0, 1, 1, 1]))
    """
    first, other_first = room(codes.size, np.int64), room(other_codes.size, np.int64)

    def merge(part: _Stretch) -> None:
        low, upto, other_low, other_upto = part
        mine, others = slice(low, upto), slice(other_low, other_upto)
        _merge(
            codes[mine],
            start[mine],
            other_codes[others],
            other_start[others],
            low,
            other_low,
            first[mine],
            other_first[others],
        )

    in_parallel(merge, _stretches(codes, start, other_codes, other_start))
    offsets = _counted(codes, end, other_codes, other_start, first)
    return first, offsets, other_first, _counted(other_codes, other_end, codes, start, other_first)


_Stretch = tuple[int, int, int, int]
"""(low, upto, other_low, other_upto): some events, and the others from the first of them to the next stretch's."""


def _stretches(codes: Codes, start: Ints, other_codes: Codes, other_start: Ints) -> list[_Stretch]:
    """Both sides in parts, so that the others of a part start neither before its events nor after the next one's."""
    cut = parts(codes.size)
    lows = np.array([low for low, _ in cut[1:]], np.int64)
    # Times are whole: what is greater than the tick before is not less than the tick itself.
    at = search_pairs(other_codes, other_start, codes[lows], start[lows] - 1).tolist()
    return [(*part, *others) for part, others in zip(cut, pairwise([0, *at, other_codes.size]), strict=True)]


@kernel(CODES, INTS, CODES, INTS, INT, INT, OUT, OUT)
def _merge(
    codes: Codes,
    start: Ints,
    other_codes: Codes,
    other_start: Ints,
    low: int,
    other_low: int,
    first: Ints,
    other_first: Ints,
) -> None:
    """The first other that does not start before each event, and the first event that starts after each other."""
    events, others = codes.size, other_codes.size
    event, at = 0, 0
    # No branch depends on the data: one of the pointers moves, and the last value written stays.
    while event < events and at < others:
        first[unsigned(event)] = other_low + at
        other_first[unsigned(at)] = low + event
        before = other_codes[unsigned(at)] < codes[unsigned(event)] or (
            other_codes[unsigned(at)] == codes[unsigned(event)] and other_start[unsigned(at)] < start[unsigned(event)]
        )
        at += before
        event += 1 - before
    for rest in range(event, events):
        first[rest] = other_low + others
    for rest in range(at, others):
        other_first[rest] = low + events


def _counted(codes: Codes, end: Ints, other_codes: Codes, other_start: Ints, first: Ints) -> Ints:
    """How many others from the first one on start before each event's end: as `pair_offsets`."""
    offsets = room(codes.size + 1, np.int64)
    cut = [slice(*part) for part in parts(codes.size)]
    counts = in_parallel(
        lambda part: _count(codes[part], end[part], other_codes, other_start, first[part], offsets[part]), cut
    )
    before = [0, *accumulate(counts)]

    def shift(part: slice, by: int) -> None:
        offsets[part] += by

    in_parallel(lambda each: shift(*each), list(zip(cut[1:], before[1:-1], strict=True)))
    offsets[codes.size] = before[-1]
    return offsets


@kernel(CODES, INTS, CODES, INTS, INTS, OUT)
def _count(codes: Codes, end: Ints, other_codes: Codes, other_start: Ints, first: Ints, offsets: Ints) -> int:
    """How many others come before those of each event, among those of some events; and how many there are."""
    others = other_codes.size
    bound, total = first[0] if codes.size else 0, 0
    for event in range(codes.size):
        while bound < others and other_codes[unsigned(bound)] <= codes[event]:
            bound += 1
        to, until = first[event], end[event]
        near = min(bound, to + _NEAR)
        # Counting all near ones takes less time than stopping at the right one.
        count = 0
        for other in range(to, near):
            count += other_start[unsigned(other)] < until
        if count == _NEAR:
            low, high = near, bound
            while low < high:
                middle = (low + high) >> 1
                if other_start[unsigned(middle)] < until:
                    low = middle + 1
                else:
                    high = middle
            count = low - to
        offsets[event] = total
        total += count
    return total


@kernel(CODES, INTS, CODES, INTS)
def last_started(codes: Codes, start: Ints, other_codes: Codes, other_start: Ints) -> Ints:
    """For each event, the last of the others of its group that starts at or before its start.

    Examples:
        >>> zero = np.zeros(3, np.int32)
        >>> last_started(zero, np.array([2, 3, 9]), zero, np.array([3, 7, 8]))
        array([-1,  0,  2])
    """
    last = np.empty(codes.size, np.int64)
    others = other_codes.size
    at = 0
    for event in range(codes.size):
        code, time = codes[event], start[event]
        while at < others and (
            other_codes[unsigned(at)] < code
            or (other_codes[unsigned(at)] == code and other_start[unsigned(at)] <= time)
        ):
            at += 1
        last[event] = at - 1 if at > 0 and other_codes[unsigned(at - 1)] == code else -1
    return last


@kernel(CODES, INTS, CODES, INTS, INT)
def last_by_place(codes: Codes, places: Ints, other_codes: Codes, other_places: Ints, groups: int) -> Ints:
    """The same of events and others that are in order of place, their groups mixed.

    Examples:
        >>> codes = np.array([0, 1, 0], np.int32)
        >>> last_by_place(codes, np.array([2, 3, 9]), codes, np.array([2, 7, 8]), 2)
        array([ 0, -1,  2])
    """
    last, latest, at = np.empty(codes.size, np.int64), np.full(groups, -1), 0
    for event in range(codes.size):
        while at < other_codes.size and other_places[unsigned(at)] <= places[event]:
            latest[unsigned(other_codes[unsigned(at)])] = at
            at += 1
        last[event] = latest[unsigned(codes[event])]
    return last


@kernel(INTS, INTS)
def pair_offsets(first: Ints, last: Ints) -> Ints:
    """How many pairs come before those of each event, and how many there are.

    Examples:
        >>> pair_offsets(np.array([1, 0]), np.array([3, 1]))
        array([0, 2, 3])
    """
    offsets = np.empty(first.size + 1, np.int64)
    total = 0
    for event in range(first.size):
        offsets[event] = total
        total += last[event] - first[event]
    offsets[first.size] = total
    return offsets


def meetings(
    first: Ints, offsets: Ints, end: Ints, other_start: Ints, other_end: Ints, low: int, high: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """A range of the pairs of events and the others that they meet, in order of the events, with their overlap.

    Examples:
        >>> times = np.array([1, 2, 3])
        >>> meetings(np.array([1, 0]), np.array([0, 2, 3]), np.array([9, 4]), times, times + 7, 1, 3)
        (array([0, 1]), array([2, 0]), array([3, 1]), array([9, 4]))
    """
    size = high - low
    event, other = np.empty(size + _STRIDE, np.int64), np.empty(size + _STRIDE, np.int64)
    start, until = np.empty(size, np.int64), np.empty(size, np.int64)
    _meetings(first, offsets, end, other_start, other_end, low, event, other, start, until)
    return event[:size], other[:size], start, until


def meetings_in_order(
    first: Ints,
    offsets: Ints,
    new: Ints,
    rank: Ints,
    start: Ints,
    end: Ints,
    other_first: Ints,
    other_offsets: Ints,
    other_new: Ints,
    other_rank: Ints,
    other_start: Ints,
    other_end: Ints,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Pairs in the order in which the later ones of them come, then in that of the earlier ones: a counting sort.

    Examples:
        >>> # One event comes at 5, the others at 3 and 6, and all stay until 9.
        >>> others = np.array([3, 6]), np.array([9, 9])
        >>> mine = np.array([1]), np.array([0, 1]), np.array([0]), np.array([1]), np.array([5]), np.array([9])
        >>> meetings_in_order(*mine, np.array([0, 1]), np.array([0, 1, 1]), np.array([0, 1]), np.array([0, 2]), *others)
        (array([0, 0]), array([0, 1]), array([5, 6]), array([9, 9]))
    """
    size = int(offsets[-1] + other_offsets[-1])
    event, other, begin, until = (room(size, np.int64) for _ in range(4))
    at = np.zeros(rank.size + other_rank.size + 1, np.int64)
    _count_by_later(first, offsets, other_rank, at)
    _count_by_later(other_first, other_offsets, rank, at)
    np.cumsum(at, out=at)
    _earlier(first, offsets, other_rank, at, event)
    _earlier(other_first, other_offsets, rank, at, other)
    _beside_earlier(other_new, other_rank, at, other, event, other_start, other_end, end, begin, until)
    _beside_earlier(new, rank, at, event, other, start, end, other_end, begin, until)
    return event, other, begin, until


@kernel(INTS, INTS, INTS, OUT)
def _count_by_later(first: Ints, offsets: Ints, rank: Ints, at: Ints) -> None:
    """How many pairs each later one is in, behind its rank."""
    changes = np.zeros(rank.size + 1, np.int64)
    for event in range(first.size):
        count = offsets[event + 1] - offsets[event]
        if count:
            changes[first[event]] += 1
            changes[first[event] + count] -= 1
    pairs = 0
    for late in range(rank.size):
        pairs += changes[late]
        at[rank[late] + 1] = pairs


@kernel(INTS, INTS, INTS, OUT, OUT)
def _earlier(first: Ints, offsets: Ints, rank: Ints, at: Ints, event: Ints) -> None:
    """The earlier one of each pair; behind it each later one's place has moved to its end."""
    for row in range(first.size):
        low = first[row]
        for late in range(low, low + offsets[row + 1] - offsets[row]):
            place = unsigned(rank[unsigned(late)])
            event[unsigned(at[place])] = row
            at[place] += 1


@kernel(INTS, INTS, INTS, OUT, INTS, INTS, INTS, INTS, OUT, OUT)
def _beside_earlier(
    new: Ints,
    rank: Ints,
    at: Ints,
    event: Ints,
    other: Ints,
    start: Ints,
    end: Ints,
    other_end: Ints,
    begin: Ints,
    until: Ints,
) -> None:
    """The later one of each pair of some later ones, beside the earlier one, and when both are alive."""
    # In order of the pairs, so that they are written one behind the other.
    ranked = np.full(at.size, -1)
    for late in range(rank.size):
        ranked[unsigned(rank[late])] = late
    low = 0
    for place in range(at.size):
        late, upto = ranked[place], at[place]
        if late >= 0:
            row = new[late]
            opens, closes = start[row], end[row]
            for pair in range(low, upto):
                event[unsigned(pair)] = row
                begin[unsigned(pair)] = opens
                until[unsigned(pair)] = min(closes, other_end[unsigned(other[unsigned(pair)])])
        low = upto


def joined(
    first: Ints,
    offsets: Ints,
    end: Ints,
    other_start: Ints,
    other_end: Ints,
    mine: Sequence[Array],
    others: Sequence[Array],
    low: int,
    high: int,
) -> tuple[Ints, Ints, list[Array], list[Array]]:
    """A range of the pairs of events and the others that they meet, as `meetings`, with values of both.

    Examples:
        >>> times, names = np.array([1, 2, 3]), np.array([7.5, 8.5, 9.5])
        >>> joined(np.array([1, 0]), np.array([0, 2, 3]), np.array([9, 4]), times, times + 7, [], [names], 1, 3)
        (array([3, 1]), array([9, 4]), [], [array([9.5, 7.5])])
    """
    size = high - low
    start, until = room(size, np.int64), room(size, np.int64)
    moved, beside = ([room(size, values.dtype) for values in each] for each in (mine, others))

    def join(part: tuple[int, int]) -> None:
        # Indices never leave the processor's cache: there are few at a time, always in the same place.
        event, other = np.empty(_FEW + _STRIDE, np.int64), np.empty(_FEW + _STRIDE, np.int64)
        for at in range(*part, _FEW):
            upto = min(at + _FEW, part[1])
            _meetings(
                first, offsets, end, other_start, other_end, low + at, event, other, start[at:upto], until[at:upto]
            )
            for arrays, made, rows in ((mine, moved, event), (others, beside, other)):
                for values, into in zip(arrays, made, strict=True):
                    take_into(values, rows[: upto - at], into[at:upto])

    in_parallel(join, parts(size))
    return start, until, moved, beside


@kernel(INTS, INTS, INTS, INTS, INTS, INT, OUT, OUT, OUT, OUT)
def _meetings(
    first: Ints,
    offsets: Ints,
    end: Ints,
    other_start: Ints,
    other_end: Ints,
    low: int,
    event: Ints,
    other: Ints,
    start: Ints,
    until: Ints,
) -> None:
    size = start.size
    row, rows = 0, first.size
    while row < rows:
        middle = (row + rows) >> 1
        if offsets[middle + 1] <= low:
            row = middle + 1
        else:
            rows = middle
    to = 0
    while to < size:
        upto = min(size, offsets[unsigned(row + 1)] - low)
        shift = first[unsigned(row)] + low - offsets[unsigned(row)]
        while to < upto:
            for at in range(_STRIDE):
                event[unsigned(to + at)] = row
            for at in range(_STRIDE):
                other[unsigned(to + at)] = shift + to + at
            to += _STRIDE
        to = upto
        row += 1
    for at in range(size):
        met = unsigned(other[at])
        start[at] = other_start[met]
        until[at] = min(end[unsigned(event[at])], other_end[met])


@kernel(CODES, INTS, INTS)
def coverage(codes: Codes, start: Ints, end: Ints) -> tuple[Codes, Ints, Ints]:
    """When at least one event of a group is alive: lifetimes that neither overlap nor touch.

    Examples:
        >>> coverage(np.zeros(3, np.int32), np.array([0, 1, 5]), np.array([3, 4, 6]))
        (array([0, 0], dtype=int32), array([0, 5]), array([4, 6]))
    """
    events = codes.size
    code, begin, over = np.empty(events, np.int32), np.empty(events, np.int64), np.empty(events, np.int64)
    covers = 0
    for event in range(events):
        if covers == 0 or codes[event] != code[covers - 1] or start[event] > over[covers - 1]:
            code[covers], begin[covers], over[covers] = codes[event], start[event], end[event]
            covers += 1
        over[covers - 1] = max(over[covers - 1], end[event])
    return code[:covers], begin[:covers], over[:covers]
