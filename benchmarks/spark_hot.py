"""A key with half of all events, or most, on Spark, local[2]: how long the longest task takes, cut in time and not.

    python -m benchmarks.spark_hot --events 2000000
    python -m benchmarks.spark_hot --events 20000000 --shape even most --rounds 3 --questions sliding --settings hot

Each question runs with ``spark.gpu_ops.slices`` at its default, which cuts no plan with a key; with a number of slices;
with ``hot``, which cuts the keys alone that the query finds to be hot; and with ``spark.gpu_ops.statistics``, which
looks at the keys first. ``--shape even`` has no hot key. ``--threads`` says how many threads a task has, ``--rounds``
how often each shape and setting is measured, one after the other.

A line of JSON says the seconds of the whole job, the CPU seconds of the JVM and of its Python workers, the seconds of
its longest task, of the next one and of all tasks together, in the stage that runs the local engine. Answers go to
Spark's noop sink; before that, their rows are counted, and must be as many each time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

from benchmarks.engines import INPUTS
from benchmarks.spark_w2 import cpu_seconds, session
from benchmarks.workloads import HOT, Spread, inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gpu_ops import Stream

SETTINGS = {
    "not cut": {},
    "hot": {"spark.gpu_ops.slices": "hot"},
    "slices=16": {"spark.gpu_ops.slices": "16"},
    "statistics": {"spark.gpu_ops.statistics": "true"},
}

QUESTIONS = {
    "sliding": "W2",
    "hopping": "W3",
    "session": "session",
    "last": "last",
    "each": "last",
    "highest": "last",
    "join": "W5",
    "as-of": "as-of",
}
"""For each question the workload that has its events."""


def ask(name: str, frames: list[DataFrame]) -> Stream:
    """A question as a stream over DataFrames."""
    import gpu_ops as g

    first, *others = (
        g.events(frame, start="t", name=each)
        if "t" in frame.columns
        else g.events(frame, start="start", end="end", name=each)
        for each, frame in zip(INPUTS, frames, strict=False)
    )
    keyed = first.by("k")
    match name:
        case "sliding":
            return keyed.sliding("3min").agg(n=g.count(), mean=g.mean("v"))
        case "hopping":
            return keyed.hopping("60s", "5s").agg(total=g.sum("v"))
        case "session":
            return keyed.session("100ms").agg(n=g.count())
        case "last":
            return keyed.last(100).agg(mean=g.mean("v"))
        case "each":
            return keyed.last(100).each(mean=g.mean("v"))
        case "highest":
            return keyed.highest(100, "v").agg(mean=g.mean("v"))
        case "join":
            return first.join(others[0], on="k", strategy="kernel")
        case "as-of":
            return first.asof_join(others[0], on="k")
    raise ValueError(name)


def last_stage(spark: SparkSession, group: str) -> list[float]:
    """The seconds of the tasks of a group's last stage, the longest first."""
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    store: Any = context._jsc.sc().statusStore()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stage = max(stage for job in jobs if job is not None for stage in job.stageIds)
    tasks = store.taskList(stage, 0, 1 << 16)
    spent = [tasks.apply(at).taskMetrics() for at in range(tasks.size())]
    return sorted((each.get().executorRunTime() / 1000 for each in spent if each.isDefined()), reverse=True)


def answered(spark: SparkSession, name: str, paths: list[str], settings: dict[str, str]) -> int:
    """How many rows the answer has; what is not compiled or started yet is not timed after that."""
    with asked(spark, settings):
        count: int = ask(name, [spark.read.parquet(path) for path in paths]).collect().count()
    return count


def measure(spark: SparkSession, name: str, paths: list[str], settings: dict[str, str], group: str) -> dict[str, Any]:
    """What a question costs."""
    with asked(spark, settings):
        frames = [spark.read.parquet(path) for path in paths]
        spark.sparkContext.setJobGroup(group, name)
        cpu, wall = cpu_seconds(), time.perf_counter()
        ask(name, frames).collect().write.format("noop").mode("overwrite").save()
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        tasks = last_stage(spark, group)
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "longest_s": tasks[0],
        "next_s": tasks[1] if len(tasks) > 1 else 0.0,
        "tasks_s": round(sum(tasks), 2),
        "tasks": len(tasks),
    }


@contextmanager
def asked(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Settings of the session, for a question."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


def main() -> None:
    """Measure.

    Raises:
        SystemExit: A question has different answers.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--questions", nargs="*", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    shapes = ["even", *HOT]
    parser.add_argument("--shape", nargs="*", choices=shapes, default=["half"], help="how events are spread over keys")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured, one after the other")
    parser.add_argument("--threads", type=int, help="of each task; as the query says by default")
    options = parser.parse_args()
    if options.threads is not None:
        # Workers inherit it; on a cluster it is spark.executorEnv.GPU_OPS_THREADS.
        os.environ["GPU_OPS_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder))
        # As in spark_conf/local-cpu.properties.
        spark.conf.set("spark.sql.shuffle.partitions", "16")
        try:
            for name in options.questions:
                compare(spark, name, Path(folder), options)
        finally:
            spark.stop()


def compare(spark: SparkSession, name: str, folder: Path, options: argparse.Namespace) -> None:
    """A question with each shape and setting, interleaved; a line for each.

    Raises:
        SystemExit: It has different answers.
    """
    paths: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for shape in options.shape:
        paths[shape] = []
        for at, table in enumerate(inputs(QUESTIONS[name], options.events, Spread(1000, shape))):
            paths[shape].append(f"{folder}/{name}-{shape}-{at}.parquet")
            pyarrow.parquet.write_table(table, paths[shape][-1])
        counts = {each: answered(spark, name, paths[shape], SETTINGS[each]) for each in options.settings}
        if len(set(counts.values())) > 1:
            raise SystemExit(f"{name}: the answers differ, {counts}.")
        rows[shape] = next(iter(counts.values()))
    for number in range(options.rounds):
        for shape in options.shape:
            for each in options.settings:
                group = f"{name} {shape} {each} {number}"
                found = measure(spark, name, paths[shape], SETTINGS[each], group)
                said = {"settings": each, "shape": shape, "threads": options.threads, "question": name}
                print(json.dumps({**said, "rows": rows[shape], **found}), flush=True)


if __name__ == "__main__":
    main()
