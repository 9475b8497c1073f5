"""What a running window remembers of an extreme: enough for every step, and no more than what is alive."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.devices import Device, choose
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.aggregates.selection import Extremum
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows.pareto_runs import CODES, ParetoRuns, pareto_run
from tests.support.examples import examples

Event = tuple[int, int, int]
"""Its group, its end, its value."""


WORDS = pa.schema([("v", pa.string())])


def rows_of(events: list[Event], device: Device, *, ranked: bool = False, negative: bool = False) -> AxisRows:
    events = sorted(events, key=lambda event: event[:2])
    group, high, value = np.array(events, np.int64).reshape(len(events), 3).T.copy()
    made = device.columns.array(high)
    frame = None
    if ranked:
        # Of values that are ranked codes compare within a step alone.
        words = pa.array([chr(ord("m") + each) for each in value], pa.string())
        frame = device.columns.from_arrow(pa.table({"v": words}))
        value = np.searchsorted(np.unique(value), value)
    order = device.columns.array(~value if negative else value)
    return AxisRows(device.columns.array(group.astype(np.int32)), made, made, {CODES: Column((order,), None)}, frame)


def extreme(kind: str, *, ranked: bool) -> Extremum:
    schema = pa.schema([("v", pa.string() if ranked else pa.int64())])
    return Extremum.of(getattr(g, kind)("v"), schema)


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(-9, 9)), max_size=12), st.integers(0, 6)
    ),
    max_size=12,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("ranked", [False, True], ids=["numbers", "ranked"])
@pytest.mark.parametrize("name", ["cpu", "array"])
@examples(20)
@given(steps=STEPS)
def test_a_step_reads_what_can_be_the_greatest_in_it(
    kind: str,
    ranked: bool,  # noqa: FBT001
    name: str,
    steps: list[tuple[list[Event], int]],
) -> None:
    device, best = choose(name), max if kind == "max" else min
    array, host = device.columns.array, device.columns.host
    kept = ParetoRuns(extreme(kind, ranked=ranked), device)
    known: list[Event] = []
    done = 0
    for fresh, further in steps:
        limit = done + further
        events = [(group, limit + lasts, value) for group, lasts, value in fresh]
        due = {group for group, high, _ in known if done < high <= limit}
        touched = sorted(due | {group for group, _, _ in events})
        found = kept.reach(array(np.array(touched, np.int64)), done, limit)
        read: list[Event] = []
        if found is not None:
            values = (
                [ord(each) - ord("m") for each in device.columns.to_arrow(found.frame, WORDS)["v"].to_pylist()]
                if ranked
                else [each if kind == "max" else ~each for each in host(found.columns[CODES].arrays[0]).tolist()]
            )
            read = list(zip(host(found.code).tolist(), host(found.high).tolist(), values, strict=True))
        assert set(read) <= set(known)
        for group in touched:
            for now in range(done, limit + 1):
                alive = [value for g, high, value in known if g == group and high > now]
                seen = [value for g, high, value in read if g == group and high > now]
                assert best(alive, default=None) == best(seen, default=None)
        done = limit
        known = [event for event in known if event[1] > done] + events
        kept.add(pareto_run(rows_of(events, device, ranked=ranked, negative=kind == "min"), device))
        assert sum(len(run.rows) for run in kept.runs) <= 2 * len(known)
        lengths = [len(run.rows) for run in kept.runs]
        assert all(early >= 2 * late for early, late in pairwise(lengths))


def test_in_a_pareto_run_nothing_is_as_great_and_lives_as_long_as_another() -> None:
    # group 0: 5 until 3, 2 until 3, 4 until 6, 4 until 8, 1 until 9        group 1: 9 until 2
    events = [(0, 3, 5), (0, 3, 2), (0, 6, 4), (0, 8, 4), (0, 9, 1), (1, 2, 9)]
    device = choose("cpu")
    left = pareto_run(rows_of(events, device), device)
    assert list(zip(left.code, left.high, left.columns[CODES].arrays[0], strict=True)) == [
        (0, 3, 5),
        (0, 8, 4),
        (0, 9, 1),
        (1, 2, 9),
    ]
