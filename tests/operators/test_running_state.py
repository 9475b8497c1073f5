"""What a running query remembers: rows in runs, the keys of groups, which group is the oldest."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.devices import Device, choose
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state import integer_numbers
from gpu_ops.operators.state.integer_numbers import IntegerNumbers
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, Oldest
from gpu_ops.plan.data_windows import Session
from gpu_ops.plan.window_kinds import ASSIGNERS
from tests.support.ticks import at_us

VALUE = ("v", "numbers")


def some_rows(pairs: list[tuple[int, int]], device: Device) -> AxisRows:
    place, value = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    frame = device.columns.from_arrow(pa.table({"v": pa.array(map(str, value), pa.string())}))
    code, place, value = map(device.columns.array, (np.zeros(len(pairs), np.int32), place, value))
    return AxisRows(code, place, place, {VALUE: Column((value,), None)}, frame)


def values(pieces: list[AxisRows], device: Device) -> list[int]:
    """Of their columns, which are those of their frames."""
    found = [value for piece in pieces for value in device.columns.host(piece.columns[VALUE].arrays[0]).tolist()]
    assert found == [int(value) for piece in pieces for value in piece.frame.polars()["v"]]
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
            named: Any = numbers.keys_of(device.columns.array(np.array(asked, np.int64)))
            by_number = {code: key for key, code in known.items()}
            assert named.polars()["k"].to_list() == [by_number[code] for code in asked]
    kept: Any = numbers.keys
    assert kept.polars()["k"].to_list() == sorted(known, key=known.__getitem__)
    assert len(numbers._keys.runs) <= 6


def test_a_step_reads_an_open_session_by_one_row(device_name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size, steps, read = 300, 40, list[int]()
    events = pa.table({"at": pa.array([], pa.int64()), "k": pa.array([], pa.int64())})
    live = g.events(events, start="at", unit="us").by("k").session("250us").agg(n=g.count()).start(device=device_name)
    assign = ASSIGNERS[Session]

    def counted(window: Any, held: Any, device: Any) -> Any:
        read.append(len(held))
        return assign(window, held, device)

    monkeypatch.setitem(ASSIGNERS, Session, counted)
    for first in range(0, size * steps, size):
        # A step is longer than the gap: whether the session of key 0 ends within it is not known before.
        live.push({"at": range(first, first + size), "k": [0 if at % 3 else at for at in range(first, first + size)]})
        live.advance(at_us(first + size))
    live.close()
    # The end reads all of them.
    assert max(read[-16:-1]) < 2 * size < 4000 < read[-1]
    assert live.results().filter(pc.field("k") == 0)["n"].to_pylist() == [2 * size * steps // 3 + 1]


LIMITS = {np.int8: (-128, 127), np.int32: (-(1 << 31), (1 << 31) - 1), np.int64: (-(1 << 63), (1 << 63) - 1)}
LIMITS |= {np.uint8: (0, 255), np.uint64: (0, (1 << 64) - 1)}


@pytest.mark.parametrize("name", ["cpu", "array"])
@pytest.mark.parametrize("kind", LIMITS)
@given(data=st.data(), width=st.sampled_from([4, 100]))
def test_integers_have_the_numbers_that_they_were_given(
    name: str, kind: type[np.integer[Any]], data: st.DataObject, width: int
) -> None:
    (least, most), device, expected = LIMITS[kind], choose(name), dict[int, int]()
    somewhere = st.integers(least, most) | st.integers(max(least, -9), 9) | st.integers(most - 9, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_numbers, "_TABLE", width)
        numbers = IntegerNumbers(device)
        for values in data.draw(st.lists(st.lists(somewhere, max_size=6, unique=True), max_size=6)):
            new = [value for value in values if value not in expected]
            given_numbers = range(len(expected), len(expected) + len(new))
            expected |= dict(zip(new, given_numbers, strict=True))
            numbers.add(
                *(
                    device.columns.array(np.array(each, dtype))
                    for each, dtype in ((new, kind), (given_numbers, np.int32))
                )
            )
            asked = [*expected, *data.draw(st.lists(somewhere, max_size=4))]
            found = device.columns.host(numbers.find(device.columns.array(np.array(asked, kind))))
            assert (found.dtype, found.tolist()) == (np.int32, [expected.get(each, -1) for each in asked])
