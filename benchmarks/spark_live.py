"""Live queries on Spark, local[2]: W2 over epochs beside an identity of the same shape, and epochs of one event.

    python -m benchmarks.spark_live --events 4000000

    gpu_ops     ``start_on_spark`` into a folder, with four partitions
    identity    ``foreachBatch``: repartition by k, then a mapInArrow that gives each batch twice in the columns of W2's
                answer, appended to a folder of Parquet files; no state, no work, and nothing exactly once

Events come as files, one for each epoch. The CPU seconds are those of the JVM and of its Python workers, for all epochs
but the first, which loads and compiles. A line of JSON says them, and the median wall time of an epoch of one event.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

import gpu_ops as g
from benchmarks.spark_w2 import cpu_seconds, identity, session
from benchmarks.workloads import points

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
COLUMNS = "t timestamp, k int, v int"
NOW = {"availableNow": True}


def epochs(folder: Path, events: int, count: int) -> None:
    """Files of events in time order, the oldest first."""
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:04}.parquet"
        pyarrow.parquet.write_table(points(events // count, first=number * (events // count)), path)
        os.utime(path, (1_000 + number, 1_000 + number))


def read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def ours(spark: SparkSession, source: Path, to: Path) -> list[dict[str, Any]]:
    """W2; the progress of its epochs."""
    events = g.events(read(spark, source), start="t").advance_time("1s", late="drop")
    query = events.by("k").sliding("3min").agg(n=g.count(), mean=g.mean("v"))
    where: dict[str, Any] = {"into": to / "out", "checkpoint": to / "checkpoint"}
    running = query.start_on_spark(**where, trigger=NOW, partitions=PARTITIONS)
    running.awaitTermination()
    return [dict(each) for each in running.recentProgress]


def same_shape(spark: SparkSession, source: Path, to: Path) -> list[dict[str, Any]]:
    """The identity; the progress of its epochs."""
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))

    def write(frame: DataFrame, _: int) -> None:
        identity(frame).write.mode("append").parquet(str(to / "out"))

    writer = read(spark, source).writeStream.foreachBatch(write).option("checkpointLocation", str(to / "checkpoint"))
    running = writer.trigger(**NOW).start()
    running.awaitTermination()
    return [dict(each) for each in running.recentProgress]


FORMS = {"gpu_ops": ours, "identity": same_shape}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        epochs(root / "first", 1_000, 2)
        epochs(root / "events", options.events, options.epochs)
        epochs(root / "single", 12, 12)
        spark = session(root)
        try:
            cost = {}
            for name, form in FORMS.items():
                form(spark, root / "first", root / f"{name} first")  # loads and compiles
                before = cpu_seconds()
                form(spark, root / "events", root / name)
                cost[name] = cpu_seconds() - before
            single = ours(spark, root / "single", root / "one event each")
        finally:
            spark.stop()
    walls = [each["durationMs"]["triggerExecution"] / 1000 for each in single[2:]]
    line = {f"{name}_cpu_s": round(spent, 2) for name, spent in cost.items()}
    line |= {
        "events": options.events,
        "epochs": options.epochs,
        "to_identity": round(cost["gpu_ops"] / cost["identity"], 2),
    }
    print(json.dumps(line | {"epoch_of_one_event_wall_s": round(statistics.median(walls), 2)}))


if __name__ == "__main__":
    main()
