"""Lowering Arrow's types to types that cuDF has, and restoring them. It uses Arrow alone, and runs without a GPU.

cuDF has integers, floats, booleans, decimals, text, naive times, durations, lists and structs, but no bytes, no maps
and no time zones. Bytes pass as text of the same bytes, which libcudf copies, hashes and compares by its bytes and
never decodes; maps pass as lists of pairs, times without their zone, and dates, which cuDF would turn into seconds, as
numbers of days. These have the layout of the lowered type, so lowering renames their memory without a copy.

Other types are converted: times of day to nanoseconds, as integers (as on the CPU), float16 to float32, large lists and
fixed-size lists to lists, and the null type to small integers that are all null.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from gpu_ops.core import types
from gpu_ops.errors import SourceError

_IS = pa.types


def _within(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type after a change of the types within it, then of itself."""
    if _IS.is_struct(kind):
        kind = pa.struct([field.with_type(_within(field.type, change)) for field in kind])
    elif _IS.is_map(kind):
        item = kind.item_field
        kind = pa.map_(_within(kind.key_type, change), item.with_type(_within(item.type, change)))
    elif _IS.is_list(kind) or _IS.is_large_list(kind) or _IS.is_fixed_size_list(kind):
        kind = _list_like(kind, kind.value_field.with_type(_within(kind.value_type, change)))
    return change(kind)


def _list_like(kind: pa.DataType, field: pa.Field) -> pa.DataType:
    """A list of a field, large or of a fixed size if ``kind`` is."""
    if _IS.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if _IS.is_large_list(kind) else pa.list_(field)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with a layout that cuDF has."""
    if _IS.is_dictionary(kind):
        return _plain(kind.value_type)
    if _IS.is_large_list(kind) or _IS.is_fixed_size_list(kind):
        return pa.list_(kind.value_field)
    if _IS.is_time(kind):
        return types.counted(kind)
    if _IS.is_float16(kind):
        return pa.float32()
    if _IS.is_null(kind):
        return pa.int8()
    if _IS.is_fixed_size_binary(kind) or _IS.is_binary_view(kind):
        return pa.binary()
    return pa.string() if _IS.is_string_view(kind) else kind


def _renamed(kind: pa.DataType) -> pa.DataType:
    """The type by which cuDF names that layout."""
    if _IS.is_binary(kind):
        return pa.string()
    if _IS.is_large_binary(kind):
        return pa.large_string()
    if _IS.is_date32(kind):
        return pa.int32()
    if _IS.is_time64(kind):
        return pa.int64()
    if _IS.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])) if _IS.is_map(kind) else kind


def laid_out(kind: pa.DataType) -> pa.DataType:
    """The type of a column after conversion and before renaming.

    Examples:
        >>> laid_out(pa.uuid())
        DataType(binary)
    """
    return _within(types.storage(kind), _plain)


def device_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type that cuDF gets for a column of this type.

    Examples:
        >>> device_type(pa.uuid()), device_type(pa.map_(pa.string(), pa.binary()))
        (DataType(string), ListType(list<item: struct<key: string, value: string>>))
        >>> device_type(pa.date32()), device_type(pa.time32("s"))
        (DataType(int32), DataType(int64))
        >>> device_type(pa.decimal128(38, 9))
        Decimal128Type(decimal128(38, 9))
    """
    return _within(laid_out(kind), _renamed)


def lower(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as cuDF takes it; the same object if nothing has to change.

    Raises:
        SourceError: A timestamp or duration in seconds does not fit milliseconds, or large lists have more values than
            lists of cuDF can have.

    Examples:
        >>> lower(pa.chunked_array([[b"ab", None]])).type
        DataType(string)
    """
    before, after = laid_out(column.type), device_type(column.type)
    if after == column.type:
        return column
    stored = types.lower(column)
    if _IS.is_dictionary(stored.type):
        stored = pa.chunked_array([chunk.dictionary_decode() for chunk in stored.chunks], stored.type.value_type)
    try:
        return _view(stored.cast(before), after)
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"A column of type {column.type} does not fit {after}, by which it is carried on a GPU: {error}.",
            remedy='Use device="cpu", or hand it over in smaller batches.',
        ) from error


def restore(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column that cuDF returned, in its declared type.

    Args:
        column: A column that `lower` made, or that cuDF computed in that form.
        kind: The declared type.

    Examples:
        >>> restore(lower(pa.chunked_array([[b"ab", None]])), pa.binary()).to_pylist()
        [b'ab', None]
    """
    whole = types.restore(_view(column.cast(device_type(kind)), laid_out(kind)), kind)
    return whole if isinstance(whole, pa.ChunkedArray) else pa.chunked_array([whole])


def _view(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same memory under another type's name."""
    return column if column.type == kind else pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
