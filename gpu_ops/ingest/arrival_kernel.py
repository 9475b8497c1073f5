"""What becomes of each arrival, one after the other: lateness, reordering, edges and their ends, generated CTIs.

It is the one kernel that is no pure function: a state machine that steps over single rows, on the host whatever the
device, because each row's fate depends on the rows before it. Its arrays belong to one `Ingress`, which alone calls
it; they are made to hold what a call may need before it is called.

Rows that are not let in at once are *held*: each has a slot in a table, and a slot is on the heap of rows that wait to
be put in order, or in the hash table of start edges whose end edge has not come. A slot of that table is the head of a
queue of start edges of one identity: original start and payload, the payload as 128 bits of hash. In a queue those
that came late stand first, as in Trill, and else first in is first out.

A call that ends in a fault is to leave nothing behind. So a slot that comes free is not used again in the same call,
and one that changes its place notes where it was before: from that, `State.undo` makes all else anew.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.devices.cpu.compiling import INTS, inlined, kernel, output

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]

NONE = MIN_TIME - 1
"""No time."""

# Kinds of arrivals
INSERT, START, END, CTI = range(4)

# Policies
RAISE, DROP, ADJUST, DIVERT = range(4)

# Fates
DROPPED, ADJUSTED, DIVERTED, UNMATCHED, EMPTIED = range(5)

# Settings
(EVERY, PERIOD, DELAY, LATE, LATE_ENDS, SNAPPED, REORDER, CLOSE, HANDS_OUT, BASE, SETTINGS) = range(11)
OPEN_INPUT, CLOSE_AT_INFINITY, CLOSE_HERE = range(3)

# The clock: what is known of time, then how much of the tables is used, then what the call gave
(LAST, LIMIT, HIGH, COUNT, BUFFERED, WAITING, USED, FREE, HELD, CALL) = range(10)
(EVENTS, BEFORE_END, CTIS, LATES, DIVERTS, BEFORE_DIVERTED_END, RELEASED, OPENED, OPENED_END) = range(10, 19)
(FAULT, FAULT_NUMBER, FAULT_KIND, FAULT_FIRST, FAULT_STOP, FAULT_LIMIT) = range(19, 25)
CLOCK = 25
LATE_FAULT, UNMATCHED_FAULT = 1, 2

# A slot
(NUMBER, KIND, FIRST, STOP, HASH, MORE_HASH, LET_IN, MISSED, NEXT, TAIL, LATE_TAIL, BUCKET, PLACE, CHANGED, FORMER) = (
    range(15)
)
SLOT = 15
NOWHERE, IN_BUFFER, IN_EDGES = range(3)

# A late row
(LATE_NUMBER, LATE_KIND, LATE_FIRST, LATE_STOP, LATE_CTI, LATE_BY, LATE_FATE) = range(7)
LATE_FIELDS = 7
DIVERTED_FIELDS = 5

_TABLE = numba.types.Array(numba.types.int64, 2, "C")
_BYTES = numba.types.Array(numba.types.int8, 1, "C", readonly=True)
_OUT = output(numba.types.int64)
_MARKS = output(numba.types.int8)


@inlined
def _sift_up(heap: Table, at: int) -> None:
    key, number, slot = heap[at, 0], heap[at, 1], heap[at, 2]
    while at > 0:
        above = (at - 1) >> 1
        if heap[above, 0] < key or (heap[above, 0] == key and heap[above, 1] <= number):
            break
        for field in range(3):
            heap[at, field] = heap[above, field]
        at = above
    heap[at, 0], heap[at, 1], heap[at, 2] = key, number, slot


@inlined
def _sift_down(heap: Table, size: int) -> None:
    """Take the top off a heap that had ``size + 1`` rows: the last row moves into its place."""
    key, number, slot = heap[size, 0], heap[size, 1], heap[size, 2]
    at, below = 0, 1
    while below < size:
        right = below + 1
        if right < size and (
            heap[right, 0] < heap[below, 0] or (heap[right, 0] == heap[below, 0] and heap[right, 1] < heap[below, 1])
        ):
            below = right
        if key < heap[below, 0] or (key == heap[below, 0] and number <= heap[below, 1]):
            break
        for field in range(3):
            heap[at, field] = heap[below, field]
        at = below
        below = 2 * at + 1
    heap[at, 0], heap[at, 1], heap[at, 2] = key, number, slot


@inlined
def _move(held: Table, slot: int, place: int, call: int) -> None:
    """Give a slot another place; where it was before this call is noted."""
    if held[slot, CHANGED] != call:
        held[slot, CHANGED], held[slot, FORMER] = call, held[slot, PLACE]
    held[slot, PLACE] = place


@inlined
def _free_slot(held: Table, clock: Ints) -> int:
    """A slot to hold a row more."""
    slot: int = clock[FREE]
    if slot >= 0:
        clock[FREE] = held[slot, NEXT]
    else:
        slot = clock[USED]
        clock[USED] += 1
    clock[HELD] += 1
    return slot


@inlined
def _let_go(
    held: Table,
    slot: int,
    clock: Ints,
    freed: int | np.int64,
    base: int,
    released: int,
    out_released: Ints,
    out_kept: npt.NDArray[np.int8],
) -> int:
    """Hold a row no longer: its slot goes before those that came free in this call. How many rows are released now."""
    _move(held, slot, NOWHERE, clock[CALL])
    held[slot, NEXT] = freed
    clock[HELD] -= 1
    number = held[slot, NUMBER]
    if number >= base:
        out_kept[number - base] = 0
        return released
    out_released[released] = number
    return released + 1


@inlined
def _bucket(start: int, more: int, buckets: Ints) -> int:
    mixed = more ^ (start * 0x1E3779B97F4A7C15)
    return (mixed ^ (mixed >> 29)) & (len(buckets) - 1)


@inlined
def _queue(held: Table, buckets: Ints, start: int, first_hash: int, second_hash: int) -> tuple[int, int, int]:
    """(bucket, the queue before it there, queue) of start edges of one identity; -1 where there is none."""
    bucket = _bucket(start, first_hash, buckets)
    before, queue = -1, buckets[bucket]
    while queue >= 0 and (
        held[queue, FIRST] != start or held[queue, HASH] != first_hash or held[queue, MORE_HASH] != second_hash
    ):
        before, queue = queue, held[queue, BUCKET]
    return bucket, before, queue


@kernel(_TABLE, INTS, _OUT)
def index_edges(held: Table, slots: Ints, buckets: Ints) -> None:
    """Put the heads of queues of start edges into an empty hash table.

    Args:
        held: The slots.
        slots: The heads.
        buckets: As many as a power of two, each -1.
    """
    for slot in slots:
        at = _bucket(held[slot, FIRST], held[slot, HASH], buckets)
        held[slot, BUCKET] = buckets[at]
        buckets[at] = slot


@kernel(_BYTES, *[INTS] * 5, _OUT, _TABLE, _OUT, _TABLE, _TABLE, *[_OUT] * 4, _TABLE, _TABLE, _OUT, _MARKS)
def admit(  # noqa: C901, PLR0912, PLR0915  (a state machine is one loop; as functions it would be compiled many times)
    kinds: npt.NDArray[np.int8],
    starts: Ints,
    ends: Ints,
    hashes: Ints,
    more_hashes: Ints,
    settings: Ints,
    clock: Ints,
    held: Table,
    buckets: Ints,
    buffer: Table,
    waiting: Table,
    out_start: Ints,
    out_end: Ints,
    out_number: Ints,
    out_cti: Ints,
    out_late: Table,
    out_diverted: Table,
    out_released: Ints,
    out_kept: npt.NDArray[np.int8],
) -> None:
    """Step over arrivals.

    Args:
        kinds: What each is; none of them, if all are inserts.
        starts: The start; of a CTI its time, of an end edge the original start.
        ends: The end, that of a start edge `MAX_TIME`.
        hashes: Of an edge's payload; none, if there is no edge.
        more_hashes: Likewise.
        settings: What `Advance` says.
        clock: Read and written.
        held: Slots.
        buckets: The hash table of start edges: the slot of each bucket's first queue, or -1.
        buffer: The heap of slots that wait to be put in order: (time, number, slot).
        waiting: The heap of start edges let in and not handed out: (start, number, slot); a row is void when its slot
            has gone. Behind it, from ``OPENED`` to ``OPENED_END``, those that are handed out now.
        out_start: Events that are let in: their start.
        out_end: Their end.
        out_number: Their arrival's number.
        out_cti: CTIs.
        out_late: Rows that were not let in as they came.
        out_diverted: Late events to keep aside: (start, end, number, CTI, by how much).
        out_released: Numbers of arrivals, held before, that are held no longer.
        out_kept: For each arrival whether it is held now; zeros come in.
    """
    every, period, delay, policy = settings[EVERY], settings[PERIOD], settings[DELAY], settings[LATE]
    snapped, reorder, base = settings[SNAPPED], settings[REORDER], settings[BASE]
    last, limit, high, count = clock[LAST], clock[LIMIT], clock[HIGH], clock[COUNT]
    events = ctis = lates = diverts = released = fault = 0
    freed: int | np.int64 = -1
    last_freed: int | np.int64 = -1
    call = clock[CALL]
    before_end = before_diverted_end = -1
    rows = len(starts)
    inserts_only = len(kinds) == 0
    number = start = end = np.int64(0)
    row_kind = np.int64(INSERT)
    # One step more than there are rows where the input closes.
    for at in range(rows + (settings[CLOSE] != OPEN_INPUT)):
        closing = at == rows
        kind = CTI if closing else (INSERT if inserts_only else kinds[at])
        until = NONE
        direct = False
        time = NONE
        if closing:
            until = MAX_TIME
        elif kind == CTI:
            if starts[at] <= last:
                continue
            until = starts[at]
        else:
            time = ends[at] if kind == END else starts[at]
            direct = reorder <= 0 or time <= limit
            if not direct and time > high:
                high = time
                until = max(time - reorder, MIN_TIME)
        buffers = kind != CTI and not direct
        while True:
            slot = -1
            if clock[BUFFERED] > 0 and buffer[0, 0] <= until:
                slot = buffer[0, 2]
                clock[BUFFERED] -= 1
                _sift_down(buffer, clock[BUFFERED])
                number, row_kind = held[slot, NUMBER], held[slot, KIND]
                start, end = held[slot, FIRST], held[slot, STOP]
                first_hash, second_hash = held[slot, HASH], held[slot, MORE_HASH]
            elif direct:
                direct = False
                number, row_kind = base + at, np.int64(kind)
                start, end = starts[at], ends[at]
                first_hash = second_hash = np.int64(0)
                if kind != INSERT:
                    first_hash, second_hash = hashes[at], more_hashes[at]
            else:
                break
            # One row, in its turn: whether it is late, and what is let in of it.
            time = end if row_kind == END else start
            let_in = NONE
            missed = NONE
            late_by = np.int64(0)
            fate = -1
            stays = False
            if row_kind != END:
                let_in = start
                if start < limit:
                    if policy == RAISE:
                        fault = LATE_FAULT
                        break
                    missed = limit
                    late_by = limit - start
                    if policy == ADJUST and end > limit:
                        let_in = limit
                        fate = ADJUSTED
                    else:
                        let_in = NONE
                        fate = DIVERTED if policy == DIVERT else DROPPED
                if row_kind == INSERT:
                    if let_in != NONE:
                        out_start[events], out_end[events], out_number[events] = let_in, end, number
                        events += 1
                else:
                    stays = True
            else:
                bucket, before, queue = _queue(held, buckets, start, first_hash, second_hash)
                takes = False
                if queue < 0:
                    if policy == RAISE:
                        fault = UNMATCHED_FAULT
                        break
                    fate = UNMATCHED
                elif held[queue, LET_IN] == NONE:
                    missed = held[queue, MISSED]
                    late_by = missed - start
                    fate = DIVERTED if policy == DIVERT else DROPPED
                    takes = True
                elif end < limit and policy == RAISE:
                    fault = LATE_FAULT
                    break
                else:
                    missed = limit
                    late_by = limit - end
                    stop = end
                    if end < limit:
                        if settings[LATE_ENDS] == ADJUST:
                            stop = limit
                            fate = ADJUSTED
                        else:
                            fate = DIVERTED if policy == DIVERT else DROPPED
                    if end >= limit or fate == ADJUSTED:
                        takes = True
                        let_in = stop
                        if held[queue, LET_IN] < stop:
                            out_start[events], out_end[events] = held[queue, LET_IN], stop
                            out_number[events] = held[queue, NUMBER]
                            events += 1
                        else:
                            fate = EMPTIED
                if takes:
                    # The queue's next takes its head's place in the bucket.
                    heir = held[queue, NEXT]
                    if heir >= 0:
                        held[heir, BUCKET], held[heir, TAIL] = held[queue, BUCKET], held[queue, TAIL]
                        held[heir, LATE_TAIL] = -1 if held[queue, LATE_TAIL] == queue else held[queue, LATE_TAIL]
                    else:
                        heir = held[queue, BUCKET]
                    if before < 0:
                        buckets[bucket] = heir
                    else:
                        held[before, BUCKET] = heir
                    released = _let_go(held, queue, clock, freed, base, released, out_released, out_kept)
                    last_freed, freed = queue if freed < 0 else last_freed, queue
            if fate >= 0:
                out_late[lates, LATE_NUMBER], out_late[lates, LATE_KIND] = number, row_kind
                out_late[lates, LATE_FIRST], out_late[lates, LATE_STOP] = start, end
                out_late[lates, LATE_CTI], out_late[lates, LATE_BY] = missed, late_by
                out_late[lates, LATE_FATE] = fate
                lates += 1
                if fate == DIVERTED and row_kind != START:
                    out_diverted[diverts, 0], out_diverted[diverts, 1] = start, end
                    out_diverted[diverts, 2], out_diverted[diverts, 3] = number, missed
                    out_diverted[diverts, 4] = late_by
                    diverts += 1
            if stays:
                if slot < 0:
                    slot = _free_slot(held, clock)
                    out_kept[at] = 1
                    held[slot, NUMBER], held[slot, KIND] = number, row_kind
                    held[slot, FIRST], held[slot, STOP] = start, end
                    held[slot, HASH], held[slot, MORE_HASH] = first_hash, second_hash
                held[slot, LET_IN], held[slot, MISSED] = let_in, missed
                held[slot, NEXT], held[slot, TAIL] = -1, slot
                held[slot, LATE_TAIL] = slot if late_by > 0 else -1
                _move(held, slot, IN_EDGES, call)
                bucket, before, queue = _queue(held, buckets, start, first_hash, second_hash)
                if queue < 0:
                    held[slot, BUCKET] = buckets[bucket]
                    buckets[bucket] = slot
                elif late_by == 0:
                    held[held[queue, TAIL], NEXT] = slot
                    held[queue, TAIL] = slot
                elif held[queue, LATE_TAIL] >= 0:
                    # Behind the last one that came late; whether any on time follow or not.
                    ahead = held[queue, LATE_TAIL]
                    held[slot, NEXT] = held[ahead, NEXT]
                    held[ahead, NEXT] = slot
                    held[queue, LATE_TAIL] = slot
                    if held[queue, TAIL] == ahead:
                        held[queue, TAIL] = slot
                else:
                    held[slot, NEXT], held[slot, TAIL] = queue, held[queue, TAIL]
                    held[slot, BUCKET] = held[queue, BUCKET]
                    if before < 0:
                        buckets[bucket] = slot
                    else:
                        held[before, BUCKET] = slot
                if let_in != NONE:
                    waiting[clock[WAITING], 0], waiting[clock[WAITING], 1] = let_in, number
                    waiting[clock[WAITING], 2] = slot
                    _sift_up(waiting, clock[WAITING])
                    clock[WAITING] += 1
            elif slot >= 0:
                released = _let_go(held, slot, clock, freed, base, released, out_released, out_kept)
                last_freed, freed = slot if freed < 0 else last_freed, slot
            # What is let in moves time on.
            if reorder >= 0:
                limit = max(limit, time)
            made = NONE
            if period > 0 and let_in != NONE and (row_kind != END or snapped):
                baseline = last
                if snapped:
                    baseline -= (last - MIN_TIME) % period
                if last == NONE or let_in - baseline >= period:
                    made = let_in - delay
                    if snapped:
                        made -= (made - MIN_TIME) % period
            if every > 0 and row_kind != END:
                count += 1
                if count == every:
                    count = 0
                    if let_in != NONE:
                        made = let_in - delay
            if made != NONE:
                made = min(max(made, MIN_TIME), MAX_TIME - TICK)
                if made > last:
                    last = made
                    limit = max(limit, made)
                    out_cti[ctis] = made
                    ctis += 1
        if fault:
            clock[FAULT], clock[FAULT_NUMBER], clock[FAULT_KIND] = fault, number, row_kind
            clock[FAULT_FIRST], clock[FAULT_STOP], clock[FAULT_LIMIT] = start, end, limit
            return
        if reorder >= 0 and MIN_TIME <= until < MAX_TIME:
            limit = max(limit, until)
        if buffers:
            slot = _free_slot(held, clock)
            out_kept[at] = 1
            held[slot, NUMBER], held[slot, KIND] = base + at, kind
            held[slot, FIRST], held[slot, STOP] = starts[at], ends[at]
            held[slot, HASH] = held[slot, MORE_HASH] = 0
            if kind != INSERT:
                held[slot, HASH], held[slot, MORE_HASH] = hashes[at], more_hashes[at]
            _move(held, slot, IN_BUFFER, call)
            size = clock[BUFFERED]
            buffer[size, 0], buffer[size, 1], buffer[size, 2] = ends[at] if kind == END else starts[at], base + at, slot
            _sift_up(buffer, size)
            clock[BUFFERED] += 1
        if kind == CTI:
            if not closing or settings[CLOSE] == CLOSE_AT_INFINITY:
                # Lifted to what has gone on; but infinity is not reached that way.
                said = until if reorder < 0 else max(until, min(limit, MAX_TIME - TICK))
                if said > last:
                    last = said
                    limit = max(limit, said)
                    out_cti[ctis] = said
                    ctis += 1
            if closing or last == MAX_TIME:
                before_end, before_diverted_end = events, diverts
                for slot in range(clock[USED]):
                    if held[slot, PLACE] != IN_EDGES:
                        continue
                    if held[slot, LET_IN] != NONE:
                        out_start[events], out_end[events] = held[slot, LET_IN], MAX_TIME
                        out_number[events] = held[slot, NUMBER]
                        events += 1
                    elif policy == DIVERT:
                        out_diverted[diverts, 0], out_diverted[diverts, 1] = held[slot, FIRST], MAX_TIME
                        out_diverted[diverts, 2], out_diverted[diverts, 3] = held[slot, NUMBER], held[slot, MISSED]
                        out_diverted[diverts, 4] = held[slot, MISSED] - held[slot, FIRST]
                        diverts += 1
                    released = _let_go(held, slot, clock, freed, base, released, out_released, out_kept)
                    last_freed, freed = slot if freed < 0 else last_freed, slot
                for bucket in range(len(buckets)):
                    buckets[bucket] = -1
                clock[WAITING] = 0
    # The oldest of the start edges let in is one whose slot is still its own, and that is not handed out, if any is.
    due = last if settings[HANDS_OUT] else NONE
    opened = opened_end = clock[WAITING]
    while clock[WAITING] > 0:
        let_in, number, slot = waiting[0, 0], waiting[0, 1], waiting[0, 2]
        here = held[slot, NUMBER] == number and held[slot, PLACE] == IN_EDGES
        if here and let_in >= due:
            break
        clock[WAITING] -= 1
        _sift_down(waiting, clock[WAITING])
        if here:
            # There is room for it behind the heap, which has just become one shorter.
            opened -= 1
            waiting[opened, 0], waiting[opened, 1], waiting[opened, 2] = let_in, number, slot
    clock[LAST], clock[LIMIT], clock[HIGH], clock[COUNT] = last, limit, high, count
    clock[EVENTS], clock[BEFORE_END], clock[CTIS], clock[LATES] = events, before_end, ctis, lates
    clock[DIVERTS], clock[BEFORE_DIVERTED_END], clock[RELEASED] = diverts, before_diverted_end, released
    clock[OPENED], clock[OPENED_END], clock[FAULT] = opened, opened_end, 0
    if freed >= 0:
        held[last_freed, NEXT] = clock[FREE]
        clock[FREE] = freed
