"""What the RAPIDS planner says of plans with several inputs; asked as `test_spark_plans` asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from tests.support.planner import EVENTS, PAYLOAD, PLAIN, planned, refused

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rapids

Sides = tuple[g.Stream, g.Stream]
Query = Callable[[g.Stream, g.Stream], g.Stream]

HOWS = ("inner", "left", "right", "full", "semi", "anti")
KERNEL = ("FileSourceScanExec", "UnionExec", "ShuffleExchangeExec", "MapInArrowExec")
"""What a plan has whose inputs are matched in workers."""
BY_KEY = (*KERNEL, "HashPartitioning")
CUT = (*BY_KEY, "BroadcastNestedLoopJoinExec")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("join plans")
    for name in ("left", "right"):
        parquet.write_table(EVENTS, folder / f"{name}.parquet")
    return folder / "left.parquet", folder / "right.parquet"


@pytest.fixture
def frames(spark: SparkSession, paths: tuple[Path, Path]) -> tuple[DataFrame, DataFrame]:
    return spark.read.parquet(str(paths[0])), spark.read.parquet(str(paths[1]))


@pytest.fixture
def all_columns(frames: tuple[DataFrame, DataFrame]) -> Sides:
    left, right = (g.events(frame, start="s", end="e") for frame in frames)
    return left, right


@pytest.fixture
def sides(all_columns: Sides) -> Sides:
    left, right = (stream.select(*PAYLOAD) for stream in all_columns)
    return left, right


@pytest.mark.parametrize("how", HOWS)
def test_joins_with_payload_of_every_type(sides: Sides, how: str) -> None:
    left, right = sides
    planned(left.join(right, on="long", how=how).collect(), *BY_KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["inner", "full", "anti"])
def test_joins_on_keys_of_every_type(sides: Sides, how: str) -> None:
    left, right = sides
    planned(left.join(right, on=PLAIN, how=how).collect(), *BY_KEY)  # type: ignore[arg-type]


VERBS: dict[str, tuple[Query, tuple[str, ...]]] = {
    "a condition": (lambda a, b: a.join(b, on="text", condition=g.col("long") < g.col("long_right")), BY_KEY),
    "no key": (lambda a, b: a.join(b, condition=g.col("long") < g.col("long_right")), CUT),
    "several keys": (lambda a, b: a.join(b, on=["text", "wide", "date"], how="left"), BY_KEY),
    "keys to be cast": (lambda a, b: a.join(b, on={"short": "long"}), BY_KEY),
    "clip_by": (lambda a, b: a.clip_by(b, on="price"), BY_KEY),
    "clip_by itself": (lambda a, _: a.clip_by(a, on="price"), ("FileSourceScanExec", "ShuffleExchangeExec")),
    "asof_join": (lambda a, b: a.asof_join(b, on="time", tolerance="1min"), BY_KEY),
    "points": (lambda a, b: a.to_point().join(b.set_duration("5s"), on="long"), BY_KEY),
    "a window above": (lambda a, b: a.join(b, on="long").by("long").snapshot().agg(n=g.count("place")), BY_KEY),
    "a window below": (
        lambda a, b: a.by("long").snapshot().agg(n=g.count()).join(b, on="long", how="left"),
        BY_KEY,
    ),
    "a filter above": (lambda a, b: a.join(b, on="long").filter(g.col("double") > 1).shift("1s"), BY_KEY),
    "two joins": (lambda a, b: a.join(b, on="long").join(b.select("text"), on="text", how="anti"), BY_KEY),
    "union": (lambda a, b: a.union(b, a.shift("1s")), ("FileSourceScanExec", "UnionExec")),
    "a window of a union": (lambda a, b: a.union(b).by("text").sliding("1min").agg(n=g.sum("price")), BY_KEY),
    "distinct": (lambda a, b: a.union(b).distinct("text", "price"), BY_KEY),
}  # fmt: skip


@pytest.mark.parametrize("name", VERBS)
def test_verbs(sides: Sides, name: str) -> None:
    query, needed = VERBS[name]
    planned(query(*sides).collect(), *needed)


def test_binary_that_is_not_read_stays_out(all_columns: Sides) -> None:
    left, right = all_columns
    planned(left.select(*PAYLOAD).join(right, on="long", how="semi").collect(), *BY_KEY)
    planned(left.union(right).by("long").snapshot().agg(n=g.count()).collect(), *BY_KEY)


def test_durations_pass_through_joins_and_unions(frames: tuple[DataFrame, DataFrame]) -> None:
    lasts = "interval '0.000001' second * long lasts"
    left, right = (g.events(frame.selectExpr("s", "e", "long", lasts), start="s", end="e") for frame in frames)
    planned(left.join(right, on="lasts", how="full").collect(), *BY_KEY)
    planned(left.union(right).collect(), "UnionExec")
    text = left.union(right).explain()
    assert "'lasts' (duration[us]) as BIGINT microseconds" in text
    assert "not wholly planned" not in text


UNHEX = {"Unhex", "ProjectExec"}
AWAY: dict[str, tuple[Query, set[str], str]] = {
    # No rule for unhex: the projection that brings binary back from Python.
    "binary payload": (lambda a, b: a.join(b.select("long", "raw"), on="long"), UNHEX, "column 'raw_right'"),
    "binary key": (lambda a, b: a.select("raw").join(b.select("raw", "long"), on="raw"), UNHEX, "column 'raw'"),
    # A union carries no binary, at any depth, and nothing brings back what it may be cast to.
    "a union of binary": (lambda a, b: a.union(b), {"UnionExec"}, "'raw': binary is no type"),
}  # fmt: skip
"""What is not wholly on the GPU, with the reason."""


@pytest.mark.parametrize("name", AWAY)
def test_what_leaves_the_gpu(all_columns: Sides, name: str) -> None:
    query, expected, said = AWAY[name]
    stream = query(*all_columns)
    assert refused(stream.collect()) == expected
    assert f"not wholly planned for the GPU: column '{said.split(chr(39))[1]}'" in stream.explain()
    assert said in stream.explain()


NESTED: dict[str, tuple[str, set[str]]] = {
    # Name: a column, and what brings it back from Python where the plugin does not take that.
    "lists of binary": ("array(raw)", {"MapInArrowExec"}),
    "structs of intervals": (
        "struct(interval '0.000001' second * long i)",
        {"CaseWhen", "CreateNamedStruct", "ProjectExec"},
    ),
    "structs of binary": ("struct(raw)", UNHEX),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_payload_that_leaves_the_gpu(frames: tuple[DataFrame, DataFrame], name: str) -> None:
    column, back = NESTED[name]
    left, right = (g.events(frame.selectExpr("s", "e", "long", f"{column} c"), start="s", end="e") for frame in frames)
    both, joined = left.union(right), left.join(right.select("long"), on="long")
    assert "UnionExec" in refused(both.collect())
    assert back <= refused(joined.collect())
    for stream in (both, joined):
        assert "not wholly planned for the GPU: column 'c'" in stream.explain()


# What the checker must see: were one of these planned, the tests above would show nothing.


def pairs(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from left
    yield from right


def same(rows: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from rows


CONTROLS: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], str]] = {
    "workers that get both sides of a group": (
        lambda a, b: (
            a.select("long").groupBy("long").cogroup(b.select("long").groupBy("long")).applyInArrow(pairs, "long long")
        ),
        "FlatMapCoGroupsInArrowExec",
    ),
    "a union of intervals": (
        lambda a, b: a.selectExpr("interval '1' second * long i").union(b.selectExpr("interval '1' second * long i")),
        "UnionExec",
    ),
    "a union of binary in structs": (
        lambda a, b: a.selectExpr("struct(raw) i").union(b.selectExpr("struct(raw) i")),
        "UnionExec",
    ),
    "workers that get a struct back": (
        lambda a, b: a.select("place").union(b.select("place")).mapInArrow(same, "place struct<x: long>"),
        "MapInArrowExec",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROLS)
def test_the_checker_refuses(frames: tuple[DataFrame, DataFrame], name: str) -> None:
    make, culprit = CONTROLS[name]
    assert culprit in refused(make(*frames))
    with pytest.raises(AssertionError, match=culprit):
        planned(make(*frames))


def test_the_checker_misses_what_is_not_there(sides: Sides) -> None:
    with pytest.raises(AssertionError):
        planned(sides[0].union(sides[1]).collect(), "ShuffleExchangeExec")
