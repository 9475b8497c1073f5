"""Ranges of integers that hold a value, in array form: all rows search side by side."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from gpu_ops.devices.array.order import group_codes
from gpu_ops.devices.array.ranges import expand, keep, running_sums
from gpu_ops.devices.array.steps import search_pairs
from gpu_ops.devices.kernels import Array

_MOST = 1 << 24
"""About how many ranges are looked at together."""


def _prefixes(
    xp: Any, keys: Array, values: Array, bounds: Array, low: Array, high: Array, by_low: Array, by_high: Array
) -> tuple[Array, Array, Array, Array]:
    """(begin and end of each row's list, how many begin early enough, how many end late enough)."""
    known = keys >= 0
    key = xp.where(known, keys, xp.zeros_like(keys))
    begin, end = xp.take(bounds, key), xp.take(bounds, key + 1)
    end = xp.where(known, end, begin)
    codes = group_codes(bounds)
    early = search_pairs(codes, xp.take(low, by_low), key, values) - begin
    # The complement turns the order around, and no number overflows.
    late = search_pairs(codes, ~xp.take(high, by_high), key, ~values) - begin
    none = xp.zeros_like(begin)
    return begin, end, xp.where(known, early, none), xp.where(known, late, none)


def count_holding(
    keys: Array, values: Array, bounds: Array, low: Array, high: Array, by_low: Array, by_high: Array
) -> Array:
    """For each row how many ranges of its key hold its value: each range is on the right side with one bound."""
    xp = array_namespace(values)
    if not low.shape[0]:
        return xp.zeros_like(values)
    begin, end, early, late = _prefixes(xp, keys, values, bounds, low, high, by_low, by_high)
    return early + late - (end - begin)


def pairs_holding(
    keys: Array,
    values: Array,
    bounds: Array,
    low: Array,
    high: Array,
    by_low: Array,
    by_high: Array,
    counts: Array,
) -> tuple[Array, Array]:
    """For each row the ranges of its key that hold its value: of the shorter list, those whose other bound fits."""
    xp = array_namespace(values)
    some = keep(counts > 0)
    if not some.shape[0]:
        return some, some
    keys, values = xp.take(keys, some), xp.take(values, some)
    begin, _, early, late = _prefixes(xp, keys, values, bounds, low, high, by_low, by_high)
    is_early = early <= late
    looked = xp.where(is_early, early, late)
    rows, entries, at = [], [], 0
    sums = running_sums(xp, looked)
    while at < some.shape[0]:
        upto = max(at + 1, int(xp.searchsorted(sums, sums[at : at + 1] + _MOST, side="right")[0]) - 1)
        source, offset = expand(looked[at:upto])
        source = source + at
        place = xp.take(begin, source) + offset
        entry = xp.where(xp.take(is_early, source), xp.take(by_low, place), xp.take(by_high, place))
        value = xp.take(values, source)
        held = keep((xp.take(low, entry) <= value) & (value <= xp.take(high, entry)))
        source, entry = xp.take(source, held), xp.take(entry, held)
        order = xp.argsort(source * low.shape[0] + entry)
        rows.append(xp.take(some, xp.take(source, order)))
        entries.append(xp.take(entry, order))
        at = upto
    return xp.concat(rows), xp.concat(entries)
