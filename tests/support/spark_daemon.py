"""Spark's daemon of Python workers, with what tasks import and the kernels that most use: a worker is its fork.

It has set aside what it imported, and forgotten Spark's archives, as tasks of gpu_ops do: PySpark looks for garbage
after each task, and reads its archives before each. That took a fifth of a second for each task of another kind.
Nothing is computed here, as the threads of Polars and Arrow do not survive a fork.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from pyspark.daemon import manager

USUAL = {"axis", "grids", "joins", "order", "ranges"}
"""The modules of kernels that windows and joins use."""

MODULES = (
    "gpu_ops.devices.cpu.columns",
    "gpu_ops.devices.cpu.kernels",
    "gpu_ops.engines.live.running_query",
    "gpu_ops.engines.local.engine",
    "gpu_ops.engines.spark.data_source",
    "pandas",  # which Arrow imports with a worker's first list of values
    "pyarrow.pandas_compat",
)


def prepare() -> None:
    """Import, and load the usual kernels: twenty workers would each load them."""
    from gpu_ops.devices.cpu import compiling

    at_first_call = compiling.kernel
    usual: list[Callable[[], None]] = []

    def kernel(*signature: Any, allocates: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if function.__module__.rpartition(".")[2] not in USUAL:
                return at_first_call(*signature, allocates=allocates)(function)
            made: list[Callable[..., Any]] = []
            usual.append(lambda: made.append(compiling._compile(function, signature, allocates=allocates)))

            @wraps(function)
            def call(*arguments: Any, **named: Any) -> Any:
                return made[0](*arguments, **named)

            return call

        return decorate

    compiling.kernel = kernel
    for name in MODULES:
        importlib.import_module(name)
    for compile_now in usual:  # not before its module is whole: a kernel may use what stands below it
        compile_now()

    from gpu_ops.engines.spark.between_tasks import forget_archives

    forget_archives()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with suppress(ImportError):  # a test's Python may have none: what its workers say is for them to say
        prepare()
    manager()  # type: ignore[no-untyped-call]
