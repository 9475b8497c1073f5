"""Spark with the RAPIDS plugin on a GPU beside Spark on the same machine's cores: W2, and W5 in both strategies.

    cpu         without the plugin
    plugin      Spark's own nodes on the GPU, Python workers on the CPU
    workers     the same, and Python workers on the GPU, as in spark_conf/rapids-cluster.properties

RAPIDS_JAR names the plugin. A setting of Spark's is one of a whole process, so each has a process of its own. All
answers have the same checks, or the run fails. Each form writes to Spark's noop sink, once to
warm up; what counts is wall time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import spark_w2, spark_w5
from benchmarks.workloads import Checks, inputs, points

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[1]

PLUGIN = {
    "spark.plugins": "com.nvidia.spark.SQLPlugin",
    "spark.rapids.memory.gpu.allocFraction": "0.5",
    "spark.rapids.memory.gpu.maxAllocFraction": "0.5",
    "spark.rapids.memory.pinnedPool.size": "4g",
    "spark.rapids.sql.concurrentGpuTasks": "2",
    "spark.rapids.sql.explain": "NONE",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
}
WORKERS = PLUGIN | {
    "spark.rapids.sql.python.gpu.enabled": "true",
    # The plugin divides it by spark.executor.cores; CUDA takes another half GiB for each worker.
    "spark.rapids.python.memory.gpu.allocFraction": "0.03",
    "spark.rapids.python.memory.gpu.maxAllocFraction": "0.3",
    "spark.rapids.python.memory.gpu.pooling.enabled": "true",
    "spark.rapids.python.concurrentPythonWorkers": "0",
    "spark.python.use.daemon": "true",
    "spark.python.unix.domain.socket.enabled": "false",
}
SETTINGS = {"cpu": {}, "plugin": PLUGIN, "workers": WORKERS}


def session(cores: int, setting: str, scratch: str) -> SparkSession:
    """A session on this machine, under one of the settings."""
    jar = os.environ["RAPIDS_JAR"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), jar, os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.driver.extraClassPath": jar,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "24g",
        "spark.executor.cores": str(cores),
        "spark.local.dir": scratch,
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **SETTINGS[setting],
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def measured(folder: Path, cores: int, setting: str, repeats: int) -> dict[str, Any]:
    """For each form the checks of its answer and its wall seconds, under one setting."""
    spark = session(cores, setting, str(folder / f"local {setting}"))
    try:
        events, left, right = (spark.read.parquet(str(folder / name)) for name in ("points", "left", "right"))
        frames: dict[str, tuple[Any, DataFrame]] = {
            "W2, Spark SQL": (spark_w2.checks, spark_w2.native(events)),
            "W2, gpu_ops": (spark_w2.checks, spark_w2.ours(events)),
        }
        forms: dict[str, Callable[..., DataFrame]] = {
            "Spark SQL": spark_w5.native,
            "gpu_ops, kernel": partial(spark_w5.ours, strategy="kernel"),
            "gpu_ops, Spark's join": partial(spark_w5.ours, strategy="sql"),
        }
        for name, form in forms.items():
            frames[f"W5, {name}"] = spark_w5.checks, form(left, right)
        found: dict[str, Any] = {}
        for name, (checks, frame) in frames.items():
            answer, walls = checks(frame), []
            for _ in range(repeats + 1):
                start = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                walls.append(time.perf_counter() - start)
            found[name] = {"checks": dataclasses.astuple(answer), "wall": statistics.median(walls[1:])}
            print(setting, name, found[name], file=sys.stderr, flush=True)
        return found
    finally:
        spark.stop()


def report(options: argparse.Namespace) -> None:
    """All settings, one after the other.

    Raises:
        SystemExit: There is no plugin, or an answer is another one than without it.
    """
    if not Path(os.environ.get("RAPIDS_JAR", "")).is_file():
        raise SystemExit("RAPIDS_JAR names no file: `make jar` fetches the plugin's jar and prints its path.")
    answers: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tables = points(options.events), *inputs("W5", options.events)
        for name, rows in zip(("points", "left", "right"), tables, strict=True):
            pyarrow.parquet.write_table(rows, Path(folder, name), row_group_size=-(-rows.num_rows // options.cores))
        for setting in options.settings:
            asked = ["--one", setting, folder, "--cores", str(options.cores), "--repeats", str(options.repeats)]
            command = [sys.executable, "-m", "benchmarks.spark_gpu", *asked]
            said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
            answers[setting] = json.loads(said.splitlines()[-1])
    first = answers[options.settings[0]]
    wrong = [
        f"{name} with {setting}: {one[name]['checks']}, not {first[name]['checks']}"
        for setting, one in answers.items()
        for name in first
        if not Checks(*one[name]["checks"]).agrees(Checks(*first[name]["checks"]))
    ]
    if wrong:
        raise SystemExit("\n".join(wrong))
    shown = Table(title=f"Wall seconds, {options.events:,} events, {options.cores} cores, median of {options.repeats}")
    for heading in ("", *answers):
        shown.add_column(heading, justify="right")
    for name in first:
        shown.add_row(name, *(f"{one[name]['wall']:.2f}" for one in answers.values()))
    Console(width=120).print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--one", nargs=2, metavar=("SETTING", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is None:
        report(options)
    else:
        setting, folder = options.one
        print(json.dumps(measured(Path(folder), options.cores, setting, options.repeats)))


if __name__ == "__main__":
    main()
