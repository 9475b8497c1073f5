"""The state machine of an ingress: lateness, reordering, edges and their ends, generated CTIs.

`admit` steps over single rows, since the fate of a row depends on the rows before it. It is the one kernel that is no
pure function, and it runs on the host on every device. Its arrays belong to one `Ingress`, the only caller, which
makes them large enough before each call.

A row is *held* while it waits. Each held row has a slot, a row of the table ``held``, and one place:

- the buffer (with ``reorder=``): a heap of the slots of one clock, linked by LEFT and RIGHT, by the rows' times;
- the open edges: start edges without their end edge. Those with equal start and payload (128 bits of hash) form a
  queue. Late ones stand in front, as in Trill; each part is first in, first out. The queue's first slot, its head, is
  in one chain of the hash table ``buckets``. An admitted start edge is also in the heap ``waiting`` until it is handed
  out. That heap drops rows lazily: a row is void once its slot has gone.

With ``per=`` each partition has a clock of its own, a row of the table ``parts``. The fields of the clock from LAST to
ROOT are those of the partition whose turn it is; between turns they are those of the low watermark, which is the CTI of
all partitions. A partition that is behind it takes it over when its next turn comes.

Faults undo the call: a slot that comes free is not used again within the call, a slot that changes its place records
the place before the call, and ``journal`` has what partitions were before it. `State.undo` rebuilds everything else.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.devices.cpu.compiling import INT, INTS, inlined, kernel, output
from gpu_ops.ingest.arrivals import ArrivalKind

Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]

NONE = MIN_TIME - 1
"""No time."""

LATE_FAULT, UNMATCHED_FAULT = 1, 2
"""Why a call failed."""

WATERMARK = max(ArrivalKind) + 1
"""The kind of a CTI that names no partition, where others do: a low watermark."""

OPEN_INPUT, CLOSE_AT_INFINITY, CLOSE_HERE = range(3)
"""Whether a call closes the input, and whether that generates a CTI at infinity."""


class Policy(IntEnum):
    """What happens to late rows."""

    RAISE = 0
    DROP = 1
    ADJUST = 2
    DIVERT = 3


class Fate(IntEnum):
    """What happened to a row that was not admitted as it came."""

    DROPPED = 0
    ADJUSTED = 1  # its time was moved to the CTI
    DIVERTED = 2  # it was dropped and kept aside
    UNMATCHED = 3  # an end edge without an open start edge was dropped
    EMPTIED = 4  # an end edge ends its adjusted start edge where that now starts: nothing is left of the event


class Place(IntEnum):
    """Where a slot is."""

    FREE = 0
    BUFFER = 1
    OPEN = 2


# The columns of the kernel's tables are tuples of numbers, no enums: Numba before 0.65, which cuDF wants, indexes no
# array by the member of an enum.


class _Setting(NamedTuple):
    """The settings of a call: `Advance` in numbers, then what the caller says."""

    EVERY: int = 0
    PERIOD: int = 1
    DELAY: int = 2
    LATE: int = 3
    LATE_ENDS: int = 4
    SNAPPED: int = 5
    REORDER: int = 6  # -1 without reordering
    CLOSE: int = 7
    HANDS_OUT: int = 8
    BASE: int = 9  # the number of the call's first arrival
    PER: int = 10  # whether partitions have clocks of their own
    WATERMARK: int = 11  # the period of generated low watermarks; 0 for none
    LAG: int = 12  # how far they are behind the time of a row


Setting = _Setting()


class _ClockField(NamedTuple):
    """What an ingress knows of time, how full its tables are, and (from EVENTS on) what the call gave."""

    LAST: int = 0  # the last CTI, or NONE
    LIMIT: int = 1  # a row before it is late. Never below LAST; with reordering, the time of the latest released row
    LATEST: int = 2  # the latest time that came in; used with reordering
    COUNT: int = 3  # rows since the last CTI that ``every=`` generated
    ROOT: int = 4  # the first slot of the buffer's heap, or -1
    BUFFERED: int = 5  # how many rows are in the buffer, of all partitions
    WAITING: int = 6  # the size of the heap ``waiting``
    USED: int = 7  # slots from here on were never used
    FREE: int = 8  # the first free slot before USED, or -1; the next ones follow by NEXT
    HELD: int = 9
    CALL: int = 10  # the number of the call
    PARTS: int = 11  # how many partitions are known
    PART: int = 12  # the partition whose turn it is, or -1
    EVENTS: int = 13
    BEFORE_END: int = 14  # the number of events before the ones that never end; -1 if the call did not reach the end
    CTIS: int = 15
    LATES: int = 16
    DIVERTS: int = 17
    BEFORE_DIVERTED_END: int = 18  # as BEFORE_END, of diverted rows
    RELEASED: int = 19
    FREED: int = 20  # the first of the slots that came free in this call, or -1
    LAST_FREED: int = 21  # the last of them
    OPENED: int = 22  # where ``waiting`` begins to list the start edges that the call hands out
    OPENED_END: int = 23  # where that list ends
    JOURNALED: int = 24
    FAULT: int = 25
    FAULT_NUMBER: int = 26
    FAULT_KIND: int = 27
    FAULT_START: int = 28
    FAULT_END: int = 29
    FAULT_LIMIT: int = 30


ClockField = _ClockField()


class _PartField(NamedTuple):
    """The columns of ``parts``: what a partition knows of time, as in `ClockField`, and who it is."""

    LAST: int = 0
    LIMIT: int = 1
    LATEST: int = 2
    COUNT: int = 3
    ROOT: int = 4
    HASH: int = 5
    MORE_HASH: int = 6
    CHAIN: int = 7  # the next partition of its bucket, or -1
    SEEN: int = 8  # where among the arrivals of a call it first came
    CHANGED: int = 9  # the last call that it had a turn in


PartField = _PartField()


PART_FIELDS = PartField.ROOT + 1
"""How many fields a partition shares with the clock."""

PART_WIDTH = len(PartField)


class _Slot(NamedTuple):
    """The columns of ``held``: a held row, its links, and its place."""

    NUMBER: int = 0
    KIND: int = 1
    START: int = 2
    END: int = 3
    HASH: int = 4
    MORE_HASH: int = 5
    ADMITTED: int = 6  # of an open edge: the start that it was admitted with; NONE if it was dropped or diverted
    MISSED: int = 7  # of an open edge: the CTI that it missed, or NONE
    NEXT: int = 8  # the next slot of its queue, or of the free slots; -1 for none
    TAIL: int = 9  # of a queue's head: the queue's last slot
    LATE_TAIL: int = 10  # of a queue's head: the last slot that came late, or -1
    CHAIN: int = 11  # of a queue's head: the next queue's head in its bucket, or -1
    PLACE: int = 12
    CHANGED: int = 13  # the last call that changed the place
    FORMER: int = 14  # the place before that call
    PARTITION: int = 15  # of a buffered row: its partition, or -1
    LEFT: int = 16  # of a buffered row: a later one of its heap, or -1
    RIGHT: int = 17  # likewise


Slot = _Slot()


class _LateField(NamedTuple):
    """The columns of the list of late rows."""

    NUMBER: int = 0
    KIND: int = 1
    START: int = 2
    END: int = 3
    CTI: int = 4
    LATE_BY: int = 5
    FATE: int = 6


LateField = _LateField()


class _Aside(NamedTuple):
    """The columns of the list of diverted events."""

    START: int = 0
    END: int = 1
    NUMBER: int = 2
    CTI: int = 3
    LATE_BY: int = 4


Aside = _Aside()


class Row(NamedTuple):
    """A row in its turn, and its slot if it waited in the buffer (else -1)."""

    slot: int
    number: int
    kind: int | np.int64
    start: int
    end: int
    first_hash: int
    second_hash: int


class Given(NamedTuple):
    """The arrivals of a call; see `admit`."""

    kinds: Bytes
    starts: Ints
    ends: Ints
    hashes: Ints
    more_hashes: Ints
    owners: Ints
    more_owners: Ints


class ArrivalTables(NamedTuple):
    """What lasts between calls; see `admit`."""

    clock: Ints
    held: Table
    buckets: Ints
    waiting: Table
    parts: Table
    part_buckets: Ints
    journal: Table


class Out(NamedTuple):
    """What a call gives; see `admit`."""

    start: Ints
    end: Ints
    number: Ints
    ctis: Ints
    cti_parts: Ints
    late: Table
    diverted: Table
    released: Ints
    kept: Bytes


class Verdict(NamedTuple):
    """The fate of a row.

    Attributes:
        admitted: The start that an event or a start edge is admitted with, the end of an end edge; or NONE.
        missed: The CTI that the row missed, or NONE.
        late_by: By how much; 0 if it is on time.
        fate: A `Fate`, or -1 if the row is admitted as it came.
        fault: A `Fault`.
    """

    admitted: int
    missed: int
    late_by: int
    fate: int
    fault: int


class Found(NamedTuple):
    """A place in the hash table: the bucket, the head before the queue in its chain, the queue's head; -1 for none."""

    bucket: int
    before: int
    queue: int


_TABLE = numba.types.Array(numba.types.int64, 2, "C")
_BYTES = numba.types.Array(numba.types.int8, 1, "C", readonly=True)
_OUT = output(numba.types.int64)
_MARKS = output(numba.types.int8)


@kernel(
    *[_BYTES, *[INTS] * 7, _OUT, _TABLE, _OUT, _TABLE, _TABLE, _OUT, _TABLE, *[_OUT] * 5, _TABLE, _TABLE, _OUT, _MARKS],
    allocates=False,
)
def admit(
    kinds: Bytes,
    starts: Ints,
    ends: Ints,
    hashes: Ints,
    more_hashes: Ints,
    owners: Ints,
    more_owners: Ints,
    settings: Ints,
    clock: Ints,
    held: Table,
    buckets: Ints,
    waiting: Table,
    parts: Table,
    part_buckets: Ints,
    journal: Table,
    out_start: Ints,
    out_end: Ints,
    out_number: Ints,
    out_cti: Ints,
    out_cti_parts: Ints,
    out_late: Table,
    out_diverted: Table,
    out_released: Ints,
    out_kept: Bytes,
) -> None:
    """Step over arrivals.

    Args:
        kinds: The `ArrivalKind` of each, or WATERMARK; empty if all are inserts.
        starts: The start; the time of a CTI, the original start of an end edge.
        ends: The end; `MAX_TIME` of a start edge.
        hashes: The hash of an edge's payload; empty if there is no edge.
        more_hashes: Likewise, by another seed.
        owners: The hash of each one's partition; empty if there are no partitions.
        more_owners: Likewise, by another seed.
        settings: See `Setting`.
        clock: See `ClockField`; read and written.
        held: The slots; see `Slot`.
        buckets: The hash table of open edges: the first queue's head of each bucket, or -1.
        waiting: The heap of start edges that are admitted and not handed out: (start, number, slot). Behind the heap,
            from OPENED to OPENED_END, the start edges that this call hands out.
        parts: The partitions; see `PartField`.
        part_buckets: The hash table of partitions: the first partition of each bucket, or -1.
        journal: The partitions that have a turn in this call: number, and the fields of `PartField` before it.
        out_start: The starts of admitted events.
        out_end: Their ends.
        out_number: Their arrivals' numbers.
        out_cti: CTIs.
        out_cti_parts: The partition of each; -1 if it is one of all.
        out_late: Rows that were not admitted as they came; see `LateField`.
        out_diverted: Late events to keep aside; see `Aside`.
        out_released: Numbers of arrivals of earlier calls that are held no longer.
        out_kept: Whether each arrival is held after the call; comes in as zeros.
    """
    given = Given(kinds, starts, ends, hashes, more_hashes, owners, more_owners)
    tables = ArrivalTables(clock, held, buckets, waiting, parts, part_buckets, journal)
    out = Out(out_start, out_end, out_number, out_cti, out_cti_parts, out_late, out_diverted, out_released, out_kept)
    reorder, per = settings[Setting.REORDER], settings[Setting.PER]
    watermark = clock[ClockField.LAST]
    _begin(clock)
    # One step more than there are rows where the input closes.
    for at in range(len(starts) + (settings[Setting.CLOSE] != OPEN_INPUT)):
        kind, time = _kind_and_time(given, at)
        closing = at == len(starts)
        raised = _watermark(settings, kind, time, closing) if per else NONE
        # A low watermark is the turn of each partition whose buffer has rows up to it; then comes the arrival's own.
        others = clock[ClockField.PARTS] if raised > watermark and reorder > 0 else 0
        for turn in range(others + 1):
            goes_on = turn == others and kind == ArrivalKind.CTI
            if turn < others:
                if parts[turn, PartField.ROOT] < 0 or _slot_time(held, parts[turn, PartField.ROOT]) > raised:
                    continue
                _enter(tables, turn, watermark)
                until, at_once = raised, False
            else:
                if per:
                    watermark = _all_together(tables, out, settings, watermark, raised, closing)
                    if closing or kind == WATERMARK:
                        continue
                    _enter(tables, _find_part(tables, given, at), watermark)
                goes_on = goes_on and (closing or time > clock[ClockField.LAST])
                until, at_once = _let_wait(tables, out, settings, given, at, kind, time, goes_on)
            while True:
                if clock[ClockField.ROOT] >= 0 and _slot_time(held, clock[ClockField.ROOT]) <= until:
                    row = _next_buffered(tables)
                elif at_once:
                    at_once = False
                    row = _arrival(given, at, kind, settings[Setting.BASE])
                else:
                    break
                fault = _take(tables, out, settings, row)
                if fault:
                    _report_fault(clock, row, fault)
                    return
            _end_turn(tables, out, settings, until, closing, goes_on)
    if per:
        _share(clock, watermark)
    _hand_out(tables, clock[ClockField.LAST] if settings[Setting.HANDS_OUT] else NONE)
    _reuse_freed(tables)


@kernel(_TABLE, INTS, _OUT)
def index_edges(held: Table, slots: Ints, buckets: Ints) -> None:
    """Put queues of open edges into an empty hash table.

    Args:
        held: The slots.
        slots: The queues' heads.
        buckets: A power of two of them, each -1.
    """
    for slot in slots:
        bucket = _bucket(held[slot, Slot.START], held[slot, Slot.HASH], buckets)
        held[slot, Slot.CHAIN] = buckets[bucket]
        buckets[bucket] = slot


# The turn of a row


@inlined
def _begin(clock: Ints) -> None:
    """The call has given nothing yet, and freed no slot."""
    clock[ClockField.EVENTS] = clock[ClockField.CTIS] = clock[ClockField.LATES] = clock[ClockField.DIVERTS] = clock[
        ClockField.RELEASED
    ] = 0
    clock[ClockField.BEFORE_END] = clock[ClockField.BEFORE_DIVERTED_END] = -1
    clock[ClockField.FREED] = clock[ClockField.LAST_FREED] = -1
    clock[ClockField.JOURNALED] = 0


@inlined
def _watermark(settings: Ints, kind: np.int64, time: int, closing: bool) -> int:  # noqa: FBT001
    """The low watermark that an arrival brings or makes; NONE if none. A row makes one on the grid of the period."""
    period = settings[Setting.WATERMARK]
    made = NONE
    if closing or kind == WATERMARK:
        made = time
    elif period > 0 and kind != ArrivalKind.CTI:
        made = max(time - settings[Setting.LAG], MIN_TIME)
        made -= (made - MIN_TIME) % period
    return made


@inlined
def _all_together(
    tables: ArrivalTables,
    out: Out,
    settings: Ints,
    watermark: int,
    raised: int,
    closing: bool,  # noqa: FBT001
) -> int:
    """The turn of all partitions together: the low watermark, if it has risen, and the end of the input."""
    clock = tables.clock
    _share(clock, watermark)
    if raised > watermark and (not closing or settings[Setting.CLOSE] == CLOSE_AT_INFINITY):
        watermark = raised
        _give_cti(out, clock, raised)
    if closing or raised == MAX_TIME:
        _end_all(tables, out, settings)
    return watermark


@inlined
def _let_wait(
    tables: ArrivalTables,
    out: Out,
    settings: Ints,
    given: Given,
    at: int,
    kind: np.int64,
    time: int,
    goes_on: bool,  # noqa: FBT001
) -> tuple[int, bool]:
    """Put an arrival into the buffer, unless its turn is now: up to when it releases the buffer, and whether it is."""
    clock, latency = tables.clock, settings[Setting.REORDER]
    until = NONE
    at_once = False
    if kind == ArrivalKind.CTI:
        if goes_on:
            until = time
    elif latency <= 0 or time <= clock[ClockField.LIMIT]:
        at_once = True
    else:
        until = _released_by(clock, time, latency)
        _buffer(tables, out, _arrival(given, at, kind, settings[Setting.BASE]), settings[Setting.BASE])
    return until, at_once


@inlined
def _end_turn(
    tables: ArrivalTables,
    out: Out,
    settings: Ints,
    until: int,
    closing: bool,  # noqa: FBT001
    goes_on: bool,  # noqa: FBT001
) -> None:
    """What follows the rows of a turn: time is where they were released to, and a CTI is given."""
    clock, per = tables.clock, settings[Setting.PER]
    if settings[Setting.REORDER] >= 0 and MIN_TIME <= until < MAX_TIME:
        clock[ClockField.LIMIT] = max(clock[ClockField.LIMIT], until)
    if goes_on:
        if not closing or settings[Setting.CLOSE] == CLOSE_AT_INFINITY:
            _give_cti(out, clock, _imported(clock, settings, until))
        if not per and (closing or clock[ClockField.LAST] == MAX_TIME):
            _end_all(tables, out, settings)
    if per:
        _leave(tables)


@inlined
def _kind_and_time(given: Given, at: int) -> tuple[np.int64, int]:
    """The kind of an arrival and the time that it is judged by. The end of the input is a CTI at infinity."""
    kind, time = np.int64(ArrivalKind.CTI), MAX_TIME
    if at < len(given.starts):
        kind = np.int64(ArrivalKind.INSERT) if len(given.kinds) == 0 else np.int64(given.kinds[at])
        time = given.ends[at] if kind == ArrivalKind.END else given.starts[at]
    return kind, time


@inlined
def _arrival(given: Given, at: int, kind: np.int64, base: int) -> Row:
    """An arrival as a row. Only edges have hashes."""
    first_hash = second_hash = 0
    if kind != ArrivalKind.INSERT:
        first_hash, second_hash = given.hashes[at], given.more_hashes[at]
    return Row(-1, base + at, kind, given.starts[at], given.ends[at], first_hash, second_hash)


@inlined
def _buffer(tables: ArrivalTables, out: Out, row: Row, base: int) -> None:
    """Put an arrival into the buffer of the clock whose turn it is."""
    held, clock = tables.held, tables.clock
    slot = _hold(tables, out, row, base)
    _move(tables, slot, Place.BUFFER)
    held[slot, Slot.PARTITION] = clock[ClockField.PART]
    held[slot, Slot.LEFT] = held[slot, Slot.RIGHT] = -1
    clock[ClockField.ROOT] = _merged(held, clock[ClockField.ROOT], slot)
    clock[ClockField.BUFFERED] += 1


@inlined
def _released_by(clock: Ints, time: int, latency: int) -> int:
    """Up to which time an arrival releases the buffer, never itself; NONE unless it is the latest so far."""
    if time <= clock[ClockField.LATEST]:
        return NONE
    clock[ClockField.LATEST] = time
    return max(time - latency, MIN_TIME)


@inlined
def _next_buffered(tables: ArrivalTables) -> Row:
    """Take the earliest row off the buffer. Its slot stays in use: `_take` opens or releases it."""
    held, clock = tables.held, tables.clock
    slot = clock[ClockField.ROOT]
    clock[ClockField.ROOT] = _merged(held, held[slot, Slot.LEFT], held[slot, Slot.RIGHT])
    clock[ClockField.BUFFERED] -= 1
    return Row(
        slot,
        held[slot, Slot.NUMBER],
        held[slot, Slot.KIND],
        held[slot, Slot.START],
        held[slot, Slot.END],
        held[slot, Slot.HASH],
        held[slot, Slot.MORE_HASH],
    )


@inlined
def _take(tables: ArrivalTables, out: Out, settings: Ints, row: Row) -> int:
    """Judge a row in its turn and do what follows; give the fault, if any. A fault leaves the undoing to the caller.

    A row goes one way: an insert is given or left out, a start edge is held, an end edge closes a start edge or is left
    out. Then it may move time on.
    """
    clock, held, base = tables.clock, tables.held, settings[Setting.BASE]
    found = Found(-1, -1, -1)
    if row.kind == ArrivalKind.END:
        found = _find_queue(tables, row.start, row.first_hash, row.second_hash)
        verdict = _judge_end(held, found.queue, row, clock[ClockField.LIMIT], settings)
    else:
        verdict = _judge_start(row, clock[ClockField.LIMIT], settings[Setting.LATE])
    if verdict.fault == 0:
        if verdict.fate >= 0:
            _list_late(out, clock, row, verdict)
        if row.kind == ArrivalKind.START:
            _open(tables, out, row, verdict, base)
        else:
            if row.kind == ArrivalKind.INSERT:
                if verdict.admitted != NONE:
                    _give_event(out, clock, verdict.admitted, row.end, row.number)
            elif found.queue >= 0 and (verdict.admitted != NONE or held[found.queue, Slot.ADMITTED] == NONE):
                _close(tables, out, found, verdict, base)
            if row.slot >= 0:
                _release(tables, out, row.slot, base)
        if settings[Setting.REORDER] >= 0:
            clock[ClockField.LIMIT] = max(clock[ClockField.LIMIT], _time(row))
        _give_cti(out, clock, _generated(clock, settings, row.kind, verdict.admitted))
    return verdict.fault


@inlined
def _time(row: Row) -> int:
    """The time that a row is ordered and judged by."""
    return row.end if row.kind == ArrivalKind.END else row.start


@inlined
def _slot_time(held: Table, slot: int) -> int:
    """The same of a held row."""
    time: int = held[slot, Slot.END] if held[slot, Slot.KIND] == ArrivalKind.END else held[slot, Slot.START]
    return time


# Partitions


@inlined
def _find_part(tables: ArrivalTables, given: Given, at: int) -> int:
    """The partition of an arrival; a new one knows of no CTI but the low watermark."""
    parts, clock = tables.parts, tables.clock
    first_hash, second_hash = given.owners[at], given.more_owners[at]
    bucket = _bucket(0, first_hash, tables.part_buckets)
    part: int = tables.part_buckets[bucket]
    while part >= 0 and (parts[part, PartField.HASH] != first_hash or parts[part, PartField.MORE_HASH] != second_hash):
        part = parts[part, PartField.CHAIN]
    if part < 0:
        part = clock[ClockField.PARTS]
        clock[ClockField.PARTS] = part + 1
        parts[part, PartField.LAST], parts[part, PartField.LIMIT], parts[part, PartField.LATEST] = (
            NONE,
            MIN_TIME,
            MIN_TIME,
        )
        parts[part, PartField.COUNT], parts[part, PartField.ROOT] = 0, -1
        parts[part, PartField.HASH], parts[part, PartField.MORE_HASH] = first_hash, second_hash
        parts[part, PartField.CHAIN], parts[part, PartField.SEEN] = tables.part_buckets[bucket], at
        parts[part, PartField.CHANGED] = clock[ClockField.CALL]
        tables.part_buckets[bucket] = part
    return part


@inlined
def _enter(tables: ArrivalTables, part: int, watermark: int) -> None:
    """Begin a partition's turn: the clock shows its time, at least the low watermark."""
    parts, clock = tables.parts, tables.clock
    if parts[part, PartField.CHANGED] != clock[ClockField.CALL]:
        noted = tables.journal[clock[ClockField.JOURNALED]]
        noted[0] = part
        for field in range(PART_WIDTH):
            noted[1 + field] = parts[part, field]
        clock[ClockField.JOURNALED] += 1
        parts[part, PartField.CHANGED] = clock[ClockField.CALL]
    clock[ClockField.PART] = part
    for field in range(PART_FIELDS):
        clock[field] = parts[part, field]
    clock[ClockField.LAST] = max(clock[ClockField.LAST], watermark)
    clock[ClockField.LIMIT] = max(clock[ClockField.LIMIT], watermark)


@inlined
def _leave(tables: ArrivalTables) -> None:
    """End a partition's turn."""
    parts, clock = tables.parts, tables.clock
    for field in range(PART_FIELDS):
        parts[clock[ClockField.PART], field] = clock[field]


@inlined
def _share(clock: Ints, watermark: int) -> None:
    """It is no partition's turn: the clock shows the low watermark."""
    clock[ClockField.PART] = clock[ClockField.ROOT] = -1
    clock[ClockField.LAST], clock[ClockField.LIMIT] = watermark, max(watermark, MIN_TIME)
    clock[ClockField.LATEST], clock[ClockField.COUNT] = MIN_TIME, 0


@kernel(_TABLE, INT, _OUT)
def index_parts(parts: Table, count: int, buckets: Ints) -> None:
    """Put partitions into an empty hash table.

    Args:
        parts: The partitions.
        count: How many there are.
        buckets: A power of two of them, each -1.
    """
    for part in range(count):
        bucket = _bucket(0, parts[part, PartField.HASH], buckets)
        parts[part, PartField.CHAIN] = buckets[bucket]
        buckets[bucket] = part


# Whether a row is late


@inlined
def _judge_start(row: Row, limit: int, policy: int) -> Verdict:
    """An event or a start edge is late if it starts before the limit. Adjusted, it starts at the limit."""
    admitted, missed, late_by, fate, fault = row.start, NONE, 0, -1, 0
    if row.start < limit:
        missed, late_by = limit, limit - row.start
        if policy == Policy.RAISE:
            fault = LATE_FAULT
        elif policy == Policy.ADJUST and row.end > limit:
            admitted, fate = limit, Fate.ADJUSTED
        else:
            admitted, fate = NONE, _left_out(policy)
    return Verdict(admitted, missed, late_by, fate, fault)


@inlined
def _judge_end(held: Table, queue: int, row: Row, limit: int, settings: Ints) -> Verdict:
    """An end edge shares the fate of a start edge that was left out. Else it is late if it ends before the limit.

    Adjusted, it ends at the limit. Its event is emptied if its start edge was moved to that end or past it.
    """
    policy = settings[Setting.LATE]
    admitted, missed, late_by, fate, fault = NONE, NONE, 0, -1, 0
    if queue < 0:
        fate = Fate.UNMATCHED
        if policy == Policy.RAISE:
            fault = UNMATCHED_FAULT
    elif held[queue, Slot.ADMITTED] == NONE:
        missed = held[queue, Slot.MISSED]
        late_by, fate = missed - row.start, _left_out(policy)
    else:
        missed, late_by = limit, limit - row.end
        if row.end >= limit:
            admitted = row.end
        elif policy == Policy.RAISE:
            fault = LATE_FAULT
        elif settings[Setting.LATE_ENDS] == Policy.ADJUST:
            admitted, fate = limit, Fate.ADJUSTED
        else:
            fate = _left_out(policy)
        if admitted != NONE and admitted <= held[queue, Slot.ADMITTED]:
            fate = Fate.EMPTIED
    return Verdict(admitted, missed, late_by, fate, fault)


@inlined
def _left_out(policy: int) -> int:
    """The fate of a late row that is not adjusted."""
    return Fate.DIVERTED if policy == Policy.DIVERT else Fate.DROPPED


# What a call gives


@inlined
def _give_event(out: Out, clock: Ints, start: int, end: int, number: int) -> None:
    at = clock[ClockField.EVENTS]
    out.start[at], out.end[at], out.number[at] = start, end, number
    clock[ClockField.EVENTS] = at + 1


@inlined
def _list_late(out: Out, clock: Ints, row: Row, verdict: Verdict) -> None:
    """List a row that was not admitted as it came. A diverted start edge is kept aside later, when its end is known."""
    late = out.late[clock[ClockField.LATES]]
    late[LateField.NUMBER], late[LateField.KIND], late[LateField.START], late[LateField.END] = (
        row.number,
        row.kind,
        row.start,
        row.end,
    )
    late[LateField.CTI], late[LateField.LATE_BY], late[LateField.FATE] = verdict.missed, verdict.late_by, verdict.fate
    clock[ClockField.LATES] += 1
    if verdict.fate == Fate.DIVERTED and row.kind != ArrivalKind.START:
        _keep_aside(out, clock, row.start, row.end, row.number, verdict.missed, verdict.late_by)


@inlined
def _keep_aside(out: Out, clock: Ints, start: int, end: int, number: int, missed: int, late_by: int) -> None:
    aside = out.diverted[clock[ClockField.DIVERTS]]
    aside[Aside.START], aside[Aside.END], aside[Aside.NUMBER] = start, end, number
    aside[Aside.CTI], aside[Aside.LATE_BY] = missed, late_by
    clock[ClockField.DIVERTS] += 1


@inlined
def _report_fault(clock: Ints, row: Row, fault: int) -> None:
    clock[ClockField.FAULT], clock[ClockField.FAULT_NUMBER], clock[ClockField.FAULT_KIND] = fault, row.number, row.kind
    clock[ClockField.FAULT_START], clock[ClockField.FAULT_END] = row.start, row.end
    clock[ClockField.FAULT_LIMIT] = clock[ClockField.LIMIT]


# CTIs


@inlined
def _generated(clock: Ints, settings: Ints, kind: int | np.int64, admitted: int) -> int:
    """The CTI that a row generates, or NONE. It is below infinity, and may be at or below the last one.

    A row that was left out generates none, but counts for ``every=``; end edges do not count.
    """
    period, delay, snapped = settings[Setting.PERIOD], settings[Setting.DELAY], settings[Setting.SNAPPED]
    last = clock[ClockField.LAST]
    made = NONE
    if period > 0 and admitted != NONE and (kind != ArrivalKind.END or snapped):
        baseline = last
        if snapped:
            baseline -= (last - MIN_TIME) % period
        if last == NONE or admitted - baseline >= period:
            made = admitted - delay
            if snapped:
                made -= (made - MIN_TIME) % period
    if settings[Setting.EVERY] > 0 and kind != ArrivalKind.END:
        clock[ClockField.COUNT] += 1
        if clock[ClockField.COUNT] == settings[Setting.EVERY]:
            clock[ClockField.COUNT] = 0
            if admitted != NONE:
                made = admitted - delay
    if made != NONE:
        made = min(max(made, MIN_TIME), MAX_TIME - TICK)
    return made


@inlined
def _imported(clock: Ints, settings: Ints, cti: int) -> int:
    """A CTI that came in. With reordering it is raised to the limit, but not to infinity."""
    if settings[Setting.REORDER] >= 0:
        cti = max(cti, min(clock[ClockField.LIMIT], MAX_TIME - TICK))
    return cti


@inlined
def _give_cti(out: Out, clock: Ints, cti: int) -> None:
    """Give a CTI. CTIs ascend: one at or below the last one is ignored (NONE is below all)."""
    if cti > clock[ClockField.LAST]:
        clock[ClockField.LAST] = cti
        clock[ClockField.LIMIT] = max(clock[ClockField.LIMIT], cti)
        out.ctis[clock[ClockField.CTIS]], out.cti_parts[clock[ClockField.CTIS]] = cti, clock[ClockField.PART]
        clock[ClockField.CTIS] += 1


# Open edges


@inlined
def _open(tables: ArrivalTables, out: Out, row: Row, verdict: Verdict, base: int) -> None:
    """Hold a start edge until its end edge comes, also one that was left out: its end edge shares its fate."""
    held, clock = tables.held, tables.clock
    slot = row.slot
    if slot < 0:
        slot = _hold(tables, out, row, base)
    held[slot, Slot.ADMITTED], held[slot, Slot.MISSED] = verdict.admitted, verdict.missed
    _move(tables, slot, Place.OPEN)
    _enqueue(tables, slot, verdict.late_by)
    if verdict.admitted != NONE:
        _push(tables.waiting, clock[ClockField.WAITING], verdict.admitted, row.number, slot)
        clock[ClockField.WAITING] += 1


@inlined
def _enqueue(tables: ArrivalTables, slot: int, late_by: int) -> None:
    """Put an open edge into the queue of its identity: behind the last late one if it is late, else at the end."""
    held = tables.held
    found = _find_queue(tables, held[slot, Slot.START], held[slot, Slot.HASH], held[slot, Slot.MORE_HASH])
    head = found.queue
    held[slot, Slot.NEXT], held[slot, Slot.TAIL] = -1, slot
    held[slot, Slot.LATE_TAIL] = slot if late_by > 0 else -1
    if head < 0:
        held[slot, Slot.CHAIN] = tables.buckets[found.bucket]
        tables.buckets[found.bucket] = slot
    elif late_by == 0:
        held[held[head, Slot.TAIL], Slot.NEXT] = slot
        held[head, Slot.TAIL] = slot
    elif held[head, Slot.LATE_TAIL] >= 0:
        ahead = held[head, Slot.LATE_TAIL]
        held[slot, Slot.NEXT] = held[ahead, Slot.NEXT]
        held[ahead, Slot.NEXT] = slot
        held[head, Slot.LATE_TAIL] = slot
        if held[head, Slot.TAIL] == ahead:
            held[head, Slot.TAIL] = slot
    else:
        held[slot, Slot.NEXT], held[slot, Slot.TAIL] = head, held[head, Slot.TAIL]
        held[slot, Slot.CHAIN] = held[head, Slot.CHAIN]
        _replace_head(tables, found, slot)


@inlined
def _close(tables: ArrivalTables, out: Out, found: Found, verdict: Verdict, base: int) -> None:
    """Take the head off its queue; the next open edge of the queue becomes the head. Its event is given, if any."""
    held, head = tables.held, found.queue
    if verdict.admitted != NONE and verdict.fate != Fate.EMPTIED:
        _give_event(out, tables.clock, held[head, Slot.ADMITTED], verdict.admitted, held[head, Slot.NUMBER])
    heir = held[head, Slot.NEXT]
    if heir >= 0:
        held[heir, Slot.CHAIN], held[heir, Slot.TAIL] = held[head, Slot.CHAIN], held[head, Slot.TAIL]
        held[heir, Slot.LATE_TAIL] = -1 if held[head, Slot.LATE_TAIL] == head else held[head, Slot.LATE_TAIL]
    else:
        heir = held[head, Slot.CHAIN]
    _replace_head(tables, found, heir)
    _release(tables, out, head, base)


@inlined
def _replace_head(tables: ArrivalTables, found: Found, head: int) -> None:
    """Let another slot, or none, follow what stands before a queue in its bucket."""
    if found.before < 0:
        tables.buckets[found.bucket] = head
    else:
        tables.held[found.before, Slot.CHAIN] = head


@inlined
def _find_queue(tables: ArrivalTables, start: int, first_hash: int, second_hash: int) -> Found:
    """The queue of open edges with this start and payload."""
    held = tables.held
    bucket = _bucket(start, first_hash, tables.buckets)
    before, queue = -1, tables.buckets[bucket]
    while queue >= 0 and (
        held[queue, Slot.START] != start
        or held[queue, Slot.HASH] != first_hash
        or held[queue, Slot.MORE_HASH] != second_hash
    ):
        before, queue = queue, held[queue, Slot.CHAIN]
    return Found(bucket, before, queue)


@inlined
def _bucket(start: int, first_hash: int, buckets: Ints) -> int:
    mixed = first_hash ^ (start * 0x1E3779B97F4A7C15)
    return (mixed ^ (mixed >> 29)) & (len(buckets) - 1)


@inlined
def _end_all(tables: ArrivalTables, out: Out, settings: Ints) -> None:
    """At infinity every open edge is closed: its event never ends. Nothing is left open."""
    held, clock = tables.held, tables.clock
    clock[ClockField.BEFORE_END], clock[ClockField.BEFORE_DIVERTED_END] = (
        clock[ClockField.EVENTS],
        clock[ClockField.DIVERTS],
    )
    for slot in range(clock[ClockField.USED]):
        if held[slot, Slot.PLACE] != Place.OPEN:
            continue
        start, number, missed = held[slot, Slot.START], held[slot, Slot.NUMBER], held[slot, Slot.MISSED]
        if held[slot, Slot.ADMITTED] != NONE:
            _give_event(out, clock, held[slot, Slot.ADMITTED], MAX_TIME, number)
        elif settings[Setting.LATE] == Policy.DIVERT:
            _keep_aside(out, clock, start, MAX_TIME, number, missed, missed - start)
        _release(tables, out, slot, settings[Setting.BASE])
    for bucket in range(len(tables.buckets)):
        tables.buckets[bucket] = -1
    clock[ClockField.WAITING] = 0


@inlined
def _hand_out(tables: ArrivalTables, due: int) -> None:
    """Take start edges before ``due`` off the heap and list them behind it, and drop void rows from its top.

    Then the top of the heap, if any, is the oldest open edge that is not handed out.
    """
    held, waiting, clock = tables.held, tables.waiting, tables.clock
    opened = clock[ClockField.OPENED_END] = clock[ClockField.WAITING]
    while clock[ClockField.WAITING] > 0:
        admitted, number, slot = waiting[0, 0], waiting[0, 1], waiting[0, 2]
        valid = held[slot, Slot.NUMBER] == number and held[slot, Slot.PLACE] == Place.OPEN
        if valid and admitted >= due:
            break
        clock[ClockField.WAITING] -= 1
        _sift_down(waiting, clock[ClockField.WAITING])
        if valid:
            # There is room behind the heap, which has just become one shorter.
            opened -= 1
            waiting[opened, 0], waiting[opened, 1], waiting[opened, 2] = admitted, number, slot
    clock[ClockField.OPENED] = opened


# Slots


@inlined
def _hold(tables: ArrivalTables, out: Out, row: Row, base: int) -> int:
    """Give an arrival a slot, without a place yet: a free one, or the first that was never used."""
    held, clock = tables.held, tables.clock
    slot: int = clock[ClockField.FREE]
    if slot >= 0:
        clock[ClockField.FREE] = held[slot, Slot.NEXT]
    else:
        slot = clock[ClockField.USED]
        clock[ClockField.USED] += 1
    clock[ClockField.HELD] += 1
    out.kept[row.number - base] = 1
    held[slot, Slot.NUMBER], held[slot, Slot.KIND] = row.number, row.kind
    held[slot, Slot.START], held[slot, Slot.END] = row.start, row.end
    held[slot, Slot.HASH], held[slot, Slot.MORE_HASH] = row.first_hash, row.second_hash
    return slot


@inlined
def _move(tables: ArrivalTables, slot: int, place: int) -> None:
    """Give a slot another place. The place before this call is recorded once, for `State.undo`."""
    held, call = tables.held, tables.clock[ClockField.CALL]
    if held[slot, Slot.CHANGED] != call:
        held[slot, Slot.CHANGED], held[slot, Slot.FORMER] = call, held[slot, Slot.PLACE]
    held[slot, Slot.PLACE] = place


@inlined
def _release(tables: ArrivalTables, out: Out, slot: int, base: int) -> None:
    """Release a row. Its slot joins the slots freed in this call, which later calls use again."""
    held, clock = tables.held, tables.clock
    _move(tables, slot, Place.FREE)
    held[slot, Slot.NEXT] = clock[ClockField.FREED]
    if clock[ClockField.FREED] < 0:
        clock[ClockField.LAST_FREED] = slot
    clock[ClockField.FREED] = slot
    clock[ClockField.HELD] -= 1
    number = held[slot, Slot.NUMBER]
    if number >= base:
        out.kept[number - base] = 0
    else:
        out.released[clock[ClockField.RELEASED]] = number
        clock[ClockField.RELEASED] += 1


@inlined
def _reuse_freed(tables: ArrivalTables) -> None:
    """Let later calls use the slots freed in this call, before the slots that were free already."""
    held, clock = tables.held, tables.clock
    if clock[ClockField.FREED] >= 0:
        held[clock[ClockField.LAST_FREED], Slot.NEXT] = clock[ClockField.FREE]
        clock[ClockField.FREE] = clock[ClockField.FREED]


# The buffer: a skew heap of slots, ordered by time and then number


@inlined
def _merged(held: Table, one: int, other: int) -> int:
    """The first slot of two heaps together; -1 is an empty one. The costs are a logarithm, amortised."""
    root, at = -1, -1
    while one >= 0 and other >= 0:
        mine, others = _slot_time(held, one), _slot_time(held, other)
        if others < mine or (others == mine and held[other, Slot.NUMBER] < held[one, Slot.NUMBER]):
            one, other = other, one
        if at < 0:
            root = one
        else:
            held[at, Slot.LEFT] = one
        at, one = one, held[one, Slot.RIGHT]
        held[at, Slot.RIGHT] = held[at, Slot.LEFT]
    left = max(one, other)
    if at < 0:
        root = left
    else:
        held[at, Slot.LEFT] = left
    return root


# Heaps of (time, number, slot), ordered by time and then number


@inlined
def _push(heap: Table, size: int, time: int, number: int, slot: int) -> None:
    """Add a row to a heap of ``size`` rows."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above, 0] < time or (heap[above, 0] == time and heap[above, 1] <= number):
            break
        for field in range(3):
            heap[at, field] = heap[above, field]
        at = above
    heap[at, 0], heap[at, 1], heap[at, 2] = time, number, slot


@inlined
def _sift_down(heap: Table, size: int) -> None:
    """Take the top off a heap of ``size + 1`` rows: the last row moves to its place."""
    time, number, slot = heap[size, 0], heap[size, 1], heap[size, 2]
    at, below = 0, 1
    while below < size:
        right = below + 1
        if right < size and (
            heap[right, 0] < heap[below, 0] or (heap[right, 0] == heap[below, 0] and heap[right, 1] < heap[below, 1])
        ):
            below = right
        if time < heap[below, 0] or (time == heap[below, 0] and number <= heap[below, 1]):
            break
        for field in range(3):
            heap[at, field] = heap[below, field]
        at = below
        below = 2 * at + 1
    heap[at, 0], heap[at, 1], heap[at, 2] = time, number, slot
