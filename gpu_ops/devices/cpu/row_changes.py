"""Events that change kept rows on the host: one event after the other, over the rows of its key.

A row is a version: its columns stand behind each other in one array of numbers, each column in room of its own, so that
row programs read them as cells. Whatever changes a row takes it out, and makes a version behind all others. Versions of
one key are a list, in the order in which they came. Tables have room for so many versions; where it is used up, the
walk begins anew with twice the room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from gpu_ops.devices.cpu.compiling import INT, INTS, Bools, Ints, called, kernel, output
from gpu_ops.devices.cpu.row_programs import OVERFLOW, VALUE, evaluate

DONE, FULL, OVERFLOWS = range(3)
"""How a walk ends: at the end, where there is no room, or where a whole number does not fit."""

DELETE, UPDATE, INSERT = range(3)
"""What actions do."""

DELETED, NEW, OLD = range(3)
"""What becomes known of a version: it is deleted, made, or replaced by another one."""

NOT_MATCHED, MATCHED, ALWAYS = range(3)
"""For which events a branch is: those that find no row, those that find some (once for each), or all."""

STAYS = np.iinfo(np.int64).max
KEEPS = -1
"""The value of a column that an update leaves as it is."""

_MOMENT = 2


class ChangeRules(NamedTuple):
    """What events do, in int64 arrays.

    Attributes:
        numbers: For each statement its number.
        keys: For each statement the set of keys by which it finds rows.
        passes: For each statement the program that says whether it finds a row; -1 if equal keys say it.
        branches: Where each statement's branches begin, one more than there are statements.
        cells: Where each statement's cells begin, likewise.
        matched: For each branch `NOT_MATCHED`, `MATCHED` or `ALWAYS`.
        holds: For each branch the program of its condition; -1 for none.
        actions: Where each branch's actions begin, one more than there are branches.
        kinds: For each action `DELETE`, `UPDATE` or `INSERT`.
        where: For each action the program of its condition; -1 for none.
        setters: For each action, for each column, the program of its value, or `KEEPS`.
        code: The programs (`gpu_ops.plan.row_programs.ProgramTables`).
        bounds: Likewise.
        constants: Likewise.
        of_rows: For each cell 1 if it is a column of the row, 0 if it is one of the event.
        begins: Where the values of each cell begin, one more than there are cells.
        columns: Where the values of each column begin.
    """

    numbers: Ints
    keys: Ints
    passes: Ints
    branches: Ints
    cells: Ints
    matched: Ints
    holds: Ints
    actions: Ints
    kinds: Ints
    where: Ints
    setters: Ints
    code: Ints
    bounds: Ints
    constants: Ints
    of_rows: Ints
    begins: Ints
    columns: Ints


class ChangingEvents(NamedTuple):
    """Events in their order, in int64 arrays.

    Attributes:
        place: Where each comes.
        clock: What the clock shows then.
        statement: The statement that each triggers, by its index.
        at: The number of each among those of its statement.
        code: The code of the key of each, as its statement finds rows; -1 for none.
        inserts: For each action, for each set of keys, where the codes of the rows that it makes begin, by `at`.
        insert_codes: These codes.
    """

    place: Ints
    clock: Ints
    statement: Ints
    at: Ints
    code: Ints
    inserts: Ints
    insert_codes: Ints


class Versions(NamedTuple):
    """Rows, with room for more of them; the first ones are there before, in the order in which they come.

    Attributes:
        values: The values of all cells of events, then those of each column.
        there: Which of them are not null.
        enter: Where each version comes.
        clock: What the clock shows then.
        by: The event that makes it; -1 for none.
        leave: Where it goes; `STAYS` while it does not.
        out_by: The number of the statement that takes it out; 0 for none.
        code: The code of its key, for each set of keys behind each other.
        log: What becomes known: for each its event, what it is, and the version.
    """

    values: Ints
    there: Bools
    enter: Ints
    clock: Ints
    by: Ints
    leave: Ints
    out_by: Ints
    code: Ints
    log: Ints


class WindowRule(NamedTuple):
    """When rows leave by themselves.

    Attributes:
        most: How many are there at most; 0 for any number.
        span: How long each is there; -1 for ever.
        unique: The set of keys of which there is one row each; -1 for none.
        place: int64: where the clock moves.
        clock: int64: what it shows behind that.
    """

    most: int
    span: int
    unique: int
    place: Ints
    clock: Ints


@called
def _put(row: int, room: int, code: Ints, heads: Ints, tails: Ints, links: Ints, before: Ints, bases: Ints) -> None:
    """Have a version at the end of the lists of its keys."""
    for keys in range(len(bases)):
        at = keys * room + row
        if code[at] >= 0:
            place = bases[keys] + code[at]
            last = tails[place]
            links[at], before[at] = -1, last
            if last < 0:
                heads[place] = row
            else:
                links[keys * room + last] = row
            tails[place] = row


@called
def _take(row: int, room: int, code: Ints, heads: Ints, tails: Ints, links: Ints, before: Ints, bases: Ints) -> None:
    """Have a version out of the lists of its keys."""
    for keys in range(len(bases)):
        at = keys * room + row
        if code[at] >= 0:
            place = bases[keys] + code[at]
            if before[at] < 0:
                heads[place] = links[at]
            else:
                links[keys * room + before[at]] = links[at]
            if links[at] < 0:
                tails[place] = before[at]
            else:
                before[keys * room + links[at]] = before[at]


_NUMBERS = output(numba.types.int64)


def walk_changes(
    rules: ChangeRules,
    events: ChangingEvents,
    versions: Versions,
    count: int,
    sizes: Ints,
    depth: int,
    window: WindowRule,
) -> tuple[int, int, int, int]:
    """Have events change rows.

    Args:
        rules: What they do.
        events: The events.
        versions: The rows that are there, and those that come, with room for more.
        count: How many they are.
        sizes: How many codes each set of keys has. Where rows leave by themselves, or are found without keys, the last
            set has one code, which all rows have.
        depth: How many values a program has on its stack at most.
        window: When rows leave by themselves.

    Returns:
        How it ended, how many versions there are, how much is known of them, and the program that failed.
    """
    arguments: list[Any] = [*rules, *events, *versions, count, sizes, depth, *window]
    ended, made, known, failed = _walk(*arguments).tolist()
    return ended, made, known, failed


@kernel(
    *[INTS] * (len(ChangeRules._fields) + len(ChangingEvents._fields)),
    _NUMBERS, output(numba.types.boolean), *[_NUMBERS] * (len(Versions._fields) - 2),
    INT, INTS, INT, INT, INT, INT, INTS, INTS,
)  # fmt: skip
def _walk(  # noqa: C901, PLR0912, PLR0915  (a step behind the other; parts cannot hand on so many arrays)
    numbers: Ints,
    keys_of: Ints,
    passes: Ints,
    branches: Ints,
    cells_from: Ints,
    matched_of: Ints,
    holds_of: Ints,
    actions: Ints,
    kinds: Ints,
    where: Ints,
    setters: Ints,
    code: Ints,
    bounds: Ints,
    constants: Ints,
    of_rows: Ints,
    begins: Ints,
    columns: Ints,
    places: Ints,
    clocks: Ints,
    statements: Ints,
    ats: Ints,
    codes: Ints,
    inserts: Ints,
    insert_codes: Ints,
    values: Ints,
    there: Bools,
    enter: Ints,
    clock: Ints,
    by: Ints,
    leave: Ints,
    out_by: Ints,
    key: Ints,
    log: Ints,
    count: int,
    sizes: Ints,
    depth: int,
    most: int,
    span: int,
    unique: int,
    tick_places: Ints,
    tick_clocks: Ints,
) -> Any:
    room = len(enter)
    sets = len(sizes)
    bases = np.zeros(sets, np.int64)
    total = 0
    for keys in range(sets):
        bases[keys] = total
        total += sizes[keys]
    heads, tails = np.empty(total, np.int64), np.empty(total, np.int64)
    for at in range(total):
        heads[at] = tails[at] = -1
    links, before = np.empty(sets * room, np.int64), np.empty(sets * room, np.int64)
    every = bases[sets - 1] if sets else 0
    limited = most > 0 or span >= 0 or unique >= 0
    held = 0
    at_cells = np.empty(len(of_rows), np.int64)
    stack, known = np.empty(depth + 1, np.int64), np.empty(depth + 1, np.bool_)
    floats = stack.view(np.float64)
    found = np.empty(room, np.int64)
    width = len(columns)
    waiting, given, tick, logged = 0, count, 0, 0
    for each in range(len(places) + 1):
        is_event = each < len(places)
        place = places[each] if is_event else STAYS
        # What comes before the event, and the moves of the clock between.
        while (waiting < given and enter[waiting] < place) or (tick < len(tick_places) and tick_places[tick] < place):
            comes = waiting < given and (tick == len(tick_places) or enter[waiting] < tick_places[tick])
            if not comes:
                if span >= 0:
                    while heads[every] >= 0 and clock[heads[every]] + span <= tick_clocks[tick]:
                        row = heads[every]
                        leave[row], out_by[row] = tick_places[tick], 0
                        _take(row, room, key, heads, tails, links, before, bases)
                tick += 1
                continue
            if not is_event and not limited:
                waiting = given
                continue
            if unique >= 0:
                row = heads[bases[unique] + key[unique * room + waiting]]
                if row >= 0:
                    leave[row], out_by[row] = enter[waiting], 0
                    _take(row, room, key, heads, tails, links, before, bases)
            _put(waiting, room, key, heads, tails, links, before, bases)
            held += 1
            if most > 0 and held > most:
                row = heads[every]
                leave[row], out_by[row] = enter[waiting], 0
                _take(row, room, key, heads, tails, links, before, bases)
                held -= 1
            waiting += 1
        if not is_event:
            break
        statement, of_statement = statements[each], ats[each]
        first_cell, last_cell = cells_from[statement], cells_from[statement + 1]
        for cell in range(first_cell, last_cell):
            if of_rows[cell] == 0:
                at_cells[cell] = of_statement
        number, keys, some, made = numbers[statement], keys_of[statement], 0, count
        row = heads[bases[keys] + codes[each]] if codes[each] >= 0 else -1
        while row >= 0:
            holds = True
            if passes[statement] >= 0:
                for cell in range(first_cell, last_cell):
                    if of_rows[cell] == 1:
                        at_cells[cell] = row
                program = passes[statement]
                how = evaluate(program, code, bounds, constants, begins, values, there, at_cells, stack, floats, known)
                if how == OVERFLOW:
                    return np.array([OVERFLOWS, count, logged, program])
                holds = how == VALUE and stack[0] == 1
            if holds:
                found[some] = row
                some += 1
            row = links[keys * room + row]
        # One time for each row that it finds, and one for itself.
        for which in range(some + 1):
            row = found[which] if which < some else -1
            for cell in range(first_cell, last_cell):
                if of_rows[cell] == 1:
                    at_cells[cell] = row
            for branch in range(branches[statement], branches[statement + 1]):
                matched = matched_of[branch]
                if (matched == MATCHED) != (row >= 0) or (matched == NOT_MATCHED and some > 0):
                    continue
                program = holds_of[branch]
                if program >= 0:
                    how = evaluate(
                        program, code, bounds, constants, begins, values, there, at_cells, stack, floats, known
                    )
                    if how == OVERFLOW:
                        return np.array([OVERFLOWS, count, logged, program])
                    if how != VALUE or stack[0] != 1:
                        continue
                for action in range(actions[branch], actions[branch + 1]):
                    program = where[action]
                    if program >= 0:
                        how = evaluate(
                            program, code, bounds, constants, begins, values, there, at_cells, stack, floats, known
                        )
                        if how == OVERFLOW:
                            return np.array([OVERFLOWS, count, logged, program])
                        if how != VALUE or stack[0] != 1:
                            continue
                    kind = kinds[action]
                    if kind != INSERT:
                        leave[row], out_by[row] = place + _MOMENT, number
                        _take(row, room, key, heads, tails, links, before, bases)
                        held -= 1
                        log[3 * logged], log[3 * logged + 1] = each, DELETED if kind == DELETE else OLD
                        log[3 * logged + 2] = row
                        logged += 1
                    if kind == DELETE:
                        continue
                    if count == room:
                        return np.array([FULL, count, logged, -1])
                    for column in range(width):
                        to, program = columns[column] + count, setters[action * width + column]
                        if program == KEEPS:
                            values[to], there[to] = values[columns[column] + row], there[columns[column] + row]
                            continue
                        how = evaluate(
                            program, code, bounds, constants, begins, values, there, at_cells, stack, floats, known
                        )
                        if how == OVERFLOW:
                            return np.array([OVERFLOWS, count, logged, program])
                        values[to], there[to] = stack[0] if how == VALUE else 0, how == VALUE
                    for of in range(sets):
                        begin = inserts[action * sets + of]
                        own = key[of * room + row] if kind == UPDATE else insert_codes[begin + of_statement]
                        key[of * room + count] = own
                    enter[count], clock[count], by[count] = place + _MOMENT, clocks[each], each
                    log[3 * logged], log[3 * logged + 1], log[3 * logged + 2] = each, NEW, count
                    logged += 1
                    count += 1
                break
        for row in range(made, count):
            if unique >= 0:
                first = heads[bases[unique] + key[unique * room + row]]
                if first >= 0:
                    leave[first], out_by[first] = place + _MOMENT, number
                    _take(first, room, key, heads, tails, links, before, bases)
            _put(row, room, key, heads, tails, links, before, bases)
            held += 1
            if most > 0 and held > most:
                first = heads[every]
                leave[first], out_by[first] = place + _MOMENT, number
                _take(first, room, key, heads, tails, links, before, bases)
                held -= 1
    return np.array([DONE, count, logged, -1])
