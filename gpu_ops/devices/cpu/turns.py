"""Groups that change turn by turn, on the CPU: one walk over what enters and leaves, in its order."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INT, INTS, Codes, Ints, kernel, unsigned


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
