"""The Spark engine: a plan over a Spark DataFrame as a Spark DataFrame, lazily.

Filters, projections and changes of lifetime are DataFrame operations. What needs all events of a group (windows,
stitch, joins) is one ``repartition`` by the key and one ``mapInArrow``, whose function runs that fragment of the plan
with the local engine on its task's events. No rows pass through the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpu_ops.errors import SourceError

VERSIONS = "4.1.1 to 4.1.3"
"""The versions of PySpark with which gpu_ops is tested."""

if TYPE_CHECKING:
    from gpu_ops.engines.spark.checks import our_errors
    from gpu_ops.engines.spark.data_source import register
    from gpu_ops.engines.spark.engine import (
        Placement,
        collect,
        head,
        invalid_rows,
        output_schema,
        placement,
        reader,
        write,
        write_all,
    )
    from gpu_ops.engines.spark.source import open_spark
    from gpu_ops.engines.spark.stored import open_store
    from gpu_ops.engines.spark.streams.tables import SparkTable
    from gpu_ops.engines.spark.topics import open_topic

__all__ = [
    "Placement",
    "SparkTable",
    "collect",
    "head",
    "invalid_rows",
    "open_spark",
    "open_store",
    "open_topic",
    "our_errors",
    "output_schema",
    "placement",
    "reader",
    "register",
    "write",
    "write_all",
]


def __getattr__(name: str) -> Any:
    """One of the names above: the engine is loaded with the first, so that what has a data source alone loads none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from gpu_ops.engines.spark import checks, data_source, engine, source, stored, topics
        from gpu_ops.engines.spark.streams import tables
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("pyspark", "py4j"):
            raise
        try:
            from pyspark import __version__ as found
        except ImportError:
            found = "not there"
        raise SourceError(
            f"gpu_ops runs on PySpark {VERSIONS}, and this one is {found}.",
            remedy="Install it into the driver's Python (pip install 'gpu_ops[spark]'), "
            "and run a Spark of that version.",
        ) from error
    elsewhere = {
        "SparkTable": tables,
        "open_spark": source,
        "open_store": stored,
        "open_topic": topics,
        "our_errors": checks,
    }
    return getattr(data_source if name == "register" else elsewhere.get(name, engine), name)
