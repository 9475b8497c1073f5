"""Ranges of integers that hold a value, on the CPU: which entries of a key's list want each row."""

from __future__ import annotations

import numpy as np

from gpu_ops.devices.cpu.compiling import CODES, INTS, Codes, Ints, inlined, kernel, unsigned

_FEW = 32
"""A list of so few entries is read through: that takes no longer than two searches."""


@inlined
def _upto(bounds: Ints, order: Ints, begin: int, end: int, value: int) -> int:
    """Where in a list by rising bounds the first one stands that is greater than a value."""
    low, high = begin, end
    while low < high:
        middle = (low + high) >> 1
        if bounds[unsigned(order[unsigned(middle)])] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _downto(bounds: Ints, order: Ints, begin: int, end: int, value: int) -> int:
    """Where in a list by falling bounds the first one stands that is less than a value."""
    low, high = begin, end
    while low < high:
        middle = (low + high) >> 1
        if bounds[unsigned(order[unsigned(middle)])] >= value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(CODES, INTS, INTS, INTS, INTS, INTS, INTS)
def count_holding(keys: Codes, values: Ints, bounds: Ints, low: Ints, high: Ints, by_low: Ints, by_high: Ints) -> Ints:
    """For each row how many ranges of its key hold its value.

    Of each range one bound at least is on the right side of a value, so those that hold it are counted by two searches.

    Examples:
        >>> bounds, low, high = np.array([0, 2]), np.array([5, 1]), np.array([9, 6])
        >>> keys, values = np.zeros(3, np.int32), np.array([0, 4, 6])
        >>> count_holding(keys, values, bounds, low, high, np.array([1, 0]), np.array([0, 1]))
        array([0, 1, 2])
    """
    counts = np.zeros(keys.size, np.int64)
    for row in range(keys.size):
        key = keys[row]
        if key < 0:
            continue
        begin, end, value = bounds[unsigned(key)], bounds[unsigned(key + 1)], values[row]
        if end - begin <= _FEW:
            count = 0
            for at in range(begin, end):
                count += (low[unsigned(at)] <= value) & (value <= high[unsigned(at)])
        else:
            count = _upto(low, by_low, begin, end, value) + _downto(high, by_high, begin, end, value) - begin - end
        counts[row] = count
    return counts


@kernel(CODES, INTS, INTS, INTS, INTS, INTS, INTS, INTS)
def pairs_holding(
    keys: Codes, values: Ints, bounds: Ints, low: Ints, high: Ints, by_low: Ints, by_high: Ints, counts: Ints
) -> tuple[Ints, Ints]:
    """For each row the ranges of its key that hold its value.

    A list is read through in its order, or else the shorter one of those that begin early enough and of those that end
    late enough, which is then sorted: whichever is less work.

    Examples:
        >>> bounds, low, high = np.array([0, 2]), np.array([5, 1]), np.array([9, 6])
        >>> keys, values = np.zeros(3, np.int32), np.array([0, 4, 6])
        >>> pairs_holding(keys, values, bounds, low, high, np.array([1, 0]), np.array([0, 1]), np.array([0, 1, 2]))
        (array([1, 2, 2]), array([1, 0, 1]))
    """
    total = 0
    for row in range(keys.size):
        total += counts[row]
    rows, entries = np.empty(total, np.int64), np.empty(total + 1, np.int64)  # one is written before it is kept
    place = 0
    for row in range(keys.size):
        count = counts[row]
        if count == 0:
            continue
        key, value, first = keys[row], values[row], place
        begin, end = bounds[unsigned(key)], bounds[unsigned(key + 1)]
        early, late = end, end
        if end - begin > _FEW:
            early = _upto(low, by_low, begin, end, value)
            late = _downto(high, by_high, begin, end, value)
        if 8 * min(early - begin, late - begin) >= end - begin:
            for at in range(begin, end):
                entries[unsigned(place)] = at
                place += (low[unsigned(at)] <= value) & (value <= high[unsigned(at)])
        else:
            for at in range(begin, min(early, late)):
                entry = by_low[unsigned(at)] if early <= late else by_high[unsigned(at)]
                entries[unsigned(place)] = entry
                place += (low[unsigned(entry)] <= value) & (value <= high[unsigned(entry)])
            entries[first:place].sort()
        for at in range(first, place):
            rows[unsigned(at)] = row
    return rows, entries[:total]
