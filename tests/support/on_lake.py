"""What a Spark with the jars of Delta and Iceberg is asked: run as a process, it says what went wrong with each probe.

Both change how a session plans and parses, so it is not the suite's. A probe gets a session, a folder of its own and a
format.
"""

from __future__ import annotations

import datetime
import json
import os
import runpy
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.spark import SparkTable, our_errors
from gpu_ops.engines.spark.streams.tables import TableSink
from tests.support.epoch_driver import dying
from tests.support.epochs import put, read, run, same, table
from tests.support.on_spark import answer, to_spark
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAKE = Path(os.environ.get("LAKE_JARS", Path.home() / ".cache" / "gpu_ops" / "lake"))
"""Where `make lake` puts the jars."""

ROOT = Path(__file__).parents[2]
FORMATS = ("delta", "iceberg")
Probe = Callable[["SparkSession", Path, Any], None]
PROBES: dict[str, Probe] = {}

EVENTS = pa.table(
    {
        "at": pa.array(range(0, 40_000_000, 1_000_000), pa.timestamp("us", "UTC")),
        "item": [f"item {number % 3}" for number in range(40)],
        "price": [*range(40)],
        "day": [datetime.date(2026, 1, 1 + number // 10) for number in range(40)],
    }
)
SECOND = datetime.date(2026, 1, 2)
EPOCHS = [
    [(10 * epoch + each, 10 * epoch + each + 7, "abc"[each % 3], epoch + each) for each in range(10)]
    for epoch in range(3)
]


def probe(function: Probe) -> Probe:
    PROBES[function.__name__] = function
    return function


def named(folder: Path, kind: str, name: str) -> str:
    """A table of Iceberg's catalog, or of Delta by its path."""
    return f"lake.{folder.name}.{name}" if kind == "iceberg" else f"delta.`{folder}/{name}`"


def written(spark: SparkSession, name: str, kind: str, events: pa.Table = EVENTS) -> DataFrame:
    """The events as a table with a partition for each day."""
    from pyspark.sql import functions as F  # noqa: N812  (its usual name)

    to_spark(spark, events).writeTo(name).using(kind).partitionedBy(F.col("day")).create()
    return spark.table(name)


def prices(stream: g.Stream) -> g.Stream:
    few = stream.filter(g.col("day") == SECOND, g.col("price") > 12)
    return few.by("item").tumbling("10s").agg(n=g.count(), best=g.max("price"))


def pushed(frame: DataFrame) -> str:
    """What the scan of a plan's own rows was handed."""
    plan: Any = frame._jdf.queryExecution().sparkPlan()
    leaves = plan.collectLeaves()
    (scan,) = (leaves.apply(at) for at in range(leaves.size()))
    if scan.getClass().getSimpleName() == "BatchScanExec":
        return str(scan.scan().description())
    return " ".join(str(scan.metadata().apply(name)) for name in ("PartitionFilters", "PushedFilters"))


@probe
def filters_reach_the_scan_and_hide_no_invalid_row(spark: SparkSession, folder: Path, kind: Any) -> None:
    frame = written(spark, named(folder, kind, "bids"), kind)
    expected = prices(g.events(EVENTS, start="at")).collect(device="cpu")
    for on_invalid, said in (
        ("raise", "validated first, by a read of their times alone, and filters reach the files"),
        ("drop", "rows without a valid lifetime are left out"),
    ):
        stream: g.Stream = prices(g.events(frame, start="at", on_invalid=on_invalid))  # type: ignore[arg-type]
        assert said in stream.explain()
        handed = pushed(stream.collect())
        assert ("day = 20455" in handed and "price > 12" in handed) or (
            "= 2026-01-02" in handed and "GreaterThan(price,12)" in handed
        ), handed
        same(answer(stream), expected)
    unfiltered = g.events(frame, start="at").by("item").tumbling("10s").agg(n=g.count())
    assert "every row is validated before any filter" in unfiltered.explain()
    broken = EVENTS.set_column(0, "at", pa.array([None, *EVENTS["at"].to_pylist()[1:]], EVENTS["at"].type))
    stream = prices(g.events(written(spark, named(folder, kind, "broken"), kind, broken), start="at"))
    with pytest.raises(g.TimeError, match="null_start"):
        answer(stream)


@probe
def their_own_writers_take_an_answer(spark: SparkSession, folder: Path, kind: Any) -> None:
    """In partitions, and in the place of an earlier one, which its older version still has."""
    from pyspark.sql import functions as F  # noqa: N812  (its usual name)

    name = named(folder, kind, "top")
    events = g.events(to_spark(spark, EVENTS), start="at").by("item")
    for query in (events.tumbling("10s").agg(n=g.count()), events.tumbling("20s").agg(n=g.sum("price"))):
        with our_errors():
            query.collect().writeTo(name).using(kind).partitionedBy(F.col("item")).createOrReplace()
        found = spark.table(name).toArrow()
        assert rows(found) == rows(answer(query))


def best(stream: g.Stream) -> g.Stream:
    return stream.advance_time("5s", delay="2s").by("item").tumbling("10s").agg(n=g.count(), best=g.max("price"))


class KilledError(Exception):
    """Stands for a kill."""


def die() -> None:
    raise KilledError("KilledError")


@contextmanager
def killed() -> Iterator[None]:
    with pytest.raises(Exception, match="KilledError"):  # (Spark wraps it, or it comes from what is published first)
        yield


@probe
def a_live_query_writes_a_table_once_whenever_it_is_killed(spark: SparkSession, folder: Path, kind: Any) -> None:
    for number, epoch in enumerate(EPOCHS):
        put(folder / "in", number, epoch)
    query = best(g.events(read(spark, folder / "in"), start="at", end="till", unit="s"))
    into = SparkTable(named(folder, kind, "live"), kind, partition_by=["item"])
    where: dict[str, Any] = {"into": into, "checkpoint": folder / "checkpoint"}
    append = TableSink._append

    def append_and_die(*given: Any) -> None:
        append(*given)
        die()

    with mock.patch.object(TableSink, "_append", append_and_die), killed():  # it is there, and nobody knows
        run(query, **where, partitions=2)
    with dying(7, die), killed():
        run(query, **where)
    run(query, **where)
    query.end_on_spark(**where)
    expected = best(g.events(table([row for epoch in EPOCHS for row in epoch]), start="at", end="till", unit="s"))
    same(spark.table(into.name).toArrow().cast(expected.collect().schema), expected.collect())
    partitions = spark.sql(f"DESCRIBE TABLE {into.name}").toArrow().to_pylist()
    assert {"col_name": "# Partition Information", "data_type": "", "comment": ""} in partitions
    with pytest.raises(g.PlanError, match="rows of a table stay"):
        query.go_back_on_spark(0, **where)


@probe
def a_task_that_fails_half_way_leaves_nothing_in_the_table(spark: SparkSession, folder: Path, kind: Any) -> None:
    """The other partition has written its results by then; the same call goes on."""
    for number, epoch in enumerate(EPOCHS):
        put(folder / "in", number, epoch)
    mended = folder / "mended"

    def most(rows: Any) -> int:
        if "c" in rows["item"].to_pylist() and not os.path.exists(said):  # noqa: PTH110  (workers have no Path)
            raise RuntimeError("half-way")
        return int(max(rows["price"].to_pylist()))

    said = str(mended)
    best_of = g.window_function(most, returns=pa.int64(), of=["item", "price"])

    def asked(stream: g.Stream) -> g.Stream:
        return stream.advance_time("5s", delay="2s").by("item").tumbling("10s").agg(best=best_of)

    query = asked(g.events(read(spark, folder / "in"), start="at", end="till", unit="s"))
    into = SparkTable(named(folder, kind, "halves"), kind)
    where: dict[str, Any] = {"into": into, "checkpoint": folder / "checkpoint"}
    with pytest.raises(Exception, match="half-way"):
        run(query, **where, partitions=2)
    assert not spark.table(into.name).count()
    mended.touch()
    run(query, **where)
    query.end_on_spark(**where)
    every = asked(g.events(table([row for epoch in EPOCHS for row in epoch]), start="at", end="till", unit="s"))
    expected = every.collect(device="cpu")
    same(spark.table(into.name).toArrow().cast(expected.schema), expected)


@probe
def what_does_not_go_together_is_refused(spark: SparkSession, folder: Path, kind: Any) -> None:
    put(folder / "in", 0, EPOCHS[0])
    query = best(g.events(read(spark, folder / "in"), start="at", end="till", unit="s"))
    name, checkpoint = named(folder, kind, "refused"), folder / "checkpoint"
    where: dict[str, Any] = {"into": SparkTable(name, kind), "checkpoint": checkpoint}
    other = named(folder, kind, "other")
    written(spark, other, kind)
    have = "has the columns at, item, price, day; the results have start, end, item, n, best"
    wrong = {
        r"Did you mean 'item'\?": SparkTable(name, kind, partition_by=["items"]),
        have: SparkTable(other, kind),
        rf"Spark refuses the {kind} table nowhere.at.all: .*spark.jars.packages=": SparkTable("nowhere.at.all", kind),
    }
    for number, (refused, into) in enumerate(wrong.items()):
        with pytest.raises(g.GpuOpsError, match=refused):
            run(query, into=into, checkpoint=folder / f"checkpoint {number}")
    run(query, **where, partitions=1)
    with pytest.raises(g.SourceError, match="is another sink than"):
        run(query, into=SparkTable(other, kind), checkpoint=checkpoint)
    shutil.copytree(checkpoint, folder / "older")
    put(folder / "in", 1, EPOCHS[1])
    put(folder / "in", 2, EPOCHS[2])
    run(query, **where)
    with pytest.raises(g.SourceError, match=r"has epoch \d of this query.* at epoch 0.*older copy"):
        run(query, **where | {"checkpoint": folder / "older"})
    if kind == "iceberg":
        spark.sql(f"DROP TABLE {name}")
    else:
        shutil.rmtree(folder / "refused")
    with pytest.raises(g.SourceError, match="is gone"):
        run(query, **where)


QUERY = """
import gpu_ops as g
def query(bids):
    events = g.events(bids, start="at").by("item")
    return {"tops": events.tumbling("10s").agg(n=g.count()), "sums": events.tumbling("10s").agg(n=g.sum("price"))}
"""


@probe
def a_job_reads_and_writes_tables(spark: SparkSession, folder: Path, kind: Any) -> None:
    job, name = runpy.run_path(str(ROOT / "spark_conf" / "job.py")), named(folder, kind, "bids")
    written(spark, name, kind)
    (folder / "query.py").write_text(QUERY)
    into = f"lake.{folder.name}" if kind == "iceberg" else "default"
    given = ["--input", f"bids=table:{name}", "--output", f"table:{into}", "--format", kind, "--partition-by", "item"]
    assert job["main"]([str(folder / "query.py"), *given]) == 0
    assert job["main"]([str(folder / "query.py"), *given]) == 1, "they are there"
    assert job["main"]([str(folder / "query.py"), *given, "--if-exists", "replace"]) == 0
    for answer_name, query in job["query_answers"](folder / "query.py", {"bids": EVENTS}).items():
        assert rows(spark.table(f"{into}.{answer_name}").toArrow()) == rows(query.collect())


ASKED = [f"{name} {kind}" for name in PROBES for kind in FORMATS]


def main(folder: Path, *names: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.extraClassPath": ":".join(f"{each}/*" for each in sorted(LAKE.glob("spark-*"))),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.local.dir": str(folder / "local"),
        "spark.python.daemon.module": "tests.support.spark_daemon",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for probed in names or ASKED:
        name, kind = probed.split()
        began, failed = time.monotonic(), None
        own = folder / f"{name}_{kind}"
        own.mkdir()
        try:
            PROBES[name](spark, own, kind)
        except BaseException:  # noqa: BLE001  (it is the test that fails)
            failed = traceback.format_exc()
        print(json.dumps([probed, failed, round(time.monotonic() - began, 1)]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
