"""Several answers that are written together: each is what it is by itself, and equal parts of them run once."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark import write_all
from gpu_ops.engines.spark.engine import compiled_together
from gpu_ops.engines.spark.planned import counted
from gpu_ops.errors import SourceError
from tests.support.live_plans import UTC
from tests.support.planner import planned
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(seed: int, count: int = 300) -> pa.Table:
    chance = random.Random(seed)
    starts = [chance.randrange(0, 500) for _ in range(count)]
    ends = [start + chance.choice([1, 5, 40]) for start in starts]
    times = {name: pa.array(values, pa.int64()).cast(UTC) for name, values in (("start", starts), ("end", ends))}
    values = {"v": [chance.choice([None, 0.5, -2.5]) for _ in starts], "n": [*range(count)]}
    return pa.table({**times, "k": [chance.choice(["a", "b", None]) for _ in starts], **values})


def answers(source: Any) -> Mapping[str, g.Stream]:
    """By one key: windows of several kinds, over filtered and computed columns, and with more above them."""
    events = g.events(source, start="start", end="end")
    keyed = events.by("k")
    busy = keyed.snapshot().agg(n=g.count(), known=g.count("v"))
    return {
        "busy": busy,
        "sums": keyed.hopping("50us", "20us").agg(total=g.sum("v"), least=g.min("n")),
        "doubled": events.with_columns(w=g.col("n") * 2).by("k").tumbling("100us").agg(most=g.max("w")),
        "late": events.filter(g.col("n") > 100).by("k").last(3).agg(mean=g.mean("v")),
        "most": busy.by("k").tumbling("200us").agg(n=g.max("n")).filter(g.col("n") > 2),
        "all": busy.by().tumbling("1ms").agg(n=g.max("n")),
        "events": events.filter(g.col("n") < 5),
    }


def scanned(spark: SparkSession) -> int:
    """How many rows Spark has read of Parquet files so far."""
    jvm: Any = spark._jsparkSession
    jvm.sparkContext().listenerBus().waitUntilEmpty()
    store = jvm.sharedState().statusStore()
    runs, found = store.executionsList(), 0
    for run in map(runs.apply, range(runs.size())):
        nodes, values = store.planGraph(run.executionId()).allNodes(), store.executionMetrics(run.executionId())
        for node in map(nodes.apply, range(nodes.size())):
            if "parquet" in node.name().lower() and "Scan" in node.name():
                metrics = node.metrics()
                for metric in map(metrics.apply, range(metrics.size())):
                    if metric.name() == "number of output rows" and values.contains(metric.accumulatorId()):
                        found += int(values.apply(metric.accumulatorId()).replace(",", ""))
    return found


@pytest.mark.services
def test_each_answer_is_what_it_is_by_itself(spark: SparkSession, few_tasks: None, tmp_path: Path) -> None:
    whole = table(1)
    asked = answers(spark.createDataFrame(whole))
    found = write_all({tmp_path / f"{name}.parquet": stream for name, stream in asked.items()})
    for (name, stream), report in zip(answers(whole).items(), found, strict=True):
        alone = stream.collect(device="cpu")
        assert rows(parquet.read_table(tmp_path / f"{name}.parquet")) == rows(alone), name
        assert report.rows == alone.num_rows
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def test_answers_by_one_key_are_one_scan_and_one_exchange(spark: SparkSession, few_tasks: None, tmp_path: Path) -> None:
    """By Spark's plan; none runs."""
    parquet.write_table(table(2), tmp_path / "events.parquet")
    asked = answers(spark.read.parquet(str(tmp_path / "events.parquet")))
    plans = {name: asked[name]._node for name in ("busy", "doubled", "late", "events")}
    found = compiled_together(plans, "cpu")
    (shared,) = found.passes
    for name, made in found.made.items():
        plan = str(made.frame(plans[name])._jdf.queryExecution().sparkPlan())
        assert (plan.count("MapInArrow"), "(answer#" in plan) == ((1, True) if name != "events" else (0, False))
    assert counted(str(shared._jdf.queryExecution().executedPlan())).startswith("scans 1 (FileScan 1), exchanges 1 (")


@pytest.mark.services
def test_answers_by_one_key_read_their_events_once(spark: SparkSession, few_tasks: None, tmp_path: Path) -> None:
    whole = table(2)
    parquet.write_table(whole, tmp_path / "events.parquet")
    asked = answers(spark.read.parquet(str(tmp_path / "events.parquet")))
    together = {name: asked[name] for name in ("busy", "doubled", "late")}
    before = scanned(spark)
    write_all({tmp_path / f"{name}.parquet": stream for name, stream in together.items()})
    assert scanned(spark) - before == whole.num_rows
    for name in together:
        alone = answers(whole)[name].collect(device="cpu")
        assert rows(parquet.read_table(tmp_path / f"{name}.parquet")) == rows(alone), name


@pytest.mark.services
def test_filters_of_all_answers_keep_them_apart(spark: SparkSession, few_tasks: None, tmp_path: Path) -> None:
    """Each moves the events that it reads alone."""
    whole = table(3)
    parquet.write_table(whole, tmp_path / "events.parquet")
    events = g.events(spark.read.parquet(str(tmp_path / "events.parquet")), start="start", end="end")
    some = {
        name: events.filter(condition).by("k").snapshot().agg(n=g.count())
        for name, condition in (("low", g.col("n") < 3), ("high", g.col("n") > 290))
    }
    before = scanned(spark)
    write_all({tmp_path / f"{name}.parquet": stream for name, stream in some.items()})
    assert scanned(spark) - before > whole.num_rows


@pytest.mark.services
def test_what_does_not_fit_in_memory_is_sorted_once_for_all(
    spark: SparkSession, few_tasks: None, tmp_path: Path
) -> None:
    whole = table(4)
    asked = {name: each for name, each in answers(spark.createDataFrame(whole)).items() if name != "events"}
    spark.conf.set("spark.gpu_ops.worker.memory", "1k")
    try:
        found = write_all({tmp_path / f"{name}.parquet": stream for name, stream in asked.items()})
    finally:
        spark.conf.unset("spark.gpu_ops.worker.memory")
    for name, stream in answers(whole).items():
        if name in asked:
            assert rows(parquet.read_table(tmp_path / f"{name}.parquet")) == rows(stream.collect(device="cpu")), name
    assert found[0].spilled > 1000


def test_an_answer_from_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"busy\.parquet does not come from Spark"):
        write_all({tmp_path / "busy.parquet": answers(table(5))["busy"]})


@pytest.mark.rapids
def test_the_pass_is_planned_for_the_gpu(spark: SparkSession, tmp_path: Path) -> None:
    """Before Spark keeps it, and each answer above it."""
    parquet.write_table(table(6), tmp_path / "events.parquet")
    asked = answers(spark.read.parquet(str(tmp_path / "events.parquet")))
    found = compiled_together({name: asked[name]._node for name in ("busy", "sums", "doubled", "late")}, "cpu")
    for made in found.made.values():
        planned(made.frame(made.plan), "FileSourceScanExec", "ShuffleExchangeExec", "MapInArrowExec", "FilterExec")
