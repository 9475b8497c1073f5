"""What the RAPIDS planner says of the stage of an epoch: all of it is planned for the GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpu_ops as g
from gpu_ops.engines.spark.sending import Sent
from gpu_ops.engines.spark.source import open_spark
from gpu_ops.engines.spark.streams.stream_plan import StreamPlan
from gpu_ops.engines.spark.streams.task import BACK
from gpu_ops.engines.spark.types import spark_schema
from tests.support.planner import EVENTS, PLAIN, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rapids


def nothing(batches: object) -> list[pa.RecordBatch]:
    """Stands for what a task does."""
    return []


@pytest.mark.parametrize(("sides", "shards"), [(1, 4), (2, 4), (2, 6)])
def test_the_stage_of_an_epoch(spark: SparkSession, tmp_path: Path, sides: int, shards: int) -> None:
    """One repartition and one mapInArrow over the rows of all inputs, here of Parquet files and not of a stream."""
    columns = ["s", "e", *PLAIN]
    pq.write_table(EVENTS.select(columns), tmp_path / "events.parquet")
    schema = spark.read.parquet(str(tmp_path)).schema
    streams = [
        g.events(spark.readStream.schema(schema).parquet(str(tmp_path)), start="s", end="e", name=f"input {number}")
        for number in range(sides)
    ]
    first = streams[0].advance_time("10s", late="drop")
    query = first if sides == 1 else first.join(streams[1].select("text", other="long"), on="text")
    plan = StreamPlan.of(query.by("text").sliding("1min").agg(n=g.count(), best=g.max("long"))._node)
    batch = open_spark(spark.read.parquet(str(tmp_path)), start="s", end="e")
    plan = replace(plan, inputs=[replace(each, source=batch) for each in plan.inputs])
    staged = plan.partitioned(plan.rows(), 4, shards, range(4)).mapInArrow(Sent(partial(nothing)), spark_schema(BACK))
    planned(staged, "FileSourceScanExec", "UnionExec", "RangeExec", "ShuffleExchangeExec", "MapInArrowExec")
