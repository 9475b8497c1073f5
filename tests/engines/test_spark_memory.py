"""Tasks with more events than they may hold in memory: sorted in files, run in order of time, the same answers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.local.in_order import Spill
from gpu_ops.engines.spark.session import worker_memory
from gpu_ops.engines.spark.worker import Task, run_task
from gpu_ops.errors import PlanError
from gpu_ops.plan.nodes import Feed
from gpu_ops.plan.windows import WindowAggregate
from tests.support.live_plans import UTC
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "spark.gpu_ops.worker.memory"


@pytest.fixture
def little(spark: SparkSession, few_tasks: None) -> Iterator[SparkSession]:
    """A session whose tasks hold hardly anything."""
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    spark.conf.set(MEMORY, "2k")
    yield spark
    spark.conf.unset(MEMORY)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(before))


def table(seed: int) -> pa.Table:
    chance = random.Random(seed)
    starts = [chance.randrange(0, 3000) for _ in range(1500)]
    ends = [start + chance.choice([1, 5, 40, 900]) for start in starts]
    times = {name: pa.array(values, pa.int64()).cast(UTC) for name, values in (("start", starts), ("end", ends))}
    values = {"v": [chance.choice([None, 0.1, -2.5, 1e300]) for _ in starts], "n": [*range(len(starts))]}
    return pa.table({**times, "k": [chance.choice(["a", "b", None]) for _ in starts], **values})


def test_tasks_that_cannot_hold_their_events_give_the_same(little: SparkSession) -> None:
    tables = table(1), table(2)
    frames = [little.createDataFrame(each) for each in tables]
    asked = {}
    for where, sources in (("here", tables), ("spark", frames)):
        left, right = (g.events(each, start="start", end="end") for each in sources)
        asked[where] = [
            left.by("k").snapshot().agg(n=g.count(), v=g.sum("v"), most=g.max("v")),
            left.by("k").hopping("50us", "20us").agg(n=g.count(), least=g.min("n")),
            left.select("k").stitch(),
            left.join(right, on="k", how="full", condition=g.col("n") < g.col("n_right") - 1300),
            left.join(right, on="k", how="anti"),
            left.asof_join(right, on="k", tolerance="30us"),
            left.clip_by(right, on="k"),
        ]
    for here, there in zip(asked["here"], asked["spark"], strict=True):
        assert rows(there.collect().toArrow()) == rows(here.collect(device="cpu"))


def test_what_is_sorted_in_files_is_said(
    little: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the report of the write, through an accumulator; and in the worker's log."""
    whole = table(3)
    source = g.events(little.createDataFrame(whole), start="start", end="end")
    busy = source.by("k").snapshot().agg(n=g.count())
    report = busy.write(tmp_path / "busy.parquet")
    assert report.spilled > 1500 * 8
    assert source.write(tmp_path / "source.parquet").spilled == 0, (
        "expressions need no memory, and no answer is another's"
    )
    assert busy.write(tmp_path / "busy.parquet", if_exists="replace").spilled == report.spilled

    feed = Feed(whole.select(["k"]).schema, ("k",), None)
    plan = busy._node
    assert isinstance(plan, WindowAggregate)
    task = Task(replace(plan, input=feed), (feed.schema,), plan.schema)
    rows = whole.select(["start", "end", "k"]).rename_columns(["start", "end", "0_k"]).to_batches(max_chunksize=100)
    told: list[Spill] = []
    assert sum(batch.num_rows for batch in run_task(task, "cpu", rows, 5000, told.append)) == report.rows
    assert told[0].files > 1
    assert f"A task sorted {told[0].size:,} bytes of events in {told[0].files:,} files" in caplog.text
    assert "spark.gpu_ops.worker.memory" in caplog.text


def test_files_are_where_spark_removes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark ends a worker whose task it gives up without a word, and removes the folder of its executor."""
    (tmp_path / "executor").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/gone,{tmp_path}/executor")
    whole = table(4)
    feed = Feed(whole.select(["k"]).schema, ("k",), None)
    plan = g.events(whole, start="start", end="end").by("k").snapshot().agg(n=g.count())._node
    assert isinstance(plan, WindowAggregate)
    task = Task(replace(plan, input=feed), (feed.schema,), plan.schema)
    rows = whole.select(["start", "end", "k"]).rename_columns(["start", "end", "0_k"]).to_batches(max_chunksize=100)
    answer = iter(run_task(task, "cpu", rows, 5000))
    assert next(answer).num_rows
    assert list((tmp_path / "executor").glob("gpu_ops-*/*.arrow"))
    assert sum(batch.num_rows for batch in answer)
    assert list((tmp_path / "executor").iterdir()) == []


def test_the_session_says_how_much_a_task_may_hold(spark: SparkSession) -> None:
    assert worker_memory(spark) is None
    for said, wanted in (("1000", 1000), ("2k", 2048), ("3MB", 3 << 20), ("1g", 1 << 30)):
        spark.conf.set(MEMORY, said)
        assert worker_memory(spark) == wanted
    spark.conf.set(MEMORY, "much")
    with pytest.raises(PlanError, match="256m"):
        worker_memory(spark)
    spark.conf.unset(MEMORY)


@pytest.mark.services
def test_a_task_takes_at_most_three_times_its_events() -> None:
    """The system gives it no more. The results are few here: where they are many, they take memory too."""

    def run(times: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.support.worker_memory", "300", str(times)]
        env = {**os.environ, "POLARS_MAX_THREADS": "1"}
        return subprocess.run(command, check=False, capture_output=True, text=True, env=env)

    assert "MemoryError" in run(1).stderr, "a limit that is too low ends it"
    done = run(3)
    assert not done.returncode, done.stderr
    events, grown = map(int, done.stdout.split())
    assert events == 72_000_000
    assert grown <= 3 * events
