"""Readers that do what the fuzzer has to see, for the test that it does."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.child import Case


def _raise(error: BaseException) -> None:
    raise error


def _panic() -> None:
    import polars

    raise polars.exceptions.PanicException("assertion failed: the index is within")


def _our_error() -> None:
    from gpu_ops.errors import SourceError

    raise SourceError("The file is damaged.", remedy="Put it back from a copy.")


def _blame_us() -> None:
    from gpu_ops import errors

    raise type("DefectError", (errors.GpuOpsError,), {"__module__": errors.__name__})("A key is missing.")


def _spin() -> None:
    while True:
        pass


def _unsound() -> None:
    import pyarrow as pa

    from tests.fuzz.readers import look

    offsets = pa.py_buffer(struct.pack("<3i", 0, 4, 8))
    look(pa.table({"text": pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"\xff" * 9))}))


READERS: dict[str, tuple[Callable[[], Any], str]] = {
    "gives": (lambda: 1, "answer"),
    "segfaults": (lambda: ctypes.string_at(0), "signal 11"),
    "aborts": (os.abort, "signal 6"),
    "leaves": (lambda: os._exit(0), "exit 0"),
    "sleeps": (lambda: time.sleep(1000), "hang"),
    "spins": (_spin, "hang"),
    "fills memory": (lambda: bytearray(b"x" * (40 << 20)) and None, "memory"),
    "asks for too much memory": (lambda: bytearray(1 << 42), "memory"),
    "misses a key": (lambda: READERS["key"], "foreign exception"),
    "ends the process": (sys.exit, "foreign exception"),
    "is interrupted": (lambda: _raise(KeyboardInterrupt()), "foreign exception"),
    "panics": (_panic, "foreign exception"),
    "gives what is unsound": (_unsound, "foreign exception"),
    "refuses": (_our_error, "error"),
    "blames us": (_blame_us, "defect"),
    "gives again": (lambda: 1, "answer"),
}
"""By what they do: readers, and the verdicts on them."""


def draw(number: int, folder: Path) -> Case:
    """The reader of a number; no file is read."""
    what = list(READERS)[number]
    if READERS[what][0] in {_panic, _unsound, _our_error, _blame_us}:
        import tests.fuzz.readers  # noqa: F401  (what it takes is not to be taken for a hang)
    return Case(f"a reader that {what}", READERS[what][0])
