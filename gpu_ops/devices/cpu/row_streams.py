"""Matches of row patterns in rows of many partitions as they come, on the host: a match ends all other ways.

With an automaton a partition has a state, and each row moves the state of its partition. The ways themselves are
nowhere: going back from row to row, and from each way to the one before the row, gives the rows of a match and their
variables. The rows of a match stand one behind the other in their partition.

Without one, the ways of a partition are a chain of lines in a table that all partitions share. There is one way for
each place: that of the first row, and of one first row the one that counts more. Steps are a forest; each has a place
and the step before it, packed into one number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INT, INTS, Array, Bools, Codes, Ints, inlined, kernel, output

_NEXT, _AT, _BEGIN, _STEP, _COUNTS = 0, 1, 2, 3, 4
_PLACE_BITS = 13
_PLACES = (1 << _PLACE_BITS) - 1
_TABLE = numba.types.Array(numba.types.int64, 2, "C")
_INTS, _FLAGS, _BYTES = output(numba.types.int64), output(numba.types.boolean), output(numba.types.int8)
_LABELS = numba.types.Array(numba.types.int8, 1, "C", readonly=True)
_SHORTS = output(numba.types.int16)
_VARIABLE_BITS = 6
_VARIABLES = (1 << _VARIABLE_BITS) - 1
_DONE, _FULL_WAYS, _FULL_STEPS = range(3)


class PlaceMachine(NamedTuple):
    """A pattern as `gpu_ops.plan.row_patterns.RowMachine` has it, in int64 arrays.

    Attributes:
        variable: The variable of each place.
        first: The places of first rows.
        bounds: Where the places that may follow each begin, one more than there are places.
        following: These places.
        last: 1 for a place where a match may end.
        counted: The number of each place's count; -1 for none.
        sign: For each count 1 or -1.
    """

    variable: Ints
    first: Ints
    bounds: Ints
    following: Ints
    last: Ints
    counted: Ints
    sign: Ints


class Automaton(NamedTuple):
    """A pattern as `gpu_ops.plan.row_automata.RowAutomaton` has it; a move is ``state * masks + mask``.

    Attributes:
        after: int64: the state behind each move, in all bits but the last; the last one says whether a match ends.
        ways: int64: for each move and each way of the state behind it, ``most`` of them, the variable of its last row
            in the lowest 6 bits, and above them the way before the row, -1 where the way begins with the row.
        match: The same for the match that ends with a move.
        masks: How many masks there are.
        most: How many ways a state has at most.
    """

    after: Ints
    ways: Ints
    match: Ints
    masks: int
    most: int


class StreamMatches(NamedTuple):
    """Matches in the order of their last rows.

    Attributes:
        end: int64: the last row of each.
        upto: int64: where its labels end.
        labels: int8: the variable of each row of each match.
        rows: int64: these rows.
        opened: bool: which rows may be in later matches.
    """

    end: Ints
    upto: Ints
    labels: Array
    rows: Ints
    opened: Bools


def automaton_matches(codes: Codes, mask: Ints, partitions: int, automaton: Automaton) -> StreamMatches:
    """The same as `stream_matches`, with an automaton for the machine.

    Examples:
        >>> moves = [0, 2, 0, 2, 0, 2, 1, 1], [0, -64, 0, -64, 0, -64, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]  # A B+
        >>> codes, masks = np.array([0, 1, 0, 0, 1], np.int32), np.array([1, 1, 2, 2, 1])
        >>> found = automaton_matches(codes, masks, 2, Automaton(*map(np.array, moves), 4, 1))
        >>> found.end, found.upto, found.labels.tolist(), found.rows, found.opened.tolist()
        (array([2]), array([2]), [0, 1], array([0, 2]), [False, False, False, False, True])
    """
    rows = codes.size
    end, upto, members, before = np.empty((4, rows), np.int64)
    labels, opened, moves = np.empty(rows, np.int8), np.zeros(rows, np.bool_), np.empty(rows, np.int16)
    states, latest, work = np.zeros(partitions, np.int64), np.full(partitions, -1), np.zeros(2, np.int64)
    _automaton_matches(codes, mask, *automaton, states, latest, before, moves, end, upto, labels, members, opened, work)
    founds, labelled = work
    return StreamMatches(end[:founds], upto[:founds], labels[:labelled], members[:labelled], opened)


@kernel(
    CODES, *[INTS] * 4, INT, INT, *[_INTS] * 3, _SHORTS, _INTS, _INTS, _BYTES, _INTS, _FLAGS, _INTS, allocates=False
)
def _automaton_matches(
    codes: Codes,
    mask: Ints,
    after: Ints,
    ways: Ints,
    match: Ints,
    masks: int,
    most: int,
    states: Ints,
    latest: Ints,
    before: Ints,
    moves: Array,
    end: Ints,
    upto: Ints,
    labels: Array,
    members: Ints,
    opened: Bools,
    work: Ints,
) -> None:
    """Fill the arrays; work has how many matches and labels there are."""
    founds = labelled = 0
    for row in range(codes.size):
        code = codes[row]
        move = states[code] * masks + mask[row]
        before[row], latest[code], moves[row] = latest[code], row, move
        states[code] = after[move] >> 1
        if not after[move] & 1:
            continue
        low, member, way = labelled, row, match[move]
        while True:
            labels[labelled], members[labelled] = way & _VARIABLES, member
            labelled += 1
            if way < 0:
                break
            member = before[member]
            way = ways[moves[member] * most + (way >> _VARIABLE_BITS)]
        # Its rows were found from the last one on.
        high = labelled - 1
        while low < high:
            label, member = labels[low], members[low]
            labels[low], members[low] = labels[high], members[high]
            labels[high], members[high] = label, member
            low, high = low + 1, high - 1
        end[founds], upto[founds] = row, labelled
        founds += 1
    for code in range(states.size):
        if states[code]:
            # The first way of a state is the oldest one.
            member, way = latest[code], np.int64(0)
            while way >= 0:
                opened[member] = True
                way = ways[moves[member] * most + (way >> _VARIABLE_BITS)]
                member = before[member]
    work[0], work[1] = founds, labelled


def stream_matches(codes: Codes, mask: Ints, partitions: int, machine: PlaceMachine) -> StreamMatches:
    """The matches of a row pattern, each delivered as it ends, and no row in two of them.

    Args:
        codes: The partition of each row; those of one partition stand in their order, between others.
        mask: A bit for each variable whose condition holds for a row.
        partitions: How many partitions there are.
        machine: The pattern.

    Examples:
        >>> pattern = [np.array(each) for each in ([0, 1], [0], [0, 1, 2], [1, 1], [0, 1], [-1, 0], [1])]  # A B+
        >>> codes, masks = np.array([0, 1, 0, 0, 1], np.int32), np.array([1, 1, 2, 2, 1])
        >>> found = stream_matches(codes, masks, 2, PlaceMachine(*pattern))
        >>> found.end, found.upto, found.labels.tolist(), found.rows, found.opened.tolist()
        (array([2]), array([2]), [0, 1], array([0, 2]), [False, False, False, False, True])
    """
    rows, places = codes.size, machine.variable.size
    ways_room, steps_room = 64 + 2 * min(rows, partitions), max(1 << 15, 4 * partitions, 16 * places)
    bits = np.int64(1) << machine.variable
    after = np.zeros(places + 1, np.int64)  # the variables that may come behind each place, and first
    np.bitwise_or.at(after, np.repeat(np.arange(places), np.diff(machine.bounds)), bits[machine.following])
    after[places] = np.bitwise_or.reduce(bits[machine.first])
    end, upto = np.empty(rows, np.int64), np.empty(rows, np.int64)
    labels, members = np.empty(rows, np.int8), np.empty(rows, np.int64)
    before, opened = np.empty(rows, np.int64), np.zeros(rows, np.bool_)
    while True:
        ways = np.empty((ways_room, _COUNTS + machine.sign.size), np.int64)
        steps, moved, fresh = *np.empty((2, steps_room), np.int64), np.empty((places + 1, ways.shape[1]), np.int64)
        heads, latest = np.full(partitions, -1), np.full(partitions, -1)
        work = np.zeros(2, np.int64)
        status = _stream_matches(
            codes, mask, *machine, bits, after, heads, latest, ways, steps, moved, fresh,
            before, end, upto, labels, members, opened, work,
        )  # fmt: skip
        if status == _DONE:
            break
        ways_room, steps_room = ways_room << (status == _FULL_WAYS), steps_room << (status == _FULL_STEPS)
    founds, labelled = work
    return StreamMatches(end[:founds], upto[:founds], labels[:labelled], members[:labelled], opened)


@kernel(
    CODES, *[INTS] * 10, _INTS, _INTS, _TABLE, _INTS, _INTS, _TABLE,
    _INTS, _INTS, _INTS, _BYTES, _INTS, _FLAGS, _INTS, allocates=False,
)  # fmt: skip
def _stream_matches(  # noqa: C901, PLR0912, PLR0915  (one loop over the rows)
    codes: Codes,
    mask: Ints,
    variable: Ints,
    first: Ints,
    bounds: Ints,
    following: Ints,
    last: Ints,
    counted: Ints,
    sign: Ints,
    bits: Ints,
    after: Ints,
    heads: Ints,
    latest: Ints,
    ways: Any,
    steps: Ints,
    moved: Ints,
    fresh: Any,
    before: Ints,
    end: Ints,
    upto: Ints,
    labels: Array,
    members: Ints,
    opened: Bools,
    work: Ints,
) -> int:
    """Fill the arrays; work has how many matches and labels there are."""
    width, places = ways.shape[1], variable.size
    founds = labelled = step = lines = 0
    free = -1
    for row in range(codes.size):
        code, holds = codes[row], mask[row]
        head = heads[code]
        before[row] = latest[code]
        latest[code] = row
        begins = holds & after[places]
        if head < 0 and not begins:
            continue
        if step + places > steps.size:
            step = _compacted(steps, step, moved, heads, ways)
            if 2 * (step + places) > steps.size:
                return _FULL_STEPS
        made, best, line = 0, -1, head
        while True:
            starts = line < 0
            at = places if starts else ways[line, _AT]
            if holds & after[at]:
                low = 0 if starts else bounds[at]
                high = first.size if starts else bounds[at + 1]
                begin = row if starts else ways[line, _BEGIN]
                for option in range(low, high):
                    to = first[option] if starts else following[option]
                    if not holds & bits[to]:
                        continue
                    # Ways are in order of their first rows: an earlier way to the place is the better one.
                    other = 0
                    while other < made and fresh[other, _AT] != to:
                        other += 1
                    if other < made and (
                        begin > fresh[other, _BEGIN]
                        or starts
                        or not _counts_more(ways, line, fresh, other, counted[to], sign)
                    ):
                        continue
                    for count in range(_COUNTS, width):
                        fresh[other, count] = 0 if starts else ways[line, count]
                    if counted[to] >= 0:
                        fresh[other, _COUNTS + counted[to]] += sign[counted[to]]
                    fresh[other, _AT], fresh[other, _BEGIN], fresh[other, _STEP] = to, begin, step
                    steps[step] = ((-1 if starts else ways[line, _STEP]) << _PLACE_BITS) | to
                    step += 1
                    made += other == made
            if starts:
                break
            line = ways[line, _NEXT]
        for at in range(made):
            if last[fresh[at, _AT]] and (best < 0 or _is_first(fresh, at, best)):
                best = at
        if best >= 0:
            node, member, size = fresh[best, _STEP], row, 0
            # Its rows are found from the last one on: first how many there are.
            while node >= 0:
                size += 1
                node = steps[node] >> _PLACE_BITS
            node = fresh[best, _STEP]
            labelled += size
            for back in range(size):
                labels[labelled - 1 - back] = variable[steps[node] & _PLACES]
                members[labelled - 1 - back] = member
                node, member = steps[node] >> _PLACE_BITS, before[member]
            end[founds], upto[founds] = row, labelled
            founds += 1
            made = 0
        # The ways that go on take the lines of those that were there, and others.
        kept, line = -1, head
        for at in range(made):
            if not after[fresh[at, _AT]]:
                continue
            if line < 0:
                line = free
                if line >= 0:
                    free = ways[line, _NEXT]
                elif lines < ways.shape[0]:
                    line = lines
                    lines += 1
                else:
                    return _FULL_WAYS
                ways[line, _NEXT] = -1
            if kept < 0:
                heads[code] = line
            else:
                ways[kept, _NEXT] = line
            for column in range(_AT, width):
                ways[line, column] = fresh[at, column]
            kept, line = line, ways[line, _NEXT]
        if kept < 0:
            heads[code] = -1
        else:
            ways[kept, _NEXT] = -1
        while line >= 0:
            other = ways[line, _NEXT]
            ways[line, _NEXT] = free
            free, line = line, other
    for code in range(heads.size):
        # What is open begins with the chain's first way: chains are in order of first rows.
        line, begin = heads[code], codes.size
        while line >= 0:
            begin = min(begin, ways[line, _BEGIN])
            line = ways[line, _NEXT]
        row = latest[code]
        while row >= begin:
            opened[row] = True
            row = before[row]
    work[0], work[1] = founds, labelled
    return _DONE


@inlined
def _counts_more(ways: Any, line: int, fresh: Any, other: int, counted: int, sign: Ints) -> bool:
    """Whether a way that goes on to a place counts more than the way that is there; both have the same first row."""
    for at in range(_COUNTS, ways.shape[1]):
        mine = ways[line, at] + (sign[counted] if at == _COUNTS + counted else 0)
        if mine != fresh[other, at]:
            return bool(mine > fresh[other, at])
    return False


@inlined
def _is_first(ways: Any, one: int, other: int) -> bool:
    """Whether a match begins before another one that was found before it, or counts more."""
    if ways[one, _BEGIN] != ways[other, _BEGIN]:
        return bool(ways[one, _BEGIN] < ways[other, _BEGIN])
    for at in range(_COUNTS, ways.shape[1]):
        if ways[one, at] != ways[other, at]:
            return bool(ways[one, at] > ways[other, at])
    return False


@inlined
def _compacted(steps: Ints, step: int, moved: Ints, heads: Ints, ways: Any) -> int:
    """Leave out the steps that no way has; how many are left."""
    for node in range(step):
        moved[node] = 0
    for code in range(heads.size):
        line = heads[code]
        while line >= 0:
            node = ways[line, _STEP]
            while node >= 0 and not moved[node]:
                moved[node] = 1
                node = steps[node] >> _PLACE_BITS
            line = ways[line, _NEXT]
    left = 0
    for node in range(step):
        if moved[node]:
            # The step before it was made before it, and has moved.
            before = steps[node] >> _PLACE_BITS
            moved[node] = left
            steps[left] = ((moved[before] if before >= 0 else -1) << _PLACE_BITS) | (steps[node] & _PLACES)
            left += 1
    for code in range(heads.size):
        line = heads[code]
        while line >= 0:
            ways[line, _STEP] = moved[ways[line, _STEP]]
            line = ways[line, _NEXT]
    return left


@kernel(_LABELS, INTS, INT, _TABLE, _TABLE, _TABLE)
def variable_rows(labels: Array, upto: Ints, variables: int, first: Any, last: Any, counts: Any) -> None:
    """Fill in, for each variable and match, which labels are the variable's first and its last, and how many there are.

    Args:
        labels: int8: the variable of each row of each match.
        upto: int64: where the labels of each match end.
        variables: How many variables there are.
        first: int64, a line for each variable: the label's index; 0 where a match has no row of it.
        last: The same of the last one.
        counts: How many rows each match has of it.
    """
    label = 0
    for match in range(upto.size):
        for variable in range(variables):
            first[variable, match] = last[variable, match] = counts[variable, match] = 0
        while label < upto[match]:
            variable = labels[label]
            if not counts[variable, match]:
                first[variable, match] = label
            last[variable, match] = label
            counts[variable, match] += 1
            label += 1
