"""Matches of row patterns on the host: the rows of each partition one after the other, with all ways that are open.

A way is a line of a table: the place of its last row, its first row, the last of its steps, where its rows leave their
window, its last row if it is a match, its counts, and what conditions of later rows read of its rows. Steps are a
forest: each has a place, and the step before it. Tables have room for so many lines; where one is full, the computation
begins anew with twice the room.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from gpu_ops.devices.cpu.compiling import INT, INTS, Array, Bools, Ints, inlined, kernel
from gpu_ops.devices.cpu.row_programs import OVERFLOW, VALUE, evaluate
from gpu_ops.devices.cpu.row_streams import PlaceMachine

_AT, _BEGIN, _STEP, _LEAVE, _END, _OVER, _COUNTS = 0, 1, 2, 3, 4, 5, 6
_UNKNOWN = 1 << 62
_FEW_STEPS = 1 << 12
_WHILE_OPEN = 3
_NOTHING = (-1, -1, 0, 0, 0)
"""What a note of each kind is where there is no row."""
_TABLE = numba.types.Array(numba.types.int64, 2, "C")
_LIST = numba.types.Array(numba.types.int64, 1, "C")
_BYTES = numba.types.Array(numba.types.int8, 1, "C")
_FLAGS = numba.types.Array(numba.types.boolean, 1, "C")
_DONE, _FULL_WAYS, _FULL_ENDS, _FULL_STEPS, _FULL_FOUND, _FULL_LABELS, _OVERFLOWS = range(7)

LAST, NTH, SUM, SUM_FLOAT, COUNT, REGISTER = range(6)
"""What a note is: the last row of a variable, its n-th one, a cell's sum over them, their number, a register."""


class Programs(NamedTuple):
    """Conditions that read several rows (`gpu_ops.plan.row_programs`), and the notes of ways that they read.

    Attributes:
        of: For each variable the number of its condition; -1 for none.
        sets: For each variable and each register the number of the program that changes it; -1 for none.
        initial: What each register is before the first row. Registers are the first notes.
        code: The programs' instructions.
        bounds: Where each begins.
        constants: Their constants.
        begins: Where the values of each cell begin.
        values: The values of all cells.
        there: Which of them are not null.
        notes: For each cell the note that names its row, or is its value; -1 for the row that comes.
        variable: For each note its variable.
        kind: `LAST`, `NTH`, `SUM`, `SUM_FLOAT`, `COUNT` or `REGISTER`.
        which: Which row, or the cell.
        depth: How many values a program has on its stack at most.
    """

    of: Ints
    sets: Ints
    initial: Ints
    code: Ints
    bounds: Ints
    constants: Ints
    begins: Ints
    values: Ints
    there: Bools
    notes: Ints
    variable: Ints
    kind: Ints
    which: Ints
    depth: int


class FoundMatches(NamedTuple):
    """Matches, in the order in which they are delivered in each partition.

    Attributes:
        begin: int64: the first row of each.
        end: int64: its last row.
        at: int64: the place at which it is delivered.
        upto: int64: where the labels of each match end.
        labels: int8: the variable of each row of each match.
        rows: int64: these rows.
        opened: int64: for each partition the first row of its oldest open way; where it ends if it has none.
        registers: int64[matches, 2 registers]: the bits of each register, and whether it is not null.
        failed: The row at which there were too many ways, or at which a number did not fit; -1 for none.
        overflow: The program whose number did not fit; -1 for none.
    """

    begin: Ints
    end: Ints
    at: Ints
    upto: Ints
    labels: Array
    rows: Ints
    opened: Ints
    registers: Any
    failed: int = -1
    overflow: int = -1


def row_matches(
    begins: Ints,
    place: Ints,
    mask: Ints,
    leave: Ints,
    due: Ints,
    machine: PlaceMachine,
    programs: Programs | None,
    skip: int,
    every: bool,  # noqa: FBT001
    held: int,
    keep: int,
    most: int,
) -> FoundMatches:
    """Matches of a row pattern, partition by partition.

    Examples:
        >>> some, none = np.array([0, 4]), np.full(4, 1 << 62)  # one partition; nothing leaves, nothing falls due
        >>> pattern = [np.array(each) for each in ([0, 1], [0], [0, 1, 2], [1, 1], [0, 1], [-1, 0], [1])]  # A B+
        >>> masks = np.array([1, 2, 2, 1])
        >>> found = row_matches(
        ...     some, np.arange(4), masks, none, none, PlaceMachine(*pattern), None, 0, False, 0, 1, 100
        ... )
        >>> found.begin, found.end, found.at, found.labels.tolist()
        (array([0]), array([1]), array([1]), [0, 1])
    """
    rows = place.size
    if programs is None:
        none = np.zeros(0, np.int64)
        programs = Programs(
            np.full(64, -1), none, none, none, np.zeros(1, np.int64), none, np.zeros(1, np.int64), none,
            np.zeros(0, np.bool_), none, none, none, none, 0,
        )  # fmt: skip
    # Where sums of rows are put for their programs.
    values, there = programs.values.copy(), programs.there.copy()
    width = _COUNTS + machine.sign.size + 2 * programs.kind.size
    room = {
        _FULL_WAYS: max(64, machine.variable.size),
        _FULL_ENDS: 64,
        _FULL_STEPS: 256 + 2 * rows,
        _FULL_FOUND: 64 + rows,
        _FULL_LABELS: 64 + rows,
    }
    work, stack, known = np.full(3, -1), np.zeros(programs.depth + 1, np.int64), np.zeros(programs.depth + 1, np.bool_)
    at = np.zeros(programs.notes.size, np.int64)
    while True:
        ways = np.empty((2 * room[_FULL_WAYS], width), np.int64)
        steps = np.empty((room[_FULL_STEPS], 3), np.int64)
        found = np.empty((room[_FULL_FOUND], 3 + 2 * programs.initial.size), np.int64)
        labels = np.empty(room[_FULL_LABELS], np.int8)
        opened = begins[1:].copy()
        ends, ready = (np.empty((room[_FULL_ENDS], width), np.int64) for _ in range(2))
        status = _matches(
            begins, place, mask, leave, due, *machine, ways, ends, ready, steps, found, labels, opened, work,
            skip, int(every), held, keep,
            programs.of, programs.sets, programs.initial, programs.code, programs.bounds, programs.constants,
            programs.begins, values, there,
            programs.notes, programs.variable, programs.kind, programs.which, stack, known, at,
        )  # fmt: skip
        if status == _DONE:
            break
        if status == _OVERFLOWS or (status == _FULL_WAYS and room[_FULL_WAYS] > most):
            none = np.zeros(0, np.int64)
            return FoundMatches(
                none,
                none,
                none,
                none,
                labels[:0],
                none,
                opened,
                found[:0, 3:],
                int(work[0]),
                int(work[2]) if status == _OVERFLOWS else -1,
            )
        room[status] *= 2
    founds, labelled = work[:2]
    begin, end, place = (np.ascontiguousarray(found[:founds, at]) for at in range(3))
    # Rows of a match stand one behind the other.
    size = end - begin + 1
    upto = np.cumsum(size)
    member = np.arange(labelled) + np.repeat(end + 1 - upto, size)
    return FoundMatches(begin, end, place, upto, labels[:labelled], member, opened, found[:founds, 3:])


@kernel(
    *[INTS] * 12, *[_TABLE] * 5, _BYTES, *[_LIST] * 2, *[INT] * 4,
    *[INTS] * 7, _LIST, _FLAGS, *[INTS] * 4, _LIST, _FLAGS, _LIST,
)  # fmt: skip
def _matches(  # noqa: C901, PLR0912, PLR0915  (one loop over the rows)
    begins: Ints,
    place: Ints,
    mask: Ints,
    leave: Ints,
    due: Ints,
    variable: Ints,
    first: Ints,
    bounds: Ints,
    following: Ints,
    last: Ints,
    counted: Ints,
    sign: Ints,
    ways: Any,
    ends: Any,
    ready: Any,
    steps: Any,
    found: Any,
    labels: Array,
    opened: Ints,
    work: Ints,
    skip: int,
    every: int,
    held: int,
    keep: int,
    of: Ints,
    sets: Ints,
    initial: Ints,
    code: Ints,
    code_bounds: Ints,
    constants: Ints,
    cell_begins: Ints,
    values: Ints,
    there: Bools,
    notes: Ints,
    note_variable: Ints,
    note_kind: Ints,
    note_which: Ints,
    stack: Ints,
    known: Bools,
    at_rows: Ints,
) -> int:
    """Fill the tables; work has how many matches and labels there are, or the row at which a table is full."""
    floats = stack.view(np.float64)
    width, room = ways.shape[1], ways.shape[0] >> 1
    noted = _COUNTS + sign.size
    founds = labelled = 0
    for group in range(begins.size - 1):
        base, open_ways, open_ends, step, few = 0, 0, 0, 0, _FEW_STEPS
        next_due = _UNKNOWN
        row, stop = begins[group], begins[group + 1]
        while row < stop or next_due < _UNKNOWN:
            here = place[row] if row < stop else _UNKNOWN
            is_tick = next_due <= here
            now = next_due if is_tick else here
            open_ways = _staying(ways, base, open_ways, now)
            open_ends = _staying(ends, 0, open_ends, now)
            while not is_tick and row < stop and place[row] == here:
                work[0] = row
                if not open_ways and not open_ends:
                    step = 0
                elif step > few:
                    step = _compacted(steps, step, ways, base, open_ways, ends, open_ends)
                    few = max(_FEW_STEPS, 2 * step)
                other, freshened = room - base, 0
                for way in range(open_ways + 1):
                    starts, line = way == open_ways, base + way
                    if starts and skip == _WHILE_OPEN and freshened:
                        continue
                    if not starts and held and due[ways[line, _BEGIN]] <= now:
                        continue
                    low = 0 if starts else bounds[ways[line, _AT]]
                    high = first.size if starts else bounds[ways[line, _AT] + 1]
                    for option in range(low, high):
                        to = first[option] if starts else following[option]
                        holds = (mask[row] >> variable[to]) & 1
                        if holds and of[variable[to]] >= 0:
                            _read(
                                ways, -1 if starts else line, noted, row, initial, notes, note_kind, cell_begins,
                                values, there, at_rows,
                            )  # fmt: skip
                            how = evaluate(
                                of[variable[to]], code, code_bounds, constants, cell_begins, values, there, at_rows,
                                stack, floats, known,
                            )  # fmt: skip
                            if how == OVERFLOW:
                                work[2] = of[variable[to]]
                                return _OVERFLOWS
                            holds = how == VALUE and stack[0] == 1
                        if not holds:
                            if held == 2 and not starts:
                                _give_out(ends, open_ends, ways[line, _BEGIN], ways[line, _STEP], steps)
                            continue
                        if freshened == room:
                            return _FULL_WAYS
                        if open_ends == ends.shape[0]:
                            return _FULL_ENDS
                        if step == steps.shape[0]:
                            return _FULL_STEPS
                        # The line behind the last one is written in any case, and kept only if it is a new way.
                        made = other + freshened
                        before = -1
                        if starts:
                            ways[made, _BEGIN], ways[made, _LEAVE] = row, leave[row]
                            for at in range(_COUNTS, noted):
                                ways[made, at] = 0
                            for note in range(note_kind.size):
                                is_register = note < initial.size
                                ways[made, noted + 2 * note] = (
                                    initial[note] if is_register else _NOTHING[note_kind[note]]
                                )
                                ways[made, noted + 2 * note + 1] = is_register
                        else:
                            before = ways[line, _STEP]
                            ways[made, _BEGIN], ways[made, _LEAVE] = (
                                ways[line, _BEGIN],
                                min(ways[line, _LEAVE], leave[row]),
                            )
                            for at in range(_COUNTS, width):
                                ways[made, at] = ways[line, at]
                        ways[made, _AT], ways[made, _STEP], ways[made, _END], ways[made, _OVER] = to, step, row, 0
                        if counted[to] >= 0:
                            ways[made, _COUNTS + counted[to]] += sign[counted[to]]
                        for note in range(note_kind.size):
                            if note_variable[note] == variable[to]:
                                how = _note(
                                    ways,
                                    made,
                                    noted + 2 * note,
                                    note_kind[note],
                                    note_which[note],
                                    row,
                                    cell_begins,
                                    values,
                                    there,
                                )
                                if how == OVERFLOW:
                                    return _OVERFLOWS
                        if initial.size:
                            _read(
                                ways, -1 if starts else line, noted, row, initial, notes, note_kind, cell_begins,
                                values, there, at_rows,
                            )  # fmt: skip
                        for register in range(initial.size):
                            program = sets[variable[to] * initial.size + register]
                            if program < 0:
                                continue
                            how = evaluate(
                                program, code, code_bounds, constants, cell_begins, values, there, at_rows, stack,
                                floats, known,
                            )  # fmt: skip
                            if how == OVERFLOW:
                                work[2] = program
                                return _OVERFLOWS
                            # Null is 0 throughout, so that ways can be compared.
                            ways[made, noted + 2 * register] = stack[0] if how == VALUE else 0
                            ways[made, noted + 2 * register + 1] = how == VALUE
                        goes_on = bounds[to] < bounds[to + 1]
                        where = _place_for(ways, other, made, keep, noted) if goes_on else made
                        if where < 0:
                            continue
                        steps[step, 0], steps[step, 1] = to, before
                        step += 1
                        if last[to]:
                            _copy(ways, made, ends, open_ends)
                            open_ends += 1
                            if held:
                                next_due = min(next_due, due[ways[made, _BEGIN]])
                            if held == 2 and not goes_on:
                                _give_out(ends, open_ends, ways[made, _BEGIN], ways[made, _STEP], steps)
                        if where < made:
                            _copy(ways, made, ways, where)
                        elif goes_on:
                            freshened += 1
                base, open_ways = other, freshened
                row += 1
            readied = left = 0
            for at in range(open_ends):
                given = due[ends[at, _BEGIN]] <= now if is_tick else held == 0 or ends[at, _OVER] == 1
                if given:
                    _copy(ends, at, ready, readied)
                    readied += 1
                else:
                    _copy(ends, at, ends, left)
                    left += 1
            open_ends = left
            _sort(ready, readied)
            upto, before, at = -1, -1, 0
            while at < readied:
                best = at
                at += 1
                while not every and at < readied and ready[at, _BEGIN] == ready[best, _BEGIN]:
                    best = at if _is_better(ready, at, best, noted) else best
                    at += 1
                begin, end = ready[best, _BEGIN], ready[best, _END]
                if skip == 0 and begin <= upto and begin != before:
                    continue
                upto, before = max(upto, end if skip == 0 else begin), begin
                if founds == found.shape[0]:
                    return _FULL_FOUND
                if labelled + end - begin + 1 > labels.size:
                    return _FULL_LABELS
                found[founds, 0], found[founds, 1], found[founds, 2] = begin, end, now
                for column in range(2 * initial.size):
                    found[founds, 3 + column] = ready[best, noted + column]
                founds += 1
                labelled += end - begin + 1
                node = ready[best, _STEP]
                for back in range(end - begin + 1):
                    labels[labelled - 1 - back] = variable[steps[node, 0]]
                    node = steps[node, 1]
            if readied and skip < 2 and (is_tick or held == 0):
                open_ways = _after(ways, base, open_ways, upto)
                open_ends = _after(ends, 0, open_ends, upto)
            if held and (is_tick or readied):
                next_due = _UNKNOWN
                for at in range(open_ends):
                    next_due = min(next_due, due[ends[at, _BEGIN]])
        for at in range(base, base + open_ways):
            begin = ways[at, _BEGIN]
            if ways[at, _LEAVE] == _UNKNOWN and (not held or due[begin] == _UNKNOWN):
                opened[group] = min(opened[group], begin)
        for at in range(open_ends):
            if ends[at, _LEAVE] == _UNKNOWN:
                opened[group] = min(opened[group], ends[at, _BEGIN])
    work[0], work[1] = founds, labelled
    return _DONE


@inlined
def _copy(source: Any, one: int, target: Any, other: int) -> None:
    for at in range(source.shape[1]):
        target[other, at] = source[one, at]


@inlined
def _staying(table: Any, base: int, lines: int, now: int) -> int:
    """Leave out the lines of which rows have left their window."""
    left = base
    for line in range(base, base + lines):
        if table[line, _LEAVE] > now:
            _copy(table, line, table, left)
            left += 1
    return left - base


@inlined
def _after(table: Any, base: int, lines: int, upto: int) -> int:
    """Leave out the lines that begin at a row or before it."""
    left = base
    for line in range(base, base + lines):
        if table[line, _BEGIN] > upto:
            _copy(table, line, table, left)
            left += 1
    return left - base


@inlined
def _is_better(table: Any, one: int, other: int, noted: int) -> bool:
    """Whether a match is better than another one with the same first row, which was found before."""
    for at in range(_COUNTS, noted):
        if table[one, at] != table[other, at]:
            return bool(table[one, at] > table[other, at])
    return bool(table[one, _END] > table[other, _END])


@inlined
def _place_for(ways: Any, low: int, made: int, keep: int, noted: int) -> int:
    """The line for a way: its own, or that of a worse way, which can only end as this one; -1 if it is the worse."""
    found = made
    if keep:
        for back in range(made - low):
            line = made - 1 - back
            if ways[line, _BEGIN] != ways[made, _BEGIN]:
                break
            same = ways[line, _AT] == ways[made, _AT]
            for at in range(noted, ways.shape[1]):
                same = same and ways[line, at] == ways[made, at]
            if same:
                found = -1
                for at in range(_COUNTS, noted):
                    if ways[made, at] != ways[line, at]:
                        found = line if ways[made, at] > ways[line, at] else -1
                        break
                break
    return found


@inlined
def _read(
    ways: Any,
    line: int,
    noted: int,
    row: int,
    initial: Ints,
    notes: Ints,
    kinds: Ints,
    begins: Ints,
    values: Ints,
    there: Bools,
    at_rows: Ints,
) -> None:
    """Say where the cells of programs are, of a row and the notes of a way; -1 for a way that begins."""
    for cell in range(notes.size):
        note = notes[cell]
        column = noted + 2 * note
        if note < 0:
            at_rows[cell] = row
        elif kinds[note] <= NTH:
            at_rows[cell] = -1 if line < 0 else ways[line, column]
        else:
            # The value of no row stands behind those of the rows.
            index = begins[cell + 1] - 1
            at_rows[cell] = -1
            first = initial[note] if note < initial.size else 0
            values[index] = first if line < 0 else ways[line, column]
            counted = kinds[note] == COUNT or (line < 0 and note < initial.size)
            there[index] = counted or (line >= 0 and ways[line, column + 1] > 0)


@inlined
def _note(
    ways: Any, way: int, column: int, kind: int, which: int, row: int, begins: Ints, values: Ints, there: Bools
) -> int:
    """Note a row of a variable."""
    how = VALUE
    if kind == LAST:
        ways[way, column] = row
    elif kind == NTH:
        ways[way, column] = row if ways[way, column + 1] == which else ways[way, column]
        ways[way, column + 1] += 1
    elif kind == COUNT:
        ways[way, column] += 1
    elif there[begins[which] + row]:
        value, before = values[begins[which] + row], ways[way, column]
        ways[way, column + 1] = 1
        if kind == SUM_FLOAT:
            both = np.empty(2, np.int64)
            floats = both.view(np.float64)
            both[0], both[1] = before, value
            floats[0] += floats[1]
            ways[way, column] = both[0]
        elif (before > 0 and value > _UNKNOWN - before) or (before < 0 and value < -_UNKNOWN - before):
            how = OVERFLOW
        else:
            ways[way, column] = before + value
    return how


@inlined
def _give_out(ends: Any, lines: int, begin: int, step: int, steps: Any) -> None:
    """Mark the matches that are made of the first steps of a way, which does not go on."""
    for line in range(lines):
        if ends[line, _BEGIN] == begin and not ends[line, _OVER]:
            node = step
            while node > ends[line, _STEP]:
                node = steps[node, 1]
            if node == ends[line, _STEP]:
                ends[line, _OVER] = 1


@inlined
def _sort(table: Any, lines: int) -> None:
    """Put lines in order of their first rows, those of one row in the order in which they stand: a heap, if need be."""
    ascends = True
    for line in range(1, lines):
        ascends = ascends and table[line - 1, _BEGIN] <= table[line, _BEGIN]
    if ascends:
        return
    for line in range(lines):
        table[line, _OVER] = line
    begin, size = lines >> 1, lines
    while size > 1:
        if begin:
            begin -= 1
        else:
            size -= 1
            _swap(table, 0, size)
        at = begin
        while 2 * at + 1 < size:
            below = 2 * at + 1
            if below + 1 < size and _is_later(table, below + 1, below):
                below += 1
            if not _is_later(table, below, at):
                break
            _swap(table, at, below)
            at = below


@inlined
def _is_later(table: Any, one: int, other: int) -> bool:
    if table[one, _BEGIN] != table[other, _BEGIN]:
        return bool(table[one, _BEGIN] > table[other, _BEGIN])
    return bool(table[one, _OVER] > table[other, _OVER])


@inlined
def _swap(table: Any, one: int, other: int) -> None:
    for at in range(table.shape[1]):
        kept = table[one, at]
        table[one, at] = table[other, at]
        table[other, at] = kept


@inlined
def _compacted(steps: Any, step: int, ways: Any, base: int, open_ways: int, ends: Any, open_ends: int) -> int:
    """Leave out the steps that no way has; how many are left."""
    for node in range(step):
        steps[node, 2] = 0
    for way in range(open_ways + open_ends):
        node = ways[base + way, _STEP] if way < open_ways else ends[way - open_ways, _STEP]
        while node >= 0 and not steps[node, 2]:
            steps[node, 2] = 1
            node = steps[node, 1]
    left = 0
    for node in range(step):
        if steps[node, 2]:
            before = steps[node, 1]
            steps[node, 2] = left
            steps[left, 0], steps[left, 1] = steps[node, 0], steps[before, 2] if before >= 0 else -1
            left += 1
    for way in range(open_ways):
        ways[base + way, _STEP] = steps[ways[base + way, _STEP], 2]
    for end in range(open_ends):
        ends[end, _STEP] = steps[ends[end, _STEP], 2]
    return left
