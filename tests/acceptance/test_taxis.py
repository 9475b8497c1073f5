"""New York taxi trips from a CSV file: unsorted, and six of them of zero length."""

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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def file(shared_data: Path) -> Path:
    return shared_data / "taxis.csv"


def trips(source: Any, **policies: Any) -> Stream:
    """Each trip; the times are taken as they stand."""
    return g.events(source, start="pickup", end="dropoff", zone="UTC", **({"on_invalid": "divert"} | policies))


def boundaries(answer: pa.Table) -> set[Any]:
    return {*answer["start"].to_pylist(), *answer["end"].to_pylist()}


def check_busy(busy: pa.Table) -> None:
    assert len(boundaries(busy)) == 12_806
    assert max(busy["n"].to_pylist()) == 14
    assert min(busy["start"].to_pylist()) == datetime(2019, 2, 28, 23, 29, 3, tzinfo=UTC)
    # The last trip began at 23:43:45 the evening before.
    assert max(busy["start"].to_pylist()) == datetime(2019, 3, 31, 23, 43, 45, tzinfo=UTC)
    assert max(busy["end"].to_pylist()) == datetime(2019, 4, 1, 0, 13, 58, tzinfo=UTC)


def test_how_many_drove_at_once(file: Path, device_name: str) -> None:
    asked = trips(file)
    busy = asked.snapshot().agg(n=g.count()).collect(device=device_name)
    check_busy(busy)
    report = asked.report()
    assert (report.rows, report.valid, dict(report.invalid)) == (6_433, 6_427, {"zero_length": 6})
    # The trips of zero length have end points of their own.
    aside = asked.rejected()
    assert aside["rule"].to_pylist() == ["zero_length"] * 6
    assert (
        len(boundaries(busy) | {datetime.fromisoformat(f"{text}Z") for text in aside["pickup"].to_pylist()}) == 12_812
    )


def test_a_trip_of_zero_length_is_an_error_that_names_its_row(file: Path) -> None:
    with pytest.raises(TimeError, match="never empty") as refused:
        trips(file, on_invalid="raise").collect()
    table = pl.read_csv(file, try_parse_dates=True)
    assert refused.value.row == table.with_row_index().filter(pl.col("pickup") == pl.col("dropoff"))["index"][0]


def test_the_fares_of_a_day_are_those_of_its_trips(file: Path, device_name: str) -> None:
    """Starts, so that each trip is in one day."""
    answer = trips(file).to_point().by("color").tumbling("1d").agg(n=g.count(), fares=g.sum("fare"), best=g.max("fare"))
    ours = pl.DataFrame(answer.collect(device=device_name)).sort("color", "start")
    table = pl.read_csv(file, try_parse_dates=True).filter(pl.col("pickup") < pl.col("dropoff"))
    theirs = (
        table.group_by("color", pl.col("pickup").dt.truncate("1d").alias("start"))
        .agg(n=pl.len(), fares=pl.sum("fare"), best=pl.max("fare"))
        .sort("color", "start")
    )
    assert ours["n"].to_list() == theirs["n"].to_list()
    assert ours["best"].to_list() == theirs["best"].to_list()
    assert ours["fares"].to_list() == pytest.approx(theirs["fares"].to_list(), rel=1e-12)


def test_how_many_drove_at_once_on_spark(file: Path, spark: SparkSession) -> None:
    table = pl.read_csv(file, try_parse_dates=True).to_arrow()
    check_busy(trips(spark.createDataFrame(table), on_invalid="drop").snapshot().agg(n=g.count()).collect().toArrow())
