"""Arrow files whose framing is whole and whose insides are not: a sound one is written, and its buffers are patched."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

Form = Literal["file", "stream"]


def written(table: pa.Table, form: Form = "file", compression: str | None = None) -> bytes:
    """A table as the bytes of an Arrow file or stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    opened = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with opened(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def patched(data: bytes, column: str, buffer: int, numbers: Mapping[int, int], kind: str = "<i4") -> bytes:
    """The same bytes with other numbers in one of a column's buffers: of what is in a column's lists, the first child.

    Args:
        data: An Arrow file or stream that is not compressed.
        column: Its name.
        buffer: Which of the buffers that `pyarrow.Array.buffers` gives; past 100 those of a dictionary.
        numbers: Which number becomes what.
        kind: What a number is.
    """
    whole = pa.py_buffer(data)
    reader = pa.ipc.open_file(whole) if data[:6] == b"ARROW1" else pa.ipc.open_stream(whole)
    batch = reader.get_batch(0) if data[:6] == b"ARROW1" else reader.read_next_batch()
    array = batch[column]
    found = array.dictionary.buffers()[buffer - 100] if buffer >= 100 else array.buffers()[buffer]
    made = np.frombuffer(bytearray(data), np.uint8)
    place = found.address - whole.address
    values = made[place : place + found.size // np.dtype(kind).itemsize * np.dtype(kind).itemsize].view(kind)
    for at, number in numbers.items():
        values[at] = number
    return made.tobytes()


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    """The same bytes with one run of them, which is there, for another of its length."""
    assert len(old) == len(new)
    assert old in data
    return data.replace(old, new)


def claims(data: bytes, old: int, new: int) -> bytes:
    """The same bytes with another number wherever one of 64 bits stands."""
    return replaced(data, struct.pack("<q", old), struct.pack("<q", new))


TEXTS = ["a text that is longer than twelve", "and another one, of thirty-nine letters", "short", None]
LONG = [text for text in TEXTS if text is None or len(text) > 12]


def sound() -> pa.Table:
    """Columns of each kind that has offsets, indices or views, and the times of events."""
    return pa.table(
        {
            "at": pa.array([0, 1, 2, 3], pa.int64()),
            "number": pa.array([1, 2, 3, None], pa.int64()),
            "text": pa.array(TEXTS),
            "large": pa.array(TEXTS, pa.large_string()),
            "bytes": pa.array([b"1", b"22", b"", None]),
            "view": pa.array(TEXTS, pa.string_view()),
            "word": pa.array(["x", "y", "x", None]).dictionary_encode(),
            "list": pa.array([[1, 2], [], [3], None], pa.list_(pa.int64())),
            "texts": pa.array([["x"], ["yy", "é"], [], None]),
            "pair": pa.array([{"a": "é"}, {"a": "y"}, {"a": None}, {"a": "z"}]),
            "map": pa.array([[("k", 1)], [], [("l", 2)], None], pa.map_(pa.string(), pa.int64())),
            "price": pa.array([1, 2, 3, None]).cast(pa.decimal128(19, 0)).cast(pa.decimal128(5, 0)),
            "hour": pa.array([1, 2, 3, None], pa.time64("us")),
        }
    )


FAR = 2**31 - 8
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "text past its end": lambda data: patched(data, "text", 1, {1: FAR, 2: FAR, 3: FAR, 4: FAR}),
    "text backwards": lambda data: patched(data, "text", 1, {2: 3}),
    "text before its begin": lambda data: patched(data, "text", 1, {0: -FAR}),
    "text of no UTF-8": lambda data: patched(data, "text", 2, {0: 0xFF}, "u1"),
    "half a letter": lambda data: patched(data, "pair", 2, {1: 1}),
    "large text past its end": lambda data: patched(data, "large", 1, {4: 2**62}, "<i8"),
    "bytes past their end": lambda data: patched(data, "bytes", 1, {2: FAR, 3: FAR, 4: FAR}),
    "view past its memory": lambda data: patched(data, "view", 1, {3: FAR}),
    "view of other memory": lambda data: patched(data, "view", 1, {2: 77}),
    "view of another text": lambda data: patched(data, "view", 1, {1: 77}),
    "index past the dictionary": lambda data: patched(data, "word", 1, {0: FAR}),
    "index below the dictionary": lambda data: patched(data, "word", 1, {0: -5}),
    "dictionary past its end": lambda data: patched(data, "word", 101, {1: FAR, 2: FAR}),
    "list past its end": lambda data: patched(data, "list", 1, {1: FAR, 2: FAR, 3: FAR, 4: FAR}),
    "list backwards": lambda data: patched(data, "list", 1, {1: -4}),
    "text in a list past its end": lambda data: patched(data, "texts", 3, {1: FAR, 2: FAR, 3: FAR}),
    "map past its end": lambda data: patched(data, "map", 1, {4: FAR}),
    "decimal of too many digits": lambda data: patched(data, "price", 1, {0: 2**62, 1: 2**62}, "<i8"),
    "hour past midnight": lambda data: patched(data, "hour", 1, {0: 2**62}, "<i8"),
}
"""What is done to the bytes of `sound`."""


def bomb(rows: int = 1 << 23) -> pa.Table:
    """Nothing but zeros, which packs to next to nothing."""
    return pa.table({"at": pa.array(np.arange(rows) // rows), "v": pa.array(np.zeros(rows))})


def values(table: Any) -> list[Any]:
    return [row for row in table.to_pylist() if row]
