"""The walk through the cycles of a partition: which rows each cycle lets in, and which it expels.

A cycle runs where rows come, where a row's time is up, where rows wait, and where other parts of the query run. In it
each window that is concerned first loses the rows whose time is up; then it takes of the rows that wait for it what its
kind takes, and expels rows for them. Rows have places in a table, those of a window a list; what waits is a list too.
"""

from __future__ import annotations

from typing import Any

import numba

from gpu_ops.devices.cpu.compiling import INT, INT_TABLE, INTS, Ints, called, kernel, output

OWN = numba.types.Array(numba.types.int64, 2, "C")

SLIDING, TUMBLING, TIMED, TIMED_MOST, BEST = range(5)
"""The kinds of windows: the last rows, those of a cycle, those of a span, at most some of them, and the best."""

STATE, KEY, NEXT, PREVIOUS, ENTER, OUT, VALUE, GROUP, OF, ROW_COLUMNS = range(10)
"""The columns of a row: `OUT` is the place at which its time is up, `VALUE` what orders a window (a stamp or a rank),
`OF` the number of its window."""

WAITS, INSIDE, GONE = range(3)
"""The states of a row."""

HEAD, TAIL, HELD, FIRST, LAST, WAITING, WINDOW, SIZE, SPAN, SEEN, BEFORE, KEY_COLUMNS = range(12)
"""The columns of a key: the list of rows inside and how many, the list of those that wait and how many, the number of
its window (-1 for none), its size and its span, the cycle that concerned it last, and how many waited before it."""

ROWS, QUEUED, QUEUE_END, HEAPED, LEFT_OVER, NEXT_PLACE, WINDOWS, ENTERED, LEFT, NUMBERS = range(10)
"""Numbers: rows in the table, the bounds of the queue of due rows, the size of their heap, how many keys have rows that
wait and where they go on, the number of the next window, how many rows entered and left."""

UNKNOWN = 1 << 62
NULL = -(1 << 63)
"""The rank of a row that can never enter."""

DONE, CROWDED = range(2)
"""Why it stops: it has taken all rows; or more cycles run at one instant than there are places."""

_SHIFT = 16
_EVEN = 2


@called
def _runs(time: int, every: int, pauses: Any) -> int:
    for at in range(pauses.shape[0]):
        if pauses[at, 0] <= time < pauses[at, 1]:
            time = pauses[at, 1]
    if every > 0:
        time = -(-time // every) * every
    return time


@called
def _follows(place: int, since: int, every: int, pauses: Any) -> int:
    """The place of the cycle that runs because one has left something."""
    if every == 0:
        return place + _EVEN
    return (_runs((place >> _SHIFT) + since + 1, every, pauses) - since) << _SHIFT


@called
def _unlink(rows: Any, keys: Any, key: int, slot: int) -> None:
    before, behind = rows[slot, PREVIOUS], rows[slot, NEXT]
    if before >= 0:
        rows[before, NEXT] = behind
    else:
        keys[key, HEAD] = behind
    if behind >= 0:
        rows[behind, PREVIOUS] = before
    else:
        keys[key, TAIL] = before
    keys[key, HELD] -= 1


@called
def _leave(rows: Any, keys: Any, key: int, slot: int, place: int, left: Any, numbers: Ints, groups: Any) -> None:
    _unlink(rows, keys, key, slot)
    rows[slot, STATE] = GONE
    if groups.size and rows[slot, GROUP] >= 0:
        groups[rows[slot, GROUP]] -= 1
    left[numbers[LEFT], 0] = slot
    left[numbers[LEFT], 1] = place
    numbers[LEFT] += 1


@called
def _first_waiting(rows: Any, keys: Any, key: int) -> int:
    slot = keys[key, FIRST]
    keys[key, FIRST] = rows[slot, NEXT]
    if keys[key, FIRST] < 0:
        keys[key, LAST] = -1
    keys[key, WAITING] -= 1
    return int(slot)


@called
def _enter(rows: Any, keys: Any, key: int, slot: int, place: int, entered: Ints, numbers: Ints, ordered: int) -> None:
    """A row comes into its window: behind all rows of which none has a greater value, else at the end."""
    behind, before = -1, keys[key, TAIL]
    if ordered:
        while before >= 0 and rows[before, VALUE] > rows[slot, VALUE]:
            behind, before = before, rows[before, PREVIOUS]
    rows[slot, PREVIOUS], rows[slot, NEXT] = before, behind
    if before >= 0:
        rows[before, NEXT] = slot
    else:
        keys[key, HEAD] = slot
    if behind >= 0:
        rows[behind, PREVIOUS] = slot
    else:
        keys[key, TAIL] = slot
    keys[key, HELD] += 1
    rows[slot, STATE], rows[slot, ENTER] = INSIDE, place
    entered[numbers[ENTERED]] = slot
    numbers[ENTERED] += 1


@called
def _fall_due(rows: Any, slot: int, queue: Ints, heap: Ints, numbers: Ints) -> None:
    """Note when a row's time is up: most rows come in order of that."""
    due = rows[slot, OUT]
    if numbers[QUEUED] == numbers[QUEUE_END]:
        numbers[QUEUED] = numbers[QUEUE_END] = 0
    if numbers[QUEUE_END] == 0 or rows[queue[numbers[QUEUE_END] - 1], OUT] <= due:
        queue[numbers[QUEUE_END]] = slot
        numbers[QUEUE_END] += 1
        return
    at = numbers[HEAPED]
    numbers[HEAPED] += 1
    while at > 0 and rows[heap[(at - 1) >> 1], OUT] > due:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = slot


@called
def _pop(rows: Any, heap: Ints, numbers: Ints) -> int:
    found = heap[0]
    numbers[HEAPED] -= 1
    size = numbers[HEAPED]
    last, at = heap[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and rows[heap[below + 1], OUT] < rows[heap[below], OUT]:
            below += 1
        if rows[heap[below], OUT] >= rows[last, OUT]:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = last
    return int(found)


@called
def _touch(keys: Any, key: int, cycle: int, touched: Ints, count: int) -> int:
    if keys[key, SEEN] == cycle:
        return count
    keys[key, SEEN] = cycle
    keys[key, BEFORE] = keys[key, WAITING]
    touched[count] = key
    return count + 1


@called
def _improve(rows: Any, keys: Any, key: int, place: int, entered: Ints, left: Any, numbers: Ints, groups: Any) -> None:
    """Rows that update a group expel its rows of earlier cycles; then the best stay, of equal ones the newest."""
    size = keys[key, SIZE]
    if groups.size:
        slot = keys[key, FIRST]
        while slot >= 0:
            group = rows[slot, GROUP]
            if rows[slot, VALUE] != NULL and groups[group] > 0:
                other = keys[key, HEAD]
                while other >= 0:
                    behind = rows[other, NEXT]
                    if rows[other, GROUP] == group:
                        _leave(rows, keys, key, other, place, left, numbers, groups)
                    other = behind
            slot = rows[slot, NEXT]
    while keys[key, WAITING]:
        slot = _first_waiting(rows, keys, key)
        if rows[slot, VALUE] == NULL or size <= 0:
            rows[slot, STATE] = GONE
            continue
        if keys[key, HELD] >= size:
            worst = keys[key, HEAD]
            if rows[worst, VALUE] > rows[slot, VALUE]:
                rows[slot, STATE] = GONE
                continue
            if rows[worst, ENTER] == place:
                # It came in this cycle too, and was never in.
                _unlink(rows, keys, key, worst)
                rows[worst, STATE], rows[worst, ENTER] = GONE, UNKNOWN
                if groups.size:
                    groups[rows[worst, GROUP]] -= 1
            else:
                _leave(rows, keys, key, worst, place, left, numbers, groups)
        _enter(rows, keys, key, slot, place, entered, numbers, 1)
        if groups.size:
            groups[rows[slot, GROUP]] += 1


@called
def _due(rows: Any, keys: Any, key: int, slot: int, place: int, since: int, every: int, pauses: Any) -> int:
    """Where a row's time is up: one that came too late is there for one cycle."""
    due = (_runs(rows[slot, VALUE] + keys[key, SPAN], every, pauses) - since) << _SHIFT
    return int(due) if due > place else _follows(place, since, every, pauses)


@kernel(
    *(INT, INT, INT, INT, INT, INT, INT_TABLE),
    *(INTS, INTS, INTS, INTS, INTS, INTS, INTS),
    *(OWN, OWN, output(INT), output(INT), output(INT), output(INT), output(INT), output(INT), OWN, output(INT)),
    allocates=False,
)
def run_cycles(  # noqa: C901, PLR0912, PLR0915  (a case for each kind; parts cannot make tables larger)
    kind: int,
    limit: int,
    pinned: int,
    allowed: int,
    since: int,
    every: int,
    pauses: Any,
    places: Ints,
    codes: Ints,
    values: Ints,
    groups: Ints,
    sizes: Ints,
    spans: Ints,
    beats: Ints,
    rows: Any,
    keys: Any,
    queue: Ints,
    heap: Ints,
    touched: Ints,
    waiting: Ints,
    holders: Ints,
    entered: Ints,
    left: Any,
    numbers: Ints,
) -> int:
    """Run the cycles before a place.

    Args:
        kind: The kind of the windows.
        limit: The place.
        pinned: Whether empty windows stay.
        allowed: How many rows may wait for a full window; less than 0 for any number.
        since: As `gpu_ops.core.cycles.Schedule`.
        every: Likewise.
        pauses: Likewise.
        places: The places at which new rows come, ascending, all before the limit.
        codes: The key of each.
        values: What orders windows: their stamps in milliseconds, or their ranks.
        groups: The group that each updates; one value for all without groups.
        sizes: How many rows a window holds that begins with each; one value where all are equal.
        spans: For how many milliseconds; likewise.
        beats: Places at which other parts of the query run, ascending, before the limit.
        rows: The table of rows, with room for the new ones.
        keys: The table of keys.
        queue: Rows in order of the places at which their time is up, with room.
        heap: Further ones, as a heap.
        touched: Room for all keys.
        waiting: The keys with rows that wait, with room for all.
        holders: How many rows inside each group has; nothing without groups.
        entered: Room for the rows that enter.
        left: Room for the rows that leave, and where.
        numbers: See `NUMBERS`.
    """
    at, beat, begin = 0, 0, numbers[ROWS]
    ordered = int(kind == TIMED_MOST)
    while True:
        place = limit
        if at < places.size:
            place = min(place, places[at])
        while numbers[QUEUED] < numbers[QUEUE_END] and rows[queue[numbers[QUEUED]], STATE] == GONE:
            numbers[QUEUED] += 1
        while numbers[HEAPED] and rows[heap[0], STATE] == GONE:
            _pop(rows, heap, numbers)
        if numbers[QUEUED] < numbers[QUEUE_END]:
            place = min(place, rows[queue[numbers[QUEUED]], OUT])
        if numbers[HEAPED]:
            place = min(place, rows[heap[0], OUT])
        if numbers[LEFT_OVER]:
            place = min(place, numbers[NEXT_PLACE])
        if beat < beats.size:
            place = min(place, beats[beat])
        if place >= limit:
            break
        while beat < beats.size and beats[beat] <= place:
            beat += 1
        count = 0
        if kind == TUMBLING:
            # All that came in the cycle before is expelled, whatever this cycle is run for.
            while numbers[QUEUED] < numbers[QUEUE_END]:
                slot = queue[numbers[QUEUED]]
                numbers[QUEUED] += 1
                key = rows[slot, KEY]
                count = _touch(keys, key, place, touched, count)
                _leave(rows, keys, key, slot, place, left, numbers, holders)
            numbers[QUEUED] = numbers[QUEUE_END] = 0
        while numbers[QUEUED] < numbers[QUEUE_END] and rows[queue[numbers[QUEUED]], OUT] <= place:
            slot = queue[numbers[QUEUED]]
            numbers[QUEUED] += 1
            if rows[slot, STATE] == INSIDE:
                count = _touch(keys, rows[slot, KEY], place, touched, count)
                _leave(rows, keys, rows[slot, KEY], slot, place, left, numbers, holders)
        while numbers[HEAPED] and rows[heap[0], OUT] <= place:
            slot = _pop(rows, heap, numbers)
            if rows[slot, STATE] == INSIDE:
                count = _touch(keys, rows[slot, KEY], place, touched, count)
                _leave(rows, keys, rows[slot, KEY], slot, place, left, numbers, holders)
        if numbers[LEFT_OVER] and numbers[NEXT_PLACE] <= place:
            for each in range(numbers[LEFT_OVER]):
                count = _touch(keys, waiting[each], place, touched, count)
            numbers[LEFT_OVER] = 0
        while at < places.size and places[at] == place:
            slot, key = begin + at, codes[at]
            if kind == SLIDING and values[at if values.size > 1 else 0] == NULL:
                # The coin refused it.
                rows[slot, STATE] = GONE
                at += 1
                numbers[ROWS] += 1
                continue
            count = _touch(keys, key, place, touched, count)
            if keys[key, WINDOW] < 0:
                keys[key, WINDOW] = numbers[WINDOWS]
                numbers[WINDOWS] += 1
                keys[key, SIZE] = sizes[at if sizes.size > 1 else 0]
                keys[key, SPAN] = spans[at if spans.size > 1 else 0]
            rows[slot, STATE], rows[slot, KEY], rows[slot, NEXT] = WAITS, key, -1
            rows[slot, ENTER], rows[slot, OUT] = UNKNOWN, UNKNOWN
            rows[slot, VALUE] = values[at if values.size > 1 else 0]
            rows[slot, GROUP] = groups[at if groups.size > 1 else 0]
            rows[slot, OF] = keys[key, WINDOW]
            if keys[key, LAST] >= 0:
                rows[keys[key, LAST], NEXT] = slot
            else:
                keys[key, FIRST] = slot
            keys[key, LAST] = slot
            keys[key, WAITING] += 1
            at += 1
            numbers[ROWS] += 1
        for each in range(count):
            key = touched[each]
            size, held = keys[key, SIZE], keys[key, HELD]
            if kind == BEST:
                _improve(rows, keys, key, place, entered, left, numbers, holders)
            else:
                room = keys[key, WAITING]
                if kind == SLIDING:
                    room = max(1, size - held)
                    if allowed >= 0 and held + keys[key, BEFORE] - allowed - size > 1:
                        # The window jumps, and what finds no place behind it is dropped.
                        room = min(size, keys[key, BEFORE] - allowed)
                        for _ in range(keys[key, BEFORE] - allowed - size):
                            rows[_first_waiting(rows, keys, key), STATE] = GONE
                elif kind in (TUMBLING, TIMED_MOST):
                    room = size
                room = min(room, keys[key, WAITING])
                if kind in (SLIDING, TIMED_MOST):
                    for _ in range(held + room - size):
                        _leave(rows, keys, key, keys[key, HEAD], place, left, numbers, holders)
                for _ in range(room):
                    slot = _first_waiting(rows, keys, key)
                    _enter(rows, keys, key, slot, place, entered, numbers, ordered)
                    if kind == TUMBLING:
                        queue[numbers[QUEUE_END]] = slot
                        numbers[QUEUE_END] += 1
                    elif kind != SLIDING:
                        rows[slot, OUT] = _due(rows, keys, key, slot, place, since, every, pauses)
                        _fall_due(rows, slot, queue, heap, numbers)
            if keys[key, WAITING]:
                waiting[numbers[LEFT_OVER]] = key
                numbers[LEFT_OVER] += 1
            elif not keys[key, HELD] and not pinned:
                keys[key, WINDOW] = -1
        if numbers[LEFT_OVER]:
            numbers[NEXT_PLACE] = _follows(place, since, every, pauses)
            if every == 0 and (numbers[NEXT_PLACE] >> _SHIFT) != (place >> _SHIFT):
                return CROWDED
    return DONE


ENOUGH = 1 - 1e-9
"""The weight from which on a query runs."""


@called
def _rise(heap: Ints, size: int, time: int) -> None:
    at = size
    while at > 0 and heap[(at - 1) >> 1] > time:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = time


@called
def _sink(heap: Ints, size: int) -> None:
    """Take out the least time; `size` is that of the heap without it."""
    last, at = heap[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= last:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = last


@kernel(INTS, output(numba.types.float64), INTS, INT, INT, output(INT), output(INT), allocates=False)
def weighed(times: Ints, weights: Any, dues: Ints, limit: int, size: int, heap: Ints, taken: Ints) -> int:
    """When a query takes each row: all that have come, as soon as their weights are enough, or as it runs anyway.

    Args:
        times: When each row came, ascending.
        weights: What it weighs.
        dues: When its time is up, if it is taken before.
        limit: The time before which the query has run.
        size: The size of the heap.
        heap: The times at which the query runs anyway, with room for those of all rows.
        taken: Room for the time at which each row is taken; `UNKNOWN` for rows that wait.

    Returns:
        The size of the heap.
    """
    waits, total, at = 0, 0.0, 0
    for each in range(taken.size):
        taken[each] = UNKNOWN
    while True:
        time = limit
        if at < times.size:
            time = min(time, times[at])
        if size:
            time = min(time, heap[0])
        if time >= limit:
            return size
        runs = False
        while size and heap[0] == time:
            size -= 1
            _sink(heap, size)
            runs = True
        while at < times.size and times[at] == time:
            total += weights[at]
            at += 1
        if runs or total >= ENOUGH:
            while waits < at:
                taken[waits] = time
                if time < dues[waits] < UNKNOWN:
                    _rise(heap, size, dues[waits])
                    size += 1
                waits += 1
            total = 0.0
