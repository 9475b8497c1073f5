"""A week of earthquake reports in the order in which they were last revised: late by hours, and by days."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import gpu_ops as g
from gpu_ops import Stream
from tests.support.rows import rows, to_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000


@pytest.fixture(scope="module")
def reports(shared_data: Path) -> pa.Table:
    """Milliseconds since 1970, as in the file, in order of revision."""
    features = json.loads((shared_data / "earthquakes.json").read_text())["features"]
    fields = ("time", "updated", "net", "mag")
    found = pa.Table.from_pylist([{name: feature["properties"][name] for name in fields} for feature in features])
    return found.set_column(3, "mag", found["mag"].cast(pa.float64())).sort_by("updated")


def shaken(source: Any, **options: Any) -> Stream:
    """What each network saw in each window of six hours, every hour."""
    windows = g.events(source, start="time", unit="ms", **options).by("net").hopping("6h", "1h")
    return windows.agg(n=g.count(), measured=g.count("mag"), most=g.max("mag"), mean=g.mean("mag"), total=g.sum("mag"))


def test_the_order_is_a_hard_one(reports: pa.Table) -> None:
    times = reports["time"].to_numpy()
    lateness = np.maximum.accumulate(times) - times
    assert len(times) == 1_707
    assert round(100 * float((lateness > 0).mean()), 1) == 75.9
    assert round(float(np.median(lateness)) / MINUTE) == 3 * 60 + 35
    assert round(int(lateness.max()) / MINUTE) == 6 * 24 * 60 + 15 * 60 + 50


def test_the_answer_does_not_depend_on_the_order(reports: pa.Table, device_name: str) -> None:
    answer = rows(shaken(reports).collect(device=device_name))
    assert answer == rows(shaken(reports.sort_by("time")).collect(device=device_name))
    in_pieces = pa.RecordBatchReader.from_batches(reports.schema, reports.to_batches(max_chunksize=100))
    assert answer == rows(shaken(in_pieces).to_reader(device=device_name).read_all())


def test_every_report_is_in_six_windows(reports: pa.Table, device_name: str) -> None:
    answer = to_events(shaken(reports).collect(device=device_name))
    assert sum(event.payload["n"] for event in answer) == 6 * 1_707
    assert sum(event.payload["measured"] for event in answer) == 6 * (1_707 - reports["mag"].null_count)
    assert len({event.payload["net"] for event in answer}) == 12
    assert max(event.payload["most"] for event in answer) == pc.max(reports["mag"]).as_py()


def test_how_many_reports_waited_for_their_revision(reports: pa.Table, device_name: str) -> None:
    """From when it shook to the last word on it: a sweep by Polars knows as much."""
    waiting = g.events(reports, start="time", end="updated", unit="ms").snapshot().agg(n=g.count())
    ours = pl.DataFrame(waiting.collect(device=device_name)).sort("start")
    table = pl.DataFrame(reports)
    steps = pl.concat([table.select(at="time", by=pl.lit(1)), table.select(at="updated", by=pl.lit(-1))])
    swept = steps.group_by("at").agg(pl.sum("by")).sort("at").with_columns(n=pl.col("by").cum_sum())
    swept = swept.filter(pl.col("n") > 0)
    assert ours["start"].dt.epoch("ms").to_list() == swept["at"].to_list()
    assert ours["n"].to_list() == swept["n"].to_list()


def test_the_answer_on_spark(reports: pa.Table, spark: SparkSession) -> None:
    answer = shaken(spark.createDataFrame(reports)).collect().toArrow()
    assert rows(answer) == rows(shaken(reports).collect())
