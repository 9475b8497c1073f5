"""W5 on Spark, local[2]: both of our strategies beside a hand-made join on buckets of time.

    native      each interval listed in every 180 s bucket that it touches, joined on k and the bucket; a pair is kept
                in the bucket of its start
    kernel      our join in Python workers
    sql         our join on levels of buckets among Spark's own, as wide as the data asks for

Each form writes to Spark's noop sink. What counts is the CPU time of the JVM and of its Python workers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow.parquet
from pyspark.sql import functions as F  # noqa: N812  what everyone calls it
from rich.console import Console
from rich.table import Table

import gpu_ops as g
from benchmarks.engines import BUCKET
from benchmarks.spark_w2 import measure, session
from benchmarks.workloads import WORKLOADS, Checks, inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TO_NATIVE = 1.5


def native(left: DataFrame, right: DataFrame) -> DataFrame:
    width = BUCKET
    return left.sparkSession.sql(
        f"""
        WITH one AS (
            SELECT *, explode(sequence(unix_micros(start) DIV {width}, (unix_micros(end) - 1) DIV {width})) AS bucket
            FROM {{left}}
        ),
        other AS (
            SELECT start AS start2, end AS end2, k AS k2, v AS v_right,
                explode(sequence(unix_micros(start) DIV {width}, (unix_micros(end) - 1) DIV {width})) AS bucket2
            FROM {{right}}
        )
        SELECT greatest(start, start2) AS start, least(end, end2) AS end, k, v, v_right
        FROM one JOIN other ON k = k2 AND bucket = bucket2 AND start < end2 AND start2 < end
        WHERE bucket = unix_micros(greatest(start, start2)) DIV {width}""",
        left=left,
        right=right,
    )


def ours(left: DataFrame, right: DataFrame, strategy: Literal["kernel", "sql"]) -> DataFrame:
    one, other = (g.events(frame, start="start", end="end") for frame in (left, right))
    answer: DataFrame = one.join(other, on="k", strategy=strategy).collect()
    return answer


FORMS: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "native": native,
    "kernel": partial(ours, strategy="kernel"),
    "sql": partial(ours, strategy="sql"),
}


def checks(answer: DataFrame) -> Checks:
    """As `workloads.checks`, computed by Spark."""
    duration = F.unix_micros("end") - F.unix_micros("start")
    row = answer.agg(F.count("*"), F.sum(duration), F.sum((F.col("v") + F.col("v_right")) * duration)).first()
    assert row is not None
    return Checks(*row)


def report(options: argparse.Namespace, console: Console) -> None:
    """All forms in one session, in turn; the answers first, which also warms the JVM up.

    Raises:
        SystemExit: An answer is wrong.
    """
    events = options.events or WORKLOADS["W5"].full
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, f"{side}.parquet")) for side in ("left", "right")]
        for path, table in zip(paths, inputs("W5", events), strict=True):
            pyarrow.parquet.write_table(table, path)
        spark = session(Path(folder))
        try:
            left, right = map(spark.read.parquet, paths)
            expected = checks(native(left, right))
            for name in ("kernel", "sql"):
                if not (found := checks(FORMS[name](left, right))).agrees(expected):
                    raise SystemExit(f"{name} on Spark answers {found}, not {expected}.")
            results = measure({name: form(left, right) for name, form in FORMS.items()}, options.repeats)
        finally:
            spark.stop()
    table = Table(title=f"W5 on Spark, local[2], {events:,} events in all")
    for heading in ("", "CPU s", "wall s", "CPU us an event"):
        table.add_column(heading, justify="right")
    for name, (cpu, wall) in results.items():
        table.add_row(name, f"{cpu:.1f}", f"{wall:.1f}", f"{cpu / events * 1e6:.2f}")
    console.print(table)
    console.print(
        f"native / kernel: {results['native'][0] / results['kernel'][0]:.2f}x, to be at least {TO_NATIVE:g}x;"
        f" native / sql: {results['native'][0] / results['sql'][0]:.2f}x"
    )
    if options.json:
        with options.json.open("a", encoding="utf-8") as file:
            for name, (cpu, wall) in results.items():
                line = {"workload": "spark-W5", "engine": name, "events": events}
                line |= {"cpu_s": round(cpu, 2), "wall_s": round(wall, 2), "meps": round(events / cpu / 1e6, 4)}
                file.write(json.dumps(line) + "\n")
