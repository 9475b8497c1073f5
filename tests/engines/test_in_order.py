"""Rows that memory does not hold, run through a plan in order of time: the same results as all at once."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.devices import choose
from gpu_ops.engines.in_order import can_run_in_order, in_order, run_in_order
from gpu_ops.engines.local import from_table, output_schema, to_table
from gpu_ops.plan.nodes import Feed, Node
from tests.engines.test_live import SCHEMA, UTC, WINDOWS, events, table
from tests.engines.test_live_joins import PAIRS
from tests.rows import rows


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
@given(events, st.integers(1, 900))
def test_a_window_gives_what_it_gives_at_once(window: str, given_events: list[Any], budget: int) -> None:
    feed = leaf()
    query = WINDOWS[window](g.Stream(feed))
    assert can_run_in_order(query._node)
    expected = WINDOWS[window](g.events(table(given_events), start="start", end="end")).collect(device="cpu")
    device_name = random.Random(budget).choice(["cpu", "array"])
    assert rows(answer(query._node, {feed: table(given_events)}, budget, device_name)) == rows(expected)


@given(st.sampled_from(sorted(set(PAIRS) - {"itself"})), events, events, st.integers(1, 900))
def test_two_streams_give_what_they_give_at_once(pair: str, left: list[Any], right: list[Any], budget: int) -> None:
    feeds = leaf(), leaf()
    query = PAIRS[pair](*map(g.Stream, feeds))
    whole = [g.events(table(each), start="start", end="end") for each in (left, right)]
    expected = PAIRS[pair](*whole).collect(device="cpu")
    given_rows = dict(zip(feeds, map(table, (left, right)), strict=True))
    assert rows(answer(query._node, given_rows, budget, "cpu")) == rows(expected)
