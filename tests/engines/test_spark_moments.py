"""Moments, products, choices and combinations on Spark: the local engine's answers, cut in time or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import gpu_ops as g
from tests.support.on_spark import SIDES, cut
from tests.support.spark_aggregates import moments
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGEST = 1.7976931348623157e308

Query = Callable[[g.Stream, g.Stream], g.Stream]


QUERIES: Mapping[str, Query] = {
    "snapshot": lambda s, _: moments(s.by("k").snapshot()),
    "snapshot of all": lambda s, _: moments(s.snapshot()),
    "hopping": lambda s, _: moments(s.hopping("20us", "7us", until=at_us(50))),
    "means": lambda s, _: (
        s.by("k")
        .snapshot()
        .agg(m=g.mean("x"), once=g.mean("v", distinct=True), great=g.mean(g.col("v") * 0.0 + LARGEST))
    ),
    "means of hops": lambda s, _: s.hopping("20us", "7us", until=at_us(50)).agg(
        m=g.mean(g.col("v") * (1 << 55)), mid=g.median("x")
    ),
    "over time": lambda s, _: s.by("k").snapshot().agg(i=g.integral("v"), m=g.time_weighted_mean("x")),
    "over time in windows": lambda s, _: (
        s.clip_duration("30us").by("k").hopping("20us", "7us").agg(i=g.integral("v"), m=g.time_weighted_mean("x"))
    ),
    "over time in windows of all": lambda s, _: s.clip_duration("30us").tumbling("9us").agg(i=g.integral("v")),
}


def test_spark_gives_what_the_local_engine_gives(spark: SparkSession) -> None:
    found = cut(spark, SIDES, QUERIES, slices="4")
    assert all(table.num_rows for table in found.values())
    assert set(found["means"]["great"].drop_null().to_pylist()) == {LARGEST}
