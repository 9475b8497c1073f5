"""The driver of a live query on Spark in a process of its own, which dies where it is told: ``python … FOLDER STEP``.

Steps are counted at the seams of an epoch (`SEAMS`): before and after each call. With step 0 it lives to the end. It
reads and writes topics if a file ``topics`` in the folder names them.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import gpu_ops as g
from gpu_ops.apps.broker import CONNECTOR
from gpu_ops.engines.spark.streams import log, query, sink_files, sinks, tables
from gpu_ops.topics.writing import TopicWriter
from tests.support.epochs import SCHEMA, read, run

SEAMS: list[tuple[Any, str]] = [
    (log.EpochLog, "begin"),
    (query.StreamDriver, "_reports"),
    (log.EpochLog, "commit"),
    (sinks.FolderSink, "publish"),
    (sinks.TopicSink, "publish"),
    (TopicWriter, "deliver"),
    (tables.TableSink, "publish"),
    (tables.TableSink, "_append"),
    (sinks, "create_once"),
    (sink_files, "create_once"),
    (log.EpochLog, "clean"),
    (sinks.FolderSink, "clean"),
    (tables.TableSink, "clean"),
]
"""What a driver calls for each epoch: it may be killed before and after each of them."""


@contextmanager
def dying(step: int, die: Callable[[], None]) -> Iterator[None]:
    """Call a function at a crossing of a seam, counted from 1; never with 0."""
    crossed = 0

    def cross() -> None:
        nonlocal crossed
        crossed += 1
        if crossed == step:
            die()

    def wrapped(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            cross()
            made = inner(*args, **kwargs)
            cross()
            return made

        return call

    patches = [mock.patch.object(where, name, wrapped(getattr(where, name))) for where, name in SEAMS]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def largest(stream: g.Stream, folder: Path) -> g.Stream:
    """A query whose function fails in its first task, and not when that task is tried again."""

    def most(rows: Any) -> int:
        flag = folder / "failed once"
        if not flag.exists():
            flag.touch()
            raise RuntimeError("the first attempt fails")
        return int(max(rows["price"].to_pylist()))

    best = g.window_function(most, returns=pa.int64(), of="price")
    return stream.advance_time("10s", delay="30s", late="drop").by("item").tumbling("1min").agg(best=best)


def best(stream: g.Stream) -> g.Stream:
    """A query over a topic: no row of it is late."""
    return stream.advance_time("10s", delay="5min").by("item").tumbling("1min").agg(n=g.count(), best=g.max("price"))


def rows_of(servers: str, name: str, **more: Any) -> g.Topic:
    """A topic of `epochs.SCHEMA`."""
    return g.kafka(name, servers=servers, value="json", schema=SCHEMA, **more)


def results_of(servers: str, name: str, **more: Any) -> g.Topic:
    """A topic for results of `best`."""
    columns = [("item", pa.string()), ("n", pa.int64()), ("best", pa.int64())]
    schema = pa.schema([(name, pa.timestamp("us", "UTC")) for name in ("start", "end")] + columns)
    return g.kafka(name, servers=servers, value="json", schema=schema, **more)


def main(folder: Path, step: int) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.extraClassPath": ":".join(f"{each}/*" for each in CONNECTOR),
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.python.daemon.module": "tests.support.spark_daemon",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2,4]")  # a task is tried four times
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    where: dict[str, Any] = {"into": folder / "out", "checkpoint": folder / "checkpoint"}
    if (folder / "topics").exists():
        said = json.loads((folder / "topics").read_text())
        source = rows_of(said["servers"], said["source"])
        few = spark.readStream.option("maxOffsetsPerTrigger", said["rows"])
        stream = best(g.events(source, start="at", end="till", unit="s", spark=few))
        where["into"] = results_of(said["servers"], said["into"], delivery=said["delivery"])
    else:
        stream = largest(g.events(read(spark, folder / "in"), start="at", end="till", unit="s"), folder)
    with dying(step, lambda: os._exit(9)):
        run(stream, **where, partitions=3)
    stream.end_on_spark(**where)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
