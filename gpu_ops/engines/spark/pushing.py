"""Filters of a query that reach the files below it: whether Spark takes them there, and from which frames it can."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

_COLUMNAR = ("Parquet", "Orc")
"""In the names of file formats of which Spark reads single columns, and skips parts by their statistics."""


_ICEBERG = "SparkBatchQueryScan"
"""What Iceberg calls a scan of a table. Its own description alone has the filters that it was handed."""


def cheap_to_look_at(frame: DataFrame) -> bool:
    """Whether a second look at some columns of a frame finds the same rows and reads little.

    It does if the frame is one read of Parquet or ORC files, or of a table of Delta or Iceberg, with nothing but
    projections and filters above it, each deterministic: Spark then reads those columns alone, from the files that it
    has listed already.
    """
    try:
        plan: Any = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    except (PySparkException, Py4JJavaError):
        return False  # the answer will fail likewise
    if not plan.deterministic():
        return False
    while kind(plan) in ("Project", "Filter"):
        plan = plan.children().apply(0)
    if kind(plan) == "DataSourceV2ScanRelation":
        return kind(plan.scan()) == _ICEBERG
    if kind(plan) != "LogicalRelation" or kind(plan.relation()) != "HadoopFsRelation":
        return False
    form = kind(plan.relation().fileFormat())
    return any(each in form for each in _COLUMNAR)


def filters_reach(filtered: DataFrame, whole: DataFrame) -> bool:
    """Whether a filter reaches the files that are read, or the folders of their partitions. Nothing runs.

    Args:
        filtered: The rows behind the filter.
        whole: The rows before it.
    """
    try:
        return _conditions(filtered) > _conditions(whole)
    except (PySparkException, Py4JJavaError):
        return False


def _conditions(frame: DataFrame) -> int:
    """How many conditions Spark hands to scans of files."""
    return sum(map(_handed, _scans(frame)))


def _handed(scan: Any) -> int:
    if kind(scan) == "FileSourceScanExec":
        return int(scan.partitionFilters().size() + scan.pushedDownFilters().size())
    if kind(scan) == "BatchScanExec" and kind(scan.scan()) == _ICEBERG:
        found = re.search(r"filters=(.*?), runtimeFilters=", str(scan.scan().description()))
        return len(found[1].split(", ")) if found is not None and found[1] else 0
    return 0


def _scans(frame: DataFrame) -> Iterator[Any]:
    leaves: Any = frame._jdf.queryExecution().sparkPlan().collectLeaves()  # noqa: SLF001
    return (leaves.apply(at) for at in range(leaves.size()))


def kind(of_the_jvm: Any) -> str:
    """The name of an object's class in the JVM."""
    return str(of_the_jvm.getClass().getSimpleName())
