"""Answers as intervals, points and edges."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import ColumnError, PlanError, TimeError

TASKS = pa.table({"at": [2, 4, 4], "until": [9, 6, MAX_TIME], "who": ["a", "b", "c"]})


def tasks(**columns: Any) -> g.Stream:
    return g.events(TASKS, start="at", end="until", unit="us").with_columns(w=g.col("who"), **columns)


def told(table: pa.Table) -> list[tuple[Any, ...]]:
    times = [table[name].cast(pa.int64()).to_pylist() for name in ("start", "end") if name in table.column_names]
    return list(zip(table["edge"].to_pylist(), *times, table["who"].to_pylist(), strict=True))


# a 2|======|9
# b    4|==|6
# c    4|======== never ends


def test_edges_in_order_of_time_with_the_original_start_in_an_end_edge() -> None:
    edges = tasks().collect(shape="edge")
    assert edges.column_names == ["edge", "start", "end", "who", "w"]
    assert told(edges) == [
        ("start", 2, None, "a"),
        ("start", 4, None, "b"),
        ("start", 4, None, "c"),
        ("end", 4, 6, "b"),
        ("end", 2, 9, "a"),
    ]


def test_edges_of_views_which_arrow_picks_no_rows_of() -> None:
    views = pa.table({"at": [5, 1], "until": [MAX_TIME, 9], "who": pa.array(["a", None], pa.string_view())})
    edges = g.events(views, start="at", end="until", unit="us").collect(shape="edge")
    assert edges.schema.field("who").type == pa.string_view()
    assert told(edges) == [("start", 1, None, None), ("start", 5, None, "a"), ("end", 1, 9, None)]


def test_an_end_comes_before_a_start_at_the_same_time() -> None:
    both = pa.table({"at": [1, 5], "until": [5, 9], "who": ["a", "b"]})
    edges = g.events(both, start="at", end="until", unit="us").collect(shape="edge")
    assert [row[0] for row in told(edges)] == ["start", "end", "start", "end"]


def test_coalesced_edges_are_intervals_where_the_end_is_known() -> None:
    made = sorted(told(tasks().collect(shape="coalesced")), key=lambda row: row[-1])
    assert made == [("interval", 2, 9, "a"), ("interval", 4, 6, "b"), ("start", 4, None, "c")]


def test_points() -> None:
    points = tasks().to_point().collect(shape="point")
    assert points.column_names == ["start", "who", "w"]
    with pytest.raises(TimeError, match="lifetime is longer than one tick") as raised:
        tasks().collect(shape="point")
    assert raised.value.row == 0


def test_edges_that_come_out_go_in_again() -> None:
    edges = tasks().collect(shape="edge")
    again = g.events(edges, start="start", end="end", shape="edge", edge="edge")
    assert sorted(map(str, again.collect().to_pylist())) == sorted(map(str, tasks().collect().to_pylist()))


def test_what_is_refused() -> None:
    with pytest.raises(PlanError, match="no shape 'circle'"):
        tasks().collect(shape="circle")  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="edge"):
        tasks(edge=g.lit(1)).collect(shape="edge")


def test_a_running_query_gives_edges() -> None:
    live = tasks().to_point().start(device="cpu", shape="edge")
    assert live.results().column_names == ["edge", "start", "end", "who", "w"]
    live.push({"at": [2], "until": [3], "who": ["a"]})
    assert told(live.results()) == [("start", 2, None, "a"), ("end", 2, 3, "a")]
