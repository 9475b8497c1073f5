"""The machine of event patterns: nodes of a tree start, are told of events and due times, turn true or false, and end.

The tree of a pattern (`gpu_ops.plan.patterns`) is static. A node that has started is an instance, a row of a table; the
tags that are set so far are a list of entries, each with the one before it, so that lists share what they have in
common. Nothing here recurs: what is to be done next is a stack of operations, so the machine stops between any two of
them where its tables have to grow.

Tables are int64 arrays with a row for each thing; the names of their columns are the constants below.
"""

from __future__ import annotations

from typing import Any

import numba
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
from gpu_ops.devices.cpu.row_programs import OVERFLOW, VALUE, evaluate

Table = Any
"""int64[rows, columns]."""

TABLE, OWN = INT_TABLE, numba.types.Array(INT, 2, "C")

# Kinds of nodes
ATOM, EVERY, DISTINCT, FOLLOWED, BOTH, EITHER, NOT, UNTIL, WITHIN, WITHIN_MAX, WHILE, TIMER = range(12)

# Columns of nodes. ARGUMENT and OTHER: of an atom its number; of `every-distinct` the first program of its keys and
# how many there are; of a repeat the programs of its bounds; of guards and observers the timer and the program.
KIND, UP, INDEX, CHILD, SIBLING, CHILDREN, ARGUMENT, OTHER, LIMIT, EXPIRY, NODE_COLUMNS = range(11)

# Columns of atoms. PLAIN: 1 where it has no condition.
AT_NODE, STREAM, TAG, MINE, THEIRS, REST, LEVEL, PLAIN, ATOM_COLUMNS = range(9)

# Columns of timers. HOW: one of those below; PROGRAM: the first of its programs, of which there are TIMES. Of a
# schedule the first time (or `NEVER`), the distance, and how many times there are (or `NEVER`).
HOW, PROGRAM, FIRST_TIME, DISTANCE, TIMES, TIMER_COLUMNS = range(6)
BY_TABLE, BY_PROGRAM, BY_QUESTION, BY_SCHEDULE = range(4)

# Columns of instances
NODE, SEQUENCE, PARENT, BEGIN, FIRST, LAST, NEXT, BEFORE, P, Q, R, S, SEEN, INSTANCE_COLUMNS = range(14)
# P, Q, R, S: of an atom its key, the next and the one before it in its chain, and whether it is in one; of `every` the
# child that is starting, and whether that turned true; of `and` the first and the last entry of what its children
# found, and which of them found something; of a repeat how often it was true, its lists, and its bounds; of a guard how
# often it let something pass, and how often it may; of an observer when it started.

# Columns of entries, and their kinds: a tag's row, a tag's list of rows, an element of one, what a child of `and`
# found, a key of `every-distinct` with the time when it is forgotten
WHAT, A, B, LINK, ENTRY_COLUMNS = range(5)
ROW, ROWS, ELEMENT, FOUND, KEY = range(5)

# Columns of due times: a heap by the first two
DUE, ORDER, WHO, WHO_SEQUENCE, DUE_COLUMNS = range(5)

# Columns of operations, and what they are
DO, OF, OF_SEQUENCE, MATCH, FROM, FROM_INSTANCE, FROM_SEQUENCE, ENDED, KEYS, OPERATION_COLUMNS = range(10)
START, TRUE, FALSE, STARTED, COMBINE = range(5)

# Numbers that the machine keeps
TURN, PHASE, COUNTER, ENTRIES, FREE, INSTANCES, DUES, STACK, OUTPUT, BEGUN, LISTED, LIST_PLACE, OUTPUT_BEFORE = range(
    13
)
ERROR, ASKED, ATOMS_ACTIVE, ANSWER, ANSWERED, ROOM, BEFORE_TOLD, KEYS_KNOWN, NUMBERS = range(13, 22)

# Columns of what is known of keys of `every-distinct`, in the rows of their entries: the hash, the one before it in its
# chain of hashes, how many keys are before it, and one of those, so that any of them is a few steps away
HASH, ALIKE, DEPTH, JUMP, KNOWN_COLUMNS = range(5)

# Phases of a turn
ARRIVES, DUE_TIMES, TOLD, ENDS, DISCARDS = range(5)

# Why the machine stops
DONE, GROW, OVERFLOWED, ASKS = range(4)

NEVER = (1 << 63) - 1
_PLAIN_LAST = 1 << 62
_LONGEST = 10_000 * 366 * 86_400_000


@called
def _row_of(entries: Table, match: int, tag: int, index: int) -> int:
    """The row of a tag, or of an element of its list; -1 for none."""
    while match >= 0:
        if entries[match, A] == tag:
            if entries[match, WHAT] == ROW:
                return entries[match, B] if index < 0 else -1
            element = entries[match, B]
            while element >= 0 and entries[element, A] != index:
                element = entries[element, LINK]
            return entries[element, B] if element >= 0 else -1
        match = entries[match, LINK]
    return -1


@called
def _entry_of(entries: Table, match: int, tag: int, until: int) -> int:
    """The entry of a tag that was set since another state; -1 for none."""
    while match >= 0 and match != until:
        if entries[match, A] == tag:
            return match
        match = entries[match, LINK]
    return -1


@called
def _value(program: int, match: int, row: int, entries: Table, programs: tuple[Any, ...]) -> int:
    """Evaluate a program for the row that comes and the tags of a match; a number that does not fit is noted."""
    numbers, code, bounds, constants, cell_slots, begins, values, there, at, stack, floats, known = programs
    for place in range(bounds[program], bounds[program + 1], 2):
        if code[place] == 0:
            cell = code[place + 1]
            tag = cell_slots[cell, 0]
            at[cell] = row if tag < 0 else _row_of(entries, match, tag, cell_slots[cell, 1])
    how = evaluate(program, code, bounds, constants, begins, values, there, at, stack, floats, known)
    if how == OVERFLOW:
        numbers[ERROR] = program + 1
    return how


@called
def chain_of(atom: int, key: int, chains: int) -> int:
    """The chain of what waits for an event of an atom with a key."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(atom) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed & np.uint64(chains - 1))  # type: ignore[return-value]


@called
def _hash_keys(first: int, many: int, match: int, owner: int, mine: Table, entries: Table, programs: Any) -> Any:
    """A number for the keys of a match of one instance of `every-distinct`; ``mine`` has their values then."""
    mixed = np.uint64(owner) * np.uint64(0x9E3779B97F4A7C15)
    for key in range(many):
        how = _value(first + key, match, -1, entries, programs)
        value = programs[9][0] if how == VALUE else 0
        mine[0, key], mine[1, key] = how, value
        mixed = (mixed ^ np.uint64(value) ^ (np.uint64(how) << np.uint64(56))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed & np.uint64(NEVER))


@called
def _is_before(entry: int, last: int, entries: Table, known: Table) -> bool:
    """Whether a key is the last one of some, or before it."""
    depth = known[entry, DEPTH]
    while known[last, DEPTH] > depth:
        further = known[last, JUMP]
        last = further if known[further, DEPTH] >= depth else entries[last, LINK]
    return entry == last


@called
def _enchain_key(entry: int, known: Table, heads: Ints) -> None:
    """Put a key before the others of its chain."""
    chain = known[entry, HASH] & (len(heads) - 1)
    known[entry, ALIKE], heads[chain] = heads[chain], entry


@called
def _know_key(entry: int, hashed: int, entries: Table, known: Table, heads: Ints) -> None:
    """Note a key: those before it are known."""
    before = entries[entry, LINK]
    known[entry, HASH] = hashed
    _enchain_key(entry, known, heads)
    if before < 0:
        known[entry, DEPTH], known[entry, JUMP] = 0, entry
        return
    jump = known[before, JUMP]
    # As far as the two before it together, where these are equally far.
    evenly = known[before, DEPTH] - known[jump, DEPTH] == known[jump, DEPTH] - known[known[jump, JUMP], DEPTH]
    known[entry, DEPTH], known[entry, JUMP] = known[before, DEPTH] + 1, known[jump, JUMP] if evenly else before


State = tuple[Any, ...]
"""(operations, numbers, instances, nodes, heads, tails)."""


@called
def _push(
    state: State,
    do: int,
    of: int,
    of_sequence: int,
    match: int,
    from_node: int,
    from_instance: int,
    from_sequence: int,
    ended: int,
    keys: int,
) -> None:
    stack, numbers = state[0], state[1]
    top = numbers[STACK]
    stack[top, DO], stack[top, OF], stack[top, OF_SEQUENCE], stack[top, MATCH] = do, of, of_sequence, match
    stack[top, FROM], stack[top, FROM_INSTANCE], stack[top, FROM_SEQUENCE] = from_node, from_instance, from_sequence
    stack[top, ENDED], stack[top, KEYS] = ended, keys
    numbers[STACK] = top + 1


@called
def _start(state: State, node: int, parent: int, match: int, keys: int) -> None:
    """Have a node start below an instance."""
    sequence = state[2][parent, SEQUENCE] if parent >= 0 else 0
    _push(state, START, parent, sequence, match, node, -1, 0, 0, keys)


@called
def _enchain(instances: Table, nodes: Table, heads: Ints, tails: Ints, who: int) -> None:
    """Put an atom's instance behind the others of its chain."""
    chain = chain_of(nodes[instances[who, NODE], ARGUMENT], instances[who, P], len(heads))
    last = tails[chain]
    instances[who, Q], instances[who, R], instances[who, S] = -1, last, 1
    if last >= 0:
        instances[last, Q] = who
    else:
        heads[chain] = who
    tails[chain] = who


@called
def _enchain_all(instances: Table, order: Ints, nodes: Table, heads: Ints, tails: Ints) -> None:
    for chain in range(len(heads)):
        heads[chain] = tails[chain] = -1
    for place in range(len(order)):
        who = order[place]
        if instances[who, SEQUENCE] > 0 and nodes[instances[who, NODE], KIND] == ATOM and instances[who, S] == 1:
            _enchain(instances, nodes, heads, tails, who)


@called
def _release(instances: Table, numbers: Ints, nodes: Table, heads: Ints, tails: Ints, who: int) -> None:
    if nodes[instances[who, NODE], KIND] == ATOM:
        numbers[ATOMS_ACTIVE] -= 1
        if instances[who, S] == 1:
            chain = chain_of(nodes[instances[who, NODE], ARGUMENT], instances[who, P], len(heads))
            following, before = instances[who, Q], instances[who, R]
            if before >= 0:
                instances[before, Q] = following
            else:
                heads[chain] = following
            if following >= 0:
                instances[following, R] = before
            else:
                tails[chain] = before
    instances[who, SEQUENCE] = 0
    instances[who, NEXT] = numbers[FREE]
    numbers[FREE] = who


@called
def _end(state: State, who: int) -> None:
    """End an instance, with all below it."""
    _, numbers, instances, nodes, heads, tails = state
    parent, following, before = instances[who, PARENT], instances[who, NEXT], instances[who, BEFORE]
    if parent >= 0:
        if before >= 0:
            instances[before, NEXT] = following
        else:
            instances[parent, FIRST] = following
        if following >= 0:
            instances[following, BEFORE] = before
        else:
            instances[parent, LAST] = before
    at = who
    while True:
        while instances[at, FIRST] >= 0:
            at = instances[at, FIRST]
        above, beside = instances[at, PARENT], instances[at, NEXT]
        _release(instances, numbers, nodes, heads, tails, at)
        if at == who:
            return
        instances[above, FIRST] = beside
        at = beside if beside >= 0 else above


@called
def _tell(state: State, do: int, who: int, match: int, ended: int) -> None:
    """Have an instance tell its parent that it turned true or false; it ends where it says so, or is false."""
    instances = state[2]
    parent, node = instances[who, PARENT], instances[who, NODE]
    sequence, keys = instances[who, SEQUENCE], instances[who, SEEN]
    of = instances[parent, SEQUENCE] if parent >= 0 else 0
    if ended == 1:
        _end(state, who)
    _push(state, do, parent, of, match, node, -1 if ended == 1 else who, sequence, ended, keys)


@called
def _schedule(dues: Table, numbers: Ints, instances: Table, who: int, due: int) -> None:
    """Note a due time."""
    at = numbers[DUES]
    numbers[DUES] += 1
    numbers[COUNTER] += 1
    order = numbers[COUNTER]
    while at > 0:
        above = (at - 1) // 2
        if dues[above, DUE] <= due:
            break
        for column in range(DUE_COLUMNS):
            dues[at, column] = dues[above, column]
        at = above
    dues[at, DUE], dues[at, ORDER], dues[at, WHO], dues[at, WHO_SEQUENCE] = due, order, who, instances[who, SEQUENCE]


@called
def _drop_first(dues: Table, numbers: Ints) -> None:
    """Forget the earliest due time."""
    count = numbers[DUES] - 1
    numbers[DUES] = count
    due, order = dues[count, DUE], dues[count, ORDER]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            dues[other, DUE] < dues[below, DUE]
            or (dues[other, DUE] == dues[below, DUE] and dues[other, ORDER] < dues[below, ORDER])
        ):
            below = other
        if due < dues[below, DUE] or (due == dues[below, DUE] and order < dues[below, ORDER]):
            break
        for column in range(DUE_COLUMNS):
            dues[at, column] = dues[below, column]
        at = below
    for column in range(DUE_COLUMNS):
        dues[at, column] = dues[count, column]


@called
def _entry(entries: Table, numbers: Ints, what: int, a: int, b: int, link: int) -> Any:
    at = numbers[ENTRIES]
    numbers[ENTRIES] = at + 1
    entries[at, WHAT], entries[at, A], entries[at, B], entries[at, LINK] = what, a, b, link
    return at


@called
def _next_time(timers: Table, timer: int, started: int, now: int) -> int:
    """The next time of a schedule."""
    first, distance = timers[timer, FIRST_TIME], timers[timer, DISTANCE]
    if first == NEVER:
        first = started + distance
    passed = 0
    if first <= now:
        passed = (now - first) // distance + 1 if distance > 0 else NEVER
    if passed >= timers[timer, TIMES]:
        return NEVER
    return int(first + passed * distance)


@called
def _holds_any(entries: Table, match: int, rows: Table, count: int, tag_streams: Ints) -> bool:
    """Whether a match has one of some rows, which are (stream, row)."""
    while match >= 0:
        stream = tag_streams[entries[match, A]]
        element = entries[match, B] if entries[match, WHAT] == ROWS else match
        while element >= 0:
            for at in range(count):
                if rows[at, 0] == stream and rows[at, 1] == entries[element, B]:
                    return True
            if entries[match, WHAT] == ROW:
                break
            element = entries[element, LINK]
        match = entries[match, LINK]
    return False


@called
def _rows_of(entries: Table, match: int, rows: Table, count: int, tag_streams: Ints) -> int:
    """Write the rows of a match behind some others, as far as there is room; gives how many there are then."""
    while match >= 0:
        stream = tag_streams[entries[match, A]]
        element = entries[match, B] if entries[match, WHAT] == ROWS else match
        while element >= 0:
            if count < len(rows):
                rows[count, 0], rows[count, 1] = stream, entries[element, B]
            count += 1
            if entries[match, WHAT] == ROW:
                break
            element = entries[element, LINK]
        match = entries[match, LINK]
    return count


@called
def _sort(rows: Table, count: int, by: int) -> None:
    """Sort the first rows of a table by one of its columns, whose values differ."""
    ascends = True
    for at in range(1, count):
        ascends = ascends and rows[at - 1, by] < rows[at, by]
    if ascends:
        return
    # A heap of the greatest, then one after the other to the end.
    for step in range(count // 2 - 1, -count, -1):
        size, at = (count, step) if step >= 0 else (count + step, 0)
        if step < 0:
            for column in range(3):
                rows[0, column], rows[size, column] = rows[size, column], rows[0, column]
        while 2 * at + 1 < size:
            below = 2 * at + 1
            if below + 1 < size and rows[below + 1, by] > rows[below, by]:
                below += 1
            if rows[at, by] >= rows[below, by]:
                break
            for column in range(3):
                rows[at, column], rows[below, column] = rows[below, column], rows[at, column]
            at = below


@kernel(
    *(TABLE, INTS, TABLE, BOOLS, INTS),
    *(TABLE, INTS, INTS, TABLE, INTS, INTS, TABLE, INTS),
    *(INTS, INTS, INTS, TABLE, INTS, INTS, BOOLS),
    *(output(INT), output(INT), output(FLOAT), output(numba.types.boolean), OWN, OWN),
    *(INT, INT, OWN, output(INT), OWN, OWN, OWN, OWN, OWN, OWN, output(INT), output(INT), OWN, output(INT)),
    allocates=False,
)
def run(  # noqa: C901, PLR0912, PLR0915  (a case for each phase and operation; parts cannot make tables larger)
    turns: Table,
    clocks: Ints,
    due_table: Table,
    masks: Any,
    mask_begins: Ints,
    nodes: Table,
    node_tags: Ints,
    tag_bounds: Ints,
    atoms: Table,
    stream_atoms: Ints,
    stream_bounds: Ints,
    timers: Table,
    tag_streams: Ints,
    code: Ints,
    bounds: Ints,
    constants: Ints,
    cell_slots: Table,
    begins: Ints,
    values: Ints,
    there: Bools,
    at: Ints,
    work: Ints,
    floats: Floats,
    known: Bools,
    mine: Table,
    matched_rows: Table,
    discards: int,
    suppresses: int,
    asked: Table,
    numbers: Ints,
    instances: Table,
    entries: Table,
    dues: Table,
    stack: Table,
    listed: Table,
    found_matches: Table,
    heads: Ints,
    tails: Ints,
    known_keys: Table,
    key_heads: Ints,
) -> int:
    """Take turns until all are taken, or the machine stops for another reason; then it may be called again.

    Args:
        turns: int64[turns, 3]: the stream of each (-1: a tick), its row, and the place of its clock in ``clocks``.
        clocks: int64: what the clock shows.
        due_table: int64[timers, clocks]: the due time of what starts at each clock, for timers `BY_TABLE`.
        masks: bool: for each atom and row of its stream, whether the row fulfils what is about it alone.
        mask_begins: int64: where those of each atom begin.
        nodes: The nodes, each behind its parent.
        node_tags: int64: the tags that each node's subtree sets.
        tag_bounds: int64[nodes + 1]: where those of each node begin.
        atoms: The atoms.
        stream_atoms: int64: the atoms of each stream.
        stream_bounds: int64[streams + 1]: where those of each stream begin.
        timers: The timers.
        tag_streams: int64: the stream of each tag.
        code: As `gpu_ops.devices.cpu.row_programs.evaluate`.
        bounds: Likewise.
        constants: Likewise.
        cell_slots: int64[cells, 2]: the tag of each cell (-1: the row that comes), and the element of its list or -1.
        begins: As `evaluate`.
        values: Likewise.
        there: Likewise.
        at: Room for the row of each cell.
        work: Room for a program's stack.
        floats: The same room as floats.
        known: Likewise.
        mine: int64[2, …]: room for the values of keys.
        matched_rows: int64[…, 2]: room for the rows of a turn's matches.
        discards: 1 where what shares an event with a match ends.
        suppresses: 1 where only the first of matches of one turn that share an event counts.
        asked: int64[2, …]: where a timer asks: what its programs found, and their values.
        numbers: What the machine keeps, by the constants from `TURN` on.
        instances: The instances.
        entries: The entries.
        dues: The due times.
        stack: The operations.
        listed: int64[…, 3]: whom the turn concerns.
        found_matches: int64[…, 2]: the turn and the state of each match.
        heads: int64: the first of each chain of atoms that wait for the same key; a power of two of them.
        tails: int64: the last of each.
        known_keys: What is known of keys, in the rows of their entries; it has none where no node has keys.
        key_heads: int64: the last of each chain of keys with the same hash; a power of two of them.

    Returns:
        Why it stops: `DONE`; `GROW` where a table has to be larger; `OVERFLOWED`; `ASKS` for a due time.
    """
    programs = (numbers, code, bounds, constants, cell_slots, begins, values, there, at, work, floats, known)
    state = (stack, numbers, instances, nodes, heads, tails)
    most = len(node_tags) + 8
    widest = len(nodes) + 8
    while True:
        # Room for whatever one operation makes
        if (
            numbers[ENTRIES] + most > entries.shape[0]
            or numbers[DUES] + 2 > dues.shape[0]
            or numbers[OUTPUT] + 2 > found_matches.shape[0]
            or (numbers[FREE] < 0 and numbers[INSTANCES] >= instances.shape[0])
            or numbers[STACK] + widest > stack.shape[0]
            or numbers[ATOMS_ACTIVE] > len(heads)
            or numbers[KEYS_KNOWN] > len(key_heads)
        ):
            return GROW
        if numbers[ERROR] > 0:
            return OVERFLOWED
        turn = numbers[TURN]
        if numbers[STACK] == 0:
            phase = numbers[PHASE]
            if turn == len(turns):
                return DONE
            now = clocks[turns[turn, 2]]
            if phase == ARRIVES:
                if numbers[BEGUN] == 0:
                    numbers[BEGUN] = 1
                    _start(state, 0, -1, -1, -1)
                    continue
                numbers[LISTED], numbers[LIST_PLACE], numbers[OUTPUT_BEFORE] = 0, 0, numbers[OUTPUT]
                count = 0
                stream = turns[turn, 0]
                if stream < 0:
                    while numbers[DUES] > 0 and dues[0, DUE] <= now:
                        listed[count, 0], listed[count, 1] = dues[0, WHO], dues[0, WHO_SEQUENCE]
                        count += 1
                        _drop_first(dues, numbers)
                    numbers[PHASE] = DUE_TIMES
                else:
                    row = turns[turn, 1]
                    level = 0
                    for place in range(stream_bounds[stream], stream_bounds[stream + 1]):
                        atom = stream_atoms[place]
                        if not masks[mask_begins[atom] + row]:
                            continue
                        key, cell = 0, atoms[atom, MINE]
                        if cell >= 0:
                            if not there[begins[cell] + row]:
                                continue
                            key = values[begins[cell] + row]
                        who = heads[chain_of(atom, key, len(heads))]
                        while who >= 0:
                            following = instances[who, Q]
                            found = instances[who, P] == key and nodes[instances[who, NODE], ARGUMENT] == atom
                            if found and atoms[atom, REST] >= 0:
                                how = _value(atoms[atom, REST], instances[who, BEGIN], row, entries, programs)
                                found = how == VALUE and work[0] == 1
                            if found and atoms[atom, LEVEL] > level:
                                # It is consumed: what has a lower level is not told.
                                level, count = atoms[atom, LEVEL], 0
                            if found and atoms[atom, LEVEL] == level:
                                sequence = instances[who, SEQUENCE]
                                listed[count, 0], listed[count, 1] = who, sequence
                                listed[count, 2] = sequence + (_PLAIN_LAST if atoms[atom, PLAIN] == 1 else 0)
                                count += 1
                            who = following
                    _sort(listed, count, 2)
                    numbers[PHASE] = TOLD
                numbers[LISTED] = count
            elif phase == ENDS:
                first, last = numbers[OUTPUT_BEFORE], numbers[OUTPUT]
                if discards == 1 or suppresses == 1:
                    numbers[ROOM] = 0
                    for place in range(first, last):
                        made = found_matches[place, 1]
                        numbers[ROOM] = _rows_of(entries, made, matched_rows, numbers[ROOM], tag_streams)
                    if numbers[ROOM] > len(matched_rows):
                        return GROW
                numbers[PHASE], numbers[LISTED], numbers[LIST_PLACE] = DISCARDS, 0, 0
                if last > first and suppresses == 1:
                    kept, count = first, 0
                    for place in range(first, last):
                        if not _holds_any(entries, found_matches[place, 1], matched_rows, count, tag_streams):
                            count = _rows_of(entries, found_matches[place, 1], matched_rows, count, tag_streams)
                            found_matches[kept, 0], found_matches[kept, 1] = turn, found_matches[place, 1]
                            kept += 1
                    numbers[OUTPUT] = last = kept
                if last > first and discards == 1:
                    count = 0
                    for place in range(first, last):
                        count = _rows_of(entries, found_matches[place, 1], matched_rows, count, tag_streams)
                    found_so_far = 0
                    for who in range(numbers[INSTANCES]):
                        if instances[who, SEQUENCE] == 0:
                            continue
                        kind = nodes[instances[who, NODE], KIND]
                        shares = _holds_any(entries, instances[who, BEGIN], matched_rows, count, tag_streams)
                        if not shares and kind == UNTIL:
                            shares = _holds_any(entries, instances[who, Q], matched_rows, count, tag_streams)
                        if not shares and kind == BOTH:
                            entry = instances[who, P]
                            while entry >= 0 and not shares:
                                shares = _holds_any(entries, entries[entry, B], matched_rows, count, tag_streams)
                                entry = entries[entry, LINK]
                        if shares:
                            listed[found_so_far, 0], listed[found_so_far, 1] = who, instances[who, SEQUENCE]
                            found_so_far += 1
                    _sort(listed, found_so_far, 1)
                    numbers[LISTED] = found_so_far
            elif numbers[LIST_PLACE] == numbers[LISTED]:
                if phase == DISCARDS:
                    numbers[TURN] += 1
                    numbers[PHASE] = ARRIVES
                else:
                    numbers[PHASE] = ENDS
            else:
                place = numbers[LIST_PLACE]
                numbers[LIST_PLACE], numbers[BEFORE_TOLD] = place + 1, numbers[COUNTER]
                who = listed[place, 0]
                if instances[who, SEQUENCE] != listed[place, 1]:
                    continue
                node = instances[who, NODE]
                if phase == DISCARDS:
                    _tell(state, FALSE, who, -1, 1)
                elif phase == TOLD:
                    match, tag = instances[who, BEGIN], atoms[nodes[node, ARGUMENT], TAG]
                    if tag >= 0:
                        match = _entry(entries, numbers, ROW, tag, turns[turn, 1], match)
                    # What restarts its atoms anyway leaves them as they are.
                    parent = instances[who, PARENT]
                    above = nodes[instances[parent, NODE], KIND] if parent >= 0 else -1
                    stays = above in (EVERY, DISTINCT)
                    _tell(state, TRUE, who, match, 0 if stays else 1)
                elif nodes[node, KIND] == TIMER:
                    timer, parent = nodes[node, ARGUMENT], instances[who, PARENT]
                    above = nodes[instances[parent, NODE], KIND] if parent >= 0 else -1
                    # A schedule goes on by itself: nothing starts it anew.
                    stays = timers[timer, HOW] == BY_SCHEDULE and above in (EVERY, DISTINCT)
                    if stays:
                        due = _next_time(timers, timer, instances[who, P], now)
                        if due < NEVER:
                            _schedule(dues, numbers, instances, who, due)
                    _tell(state, TRUE, who, instances[who, BEGIN], 0 if stays else 1)
                else:
                    _tell(state, FALSE, who, -1, 1)
            continue

        now = clocks[turns[turn, 2]]
        top = numbers[STACK] - 1
        do, of, match, from_node = stack[top, DO], stack[top, OF], stack[top, MATCH], stack[top, FROM]
        child, child_sequence, ended, keys = (
            stack[top, FROM_INSTANCE],
            stack[top, FROM_SEQUENCE],
            stack[top, ENDED],
            stack[top, KEYS],
        )
        if of >= 0 and instances[of, SEQUENCE] != stack[top, OF_SEQUENCE]:
            numbers[STACK] = top
            continue
        if do == START:
            kind = nodes[from_node, KIND]
            due = NEVER
            timed = kind in (WITHIN, WITHIN_MAX, TIMER)
            if timed:
                timer = nodes[from_node, ARGUMENT]
                if timers[timer, HOW] == BY_TABLE:
                    due = due_table[timer, turns[turn, 2]]
                elif timers[timer, HOW] == BY_PROGRAM:
                    how = _value(timers[timer, PROGRAM], match, -1, entries, programs)
                    # What lasts longer than all years that there are is never over.
                    due = now + work[0] * 1000 if how == VALUE and work[0] < _LONGEST else NEVER
                elif timers[timer, HOW] == BY_SCHEDULE:
                    due = _next_time(timers, timer, now, now)
                elif numbers[ANSWERED] == 1:
                    numbers[ANSWERED] = 0
                    due = numbers[ANSWER]
                else:
                    numbers[ASKED] = timer
                    for number in range(timers[timer, TIMES]):
                        asked[0, number] = _value(timers[timer, PROGRAM] + number, match, -1, entries, programs)
                        asked[1, number] = work[0]
                    return ASKS
            numbers[STACK] = top
            if numbers[FREE] >= 0:
                who = numbers[FREE]
                numbers[FREE] = instances[who, NEXT]
            else:
                who = numbers[INSTANCES]
                numbers[INSTANCES] += 1
            numbers[COUNTER] += 1
            sequence = numbers[COUNTER]
            instances[who, NODE], instances[who, SEQUENCE], instances[who, PARENT] = from_node, sequence, of
            instances[who, BEGIN], instances[who, FIRST], instances[who, LAST] = match, -1, -1
            instances[who, NEXT], instances[who, BEFORE], instances[who, SEEN] = -1, -1, keys
            instances[who, P], instances[who, Q], instances[who, R], instances[who, S] = 0, 0, 0, 0
            if of >= 0:
                last = instances[of, LAST]
                instances[who, BEFORE] = last
                if last >= 0:
                    instances[last, NEXT] = who
                else:
                    instances[of, FIRST] = who
                instances[of, LAST] = who
                if nodes[instances[of, NODE], KIND] in (EVERY, DISTINCT) and kind != ATOM:
                    instances[of, P], instances[of, Q] = sequence, 0
                    _push(state, STARTED, of, instances[of, SEQUENCE], -1, from_node, who, sequence, 0, -1)
            if kind == ATOM:
                numbers[ATOMS_ACTIVE] += 1
                atom = nodes[from_node, ARGUMENT]
                cell = atoms[atom, THEIRS]
                waits = True
                if cell >= 0:
                    row = _row_of(entries, match, cell_slots[cell, 0], cell_slots[cell, 1])
                    place = begins[cell] + row if row >= 0 else begins[cell + 1] - 1
                    waits = there[place]
                    instances[who, P] = values[place]
                if waits:
                    _enchain(instances, nodes, heads, tails, who)
            elif kind in (EVERY, DISTINCT, FOLLOWED, WHILE):
                _start(state, nodes[from_node, CHILD], who, match, -1)
            elif kind in (WITHIN, WITHIN_MAX):
                _schedule(dues, numbers, instances, who, due)
                if kind == WITHIN_MAX:
                    how = _value(nodes[from_node, OTHER], match, -1, entries, programs)
                    instances[who, Q] = work[0] if how == VALUE else 0
                _start(state, nodes[from_node, CHILD], who, match, -1)
            elif kind == NOT:
                _push(
                    state, TRUE, of, instances[of, SEQUENCE] if of >= 0 else 0, match, from_node, who, sequence, 0, -1
                )
                _start(state, nodes[from_node, CHILD], who, match, -1)
            elif kind in (BOTH, EITHER):
                instances[who, P], instances[who, Q] = -1, -1
                for number in range(nodes[from_node, CHILDREN] - 1, -1, -1):
                    below = nodes[from_node, CHILD]
                    for _ in range(number):
                        below = nodes[below, SIBLING]
                    _start(state, below, who, match, -1)
            elif kind == UNTIL:
                instances[who, Q], instances[who, R], instances[who, S] = -1, -1, -1
                for column, program in ((R, nodes[from_node, ARGUMENT]), (S, nodes[from_node, OTHER])):
                    if program >= 0:
                        how = _value(program, match, -1, entries, programs)
                        if how == VALUE:
                            instances[who, column] = max(0, work[0])
                matcher = nodes[from_node, CHILD]
                if instances[who, S] == 0 and nodes[from_node, CHILDREN] == 1:
                    _tell(state, TRUE, who, match, 1)
                    continue
                if instances[who, S] != 0:
                    _start(state, matcher, who, match, -1)
                if nodes[from_node, CHILDREN] == 2:
                    # What ends it is told first: an event that does both is no repeat.
                    _start(state, nodes[matcher, SIBLING], who, match, -1)
            elif due <= now:
                _tell(state, TRUE, who, match, 1)
            else:
                instances[who, P] = now
                if due < NEVER:
                    _schedule(dues, numbers, instances, who, due)
            continue
        numbers[STACK] = top
        if do == STARTED:
            if instances[of, P] == child_sequence:
                instances[of, P] = 0
                if instances[of, Q] == 1 and instances[child, SEQUENCE] == child_sequence:
                    _end(state, child)
            continue
        if do in (TRUE, COMBINE) and ended == 0 and child >= 0 and instances[child, SEQUENCE] != child_sequence:
            continue
        if of < 0:
            if do == TRUE:
                found_matches[numbers[OUTPUT], 0], found_matches[numbers[OUTPUT], 1] = turn, match
                numbers[OUTPUT] += 1
            continue
        node = instances[of, NODE]
        kind = nodes[node, KIND]
        begin = instances[of, BEGIN]
        if do == COMBINE:
            # The match is one of all combinations of what the others found, by number.
            number, total, stays = stack[top, KEYS], stack[top, FROM_SEQUENCE], ended == 0
            if number + 1 < total:
                _push(state, COMBINE, of, instances[of, SEQUENCE], match, from_node, -1, total, ended, number + 1)
            made, rest, span, below = begin, number, total, nodes[node, CHILD]
            for index in range(nodes[node, CHILDREN]):
                found = match
                if below != from_node:
                    count, entry = 0, instances[of, P]
                    while entry >= 0:
                        count += entries[entry, A] == index
                        entry = entries[entry, LINK]
                    span //= count
                    skip = rest // span
                    rest %= span
                    entry = instances[of, P]
                    while entries[entry, A] != index or skip > 0:
                        skip -= entries[entry, A] == index
                        entry = entries[entry, LINK]
                    found = entries[entry, B]
                for place in range(tag_bounds[below], tag_bounds[below + 1]):
                    entry = _entry_of(entries, found, node_tags[place], begin)
                    if entry >= 0:
                        made = _entry(
                            entries, numbers, entries[entry, WHAT], entries[entry, A], entries[entry, B], made
                        )
                below = nodes[below, SIBLING]
            last = number + 1 == total and not stays
            _tell(state, TRUE, of, made, 1 if last else 0)
            continue
        if kind in (EVERY, DISTINCT):
            if child_sequence == instances[of, P]:
                # It turns true or false while it starts: then it is not started again.
                if do == TRUE:
                    instances[of, Q] = 1
                continue
            if do == FALSE:
                _start(state, nodes[node, CHILD], of, begin, -1)
                continue
            new = True
            if kind == DISTINCT:
                first, many = nodes[node, ARGUMENT], nodes[node, OTHER]
                hashed = _hash_keys(first, many, match, instances[of, SEQUENCE], mine, entries, programs)
                entry = key_heads[hashed & (len(key_heads) - 1)] if keys >= 0 else -1
                while entry >= 0:
                    same = _is_before(entry, keys, entries, known_keys)
                    for key in range(many if same else 0):
                        how = _value(first + key, entries[entry, B], -1, entries, programs)
                        same = same and how == mine[0, key] and (how != VALUE or work[0] == mine[1, key])
                    if same:
                        # What had these keys earlier was forgotten by then.
                        new = entries[entry, A] <= now
                        break
                    entry = known_keys[entry, ALIKE]
                if new:
                    until = due_table[nodes[node, EXPIRY], turns[turn, 2]] if nodes[node, EXPIRY] >= 0 else NEVER
                    keys = _entry(entries, numbers, KEY, until, match, keys)
                    _know_key(keys, hashed, entries, known_keys, key_heads)
                    numbers[KEYS_KNOWN] += 1
            if new:
                _tell(state, TRUE, of, match, 0)
            below = nodes[from_node, KIND]
            if ended == 0 and below in (ATOM, TIMER):
                instances[child, SEEN] = keys
            else:
                _start(state, nodes[node, CHILD], of, begin, keys)
        elif kind == FOLLOWED:
            if do == FALSE:
                if instances[of, FIRST] < 0:
                    _tell(state, FALSE, of, -1, 1)
            elif nodes[from_node, SIBLING] < 0:
                _tell(state, TRUE, of, match, 1 if instances[of, FIRST] < 0 else 0)
            else:
                following = nodes[from_node, SIBLING]
                starts = True
                if nodes[following, LIMIT] >= 0:
                    how = _value(nodes[following, LIMIT], match, -1, entries, programs)
                    count, other = 0, instances[of, FIRST]
                    while other >= 0:
                        count += instances[other, NODE] == following
                        other = instances[other, NEXT]
                    starts = how != VALUE or count < work[0]
                if starts:
                    _start(state, following, of, match, -1)
        elif kind == BOTH:
            if do == FALSE:
                _tell(state, FALSE, of, -1, 1)
                continue
            index = nodes[from_node, INDEX]
            instances[of, R] |= 1 << index
            entry = _entry(entries, numbers, FOUND, index, match, -1)
            if instances[of, Q] >= 0:
                entries[instances[of, Q], LINK] = entry
            else:
                instances[of, P] = entry
            instances[of, Q] = entry
            if instances[of, R] == (1 << nodes[node, CHILDREN]) - 1:
                total = 1
                for other in range(nodes[node, CHILDREN]):
                    if other != index:
                        count, entry = 0, instances[of, P]
                        while entry >= 0:
                            count += entries[entry, A] == other
                            entry = entries[entry, LINK]
                        total *= count
                is_over, other = 1, instances[of, FIRST]
                while other >= 0:
                    if nodes[instances[other, NODE], KIND] != NOT:
                        is_over = 0
                    other = instances[other, NEXT]
                _push(state, COMBINE, of, instances[of, SEQUENCE], match, from_node, -1, total, is_over, 0)
        elif kind == EITHER:
            if do == TRUE:
                _tell(state, TRUE, of, match, ended)
            elif instances[of, FIRST] < 0:
                _tell(state, FALSE, of, -1, 1)
        elif kind == NOT:
            if do == TRUE:
                _tell(state, FALSE, of, -1, 1)
        elif kind == UNTIL:
            if do == FALSE:
                _tell(state, FALSE, of, -1, 1)
                continue
            is_repeat = nodes[from_node, INDEX] == 0
            matcher = nodes[node, CHILD]
            lists = instances[of, Q]
            if is_repeat:
                instances[of, P] += 1
                before, lists = lists, -1
                for place in range(tag_bounds[matcher], tag_bounds[matcher + 1]):
                    tag = node_tags[place]
                    entry = _entry_of(entries, before, tag, -1)
                    element = entries[entry, B] if entry >= 0 else -1
                    entry = _entry_of(entries, match, tag, begin)
                    if entry >= 0 and entries[entry, WHAT] == ROW:
                        index = entries[element, A] + 1 if element >= 0 else 0
                        element = _entry(entries, numbers, ELEMENT, index, entries[entry, B], element)
                    if element >= 0:
                        lists = _entry(entries, numbers, ROWS, tag, element, lists)
                instances[of, Q] = lists
                high, times = instances[of, S], instances[of, P]
                if not (instances[of, R] == high and times == high):
                    # What turns true as it starts, and may do so without end, is not started again.
                    goes_on = times < high or (high < 0 and child_sequence <= numbers[BEFORE_TOLD])
                    if ended == 1 and goes_on:
                        _start(state, matcher, of, begin, -1)
                    elif ended == 0 and not goes_on:
                        _end(state, child)
                    continue
                match = begin
            elif instances[of, R] > instances[of, P]:
                _tell(state, FALSE, of, -1, 1)
                continue
            entry = lists
            while entry >= 0:
                match = _entry(entries, numbers, ROWS, entries[entry, A], entries[entry, B], match)
                entry = entries[entry, LINK]
            _tell(state, TRUE, of, match, 1)
        elif do == FALSE:
            _tell(state, FALSE, of, -1, 1)
        else:
            passes = True
            if kind == WITHIN_MAX:
                instances[of, P] += 1
                passes = instances[of, P] <= instances[of, Q]
            elif kind == WHILE:
                how = _value(nodes[node, OTHER], match, -1, entries, programs)
                passes = how == VALUE and work[0] == 1
            if passes:
                _tell(state, TRUE, of, match, ended)
            else:
                _tell(state, FALSE, of, -1, 1)


@kernel(OWN, INTS, TABLE, TABLE, INTS, INTS, BOOLS, TABLE, TABLE, output(INT), output(INT), allocates=False)
def rekey(
    instances: Table,
    order: Ints,
    nodes: Table,
    atoms: Table,
    begins: Ints,
    values: Ints,
    there: Bools,
    cell_slots: Table,
    entries: Table,
    heads: Ints,
    tails: Ints,
) -> int:
    """Give atoms the keys that they wait for, as they are numbered now, and chain those that wait for one.

    Args:
        instances: As `run`, like the others.
        order: int64: the numbers of instances in the order in which they started.
        nodes: The nodes.
        atoms: The atoms.
        begins: Where the values of each cell begin.
        values: The values.
        there: Which of them are not null.
        cell_slots: The tags of cells.
        entries: The entries.
        heads: The first of each chain.
        tails: The last of each.
    """
    for place in range(len(order)):
        who = order[place]
        node = instances[who, NODE]
        if instances[who, SEQUENCE] > 0 and nodes[node, KIND] == ATOM:
            cell = atoms[nodes[node, ARGUMENT], THEIRS]
            instances[who, S] = 1
            if cell >= 0:
                row = _row_of(entries, instances[who, BEGIN], cell_slots[cell, 0], cell_slots[cell, 1])
                at = begins[cell] + row if row >= 0 else begins[cell + 1] - 1
                instances[who, P], instances[who, S] = values[at], np.int64(there[at])
    _enchain_all(instances, order, nodes, heads, tails)
    return 0


@kernel(OWN, INTS, TABLE, output(INT), output(INT), allocates=False)
def rechain(instances: Table, order: Ints, nodes: Table, heads: Ints, tails: Ints) -> int:
    """Put all instances of atoms that are in a chain into theirs, in the order in which they started."""
    _enchain_all(instances, order, nodes, heads, tails)
    return 0


@kernel(
    *(TABLE, INT, TABLE, INT, TABLE, INTS, INTS, INTS, TABLE, INTS, INTS, BOOLS),
    *(output(INT), output(INT), output(FLOAT), output(numba.types.boolean), OWN, output(INT), OWN, output(INT)),
)
def know_keys(
    instances: Table,
    instance_count: int,
    entries: Table,
    entry_count: int,
    nodes: Table,
    code: Ints,
    bounds: Ints,
    constants: Ints,
    cell_slots: Table,
    begins: Ints,
    values: Ints,
    there: Bools,
    at: Ints,
    work: Ints,
    floats: Floats,
    known: Bools,
    mine: Table,
    numbers: Ints,
    known_keys: Table,
    key_heads: Ints,
) -> int:
    """Note all keys of `every-distinct` that instances have, by the values that they have now.

    Args:
        instances: As `run`, like the others.
        instance_count: How many of them there are.
        entries: The entries.
        entry_count: How many of them there are.
        nodes: The nodes.
        code: The programs.
        bounds: Where they begin.
        constants: What they read.
        cell_slots: The tags of cells.
        begins: Where the values of each cell begin.
        values: The values.
        there: Which of them are not null.
        at: Room.
        work: Room.
        floats: Room.
        known: Room.
        mine: Room.
        numbers: What the machine keeps.
        known_keys: What is known of keys.
        key_heads: The last of each chain.

    Returns:
        How many there are.
    """
    programs = (numbers, code, bounds, constants, cell_slots, begins, values, there, at, work, floats, known)
    owners = np.full(entry_count, -1, np.int64)
    for who in range(instance_count):
        parent = instances[who, PARENT]
        if instances[who, SEQUENCE] == 0 or parent < 0 or nodes[instances[parent, NODE], KIND] != DISTINCT:
            continue
        entry = instances[who, SEEN]
        while entry >= 0 and owners[entry] < 0:
            owners[entry] = parent
            entry = entries[entry, LINK]
    for chain in range(len(key_heads)):
        key_heads[chain] = -1
    count = 0
    # What is linked to stands before.
    for entry in range(entry_count):
        owner = owners[entry]
        if owner < 0:
            continue
        node, sequence = instances[owner, NODE], instances[owner, SEQUENCE]
        first, many = nodes[node, ARGUMENT], nodes[node, OTHER]
        hashed = _hash_keys(first, many, entries[entry, B], sequence, mine, entries, programs)
        _know_key(entry, hashed, entries, known_keys, key_heads)
        count += 1
    numbers[KEYS_KNOWN] = count
    return count


@kernel(TABLE, INT, OWN, output(INT), allocates=False)
def rechain_keys(entries: Table, entry_count: int, known_keys: Table, key_heads: Ints) -> int:
    """Put all keys into as many chains as there are now."""
    for chain in range(len(key_heads)):
        key_heads[chain] = -1
    for entry in range(entry_count):
        if entries[entry, WHAT] == KEY:
            _enchain_key(entry, known_keys, key_heads)
    return 0


@kernel(TABLE, INT, TABLE, INT, INTS, INTS)
def compacted(  # noqa: C901, PLR0912, PLR0915  (marks, numbers and moves)
    instances: Table, count: int, entries: Table, now: int, tag_streams: Ints, kinds: Ints
) -> tuple[Ints, Ints, Table]:
    """The entries that instances can reach.

    Args:
        instances: The instances.
        count: How many of them there are.
        entries: The entries.
        now: What the clock shows: keys that are forgotten then are dropped.
        tag_streams: int64: the stream of each tag.
        kinds: int64: the kind of each node.

    Returns:
        (new numbers of all entries, -1 for those that are dropped; the stream whose row each kept one has, or -1; the
        kept entries, with the new numbers).
    """
    marks = np.zeros(len(entries), np.int64)
    waiting = np.empty(len(entries) + 1, np.int64)
    for who in range(count):
        if instances[who, SEQUENCE] == 0:
            continue
        kind = kinds[instances[who, NODE]]
        for column in (BEGIN, SEEN, P, Q):
            if (column == P and kind != BOTH) or (column == Q and kind != UNTIL):
                continue
            top = 0
            entry = instances[who, column]
            if column == SEEN and entry >= 0 and entries[entry, A] <= now:
                continue
            if entry >= 0 and marks[entry] == 0:
                marks[entry] = 1
                waiting[0], top = entry, 1
            while top > 0:
                top -= 1
                entry = waiting[top]
                if entries[entry, WHAT] in (ROWS, FOUND, KEY):
                    below = entries[entry, B]
                    if below >= 0 and marks[below] == 0:
                        marks[below] = 1
                        waiting[top] = below
                        top += 1
                following = entries[entry, LINK]
                if following >= 0 and entries[entry, WHAT] == KEY and entries[following, A] <= now:
                    continue
                if following >= 0 and marks[following] == 0:
                    marks[following] = 1
                    waiting[top] = following
                    top += 1
    numbers = np.full(len(entries), -1, np.int64)
    kept = 0
    for entry in range(len(entries)):
        if marks[entry] == 1:
            numbers[entry] = kept
            kept += 1
    made, streams = np.empty((kept, ENTRY_COLUMNS), np.int64), np.full(kept, -1, np.int64)
    for entry in range(len(entries)):
        to = numbers[entry]
        if to < 0:
            continue
        what = entries[entry, WHAT]
        for column in range(ENTRY_COLUMNS):
            made[to, column] = entries[entry, column]
        if entries[entry, LINK] >= 0:
            made[to, LINK] = numbers[entries[entry, LINK]]
        if what in (ROWS, FOUND, KEY) and entries[entry, B] >= 0:
            made[to, B] = numbers[entries[entry, B]]
        if what == ROW:
            streams[to] = tag_streams[entries[entry, A]]
        elif what == ROWS:
            element = entries[entry, B]
            while element >= 0:
                streams[numbers[element]] = tag_streams[entries[entry, A]]
                element = entries[element, LINK]
    return numbers, streams, made


@kernel(TABLE, INTS, BOOLS)
def tag_entries(entries: Table, matches: Ints, repeated: Bools) -> Table:
    """For each match and tag the row, or, where the tag is repeated, the last element of its list; -1 for none."""
    made = np.full((len(matches), len(repeated)), -1, np.int64)
    for at in range(len(matches)):
        entry = matches[at]
        while entry >= 0:
            tag = entries[entry, A]
            if made[at, tag] < 0 and (entries[entry, WHAT] == ROWS) == repeated[tag]:
                made[at, tag] = entries[entry, B]
            entry = entries[entry, LINK]
    return made


@kernel(TABLE, INTS)
def list_rows(entries: Table, last: Ints) -> tuple[Ints, Ints]:
    """The rows of lists, given by their last elements (-1: no list).

    Returns:
        (where each list begins among them, and where the last one ends; the rows).
    """
    offsets = np.zeros(len(last) + 1, np.int64)
    for at in range(len(last)):
        offsets[at + 1] = offsets[at] + (entries[last[at], A] + 1 if last[at] >= 0 else 0)
    rows = np.empty(offsets[-1], np.int64)
    for at in range(len(last)):
        entry, place = last[at], offsets[at + 1]
        while entry >= 0:
            place -= 1
            rows[place] = entries[entry, B]
            entry = entries[entry, LINK]
    return offsets, rows
