"""Two live queries on Spark in one application, on two workers that `local-cluster` starts: ``python … FOLDER``.

Both read the epochs in ``FOLDER/in``, a file each, and have a checkpoint and a sink of their own. They run until there
is a file ``FOLDER/last``, take what is there, and end. Whatever is killed, the same call goes on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_ops as g
from tests.support.cluster import JAVA, ROOT
from tests.support.epochs import read

LONG = 10_000_000
"""From this end on, in seconds, an event outlives the test: a state of many of them is mapped where it is restored."""

QUERIES: dict[str, Callable[[g.Stream], g.Stream]] = {
    "alive": lambda s: s.by("item").snapshot().agg(n=g.count(), total=g.sum("price")),
    "best": lambda s: s.filter(g.col("price") >= 0).by("price").tumbling("1min").agg(n=g.count(), best=g.max("item")),
}


def query(name: str, events: g.Stream) -> g.Stream:
    """A query over events."""
    return QUERIES[name](events)


def where(folder: Path, name: str) -> dict[str, Any]:
    """Where its results and its checkpoint are."""
    return {"into": folder / name, "checkpoint": folder / f"{name} checkpoint"}


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.python.daemon.module": "tests.support.spark_daemon",
        # Executors and workers are killed all the time, and that is no reason to give the application up.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "99",
        "spark.stage.maxConsecutiveAttempts": "99",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = g.events(read(spark, folder / "in"), start="at", end="till", unit="s")
    events = rows.advance_time("10s", delay="90s", late="raise")
    made = {name: query(name, events) for name in QUERIES}
    running = [each.start_on_spark(**where(folder, name), partitions=2) for name, each in made.items()]
    while not (folder / "last").exists():
        if not all(each.isActive for each in running):
            break  # the wait below says why
        time.sleep(0.05)
    for each in running:
        each.processAllAvailable()
        each.stop()
    for name, stream in made.items():
        stream.end_on_spark(**where(folder, name))
    # Its session ends with the process: to stop it may wait for executors that are being started anew.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
