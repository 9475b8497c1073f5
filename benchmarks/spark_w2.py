"""W2 on Spark, local[2]: gpu_ops beside native Spark SQL and beside the least that any Python stage costs.

    native      changes (+1 at the start, -1 at the end), summed by (k, time), then running sums and the next time over
                each key's window
    native-lean the same without the sum by (k, time): one shuffle less; rows that share a time are dropped by the end
                not being after the start
    identity    repartition by k, then a mapInArrow that gives each batch twice in the columns of W2's answer: two rows
                for an event, and no work
    gpu_ops     its public API

Each form writes to Spark's noop sink. What counts is the CPU time of the JVM and of its Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everyone calls it
from rich.console import Console
from rich.table import Table

import gpu_ops as g
from benchmarks.engines import SLIDING
from benchmarks.workloads import FULL, WORKLOADS, Checks, points

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANSWER = "start timestamp, end timestamp, k int, n bigint, mean double"
TO_NATIVE, TO_IDENTITY = 3.0, 1.5


def native(events: DataFrame) -> DataFrame:
    return events.sparkSession.sql(
        f"""
        WITH changes AS (
            SELECT k, unix_micros(t) AS ts, 1L AS n, v::BIGINT AS total FROM {{events}}
            UNION ALL SELECT k, unix_micros(t) + {SLIDING}, -1L, -v::BIGINT FROM {{events}}
        ),
        merged AS (SELECT k, ts, sum(n) AS n, sum(total) AS total FROM changes GROUP BY k, ts),
        running AS (
            SELECT k, ts, lead(ts) OVER in_time AS following, sum(n) OVER so_far AS n, sum(total) OVER so_far AS total
            FROM merged WINDOW in_time AS (PARTITION BY k ORDER BY ts),
                so_far AS (PARTITION BY k ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        )
        SELECT timestamp_micros(ts) AS start, timestamp_micros(following) AS end, k, n, total / n AS mean
        FROM running WHERE n > 0""",
        events=events,
    )


def native_lean(events: DataFrame) -> DataFrame:
    return events.sparkSession.sql(
        f"""
        WITH changes AS (
            SELECT k, unix_micros(t) AS ts, 1L AS n, v::BIGINT AS total FROM {{events}}
            UNION ALL SELECT k, unix_micros(t) + {SLIDING}, -1L, -v::BIGINT FROM {{events}}
        ),
        running AS (
            SELECT k, ts, lead(ts) OVER w AS following, sum(n) OVER w AS n, sum(total) OVER w AS total
            FROM changes WINDOW w AS (PARTITION BY k ORDER BY ts)
        )
        SELECT timestamp_micros(ts) AS start, timestamp_micros(following) AS end, k, n, total / n AS mean
        FROM running WHERE n > 0 AND following > ts""",
        events=events,
    )


def identity(events: DataFrame) -> DataFrame:
    def twice(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch["v"].cast(pa.int64())
            columns = [batch["t"], batch["t"], batch["k"], numbers, numbers.cast(pa.float64())]
            answer = pa.RecordBatch.from_arrays(columns, names=["start", "end", "k", "n", "mean"])
            yield answer
            yield answer

    return events.repartition("k").mapInArrow(twice, ANSWER)


def ours(events: DataFrame) -> DataFrame:
    answer: DataFrame = g.events(events, start="t").by("k").sliding("3min").agg(n=g.count(), mean=g.mean("v")).collect()
    return answer


FORMS = {"native": native, "native-lean": native_lean, "identity": identity, "gpu_ops": ours}


def cpu_seconds() -> float:
    """CPU time of all processes below this one, those of Spark that have ended too (`benchmarks.counting_daemon`)."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # It ended just now, and its parent has its time.
            continue
    return total


def checks(answer: DataFrame) -> Checks:
    """As `workloads.checks`, computed by Spark."""
    duration = F.unix_micros("end") - F.unix_micros("start")
    sums = F.count("*"), F.sum(duration), F.sum(F.col("n") * duration), F.sum("mean")
    row = answer.agg(*sums).first()
    assert row is not None
    return Checks(*row)


def session(scratch: Path) -> SparkSession:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.local.dir": str(scratch / "local"),
        "spark.python.daemon.module": "benchmarks.counting_daemon",
        "spark.sql.adaptive.enabled": "false",
        # As in spark_conf/local-cpu.properties.
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    # Python workers run this interpreter, and find this repository's packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def report(options: argparse.Namespace, console: Console) -> None:
    """All forms in one session, in turn; the answers first, which also warms the JVM up.

    Raises:
        SystemExit: An answer is wrong.
    """
    events = options.events or FULL // 5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.parquet")
        pyarrow.parquet.write_table(points(events), path)
        spark = session(Path(folder))
        try:
            source = spark.read.parquet(str(path))
            expected = WORKLOADS["W2"].answer if events == FULL else checks(native(source))
            for name in ("native", "native-lean", "gpu_ops"):
                if not (found := checks(FORMS[name](source))).agrees(expected):
                    raise SystemExit(f"{name} on Spark answers {found}, not {expected}.")
            results = measure({name: form(source) for name, form in FORMS.items()}, options.repeats)
        finally:
            spark.stop()
    table = Table(title=f"W2 on Spark, local[2], {events:,} events")
    for heading in ("", "CPU s", "wall s", "CPU us an event"):
        table.add_column(heading, justify="right")
    for name, (cpu, wall) in results.items():
        table.add_row(name, f"{cpu:.1f}", f"{wall:.1f}", f"{cpu / events * 1e6:.2f}")
    console.print(table)
    cpu = results["gpu_ops"][0]
    console.print(
        f"native / gpu_ops: {results['native'][0] / cpu:.2f}x, to be at least {TO_NATIVE:g}x"
        f" (native-lean: {results['native-lean'][0] / cpu:.2f}x);"
        f" gpu_ops / identity: {cpu / results['identity'][0]:.2f}x, to be at most {TO_IDENTITY:g}x"
    )
    if options.json:
        with options.json.open("a", encoding="utf-8") as file:
            for name, (cpu, wall) in results.items():
                line = {"workload": "spark-W2", "engine": name, "events": events}
                line |= {"cpu_s": round(cpu, 2), "wall_s": round(wall, 2), "meps": round(events / cpu / 1e6, 4)}
                file.write(json.dumps(line) + "\n")


def measure(forms: dict[str, Any], repeats: int) -> dict[str, tuple[float, float]]:
    """The best CPU and wall seconds of each form."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(repeats):
        for name, answer in forms.items():
            cpu, wall = cpu_seconds(), time.perf_counter()
            answer.write.format("noop").mode("overwrite").save()
            spent = cpu_seconds() - cpu, time.perf_counter() - wall
            best[name] = min(best.get(name, spent), spent)
    return best
