"""Rows that memory does not hold, run through a plan in order of time: the same results as all at once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.devices import choose
from gpu_ops.engines.local.engine import from_table, output_schema, to_table
from gpu_ops.engines.local.in_order import TOGETHER, _Runs, can_run_in_order, in_order, run_in_order
from gpu_ops.plan.nodes import Feed, Node
from tests.support.examples import examples
from tests.support.live_plans import PAIRS, SCHEMA, UTC, WINDOWS, events, table
from tests.support.rows import rows

ROOT = Path(__file__).parents[2]


def batches(whole: pa.Table, size: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = whole.combine_chunks().to_batches(max_chunksize=size)
    return found


@given(st.lists(st.integers(-9, 60), max_size=60), st.integers(1, 9), st.integers(1, 400))
def test_rows_come_in_order_and_all_of_them(starts: list[int], size: int, budget: int) -> None:
    whole = pa.table({"start": pa.array(starts, pa.int64()).cast(UTC), "row": pa.array(range(len(starts)), pa.int64())})
    with in_order(batches(whole, size), budget) as found:
        pieces = [(pa.Table.from_batches(found, whole.schema), 100)] if isinstance(found, list) else list(found)
    held = [piece.column("row").to_pylist() for piece, _ in pieces if piece.num_rows]
    assert sorted(row for piece in held for row in piece) == list(range(len(starts)))
    promised = -10
    for piece, cti in pieces:
        if piece.num_rows:
            assert min(piece["start"].cast(pa.int64()).to_pylist()) >= promised
        promised = cti


def test_what_fits_is_not_written() -> None:
    whole = table([(0, 1, "a", 1, None, None)])
    with in_order(batches(whole, 1), 1 << 20) as found:
        assert found == batches(whole, 1)
    with in_order([], 1 << 20) as found:
        assert found == []


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 127, 128, 300, 64 * 64 + 1])
def test_no_more_files_are_merged_than_may_be_read_at_once(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As few as can be are read twice; rows of equal start stay in the order in which they came."""
    files = {f"{number}.arrow": [number] for number in range(count)}

    def together(some: list[Path]) -> Path:
        made = tmp_path / f"{some[0].stem} and on"
        files[made.name] = [number for path in some for number in files.pop(path.name)]
        return made

    runs = _Runs(tmp_path, 1)
    runs.files = [tmp_path / name for name in files]
    monkeypatch.setattr(runs, "_together", together)
    read = runs.merge()
    assert len(runs.files) == min(count, TOGETHER)
    assert [number for path in runs.files for number in files[path.name]] == list(range(count))
    assert read <= max(count - TOGETHER, 0) + -(-max(count - TOGETHER, 0) // (TOGETHER - 1))


FEW_FILES = """
import resource
import numpy as np
import pyarrow as pa
from gpu_ops.engines.local.in_order import in_order
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
starts = np.random.default_rng(1).integers(0, 5000, 600 * 20)
table = pa.table({"start": pa.array(starts, pa.timestamp("us")), "row": np.arange(len(starts))})
told = []
with in_order(table.to_batches(max_chunksize=20), 20 * 16 - 1, told.append) as found:
    pieces = list(found)
whole = pa.concat_tables([piece for piece, _ in pieces])
assert sorted(whole["row"].to_pylist()) == list(range(len(starts)))
bounds = [cti for _, cti in pieces]
assert bounds == sorted(bounds)
assert all(pa.compute.max(piece["start"].cast("int64")).as_py() <= cti for piece, cti in pieces)
assert all(pa.compute.min(piece["start"].cast("int64")).as_py() >= cti for (piece, _), cti in zip(pieces[1:], bounds))
assert max(piece.num_rows for piece in (piece for piece, _ in pieces)) <= 64 * 256
print(told[0].files, told[0].size, told[0].merged)
"""


@pytest.mark.services
def test_a_task_needs_few_open_files(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", FEW_FILES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["600", str(600 * 20 * 16), str(600 - 64 + 9)]
    assert list(tmp_path.iterdir()) == []


def leaf() -> Feed:
    return Feed(pa.schema([field for field in SCHEMA if field.name not in {"start", "end"}]), (), None)


def answer(node: Node, given_rows: dict[Feed, pa.Table], budget: int, device_name: str) -> pa.Table:
    """What the plan gives, with all leaves' rows told apart by a number."""
    device = choose(device_name)
    tagged = [
        whole.append_column("leaf", pa.array([number] * whole.num_rows, pa.int64()))
        for number, whole in enumerate(given_rows.values())
    ]
    schema = output_schema(node)

    def pieces(found: Any) -> Any:
        for piece, cti in found:
            numbers = piece["leaf"].combine_chunks()
            yield (
                {
                    feed: [from_table(piece.filter(pa.compute.equal(numbers, number)).drop_columns("leaf"), device)]
                    for number, feed in enumerate(given_rows)
                },
                cti,
            )

    with in_order(batches(pa.concat_tables(tagged), 4), budget) as found:
        steps = found if not isinstance(found, list) else [(pa.Table.from_batches(found), -100)] if found else []
        results = [to_table(each, schema, device) for each in run_in_order(node, pieces(steps), device)]
    return pa.concat_tables([schema.empty_table(), *results])


@pytest.mark.parametrize("window", sorted(WINDOWS))
@examples(kinds=True)
@given(events, st.integers(1, 900))
def test_a_window_gives_what_it_gives_at_once(window: str, given_events: list[Any], budget: int) -> None:
    feed = leaf()
    query = WINDOWS[window](g.Stream(feed))
    assert can_run_in_order(query._node)
    expected = WINDOWS[window](g.events(table(given_events), start="start", end="end")).collect(device="cpu")
    device_name = random.Random(budget).choice(["cpu", "array"])
    assert rows(answer(query._node, {feed: table(given_events)}, budget, device_name)) == rows(expected)


@examples(dear=True)
@given(st.sampled_from(sorted(set(PAIRS) - {"itself"})), events, events, st.integers(1, 900))
def test_two_streams_give_what_they_give_at_once(pair: str, left: list[Any], right: list[Any], budget: int) -> None:
    feeds = leaf(), leaf()
    query = PAIRS[pair](*map(g.Stream, feeds))
    whole = [g.events(table(each), start="start", end="end") for each in (left, right)]
    expected = PAIRS[pair](*whole).collect(device="cpu")
    given_rows = dict(zip(feeds, map(table, (left, right)), strict=True))
    assert rows(answer(query._node, given_rows, budget, "cpu")) == rows(expected)
