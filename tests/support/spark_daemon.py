"""Spark's daemon of Python workers, with the package imported: a worker is a fork, and need not import it."""

from __future__ import annotations

from contextlib import suppress

from pyspark.daemon import manager

with suppress(ImportError):  # a test's Python may have none: what its workers say is for them to say
    import gpu_ops.engines.local.engine
    import gpu_ops.engines.spark.worker  # noqa: F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
