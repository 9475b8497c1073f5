"""Kernels of two streams: what each must give, by definition, run on every device as in `test_kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices.cpu import joins as cpu
from tests.devices.test_kernels import PORTS, Contract, _port, assert_same, codes_of, ints, lifetimes

# Inputs

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


# References


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


CONTRACTS = {
    "coverage": Contract(lifetimes(), covers),
    "joined": Contract(some_pairs_joined(), met_joined),
    "last_started": Contract(SIDES.map(lambda sides: (*sides[0][:2], *sides[1][:2])), last_by_then),
    "meetings": Contract(some_pairs(), met),
    "pair_offsets": Contract(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=9).map(
            lambda ranges: (ints([at for at, _ in ranges]), ints([at + count for at, count in ranges]))
        ),
        before_each,
    ),
    "starts_within": Contract(SIDES.map(lambda sides: (*sides[0], *sides[1])), within),
}


@pytest.mark.parametrize("kernel", CONTRACTS)
@pytest.mark.parametrize("name", PORTS)
@given(data=st.data())
def test_a_kernel_does_what_its_definition_says(name: str, kernel: str, data: st.DataObject) -> None:
    contract = CONTRACTS[kernel]
    arguments = data.draw(contract.inputs)
    assert_same(_port(name).call(kernel, *arguments), contract.reference(*arguments))


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize("around", [-1, 0, 1])
@pytest.mark.parametrize("met", [0, 1, cpu._NEAR, 3 * cpu._NEAR])
def test_what_starts_within_is_found_however_many_there_are(name: str, met: int, around: int) -> None:
    # others of group 1:   0 2 4 6 ...          and as many of the groups 0 and 2 around them
    # event:               [1 ...... )          which ends at, just before or just after one of them
    count = met + cpu._NEAR
    codes = np.repeat(np.arange(3, dtype=np.int32), count)
    start = np.tile(2 * np.arange(count), 3)
    event = codes_of([1]), ints([1]), ints([max(2, 2 * met + 1 + around)])
    others = codes, start, start + 2 * met + 1
    for arguments in ((*event, *others), (*others, *event)):
        assert_same(_port(name).call("starts_within", *arguments), within(*arguments))


@pytest.mark.parametrize("name", ["cpu", "array"])
@pytest.mark.parametrize("groups", [1, 7, 5000])
def test_pieces_of_many_pairs_are_all_pairs(name: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_FEW", 100)
    random = np.random.default_rng(3)
    sides = []
    for _ in range(2):
        codes, start = np.sort(random.integers(0, groups, 5000).astype(np.int32)), random.integers(0, 100_000, 5000)
        start = start[np.lexsort((start, codes))]
        sides.append((codes, start, start + random.integers(1, 100_000 * groups // 500 + 2, 5000)))
    (codes, start, end), (other_codes, other_start, other_end) = sides
    port = _port(name)
    found = []
    # The right one starts within the left one, or the left one within the right one after its start.
    ranges = port.call("starts_within", *sides[0], *sides[1])
    for mine, others, after in ((sides[0], sides[1], 0), (sides[1], sides[0], 1)):
        first, offsets = ranges[2 * after :][:2]
        total = int(offsets[-1])
        for low in range(0, total, 777):
            high = min(low + 777, total)
            pair = port.call("meetings", first, offsets, mine[2], *others[1:], low, high)
            found.append(np.stack([pair[after], pair[1 - after], *pair[2:]]))
            numbers = np.arange(5000), np.arange(5000, dtype=np.int16)
            beside = port.call("joined", first, offsets, mine[2], *others[1:], numbers[:1], numbers, low, high)
            assert_same(beside, (*pair[2:], (pair[0],), (pair[1], pair[1].astype(np.int16))))
    pairs = np.concatenate(found, axis=1)
    alive = (codes[:, None] == other_codes) & (start[:, None] < other_end) & (other_start < end[:, None])
    left, right = np.nonzero(alive)
    wanted = np.stack(
        [left, right, np.maximum(start[left], other_start[right]), np.minimum(end[left], other_end[right])]
    )
    assert wanted.shape[1] > 5000 // groups
    assert_same(pairs[:, np.lexsort((pairs[1], pairs[0]))], wanted[:, np.lexsort((wanted[1], wanted[0]))])
