"""NumPy arrays over Arrow's memory, and Arrow arrays over NumPy's.

pyarrow's own ways (`pyarrow.array`, `pyarrow.scalar`, `Array.to_numpy`) import pandas first, wherever it is installed:
half a second in a process that has no use for it. These do not.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def integers(array: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """The values of an array of integers or of anything that is stored as such; any value stands under a null.

    Args:
        array: Integers of 8 to 64 bits, timestamps, dates, times or durations.

    Returns:
        A read-only view of the array's memory: signed integers of its width.

    Examples:
        >>> integers(pa.array([5, 7], pa.duration("s"))).tolist()
        [5, 7]
    """
    kind = np.dtype(f"i{array.type.bit_width // 8}")
    if not len(array):
        values = np.empty(0, kind)
    else:
        values = np.frombuffer(array.buffers()[1], kind, count=len(array), offset=array.offset * kind.itemsize)
    values.flags.writeable = False
    return values


def in_one(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. If it has one chunk, that is it; Arrow's own ``combine_chunks`` copies it even then.

    Examples:
        >>> in_one(pa.chunked_array([[1], [2]])).to_pylist()
        [1, 2]
    """
    if not column.num_chunks:
        return pa.nulls(0, column.type)  # ``combine_chunks`` fails for dictionaries of dates, among others
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def booleans(array: pa.Array) -> npt.NDArray[np.bool_]:
    """The values of an array of booleans without nulls.

    Examples:
        >>> booleans(pa.array([True, False, True]).slice(1)).tolist()
        [False, True]
    """
    return _bits(array.buffers()[1], array.offset, len(array))


def nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values of an array that has a validity bitmap are null.

    Examples:
        >>> nulls(pa.array([1, None, 3])).tolist()
        [False, True, False]
    """
    validity = array.buffers()[0]
    return np.zeros(len(array), np.bool_) if validity is None else ~_bits(validity, array.offset, len(array))


def validity(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values of an array that has a validity bitmap are not null; None if all are.

    Examples:
        >>> validity(pa.array([1, None])).tolist(), validity(pa.array([1]))
        ([True, False], None)
    """
    return ~nulls(array) if array.null_count else None


def decimal_words(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """The unscaled values of an array of ``decimal128`` as (low 64 bits, high 64 bits, valid).

    A null's words are 0. Without nulls ``valid`` is None.

    Examples:
        >>> low, high, valid = decimal_words(pa.array([1, None], pa.decimal128(20, 2)))
        >>> low.tolist(), high.tolist(), valid.tolist()
        ([100, 0], [0, 0], [True, False])
    """
    words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    valid = validity(array)
    low, high = (words[:, at].copy() if valid is None else np.where(valid, words[:, at], 0) for at in (0, 1))
    return low, high, valid


def to_arrow(values: npt.NDArray[Any], kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """An array over a NumPy array's memory; booleans are packed.

    Args:
        values: Numbers as wide as the type's, booleans, or a decimal's words, a row of (low, high) for each.
        kind: A number, a decimal, a timestamp, date, time or duration, or bool.
        valid: Which values are not null; None if all are.

    Examples:
        >>> to_arrow(np.array([5, 7]), pa.duration("s")).to_pylist()
        [datetime.timedelta(seconds=5), datetime.timedelta(seconds=7)]
    """
    data = packed(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else packed(valid), data])


def copied(array: pa.Array) -> pa.Array:
    """The same values in buffers of their own, which hold nothing else."""
    return pa.concat_arrays([array, array.slice(0, 0)])


def table_copied(table: pa.Table) -> pa.Table:
    """The same rows in buffers of their own."""
    columns = [pa.chunked_array(map(copied, column.chunks), column.type) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


HEAP = (32 << 20) - (64 << 10)
"""The most bytes of an array that come from the heap (glibc; `gpu_ops.devices.cpu.kernels` has it do so)."""

KEPT = 128 << 20
"""The most bytes that the heap keeps for the next arrays, likewise."""


def room(size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array to write into, if possible in memory that was used before: new memory costs more than to fill it.

    What is no larger than `HEAP` comes from the heap, which keeps it when it is freed. Larger arrays come from Arrow's
    pool: that keeps memory for some milliseconds, but the heap would return it to the system at once.

    Examples:
        >>> room(3, "int32").shape
        (3,)
    """
    kind = np.dtype(dtype)
    if size * kind.itemsize <= HEAP:
        return np.empty(size, kind)
    return np.frombuffer(pa.allocate_buffer(size * kind.itemsize), kind)


def repeated(text: str, count: int) -> pa.Array:
    """An array with one text again and again; pyarrow's own takes ten times as long.

    Arrays of short texts are parts of one that is kept.

    Examples:
        >>> repeated("new", 2).to_pylist()
        ['new', 'new']
    """
    if count > _KEPT_ROWS or len(text) > _KEPT_LETTERS:
        return _made_of(text, count)
    return _kept_of(text, max(count - 1, 0).bit_length()).slice(0, count)


_KEPT_ROWS, _KEPT_LETTERS = 1 << 21, 8
"""The most rows and letters of an array that is kept for the next one that repeats its text."""


@functools.lru_cache(maxsize=4)
def _kept_of(text: str, bits: int) -> pa.Array:
    return _made_of(text, 1 << bits)


def _made_of(text: str, count: int) -> pa.Array:
    data = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data * count))


def later(times: Sequence[npt.NDArray[np.int64]], ticks: int) -> npt.NDArray[np.int64]:
    """Times moved by a duration, piece after piece in one array: the ends of events that are equally long.

    Examples:
        >>> later([np.array([5, 7]), np.array([9])], 10).tolist()
        [15, 17, 19]
    """
    moved = room(sum(len(piece) for piece in times), np.int64)
    done = 0
    for piece in times:
        np.add(piece, ticks, out=moved[done : done + len(piece)])
        done += len(piece)
    return moved


def packed(bits: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Booleans as Arrow stores them, one bit for each."""
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _bits(buffer: pa.Buffer | None, offset: int, size: int) -> npt.NDArray[np.bool_]:
    if buffer is None or not size:
        return np.zeros(size, np.bool_)
    first = offset // 8
    packed = np.frombuffer(buffer, np.uint8, count=(offset + size + 7) // 8 - first, offset=first)
    return np.unpackbits(packed, count=offset - first * 8 + size, bitorder="little")[offset - first * 8 :].view(
        np.bool_
    )
