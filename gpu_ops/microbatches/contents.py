"""A checksum of a table's rows that ignores their order, chunks, dictionaries, and the bytes under nulls."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import nulls
from gpu_ops.core.arrow_types import is_offset, is_view
from gpu_ops.core.splitmix import STEP, mixed
from gpu_ops.microbatches.files import ROW_GROUP_ROWS

Hashes = npt.NDArray[np.uint64]
"""A hash for each value."""

_NULL = np.uint64(0x6E756C6C)


def content_crc(table: pa.Table) -> int:
    """The CRC-32 of a table's rows: each row is hashed, and the sorted hashes are checksummed.

    Two tables of one schema with equal rows have equal checksums. The CRC-32 of a file would not do: merging or another
    version's compression changes the file, and a restored query may give a batch's rows in another order.

    Examples:
        >>> one = pa.table({"a": [1, None, 3], "b": ["x", "y", "x"]})
        >>> other = pa.concat_tables([one.slice(2), one.slice(0, 2)])
        >>> content_crc(one) == content_crc(other.set_column(1, "b", other["b"].dictionary_encode()))
        True
        >>> content_crc(one) == content_crc(one.slice(1))
        False
    """
    found = [np.empty(0, np.uint64)]
    for first in range(0, table.num_rows, ROW_GROUP_ROWS):
        piece = table.slice(first, ROW_GROUP_ROWS)
        found.append(_together([_hashes(column.combine_chunks()) for column in piece.columns], piece.num_rows))
    return zlib.crc32(np.sort(np.concatenate(found)).tobytes())


def _together(parts: list[Hashes], size: int) -> Hashes:
    """Combine the hashes of each value's parts, in their order."""
    made = np.zeros(size, np.uint64)
    for each in parts:
        made = mixed(made + each + STEP)
    return made


def _hashes(array: pa.Array) -> Hashes:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _hashes(array.storage)
    if pa.types.is_dictionary(kind):
        return _hashes(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return _hashes(pc.run_end_decode(array))
    if is_view(kind):
        return _hashes(array.cast(pa.large_binary()))
    made = np.full(len(array), _NULL)
    if not array.null_count:
        return _valid(array) if len(array) else made
    if array.null_count < len(array):
        there = ~nulls(array) if array.buffers()[0] is not None else np.asarray(array.is_valid())
        made[there] = _valid(array.drop_null())
    return made


def _valid(array: pa.Array) -> Hashes:
    """A hash for each value of an array without nulls."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif is_offset(kind):
        array = array.cast(pa.large_binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int64, count=len(array) + 1, offset=8 * array.offset).tolist()
        view = memoryview(b"" if data is None else data)
        crcs = (zlib.crc32(view[begin:end]) for begin, end in pairwise(bounds))
        return _together([np.fromiter(crcs, np.uint64, len(array)), np.diff(bounds).astype(np.uint64)], len(array))
    elif pa.types.is_struct(kind):
        return _together([_hashes(child) for child in array.flatten()], len(array))
    elif pa.types.is_map(kind):
        bounds = np.asarray(array.offsets).astype(np.int64)
        inside = slice(int(bounds[0]), int(bounds[-1]))
        pairs = [_hashes(each[inside]) for each in (array.keys, array.items)]
        return _in_order(_together(pairs, int(bounds[-1] - bounds[0])), np.diff(bounds))
    elif _is_list(kind):
        lengths = np.asarray(pc.list_value_length(array)).astype(np.int64)
        return _in_order(_hashes(array.flatten()), lengths)
    elif not _has_width(kind):
        return np.fromiter((zlib.crc32(repr(each).encode()) for each in array.to_pylist()), np.uint64, len(array))
    return _together(_words(array), len(array))


def _words(array: pa.Array) -> list[Hashes]:
    """The bytes of fixed-width values, eight at a time; all NaNs are equal."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8, count=width * len(array), offset=width * array.offset)
    if pa.types.is_floating(array.type):
        numbers: npt.NDArray[Any] = data.view(f"f{width}")
        data = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers).view(np.uint8)
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = data.reshape(-1, width)
    return list(padded.view(np.uint64).T)


def _in_order(values: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """A hash for each of the consecutive lists."""
    ends = np.cumsum(lengths)
    place = np.arange(len(values)) - np.repeat(ends - lengths, lengths)
    # Sums wrap, and so do their differences.
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(mixed(values + mixed(place.astype(np.uint64) + STEP) + STEP))]
    )
    return _together([sums[ends] - sums[ends - lengths], lengths.astype(np.uint64)], len(lengths))


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view)
    return any(test(kind) for test in (*tests, pa.types.is_fixed_size_list))


def _has_width(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width % 8 == 0)
    except ValueError:  # pyarrow's answer for what has none
        return False
