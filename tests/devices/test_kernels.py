"""Kernels: one table of what each must give, by definition, run on every device.

The references say literally what a kernel's description says, number by number. The devices are the CPU, the GPU's
kernels on the stand-in for CuPy and, where it has what they need, on array-api-strict, and a GPU where there is one.
All must give the same bytes.
"""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import choose, gpu_refusal
from gpu_ops.devices.array import kernels as array_kernels
from gpu_ops.devices.cpu import kernels as cpu
from gpu_ops.devices.cpu import statistics
from gpu_ops.devices.kernels import Kernels

SPAN = MAX_TIME - MIN_TIME
LEAST = -(1 << 63)

# Devices


@dataclass(frozen=True)
class Port:
    """Kernels, and the way to them and back for NumPy arrays."""

    kernels: Kernels
    to: Callable[[Any], Any]
    back: Callable[[Any], Any]

    def call(self, name: str, *arguments: Any) -> Any:
        return _map(self.back, getattr(self.kernels, name)(*_map(self.to, arguments)))


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_map(function, part) for part in value)
    return value if isinstance(value, (bool, int, float)) else function(value)


def _read_only(values: Any) -> Any:
    # Arrow's buffers are; and a kernel that writes into its input is caught.
    values.flags.writeable = False
    return values


def _strict_back(values: Any) -> Any:
    return values if isinstance(values, np.ndarray) else np.asarray(values)


def _port(name: str) -> Port:
    if name == "strict":
        return Port(array_kernels, array_api_strict.asarray, _strict_back)
    columns = choose(name).columns
    return Port(choose(name).kernels, lambda values: columns.array(_read_only(values)), columns.host)


GPU = pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(gpu_refusal() is not None, reason="no GPU")])
PORTS = ["cpu", "array", "strict", GPU]

ASSIGNS = "array-api-strict assigns by no array of indices"
VIEWS = "array-api-strict shows no float's bits"
NOT_STRICT = {
    "axis": ASSIGNS,
    "best_rows": ASSIGNS,
    "partition": "array-api-strict has another name for the host",
    "range_max": ASSIGNS,
    "timed_batches": ASSIGNS,
    "mean_limbs": "array-api-strict has no ldexp",
    "reached": ASSIGNS,
    "step_axis": ASSIGNS,
    "stitch_order": ASSIGNS,
    "float_limbs": VIEWS,
    "limb_plan": VIEWS,
    "order_float": VIEWS,
    "round_limbs": "array-api-strict has no ldexp",
    "square_limbs": VIEWS,
    "unorder_float": VIEWS,
    "variance": "array-api-strict has no ldexp",
}

# Inputs


def ints(values: Any) -> Any:
    return np.array(values, np.int64)


def codes_of(values: Any) -> Any:
    return np.array(values, np.int32)


ANY_INT = st.one_of(st.integers(-9, 9), st.integers(LEAST, -LEAST - 1), st.sampled_from([LEAST, -LEAST - 1]))
TIME = st.one_of(st.integers(0, 9), st.integers(MIN_TIME, MAX_TIME - 1), st.sampled_from([MIN_TIME, MAX_TIME - 1]))
FINITE = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1000, 1000),
    st.integers(-9, 9).map(float),
    st.integers(-(1 << 53), 1 << 53).map(lambda whole: math.ldexp(whole, -1074)),
    st.integers(-(1 << 53), 1 << 53).map(lambda whole: math.ldexp(whole, 970)),
)
FLOAT = st.one_of(FINITE, st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, -0.0]))


@st.composite
def coded(draw: st.DrawFn) -> tuple[Any, int, Any]:
    """(codes, groups, start) in any order; some groups may be empty."""
    groups = draw(st.integers(1, 4))
    events = draw(st.lists(st.tuples(st.integers(0, groups - 1), TIME), max_size=50))
    if draw(st.booleans()):
        events.sort(key=lambda event: event[1])
    return codes_of([event[0] for event in events]), groups, ints([event[1] for event in events])


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """(codes, start, end) in order of group and start."""
    event = st.one_of(
        st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 5)),
        st.tuples(st.integers(0, 2), TIME, st.integers(1, SPAN)),
    )
    events = draw(st.lists(event, max_size=50))
    events.sort(key=lambda event: event[:2])
    start = [event[1] for event in events]
    end = [min(event[1] + event[2], MAX_TIME) for event in events]
    return codes_of([event[0] for event in events]), ints(start), ints(end)


BEFORE, AFTER = -(1 << 62), 1 << 62


@st.composite
def a_step(draw: st.DrawFn) -> tuple[Any, ...]:
    """(codes, low, high, earlier, known, force, before, after) of a step; a forced boundary is after all others."""
    groups = draw(st.integers(1, 3))
    event = st.tuples(st.integers(0, groups - 1), st.integers(0, 9), st.integers(1, 5) | st.just(AFTER))
    events = draw(st.lists(event, max_size=30))
    known = draw(st.lists(st.integers(-3, 0) | st.just(BEFORE), min_size=groups, max_size=groups))
    force = draw(st.sampled_from([14, 20, AFTER]))
    low = [event[1] for event in events]
    high = [AFTER if event[2] == AFTER else event[1] + event[2] for event in events]
    earlier = draw(st.integers(0, len(events)))
    return codes_of([event[0] for event in events]), ints(low), ints(high), earlier, ints(known), force, BEFORE, AFTER


def step_boundaries(
    codes: Any, low: Any, high: Any, earlier: int, known: Any, force: int, before: int, after: int
) -> tuple[Any, ...]:
    began = [before if event < earlier else int(low[event]) for event in range(len(codes))]
    of_group = [
        sorted(
            {before, after, force, int(boundary)}
            | {p for e, g in enumerate(codes) if g == group for p in (began[e], int(high[e]))}
        )
        for group, boundary in enumerate(known)
    ]
    axis = [(group, place) for group, places in enumerate(of_group) for place in places]
    slots = [at for at, (_, place) in enumerate(axis) if place != after]
    return (
        codes_of([group for group, _ in axis]),
        ints([place for _, place in axis]),
        ints([axis.index((g, p)) for g, p in zip(codes, began, strict=True)]),
        ints([axis.index((g, p)) for g, p in zip(codes, high, strict=True)]),
        ints(slots),
        ints([axis[slot][0] for slot in slots]),
        ints([at for at, slot in enumerate(slots) if axis[slot][1] == before]),
        ints([at for at, slot in enumerate(slots) if axis[slot + 1][1] == after]),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any, Any, Any]:
    """(codes, places, of_codes, of_places): rows in order, and pairs to look for, which may be in order too."""
    pair = st.tuples(st.integers(0, 4), st.one_of(st.integers(0, 5), ANY_INT))
    rows, wanted = sorted(draw(st.lists(pair, max_size=40))), draw(st.lists(pair, max_size=12))
    if draw(st.booleans()):
        wanted.sort()
    return tuple(of([pair[at] for pair in each]) for each in (rows, wanted) for at, of in ((0, codes_of), (1, ints)))


def first_greater(codes: Any, places: Any, of_codes: Any, of_places: Any) -> Any:
    rows = list(zip(codes, places, strict=True))
    return ints([sum(row <= pair for row in rows) for pair in zip(of_codes, of_places, strict=True)])


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Any, Any, int]:
    """(first, last, size); some are empty; both may ascend."""
    size = draw(st.integers(0, 20))
    pairs = draw(st.lists(st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted), max_size=30))
    first, last = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if draw(st.booleans()):
        first.sort()
        last.sort()
    return ints(first), ints(last), size


@st.composite
def ranges_at_slots(draw: st.DrawFn) -> tuple[Any, Any, int, Any]:
    """(first, last, size, slots): some of the slots are asked for."""
    first, last, size = draw(ranges())
    asked = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return first, last, size, ints([slot for slot, wanted in enumerate(asked) if wanted])


@st.composite
def ranges_with_values(draw: st.DrawFn) -> tuple[Any, Any, Any, int, Any]:
    first, last, size, slots = draw(ranges_at_slots())
    return ints(draw(st.lists(ANY_INT, min_size=len(first), max_size=len(first)))), first, last, size, slots


@st.composite
def ranks_at_slots(draw: st.DrawFn) -> tuple[Any, Any, Any, int, Any, Any]:
    """(ranks, first, last, size, slots, k): slots may be asked for several times."""
    first, last, size, slots = draw(ranges_at_slots())
    ranks = draw(st.lists(st.integers(0, 9) | st.integers(0, 99), min_size=len(first), max_size=len(first)))
    often = draw(st.lists(st.integers(0, 3), min_size=len(slots), max_size=len(slots)))
    slots = np.repeat(slots, often)
    k = draw(st.lists(st.integers(-1, 9), min_size=len(slots), max_size=len(slots)))
    return ints(ranks), first, last, size, slots, ints(k)


@st.composite
def coded_ranges(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """(codes, first, last): the ranges are not empty."""
    some = st.tuples(st.integers(0, 3) | st.integers(0, 1 << 40), st.integers(0, 20), st.integers(1, 9))
    events = draw(st.lists(some, max_size=30))
    if draw(st.booleans()):
        events.sort(key=lambda event: event[1])
    return tuple(
        ints(each) for each in ([c for c, _, _ in events], [f for _, f, _ in events], [f + n for _, f, n in events])
    )


@st.composite
def axes(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """(axis_code, axis_time, slots): each slot has a boundary after it."""
    size = draw(st.integers(1, 9))
    slots = ints(sorted(draw(st.sets(st.integers(0, size - 1)))))
    return np.arange(size + 1, dtype=np.int32), ints(draw(st.lists(TIME, min_size=size + 1, max_size=size + 1))), slots


@st.composite
def grids(draw: st.DrawFn) -> tuple[Any, Any, int, int, int]:
    """(start, end, size, hop, align)."""
    _, start, end = draw(lifetimes())
    length = st.one_of(st.integers(1, 9), st.integers(1, SPAN), st.just(SPAN))
    align = st.one_of(st.integers(-9, 9), TIME)
    return start, end, draw(length), draw(length), draw(align)


@st.composite
def dense(draw: st.DrawFn) -> tuple[Any, Any, Any, Any, int, int]:
    """(codes, first, last, values, groups, windows)."""
    first, last, windows = draw(ranges())
    values = draw(st.lists(ANY_INT, min_size=len(first), max_size=len(first)))
    groups = draw(st.integers(1, 3))
    codes = draw(st.lists(st.integers(0, groups - 1), min_size=len(first), max_size=len(first)))
    return codes_of(codes), first, last, ints(values), groups, windows


@st.composite
def floats_with_plan(draw: st.DrawFn) -> tuple[Any, int, int, int]:
    values = np.array(draw(st.lists(FINITE, max_size=12)), np.float64)
    return values, *plan(values, draw(st.integers(max(len(values), 1), 1 << 40)))


@st.composite
def limb_sums(draw: st.DrawFn) -> tuple[tuple[Any, ...], int, int]:
    """(limb sums, limb_bits, lowest_exponent)."""
    limb_bits = 2 * draw(st.integers(11, 26))
    sums = st.one_of(st.integers(-3, 3), st.integers(-(1 << 62) + 1, (1 << 62) - 1), st.integers(-(1 << 53), 1 << 53))
    columns = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(sums, min_size=columns, max_size=columns), min_size=1, max_size=5))
    lowest = draw(st.one_of(st.integers(-1074, 971), st.sampled_from([-1074, 0, 900])))
    return tuple(ints(column) for column in zip(*rows, strict=True)), limb_bits, lowest


@st.composite
def sums_and_counts(draw: st.DrawFn) -> tuple[tuple[Any, ...], Any, int, int, int]:
    """(limb sums, counts, limb_bits, lowest_exponent, places): any, and such that the mean is near a middle."""
    sums, limb_bits, lowest = draw(limb_sums())
    places = draw(st.integers(0, 38)) if draw(st.booleans()) else 0
    if places:
        limb_bits, lowest = 32, 0
    most = 1 << (62 - limb_bits)
    count = st.one_of(st.integers(1, most), st.integers(1, min(9, most)), st.just(most))
    counts = draw(st.lists(count, min_size=len(sums[0]), max_size=len(sums[0])))
    if draw(st.booleans()):
        odd = st.builds(
            lambda sign, head: sign * (2 * head + 1), st.sampled_from([-1, 1]), st.integers(1 << 52, (1 << 53) - 1)
        )
        off = st.integers(-1, 1)
        exact = [draw(odd) * count * 10**places + draw(off) for count in counts]
        mask, size = (1 << limb_bits) - 1, 1
        while max(map(abs, exact)) >> limb_bits * (size - 1) >= 1 << 62:
            size += 1
        low = [ints([(each >> limb_bits * at) & mask for each in exact]) for at in range(size - 1)]
        sums = (*low, ints([each >> limb_bits * (size - 1) for each in exact]))
    return sums, ints(counts), limb_bits, lowest, places


@st.composite
def moments(draw: st.DrawFn) -> tuple[Any, tuple[Any, ...], tuple[Any, ...], int, int, int]:
    """The exact sums of some lists of floats, as `variance` takes them."""
    # Of exponents near one another: the array form takes a time that grows with the square of the bits in between.
    whole = st.integers(-(1 << 53), 1 << 53)
    exponents = [st.just(exponent) for exponent in (-1074, 0, 970)] + [st.integers(-90, 90)]
    floats = st.builds(math.ldexp, st.one_of(st.integers(-9, 9), whole), draw(st.sampled_from(exponents)))
    lists = draw(st.lists(st.lists(floats, max_size=4), min_size=1, max_size=3))
    return exact_moments(lists, draw(st.integers(0, 1)))


def exact_moments(lists: list[list[float]], ddof: int) -> tuple[Any, tuple[Any, ...], tuple[Any, ...], int, int, int]:
    together = np.array([value for values in lists for value in values], np.float64)
    limb_bits, lowest, limbs = plan(together, max(len(together), 1))
    sums = [
        [sum(digits(value, limb_bits, lowest, limbs)[at] for value in values) for values in lists]
        for at in range(limbs)
    ]
    count = squares_needed(together, limb_bits, lowest)
    squares = [
        [sum(square_digits(value, limb_bits, lowest, count)[at] for value in values) for values in lists]
        for at in range(count)
    ]
    counts = ints([len(values) for values in lists])
    return counts, tuple(map(ints, sums)), tuple(map(ints, squares)), limb_bits, lowest, ddof


DECIMAL = st.one_of(st.integers(-9, 9), st.integers(-(10**38), 10**38))
SUMS = st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1, max_size=5)
LOW_SUMS = st.lists(st.integers(0, 1 << 62), min_size=5, max_size=5)
HIGH_SUMS = st.lists(st.one_of(st.integers(-3, 3), st.integers(-(1 << 33), 1 << 33)), min_size=5, max_size=5)


def words(values: list[int]) -> tuple[Any, Any]:
    low = [(value & (1 << 64) - 1) - (value & 1 << 63) * 2 for value in values]
    return ints(low), ints([value >> 64 for value in values])


def int_or_unsigned() -> st.SearchStrategy[Any]:
    unsigned = st.lists(st.integers(0, (1 << 64) - 1), max_size=9).map(lambda values: np.array(values, np.uint64))
    return st.one_of(st.lists(ANY_INT, max_size=9).map(ints), unsigned)


# References


def order_by(codes: Any, groups: int, start: Any) -> Any:
    del groups
    return ints(sorted(range(len(codes)), key=lambda event: (codes[event], start[event])))


def partitioned(codes: Any, groups: int, arrays: tuple[Any, ...]) -> Any:
    order = order_by(codes, groups, arrays[0])
    bounds = ints([sum(code < group for code in codes) for group in range(groups + 1)])
    return codes[order], bounds, tuple(values[order] for values in arrays)


def boundaries(codes: Any, start: Any, end: Any) -> Any:
    times = sorted({*zip(codes, start, strict=True), *zip(codes, end, strict=True)})
    at = {time: slot for slot, time in enumerate(times)}
    first = [at[time] for time in zip(codes, start, strict=True)]
    last = [at[time] for time in zip(codes, end, strict=True)]
    return codes_of([time[0] for time in times]), ints([time[1] for time in times]), ints(first), ints(last)


def stitched(codes: Any, start: Any, end: Any) -> Any:
    """In order of time: what begins, in order of its end, goes on with what ended then, the earliest begun first."""
    chains: dict[int, int] = {}  # by the last event so far: the first event
    waiting: dict[tuple[int, int], list[int]] = {}
    for event in sorted(range(len(codes)), key=lambda event: (codes[event], start[event], end[event])):
        ended = waiting.get((codes[event], start[event]), [])
        root = event
        if ended:
            before = min(ended, key=lambda other: (start[other], other))
            ended.remove(before)
            root = chains.pop(before)
        chains[event] = root
        waiting.setdefault((codes[event], end[event]), []).append(event)
    made = sorted((root, last) for last, root in chains.items())
    return ints([root for root, _ in made]), ints([last for _, last in made])


def over_slots(fold: Callable[[list[int]], int], values: Any, first: Any, last: Any, size: int, slots: Any) -> Any:
    assert all(0 <= slot < size for slot in slots)
    held = [[int(v) for v, a, b in zip(values, first, last, strict=True) if a <= slot < b] for slot in slots]
    return ints([fold(values) for values in held])


def kth_ranks(ranks: Any, first: Any, last: Any, size: int, slots: Any, k: Any) -> Any:
    found = []
    for slot, before in zip(slots, k, strict=True):
        held = sorted(int(rank) for rank, a, b in zip(ranks, first, last, strict=True) if a <= slot < b)
        found.append(held[before] if 0 <= before < len(held) else -1)
    return ints(found)


def merged(codes: Any, first: Any, last: Any) -> tuple[Any, Any, Any]:
    made: list[list[int]] = []
    newest: dict[int, list[int]] = {}
    for event in sorted(range(len(codes)), key=lambda event: int(first[event])):
        before = newest.get(int(codes[event]))
        if before is not None and first[event] <= before[2]:
            before[2] = max(before[2], int(last[event]))
        else:
            newest[int(codes[event])] = [event, int(first[event]), int(last[event])]
            made.append(newest[int(codes[event])])
    events, begins, ends = (ints([row[at] for row in made]) for at in range(3))
    return events, begins, ends


def held_slots(first: Any, last: Any, size: int) -> tuple[Any, Any]:
    counts = over_slots(len, np.zeros(len(first)), first, last, size, range(size))
    return ints([slot for slot in range(size) if counts[slot]]), ints([count for count in counts if count])


def held_places(counts: Any, groups: int, start: int, hop: int) -> tuple[Any, Any, Any, Any]:
    held = [slot for slot, count in enumerate(counts) if count]
    begins = [start + slot // groups * hop for slot in held]
    return ints(held), ints(begins), np.array([slot % groups for slot in held], np.int32), counts[held]


def wrapped(values: list[int]) -> int:
    return (sum(values) + (1 << 63)) % (1 << 64) - (1 << 63)


def overlapped(start: Any, end: Any, size: int, hop: int, align: int) -> Any:
    """The windows k that an event overlaps: ``start < align + k hop + size`` and ``end > align + k hop``."""
    first = [math.floor(Fraction(int(s) - align - size, hop)) + 1 for s in start]
    last = [math.ceil(Fraction(int(e) - align, hop)) for e in end]
    for s, e, k, above in zip(start, end, first, last, strict=True):
        assert s < align + k * hop + size
        assert s >= align + (k - 1) * hop + size
        assert e > align + (above - 1) * hop
        assert e <= align + above * hop
        assert k <= above
    return ints(first), ints(last)


def by_start(start: Any, size: int, hop: int, align: int) -> Any:
    first = [math.ceil(Fraction(int(s) - align, hop)) for s in start]
    last = [math.ceil(Fraction(int(s) + size - align, hop)) for s in start]
    return ints(first), ints(last)


def dense_windows(counted: bool, codes: Any, first: Any, last: Any, values: Any, groups: int, windows: int) -> Any:  # noqa: FBT001
    slots = [
        [
            1 if counted else int(v)
            for c, a, b, v in zip(codes, first, last, values, strict=True)
            if c == group and a <= window < b
        ]
        for window in range(windows)
        for group in range(groups)
    ]
    return ints([wrapped(slot) for slot in slots])


def plan(values: Any, n: int) -> tuple[int, int, int]:
    limb_bits = max(bits for bits in range(0, 54, 2) if bits <= 52 and n << bits <= 1 << 62)
    ratios = [abs(float(value)).as_integer_ratio() for value in values if value]
    if not ratios:
        return limb_bits, 0, 1
    # A denominator is a power of two, and 1 where the numerator is even.
    lowest = min((above & -above).bit_length() - below.bit_length() for above, below in ratios)
    highest = max(above.bit_length() + 1 - below.bit_length() for above, below in ratios)
    return limb_bits, lowest, math.ceil((highest - lowest) / limb_bits)


def digits(value: float, limb_bits: int, lowest: int, limbs: int) -> list[int]:
    whole = Fraction(value) / Fraction(2) ** lowest
    assert whole.denominator == 1
    assert abs(whole) < 1 << limb_bits * limbs
    sign = -1 if whole < 0 else 1
    return [sign * ((abs(int(whole)) >> at * limb_bits) % (1 << limb_bits)) for at in range(limbs)]


def square_digits(value: float, limb_bits: int, lowest: int, limbs: int) -> list[int]:
    whole = int(Fraction(value) ** 2 / Fraction(2) ** (2 * lowest))
    return [(whole >> at * limb_bits) % (1 << limb_bits) for at in range(limbs)]


def squares_needed(values: Any, limb_bits: int, lowest: int) -> int:
    greatest = max((abs(float(value)) for value in values), default=0.0)
    return max(1, -(-2 * (math.frexp(greatest)[1] - lowest) // limb_bits)) if greatest else 1


def in_limbs(values: Any, limb_bits: int, lowest: int, limbs: int) -> Any:
    rows = [digits(float(value), limb_bits, lowest, limbs) for value in values]
    return tuple(ints([row[at] for row in rows]) for at in range(limbs))


def squares_in_limbs(values: Any, limb_bits: int, lowest: int) -> Any:
    limbs = squares_needed(values, limb_bits, lowest)
    rows = [square_digits(float(value), limb_bits, lowest, limbs) for value in values]
    return tuple(ints([row[at] for row in rows]) for at in range(limbs))


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)  # Python rounds a fraction once, half to even
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def total(sums: tuple[Any, ...], limb_bits: int, at: int) -> int:
    return sum(int(limb[at]) << place * limb_bits for place, limb in enumerate(sums))


def rounded(sums: tuple[Any, ...], limb_bits: int, lowest: int) -> Any:
    return np.array([nearest(total(sums, limb_bits, at) * Fraction(2) ** lowest) for at in range(len(sums[0]))])


def means(sums: tuple[Any, ...], counts: Any, limb_bits: int, lowest: int, places: int) -> Any:
    unit = Fraction(2) ** lowest / 10**places
    return np.array([nearest(total(sums, limb_bits, at) * unit / n) for at, n in enumerate(map(int, counts))])


def variances(
    counts: Any, sums: tuple[Any, ...], squares: tuple[Any, ...], limb_bits: int, lowest: int, ddof: int
) -> Any:
    made = []
    for at, n in enumerate(map(int, counts)):
        if n <= ddof:
            made.append(math.nan)
            continue
        spread = n * total(squares, limb_bits, at) - total(sums, limb_bits, at) ** 2
        scale = max(spread.bit_length() - 53, 0)
        numerator = float(Fraction(spread, 1 << scale))
        made.append(scaled(numerator / (n * (n - ddof)), scale + 2 * lowest))
    return np.array(made)


def scaled(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def joined(least: int, above: int, dtype: Any, low: Any, high: Any) -> Any:
    sums = [int(b) * (1 << 32) + int(a) for a, b in zip(low, high, strict=True)]
    values = np.array([(value - least) % (1 << 64) + least for value in sums], dtype)
    return values, np.array([not least <= value < above for value in sums])


def joined_decimals(sums: tuple[Any, ...], precision: int) -> Any:
    totals = [total(sums, 32, at) for at in range(len(sums[0]))]
    low, high = words([(value + (1 << 127)) % (1 << 128) - (1 << 127) for value in totals])
    return low, high, np.array([abs(value) >= 10**precision for value in totals])


def codes_of_floats(values: Any) -> Any:
    made = []
    for value in map(float, values):
        bits = struct.unpack("<q", struct.pack("<d", abs(value)))[0]
        made.append(0x7FF8 << 48 if math.isnan(value) else bits if value >= 0 else -bits)
    return ints(made)


def floats_of_codes(codes: Any) -> Any:
    made = [math.copysign(struct.unpack("<d", struct.pack("<q", abs(code)))[0], code or 1) for code in map(int, codes)]
    return np.array([math.nan if math.isnan(value) else value for value in made])


def limbs_of_32(value: int, limbs: int) -> list[int]:
    """The last holds the sign."""
    return [(value >> 32 * at) % (1 << 32) for at in range(limbs - 1)] + [value >> 32 * (limbs - 1)]


def columns(rows: list[list[int]], count: int) -> Any:
    return tuple(ints([row[at] for row in rows]) for at in range(count))


@dataclass(frozen=True)
class Contract:
    """A kernel's inputs, and what it must give."""

    inputs: st.SearchStrategy[Any]
    reference: Callable[..., Any]


def dense_by(kernel: str, port: Port, codes: Any, first: Any, last: Any, values: Any, groups: int, windows: int) -> Any:
    """In two calls, as blocks of events come."""
    kernels, to = port.kernels, port.to
    grid = kernels.dense_zeros(to(first), groups, windows)
    for part in (slice(0, len(codes) // 3), slice(len(codes) // 3, None)):
        arrays = [
            to(each[part].copy())
            for each in ((codes, first, last, values) if kernel == "dense_sum" else (codes, first, last))
        ]
        grid = getattr(kernels, kernel)(grid, *arrays, groups)
    return port.back(kernels.dense_totals(grid, groups))


@st.composite
def paths(draw: st.DrawFn) -> tuple[Any, Any]:
    """(following, roots): every path goes on to later places, and no two that begin at roots meet."""
    size = draw(st.integers(0, 12))
    owners = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    following = [
        next((after for after in range(at + 1, size) if owners[after] == owners[at]), size) for at in range(size)
    ]
    roots = [owners.index(owner) for owner in (0, 2) if owner in owners]
    return ints(following), ints(roots)


def reachable(following: Any, roots: Any) -> Any:
    found = np.zeros(len(following), np.bool_)
    for root in roots:
        at = root
        while at < len(following):
            found[at] = True
            at = following[at]
    return found


@st.composite
def rivals(draw: st.DrawFn) -> tuple[Any, Any, Any, int]:
    codes = sorted(draw(st.lists(st.integers(0, 3), max_size=12)))
    ranks = [draw(st.integers(-2, 3)) for _ in codes]
    pairs = [(code, draw(st.integers(0, 2))) for code in codes] if draw(st.booleans()) else []
    unique = [sorted(set(pairs)).index(pair) for pair in pairs]
    return codes_of(codes), ints(ranks), ints(unique), draw(st.integers(1, 4))


def kept_rows(codes: Any, ranks: Any, unique: Any, count: int) -> Any:
    left = np.full(len(codes), len(codes))
    for code in set(codes.tolist()):
        held: list[int] = []
        for row in np.flatnonzero(codes == code).tolist():
            for other in [each for each in held if len(unique) and unique[each] == unique[row]]:
                left[other] = row
                held.remove(other)
            held.append(row)
            if len(held) > count:
                worst = min(held, key=lambda each: (ranks[each], each))
                left[worst] = row
                held.remove(worst)
    return left


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, Any, Any, Any, int, int, int]:
    groups = draw(st.lists(st.lists(st.integers(0, 30), max_size=8).map(sorted), max_size=3))
    skipped = [draw(st.integers(0, len(group))) for group in groups]
    edges = [0, *np.cumsum([len(group) for group in groups], dtype=np.int64).tolist()]
    begins = [edge + skip for edge, skip in zip(edges, skipped, strict=False)]
    closed = [draw(st.sampled_from([1 << 62, -9, -4, 0])) for _ in groups]
    start = [time for group in groups for time in group]
    span, count, turns = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 1 << 62]))
    return ints(start), ints(begins), ints(edges[1:]), ints(closed), span, count, turns


def clocked(start: Any, begins: Any, ends: Any, closed: Any, span: int, count: int, turns: int) -> Any:
    over = np.full(len(start), LEAST)
    for begin, end, last in zip(begins.tolist(), ends.tolist(), closed.tolist(), strict=True):
        # The clock, and how many times it is set again should it run out with nothing in between.
        clock, again, held = (None, 0, 0) if last == 1 << 62 else (last + span, turns - 1, 0)
        for row in range(begin, end):
            while clock is not None and start[row] >= clock:
                again = turns if held else again
                clock, again, held = (clock + span, again - 1, 0) if again else (None, 0, 0)
            if held == 0:
                clock = int(start[row]) + span if clock is None else clock
                over[row] = clock
            held += 1
            if held == count:
                clock, again, held = int(start[row]) + span, turns - 1, 0
    return over


CONTRACTS = {
    "ascends": Contract(
        st.lists(ANY_INT, max_size=5).map(lambda values: (ints(values),)), lambda values: list(values) == sorted(values)
    ),
    "axis": Contract(lifetimes(), boundaries),
    "dense_slots": Contract(
        st.tuples(st.integers(1, 3), st.integers(0, 4)).flatmap(
            lambda shape: st.tuples(
                st.lists(st.integers(0, 2), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(ints),
                st.just(shape[0]),
                st.integers(-5, 5),
                st.integers(1, 7),
            )
        ),
        held_places,
    ),
    "exact_limbs_decimal": Contract(
        st.lists(DECIMAL, max_size=9).map(words),
        lambda low, high: columns(
            [limbs_of_32(int(b) * (1 << 64) + int(a) % (1 << 64), 4) for a, b in zip(low, high, strict=True)], 4
        ),
    ),
    "exact_limbs_int": Contract(
        int_or_unsigned().map(lambda values: (values,)),
        lambda values: columns([limbs_of_32(int(value), 2) for value in values], 2),
    ),
    "expand": Contract(
        st.lists(st.integers(0, 4), max_size=9).map(lambda counts: (ints(counts),)),
        lambda counts: (
            ints([at for at, count in enumerate(counts) for _ in range(count)]),
            ints([offset for count in counts for offset in range(count)]),
        ),
    ),
    "extent": Contract(
        st.lists(ANY_INT, min_size=1, max_size=5).map(lambda values: (ints(values),)),
        lambda values: (int(min(values)), int(max(values))),
    ),
    "float_limbs": Contract(floats_with_plan(), in_limbs),
    "grid_ranges": Contract(grids(), overlapped),
    "grid_ranges_by_start": Contract(grids().map(lambda grid: (grid[0], *grid[2:])), by_start),
    "group_bounds": Contract(
        coded().map(lambda events: events[:2]), lambda codes, groups: partitioned(codes, groups, (codes,))[1]
    ),
    "group_codes": Contract(
        st.lists(st.integers(0, 3), min_size=1, max_size=6).map(lambda steps: (np.cumsum(ints(steps)),)),
        lambda bounds: codes_of([group for group in range(len(bounds) - 1) for _ in range(*bounds[group : group + 2])]),
    ),
    "group_order": Contract(coded(), order_by),
    "is_ordered": Contract(
        st.one_of(coded().map(lambda events: (events[0], events[2])), lifetimes().map(lambda events: events[:2])),
        lambda codes, start: list(order_by(codes, 0, start)) == list(range(len(codes))),
    ),
    "join_decimal": Contract(
        st.tuples(LOW_SUMS, LOW_SUMS, LOW_SUMS, HIGH_SUMS).flatmap(
            lambda sums: st.tuples(st.just(tuple(map(ints, sums))), st.integers(1, 38))
        ),
        joined_decimals,
    ),
    "join_int": Contract(st.tuples(LOW_SUMS.map(ints), HIGH_SUMS.map(ints)), partial(joined, LEAST, -LEAST, np.int64)),
    "join_unsigned": Contract(
        st.tuples(LOW_SUMS.map(ints), HIGH_SUMS.map(ints)), partial(joined, 0, 1 << 64, np.uint64)
    ),
    "keep": Contract(
        st.lists(st.booleans(), max_size=9).map(lambda mask: (np.array(mask, np.bool_),)),
        lambda mask: ints([at for at, holds in enumerate(mask) if holds]),
    ),
    "limb_plan": Contract(
        st.tuples(
            st.lists(FINITE, max_size=9).map(lambda values: np.array(values, np.float64)), st.integers(1, 1 << 40)
        ),
        plan,
    ),
    "occupied": Contract(ranges(), held_slots),
    "order_float": Contract(
        st.lists(FLOAT, max_size=9).map(lambda values: (np.array(values, np.float64),)), codes_of_floats
    ),
    "partition": Contract(
        coded().map(
            lambda events: (*events[:2], (events[2], events[2] % 7 > 3, events[2].astype(np.int16), events[2] / 3))
        ),
        partitioned,
    ),
    "quotient": Contract(
        st.lists(st.tuples(ANY_INT, st.integers(1, 1 << 40)), max_size=9).map(
            lambda pairs: (ints([total for total, _ in pairs]), ints([count for _, count in pairs]))
        ),
        lambda totals, counts: np.array([float(t) / float(c) for t, c in zip(totals, counts, strict=True)], np.float64),
    ),
    "range_count": Contract(
        ranges_at_slots(),
        lambda first, last, size, slots: over_slots(len, np.zeros(len(first)), first, last, size, slots),
    ),
    "mean_limbs": Contract(sums_and_counts(), means),
    "merged_ranges": Contract(coded_ranges(), merged),
    "range_kth": Contract(ranks_at_slots(), kth_ranks),
    "range_max": Contract(ranges_with_values(), partial(over_slots, partial(max, default=LEAST))),
    "range_sum": Contract(ranges_with_values(), partial(over_slots, wrapped)),
    "round_limbs": Contract(limb_sums(), rounded),
    "running_max": Contract(
        st.lists(ANY_INT, max_size=9).map(lambda values: (ints(values),)),
        lambda values: ints([max(values[: at + 1]) for at in range(len(values))]),
    ),
    "best_rows": Contract(rivals(), kept_rows),
    "reached": Contract(paths(), reachable),
    "timed_batches": Contract(batches(), clocked),
    "search_pairs": Contract(pairs(), first_greater),
    "slot_bounds": Contract(axes(), lambda codes, time, slots: (codes[slots], time[slots], time[slots + 1])),
    "square_limbs": Contract(floats_with_plan().map(lambda planned: planned[:3]), squares_in_limbs),
    "square_limbs_int": Contract(
        int_or_unsigned().map(lambda values: (values,)),
        lambda values: columns([limbs_of_32(int(value) ** 2, 4) for value in values], 4),
    ),
    "step_axis": Contract(a_step(), step_boundaries),
    "stitch_order": Contract(lifetimes(), stitched),
    "take": Contract(
        st.tuples(
            st.sampled_from([np.int64, np.int32, np.int16, np.int8, np.float64, np.float32]),
            st.lists(st.integers(0, 4)),
        ).map(lambda drawn: (np.arange(5).astype(drawn[0]), ints(drawn[1]))),
        lambda values, indices: values[indices],
    ),
    "unorder_float": Contract(
        st.lists(FLOAT, max_size=9).map(lambda values: (codes_of_floats(values),)), floats_of_codes
    ),
    "variance": Contract(moments(), variances),
}
DENSE = ("dense_count", "dense_sum")


def assert_same(given: Any, wanted: Any) -> None:
    """The same types, lengths and bytes; a NaN is a NaN."""
    if isinstance(wanted, tuple):
        assert len(given) == len(wanted)
        for one, other in zip(given, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, np.ndarray):
        assert given.dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            given, wanted = (np.where(np.isnan(each), np.nan, each) for each in (given, wanted))
        assert given.tobytes() == wanted.tobytes(), (given, wanted)
    else:
        assert given == wanted


@pytest.mark.parametrize("kernel", CONTRACTS)
@pytest.mark.parametrize("name", PORTS)
@given(data=st.data())
def test_a_kernel_does_what_its_definition_says(name: str, kernel: str, data: st.DataObject) -> None:
    if name == "strict" and kernel in NOT_STRICT:
        pytest.skip(NOT_STRICT[kernel])
    contract = CONTRACTS[kernel]
    arguments = data.draw(contract.inputs)
    assert_same(_port(name).call(kernel, *arguments), contract.reference(*arguments))


@pytest.mark.parametrize("kernel", DENSE)
@pytest.mark.parametrize("name", PORTS)
@given(inputs=dense())
def test_a_dense_grid_adds_up_blocks_of_events(name: str, kernel: str, inputs: Any) -> None:
    assert_same(dense_by(kernel, _port(name), *inputs), dense_windows(kernel == "dense_count", *inputs))


@given(inputs=ranks_at_slots())
def test_a_tree_finds_what_a_list_finds(inputs: Any) -> None:
    # So few events are kept as a list otherwise.
    with mock.patch.object(statistics, "_LIST", -1):
        assert_same(cpu.range_kth(*inputs), kth_ranks(*inputs))


def test_each_kernel_is_in_the_table() -> None:
    # Their tables are made of parts of this one.
    from tests.devices import test_digit_kernels, test_join_kernels, test_run_kernels

    elsewhere = {
        *test_run_kernels.CONTRACTS,
        *test_join_kernels.CONTRACTS,
        *test_digit_kernels.CONTRACTS,
        *test_digit_kernels.LOGARITHMS,
    }
    walk = "window_walk"  # test_window_walk goes from block to block
    declared = {name for name in dir(Kernels) if not name.startswith("_")}
    assert declared == {*CONTRACTS, *elsewhere, *DENSE, "dense_totals", "dense_zeros", walk}


# What is too large for a reference: every device against the CPU, and against what is known of the result


def times(*, events: int, seed: int, shape: str) -> tuple[Any, Any, Any, int]:
    """(codes, start, end, groups), in no order of groups."""
    random = np.random.default_rng(seed)
    groups = {"few groups": 7, "many groups": events // 10, "one instant": 1, "all but in order": 1}.get(shape, 100)
    codes = random.integers(0, groups, events).astype(np.int32)
    start = np.sort(random.integers(MIN_TIME, MAX_TIME // 2, events))
    end = start + random.integers(1, 1 << 40, events)
    if shape == "shuffled":
        start, end = (times[random.permutation(events)] for times in (start, end - start))
        end = start + end
    elif shape == "whole seconds":
        start = random.integers(0, events // 10, events) * 1_000_000
        end = start + 60_000_000
    elif shape == "one instant":
        start, end = np.full(events, 7), random.integers(8, MAX_TIME, events)
    elif shape == "all but in order":
        start[[3, events // 2]] = start[[events // 2, 3]]
        end = np.maximum(start + 1, np.minimum(end, MAX_TIME))
    elif shape == "open ends":
        end[random.integers(0, 2, events) == 0] = MAX_TIME
    return codes, start, end, groups


SHAPES = ["few groups", "many groups", "shuffled", "whole seconds", "one instant", "all but in order", "open ends"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["array", GPU])
def test_large_inputs_give_the_same_bytes_on_every_device(name: str, shape: str) -> None:
    codes, start, end, groups = times(events=50_000, seed=5, shape=shape)
    values = np.random.default_rng(6).integers(LEAST, -LEAST - 1, len(codes))

    def pipeline(port: Port) -> list[Any]:
        ordered, _, (begin, finish, payload) = port.call("partition", codes, groups, (start, end, values))
        axis_code, axis_time, first, last = port.call("axis", ordered, begin, finish)
        size = len(axis_code)
        slots, counts = port.call("occupied", first, last, size)
        return [
            ordered,
            *(begin, finish, payload),
            *(axis_code, axis_time, first, last, slots, counts),
            port.call("range_sum", payload, first, last, size, slots),
            port.call("range_max", payload, first, last, size, slots),
            port.call("range_kth", payload % 1000, first, last, size, slots, slots % 7),
            *port.call("merged_ranges", payload % 1000, first, last),
            *port.call("stitch_order", ordered, begin, finish),
            *port.call("grid_ranges", begin, finish, 7_000_000, 3_000_000, MIN_TIME),
        ]

    for given_here, on_cpu in zip(pipeline(_port(name)), pipeline(_port("cpu")), strict=True):
        assert_same(given_here, on_cpu)


@pytest.mark.parametrize("name", ["cpu", "array"])
def test_a_million_events_at_one_instant(name: str) -> None:
    port = _port(name)
    codes, start = np.zeros(1_000_000, np.int32), np.full(1_000_000, MAX_TIME - 1)
    axis_code, axis_time, first, last = port.call("axis", codes, start, start + 1)
    assert_same((axis_code, axis_time), (codes_of([0, 0]), ints([MAX_TIME - 1, MAX_TIME])))
    assert_same(port.call("occupied", first, last, 2), (ints([0]), ints([1_000_000])))
    assert_same(port.call("range_max", np.arange(1_000_000), first, last, 2, ints([0, 1])), ints([999_999, LEAST]))


# Exact sums from end to end


def exact_sums(port: Port, values: Any, first: Any, last: Any, size: int, n: int) -> Any:
    limb_bits, lowest, limbs = port.call("limb_plan", values, n)
    slots = np.arange(size)
    parts = port.call("float_limbs", values, limb_bits, lowest, limbs)
    sums = tuple(port.call("range_sum", part, first, last, size, slots) for part in parts)
    return port.call("round_limbs", sums, limb_bits, lowest)


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
@given(data=st.data())
def test_sums_of_floats_are_fsum_whatever_the_plan(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(FINITE, min_size=1, max_size=12))
    n = data.draw(st.integers(len(values), 1 << 40))
    sums = exact_sums(
        _port(name), np.array(values), np.zeros(len(values), np.int64), np.ones(len(values), np.int64), 1, n
    )
    try:
        wanted = math.fsum(values) + 0.0
    except OverflowError:  # past the greatest float; or fsum's own limit on the way there
        wanted = nearest(sum(map(Fraction, values), Fraction(0)))
    assert sums.tobytes() == np.array([wanted]).tobytes()


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([1e16, 1.0, -1e16], 1.0),
        ([1e300, 1e-300, -1e300, 5e-324], 1e-300),
        ([5e-324, -5e-324], 0.0),
        ([-0.0], 0.0),
        ([2.0**53, 1.0], 2.0**53),  # half way: to the even neighbour
        ([2.0**53, 1.0, 2.0**-1000], 2.0**53 + 2),  # a little more than half way
        ([2.0**53 + 2, 1.0], 2.0**53 + 4),
        ([1.7976931348623157e308, 2.0**969], 1.7976931348623157e308),
        ([1.7976931348623157e308, 2.0**970], math.inf),
    ],
)
@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_sums_of_floats_are_rounded_once(name: str, values: list[float], wanted: float) -> None:
    count = len(values)
    sums = exact_sums(_port(name), np.array(values), np.zeros(count, np.int64), np.ones(count, np.int64), 1, count)
    assert sums.tobytes() == np.array([wanted]).tobytes()


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_a_large_value_that_passes_leaves_no_dust(name: str) -> None:
    random = np.random.default_rng(8)
    values = random.normal(size=2000)
    values[::100] = 1e30
    first = np.arange(2000)
    last = first + random.integers(1, 50, 2000)
    sums = exact_sums(_port(name), values, first, np.minimum(last, 2000), 2000, 2000)
    wanted = [math.fsum(values[(first <= slot) & (slot < last)]) for slot in range(2000)]
    assert sums.tobytes() == np.array(wanted).tobytes()


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
@given(data=st.data())
def test_variances_are_within_their_bound(name: str, data: st.DataObject) -> None:
    shift = data.draw(st.sampled_from([0.0, 1.0, 1e9, 1e15, 1e100]))
    values = [shift + value for value in data.draw(st.lists(st.floats(-1000, 1000), min_size=2, max_size=8))]
    variance = float(_port(name).call("variance", *exact_moments([values], 1))[0])
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    wanted = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1)
    assert variance >= 0
    if wanted > Fraction(2) ** -1022:
        assert abs(Fraction(variance) / wanted - 1) <= Fraction(301, 100) / 2**53


@pytest.mark.parametrize("value", [0.1, -1e200, 5e-324, 1.7976931348623157e308])
@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_equal_values_have_no_variance(name: str, value: float) -> None:
    assert float(_port(name).call("variance", *exact_moments([[value] * 7], 1))[0]) == 0


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_variances_of_integers_come_from_32_bit_limbs(name: str) -> None:
    port = _port(name)
    values = np.array([LEAST, -LEAST - 1, 0])
    sums = [limb.sum(keepdims=True) for limb in port.call("exact_limbs_int", values)]
    squares = [limb.sum(keepdims=True) for limb in port.call("square_limbs_int", values)]
    # (n S2 - S1**2) / (n (n - 1)) of -2**63, 2**63 - 1 and 0, to the nearest float
    exact = Fraction(3 * ((1 << 126) + ((1 << 63) - 1) ** 2) - 1, 6)
    assert port.call("variance", ints([3]), tuple(sums), tuple(squares), 32, 0, 1)[0] == float(exact)


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
@pytest.mark.parametrize("bits", [20, 51, 52, 53, 54, 61])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_means_of_integers_are_nearest_where_float64_ends(name: str, bits: int, off: int) -> None:
    exact = [sign * ((1 << bits) + off) for sign in (1, -1)]
    counts = ints([3, 7])
    expected = [float(Fraction(each, int(count))) for each, count in zip(exact, counts, strict=True)]
    for sums in ((ints(exact),), tuple(_port(name).call("exact_limbs_int", ints(exact)))):
        assert _port(name).call("mean_limbs", sums, counts, 32, 0, 0).tolist() == expected
        # One that float64 does not hold beside one that it does.
        small = tuple(np.concatenate([limb, ints([1 if at == 0 else 0])]) for at, limb in enumerate(sums))
        made = _port(name).call("mean_limbs", small, ints([3, 7, 3]), 32, 0, 0)
        assert made.tolist() == [*expected, 1 / 3]


# Compiled once, kept on disk


@pytest.mark.parametrize(("locator", "kept"), [("UserWideCacheLocator", True), ("ZipCacheLocator", False)])
def test_kernels_run_where_the_package_is_read_only(locator: str, kept: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Numba is let use only the user's folder, or (a locator for archives) no place at all."""
    code = """
import numpy as np
from gpu_ops.devices.cpu.kernels import keep
print(keep(np.array([False, True])))
"""
    environment = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": locator, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[1]"
    assert any(tmp_path.rglob("*.nbc")) == kept
