"""What an epoch of a live query on Spark costs, by how many rows its state has; local[2].

    python -m benchmarks.spark_alive --alive 100000 10000000 --epochs 20

Each query is first given the rows that stay alive, then in starts of their own as many epochs of 10,000 events as
``--warm`` says, and ``--rounds`` times those that are measured, one query after the other. A line of JSON for each
round and query says the CPU seconds of an epoch (those of the JVM and of its Python workers, a start's own share of
them included), and the median of its wall times.

With two partitions a worker mostly has in memory what it needs. With more, epochs restore states: ``--partitions 8``.

Queries are those of `benchmarks.saving`: ``sums`` counts and adds by key whatever is alive, ``clip`` keeps events until
another one of their key comes, which none does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import gpu_ops as g
from benchmarks.spark_w2 import cpu_seconds, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP = 10_000
BLOCK = 500_000
FAR = 1 << 50
COLUMNS = "at timestamp, until timestamp, k int, v int"
NOW = {"availableNow": True}


def _events(first: int, count: int) -> pa.Table:
    """Events that outlive all epochs. Those of a block start together, so that loading them gives few results."""
    chance = np.random.default_rng(first)
    at = np.full(count, first) if count > STEP else np.arange(first, first + count)
    time = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "at": pa.array(at).cast(time),
            "until": pa.array(FAR + chance.integers(0, 1 << 40, count)).cast(time),
            "k": pa.array(chance.integers(0, 1000, count), pa.int32()),
            "v": pa.array(chance.integers(0, 100, count), pa.int32()),
        }
    )


class Query:
    """A live query, and the folder that its events come from.

    Args:
        spark: The session.
        name: Which one.
        alive: How many rows are alive before it is measured.
        partitions: How many partitions it has.
        folder: Where its files are.
    """

    def __init__(self, spark: SparkSession, name: str, alive: int, partitions: int, folder: Path) -> None:
        self.name, self.alive, self._folder, self._spark = name, alive, folder, spark
        self._partitions = partitions
        self._next = self._files = 0
        (folder / "in").mkdir(parents=True)
        for first in range(0, alive, BLOCK):
            self._add(min(BLOCK, alive - first))
        self.run()

    def _add(self, count: int) -> None:
        path = self._folder / "in" / f"{self._files:05}.parquet"
        pyarrow.parquet.write_table(_events(self._next, count), path)
        os.utime(path, (1_000 + self._files, 1_000 + self._files))
        self._next, self._files = self._next + count, self._files + 1

    def _stream(self) -> g.Stream:
        frame = self._spark.readStream.schema(COLUMNS)
        read = frame.option("maxFilesPerTrigger", 1).parquet(str(self._folder / "in"))
        events = g.events(read, start="at", end="until", name="left").advance_time("1us", late="drop")
        if self.name == "clip":
            return events.clip_by(events.filter(g.col("v") < 0), on="k")
        return events.by("k").snapshot().agg(n=g.count(), sum=g.sum("v"))

    def run(self) -> list[float]:
        """Take what is there; the wall time of each epoch."""
        where: dict[str, Any] = {"into": self._folder / "out", "checkpoint": self._folder / "checkpoint"}
        running = self._stream().start_on_spark(**where, trigger=NOW, partitions=self._partitions)
        running.awaitTermination()
        return [each["durationMs"]["triggerExecution"] / 1000 for each in running.recentProgress]

    def measured(self, epochs: int) -> dict[str, Any]:
        """The cost of some epochs, in a start of their own."""
        for _ in range(epochs):
            self._add(STEP)
        before = cpu_seconds()
        walls = self.run()
        cost = (cpu_seconds() - before) / epochs
        said = {
            "query": self.name,
            "alive": self.alive,
            "partitions": self._partitions,
            "epochs": epochs,
            "epoch_cpu_s": round(cost, 3),
        }
        return said | {"epoch_wall_s": round(statistics.median(walls), 3), "most_wall_s": round(max(walls), 3)}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", choices=["sums", "clip"], nargs="+", default=["sums"])
    parser.add_argument("--alive", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder))
        try:
            made = [
                Query(spark, name, alive, asked.partitions, Path(folder) / f"{name} {alive}")
                for name in asked.query
                for alive in asked.alive
            ]
            for each in made:
                each.measured(asked.warm)
            for _ in range(asked.rounds):
                for each in made:
                    print(json.dumps(each.measured(asked.epochs)), flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
