"""One number for what a table says, whatever its chunks, its dictionaries and the bytes under its nulls are."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.buffers import nulls
from gpu_ops.store.files import ROW_GROUP_ROWS


def content_crc(table: pa.Table) -> int:
    """The CRC-32 of a table's values, column by column; two tables of one schema with equal values have the same.

    The CRC-32 of a file would not do: a batch is another file once it was merged, or compressed by another version.

    Examples:
        >>> one = pa.table({"a": [1, None, 3], "b": ["x", "y", "x"]})
        >>> other = pa.concat_tables([one.slice(0, 2), one.slice(2)])
        >>> content_crc(one) == content_crc(other.set_column(1, "b", other["b"].dictionary_encode()))
        True
        >>> content_crc(one) == content_crc(one.slice(1))
        False
    """
    crc = 0
    for first in range(0, table.num_rows, ROW_GROUP_ROWS):
        for column in table.slice(first, ROW_GROUP_ROWS).columns:
            crc = _fed(column.combine_chunks(), crc)
    return crc


def _fed(array: pa.Array, crc: int) -> int:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _fed(array.storage, crc)
    if pa.types.is_dictionary(kind):
        return _fed(array.dictionary_decode(), crc)
    if pa.types.is_run_end_encoded(kind):
        return _fed(pc.run_end_decode(array), crc)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _fed(array.cast(pa.large_binary()), crc)
    crc = zlib.crc32(b"%d %d;" % (len(array), array.null_count), crc)
    if array.null_count:
        missing = array.is_null() if array.buffers()[0] is None else nulls(array)
        crc = zlib.crc32(np.packbits(missing).tobytes(), crc)
        array = array.drop_null()
    return _fed_values(array, crc) if len(array) else crc


def _fed_values(array: pa.Array, crc: int) -> int:
    """The values of an array without nulls."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif _is_text(kind):
        array = array.cast(pa.large_binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64, count=len(array) + 1, offset=8 * array.offset)
        crc = zlib.crc32(np.diff(bounds).tobytes(), crc)
        return crc if data is None else zlib.crc32(memoryview(data)[bounds[0] : bounds[-1]], crc)
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            crc = _fed(child, crc)
        return crc
    elif _is_list(kind):
        lengths = pc.list_value_length(array).cast(pa.int64())
        return _fed(array.flatten(), _fed(lengths, crc))
    elif pa.types.is_map(kind):
        offsets = np.asarray(array.offsets)
        crc = zlib.crc32(np.diff(offsets).astype(np.int64).tobytes(), crc)
        inside = slice(int(offsets[0]), int(offsets[-1]))
        return _fed(array.items[inside], _fed(array.keys[inside], crc))
    elif not _has_width(kind):
        return zlib.crc32(repr(array.to_pylist()).encode(), crc)
    width = array.type.bit_width // 8
    data = memoryview(array.buffers()[1])
    return zlib.crc32(data[width * array.offset : width * (array.offset + len(array))], crc)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view)
    return any(test(kind) for test in (*tests, pa.types.is_fixed_size_list))


def _has_width(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width % 8 == 0)
    except ValueError:  # pyarrow's answer for what has none
        return False
