"""What a running query remembers: rows in runs, the keys of groups, which group is the oldest."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.devices import Device, choose
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, Oldest

VALUE = ("v", "numbers")


def some_rows(pairs: list[tuple[int, int]], device: Device) -> AxisRows:
    place, value = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    frame = pl.DataFrame({"v": value.astype(str)}, schema={"v": pl.String})
    code, place, value = map(device.columns.array, (np.zeros(len(pairs), np.int32), place, value))
    return AxisRows(code, place, place, {VALUE: Column((value,), None)}, frame)


def values(pieces: list[AxisRows], device: Device) -> list[int]:
    """Of their columns, which are those of their frames."""
    found = [value for piece in pieces for value in device.columns.host(piece.columns[VALUE].arrays[0]).tolist()]
    assert found == [int(value) for piece in pieces for value in piece.frame["v"].to_list()]  # type: ignore[index]
    return sorted(found)


@pytest.mark.parametrize("name", ["cpu", "array"])
@given(
    steps=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 30), st.integers(-99, 99)), max_size=9), st.integers(0, 30))
    )
)
def test_runs_give_what_is_due_and_know_the_least_of_the_rest(
    name: str, steps: list[tuple[list[tuple[int, int]], int]]
) -> None:
    device = choose(name)
    runs, known = RowRuns(("high",), device), list[tuple[int, int]]()
    for fresh, limit in steps:
        runs.add(some_rows(fresh, device))
        known += fresh
        assert values(runs.due(limit), device) == sorted(value for place, value in known if place <= limit)
        known = [pair for pair in known if pair[0] > limit]
        assert (len(runs), values(runs.pieces(), device)) == (len(known), sorted(value for _, value in known))
        assert runs.least(VALUE) == min((value for _, value in known), default=None)


@pytest.mark.parametrize("name", ["cpu", "array"])
@pytest.mark.parametrize("groups", [10, 5000])  # all are looked at, or a queue is kept
@given(
    steps=st.lists(
        st.tuples(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 5), st.integers(0, 2))), st.booleans())
    )
)
def test_the_oldest_group(name: str, groups: int, steps: list[tuple[dict[int, tuple[int, int]], bool]]) -> None:
    # Each step gives some groups a boundary, none before an earlier step's, and so many rows.
    array = choose(name).columns.array
    last, rows, oldest = np.zeros(groups, np.int64), np.zeros(groups, np.int64), Oldest(choose(name))
    done = 0
    for moved, is_asked in steps:
        for group, (further, count) in moved.items():
            last[group], rows[group] = done + further, count
        done = max([done, *(int(last[group]) for group in moved)])
        oldest.moved(array(np.array(sorted(group for group in moved if rows[group]), np.int64)), array(last.copy()))
        if is_asked:
            assert oldest.place(array(last), array(rows)) == min(last[rows > 0].tolist(), default=None)


def test_the_oldest_of_many_groups_is_found_in_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, step = 100_000, 10
    device, read = choose("cpu"), [0]
    take = device.kernels.take

    def counted(array: Any, indices: Any) -> Any:
        read[0] += len(indices)
        return take(array, indices)

    last, rows, oldest = np.arange(groups), np.ones(groups, np.int64), Oldest(device)
    assert oldest.place(last, rows) == 0
    monkeypatch.setattr(device.kernels, "take", counted)
    for at in range(0, 5000, step):
        # The oldest ones move to the end, now and then one goes.
        these = np.arange(at, at + step)
        last[these] = groups + these
        rows[at] = 0
        oldest.moved(these[1:], last)
        assert oldest.place(last, rows) == at + step
    assert read[0] < 10 * 5000


@pytest.mark.parametrize("name", ["cpu", "array"])
@pytest.mark.parametrize("text", [False, True], ids=["numbers", "text"])
def test_keys_of_groups_that_came_in_many_steps(name: str, text: bool) -> None:  # noqa: FBT001
    device: Device = choose(name)
    chance = random.Random(14)
    schema = pa.schema([("k", pa.string() if text else pa.int64())])
    numbers = GroupInterner(("k",), schema, device)
    known: dict[str | int, int] = {}
    for _ in range(200):
        drawn = [chance.randrange(3000) for _ in range(chance.randrange(9))]
        keys: list[str | int] = [str(each) if text else each for each in drawn]
        found = numbers.codes(device.columns.from_arrow(pa.table({"k": pa.array(keys, schema.field("k").type)})))
        assert all(
            known.setdefault(key, code) == code
            for key, code in zip(keys, device.columns.host(found).tolist(), strict=True)
        )
        assert len(numbers) == len(known)
        asked = [chance.randrange(len(known)) for _ in range(chance.choice([0, 1, 20]))] if known else []
        if known:
            named = numbers.keys_of(device.columns.array(np.array(asked, np.int64)))
            by_number = {code: key for key, code in known.items()}
            assert named["k"].to_list() == [by_number[code] for code in asked]  # type: ignore[index]
    assert numbers.keys["k"].to_list() == sorted(known, key=known.__getitem__)  # type: ignore[index]
    assert len(numbers._keys.runs) <= 6
