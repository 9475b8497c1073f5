"""A micro-batch store as a stream of events that Spark reads, with the store's own CTIs."""

from __future__ import annotations

from typing import Any

from gpu_ops.engines.spark.data_source import register
from gpu_ops.engines.spark.session import stream_reader
from gpu_ops.engines.spark.source import open_spark
from gpu_ops.engines.spark.store_reading import LIMIT, NAME
from gpu_ops.errors import PlanError
from gpu_ops.microbatches.stores import Store
from gpu_ops.plan.nodes import SparkSource

_KIND = "__gpu_ops_kind"


def open_store(given: Store, spark: object, **options: Any) -> SparkSource:
    """A store as a source of events, which Spark reads as a stream; nothing runs.

    Args:
        given: The store; workers open it by its path or URL.
        spark: A session, or its ``readStream`` with options of the format.
        options: As of `open_spark`.

    Raises:
        PlanError: ``spark`` is no session, or a column of kinds is named.
        SourceError: The store has no batch yet.
    """
    if options.pop("kind") is not None:
        raise PlanError("kind= names a column of CTIs, and a store has its own beside rows.", remedy="Leave it out.")
    reader = stream_reader(spark, f'option("{LIMIT}", 100)')
    register(reader._spark)  # noqa: SLF001
    return open_spark(reader.format(NAME).option("kind", _KIND).load(given.path), **options, kind=_KIND)
