"""Kernels: one table of what each must give, by definition, run on every device.

The references say literally what a kernel's description says, number by number. The devices are the CPU, the GPU's
kernels on the stand-in for CuPy and, where it has what they need, on array-api-strict, and a GPU where there is one.
All must give the same bytes.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices.cpu import kernels as cpu
from gpu_ops.devices.cpu import statistics
from gpu_ops.devices.kernels import Kernels
from tests.support import digit_contracts, holding_contracts, join_contracts, run_contracts
from tests.support.kernel_contracts import (
    ANY_INT,
    CONTRACTS,
    DENSE,
    FINITE,
    GPU,
    LEAST,
    PORTS,
    Port,
    assert_same,
    codes_of,
    exact_moments,
    ints,
    kth_ranks,
    nearest,
    overlapped,
    port_of,
    ranks_at_slots,
    wrapped,
)

ASSIGNS = "array-api-strict assigns by no array of indices"
VIEWS = "array-api-strict shows no float's bits"
NOT_STRICT = {
    "axis": ASSIGNS,
    "best_rows": ASSIGNS,
    "partition": "array-api-strict has another name for the host",
    "range_max": ASSIGNS,
    "clocked_batches": ASSIGNS,
    "timed_batches": ASSIGNS,
    "mean_limbs": "array-api-strict has no ldexp",
    "occurring": ASSIGNS,
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


@st.composite
def dense(draw: st.DrawFn) -> tuple[Any, ...]:
    """(codes, start, end, size, hop, align, values, groups, windows, cut) in any order; many events may be equal.

    If the windows are cut, some of an event's may be before the first one and past the last one.
    """
    size, hop, groups = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    event = st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(0, groups - 1), ANY_INT)
    events = draw(st.lists(event, max_size=9))
    often = draw(st.lists(st.sampled_from([1, 2, 300]), min_size=len(events), max_size=len(events)))
    start, lasts, codes, values = (ints([each[at] for each in events]).repeat(often) for at in range(4))
    since = draw(st.sampled_from([0, MIN_TIME, MAX_TIME - 50]))
    start += since
    end = draw(st.integers(1, 9)) if draw(st.booleans()) else start + lasts
    cut = draw(st.booleans())
    # If not cut, every window that holds an event has a number from 0 on.
    align = since - size - draw(st.integers(-9 if cut else 0, 5))
    windows = max(overlapped(start, start + end if isinstance(end, int) else end, size, hop, align)[1], default=0)
    windows = draw(st.integers(1, 9)) if cut else int(windows) + draw(st.integers(0, 2))
    return codes.astype(np.int32), start, end, size, hop, align, values, groups, windows, cut


SUMS = st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1, max_size=5)


# References


def dense_windows(kernel: str, *inputs: Any) -> Any:
    codes, start, end, size, hop, align, values, groups, windows, _ = inputs
    first, last = overlapped(start, start + end if isinstance(end, int) else end, size, hop, align)
    first, last = np.maximum(first, 0), np.minimum(last, windows)
    slots: list[list[int]] = [[] for _ in range(windows * groups)]
    for code, low, high, value in zip(codes, first, last, values, strict=True):
        for window in range(low, high):
            slots[window * groups + code].append(1 if kernel == "dense_count" else int(value))
    return ints([wrapped(slot) for slot in slots])


def dense_by(kernel: str, port: Port, *inputs: Any) -> Any:
    """In two calls, as blocks of events come."""
    codes, start, end, size, hop, align, values, groups, windows, cut = inputs
    kernels, to = port.kernels, port.to
    grid = kernels.dense_zeros(to(start), groups, windows)
    for part in (slice(0, len(codes) // 3), slice(len(codes) // 3, None)):
        times = to(start[part].copy()), end if isinstance(end, int) else to(end[part].copy())
        given = [to(values[part].copy())] if kernel == "dense_sum" else []
        places = kernels.dense_places(*times, size, hop, align, windows if cut else None)
        grid = getattr(kernels, kernel)(grid, to(codes[part].copy()), places, *given, groups)
    return port.back(kernels.dense_totals(grid, groups))


@pytest.mark.parametrize("kernel", CONTRACTS)
@pytest.mark.parametrize("name", PORTS)
@given(data=st.data())
def test_a_kernel_does_what_its_definition_says(name: str, kernel: str, data: st.DataObject) -> None:
    if name == "strict" and kernel in NOT_STRICT:
        pytest.skip(NOT_STRICT[kernel])
    contract = CONTRACTS[kernel]
    arguments = data.draw(contract.inputs)
    assert_same(port_of(name).call(kernel, *arguments), contract.reference(*arguments))


@pytest.mark.parametrize("kernel", DENSE)
@pytest.mark.parametrize("name", PORTS)
@given(inputs=dense())
def test_a_dense_grid_adds_up_blocks_of_events(name: str, kernel: str, inputs: Any) -> None:
    assert_same(dense_by(kernel, port_of(name), *inputs), dense_windows(kernel, *inputs))


@given(inputs=ranks_at_slots())
def test_a_tree_finds_what_a_list_finds(inputs: Any) -> None:
    # So few events are kept as a list otherwise.
    with mock.patch.object(statistics, "_LIST", -1):
        assert_same(cpu.range_kth(*inputs), kth_ranks(*inputs))


def test_each_kernel_is_in_the_table() -> None:
    elsewhere = {
        *run_contracts.CONTRACTS,
        *join_contracts.CONTRACTS,
        *holding_contracts.CONTRACTS,
        *digit_contracts.CONTRACTS,
        *digit_contracts.LOGARITHMS,
    }
    walk = "window_walk"  # test_window_walk goes from block to block
    declared = {name for name in dir(Kernels) if not name.startswith("_")}
    assert declared == {*CONTRACTS, *elsewhere, *DENSE, "dense_places", "dense_totals", "dense_zeros", walk}


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


@pytest.mark.slow
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

    for given_here, on_cpu in zip(pipeline(port_of(name)), pipeline(port_of("cpu")), strict=True):
        assert_same(given_here, on_cpu)


@pytest.mark.parametrize("name", ["cpu", "array"])
def test_a_million_events_at_one_instant(name: str) -> None:
    port = port_of(name)
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
        port_of(name), np.array(values), np.zeros(len(values), np.int64), np.ones(len(values), np.int64), 1, n
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
    sums = exact_sums(port_of(name), np.array(values), np.zeros(count, np.int64), np.ones(count, np.int64), 1, count)
    assert sums.tobytes() == np.array([wanted]).tobytes()


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_a_large_value_that_passes_leaves_no_dust(name: str) -> None:
    random = np.random.default_rng(8)
    values = random.normal(size=2000)
    values[::100] = 1e30
    first = np.arange(2000)
    last = first + random.integers(1, 50, 2000)
    sums = exact_sums(port_of(name), values, first, np.minimum(last, 2000), 2000, 2000)
    wanted = [math.fsum(values[(first <= slot) & (slot < last)]) for slot in range(2000)]
    assert sums.tobytes() == np.array(wanted).tobytes()


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
@given(data=st.data())
def test_variances_are_within_their_bound(name: str, data: st.DataObject) -> None:
    shift = data.draw(st.sampled_from([0.0, 1.0, 1e9, 1e15, 1e100]))
    values = [shift + value for value in data.draw(st.lists(st.floats(-1000, 1000), min_size=2, max_size=8))]
    variance = float(port_of(name).call("variance", *exact_moments([values], 1))[0])
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    wanted = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1)
    assert variance >= 0
    if wanted > Fraction(2) ** -1022:
        assert abs(Fraction(variance) / wanted - 1) <= Fraction(301, 100) / 2**53


@pytest.mark.parametrize("value", [0.1, -1e200, 5e-324, 1.7976931348623157e308])
@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_equal_values_have_no_variance(name: str, value: float) -> None:
    assert float(port_of(name).call("variance", *exact_moments([[value] * 7], 1))[0]) == 0


@pytest.mark.parametrize("name", ["cpu", "array", GPU])
def test_variances_of_integers_come_from_32_bit_limbs(name: str) -> None:
    port = port_of(name)
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
    for sums in ((ints(exact),), tuple(port_of(name).call("exact_limbs_int", ints(exact)))):
        assert port_of(name).call("mean_limbs", sums, counts, 32, 0, 0).tolist() == expected
        # One that float64 does not hold beside one that it does.
        small = tuple(np.concatenate([limb, ints([1 if at == 0 else 0])]) for at, limb in enumerate(sums))
        made = port_of(name).call("mean_limbs", small, ints([3, 7, 3]), 32, 0, 0)
        assert made.tolist() == [*expected, 1 / 3]


# Compiled once, kept on disk


@pytest.mark.services
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
