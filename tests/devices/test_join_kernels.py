"""Kernels of two streams: what each must give, by definition, run on every device as in `test_kernels`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices.cpu import joins as cpu
from tests.support.join_contracts import (
    CONTRACTS,
    within,
)
from tests.support.kernel_contracts import PORTS, assert_same, codes_of, ints, port_of


@pytest.mark.parametrize("kernel", CONTRACTS)
@pytest.mark.parametrize("name", PORTS)
@given(data=st.data())
def test_a_kernel_does_what_its_definition_says(name: str, kernel: str, data: st.DataObject) -> None:
    contract = CONTRACTS[kernel]
    arguments = data.draw(contract.inputs)
    assert_same(port_of(name).call(kernel, *arguments), contract.reference(*arguments))


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
        assert_same(port_of(name).call("starts_within", *arguments), within(*arguments))


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
    port = port_of(name)
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
