"""A number of threads for a while, and blocks so small that they have something to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pyarrow as pa

from gpu_ops import devices
from gpu_ops.core import threads as pool
from gpu_ops.devices.cpu import order
from gpu_ops.errors import GpuOpsError


@contextmanager
def with_threads(count: int | None, *, part: int = pool.PART) -> Iterator[None]:
    """As `set_threads`, and afterwards as before; parts of so few rows are handed to another thread."""
    before = pool._Workers.asked
    pool.set_threads(count)
    try:
        with mock.patch.object(pool, "PART", part), mock.patch.object(order, "_FEW", min(part, order._FEW)):
            yield
    finally:
        pool._Workers.asked = before


@contextmanager
def in_blocks(size: int) -> Iterator[None]:
    """The CPU handles about so many events at a time."""
    chosen = devices._chosen
    with mock.patch.object(devices, "_chosen", lambda name: replace(chosen(name), block_rows=size)):
        yield


def told(compute: Callable[[], pa.Table], *, threads: int, part: int) -> str:
    """All that an answer says, its rows in the order in which they come; or its error."""
    with with_threads(threads, part=part):
        try:
            answer = compute()
        except GpuOpsError as error:
            return repr(error)
        return f"{answer.schema} {answer.to_pylist()!r}"
