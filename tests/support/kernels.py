"""All kernels, compiled before the first test: else each process that starts meanwhile compiles them for itself.

``python -m tests.support.kernels`` takes two minutes of a core, and three seconds where the cache has them.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import pkgutil
from collections.abc import Callable
from typing import Any
from unittest import mock

from gpu_ops.devices import cpu
from gpu_ops.devices.cpu import compiling

Kernel = tuple[Callable[..., Any], tuple[Any, ...], bool]

PROCESSES = 2


def kernels() -> list[Kernel]:
    """Each kernel's function, its signature, and whether it allocates; nothing may have imported the kernels before."""
    found: list[Kernel] = []

    def kernel(*signature: Any, allocates: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            found.append((function, signature, allocates))
            return function

        return decorate

    with mock.patch.object(compiling, "kernel", kernel):
        for module in pkgutil.iter_modules(cpu.__path__, f"{cpu.__name__}."):
            importlib.import_module(module.name)
        importlib.import_module("gpu_ops.ingest.arrival_kernel")
    return found


def _compile(number: int) -> None:
    function, signature, allocates = KERNELS[number]
    compiling._compile(function, signature, allocates=allocates)


if __name__ == "__main__":
    # A tenth of the time was to look for garbage among what a compiler makes and keeps.
    gc.disable()
    # The longest first, so that both processes end together.
    KERNELS = sorted(kernels(), key=lambda each: len(each[0].__code__.co_code), reverse=True)
    with multiprocessing.get_context("fork").Pool(PROCESSES) as processes:
        processes.map(_compile, range(len(KERNELS)), chunksize=1)
