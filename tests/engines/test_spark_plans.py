"""What the RAPIDS planner says of our plans: all of each is planned for the GPU, or the test names what is not and why.

The planner is asked strictly: no CPU bridge, no adaptive execution, Parquet below, columns and no literals. Planned is
not run: only a GPU shows that a plan works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from tests.support.planner import LINE, PLAIN, planned, refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rapids

Query = Callable[[g.Stream], g.Stream]


NESTED = ["list", "place", "tags"]


WHOLE: dict[str, Query] = {
    "source": lambda s: s,
    "filter": lambda s: s.filter(g.col("long") > 1, g.col("text") == "a", g.col("start") < g.col("end")),
    "select": lambda s: s.select("raw", "place", "tags", twice=g.col("long") * 2, up=g.col("text").str.to_uppercase()),
    "with_columns": lambda s: s.with_columns(
        flag=g.when(g.col("double") > 1).then(1).otherwise(0), hour=g.col("start").dt.hour(), more=g.col("double") + 1.5
    ),
    "set_duration": lambda s: s.set_duration("5s"),
    "shift": lambda s: s.shift("-5s"),
    "extend": lambda s: s.extend("-1us"),
    "clip_duration": lambda s: s.clip_duration("3us"),
    "to_point": lambda s: s.to_point(),
    "point_at_end": lambda s: s.point_at_end(),
    "hop_lifetime": lambda s: s.hop_lifetime("10s", "3s"),
    "hop_lifetime with gaps": lambda s: s.hop_lifetime("3s", "10s"),
    "quantize": lambda s: s.quantize("10s", "4s", progress="2s"),
    "chop": lambda s: s.chop("1s"),
    "repeat": lambda s: s.repeat("long"),
    "alter_lifetime to a column": lambda s: s.alter_lifetime(end=g.col("time")),
    "alter_lifetime for a constant": lambda s: s.alter_lifetime(start=g.col("end"), duration="1s"),
}  # fmt: skip
"""Verbs whose whole plan is on the GPU, with payload of every type beside."""


@pytest.mark.parametrize("name", WHOLE)
def test_verbs(stream: g.Stream, name: str) -> None:
    planned(WHOLE[name](stream).collect(), "FileSourceScanExec", "FilterExec", "RaiseError")


def test_a_look_at_the_times_before_a_filter_that_reaches_the_files(stream: g.Stream) -> None:
    pushed = stream.filter(g.col("long") > 1, g.col("start") < g.col("time")).collect()
    planned(pushed, "ScalarSubquery", "HashAggregateExec", "RaiseError", "FileSourceScanExec")


def test_types_beside_are_all_there(stream: g.Stream) -> None:
    assert {"raw", "place", "tags", "list", "wide"} <= set(stream.schema.names)


STEPS: dict[str, Query] = {
    "snapshot": lambda s: s.snapshot().agg(n=g.count()),
    "sliding": lambda s: s.by("long").sliding("1min").agg(m=g.mean("double")),
    "hopping": lambda s: s.by("text").hopping("1min", "5s").agg(t=g.sum("long"), d=g.variance("double")),
    "tumbling by start": lambda s: s.by("date").tumbling("1min", membership="start").agg(n=g.count("place")),
    "expression": lambda s: s.by("short").snapshot().agg(t=g.sum(g.col("long") * 2, where=g.col("double") > 1)),
    "nested payload": lambda s: s.snapshot().agg(a=g.count("list"), b=g.count("place"), c=g.count("tags")),
    "binary payload": lambda s: s.snapshot().agg(n=g.count("raw")),
    "chained": lambda s: s.by("long").snapshot().agg(n=g.count()).by("long").tumbling("1h").agg(m=g.max("n")),
    "chained to another key": lambda s: s.by("long").snapshot().agg(n=g.count()).by("n").snapshot().agg(m=g.count()),
    "filtered after": lambda s: s.by("long").snapshot().agg(n=g.count()).filter(g.col("n") > 1).shift("1s"),
    "stitch": lambda s: s.select("long", "price", "wide", "text", "time", "date", "double").stitch(),
}  # fmt: skip
GATHERED = ("FileSourceScanExec", "ShuffleExchangeExec", "MapInArrowExec")


@pytest.mark.parametrize("name", STEPS)
def test_windows(stream: g.Stream, name: str) -> None:
    planned(STEPS[name](stream).collect(), *GATHERED)


@pytest.mark.parametrize("key", PLAIN)
def test_windows_by_keys_of_each_type_and_their_extremes(stream: g.Stream, key: str) -> None:
    answer = stream.by(key).snapshot().agg(n=g.count(), least=g.min(key), most=g.max(key))
    planned(answer.collect(), *GATHERED, "HashPartitioning")


@pytest.mark.parametrize("column", ["long", "short", "double", "price", "wide"])
def test_sums_of_each_type(stream: g.Stream, column: str) -> None:
    planned(stream.by("text").hopping("10s", "5s").agg(t=g.sum(column), m=g.mean(column)).collect(), *GATHERED)


def test_durations_pass_through_windows(frame: DataFrame) -> None:
    timed = frame.selectExpr("s", "e", "long", "interval '0.000001' second * long lasts")
    answer = g.events(timed, start="s", end="e").by("lasts").snapshot().agg(t=g.sum("lasts"), most=g.max("lasts"))
    planned(answer.collect(), *GATHERED)


SOURCES: dict[str, dict[str, Any]] = {
    "points": {"start": "s"},
    "seconds": {"start": "seconds", "unit": "s"},
    "nanoseconds": {"start": "seconds", "unit": "ns", "round": "half_even"},
    "dates": {"start": "date", "on_invalid": "drop"},
    "open ends": {"start": "s", "end": "time", "null_end": "open", "on_invalid": "divert"},
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(frame: DataFrame, name: str) -> None:
    stream = g.events(frame, **SOURCES[name])
    planned(stream.by("text").sliding("1min").agg(n=g.count()).collect(), *GATHERED)
    planned(stream.shift("1s").collect(), "FileSourceScanExec")


AWAY: dict[str, tuple[Query, set[str]]] = {
    # No rule for unhex, and casts make other bytes of the text: the projection that brings binary back from Python.
    "binary key": (lambda s: s.by("raw").snapshot().agg(n=g.count()), {"Unhex", "ProjectExec"}),
    # No rule for the difference of two timestamps.
    "difference": (lambda s: s.with_columns(d=g.col("end") - g.col("start")), {"SubtractTimestamps", "ProjectExec"}),
    # Narwhals divides by try_divide, so that zero is no error: division of a kind without a rule.
    "division": (lambda s: s.with_columns(d=g.col("long") / g.col("double")), {"Divide", "ProjectExec"}),
}  # fmt: skip
"""What is not wholly on the GPU, with the reason."""


@pytest.mark.parametrize("name", AWAY)
def test_what_leaves_the_gpu(stream: g.Stream, name: str) -> None:
    query, expected = AWAY[name]
    assert refused(query(stream).collect()) == expected


def test_local_times_are_not_read_on_the_gpu(frame: DataFrame) -> None:
    answer = g.events(frame.selectExpr("cast(s as timestamp_ntz) t", "long"), start="t", zone="Europe/Vienna")
    assert "ProjectExec" in refused(answer.collect())


def test_expressions_in_python_are_on_the_gpu_plan(stream: g.Stream) -> None:
    lasted = (g.col("end") - g.col("start")).dt.total_microseconds()
    answer = stream.select("long", "place", "price", "tags").with_columns(lasted=lasted)
    planned(answer.collect(), "MapInArrowExec")


def test_explain_agrees_with_the_planner(stream: g.Stream) -> None:
    assert "not wholly planned" not in STEPS["stitch"](stream).explain()
    assert "not wholly planned for the GPU: column 'raw'" in AWAY["binary key"][0](stream).explain()


# What the checker must see: were one of these planned, the tests above would show nothing.


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


CONTROLS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a node without a rule": (
        lambda f: f.select("long", "s").groupBy("long").applyInArrow(lambda table: table, "long long, s timestamp"),
        "FlatMapGroupsInArrowExec",
    ),
    "an expression without a rule": (lambda f: f.selectExpr("unix_micros(s)"), "UnixMicros"),
    "a type that a union refuses": (lambda f: f.select("raw").union(f.select("raw")), "UnionExec"),
    "a type that Python refuses": (
        lambda f: f.select("long").mapInArrow(same, "long long, place struct<x: long>"),  # type: ignore[arg-type]
        "MapInArrowExec",
    ),
    "a condition that no syntax tree says": (
        lambda f: f.alias("a").join(f.alias("b"), _sql("a.long = b.long and abs(a.seconds - b.seconds) < 5"), "left"),
        "Subtract",
    ),
}  # fmt: skip


def _sql(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


@pytest.mark.parametrize("name", CONTROLS)
def test_the_checker_refuses(frame: DataFrame, name: str) -> None:
    make, culprit = CONTROLS[name]
    assert culprit in refused(make(frame))
    with pytest.raises(AssertionError, match=culprit):
        planned(make(frame))


def test_the_checker_sees_the_bridge(spark: SparkSession, frame: DataFrame) -> None:
    name = "spark.rapids.sql.expression.cpuBridge.enabled"
    spark.conf.set(name, "true")
    try:
        with pytest.raises(AssertionError, match="UnixMicros"):
            planned(frame.selectExpr("unix_micros(s)"))
    finally:
        spark.conf.set(name, "false")


def test_the_checker_misses_what_is_not_there(stream: g.Stream) -> None:
    with pytest.raises(AssertionError):
        planned(stream.collect(), "UnionExec")


def test_the_checker_reads_every_line() -> None:
    for text in ("*Exec <ProjectExec> will", "    ! <UnixMicros> cannot", "*Partitioning <SinglePartition$> x"):
        assert LINE.fullmatch(text)
    assert not LINE.fullmatch("something else")
