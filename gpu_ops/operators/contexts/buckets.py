"""Buckets of events by a hash of their keys, which is computed once for each distinct key of a piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import EachPiece
from gpu_ops.plan.buckets import Bucket, HashFunction

_TRUE, _FALSE = 1231, 1237
"""Java's hash codes of booleans."""


class BucketOperator(EachPiece, nodes=(Bucket,)):
    """Each event with the number of its bucket."""

    passes_open = True

    def each(self, events: Events) -> Events:
        """The same events with one more column."""
        node, columns = self._node, self._device.columns
        codes, _, keys = columns.key_codes(events.frame, list(node.columns))
        schema = pa.schema([node.input.schema.field(name) for name in node.columns])
        numbers = columns.array(buckets(columns.to_arrow(keys, schema), node.function, node.count))
        found = columns.build({node.name: (self._device.kernels.take(numbers, codes), None, pa.int32())})
        return Events(events.start, events.end, columns.beside(events.frame, found))


def buckets(keys: pa.Table, function: HashFunction, count: int) -> Any:
    """The buckets of keys.

    Args:
        keys: A row for each key.
        function: The hash.
        count: How many buckets there are.

    Returns:
        int32.

    Examples:
        >>> buckets(pa.table({"k": ["E1", "E2", None]}), "hash_code", 16).tolist()
        [12, 13, 0]
        >>> buckets(pa.table({"k": ["E1", "E2", None]}), "consistent_hash_crc32", 16).tolist()
        [5, 15, 0]
    """
    columns = [column.combine_chunks() for column in keys.columns]
    made = _java(columns) if function == "hash_code" else _crc(columns)
    return (np.abs(made) % count).astype(np.int32)


def _java(columns: Sequence[pa.Array]) -> Any:
    """int64: what Java gives as the hash code of the values that are not null, each times 31 before the next."""
    total: Any = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        there = column.is_valid().to_numpy(zero_copy_only=False)
        total = np.where(there, _wrapped(total * 31 + _java_of(column)), total)
    return total


def _java_of(column: pa.Array) -> Any:
    """int64: the hash code of each value of a column."""
    if pa.types.is_string(column.type):
        code: Any = np.zeros(len(column), np.int64)
        texts = column.fill_null("").to_pylist()
        for at, unit in _unit_by_unit([each.encode("utf-16-le") for each in texts], np.dtype("<u2")):
            code[at] = _wrapped(code[at] * 31 + unit)
        return code
    if pa.types.is_boolean(column.type):
        return np.where(column.fill_null(False).to_numpy(zero_copy_only=False), _TRUE, _FALSE)
    if pa.types.is_floating(column.type):
        bits = _floats(column).view(np.int32 if column.type.bit_width == 32 else np.int64).astype(np.int64)
    else:
        bits = integers(column).astype(np.int64)
    return _wrapped(bits ^ _upper(bits)) if column.type.bit_width == 64 else bits


def _upper(bits: Any) -> Any:
    return (bits.view(np.uint64) >> np.uint64(32)).astype(np.int64)


def _wrapped(values: Any) -> Any:
    """int64 values as 32 bits hold them."""
    return values.astype(np.int32).astype(np.int64)


def _floats(column: pa.Array) -> Any:
    return column.fill_null(0.0).to_numpy(zero_copy_only=False)


def _crc(columns: Sequence[pa.Array]) -> Any:
    """int64: the CRC-32 of the bytes of each row; of nothing it is 0."""
    parts = [_bytes(column, with_size=len(columns) > 1) for column in columns]
    return np.array([zlib.crc32(b"".join(row)) for row in zip(*parts, strict=True)], np.int64)


def _bytes(column: pa.Array, *, with_size: bool) -> list[bytes]:
    """The bytes of each value, the highest one first; a text has its length before it if others follow."""
    if pa.types.is_string(column.type):
        texts = [each.encode() for each in column.fill_null("").to_pylist()]
        return [len(each).to_bytes(2) + each for each in texts] if with_size else texts
    if pa.types.is_boolean(column.type):
        values = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
    else:
        values = _floats(column) if pa.types.is_floating(column.type) else integers(column)
    width = values.dtype.itemsize
    whole = values.astype(values.dtype.newbyteorder(">")).tobytes()
    known = column.is_valid().to_pylist()
    return [whole[at * width : (at + 1) * width] if there else b"" for at, there in enumerate(known)]


def _unit_by_unit(texts: Sequence[bytes], unit: np.dtype[Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs (which texts have a unit at a place, their units there), for each place in turn."""
    size = np.array([len(each) for each in texts], np.int64) // unit.itemsize
    flat, begin = np.frombuffer(b"".join(texts), unit), np.cumsum(size) - size
    for place in range(int(size.max(initial=0))):
        at = np.flatnonzero(size > place)
        yield at, flat[begin[at] + place].astype(np.int64)
