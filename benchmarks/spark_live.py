"""Live queries on Spark, local[2]: W2 and W3 over epochs beside Spark's own ways, and epochs of one event.

    python -m benchmarks.spark_live --events 4000000

    gpu_ops       W2, W3: ``start_on_spark`` into a folder, with four partitions
    identity      W2: ``foreachBatch``: repartition by k, then a mapInArrow that gives each batch twice in the columns
                  of W2's answer, appended to a folder of Parquet files; no state, no work, and nothing exactly once
    spark         W3: its streaming aggregation; W2: ``pandas state`` and ``transform``: Python with state
                  (`benchmarks.live_peers`)

Events come as files, one for each epoch, and two more of one late event each: the CTI or watermark that the first of
them makes closes everything before it in the epoch of the second, so all forms give the same rows in the same epoch.
That they do is asserted first, row by row for few events, then by count and sums for all. The CPU seconds are those of
the JVM, of its Python workers and of all other processes below it, for all epochs of a query that has run before on few
events. Whoever comes first also pays for what the JVM compiles for all: so each second round takes the forms in reverse
order. A line of JSON says the seconds of each form and round, and a last one the medians and the median wall time of an
epoch of one event. ``--by-key`` also measures Python with a group for each k. ``--few-processes`` lets Spark's own
forms write their checkpoints as ours does, without processes that look at links and set modes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import functions as F  # noqa: N812  what everyone calls it

import gpu_ops as g
from benchmarks import live_peers
from benchmarks.spark_w2 import cpu_seconds, identity, session
from benchmarks.workloads import points
from gpu_ops.engines.spark.streams.query import BY_FILE_SYSTEM, MANAGER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
COLUMNS = "t timestamp, k int, v int"
NOW = {"availableNow": True}
HOUR = 3_600_000_000
CLOSING = -1
"""The key of the events that close a stream: no event of `points` has it."""

VALUES = {"W2": ("n", "mean"), "W3": ("total",)}
"""The columns of the answers beside ``start``, ``end`` and ``k``."""

Form: TypeAlias = Callable[["SparkSession", Path, Path], list[dict[str, Any]]]
"""Runs a query over a folder of epochs into ``out`` and ``checkpoint`` of another; it gives Spark's progress."""


def epochs(folder: Path, events: int, count: int) -> None:
    """Files of events in time order, the oldest first; the last two close the stream."""
    folder.mkdir()
    size = events // count
    files = [points(size, first=number * size) for number in range(count)]
    last = int(files[-1]["t"].cast(pa.int64())[-1].as_py())
    closing = {"t": pa.array([last + HOUR]), "k": pa.array([CLOSING]), "v": pa.array([0])}
    for late in (0, 1):
        event = pa.table(closing | {"t": pa.array([last + HOUR + late * 2_000_000])})
        files.append(event.cast(files[0].schema))
    for number, table in enumerate(files):
        path = folder / f"{number:04}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (1_000 + number, 1_000 + number))


def read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _sliding(events: g.Stream) -> g.Stream:
    return events.by("k").sliding("3min").agg(n=g.count(), mean=g.mean("v"))


def _hopping(events: g.Stream) -> g.Stream:
    return events.by("k").hopping("60s", "5s").agg(total=g.sum("v"))


def ours(
    spark: SparkSession, source: Path, to: Path, query: Callable[[g.Stream], g.Stream] = _sliding
) -> list[dict[str, Any]]:
    events = g.events(read(spark, source), start="t").advance_time("1s", delay="1s", late="drop")
    where: dict[str, Any] = {"into": to / "out", "checkpoint": to / "checkpoint"}
    running = query(events).start_on_spark(**where, trigger=NOW, partitions=PARTITIONS)
    running.awaitTermination()
    return [dict(each) for each in running.recentProgress]


def same_shape(spark: SparkSession, source: Path, to: Path) -> list[dict[str, Any]]:
    """The identity."""
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))

    def write(frame: DataFrame, _: int) -> None:
        identity(frame).write.mode("append").parquet(str(to / "out"))

    writer = read(spark, source).writeStream.foreachBatch(write).option("checkpointLocation", str(to / "checkpoint"))
    running = writer.trigger(**NOW).start()
    running.awaitTermination()
    return [dict(each) for each in running.recentProgress]


def of_spark(
    spark: SparkSession, source: Path, to: Path, query: Callable[[DataFrame], DataFrame]
) -> list[dict[str, Any]]:
    """A query of Spark's own, with its state in RocksDB."""
    for name, value in (live_peers.ROCKSDB | {"spark.sql.shuffle.partitions": str(PARTITIONS)}).items():
        spark.conf.set(name, value)
    writer = query(read(spark, source)).writeStream.format("parquet").outputMode("append")
    writer = writer.option("path", str(to / "out")).option("checkpointLocation", str(to / "checkpoint"))
    running = writer.trigger(**NOW).start()
    running.awaitTermination()
    return [dict(each) for each in running.recentProgress]


FORMS: dict[str, dict[str, Form]] = {
    "W2": {
        "gpu_ops": ours,
        "identity": same_shape,
        "pandas state": partial(of_spark, query=live_peers.pandas_state),
        "transform": partial(of_spark, query=live_peers.transform),
    },
    "W3": {
        "gpu_ops": partial(ours, query=_hopping),
        "spark": partial(of_spark, query=live_peers.spark_hopping),
    },
}
BY_KEY: dict[str, Form] = {
    f"{name} by k": partial(of_spark, query=partial(query, by_key=True))
    for name, query in (("pandas state", live_peers.pandas_state), ("transform", live_peers.transform))
}


def answer(spark: SparkSession, workload: str, folder: Path) -> DataFrame:
    """What a form has written, without what is of the events that close the stream."""
    rows = spark.read.parquet(str(folder / "out")).where(F.col("k") != CLOSING)
    return rows.select("start", "end", "k", *VALUES[workload])


def sums(rows: DataFrame) -> tuple[Any, ...]:
    """The number of rows, and sums of their columns: whole numbers, and the nearest thousandths of means."""
    own = [F.sum(F.round(F.col(name) * 1000).cast("long")) for name in rows.columns[2:]]
    times = [F.sum(F.unix_micros(name) % 1_000_003) for name in ("start", "end")]
    found = rows.agg(F.count("*"), F.sum(F.unix_micros("end") - F.unix_micros("start")), *times, *own).first()
    assert found is not None
    return tuple(found)


def agree(spark: SparkSession, workload: str, forms: Mapping[str, Form], source: Path, to: Path) -> None:
    """Run all forms of a workload, which give the same rows.

    Raises:
        SystemExit: One gives others.
    """
    expected = None
    for name, form in forms.items():
        form(spark, source, to / f"{workload} {name}")
        if name == "identity":
            continue
        found = answer(spark, workload, to / f"{workload} {name}").toArrow()
        found = found.sort_by([(each, "ascending") for each in ("k", "start")])
        expected = found if expected is None else expected
        if not found.equals(expected) or not len(found):
            raise SystemExit(f"{name} gives {len(found):,} rows of {workload}, and gpu_ops {len(expected):,} others.")


def measured(
    spark: SparkSession, workload: str, forms: Mapping[str, Form], source: Path, to: Path, rounds: int
) -> dict[str, float]:
    """The CPU seconds of each form of a workload: the median of some rounds, each second one in reverse order.

    Raises:
        SystemExit: One gives other rows.
    """
    cost: dict[str, list[float]] = {name: [] for name in forms}
    answers: dict[str, tuple[Any, ...]] = {}
    for number in range(rounds):
        for name in [*forms][:: -1 if number % 2 else 1]:
            folder = to / f"{workload} {name} {number}"
            before = cpu_seconds()
            forms[name](spark, source, folder)
            cost[name].append(cpu_seconds() - before)
            print(json.dumps({"workload": workload, "form": name, "cpu_s": round(cost[name][-1], 2)}), flush=True)
            if name != "identity":
                answers[name] = sums(answer(spark, workload, folder))
            shutil.rmtree(folder)
    if len(set(answers.values())) > 1:
        raise SystemExit(f"The forms of {workload} give others: {answers}.")
    return {name: statistics.median(each) for name, each in cost.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workloads", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--by-key", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--few-processes", action="store_true")
    options = parser.parse_args()
    forms = {name: FORMS[name] for name in options.workloads}
    if options.by_key and "W2" in forms:
        forms["W2"] = forms["W2"] | BY_KEY
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        epochs(root / "first", 2_000, 2)
        epochs(root / "events", options.events, options.epochs)
        epochs(root / "single", 12, 12)
        spark = session(root)
        if options.few_processes:
            spark.conf.set(MANAGER, BY_FILE_SYSTEM)
        try:
            for name, each in forms.items():
                agree(spark, name, each, root / "first", root / "few")  # which also loads and compiles
            cost = {
                name: measured(spark, name, each, root / "events", root / "all", options.rounds)
                for name, each in forms.items()
            }
            single = ours(spark, root / "single", root / "one event each")
        finally:
            spark.stop()
    walls = [each["durationMs"]["triggerExecution"] / 1000 for each in single[2:-2]]
    line: dict[str, Any] = {"events": options.events, "epochs": options.epochs}
    for name, spent in cost.items():
        line[name] = {each: round(seconds, 2) for each, seconds in spent.items()}
        line[f"{name} over gpu_ops"] = {each: round(s / spent["gpu_ops"], 2) for each, s in spent.items()}
    print(json.dumps(line | {"epoch_of_one_event_wall_s": round(statistics.median(walls), 2)}))


if __name__ == "__main__":
    main()
