"""What Spark's own metrics say of a write: how many rows its tasks have committed, wherever their files are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Let Spark know the jobs of the block by a tag, beside those that the user has given."""
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def rows_written(session: SparkSession, tag: str) -> int | None:
    """How many rows the tasks of a write say that they wrote; those of tasks that failed or ran twice count once.

    Spark counts them for its user interface, on or off: a listener is told, which may be behind, or may have lost
    something under load. None if it does not know.

    Args:
        session: The session.
        tag: What the write was `tagged`.
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
    except (Py4JError, PySparkException, ValueError):  # what is asked here is no public interface
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
