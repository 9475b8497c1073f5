"""Groups that change turn by turn, on the CPU: one walk over what enters and leaves, in its order."""

from __future__ import annotations

import numpy as np

from gpu_ops.core.turns import LEFT_FIRST, TURN
from gpu_ops.devices.cpu.compiling import BOOLS, CODES, INT, INTS, Bools, Codes, Ints, inlined, kernel, unsigned
from gpu_ops.devices.cpu.order import take


@kernel(INTS, INTS)
def merged_order(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """The order of two ascending runs, one behind the other, and their values in that order.

    Examples:
        >>> [each.tolist() for each in merged_order(np.array([1, 4]), np.array([1, 2]))]
        [[0, 2, 3, 1], [1, 1, 2, 4]]
    """
    begin, size = first.size, first.size + second.size
    order, values = np.empty(size, np.int64), np.empty(size, np.int64)
    left, right = 0, 0
    for at in range(size):
        if right == second.size or (left < begin and first[left] <= second[right]):
            order[at], values[at] = left, first[left]
            left += 1
        else:
            order[at], values[at] = begin + right, second[right]
            right += 1
    return order, values


@kernel(INTS, INTS)
def edge_counts(first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct values of two ascending runs, and how often each stands in the one and in the other.

    Examples:
        >>> [each.tolist() for each in edge_counts(np.array([1, 4, 4]), np.array([1, 2]))]
        [[1, 2, 4], [1, 0, 2], [1, 1, 0]]
    """
    size = first.size + second.size
    values, ones, others = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    left, right, made, one, other, last = 0, 0, 0, 0, 0, 0
    for edge in range(size):
        is_first = right == second.size or (left < first.size and first[unsigned(left)] <= second[unsigned(right)])
        value = first[unsigned(left)] if is_first else second[unsigned(right)]
        if edge == 0 or value != last:
            one, other, last = 0, 0, value
            made += 1
        if is_first:
            left += 1
            one += 1
        else:
            right += 1
            other += 1
        at = unsigned(made - 1)
        values[at], ones[at], others[at] = value, one, other
    return values[:made], ones[:made], others[:made]


@kernel(INTS, INTS, INTS, INT, INT)
def numbered_turns(starts: Ints, keys: Ints, begins: Ints, clock: int, turn: int) -> tuple[Ints, Ints, Ints, Ints]:
    """The places of the turns of events of several runs, and of those in which the clock moves: one merge.

    Examples:
        >>> starts, begins = np.array([1, 5, 5]), np.array([0, 2, 3])
        >>> made = numbered_turns(starts, np.array([0, 1, 0]), begins, 0, 0)
        >>> [(each // TURN).tolist() for each in made[::2]], [each.tolist() for each in made[1::2]]
        ([[1, 4, 3], [0, 2]], [[1, 5, 5], [1, 5]])
    """
    runs, size = begins.size - 1, starts.size
    turns, clocks = np.empty(size, np.int64), np.empty(size, np.int64)
    moves, shown = np.empty(size, np.int64), np.empty(size, np.int64)
    moved = 0
    if runs == 1:
        # They are in order already.
        for at in range(size):
            if starts[at] > clock:
                clock = starts[at]
                moves[moved], shown[moved] = turn * TURN, clock
                moved += 1
                turn += 1
            turns[at], clocks[at] = turn * TURN, clock
            turn += 1
        return turns, clocks, moves[:moved], shown[:moved]
    heads = begins[:-1].copy()
    for _ in range(size):
        chosen, at = -1, 0
        for run in range(runs):
            head = heads[run]
            if head == begins[run + 1]:
                continue
            is_less = chosen < 0 or starts[head] < starts[at]
            if is_less or (starts[head] == starts[at] and keys[head] < keys[at]):
                chosen, at = run, head
        heads[chosen] += 1
        if starts[at] > clock:
            clock = starts[at]
            moves[moved], shown[moved] = turn * TURN, clock
            moved += 1
            turn += 1
        turns[at], clocks[at] = turn * TURN, clock
        turn += 1
    return turns, clocks, moves[:moved], shown[:moved]


@kernel(CODES, INTS, INT)
def touched_rows(codes: Codes, places: Ints, groups: int) -> tuple[Ints, Ints, Ints, Ints]:
    """A row for each group at each place that touches it.

    Examples:
        >>> made = touched_rows(np.array([1, 0, 1, 1], np.int32), np.array([2, 2, 2, 4]), 2)
        >>> [each.tolist() for each in made]
        [[0, 1, 0, 2], [0, 1, 3], [2, 1, 3], [-1, -1, 0]]
    """
    count, size = 0, codes.size
    row, first = np.empty(size, np.int64), np.empty(size, np.int64)
    last, before = np.empty(size, np.int64), np.empty(size, np.int64)
    newest, when = np.full(groups, -1), np.empty(groups, np.int64)
    for edge in range(size):
        group = unsigned(codes[edge])
        at = newest[group]
        if at < 0 or when[group] != places[edge]:
            first[count], before[count] = edge, at
            newest[group], when[group] = count, places[edge]
            at = count
            count += 1
        row[edge] = at
        last[unsigned(at)] = edge
    return row, first[:count], last[:count], before[:count]


@kernel(CODES, INTS, INT)
def merged_rows(codes: Codes, places: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """One row for the events of each group at each place, in order of their firsts.

    Examples:
        >>> made = merged_rows(np.array([1, 0, 1, 1], np.int32), np.array([2, 2, 2, 4]), 2)
        >>> [each.tolist() for each in made]
        [[0, 1, 0, 2], [0, 1, 3], [2, 1, 1]]
    """
    count, size = 0, codes.size
    row, first, weight = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    newest, begin = np.full(groups, -1), 0
    while begin < size:
        place, here, at = places[begin], count, begin
        while at < size and places[unsigned(at)] == place:
            group = unsigned(codes[unsigned(at)])
            number = newest[group]
            if number < here:
                first[unsigned(count)], weight[unsigned(count)] = at, 0
                newest[group] = number = count
                count += 1
            row[unsigned(at)] = number
            weight[unsigned(number)] += 1
            at += 1
        begin = at
    return row, first[:count], weight[:count]


@kernel(INTS, INTS, INT)
def row_sums(values: Ints, row: Ints, count: int) -> Ints:
    """The sum of the values of each row, modulo 2**64.

    Examples:
        >>> row_sums(np.array([5, 7, 9]), np.array([1, 0, 1]), 2)
        array([ 7, 14])
    """
    made = np.zeros(count, np.int64)
    for event in range(values.size):
        made[unsigned(row[event])] += values[event]
    return made


@kernel(INTS, INTS, INTS, CODES, INTS)
def walked_totals(values: Ints, first: Ints, last: Ints, group: Codes, base: Ints) -> tuple[Ints, Ints]:
    """The totals of groups at some rows in turn, and behind the last of them.

    Examples:
        >>> rows, groups = np.array([0, 1]), np.array([0, 1, 0], np.int32)
        >>> made = walked_totals(np.array([5, 7]), rows, np.array([2, 3]), groups, np.array([1, 2]))
        >>> [each.tolist() for each in made]
        [[6, 9, 1], [1, 9]]
    """
    size = group.size
    totals, after = np.zeros(size + 1, np.int64), base.copy()
    for event in range(values.size):
        value = values[event]
        totals[unsigned(first[event])] += value
        totals[unsigned(last[event])] -= value
    for row in range(size):
        of = unsigned(group[row])
        total = after[of] + totals[row]
        totals[row] = after[of] = total
    return totals[:size], after


@inlined
def _first_from(tick: int, values: Ints, bound: int) -> int:
    """The first of ascending values at or past a bound, of those from ``tick`` on; their number if there is none."""
    size = values.size
    if tick < size and values[unsigned(tick)] < bound:
        # The next one mostly; else it is far away, and found by steps that double, then by halves.
        step = 1
        while tick + step < size and values[unsigned(tick + step)] < bound:
            tick += step
            step *= 2
        high = min(tick + step, size)
        tick += 1
        while tick < high:
            middle = (tick + high) >> 1
            if values[unsigned(middle)] < bound:
                tick = middle + 1
            else:
                high = middle
    return tick


@kernel(INTS, INTS, INTS)
def due_places(due: Ints, places: Ints, clocks: Ints) -> Ints:
    """The places of the first ticks at or past ascending times; of as many of these as a tick has reached.

    Examples:
        >>> due_places(np.array([2, 3, 3, 9]), np.array([10, 20, 30]), np.array([1, 3, 7])).tolist()
        [20, 20, 20]
    """
    made, tick, size = np.empty(due.size, np.int64), 0, clocks.size
    for row in range(due.size):
        time = due[row]
        tick = _first_from(tick, clocks, time)
        if tick == size:
            return made[:row]
        made[unsigned(row)] = places[unsigned(tick)]
    return made


@kernel(INTS, INTS, INTS, INTS)
def clocks_at(at: Ints, places: Ints, clocks: Ints, before: Ints) -> Ints:
    """What the clock shows at some places: behind the last tick up to each, or before all ticks.

    Examples:
        >>> clocks_at(np.array([5, 10, 25]), np.array([10, 20]), np.array([1, 3]), np.array([0]))
        array([0, 1, 3])
    """
    made, tick = np.empty(at.size, np.int64), 0
    for row in range(at.size):
        place = at[row]
        if tick and places[unsigned(tick - 1)] > place:
            tick = 0
        tick = _first_from(tick, places, place + 1)
        made[unsigned(row)] = clocks[unsigned(tick - 1)] if tick else before[0]
    return made


@kernel(CODES, INTS, INTS, INTS, INT, INT)
def turn_rows(
    codes: Codes, came: Ints, enter: Ints, leave: Ints, groups: int, based: int
) -> tuple[Ints, Ints, Codes, Ints, Ints, Ints]:
    """A row for each group at each place where rows enter or leave that go in the order in which they came.

    Examples:
        >>> made = turn_rows(
        ...     np.array([1, 0, 1], np.int32), np.array([2, 4, 6]), np.array([4, 6]), np.array([6, 8]), 2, 0
        ... )
        >>> [each.tolist() for each in made[:4]]
        [[3, 0, 1], [1, 2, 3], [0, 1, 0], [4, 6, 8]]
    """
    size, old, count = codes.size, codes.size - enter.size, 0
    first, last = np.empty(size, np.int64), np.empty(size, np.int64)
    most = enter.size + leave.size
    group, place = np.empty(most + groups * based, np.int32), np.empty(most, np.int64)
    order, earlier = np.empty(most, np.int64), np.empty(most, np.int64)
    newest, begin = np.full(groups, -1), groups * based
    for each in range(begin):
        group[each] = each
    come, go = 0, 0
    while come < enter.size or go < leave.size:
        # All rows of one place: what has a row at it has one of the last few.
        where = enter[come] if go == leave.size or (come < enter.size and enter[come] <= leave[go]) else leave[go]
        here = count
        while come < enter.size and enter[unsigned(come)] == where:
            moving = unsigned(old + come)
            of = codes[moving]
            at = newest[unsigned(of)]
            if at < here:
                row = unsigned(count)
                group[unsigned(begin + count)], place[row], earlier[row], order[row] = of, where, at, came[moving]
                newest[unsigned(of)] = at = count
                count += 1
            first[moving] = begin + at
            come += 1
        while go < leave.size and leave[unsigned(go)] == where:
            moving = unsigned(go)
            of = codes[moving]
            at = newest[unsigned(of)]
            if at < here:
                row = unsigned(count)
                group[unsigned(begin + count)], place[row], earlier[row] = of, where, at
                order[row] = came[moving] + LEFT_FIRST
                newest[unsigned(of)] = at = count
                count += 1
            last[moving] = begin + at
            go += 1
    for event in range(old):
        first[event] = begin + count
    for event in range(leave.size, size):
        last[event] = begin + count
    return first, last, group[: begin + count], place[:count], order[:count], earlier[:count]


@kernel(CODES, INTS, INTS, INTS, CODES, INT, INT)
def output_rows(
    codes: Codes, enter: Ints, leave: Ints, limits: Ints, touched: Codes, groups: int, based: int
) -> tuple[Ints, Ints, Codes, Ints, Ints, Ints]:
    """A row for each group in each stretch between two outputs in which rows enter or leave, as `turn_rows`.

    Examples:
        >>> given = np.array([1, 0, 1], np.int32), np.array([4, 6]), np.array([6, 8]), np.array([7])
        >>> [each.tolist() for each in output_rows(*given, np.array([0], np.int32), 2, 0)]
        [[3, 0, 1], [1, 2, 3], [0, 1, 0], [0, 0, 1], [-1, -1, 0], [0, 1, 2]]
    """
    size, old, count = codes.size, codes.size - enter.size, touched.size
    first, last = np.empty(size, np.int64), np.empty(size, np.int64)
    edges = enter.size + leave.size + count
    group, moment = np.empty(edges + groups * based, np.int32), np.empty(edges, np.int64)
    earlier, order = np.empty(edges, np.int64), np.empty(edges, np.int64)
    touch, is_last = np.empty(edges, np.int64), np.zeros(edges, np.bool_)
    newest, seen, begin = np.empty(groups, np.int64), np.full(groups, -1), groups * based
    for each in range(begin):
        group[each] = each
    for each in range(count):
        group[begin + each], moment[each], earlier[each] = touched[each], 0, -1
        newest[unsigned(touched[each])], seen[unsigned(touched[each])], touch[each] = each, 0, each
    come, go, now = 0, 0, 0
    for edge in range(count, edges):
        comes = go == leave.size or (come < enter.size and enter[come] <= leave[go])
        event = old + come if comes else go
        place = enter[come] if comes else leave[go]
        while now < limits.size and place >= limits[now]:
            now += 1
        of = codes[unsigned(event)]
        if seen[unsigned(of)] != now:
            before = newest[unsigned(of)] if seen[unsigned(of)] >= 0 else -1
            group[unsigned(begin + count)], moment[unsigned(count)], earlier[unsigned(count)] = of, now, before
            newest[unsigned(of)], seen[unsigned(of)] = count, now
            count += 1
        at = newest[unsigned(of)]
        touch[unsigned(at)] = edge
        if comes:
            first[unsigned(event)] = begin + at
            come += 1
        else:
            last[unsigned(event)] = begin + at
            go += 1
    # Rows in order of what touched them last: there are few of them, and many edges.
    for each in range(count):
        is_last[unsigned(touch[each])], order[unsigned(touch[each])] = True, each
    placed = 0
    for edge in range(edges):
        if is_last[edge]:
            order[unsigned(placed)] = order[edge]
            placed += 1
    for event in range(old):
        first[event] = begin + count
    for event in range(leave.size, size):
        last[event] = begin + count
    return first, last, group[: begin + count], moment[:count], earlier[:count], order[:count]


@kernel(CODES, INTS, CODES, INTS, INTS, INT, INT)
def met_stretches(
    codes: Codes, places: Ints, of_codes: Codes, came: Ints, goes: Ints, gone: int, late: int
) -> tuple[Ints, Ints]:
    """The rows of a group that are there at some places, where those that came first go first.

    Examples:
        >>> zeros = np.zeros(3, np.int32)
        >>> found = met_stretches(zeros, np.array([2, 5, 6]), zeros, np.array([1, 2, 4]), np.array([5, 6, 9]), 0, 1)
        >>> [each.tolist() for each in found]
        [[0, 1, 2], [1, 3, 3]]
    """
    first, last = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    head, tail = 0, 0
    for at in range(codes.size):
        code, left, here = codes[at], places[at] - gone, places[at] - late
        while head < of_codes.size and (of_codes[head] < code or (of_codes[head] == code and goes[head] <= left)):
            head += 1
        while tail < of_codes.size and (of_codes[tail] < code or (of_codes[tail] == code and came[tail] <= here)):
            tail += 1
        first[at], last[at] = head, tail
    return first, last


def pairs_in_turn(
    order: Ints, own: Ints, first: Ints, count: Ints, place: Ints, lefts: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """The pairs of rows of two sides with stretches of rows of the other side, one row after the other.

    Examples:
        >>> given = np.array([1, 0]), np.array([0, 5]), np.array([7, 2]), np.array([1, 2]), np.array([9, 9])
        >>> [each.tolist() for each in pairs_in_turn(*given, 1)]
        [[2, 3, 0], [5, 5, 7], [9, 9, 9], [0, 1, 2]]
    """
    # Rows are far apart in memory: it takes a fifth of the time to fetch them all first, where no branch waits for one.
    mine, others, many, where = (take(each, order) for each in (own, first, count, place))
    return _pairs_in_order(order >= lefts, mine, others, many, where)


@kernel(BOOLS, INTS, INTS, INTS, INTS)
def _pairs_in_order(sides: Bools, own: Ints, first: Ints, count: Ints, place: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    size = count.sum()
    # So many pairs are written at once, and those behind a row's last one again by the next row: nothing branches.
    room = size + _AT_ONCE
    left, right = np.empty(room, np.int64), np.empty(room, np.int64)
    where, number = np.empty(room, np.int64), np.empty(room, np.int64)
    at, within, last = 0, 0, 0
    for row in range(count.size):
        mine, other, here, many = own[row], first[row], place[row], count[row]
        within = within if here == last else 0
        last = here
        # On the one side stands the row, on the other one row of the stretch after the other.
        is_right = np.int64(sides[row])
        is_left = 1 - is_right
        low, high = mine * is_left + other * is_right, mine * is_right + other * is_left
        for begin in range(0, many, _AT_ONCE):
            for pair in range(begin, begin + _AT_ONCE):
                to = unsigned(at + pair)
                left[to], right[to] = low + pair * is_right, high + pair * is_left
                where[to], number[to] = here, within + pair
        within += many
        at += many
    return left[:size], right[:size], where[:size], number[:size]


_AT_ONCE = 8
