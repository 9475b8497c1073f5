"""The Spark engine: a plan over a Spark DataFrame as a Spark DataFrame, lazily.

Filters, projections and changes of lifetime are DataFrame operations. What needs all events of a group (windows,
stitch, joins) is one ``repartition`` by the key and one ``mapInArrow``, whose function runs that fragment of the plan
with the local engine on its task's events. No rows pass through the driver.
"""

from __future__ import annotations

from gpu_ops.engines.spark.data_source import register
from gpu_ops.engines.spark.engine import Placement, collect, invalid_rows, output_schema, placement, reader, write
from gpu_ops.engines.spark.source import open_spark

__all__ = [
    "Placement",
    "collect",
    "invalid_rows",
    "open_spark",
    "output_schema",
    "placement",
    "reader",
    "register",
    "write",
]
