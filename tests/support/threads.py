"""A number of threads for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu_ops.core import threads


@contextmanager
def with_threads(count: int | None) -> Iterator[None]:
    """As `set_threads`, and afterwards as before."""
    before = threads._Process.asked
    threads.set_threads(count)
    try:
        yield
    finally:
        threads._Process.asked = before
