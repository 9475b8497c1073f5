"""Values that come and go, kept in sorted runs with weights: where those of some ranks stand."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INTS, Array, Codes, Ints, inlined, kernel


@kernel(CODES, INTS, INTS, INTS, CODES, INTS, INTS)
def runs_between(
    codes: Codes, values: Ints, sums: Ints, bounds: Ints, of_codes: Codes, low: Ints, high: Ints
) -> tuple[Ints, Ints, Ints]:
    """Where a group's values from one rank to another stand in each run.

    Per query a search in all runs at once: it halves the longest stretch in each round.

    Examples:
        >>> codes, values, sums = np.zeros(4, np.int32), np.array([3, 5, 9, 5]), np.array([2, 3, 4, -1])
        >>> some = np.zeros(1, np.int32), np.array([1]), np.array([3])
        >>> runs_between(codes, values, sums, np.array([0, 3, 4]), *some)
        (array([0, 3]), array([3, 4]), array([0]))
    """
    runs, queries = bounds.size - 1, of_codes.size
    begin, end = np.zeros(queries * runs, np.int64), np.zeros(queries * runs, np.int64)
    before = np.zeros(queries, np.int64)
    first, last, base = np.empty(runs, np.int64), np.empty(runs, np.int64), np.empty(runs, np.int64)
    left, right, middle = np.empty(runs, np.int64), np.empty(runs, np.int64), np.empty(runs, np.int64)
    for query in range(queries):
        if low[query] >= high[query]:
            continue
        for run in range(runs):
            first[run] = _from(codes, bounds[run], bounds[run + 1], of_codes[query])
            last[run] = _from(codes, first[run], bounds[run + 1], of_codes[query] + 1)
            base[run] = sums[first[run] - 1] if first[run] > bounds[run] else 0
        least = _at_rank(values, sums, first, last, base, low[query], left, right, middle)
        most = least
        if high[query] - 1 > low[query]:
            most = _at_rank(values, sums, first, last, base, high[query] - 1, left, right, middle)
        for run in range(runs):
            at = query * runs + run
            begin[at] = _from(values, first[run], last[run], least)
            end[at] = _after(values, begin[at], last[run], most)
            if begin[at] > first[run]:
                before[query] += sums[begin[at] - 1] - base[run]
    return begin, end, before


@inlined
def _at_rank(
    values: Ints, sums: Ints, first: Ints, last: Ints, base: Ints, rank: int, left: Ints, right: Ints, middle: Ints
) -> int:
    """The least value up to which there are more values than the given number."""
    for run in range(first.size):
        left[run], right[run] = first[run], last[run]
    found = 0
    while True:
        widest = 0
        for run in range(1, first.size):
            if right[run] - left[run] > right[widest] - left[widest]:
                widest = run
        if right[widest] <= left[widest]:
            return found
        value = values[(left[widest] + right[widest]) >> 1]
        total = 0
        for run in range(first.size):
            middle[run] = _after(values, left[run], right[run], value)
            if middle[run] > first[run]:
                total += sums[middle[run] - 1] - base[run]
        if total > rank:
            found = value
            for run in range(first.size):
                # No run has a value twice.
                right[run] = middle[run] - (middle[run] > left[run] and values[middle[run] - 1] == value)
        else:
            for run in range(first.size):
                left[run] = middle[run]


@inlined
def _from(values: Array, low: int, high: int, value: int) -> int:
    """The first place, from ``low`` on and before ``high``, of a value that is not less; ``high`` if all are."""
    while low < high:
        at = (low + high) >> 1
        if values[at] < value:
            low = at + 1
        else:
            high = at
    return low


@inlined
def _after(values: Ints, low: int, high: int, value: int) -> int:
    """The first place, likewise, of a value that is greater."""
    while low < high:
        at = (low + high) >> 1
        if values[at] <= value:
            low = at + 1
        else:
            high = at
    return low
