"""Whether columns from outside are what Arrow says that columns are: looked at whole, before anyone uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import nulls
from gpu_ops.core.arrow_types import fields_of, is_bytes, is_text, is_view
from gpu_ops.core.bounds import Meter
from gpu_ops.errors import SourceError

_IS = pa.types
_INLINE = 12
"""Bytes of a text that lie in its view."""
_BEGINS = -64
"""Bytes of UTF-8 below it, as signed numbers, begin no character."""

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


class UnsoundError(SourceError):
    """Columns are not what Arrow says that columns are."""


def sound(rows: Rows, meter: Meter) -> Rows:
    """Rows whose every offset, index, view, length and text was looked at.

    Arrow calls sound what stands under a null, whatever it is. Polars looks at the views there, so that those which
    point nowhere come back as empty ones; nothing else is copied.

    Args:
        rows: A table or a record batch, from a reader that has looked at no value.
        meter: What counts the bytes of its file.

    Raises:
        UnsoundError: A column is not sound.
        SourceError: It would be too large where every row has its own text.
    """
    try:
        rows.validate()
        for column in rows.columns:
            for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                if not _is_text(chunk):
                    chunk.validate(full=True)
    except (pa.ArrowException, IndexError) as error:
        raise _unsound(rows, meter.path, error) from error
    for number, field in enumerate(rows.schema):
        if _views(field.type):
            rows = rows.set_column(number, field, _harmless(rows.column(number)))
        for text in _texts(rows.column(number)):
            meter.check(text)
    return rows


def _is_text(array: pa.Array) -> bool:
    """Whether an array, of which Arrow has checked the sizes of buffers, holds sound texts; False if that is not known.

    All its bytes are checked together, which takes a fraction of the time of checking text by text. Bytes under nulls
    are checked too: where these are no text, each text has to be checked by itself.
    """
    width: Any = np.int32 if _IS.is_string(array.type) else np.int64 if _IS.is_large_string(array.type) else None
    if width is None or not len(array):
        return False
    validity, places, text = array.buffers()
    counted = pa.Array.from_buffers(array.type, len(array), [validity, places, text], offset=array.offset).null_count
    if text is None or counted != array.null_count:
        return False
    offsets = np.frombuffer(places, width, array.offset + len(array) + 1)[array.offset :]
    first, last = int(offsets[0]), int(offsets[-1])
    if not 0 <= first < last <= text.size or (offsets[1:] < offsets[:-1]).any():
        return False
    letters = np.frombuffer(text, np.int8)  # so that all bytes that are not ASCII are negative
    if letters[first:last].min() >= 0:
        return True
    begins = offsets[:-1] if offsets[-2] < last else offsets[offsets < last]
    if letters.take(begins).min() < _BEGINS:
        return False
    together = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(np.array([first, last])), text])
    try:
        pl.Series(together).cast(pl.String)
    except pl.exceptions.PolarsError:
        return False
    return True


def legible(schema: pa.Schema) -> pa.Schema:
    """A schema of which every name was read.

    Raises:
        UnicodeDecodeError: A name is no text. Otherwise it would be raised wherever the name is looked at first.
    """
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        _ = field.name, _IS.is_timestamp(kind) and kind.tz
        waiting += fields_of(kind)
    return schema


def _unsound(rows: pa.Table | pa.RecordBatch, path: str, error: Exception) -> UnsoundError:
    found: str | None = None
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except (pa.ArrowException, IndexError):
            found = name
            break
    return UnsoundError(
        f"{path} is damaged, or was made to do harm: {error}.",
        column=found,
        remedy="Get it again from where it was made; do not trust the rest of it.",
    )


def _views(kind: pa.DataType) -> bool:
    if _IS.is_dictionary(kind):
        return _views(kind.value_type)
    return is_view(kind)


def _harmless(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The same values, with views that point somewhere under nulls too."""
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_harmless(chunk) for chunk in column.chunks], column.type)
    if _IS.is_dictionary(column.type):
        values = _harmless(column.dictionary)
        return (
            column
            if values is column.dictionary
            else pa.DictionaryArray.from_arrays(column.indices, values, safe=False)
        )
    if not column.null_count:
        return column
    validity, _, *memory = column.buffers()
    views = _lengths_and_places(column)
    sizes = np.array([0 if each is None else each.size for each in memory] or [0], np.int64)
    length, buffer, begin = views[:, 0].astype(np.int64), views[:, 2], views[:, 3].astype(np.int64)
    known = (buffer >= 0) & (buffer < len(memory))
    fits = known & (begin >= 0) & (begin + length <= sizes[np.where(known, buffer, 0)])
    wild = nulls(column) & ((length < 0) | ((length > _INLINE) & ~fits))
    if not wild.any():
        return column
    tamed = np.where(wild[:, None], np.int32(0), views)
    return pa.Array.from_buffers(column.type, len(column), [_packed(validity, column), pa.py_buffer(tamed), *memory])


def _packed(validity: pa.Buffer, column: pa.Array) -> pa.Buffer:
    """The validity of an array from its first row on."""
    return pa.py_buffer(np.packbits(~nulls(column), bitorder="little")) if column.offset else validity


def _lengths_and_places(column: pa.Array) -> npt.NDArray[np.int32]:
    """Views as rows of four numbers: length, first bytes, number of the memory, place in it."""
    size = 4 * (column.offset + len(column))
    return np.frombuffer(column.buffers()[1], np.int32, size).reshape(-1, 4)[column.offset :]


def _texts(column: pa.Array | pa.ChunkedArray) -> Iterator[int]:
    """How many bytes each chunk's texts have where rows may share them: as views of one, or as one in a dictionary."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        kind = chunk.type
        if _views(kind) or _IS.is_dictionary(kind):
            if len(chunk):
                yield _text(chunk)
        elif isinstance(chunk, pa.ExtensionArray):
            yield from _texts(chunk.storage)
        elif _IS.is_map(kind):
            yield from (size for part in (chunk.keys, chunk.items) for size in _texts(part))
        elif _IS.is_struct(kind):
            yield from (size for number in range(kind.num_fields) for size in _texts(chunk.field(number)))
        elif any(test(kind) for test in _LISTS):
            yield from _texts(chunk.values)


def _text(array: pa.Array) -> int:
    if not _IS.is_dictionary(array.type):
        there = _lengths_and_places(array)[:, 0]
        return int(there[~nulls(array)].sum(dtype=np.int64) if array.null_count else there.sum(dtype=np.int64))
    values = array.dictionary
    if not len(values) or not (is_text(values.type) or is_bytes(values.type)):
        return 0
    if _views(values.type):
        longest = int(_lengths_and_places(values)[:, 0].max())
    else:
        longest = pc.max(pc.binary_length(values)).as_py() or 0
    # The sum is looked at only where it may matter.
    if longest * len(array) < 1 << 24:
        return longest * len(array)
    lengths = pc.binary_length(values.cast(pa.large_binary()) if _views(values.type) else values)
    return pc.sum(lengths.take(array.indices)).as_py() or 0


_LISTS = (_IS.is_list, _IS.is_large_list, _IS.is_fixed_size_list, _IS.is_list_view, _IS.is_large_list_view)
