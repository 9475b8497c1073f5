"""How many rows the tasks of a write have committed, by Spark's own metrics, wherever their files are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of the block for Spark, besides the user's own tags."""
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def rows_written(session: SparkSession, tag: str) -> int | None:
    """How many rows the tasks of a write have written, once for tasks that failed or ran twice; None if unknown.

    Spark counts them for its user interface, even if that is off. Its listener may be behind, and may lose events under
    load.

    Args:
        session: The session.
        tag: The tag of the write, by `tagged`.
    """
    spark: Any = session._jsparkSession  # noqa: SLF001
    context = spark.sparkContext()
    try:
        context.listenerBus().waitUntilEmpty()
        jobs = list(context.statusTracker().getJobIdsForTag(tag))
        store = spark.sharedState().statusStore()
        runs = store.executionsList()
        for number in reversed(range(runs.size())):
            run = runs.apply(number)
            if any(run.jobs().contains(job) for job in jobs):
                return _rows(store, run.executionId())
    except (Py4JError, PySparkException, ValueError):  # none of this is a public interface
        pass
    return None


def _rows(store: Any, run: int) -> int | None:
    nodes, values = store.planGraph(run).allNodes(), store.executionMetrics(run)
    for node in map(nodes.apply, range(nodes.size())):
        if "InsertIntoHadoopFs" in node.name():
            metrics = node.metrics()
            for metric in map(metrics.apply, range(metrics.size())):
                if metric.name() == "number of output rows" and values.contains(metric.accumulatorId()):
                    return int(values.apply(metric.accumulatorId()).replace(",", ""))
    return None
