"""What the kernels of joins must give."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.kernel_contracts import Contract, codes_of, ints, lifetimes

SIDES = st.tuples(lifetimes(), lifetimes())


@st.composite
def some_pairs(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `meetings` takes: the others that start within each event, and which of all pairs are asked for."""
    (codes, start, end), (other_codes, other_start, other_end) = draw(SIDES)
    first, offsets, _, _ = within(codes, start, end, other_codes, other_start, other_end)
    low = draw(st.integers(0, int(offsets[-1])))
    high = draw(st.integers(low, int(offsets[-1])))
    return first, offsets, end, other_start, other_end, low, high


@st.composite
def some_pairs_joined(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `joined` takes: the same, and numbers of any width that belong to the events and to the others."""
    *ranges, low, high = draw(some_pairs())
    kinds = st.lists(st.sampled_from(["int8", "uint16", "float32", "int64", "bool"]), max_size=3)
    mine = [np.arange(len(ranges[0])).astype(kind) for kind in draw(kinds)]
    others = [np.arange(len(ranges[3])).astype(kind) for kind in draw(kinds)]
    return *ranges, mine, others, low, high


def within(codes: Any, start: Any, end: Any, other_codes: Any, other_start: Any, other_end: Any) -> tuple[Any, ...]:
    events, others = (
        list(zip(*side, strict=True)) for side in ((codes, start, end), (other_codes, other_start, other_end))
    )
    first = ints([sum(other[:2] < event[:2] for other in others) for event in events])
    other_first = ints([sum(event[:2] <= other[:2] for event in events) for other in others])
    return (
        first,
        before_each(
            first,
            first
            + ints(
                [sum(low <= begin < high for other, begin, _ in others if other == code) for code, low, high in events]
            ),
        ),
        other_first,
        before_each(
            other_first,
            other_first
            + ints(
                [sum(low < begin < high for event, begin, _ in events if event == code) for code, low, high in others]
            ),
        ),
    )


def before_each(first: Any, last: Any) -> Any:
    return ints([sum(last[:at]) - sum(first[:at]) for at in range(len(first) + 1)])


def met(first: Any, offsets: Any, end: Any, other_start: Any, other_end: Any, low: int, high: int) -> tuple[Any, ...]:
    pairs = [
        (event, first[event] + number)
        for event in range(len(first))
        for number in range(offsets[event + 1] - offsets[event])
    ]
    some = pairs[low:high]
    return (
        ints([event for event, _ in some]),
        ints([other for _, other in some]),
        ints([other_start[other] for _, other in some]),
        ints([min(end[event], other_end[other]) for event, other in some]),
    )


def met_joined(*arguments: Any) -> tuple[Any, ...]:
    mine, others = arguments[5:7]
    event, other, start, end = met(*arguments[:5], *arguments[7:])
    return start, end, tuple(each[event] for each in mine), tuple(each[other] for each in others)


@st.composite
def some_in_order(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `meetings_in_order` takes: two sides, of which some rows are new."""
    sides = draw(SIDES)
    some = [[at for at in range(len(codes)) if draw(st.booleans())] for codes, _, _ in sides]
    new = [tuple(each[where] for each in side) for side, where in zip(sides, map(ints, some), strict=True)]
    order = sorted((int(each[1][at]), side, at) for side, each in enumerate(new) for at in range(len(each[0])))
    ranks = [ints([order.index((int(start), side, at)) for at, start in enumerate(new[side][1])]) for side in (0, 1)]
    first, offsets, _, _ = within(*sides[0], *new[1])
    _, _, other_first, other_offsets = within(*new[0], *sides[1])
    mine, others = ((ints(where), rank, *side[1:]) for where, rank, side in zip(some, ranks, sides, strict=True))
    return first, offsets, *mine, other_first, other_offsets, *others


def met_in_order(
    first: Any,
    offsets: Any,
    new: Any,
    rank: Any,
    start: Any,
    end: Any,
    other_first: Any,
    other_offsets: Any,
    other_new: Any,
    other_rank: Any,
    other_start: Any,
    other_end: Any,
) -> tuple[Any, ...]:
    def of_ranges(first: Any, offsets: Any) -> list[tuple[int, int]]:
        return [(row, at + number) for row, at in enumerate(first) for number in range(offsets[row + 1] - offsets[row])]

    pairs = [(other_rank[late], row, row, other_new[late]) for row, late in of_ranges(first, offsets)]
    pairs += [(rank[late], row, new[late], row) for row, late in of_ranges(other_first, other_offsets)]
    found = [pair[2:] for pair in sorted(pairs)]
    return (
        ints([event for event, _ in found]),
        ints([other for _, other in found]),
        ints([max(start[event], other_start[other]) for event, other in found]),
        ints([min(end[event], other_end[other]) for event, other in found]),
    )


def covers(codes: Any, start: Any, end: Any) -> tuple[Any, Any, Any]:
    events = list(zip(codes, start, end, strict=True))

    def alone(code: int, time: int, *, begins: bool) -> bool:
        """Whether no event of the group holds what is just before the time, or just after it."""
        return not any(
            other == code and (low < time <= high if begins else low <= time < high) for other, low, high in events
        )

    begins = sorted({(code, low) for code, low, _ in events if alone(code, low, begins=True)})
    overs = sorted({(code, high) for code, _, high in events if alone(code, high, begins=False)})
    return (
        codes_of([code for code, _ in begins]),
        ints([time for _, time in begins]),
        ints([time for _, time in overs]),
    )


def last_by_then(codes: Any, start: Any, other_codes: Any, other_start: Any) -> Any:
    others = list(enumerate(zip(other_codes, other_start, strict=True)))
    return ints(
        [
            max((at for at, (other, begin) in others if other == code and begin <= time), default=-1)
            for code, time in zip(codes, start, strict=True)
        ]
    )


@st.composite
def sides_by_place(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `last_by_place` takes."""
    made: list[Any] = []
    for codes, start, _ in draw(SIDES):
        order = np.argsort(start, kind="stable")
        made += [codes[order], start[order]]
    return *made, 1 + max((int(code) for codes in made[::2] for code in codes), default=0)


CONTRACTS = {
    "coverage": Contract(lifetimes(), covers),
    "joined": Contract(some_pairs_joined(), met_joined),
    "last_by_place": Contract(sides_by_place(), lambda *sides: last_by_then(*sides[:-1])),
    "last_started": Contract(SIDES.map(lambda sides: (*sides[0][:2], *sides[1][:2])), last_by_then),
    "meetings": Contract(some_pairs(), met),
    "meetings_in_order": Contract(some_in_order(), met_in_order),
    "pair_offsets": Contract(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=9).map(
            lambda ranges: (ints([at for at, _ in ranges]), ints([at + count for at, count in ranges]))
        ),
        before_each,
    ),
    "starts_within": Contract(SIDES.map(lambda sides: (*sides[0], *sides[1])), within),
}
