"""Scans on the CPU: what of a row depends on what became of the rows before it."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import BOOLS, CODES, INT, INTS, Bools, Codes, Ints, inlined, kernel

_LEAST = np.iinfo(np.int64).min
_NONE = 1 << 62


@kernel(INTS, INTS)
def reached(following: Ints, roots: Ints) -> Bools:
    """Which places are reached from some roots by going from each place to the one that follows it.

    Examples:
        >>> reached(np.array([2, 3, 4, 4]), np.array([0]))
        array([ True, False,  True, False])
    """
    found = np.zeros(following.size, np.bool_)
    for root in range(roots.size):
        at = roots[root]
        while at < following.size and not found[at]:
            found[at] = True
            at = following[at]
    return found


@kernel(CODES, INTS, INTS, INT)
def best_rows(codes: Codes, ranks: Ints, unique: Ints, count: int) -> Ints:
    """Which row pushes each row out, where a group keeps its ``count`` best rows.

    Examples:
        >>> best_rows(np.zeros(4, np.int32), np.array([5, 7, 6, 1]), np.zeros(0, np.int64), 2)
        array([2, 4, 4, 3])
    """
    rows = codes.size
    left = np.full(rows, rows)
    heap = np.empty(rows, np.int64)
    holder = np.full(unique.size, -1)
    size = kept = 0
    for row in range(rows):
        if row and codes[row] != codes[row - 1]:
            size = kept = 0
        if unique.size:
            before = holder[unique[row]]
            if before >= 0 and left[before] == rows:
                left[before] = row
                kept -= 1
            holder[unique[row]] = row
        size = _push(heap, size, row, ranks)
        kept += 1
        while kept > count or (size and left[heap[0]] < rows):
            worst = heap[0]
            size = _pop(heap, size, ranks)
            if left[worst] == rows:
                left[worst] = row
                kept -= 1
    return left


@inlined
def _push(heap: Ints, size: int, row: int, ranks: Ints) -> int:
    """Of rows with one rank the one that came first is the least."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if ranks[heap[above]] <= ranks[row]:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = row
    return size + 1


@inlined
def _pop(heap: Ints, size: int, ranks: Ints) -> int:
    last = heap[size - 1]
    size -= 1
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _is_less(ranks, heap[below + 1], heap[below]):
            below += 1
        if not _is_less(ranks, heap[below], last):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = last
    return size


@inlined
def _is_less(ranks: Ints, one: int, other: int) -> bool:
    return bool(ranks[one] < ranks[other] or (ranks[one] == ranks[other] and one < other))


@kernel(INTS, INTS, INT)
def least_rows(codes: Ints, bounds: Ints, count: int) -> tuple[Ints, Ints]:
    """The rows of each stretch that have its ``count`` least codes, ties with the last of them included.

    Examples:
        >>> least_rows(np.array([5, 3, 5, 9, 7]), np.array([0, 4, 5]), 2)
        (array([0, 1, 2, 4]), array([3, 1]))
    """
    stretches, rows = bounds.size - 1, codes.size
    heap = np.empty(min(count, rows), np.int64)
    found, counts = np.empty(rows, np.int64), np.empty(stretches, np.int64)
    size = 0
    for stretch in range(stretches):
        low, high = bounds[stretch], bounds[stretch + 1]
        before = size
        if high - low <= count:
            for row in range(low, high):
                found[size] = row
                size += 1
        else:
            most = _last_of_least(codes, low, high, count, heap)
            for row in range(low, high):
                # Always written; kept only if the place advances.
                found[size] = row
                size += codes[row] <= most
        counts[stretch] = size - before
    return found[:size], counts


@inlined
def _last_of_least(codes: Ints, low: int, high: int, count: int, heap: Ints) -> int:
    """The greatest of the ``count`` least codes of a stretch, which has more of them: the top of a heap."""
    for row in range(low, low + count):
        at = row - low
        while at > 0 and heap[(at - 1) >> 1] < codes[row]:
            heap[at] = heap[(at - 1) >> 1]
            at = (at - 1) >> 1
        heap[at] = codes[row]
    for row in range(low + count, high):
        code = codes[row]
        if code < heap[0]:
            at = 0
            below = 1
            while below < count:
                if below + 1 < count and heap[below + 1] > heap[below]:
                    below += 1
                if heap[below] <= code:
                    break
                heap[at] = heap[below]
                at, below = below, 2 * below + 1
            heap[at] = code
    return int(heap[0])


@kernel(BOOLS, INT, INTS, INTS, INTS, INT)
def window_walk(
    holds: Bools, width: int, oldest: Ints, newest: Ints, ends: Ints, mode: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Walk windows by a condition that is known for a block of (oldest row, newest row) pairs.

    Examples:
        >>> holds = np.array([True, False, False, True])  # rows 0 and 0, 0 and 1; 1 and 0, 1 and 1
        >>> window_walk(holds, 2, np.array([0]), np.array([0]), np.array([3]), 0)
        (array([1]), array([2]), array([0]), array([1]))
    """
    first, last = oldest.copy(), newest.copy()
    rows, by = np.empty(oldest.size * width, np.int64), np.empty(oldest.size * width, np.int64)
    count = 0
    for group in range(oldest.size):
        one, other = oldest[group], newest[group]
        while other < ends[group] and one - oldest[group] < width and other - newest[group] < width:
            if one > other:
                other += 1
                continue
            met = holds[(group * width + one - oldest[group]) * width + other - newest[group]]
            if mode == 0:
                if met:
                    other += 1
                else:
                    rows[count], by[count] = one, other
                    count += 1
                    one += 1
                continue
            if met and (mode == 1 or other > one):
                rows[count], by[count] = one, other
                count += 1
                one = other + (1 if mode == 1 else 0)
            other += 1
        first[group], last[group] = one, other
    return first, last, rows[:count], by[:count]


@kernel(INTS, INTS, INTS, INTS, INT, INT, INT)
def timed_batches(start: Ints, begins: Ints, ends: Ints, closed: Ints, span: int, count: int, turns: int) -> Ints:
    """Which rows open a batch that is complete with ``count`` rows, or when its time is over, and when that is.

    Examples:
        >>> found = timed_batches(np.array([0, 1, 2, 9]), np.array([0]), np.array([4]), np.array([1 << 62]), 5, 2, 2)
        >>> found[[0, 2, 3]]
        array([ 5,  6, 11])
    """
    over = np.full(start.size, _LEAST)
    for group in range(begins.size):
        row, last = begins[group], closed[group]
        while row < ends[group]:
            time = start[row]
            until = time + span
            if last != _NONE:
                turn = max((time - last) // span + 1, 1)
                until = last + turn * span if turn <= turns else until
            over[row] = until
            after = row
            while after < ends[group] and after - row < count and start[after] < until:
                after += 1
            last = start[after - 1] if after - row == count else until
            row = after
    return over


@kernel(INTS, INTS, INTS, INTS, INTS, BOOLS, INTS, INTS, INTS, INT, INT)
def clocked_batches(
    place: Ints,
    due: Ints,
    begins: Ints,
    ends: Ints,
    timers: Ints,
    held: Bools,
    tick_place: Ints,
    tick_clock: Ints,
    tick_due: Ints,
    count: int,
    runs: int,
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Bools]:
    """When batches are complete that ``count`` rows complete, or a tick at or past a timer.

    Examples:
        >>> one, no, none = np.array([0]), np.array([False]), np.array([1 << 62])
        >>> ticks = np.array([5, 7]), np.array([40, 60]), np.array([50, 70])
        >>> found = clocked_batches(np.array([2, 4]), np.array([10, 10]), one, np.array([2]), none, no, *ticks, 9, 0)
        >>> [each.tolist() for each in found]
        [[5, 5], [7, 7], [10, 10], [50, 50], [5], [10], [70], [True, True]]
    """
    rows, ticks = place.size, tick_place.size
    enter, leave = np.full(rows, _NONE), np.full(rows, _NONE)
    came, fell = np.full(rows, _NONE), np.full(rows, _NONE)
    over, over_fell, after = np.full(begins.size, _NONE), np.full(begins.size, _NONE), np.full(begins.size, _NONE)
    fired = np.zeros(ticks, np.bool_)
    for group in range(begins.size):
        row, timer, had = begins[group], timers[group], held[group]
        low, high, first = row, row, True
        while True:
            if timer == _NONE:
                if row >= ends[group]:
                    break
                timer = due[row]
            tick = np.searchsorted(tick_clock, timer)
            full = row + count - 1
            if full < ends[group] and (tick == ticks or place[full] < tick_place[tick]):
                upto, at, why, following = full + 1, place[full], _NONE, due[full]
            elif tick < ticks:
                upto, at, why = row, tick_place[tick], timer
                while upto < ends[group] and place[upto] < at:
                    upto += 1
                following = tick_due[tick] if upto > row or had or runs else _NONE
                fired[tick] = True
            else:
                break
            leave[low:high], fell[low:high] = at, why
            if first:
                over[group], over_fell[group], first = at, why, False
            enter[row:upto], came[row:upto] = at, why
            low, high, had, row, timer = row, upto, upto > row, upto, following
        after[group] = timer
    return enter, leave, came, fell, over, over_fell, after, fired
