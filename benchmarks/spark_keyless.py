"""Questions without a key on Spark, local[2]: what they cost as events become more, at the same density.

    python -m benchmarks.spark_keyless --events 2000000 20000000

They are cut into slices of time (``spark.gpu_ops.slices``). A line of JSON for each question and number of events says
the seconds, the CPU seconds of the JVM and of its Python workers, and these for each million events; at first a tenth
of the fewest events starts and compiles what is needed. Answers go to Spark's noop sink.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
from pyspark.sql import functions as F  # noqa: N812  (what everyone calls it)

import gpu_ops as g
from benchmarks.spark_w2 import cpu_seconds, session
from benchmarks.workloads import Spread, inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _intervals(frame: DataFrame) -> g.Stream:
    """Events that last a minute."""
    return g.events(frame.withColumn("end", F.col("t") + F.expr("interval 60 seconds")), start="t", end="end")


QUESTIONS: dict[str, Callable[[DataFrame], g.Stream]] = {
    "snapshot": lambda frame: _intervals(frame).snapshot().agg(n=g.count(), total=g.sum("v")),
    "sliding": lambda frame: g.events(frame, start="t").sliding("3min").agg(n=g.count(), mean=g.mean("v")),
    "last": lambda frame: g.events(frame, start="t").last(3).agg(mean=g.mean("v")),
}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, nargs="*", default=[2_000_000, 20_000_000])
    parser.add_argument("--questions", nargs="*", choices=QUESTIONS, default=list(QUESTIONS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder))
        # As in spark_conf/local-cpu.properties.
        spark.conf.set("spark.sql.shuffle.partitions", "16")
        try:
            for events in (min(options.events) // 10, *options.events):
                path = f"{folder}/{events}.parquet"
                (table,) = inputs("W2", events, Spread(0))
                pyarrow.parquet.write_table(table, path, row_group_size=1 << 20)
                for name in options.questions:
                    cpu, wall = cpu_seconds(), time.perf_counter()
                    QUESTIONS[name](spark.read.parquet(path)).collect().write.format("noop").mode("overwrite").save()
                    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
                    said = {"question": name, "events": events, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}
                    if events in options.events:
                        print(json.dumps(said | {"cpu_s_a_million": round(cpu / events * 1e6, 3)}), flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
