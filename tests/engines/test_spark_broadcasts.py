"""Joins of which a side is broadcast: the answers of the local engine, without a shuffle of the other side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gpu_ops as g
from tests.support.on_spark import SIDES, PairQuery, agree, drawn, joined, setting, to_spark
from tests.support.planner import PAYLOAD, planned
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
MORE = g.col("v") >= g.col("v_right")

QUERIES: dict[str, PairQuery] = {
    "left": joined("left", "k"),
    "the left side, no key": joined("right", condition=MORE),
    "a condition": joined("anti", "k", MORE),
    "clip_by": lambda a, b: a.clip_by(b, on="k"),
    "forward, no key": lambda a, b: a.asof_join(b.select("v", "x"), direction="forward"),
    "a window above, no key": lambda a, b: a.join(b).hopping("9us", "4us", until=at_us(70)).agg(n=g.count()),
}


@pytest.fixture
def hinted(spark: SparkSession, few_tasks: None, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Sources have the hint to broadcast them."""
    from pyspark.sql import functions

    monkeypatch.setattr("tests.support.on_spark.to_spark", lambda *given: functions.broadcast(to_spark(*given)))
    return spark


def test_answers_are_those_of_the_local_engine(hinted: SparkSession) -> None:
    agree(hinted, SIDES, QUERIES)
    agree(hinted, (SIDES[0], drawn(9, 0)), {"of none": joined("left", "k")})


@pytest.fixture
def sides(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[DataFrame, DataFrame]]:
    """A large and a small file."""
    from pyarrow import parquet

    for name, table in (("large", pa.concat_tables([SIDES[0]] * 4000)), ("small", SIDES[1])):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    with setting(spark, THRESHOLD, "10k"):
        yield spark.read.parquet(f"{tmp_path}/large.parquet"), spark.read.parquet(f"{tmp_path}/small.parquet")


def test_which_side_it_is(spark: SparkSession, sides: tuple[DataFrame, DataFrame]) -> None:
    from pyspark.sql import functions

    large, small = (g.events(frame, start="s", end="e") for frame in sides)
    said = large.join(small, on="k").explain()
    assert "the right side is broadcast, as it has " in said
    assert (
        "bytes by Spark's statistics (spark.sql.autoBroadcastJoinThreshold); the events of the left side stay" in said
    )
    assert "events move between tasks 0 times" in said
    assert "warning" not in said
    assert "scans 2 (FileScan 2), exchanges 1 (SinglePartition 1), broadcasts 0" in said, "that of the small side alone"
    assert "the left side is broadcast" in small.join(large, on="k", how="right").explain()
    assert "the right side is broadcast" in large.join(small).explain(), "no slices of time"
    # An event that is kept without a partner has to be beside all that could be one.
    for how in ("full", "right"):
        assert "is broadcast" not in large.join(small, on="k", how=how).explain()
    # The window needs its events by the same key: one shuffle does for both.
    above = large.join(small, on="k").by("k").snapshot().agg(n=g.count())
    assert "is broadcast" not in above.explain()
    assert "events move between tasks 1 times" in above.explain()
    asked = g.events(functions.broadcast(sides[0]).where("v > 1"), start="s", end="e")
    assert "the left side is broadcast, as its hint says so" in asked.join(small, on="k").explain()
    assert (
        "the right side is broadcast, as the hints of both"
        in asked.join(g.events(functions.broadcast(sides[1]), start="s", end="e"), on="k").explain()
    )
    against = g.events(sides[1].hint("merge"), start="s", end="e")
    assert "is broadcast" not in large.join(against, on="k").explain()
    spark.conf.set(THRESHOLD, "-1")
    assert "is broadcast" not in large.join(small, on="k").explain()
    assert "is broadcast" in large.join(g.events(functions.broadcast(sides[1]), start="s", end="e"), on="k").explain()


@pytest.mark.rapids
@pytest.mark.parametrize("on", ["long", ["text", "price", "wide"], None])
def test_they_are_planned(stream: g.Stream, frame: DataFrame, on: str | list[str] | None) -> None:
    from pyspark.sql import functions

    few = g.events(functions.broadcast(frame), start="s", end="e").select(*PAYLOAD)
    found = stream.select(*PAYLOAD).join(few, on=on, how="left").collect()
    planned(found, "MapInArrowExec", "ObjectHashAggregateExec")
