"""A number of threads for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from gpu_ops.core import threads


@contextmanager
def with_threads(count: int | None, *, part: int = threads.PART) -> Iterator[None]:
    """As `set_threads`, and afterwards as before; parts of so few rows are handed to another thread."""
    before = threads._Process.asked
    threads.set_threads(count)
    try:
        with mock.patch.object(threads, "PART", part):
            yield
    finally:
        threads._Process.asked = before
