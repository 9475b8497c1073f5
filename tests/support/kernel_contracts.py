"""What each kernel must give by definition, and the ports it is called through."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import choose, gpu_refusal
from gpu_ops.devices.array import kernels as array_kernels
from gpu_ops.devices.kernels import Kernels

SPAN = MAX_TIME - MIN_TIME
LEAST = -(1 << 63)


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


def port_of(name: str) -> Port:
    if name == "strict":
        return Port(array_kernels, array_api_strict.asarray, _strict_back)
    columns = choose(name).columns
    return Port(choose(name).kernels, lambda values: columns.array(_read_only(values)), columns.host)


GPU = pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(gpu_refusal() is not None, reason="no GPU")])

PORTS = ["cpu", "array", "strict", GPU]


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


@st.composite
def two_orders(draw: st.DrawFn) -> tuple[Any, ...]:
    """(codes, times, turns) of moments and of others; both may be in order."""
    moment = st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(-1, 3))
    both = [draw(st.lists(moment, max_size=20)) for _ in range(2)]
    for some in both:
        if draw(st.booleans()):
            some.sort()
    return tuple(
        made([moment[at] for moment in some]) for some in both for at, made in enumerate((codes_of, ints, ints))
    )


def places_of_moments(*arrays: Any) -> Any:
    moments, others = (list(zip(*(each.tolist() for each in arrays[at : at + 3]), strict=True)) for at in (0, 3))
    places = sorted(set(moments))
    return tuple(ints([sum(one < each for one in places) + 1 for each in some]) for some in (moments, others))


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


@st.composite
def whole_moments(draw: st.DrawFn) -> tuple[Any, tuple[Any, ...], tuple[Any, ...], int, int, int]:
    """The sums of some lists of integers and of their squares, each in one limb."""
    number = st.integers(-9, 9) | st.integers(-(1 << 30), 1 << 30)
    lists = draw(st.lists(st.lists(number, max_size=7), min_size=1, max_size=3))
    sums, squares = ([sum(value**power for value in values) for values in lists] for power in (1, 2))
    return ints([len(values) for values in lists]), (ints(sums),), (ints(squares),), 32, 0, draw(st.integers(0, 1))


DECIMAL = st.one_of(st.integers(-9, 9), st.integers(-(10**38), 10**38))

LOW_SUMS = st.lists(st.integers(0, 1 << 62), min_size=5, max_size=5)

HIGH_SUMS = st.lists(st.one_of(st.integers(-3, 3), st.integers(-(1 << 33), 1 << 33)), min_size=5, max_size=5)


def words(values: list[int]) -> tuple[Any, Any]:
    low = [(value & (1 << 64) - 1) - (value & 1 << 63) * 2 for value in values]
    return ints(low), ints([value >> 64 for value in values])


def int_or_unsigned() -> st.SearchStrategy[Any]:
    unsigned = st.lists(st.integers(0, (1 << 64) - 1), max_size=9).map(lambda values: np.array(values, np.uint64))
    return st.one_of(st.lists(ANY_INT, max_size=9).map(ints), unsigned)


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
def stretches(draw: st.DrawFn) -> tuple[Any, Any, int]:
    parts = draw(st.lists(st.lists(st.integers(-2, 3) | ANY_INT, max_size=8), max_size=4))
    bounds = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return ints([code for part in parts for code in part]), bounds, draw(st.integers(1, 5) | st.just(1 << 62))


def rows_of_least(codes: Any, bounds: Any, count: int) -> Any:
    rows, counts = [], []
    for low, high in pairwise(bounds.tolist()):
        least = sorted(codes[low:high].tolist())[:count]
        found = [row for row in range(low, high) if codes[row] <= least[-1]]
        rows += found
        counts.append(len(found))
    return ints(rows), ints(counts)


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


@st.composite
def ticked_batches(draw: st.DrawFn) -> tuple[Any, ...]:
    ticks = sorted(draw(st.sets(st.integers(0, 40), max_size=8)))
    clocks = sorted(draw(st.lists(st.integers(0, 30), min_size=len(ticks), max_size=len(ticks))))
    free = [place for place in range(42) if place not in ticks]
    groups = draw(st.lists(st.lists(st.sampled_from(free), max_size=8, unique=True).map(sorted), max_size=3))
    span, count, runs = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 1))
    skipped = [draw(st.integers(0, len(group))) for group in groups]
    edges = [0, *np.cumsum([len(group) for group in groups], dtype=np.int64).tolist()]
    begins = [edge + skip for edge, skip in zip(edges, skipped, strict=False)]
    timers = [draw(st.sampled_from([1 << 62, 0, 5, 12])) for _ in groups]
    held = np.array([draw(st.booleans()) for _ in groups], np.bool_)
    places = [place for group in groups for place in group]
    shown = [max([clock for tick, clock in zip(ticks, clocks, strict=True) if tick < at], default=0) for at in places]
    due, tick_due = ints([clock + span for clock in shown]), ints([clock + span for clock in clocks])
    return (
        ints(places), due, ints(begins), ints(edges[1:]), ints(timers), held, ints(ticks), ints(clocks), tick_due,
        count, runs,
    )  # fmt: skip


def by_ticks(
    place: Any, due: Any, begins: Any, ends: Any, timers: Any, held: Any, ticks: Any, clocks: Any, tick_due: Any,
    count: int, runs: int,
) -> Any:  # fmt: skip
    """One row or one tick at a time."""
    none = 1 << 62
    enter, leave, came, fell = (np.full(len(place), none) for _ in range(4))
    over, over_fell, after = (np.full(len(begins), none) for _ in range(3))
    fired = np.zeros(len(ticks), np.bool_)
    for group, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        timer, had = int(timers[group]), bool(held[group])
        gathers, out, is_first = list[int](), list[int](), True
        turns: list[tuple[int, int | None, Any]] = [(int(place[row]), row, None) for row in range(begin, end)]
        turns += [(int(at), None, number) for number, at in enumerate(ticks)]
        for at, row, tick in sorted(turns, key=lambda turn: turn[0]):
            if row is not None:
                gathers.append(row)
                timer = int(due[row]) if timer == none else timer
                if len(gathers) < count:
                    continue
                why, timer = none, int(due[row])
            else:
                if timer == none or clocks[tick] < timer:
                    continue
                fired[tick], why = True, timer
                timer = int(tick_due[tick]) if gathers or had or runs else none
            leave[out], fell[out], enter[gathers], came[gathers] = at, why, at, why
            if is_first:
                over[group], over_fell[group], is_first = at, why, False
            out, gathers, had = gathers, [], bool(gathers)
        after[group] = timer
    return enter, leave, came, fell, over, over_fell, after, fired


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
        st.builds(
            lambda values, dtype: (ints(values).astype(dtype),),
            st.lists(ANY_INT, min_size=1, max_size=5),
            st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]),
        ),
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
    "occurring": Contract(
        st.lists(st.integers(0, 6), max_size=9).map(lambda codes: (np.array(codes, np.int32), 7)),
        lambda codes, count: ints([code for code in range(count) if code in codes]),
    ),
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
    "least_rows": Contract(stretches(), rows_of_least),
    "reached": Contract(paths(), reachable),
    "clocked_batches": Contract(ticked_batches(), by_ticks),
    "timed_batches": Contract(batches(), clocked),
    "moment_places": Contract(two_orders(), places_of_moments),
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
    "variance": Contract(st.one_of(moments(), whole_moments()), variances),
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
