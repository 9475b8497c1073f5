"""Every flight that left Seattle and Portland in 2014, from file to facts that pandas alone found too."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.errors import TimeError
from tests.support.on_spark import setting
from tests.support.rows import rows
from tests.support.ticks import us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZONE = "America/Los_Angeles"


@pytest.fixture(scope="module")
def departures(shared_data: Path) -> pa.Table:
    """A departure per row, local; null where there was none. 2400 is the next midnight."""
    clock = pl.col("dep_time")
    midnight = pl.date("year", "month", "day").cast(pl.Datetime("us"))
    departure = midnight + pl.duration(hours=clock // 100, minutes=clock % 100)
    columns = departure.alias("departure"), "carrier", "dest", "air_time"
    return pl.read_parquet(shared_data / "pnw_flights_2014.parquet").select(*columns).to_arrow()


def flights(source: Any, **policies: Any) -> Stream:
    """Each flight from its departure on, as long as it was in the air."""
    clock = {"zone": ZONE, "ambiguous": "earliest", "nonexistent": "shift_forward", "on_invalid": "drop"}
    left = g.events(source, start="departure", **(clock | policies)).filter(~g.col("air_time").is_null())
    in_the_air = (g.col("air_time") * 60_000_000).cast(g.Int64).cast(g.Duration("us"))
    return left.alter_lifetime(duration=us(in_the_air))


def check_busy(busy: pa.Table) -> None:
    """The facts about how many were in the air."""
    found = pl.DataFrame(busy).sort("start")
    assert found.height == 223_893
    assert len(set(found["start"]) | set(found["end"])) == 224_115
    assert found["n"].max() == 111
    first = found.filter(pl.col("n") == 111)["start"][0]
    assert first.astimezone(UTC) == datetime(2014, 7, 18, 19, 8, tzinfo=UTC)


@pytest.mark.slow
def test_how_many_were_in_the_air(departures: pa.Table, device_name: str) -> None:
    lived = flights(departures)
    assert lived.collect(device=device_name).num_rows == 160_748
    assert lived.report().rows == 162_049
    assert dict(lived.report().invalid) == {"null_start": 857}
    busy = lived.snapshot().agg(n=g.count()).collect(device=device_name)
    assert str(busy.schema.field("start").type) == f"timestamp[us, tz={ZONE}]"
    check_busy(busy)


def test_the_time_in_the_air_is_the_same_counted_by_flight_or_by_instant(departures: pa.Table) -> None:
    total = pl.DataFrame(departures).drop_nulls("departure")["air_time"].sum()
    for key, groups in (("carrier", 11), ("dest", 71)):
        busy = pl.DataFrame(flights(departures).by(key).snapshot().agg(n=g.count()).collect())
        assert busy[key].n_unique() == groups
        assert (busy["n"] * (busy["end"] - busy["start"]).dt.total_minutes()).sum() == total


def test_each_hour_has_the_flights_that_overlap_it(departures: pa.Table) -> None:
    """Windows against the pieces of flights that lie in them, counted by Polars."""
    hours = pl.DataFrame(flights(departures).tumbling("1h").agg(n=g.count()).collect()).sort("start")
    pieces = pl.DataFrame(flights(departures).chop("1h").collect())
    counted = pieces.group_by(pl.col("start").dt.convert_time_zone("UTC").dt.truncate("1h")).len().sort("start")
    assert hours["start"].dt.convert_time_zone("UTC").to_list() == counted["start"].to_list()
    assert hours["n"].to_list() == counted["len"].to_list()


def test_departures_without_a_time_are_refused_unless_told_otherwise(departures: pa.Table) -> None:
    with pytest.raises(TimeError, match="null") as refused:
        flights(departures, on_invalid="raise").collect()
    first = departures["departure"].is_null().index(pa.scalar(True)).as_py()
    assert refused.value.column == "departure"
    assert refused.value.row == first
    kept_aside = flights(departures, on_invalid="divert")
    kept_aside.collect()
    assert kept_aside.rejected().num_rows == 857


def test_local_times_that_a_clock_change_repeats_need_a_policy(departures: pa.Table) -> None:
    with pytest.raises(TimeError, match="twice"):
        flights(departures.drop_null(), ambiguous="raise", on_invalid="raise").collect()


def on_spark(departures: pa.Table, spark: SparkSession) -> DataFrame:
    """Spark reads times without a zone as instants, unless they are called what they are."""
    with setting(spark, "spark.sql.execution.arrow.localRelationThreshold", "0"):  # or its optimizer computes the rows
        frame = spark.createDataFrame(departures)
    return frame.withColumn("departure", frame["departure"].cast("timestamp_ntz"))


@pytest.mark.usefixtures("compiled_plans")  # there are many rows
def test_how_many_were_in_the_air_on_spark(departures: pa.Table, spark: SparkSession) -> None:
    busy = flights(on_spark(departures, spark)).snapshot().agg(n=g.count())
    check_busy(busy.collect().toArrow())


@pytest.mark.usefixtures("compiled_plans")
def test_spark_gives_each_carrier_the_local_answer(departures: pa.Table, spark: SparkSession) -> None:
    def asked(source: Any) -> Stream:
        windows = flights(source).by("carrier").hopping("6h", "1h")
        return windows.agg(n=g.count(), mean=g.mean("air_time"), longest=g.max("air_time"), total=g.sum("air_time"))

    assert rows(asked(on_spark(departures, spark)).collect().toArrow()) == rows(asked(departures).collect())
