"""Edges, CTIs and late events as a user says them: columns of `gpu_ops.events`, `advance_time`, `late`, `report`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import ColumnError, PlanError, TimeError
from gpu_ops.ingest import open_source
from gpu_ops.plan.advance import Advance, AdvanceTime
from gpu_ops.plan.nodes import SparkSource
from tests.support.rows import to_events

Rows = list[tuple[Any, ...]]


def table(rows: Rows, *names: str) -> pa.Table:
    """Columns ``start``, ``end`` (null: none), those named, and ``v``, the row's number."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * (2 + len(names))
    times = {name: pa.array(columns[at], pa.int64()) for at, name in enumerate(("start", "end"))}
    words = {name: pa.array(columns[2 + at], pa.string()) for at, name in enumerate(names)}
    return pa.table(times | words | {"v": list(range(len(rows)))})


def edges(rows: Rows, **options: Any) -> g.Stream:
    """Edges of one payload."""
    frame = table(rows, "side").drop_columns("v").append_column("who", pa.array(["x"] * len(rows)))
    return g.events(frame, start="start", end="end", unit="us", shape="edge", edge="side", **options)


def got(stream: g.Stream, name: str = "v") -> Rows:
    return sorted((event.start, event.end, event.payload[name]) for event in to_events(stream.collect(device="cpu")))


# Columns that say what rows are


def test_ctis_among_events() -> None:
    rows: Rows = [(1, 4, "Insert"), (3, None, "CTI"), (3, 5, "INSERT"), (9, 1, "cti")]
    stream = g.events(table(rows, "what"), start="start", end="end", unit="us", kind="what")
    assert stream.schema.names == ["v"]
    assert got(stream) == [(1, 4, 0), (3, 5, 2)]


def test_ctis_among_points_up_to_infinity() -> None:
    frame = pa.table({"at": [5, MAX_TIME, 3], "what": ["insert", "cti", "insert"], "v": [0, 1, 2]})
    points = g.events(frame.slice(0, 2), start="at", unit="us", kind="what")
    assert got(points) == [(5, 6, 0)]
    assert "every lifetime lasts 1us" in points.explain(device="cpu")
    with pytest.raises(TimeError, match="starts before the CTI infinity") as caught:
        g.events(frame, start="at", unit="us", kind="what").collect(device="cpu")
    assert caught.value.row == 2


def test_the_other_columns_of_a_cti_are_not_looked_at() -> None:
    schema = pa.schema([("at", pa.int64()), ("what", pa.string()), pa.field("v", pa.int64(), nullable=False)])
    frame = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["insert", "cti"]), pa.array([7, None])], schema=schema)
    assert got(g.events(frame, start="at", unit="us", kind="what")) == [(1, 2, 7)]


def test_words_may_be_categories_or_views() -> None:
    frame = pl.DataFrame({"start": [1, 2], "end": [5, 0], "what": ["insert", "cti"], "v": [0, 1]})
    for words in (pl.String, pl.Categorical, pl.Enum(["insert", "cti"])):
        stream = g.events(
            frame.with_columns(pl.col("what").cast(words)), start="start", end="end", unit="us", kind="what"
        )
        assert stream.collect(device="cpu").height == 1


def test_no_row_at_all() -> None:
    assert got(edges([], on_invalid="drop"), "who") == []


def test_edges_become_events() -> None:
    # x  [===)        two of one start, one inside, one that never ends
    rows: Rows = [(2, None, "start"), (2, 99, "Start"), (4, None, "start"), (2, 5, "end"), (4, 6, "END"), (2, 7, "end")]
    assert got(edges([*rows, (8, None, "start")]), "who") == [(2, 5, "x"), (2, 7, "x"), (4, 6, "x"), (8, MAX_TIME, "x")]


def test_whole_events_among_edges() -> None:
    rows: Rows = [(2, None, "start"), (3, 9, "interval"), (3, None, "interval"), (2, 5, "end")]
    assert got(edges(rows, null_end="open"), "who") == [(2, 5, "x"), (3, 9, "x"), (3, MAX_TIME, "x")]


def test_edges_and_ctis() -> None:
    rows: Rows = [(2, None, "insert", "start"), (4, None, "cti", None), (2, 4, "insert", "end")]
    frame = table(rows, "what", "side").drop_columns("v").append_column("who", pa.array(["x", None, "x"]))
    stream = g.events(frame, start="start", end="end", unit="us", kind="what", shape="edge", edge="side")
    assert got(stream, "who") == [(2, 4, "x")]


def test_edges_are_told_apart_by_columns_that_nobody_asks_for() -> None:
    frame = pa.table({"a": [1, 1, 1, 1], "b": [None, None, 3, 7], "side": ["start", "start", "end", "end"]})
    frame = frame.append_column("who", pa.array(["x", "y", "y", "x"])).append_column("v", pa.array([1, 2, 2, 1]))
    stream = g.events(frame, start="a", end="b", unit="us", shape="edge", edge="side")
    assert got(stream.select("v")) == [(1, 3, 2), (1, 7, 1)]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([(1, 2, "start"), (1, 2, "stop")], "The edge is neither start nor end nor interval"),
        ([(1, 2, "start"), (1, 2, None)], "The edge is neither start nor end nor interval"),
        ([(1, 2, "start"), (1, None, "end")], "The end is null"),
        ([(1, 2, "start"), (1, 1, "end")], "The end is the start"),
        ([(1, 2, "start"), (3, 1, "end")], "The end is before the start"),
        ([(1, 2, "start"), (None, 1, "start")], "The start is null"),
    ],
)
def test_rows_that_are_no_edges(rows: Rows, problem: str) -> None:
    with pytest.raises(TimeError, match=problem) as caught:
        edges(rows, null_end="open").collect(device="cpu")
    assert caught.value.row == 1
    dropping = edges(rows, on_invalid="drop")
    assert got(dropping, "who") == [(1, MAX_TIME, "x")]
    assert sum(dropping.report().invalid.values()) == 1


def test_an_unknown_kind_is_counted_by_its_rule() -> None:
    rows: Rows = [(1, 2, "insert"), (5, 3, "delete"), (3, 4, "insert")]
    stream = g.events(table(rows, "what"), start="start", end="end", unit="us", kind="what", on_invalid="divert")
    assert got(stream) == [(1, 2, 0), (3, 4, 2)]
    assert stream.report().invalid == {"unknown_kind": 1}
    assert stream.report().first == {"unknown_kind": "row 1: start=5, end=3, what='delete'"}
    assert stream.rejected()["what"].to_pylist() == ["delete"]
    with pytest.raises(TimeError, match="neither insert nor cti") as caught:
        g.events(table(rows, "what"), start="start", end="end", unit="us", kind="what").collect(device="cpu")
    assert (caught.value.column, caught.value.row) == ("what", 1)


def test_a_late_row_is_named_by_its_place_in_the_source() -> None:
    rows: Rows = [(1, 2, "insert"), (5, 3, "insert"), (4, 4, "cti"), (3, 9, "insert")]
    stream = g.events(table(rows, "what"), start="start", end="end", unit="us", kind="what", on_invalid="drop")
    with pytest.raises(TimeError) as caught:
        stream.collect(device="cpu")
    assert caught.value.row == 3


def test_without_such_columns_nothing_is_looked_at() -> None:
    frame = table([(1, 2), (3, 4)])
    (batch,) = open_source(frame, start="start", end="end", unit="us").read()
    assert batch.kinds is None
    assert batch.start.ctypes.data == frame["start"].chunk(0).buffers()[1].address
    (marked,) = open_source(table([(1, 2, "insert")], "w"), start="start", end="end", unit="us", kind="w").read()
    assert marked.kinds is None  # all of them are inserts


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"kind": "nothing"}, ColumnError, "no such column"),
        ({"kind": "v"}, ColumnError, "must be text, and this is int64"),
        ({"shape": "edge"}, PlanError, "go together"),
        ({"edge": "what"}, PlanError, "go together"),
        ({"shape": "circle", "edge": "what"}, PlanError, "no policy"),
        ({"shape": "edge", "edge": "what", "end": None}, PlanError, "two times"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], kind: type[Exception], problem: str) -> None:
    frame = table([(1, 2, "insert")], "what")
    with pytest.raises(kind, match=problem):
        g.events(frame, **{"start": "start", "end": "end", "unit": "us", **options})


# Time that advances


def jumps(*starts: int) -> g.Stream:
    """Intervals of 5 at these starts."""
    return g.events(table([(start, start + 5) for start in starts]), start="start", end="end", unit="us")


def test_late_events_are_dropped_and_counted() -> None:
    stream = jumps(10, 20, 12, 25).advance_time(1, late="drop")
    assert got(stream) == [(10, 15, 0), (20, 25, 1), (25, 30, 3)]
    assert stream.report().late == {"dropped": 1}
    assert stream.report().valid == 4


def test_late_events_are_moved() -> None:
    stream = jumps(10, 12, 11, 3).advance_time("1us", late="adjust")
    assert got(stream) == [(10, 15, 0), (12, 16, 2), (12, 17, 1)]
    assert stream.report().late == {"dropped": 1, "adjusted": 1}
    assert jumps(1, 2).advance_time(late="adjust").report().late == {}


def test_windows_behind_it_see_what_was_let_in(device_name: str) -> None:
    counts = jumps(10, 20, 12, 25).advance_time(1, late="drop").snapshot().agg(n=g.count())
    assert [(e.start, e.end, e.payload["n"]) for e in to_events(counts.collect(device=device_name))] == [
        (10, 15, 1),
        (20, 25, 1),
        (25, 30, 1),
    ]


def test_the_key_stays_behind_it() -> None:
    stream = jumps(10, 20, 12).by("v").advance_time(1, late="divert")
    assert stream.key == ("v",)
    assert stream.late().key == ("v",)
    assert stream.late().snapshot().agg(n=g.count()).collect(device="cpu").num_rows == 1


def test_late_events_are_a_stream_of_their_own(device_name: str) -> None:
    frame = pa.table({"at": [10, 20, 12], "v": ["a", "b", "c"]})
    local = frame.set_column(0, "at", frame["at"].cast(pa.timestamp("us", "Europe/Vienna")))
    stream = g.events(local, start="at").advance_time(1, late="divert")
    assert stream.collect(device=device_name)["v"].to_pylist() == ["a", "b"]
    late = stream.late().collect(device=device_name)
    assert late.schema.field("cti").type == pa.timestamp("us", "Europe/Vienna")
    assert late.schema.field("late_by").type == pa.duration("us")
    assert late.select(["v", "cti", "late_by"]).cast(
        pa.schema([("v", pa.string()), ("cti", pa.int64()), ("late_by", pa.int64())])
    ).to_pylist() == [{"v": "c", "cti": 20, "late_by": 8}]
    assert late["start"].cast(pa.int64()).to_pylist() == [12]
    assert stream.report().late == {"diverted": 1}


def test_nothing_late_is_an_empty_stream() -> None:
    assert jumps(1, 2).advance_time(1, late="divert").late().collect(device="cpu").num_rows == 0


def test_reordering() -> None:
    assert got(jumps(10, 14, 12, 30, 11).advance_time(reorder="5us", late="drop")) == [
        (10, 15, 0),
        (12, 17, 2),
        (14, 19, 1),
        (30, 35, 3),
    ]


@pytest.mark.parametrize(
    ("verb", "problem"),
    [
        (lambda s: s.filter(g.col("v") > 0).advance_time(1), "follows Filter"),
        (lambda s: s.advance_time(1).advance_time(1), "follows AdvanceTime"),
        (lambda s: s.advance_time(1).late(), "diverts late events"),
        (lambda s: s.late(), "diverts late events"),
        (lambda s: s.advance_time("0s"), "every must be longer than zero"),
        (lambda s: s.advance_time(True), "every True is not a span of time"),
        (lambda s: s.advance_time(delay="often"), "delay 'often' is not a span"),
    ],
)
def test_where_it_cannot_stand(verb: Any, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        verb(jumps(1))


def test_a_column_that_late_events_get_is_refused() -> None:
    stream = g.events(pa.table({"at": [1], "cti": [1]}), start="at", unit="us").advance_time(late="divert")
    with pytest.raises(ColumnError, match="Late events get a column of this name"):
        stream.late()


def test_a_plan_says_it() -> None:
    said = jumps(1).advance_time("10s", delay="2s", late="adjust", reorder="1s").explain(device="cpu")
    assert said.splitlines()[0] == "AdvanceTime every=10s delay=2s reorder=1s late=adjust"
    assert "rows are judged one by one as they arrive, on the host" in said


def test_spark_has_no_order_of_arrival() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})()
    with pytest.raises(PlanError, match="a Spark DataFrame has none"):
        g.events(frame, start="start", shape="edge", edge="side")
    source = SparkSource(None, pa.schema([("v", pa.int64())]), "UTC", points=True)
    with pytest.raises(PlanError, match="a Spark DataFrame has none"):
        AdvanceTime(source, Advance(every=1))


def test_a_late_end_edge_shows_its_event_as_it_would_have_been() -> None:
    rows: Rows = [(2, None, "insert", "start"), (6, None, "cti", None), (2, 4, "insert", "end")]
    frame = table(rows, "what", "side").drop_columns("v").append_column("who", pa.array(["x", None, "x"]))
    stream = g.events(frame, start="start", end="end", unit="us", kind="what", shape="edge", edge="side")
    late = stream.advance_time(late="divert").late().collect(device="cpu")
    assert late.to_pylist()[0]["end"] == datetime.fromisoformat("1970-01-01T00:00:00.000004Z")
    assert late["late_by"].cast(pa.int64()).to_pylist() == [2]


def test_edges_without_payload_have_their_start_as_one() -> None:
    # 0----------9
    #     5---7
    rows = {"start": [0, 5, 5, 0], "end": [None, None, 7, 9], "side": ["start", "start", "end", "end"]}
    inside = g.events(pa.table(rows), start="start", end="end", unit="us", shape="edge", edge="side")
    assert got(inside, "start_time") == [(0, 9, 0), (5, 7, 5)]
