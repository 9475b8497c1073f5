"""What `explain` says of Spark's own plan, and what it warns of."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

import gpu_ops as g
from gpu_ops.engines.spark.planned import counted
from tests.support.on_spark import PairQuery, setting
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"

PLAN = """AdaptiveSparkPlan isFinalPlan=false
+- Union
   :- *(2) BroadcastHashJoin [k#2L], [k#3L], Inner, BuildRight, false
   :  :- BatchScan gpu_ops [k#2L]
   :  +- BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, true])), [plan_id=1]
   :     +- InMemoryTableScan [k#3L]
   :           +- InMemoryRelation [k#3L], StorageLevel(disk, memory)
   :                 +- *(1) Sort [k#3L ASC NULLS FIRST], true, 0
   :                    +- Exchange rangepartitioning(k#3L ASC NULLS FIRST, 4), ENSURE_REQUIREMENTS
   :                       +- FileScan parquet [k#3L] Batched: true
   :- GpuSort [k#2L ASC]
   :  +- GpuColumnarExchange hashpartitioning(k#4L, 4), REPARTITION_BY_COL
   :     +- GpuScan parquet
   +- ReusedExchange [k#5L], Exchange hashpartitioning(k#4L, 4)
"""


def test_a_plan_is_counted_as_spark_prints_it() -> None:
    assert counted(PLAN) == (
        "scans 3 (BatchScan 1, InMemoryTableScan 1, Scan 1), exchanges 1 (hashpartitioning 1), reused exchanges 1, "
        "broadcasts 1, sorts 1"
    )


@pytest.fixture
def broadcasting(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that broadcasts what is small."""
    before = str(spark.conf.get(THRESHOLD))
    spark.conf.set(THRESHOLD, "10m")
    yield spark
    spark.conf.set(THRESHOLD, before)


def test_what_is_said_is_what_spark_plans(broadcasting: SparkSession) -> None:
    frames = (broadcasting.range(count).selectExpr("id", "id % 3 AS k") for count in (20_000_000, 3))
    left, right = (g.events(frame, start="id", unit="s") for frame in frames)
    windowed = left.by("k").tumbling("1min").agg(n=g.count()).explain()
    assert "Spark's own plan: scans 1 (Range 1), exchanges 1 (hashpartitioning 1), broadcasts 0, sorts 0" in windowed
    assert "warning" not in windowed
    cut = left.snapshot().agg(n=g.count()).explain()
    assert "broadcasts 0" not in cut
    assert "warning" not in cut
    alone = left.first(2).agg(n=g.count()).explain()
    assert "SinglePartition 1" in alone
    assert "warning: all events of DataWindow first 2 go through one task. Give it a key (by)." in alone
    matched = left.join(right, on="k", how="right").explain()
    assert "exchanges 1 (hashpartitioning 1), broadcasts 0" in matched
    assert matched.count("warning: both sides of Join") == 1
    assert "are shuffled, and the right one has" in matched
    sql = left.join(right, on="k", how="right", strategy="sql").explain()
    assert "warning" not in sql
    assert "broadcasts 0" not in sql
    broadcasting.conf.set(THRESHOLD, "-1")
    assert "warning" not in left.join(right, on="k", how="right").explain()


COSTS: dict[str, tuple[tuple[int, int], PairQuery]] = {
    # The sample and the events, and the times of changes once more.
    "snapshot": ((3, 3), lambda a, _: a.snapshot().agg(n=g.count())),
    # The sample, starts to find what slices are shown, and the events.
    "last": ((3, 9), lambda a, _: a.last(3).agg(v=g.sum("k0"))),
    "session": ((3, 5), lambda a, _: a.session("1min").agg(n=g.count())),
    # The sample of both sides, pairs, and for each side its times without a partner and the other one's next starts.
    "full": ((7, 4), lambda a, b: a.join(b, how="full", strategy="kernel")),
}  # fmt: skip
"""Plans without a key: the most scans and exchanges that they have."""


def test_plans_without_a_key_have_few_exchanges(spark: SparkSession) -> None:
    streams = [g.events(spark.range(9).selectExpr("id", f"id % 3 AS k{at}"), start="id", unit="s") for at in (0, 1)]
    for name, ((scans, exchanges), query) in COSTS.items():
        said = re.search(r"scans (\d+) .*?exchanges (\d+)", query(*streams).explain())
        assert said is not None
        assert (int(said[1]) <= scans, int(said[2]) <= exchanges) == (True, True), (name, said[0])


KEPT: dict[str, Callable[[g.Stream], g.Stream]] = {
    "as it is": lambda s: s,
    "filter": lambda s: s.filter(g.col("v") > 3),
    "with_columns": lambda s: s.with_columns(w=g.col("v") + 1),
    "select": lambda s: s.select("k", "v"),
    "shift": lambda s: s.shift("1s"),
    "set_duration": lambda s: s.set_duration("3s"),
}


def test_the_output_keeps_its_partitioning(spark: SparkSession) -> None:
    """Events that are partitioned by a key need no exchange for windows by it; and none behind what is Spark's own.

    Of what a Python worker gives Spark knows no partitioning, although each key is in one task: a group behind it has
    an exchange.
    """
    frame = spark.range(300).selectExpr("timestamp_seconds(id) AS start", "id % 7 AS k", "id AS v").repartition("k")
    stream = g.events(frame, start="start")
    with setting(spark, "spark.sql.adaptive.enabled", "false"):
        for name, query in KEPT.items():
            assert _exchanges(query(stream).collect().groupBy("k").count()) == 1, name
        window = stream.by("k").snapshot().agg(n=g.count()).collect()
        assert _exchanges(window) == 1
        assert _exchanges(window.groupBy("k").count()) == 2
        placed = window.withColumn("task", F.spark_partition_id()).select("k", "task").distinct().collect()
        assert sorted(row["k"] for row in placed) == list(range(7))


def _exchanges(frame: DataFrame) -> int:
    return _plan(frame).count("Exchange hashpartitioning")


def _plan(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        frame.explain()
    return said.getvalue()


def test_a_column_that_is_not_read_does_not_go_along(spark: SparkSession) -> None:
    """Where nothing that is read tells events of one start apart, their order is not asked for."""
    table = pa.table({"at": [5, 5, 5, 6, 6, 9], "k": [1, 1, 2, 1, 1, 1], "v": [3, 1, 2, 2, 2, 0]})
    frame = spark.createDataFrame(table).selectExpr("*", "array(struct(v AS a)) AS unread")
    there, here = (g.events(each, start="at", unit="s").by("k") for each in (frame, table))
    for verb in ("last", "first"):
        there_is, here_is = (getattr(each, verb)(2).agg(n=g.count()) for each in (there, here))
        said = there_is.explain()
        assert "not wholly planned" not in said
        assert "through Python" not in said
        assert rows(there_is.collect().toArrow()) == rows(here_is.collect(device="cpu"))
    # Whose value it is that is in is asked here, so the whole payload decides.
    assert "not wholly planned" in there.last(2).agg(v=g.sum("v")).explain()
