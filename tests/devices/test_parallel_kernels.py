"""Kernels that run on several threads: the same bytes as one thread gives, however the rows are cut and threads run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core import threads
from gpu_ops.devices.cpu import columns, order
from gpu_ops.devices.cpu import kernels as cpu
from gpu_ops.devices.cpu.frames import Frame
from tests.support import join_contracts
from tests.support.kernel_contracts import CONTRACTS, assert_same, codes_of, port_of
from tests.support.threads import with_threads

PARALLEL = {
    name: (CONTRACTS | join_contracts.CONTRACTS)[name]
    for name in (
        *("ascends", "extent", "group_bounds", "group_codes", "group_order", "is_ordered", "joined", "partition"),
        *("starts_within", "take"),
    )
}


@pytest.mark.parametrize("kernel", PARALLEL)
@given(data=st.data(), count=st.integers(2, 5), part=st.integers(1, 9))
def test_a_kernel_gives_the_same_on_any_number_of_threads(
    kernel: str, data: st.DataObject, count: int, part: int
) -> None:
    contract = PARALLEL[kernel]
    arguments = data.draw(contract.inputs)
    with with_threads(count, part=part):
        assert_same(port_of("cpu").call(kernel, *arguments), contract.reference(*arguments))


@given(codes=st.lists(st.integers(0, 3), max_size=200), count=st.integers(2, 9))
def test_the_places_of_all_parts_are_all_places_once(codes: list[int], count: int) -> None:
    """No two threads write to one place."""
    array = codes_of(codes)
    with with_threads(count, part=1):
        bounds, parts = order._places(array, 4)
    taken = []
    for low, upto, places in parts:
        free = places.copy()
        for code in array[low:upto]:
            taken.append(int(free[code]))
            free[code] += 1
    assert sorted(taken) == list(range(len(codes)))
    assert_same(bounds, order._group_bounds(array, 4))


KEY_TYPES = {"near": pl.Int64, "far": pl.Int64, "text": pl.String, "real": pl.Float64}

KEYS: dict[str, st.SearchStrategy[Any]] = {
    "near": st.none() | st.integers(0, 9),
    "far": st.none() | st.sampled_from([-(10**15), 3, 10**12, 10**18]) | st.integers(-(1 << 60), 1 << 60),
    "text": st.none() | st.sampled_from(["", "a", "b", "Zürich"]) | st.text(max_size=3),
    "real": st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1e300]) | st.floats(),
}


@pytest.mark.parametrize("names", [("far",), ("text",), ("real",), ("text", "far", "near")])
@given(data=st.data(), count=st.integers(2, 5), part=st.integers(1, 9))
def test_keys_have_the_same_numbers_on_any_number_of_threads(
    names: tuple[str, ...], data: st.DataObject, count: int, part: int
) -> None:
    rows = data.draw(st.lists(st.tuples(*(KEYS[name] for name in names)), max_size=60))
    frame = Frame.of(pl.DataFrame(rows, {name: KEY_TYPES[name] for name in names}, orient="row"))
    codes, groups, keys = columns.key_codes(frame, names)
    with with_threads(count, part=part):
        found = columns.key_codes(frame, names)
    assert_same(found[:2], (codes, groups))
    assert keys is not None
    assert found[2] is not None
    assert found[2].polars().equals(keys.polars())


# Many threads on many rows, over and over

ROWS = 30_000


def some_rows(seed: int, *, groups: int, in_time: bool) -> tuple[Any, Any, Any]:
    """(codes, start, end) in no order of groups."""
    random = np.random.default_rng(seed)
    start = random.integers(0, ROWS, ROWS)
    start = np.sort(start) if in_time else start
    return random.integers(0, groups, ROWS).astype(np.int32), start, start + random.integers(1, 100, ROWS)


def partitioned(codes: Any, start: Any, end: Any, groups: int) -> Any:
    flags = (start % 3).astype(np.int8)
    codes, bounds, arrays = cpu.partition(codes, groups, [start, end, flags, flags.astype(np.float32)])
    return codes, bounds, tuple(arrays)


def ordered(codes: Any, start: Any, end: Any, groups: int) -> Any:
    found = cpu.group_order(codes, groups, start)
    bounds = cpu.group_bounds(codes, groups)
    return found, cpu.take(end, found), cpu.group_codes(bounds), cpu.is_ordered(cpu.take(codes, found), start)


def joined(codes: Any, start: Any, end: Any, groups: int) -> Any:
    one, other = (
        cpu.partition(codes[rows], groups, [start[rows], end[rows]])
        for rows in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS))
    )
    within = cpu.starts_within(one[0], one[2][0], one[2][1], other[0], other[2][0], other[2][1])
    made: list[Any] = []
    for first, offsets, mine, others in ((*within[:2], one, other), (*within[2:], other, one)):
        pairs = min(int(offsets[-1]), 2 * ROWS)
        low, high, moved, beside = cpu.joined(
            first, offsets, mine[2][1], others[2][0], others[2][1], mine[2], [others[0]], 0, pairs
        )
        made += [low, high, *moved, *beside]
    return *within, *made


PIPELINES: list[Callable[[Any, Any, Any, int], Any]] = [partitioned, ordered, joined]


@pytest.mark.parametrize("in_time", [True, False])
@pytest.mark.parametrize("groups", [1, 3, 250])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_no_thread_writes_what_another_one_has_written(
    pipeline: Callable[[Any, Any, Any, int], Any],
    groups: int,
    in_time: bool,  # noqa: FBT001
) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for seed in range(4):
            rows = some_rows(seed, groups=groups, in_time=in_time)
            with with_threads(1):
                alone = pipeline(*rows, groups)
            for count, part in ((2, 64), (3, 1000), (7, 333), (16, 1)):
                with with_threads(count, part=part):
                    assert threads.parts(ROWS)[1:]
                    assert_same(pipeline(*rows, groups), alone)
    finally:
        sys.setswitchinterval(before)
