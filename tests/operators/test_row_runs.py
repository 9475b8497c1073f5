"""Sorted runs of events: they give what is wanted, are few, and what a run holds never changes."""

from __future__ import annotations

import random
from itertools import pairwise
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.state_parts import StatePart
from gpu_ops.devices import Device, choose
from gpu_ops.operators.state import row_runs
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, rows_from_arrow

Event = tuple[int, int, int]
"""Its group, its start, its end."""

STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 30)), max_size=12), st.integers(0, 9)
    ),
    max_size=12,
)


def rows_of(events: list[Event], device: Device) -> AxisRows:
    code, low, high = (device.columns.array(np.array(each)) for each in zip(*events, strict=True))
    return AxisRows(code.astype(np.int32), low, high, {})


def told(rows: AxisRows, device: Device) -> list[Event]:
    return list(zip(*(device.columns.host(each).tolist() for each in (rows.code, rows.low, rows.high)), strict=True))


def restored(runs: RowRuns, device: Device) -> RowRuns:
    """The same runs, from what a checkpoint has of them."""
    again = RowRuns(("group", "low"), device)
    for part in runs.parts(lambda rows: rows.to_arrow(pa.schema([]), device, pa.array)):
        again.put_run_back(part, rows_from_arrow(part.rows(), device), 3)
    return again


@pytest.mark.parametrize(("name", "many"), [("cpu", 1 << 14), ("cpu", 3), ("array", 3)])
@given(steps=STEPS, chance=st.randoms(use_true_random=False))
def test_what_a_run_holds_never_changes(
    name: str, many: int, steps: list[tuple[list[tuple[int, int, int]], int]], chance: random.Random
) -> None:
    """What is sorted by its ends piece by piece is so here from some rows on."""
    with mock.patch.multiple(row_runs, _MANY=many, _SAMPLED=3, _PIECES=3):
        _steps(choose(name), steps, chance)


def _steps(device: Device, steps: list[tuple[list[tuple[int, int, int]], int]], chance: random.Random) -> None:
    runs, known, done = RowRuns(("group", "low"), device), list[Event](), 0
    seen: dict[str, list[Event]] = {}
    for fresh, further in steps:
        more = [(group, done + start, done + start + lasts) for group, start, lasts in fresh]
        if more:
            runs.add(rows_of(more, device))
        known += more
        assert not more or runs.runs[-1].name not in seen
        for run in runs.runs:
            here = told(run.rows, device)
            assert here == sorted(here, key=lambda event: event[:2])
            assert seen.setdefault(run.name, here) == here
        assert all(len(early.rows) >= 2 * len(late.rows) for early, late in pairwise(runs.runs))
        for run in runs.runs:
            if run.left and chance.random() < 0.5:
                gone = np.zeros(len(run.rows), np.bool_) if run.gone is None else device.columns.host(run.gone)
                ends = device.columns.host(run.rows.high)
                at = int(chance.choice(np.flatnonzero(~gone & (ends > done)).tolist()))
                runs.drop(run, device.columns.array(np.array([at])))
                known.remove(seen[run.name][at])
        done += further
        ended = [told(run.rows.take(at, device), device) for run, at in runs.ended(done)]
        assert sorted(each for part in ended for each in part) == sorted(each for each in known if each[2] <= done)
        known = [event for event in known if event[2] > done]
        if chance.random() < 0.4:
            runs = restored(runs, device)
            assert all(told(run.rows, device) == seen[run.name] for run in runs.runs)
        left = runs.rows()
        assert sorted([] if left is None else told(left, device)) == sorted(known)
        assert len(runs) == len(known)


def test_a_run_that_is_not_in_order_or_of_no_group_is_made_anew() -> None:
    device = choose("cpu")
    for events in ([(1, 5, 9), (0, 3, 4)], [(0, 3, 4), (7, 5, 9)]):
        runs = RowRuns(("group", "low"), device)
        runs.put_run_back(StatePart(pa.Table, "damaged-1"), rows_of(events, device), 3)
        assert [run.name != "damaged-1" for run in runs.runs] == [True]
        assert told(runs.runs[0].rows, device) == sorted(events)
