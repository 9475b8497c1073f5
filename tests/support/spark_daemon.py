"""Spark's daemon of Python workers, with the package imported: a worker is a fork, and need not import it."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from pyspark.daemon import manager

with suppress(ImportError):  # a test's Python may have none: what its workers say is for them to say
    import gpu_ops.engines.local.engine
    import gpu_ops.engines.spark.worker  # noqa: F401
    from gpu_ops.devices.cpu import kernels

    kernels.ascends(np.zeros(1, np.int64))  # with the first kernel Numba imports a third of a second's worth

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
