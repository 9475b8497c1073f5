"""Aggregates that no bounded part can say, and rows of windows, on Spark: the local engine's answers, cut or not."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import gpu_ops as g
from tests.support.on_spark import SIDES, cut
from tests.support.spark_aggregates import holistic
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Query = Callable[[g.Stream, g.Stream], g.Stream]


def held(table: pa.Table, start: Any, end: Any) -> int:
    """How long the window is, a thousand times, and how many rows it has."""
    lasted: datetime.timedelta = end - start
    return lasted // datetime.timedelta(microseconds=1) * 1000 + int(table.num_rows)


def halves(table: pa.Table) -> list[dict[str, Any]]:
    return [{"half": value / 2} for value in table["v"].to_pylist() if value is not None]


QUERIES: Mapping[str, Query] = {
    "snapshot": lambda s, _: holistic(s.by("k").snapshot()),
    "hopping": lambda s, _: holistic(s.hopping("20us", "7us", until=at_us(50))),
    "bounds": lambda s, _: s.hopping("20us", "7us", until=at_us(50)).agg(
        r=g.rate("5us"), own=g.window_function(held, returns=pa.int64(), of="v", time_sensitive=True)
    ),
    "top": lambda s, _: s.by("k").snapshot().top(2, by="v"),
    "top of all": lambda s, _: s.hopping("20us", "7us", until=at_us(50)).top(2, by="v", descending=False),
    "rows": lambda s, _: s.snapshot().apply(halves, schema=pa.schema([("half", pa.float64())]), of=["v"]),
    "rows, then a window": lambda s, _: s.by("k").snapshot().top(1, by="v").by("k").snapshot().agg(n=g.count("v")),
}


def test_spark_gives_what_the_local_engine_gives(spark: SparkSession) -> None:
    # Those that ask where their window is are not cut, the others are.
    found = cut(spark, SIDES, QUERIES, slices="4")
    assert all(table.num_rows for table in found.values())


def test_signed_zeros_and_nans_are_handed_on_as_they_came(spark: SparkSession) -> None:
    odd = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    frame = spark.createDataFrame(
        [(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), value) for value in (0.0, odd, -0.0, 1.0)],
        "at timestamp, v double",
    )
    asked = {"all": g.collect_list("v"), "low": g.nth("v", 0), "top": g.top("v", 2), "least": g.min("v")}
    made = g.events(frame, start="at").tumbling("1min").agg(**asked)
    (row,) = pa.table(made).drop_columns(["start", "end"]).to_pylist()
    assert pa.schema(made).names == ["start", "end", *asked]
    found = [struct.pack(">d", value).hex() for value in (*row["all"], row["low"], *row["top"], row["least"])]
    expected = [-0.0, 0.0, 1.0, odd, -0.0, odd, 1.0, 0.0]
    assert found == [struct.pack(">d", value).hex() for value in expected]
