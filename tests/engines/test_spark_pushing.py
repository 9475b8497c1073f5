"""Filters reach the files where no invalid row can hide behind them: asked of Spark's own plan, and of bad rows."""

from __future__ import annotations

import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.engines.spark import invalid_rows
from gpu_ops.errors import TimeError
from tests.support.on_spark import Query, answer, times
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("few_tasks")

EVENTS = pa.table(
    {
        "s": times([0, 10, 20, 30]),
        "e": times([5, 25, 35, 45]),
        "at": pa.array([0, 1, 2, 3], pa.int64()),
        "k": [1, 2, 1, 2],
        "v": [1, 2, 3, 4],
        "text": ["a", "b", "c", "d"],
        "day": ["mo", "mo", "tu", "tu"],
    }
)
LATE = g.col("start") >= datetime.datetime(1970, 1, 1, 0, 0, 0, 15, tzinfo=datetime.UTC)
TUESDAY: Query = lambda s: s.filter(g.col("day") == "tu", g.col("v") > 3)  # noqa: E731
INTERVALS: dict[str, Any] = {"start": "s", "end": "e"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("pushed"), EVENTS)


def written(path: Path, table: pa.Table) -> str:
    """A folder of Parquet files, one for each day."""
    parquet.write_to_dataset(table, path / "events", partition_cols=["day"])
    return str(path / "events")


Scan = tuple[str, str, str]
"""What Spark's plan says of a scan of files: its conditions on partitions, its pushed conditions and its columns."""


def scans(frame: DataFrame) -> tuple[list[Scan], list[Scan]]:
    """The scans of a plan's own rows, and those of the subqueries that look at times first."""
    plan: Any = frame._jdf.queryExecution().executedPlan()
    looks = plan.subqueriesAll()
    found = [looks.apply(at) for at in range(looks.size())]
    return _scans(plan), [scan for each in found if _kind(each) == "SubqueryExec" for scan in _scans(each.child())]


def _scans(plan: Any) -> list[Scan]:
    leaves = plan.collectLeaves()
    found = [leaves.apply(at) for at in range(leaves.size())]
    said = [each.metadata() for each in found if _kind(each) == "FileSourceScanExec"]
    return [(str(each.apply("PartitionFilters")), *_pushed(each)) for each in said]


def _pushed(said: Any) -> tuple[str, str]:
    return str(said.apply("PushedFilters")), str(said.apply("ReadSchema"))


def _kind(of_the_jvm: Any) -> str:
    return str(of_the_jvm.getClass().getSimpleName())


SOURCES: dict[str, tuple[dict[str, Any], str, Scan | None]] = {
    # Whether each interval ends behind its start is in no statistics: both columns are read.
    "intervals": (INTERVALS, "s:timestamp,e:timestamp", ("[]", "[]", "struct<s:timestamp,e:timestamp>")),
    # The footers of the files say that no start is null or outside of the years.
    "points": (
        {"start": "s"},
        "s:timestamp",
        (
            "[]",
            "[Or(IsNull(s),Or(LessThan(s,0001-01-01 00:00:00.0),GreaterThan(s,9999-12-31 23:59:59.999997)))]",
            "struct<s:timestamp>",
        ),
    ),
    "seconds": (
        {"start": "at", "unit": "s"},
        "at:bigint",
        ("[]", "[Or(IsNull(at),Or(LessThan(at,-62135596800),GreaterThan(at,253402300799)))]", "struct<at:bigint>"),
    ),
    "intervals, invalid ones dropped": (INTERVALS | {"on_invalid": "drop"}, "s:timestamp,e:timestamp", None),
    "points, invalid ones kept aside": ({"start": "s", "on_invalid": "divert"}, "s:timestamp", None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_filters_reach_the_files_and_the_folders(spark: SparkSession, folder: str, name: str) -> None:
    source, columns, look = SOURCES[name]
    stream = TUESDAY(g.events(spark.read.parquet(folder), **source)).by("k").snapshot().agg(n=g.count())
    (own,), looked = scans(stream.collect())
    assert "= tu" in own[0]
    assert "GreaterThan(v,3)" in own[1]
    # What nobody reads is not scanned: neither `text` nor the other time.
    assert set(own[2].removeprefix("struct<").rstrip(">").split(",")) == {*columns.split(","), "k:bigint", "v:bigint"}
    assert looked == ([look] if look else [])
    said = stream.explain()
    assert ("validated first, by a read of their times alone" in said) is (look is not None)
    assert ("rows without a valid lifetime are left out" in said) is (look is None)
    assert "every row is validated before any filter" not in said


FURTHER: dict[str, tuple[Query, str]] = {
    "a time": (lambda s: s.filter(LATE), "GreaterThanOrEqual(s,1970-01-01 00:00:00.000015)"),
    "a new name": (lambda s: s.select(w=g.col("v")).filter(g.col("w") == 2), "EqualTo(v,2)"),
    "two filters": (lambda s: s.filter(g.col("k") == 1).by("k").filter(g.col("v") == 2), "EqualTo(v,2)"),
    "a union": (lambda s: s.union(s).filter(g.col("v") == 2), "EqualTo(v,2)"),
    "below a join": (lambda s: s.filter(g.col("v") == 2).join(s.select("k"), on="k"), "EqualTo(v,2)"),
}


@pytest.mark.parametrize("name", FURTHER)
def test_where_filters_may_stand(spark: SparkSession, folder: str, name: str) -> None:
    query, pushed = FURTHER[name]
    own, looked = scans(query(g.events(spark.read.parquet(folder), **INTERVALS)).collect())
    assert any(pushed in each[1] for each in own)
    assert len(looked) == 1, "one look, wherever the stream is read"


def _strict(frame: DataFrame) -> None:
    own, looked = scans(frame)
    assert not [each for each in own if "tu" in each[0] or "(v," in each[1]]
    assert not looked


STAYS: dict[str, Query] = {
    "no filter": lambda s: s,
    "a filter that checks its numbers": lambda s: s.filter(g.col("v") * 2 > 4),
    "a filter in Python": lambda s: s.filter(g.col("v") % 2 == 1),
    "a filter behind a window": lambda s: s.by("k").snapshot().agg(n=g.count()).filter(g.col("n") > 1),
    "a filter behind a change of lifetime": lambda s: s.shift("1us").filter(g.col("v") == 1),
}


@pytest.mark.parametrize("name", STAYS)
def test_no_second_read_where_no_filter_would_reach_the_files(spark: SparkSession, folder: str, name: str) -> None:
    _strict(STAYS[name](g.events(spark.read.parquet(folder), **INTERVALS)).collect())


def test_frames_that_are_not_looked_at_twice(spark: SparkSession, folder: str, tmp_path: Path) -> None:
    read = spark.read.parquet(folder)
    read.write.csv(str(tmp_path / "events.csv"), header=True)
    types = "s timestamp, e timestamp, at long, k long, v long, text string, day string"
    others = {
        "joined": read.join(spark.range(9).withColumnRenamed("id", "k"), "k"),
        "random": read.selectExpr("*", "rand() AS r"),
        "text": spark.read.csv(str(tmp_path / "events.csv"), schema=types, header=True),
        "few": read.limit(3),
        "here": spark.createDataFrame(EVENTS),
    }
    for frame in others.values():
        _strict(TUESDAY(g.events(frame, **INTERVALS)).collect())
    local = read.selectExpr("cast(s as timestamp_ntz) t", "v", "day")
    _strict(TUESDAY(g.events(local, start="t", zone="Europe/Vienna")).collect())


def test_the_answer_is_the_same(spark: SparkSession, folder: str) -> None:
    def query(stream: g.Stream) -> g.Stream:
        return stream.filter(g.col("day") == "tu", LATE).by("k").snapshot().agg(n=g.count(), t=g.sum("v"))

    found = answer(query(g.events(spark.read.parquet(folder), **INTERVALS)))
    assert rows(found) == rows(query(g.events(EVENTS, **INTERVALS)).collect(device="cpu"))


BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "null_start": ({"start": "s"}, {"s": None}),
    "outside_start": ({"start": "s"}, {"s": MAX_TIME - 1}),
    "null_end": (INTERVALS, {"e": None}),
    "outside_end": (INTERVALS, {"e": MAX_TIME + 1}),
    "negative_length": (INTERVALS, {"e": 3}),
    "zero_length": (INTERVALS, {"e": 10}),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_bad_row_in_a_folder_that_is_not_read_is_an_error(spark: SparkSession, tmp_path: Path, rule: str) -> None:
    source, wrong = BROKEN[rule]
    ((name, value),) = wrong.items()
    ticks = EVENTS[name].cast(pa.int64()).to_pylist()
    bad = EVENTS.set_column(EVENTS.schema.get_field_index(name), name, times([ticks[0], value, *ticks[2:]]))
    frame = spark.read.parquet(written(tmp_path, bad))
    stream = TUESDAY(g.events(frame, **source))
    assert len(scans(stream.collect())[1]) == 1
    with pytest.raises(TimeError, match=rule) as raised:
        answer(stream)
    assert raised.value.column == name


def test_a_folder_that_is_not_there_hides_no_bad_row(spark: SparkSession, tmp_path: Path) -> None:
    bad = EVENTS.set_column(0, "s", times([0, 90, 20, 30]))
    frame = spark.read.parquet(written(tmp_path, bad))
    with pytest.raises(TimeError, match="negative_length"):
        answer(g.events(frame, **INTERVALS).filter(g.col("day") == "su"))
    assert answer(TUESDAY(g.events(frame, **INTERVALS, on_invalid="drop"))).num_rows == 1


def test_what_breaks_no_rule_is_valid(spark: SparkSession) -> None:
    """The look asks for rows that break a rule, and each row that is left out breaks one: at the edges too."""
    edges = [None, MIN_TIME - 1, MIN_TIME, -1, 0, 999, *range(MAX_TIME - 3, MAX_TIME + 2), -(1 << 63), (1 << 63) - 1]
    seconds = [None, *(each // 1_000_000 + more for each in edges if each is not None for more in (0, 1))]
    counts, whole = (spark.createDataFrame(pa.table({"s": pa.array(each, pa.int64())})) for each in (edges, seconds))
    pairs = counts.crossJoin(counts.withColumnRenamed("s", "e"))
    cases: list[tuple[DataFrame, dict[str, Any]]] = [
        (whole, {"unit": "s"}),
        (counts, {"unit": "ns"}),
        (counts.selectExpr("timestamp_micros(s) s"), {}),
        (pairs, {"unit": "us", "end": "e", "null_end": "open"}),
    ]
    streams = [g.events(frame, start="s", **source, on_invalid="drop") for frame, source in cases]
    counted = [
        each.selectExpr(f"{at} AS at", f"{sign} AS sign")
        for at, (stream, (frame, _)) in enumerate(zip(streams, cases, strict=True))
        for sign, each in ((1, stream.collect()), (1, invalid_rows(stream)), (-1, frame))
    ]
    sums = reduce(type(pairs).unionAll, counted).groupBy("at").sum("sign").collect()
    assert {row[1] for row in sums} == {0}
    assert len(sums) == len(cases)
