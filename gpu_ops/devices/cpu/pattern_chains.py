"""Open starts of a pattern, in chains by what they wait for: events end them or complete them, and so does the clock.

One walk over turns in their order. A start is a row of a table, and what it still waits for are rows of another one, in
chains by the key of the event. All starts have the same spans of time, so they fall due in the order in which they
began.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.devices.cpu.compiling import (
    BOOLS,
    FLOAT,
    INT,
    INT_TABLE,
    INTS,
    Bools,
    Floats,
    Ints,
    called,
    kernel,
    output,
)
from gpu_ops.devices.cpu.patterns import OWN, Table, chain_of
from gpu_ops.devices.cpu.row_programs import OVERFLOW, VALUE, evaluate

# Columns of starts. ROW: of the first event; FOUND: that of the event that came, or one of those below; STATE: below.
ROW, WITHIN_DUE, AFTER_DUE, FOUND, STATE, START_COLUMNS = range(6)
MISSING, NEEDS_NONE = -1, -2
ENDED, WAITS, PASSED = range(3)
"""A start has ended; or waits for the time; or that has passed, or there is none."""

# Columns of what starts wait for, a row for each start and each of the events. NEXT and BEFORE: in its chain.
KEY, NEXT, BEFORE, LINKED, AWAITED_COLUMNS = range(5)

# Columns of the events that starts wait for. FIRST_CELL and END_CELL: the cells of the program. OP: what that does to
# two cells, LEFT and RIGHT, if it does nothing else: one of those below.
STREAM, MASK, MINE, THEIRS, PROGRAM, FIRST_CELL, END_CELL, OP, LEFT, RIGHT, ATOM_COLUMNS = range(11)
MUCH, IS_LESS, IS_AT_MOST, IS_EQUAL = range(4)

# Numbers that go in and out
TICK, STARTS, FOUND_MATCHES, ERROR, LATE, PASSED_UNTIL, NUMBERS = range(7)

# Rows of matches: the place and the time of the turn, and the rows of the events.
AT_PLACE, AT_CLOCK, FIRST_ROW, THEN_ROW, MATCH_ROWS = range(5)

DONE, GROW, OVERFLOWED = range(3)

_NEVER = np.int64((1 << 63) - 1)
"""Behind all places."""


@kernel(INTS, INTS, INTS, INTS)
def merged_turns(ticks: Ints, places: Ints, begins: Ints, bases: Ints) -> Table:
    """Ticks and the events of some streams as turns: ticks before events of one place, those in the order of streams.

    Args:
        ticks: int64 places, ascending.
        places: int64 places of the events of all streams, ascending for each.
        begins: int64[streams + 1]: where those of each begin.
        bases: int64[streams]: what is added to the number of an event in its stream.

    Returns:
        int64[turns, 3]: the stream (-1: a tick), the row, and how many ticks there were until then.

    Examples:
        >>> each = np.array([1, 5]), np.array([2, 5, 3]), np.array([0, 2, 3]), np.array([0, 10])
        >>> merged_turns(*each).tolist()
        [[-1, 0, 1], [0, 0, 1], [1, 10, 1], [-1, 1, 2], [0, 1, 2]]
    """
    streams = len(bases)
    turns = np.empty((len(ticks) + len(places), 3), np.int64)
    heads, ahead = begins[:-1].copy(), np.full(streams, _NEVER)
    for stream in range(streams):
        if heads[stream] < begins[stream + 1]:
            ahead[stream] = places[heads[stream]]
    turn, tick = 0, 0
    while turn < len(turns):
        chosen, place = -1, _NEVER
        for stream in range(streams):
            if ahead[stream] < place:
                chosen, place = stream, ahead[stream]
        while tick < len(ticks) and ticks[tick] <= place:
            turns[turn, 0], turns[turn, 1], turns[turn, 2] = -1, tick, tick + 1
            turn, tick = turn + 1, tick + 1
        if chosen < 0:
            break
        head = heads[chosen]
        turns[turn, 0], turns[turn, 1], turns[turn, 2] = chosen, head - begins[chosen] + bases[chosen], tick
        turn += 1
        heads[chosen] = head + 1
        ahead[chosen] = places[head + 1] if head + 1 < begins[chosen + 1] else _NEVER
    return turns


@called
def _unlink(awaited: Table, heads: Ints, tails: Ints, node: int, atom: int) -> None:
    """Have a start wait for an event no longer."""
    if awaited[node, LINKED] == 0:
        return
    awaited[node, LINKED] = 0
    following, before = awaited[node, NEXT], awaited[node, BEFORE]
    if before >= 0 and following >= 0:
        awaited[before, NEXT], awaited[following, BEFORE] = following, before
        return
    chain = chain_of(atom, awaited[node, KEY], len(heads))
    if before >= 0:
        awaited[before, NEXT] = following
    else:
        heads[chain] = following
    if following >= 0:
        awaited[following, BEFORE] = before
    else:
        tails[chain] = before


@called
def _link(
    starts: Table,
    awaited: Table,
    heads: Ints,
    tails: Ints,
    atoms: Table,
    begins: Ints,
    values: Ints,
    there: Bools,
    who: int,
) -> None:
    """Have a start wait for its events."""
    count = len(atoms)
    for atom in range(count):
        node = who * count + atom
        awaited[node, LINKED] = 0
        if atom == 0 and starts[who, FOUND] >= 0:
            continue
        key, cell = 0, atoms[atom, THEIRS]
        if cell >= 0:
            at = begins[cell] + starts[who, ROW]
            if not there[at]:
                continue
            key = values[at]
        chain = chain_of(atom, key, len(heads))
        last = tails[chain]
        awaited[node, KEY], awaited[node, NEXT], awaited[node, BEFORE], awaited[node, LINKED] = key, -1, last, 1
        if last >= 0:
            awaited[last, NEXT] = node
        else:
            heads[chain] = node
        tails[chain] = node


@called
def _end(starts: Table, changed: Bools, awaited: Table, heads: Ints, tails: Ints, count: int, who: int) -> None:
    starts[who, STATE], changed[who] = ENDED, True
    for atom in range(count):
        _unlink(awaited, heads, tails, who * count + atom, atom)


@kernel(OWN, OWN, output(INT), output(INT), INT_TABLE, INTS, INTS, BOOLS, output(INT), INT, allocates=False)
def relinked(
    starts: Table,
    awaited: Table,
    heads: Ints,
    tails: Ints,
    atoms: Table,
    begins: Ints,
    values: Ints,
    there: Bools,
    numbers: Ints,
    drops: int,
) -> int:
    """Put what starts wait for into chains anew.

    Args:
        starts: As in `chained`, like the others.
        awaited: Likewise.
        heads: Likewise.
        tails: Likewise.
        atoms: Likewise.
        begins: Likewise.
        values: Likewise.
        there: Likewise.
        numbers: Likewise.
        drops: 1 to drop the starts that have ended: the others get new places.

    Returns:
        How many starts are left.
    """
    kept = 0
    for who in range(numbers[STARTS]):
        if drops == 0 or starts[who, STATE] != ENDED:
            if kept < who:
                for column in range(START_COLUMNS):
                    starts[kept, column] = starts[who, column]
            kept += 1
    numbers[STARTS], numbers[LATE], numbers[PASSED_UNTIL] = kept, 0, 0
    for chain in range(len(heads)):
        heads[chain] = tails[chain] = -1
    for who in range(kept):
        if starts[who, STATE] != ENDED:
            _link(starts, awaited, heads, tails, atoms, begins, values, there, who)
        else:
            for atom in range(len(atoms)):
                awaited[who * len(atoms) + atom, LINKED] = 0
    return kept


@kernel(OWN, INT, BOOLS, output(INT), output(INT), allocates=False)
def renumbered(starts: Table, count: int, columns: Bools, numbers: Ints, rows: Ints) -> int:
    """Number the rows of a stream anew, of which only those are kept that starts need which have not ended.

    Args:
        starts: As in `chained`.
        count: How many there are.
        columns: bool[columns of starts]: which of them have rows of the stream.
        numbers: Room for the number of each row.
        rows: Room for the rows that are kept.

    Returns:
        How many are kept.
    """
    for row in range(numbers.size):
        numbers[row] = 0
    for who in range(count):
        if starts[who, STATE] != ENDED:
            for column in range(START_COLUMNS):
                if columns[column] and starts[who, column] >= 0:
                    numbers[starts[who, column]] = 1
    kept = 0
    for row in range(numbers.size):
        if numbers[row]:
            numbers[row], rows[kept] = kept, row
            kept += 1
    for who in range(count):
        if starts[who, STATE] != ENDED:
            for column in range(START_COLUMNS):
                if columns[column] and starts[who, column] >= 0:
                    starts[who, column] = numbers[starts[who, column]]
    return kept


@kernel(
    *(INTS, INTS, INTS, INTS, INTS, INTS, INTS, BOOLS, INTS, INT_TABLE, INT),
    *(INTS, INTS, INTS, BOOLS, INTS, INTS, BOOLS),
    *(output(INT), output(INT), output(FLOAT), output(BOOLS.dtype)),
    *(output(INT), output(INT), OWN, OWN, output(INT), output(INT), OWN, output(BOOLS.dtype)),
    allocates=False,
)
def chained(  # noqa: C901, PLR0912, PLR0915  (which turn is next, what events do, and what starts)
    ticks: Ints,
    places: Ints,
    stream_begins: Ints,
    bases: Ints,
    clocks: Ints,
    within_dues: Ints,
    after_dues: Ints,
    masks: Any,
    begun: Ints,
    atoms: Table,
    needs: int,
    code: Ints,
    bounds: Ints,
    constants: Ints,
    of_start: Bools,
    begins: Ints,
    values: Ints,
    there: Bools,
    at: Ints,
    work: Ints,
    floats: Floats,
    known: Bools,
    ahead: Ints,
    numbers: Ints,
    starts: Table,
    awaited: Table,
    heads: Ints,
    tails: Ints,
    found: Table,
    changed: Bools,
) -> int:
    """Take turns until all are taken, or there is no room for another start; then it may be called again.

    Args:
        ticks: As `merged_turns` takes them, like the next three.
        places: Likewise.
        stream_begins: Likewise.
        bases: Likewise.
        clocks: int64: what the clock shows before the turns, and at each tick.
        within_dues: int64[clocks]: until when `then` comes for what starts at each clock; empty for any time.
        after_dues: int64[clocks]: when the time is over; empty for none.
        masks: bool: for the start and each event that is awaited, which rows of its stream it may be.
        begun: int64[2]: the stream of the start, and where its masks are for a row 0.
        atoms: The events that are awaited, as the constants from `STREAM` on say.
        needs: 1 where the first of them has to come; all others must not.
        code: As `gpu_ops.devices.cpu.row_programs.evaluate`, like the others up to ``known``.
        bounds: Likewise.
        constants: Likewise.
        of_start: bool[cells]: which cells are of the start; the others are of the event that comes.
        begins: Likewise.
        values: Likewise.
        there: Likewise.
        at: Likewise.
        work: Likewise.
        floats: Likewise.
        known: Likewise.
        ahead: int64[streams]: the next event of each.
        numbers: How many ticks were taken, and how many starts and matches there are, as the constants from `TICK` on
            say.
        starts: The starts, oldest first.
        awaited: Room for what they wait for.
        heads: Room for the first of each chain; a power of two of them.
        tails: Likewise for the last.
        found: int64[4, …]: room for matches, as the constants from `AT_PLACE` on say; one for each start is enough.
        changed: bool[starts]: set for those of which something changes.

    Returns:
        Why it stops: `DONE`; `GROW` where there is no room for a start; `OVERFLOWED`.
    """
    count, streams = len(atoms), len(bases)
    tick, many, made = numbers[TICK], numbers[STARTS], numbers[FOUND_MATCHES]
    late, passed = numbers[LATE], numbers[PASSED_UNTIL]
    has_within, has_after = len(within_dues) > 0, len(after_dues) > 0
    first_stream, first_mask = begun[0], begun[1]
    why = DONE
    while True:
        stream, place = -1, _NEVER
        for each in range(streams):
            head = ahead[each]
            if head < stream_begins[each + 1] and places[head] < place:
                stream, place = each, places[head]
        while tick < len(ticks) and ticks[tick] <= place:
            now = clocks[tick + 1]
            while has_within and late < many:
                if starts[late, STATE] != ENDED and starts[late, FOUND] == MISSING:
                    if starts[late, WITHIN_DUE] > now:
                        break
                    _end(starts, changed, awaited, heads, tails, count, late)
                late += 1
            while has_after and passed < many:
                if starts[passed, STATE] == WAITS:
                    if starts[passed, AFTER_DUE] > now:
                        break
                    starts[passed, STATE], changed[passed] = PASSED, True
                    if starts[passed, FOUND] != MISSING:
                        first, then = starts[passed, ROW], starts[passed, FOUND]
                        found[AT_PLACE, made], found[AT_CLOCK, made] = ticks[tick], now
                        found[FIRST_ROW, made], found[THEN_ROW, made] = first, then
                        made += 1
                        _end(starts, changed, awaited, heads, tails, count, passed)
                passed += 1
            tick += 1
        if stream < 0:
            break
        if many == len(starts):
            why = GROW
            break
        row = ahead[stream] - stream_begins[stream] + bases[stream]
        ahead[stream] += 1
        for atom in range(count):
            if atoms[atom, STREAM] != stream or not masks[atoms[atom, MASK] + row]:
                continue
            key, cell = 0, atoms[atom, MINE]
            if cell >= 0:
                index = begins[cell] + row
                if not there[index]:
                    continue
                key = values[index]
            program, op, left, right = atoms[atom, PROGRAM], atoms[atom, OP], atoms[atom, LEFT], atoms[atom, RIGHT]
            node = heads[chain_of(atom, key, len(heads))]
            while node >= 0:
                following = awaited[node, NEXT]
                if awaited[node, KEY] == key:
                    who = node // count
                    holds = True
                    if op != MUCH:
                        one = begins[left] + (starts[who, ROW] if of_start[left] else row)
                        other = begins[right] + (starts[who, ROW] if of_start[right] else row)
                        if not (there[one] and there[other]):
                            holds = False
                        elif op == IS_EQUAL:
                            holds = values[one] == values[other]
                        else:
                            holds = values[one] < values[other] or (op == IS_AT_MOST and values[one] == values[other])
                    elif program >= 0:
                        for each in range(atoms[atom, FIRST_CELL], atoms[atom, END_CELL]):
                            at[each] = starts[who, ROW] if of_start[each] else row
                        how = evaluate(program, code, bounds, constants, begins, values, there, at, work, floats, known)
                        if how == OVERFLOW:
                            numbers[ERROR] = program
                            return OVERFLOWED
                        holds = how == VALUE and work[0] == 1
                    if holds and atom < needs and starts[who, STATE] == WAITS:
                        starts[who, FOUND], changed[who] = row, True
                        _unlink(awaited, heads, tails, node, atom)
                    elif holds:
                        if atom < needs:
                            found[AT_PLACE, made], found[AT_CLOCK, made] = place, clocks[tick]
                            found[FIRST_ROW, made], found[THEN_ROW, made] = starts[who, ROW], row
                            made += 1
                        _end(starts, changed, awaited, heads, tails, count, who)
                node = following
        if stream == first_stream and masks[first_mask + row]:
            starts[many, ROW] = row
            starts[many, WITHIN_DUE] = within_dues[tick] if has_within else 0
            starts[many, AFTER_DUE] = after_dues[tick] if has_after else 0
            starts[many, FOUND] = MISSING if needs == 1 else NEEDS_NONE
            starts[many, STATE] = WAITS if has_after else PASSED
            _link(starts, awaited, heads, tails, atoms, begins, values, there, many)
            many += 1
    numbers[TICK], numbers[STARTS], numbers[FOUND_MATCHES] = tick, many, made
    numbers[LATE], numbers[PASSED_UNTIL] = late, passed
    return why
