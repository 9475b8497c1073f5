"""The Arrow types that a payload may have: what Polars holds them as, how each comes back whole, and what is refused.

Polars reads Arrow without a copy where both lay a type out alike; the rest it converts. `lower` does by Arrow the few
conversions that Polars would do with a loss, and `restore` gives a column that Polars returns its declared type again.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import copied
from gpu_ops.core.arrow_types import fields_of, is_bytes, is_text, is_view, remade
from gpu_ops.errors import SourceError

_IS = pa.types
_ENUM = b"_PL_ENUM_VALUES2"  # the field metadata by which Polars knows its own Enum, and its order, again
_WHOLE_HOURS = re.compile(r"[+-](0\d|1[0-4]):?00")


class Refused(NamedTuple):
    """A family of Arrow types that no payload column may have.

    Attributes:
        holds: Whether a type is one of them.
        reason: Why it is refused.
        remedy: What to do instead.
    """

    holds: Callable[[pa.DataType], bool]
    reason: str
    remedy: str


def _is_text_dictionary(kind: pa.DataType) -> bool:
    return bool(_IS.is_dictionary(kind)) and is_text(kind.value_type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_IS.is_list(kind) or _IS.is_large_list(kind))


def _encodes(values: pa.DataType) -> bool:
    try:
        pa.array([], values).dictionary_encode().dictionary_decode()
    except pa.ArrowNotImplementedError:
        return False
    return True


def _is_unknown_zone(kind: pa.DataType) -> bool:
    if not _IS.is_timestamp(kind) or not kind.tz or _WHOLE_HOURS.fullmatch(kind.tz):
        return False
    try:
        zoneinfo.ZoneInfo(kind.tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return True
    return False


REFUSED = (
    Refused(
        _IS.is_decimal256,
        "Polars has no decimal of more than 38 digits",
        "Cast it to decimal128(38, scale) or to text.",
    ),
    Refused(
        lambda kind: _IS.is_decimal(kind) and not 0 <= kind.scale <= kind.precision,
        "Polars has no such decimal",
        "Cast it to a decimal128 with a scale from 0 to its precision.",
    ),
    Refused(
        _IS.is_interval,
        "Polars has no span of changing length",
        "Cast it to a duration, or split it into integer columns.",
    ),
    Refused(_IS.is_union, "Polars has no union", "Split it into one column for each of its types."),
    Refused(_IS.is_run_end_encoded, "Polars has no such layout", "Decode it: pyarrow.compute.run_end_decode."),
    Refused(
        lambda kind: _IS.is_dictionary(kind) and bool(kind.ordered),
        "the order of its values would be lost",
        "Make it unordered (pandas: .cat.as_unordered()), a text, or a Polars Enum.",
    ),
    # Of nested values, extension types, short decimals, or binary views.
    Refused(
        lambda kind: bool(_IS.is_dictionary(kind)) and not _is_text_dictionary(kind) and not _encodes(kind.value_type),
        "Arrow cannot make such a dictionary again",
        "Decode it: cast it to the type of its values.",
    ),
    Refused(
        lambda kind: bool(_IS.is_list_view(kind) or _IS.is_large_list_view(kind)),
        "Polars has no such layout",
        "Cast it to a list.",
    ),
    Refused(
        lambda kind: (
            (_IS.is_fixed_size_binary(kind) and kind.byte_width == 0)
            or (_IS.is_fixed_size_list(kind) and kind.list_size == 0)
        ),
        "Polars has no such column",
        "Drop the column.",
    ),
    Refused(
        lambda kind: bool(_IS.is_fixed_size_list(kind)) and _holds(kind.value_type, _IS.is_null),
        "Arrow's casts break it",
        "Cast what it holds to a type, or drop the column.",
    ),
    Refused(
        _is_unknown_zone,
        "Polars knows zones by their names",
        "Cast it to timestamp[us, UTC] or to a named zone such as 'Asia/Kolkata'.",
    ),
)
"""The refused types. The first entry that holds a type gives the reason."""

CARRIED: tuple[Callable[[pa.DataType], bool], ...] = (
    *(_IS.is_integer, _IS.is_floating, _IS.is_decimal, _IS.is_boolean, _IS.is_null),
    *(is_text, is_bytes, _IS.is_fixed_size_binary, _IS.is_dictionary),
    *(_IS.is_date, _IS.is_time, _IS.is_timestamp, _IS.is_duration),
    *(_is_list, _IS.is_fixed_size_list, _IS.is_struct, _IS.is_map),
    lambda kind: isinstance(kind, pa.BaseExtensionType),
)
"""The families of types that are carried, unless a row of `REFUSED` holds one."""


def _children(kind: pa.DataType) -> list[pa.Field]:
    if _IS.is_map(kind):
        return [kind.key_field, kind.item_field]
    if _IS.is_dictionary(kind):
        return [pa.field("value", kind.value_type)]
    if isinstance(kind, pa.BaseExtensionType):
        return [pa.field("storage", kind.storage_type)]
    if _is_list(kind) or _IS.is_fixed_size_list(kind) or _IS.is_struct(kind):
        return fields_of(kind)
    return []


def _holds(kind: pa.DataType, is_it: Callable[[pa.DataType], bool]) -> bool:
    return bool(is_it(kind)) or any(_holds(field.type, is_it) for field in _children(kind))


def refusal(kind: pa.DataType | pa.Field) -> str | None:
    """Why no payload column may have this type, with the remedy; None where it may.

    Args:
        kind: An Arrow type, or a field: a Polars Enum is known by its field's metadata.

    Examples:
        >>> refusal(pa.int64()) is None
        True
        >>> print(refusal(pa.list_(pa.binary(0))))
        fixed_size_binary[0] cannot be carried: Polars has no such column. Drop the column.
    """
    is_enum = isinstance(kind, pa.Field) and _ENUM in (kind.metadata or {})
    plain = kind.type if isinstance(kind, pa.Field) else kind
    for row in REFUSED:
        if row.holds(plain) and not (is_enum and _is_text_dictionary(plain)):
            return f"{plain} cannot be carried: {row.reason}. {row.remedy}"
    if not any(holds(plain) for holds in CARRIED):
        return f"{plain} cannot be carried: Polars has no such type. Cast it to another, or drop the column."
    return next((reason for child in _children(plain) if (reason := refusal(child)) is not None), None)


def carried(kind: pa.DataType | pa.Field) -> bool:
    """Whether a payload column may have this type.

    Examples:
        >>> carried(pa.map_(pa.string(), pa.int64()))
        True
    """
    return refusal(kind) is None


def storage(kind: pa.DataType) -> pa.DataType:
    """The Arrow type to give to Polars for a column of this type: the type itself unless Polars would lose something.

    Examples:
        >>> storage(pa.string())
        DataType(string)
        >>> storage(pa.list_(pa.timestamp("s", "UTC")))
        ListType(list<item: timestamp[ms, tz=UTC]>)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return storage(kind.storage_type)
    if _IS.is_dictionary(kind):
        return kind if _is_text_dictionary(kind) else storage(kind.value_type)
    if _IS.is_decimal32(kind) or _IS.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if _IS.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if _IS.is_duration(kind) and kind.unit == "s":
        return pa.duration("ms")
    if _IS.is_date64(kind):
        return pa.timestamp("ms")
    return remade(kind, _stored)


def counted(kind: pa.DataType) -> pa.DataType:
    """The type that a column of fixed width has where its values are plain numbers: in that type's unit they count.

    Examples:
        >>> counted(pa.timestamp("s", "UTC")), counted(pa.time32("s")), counted(pa.int8())
        (TimestampType(timestamp[ms, tz=UTC]), Time64Type(time64[ns]), DataType(int8))
    """
    return pa.time64("ns") if _IS.is_time(kind) else storage(kind)


def _stored(field: pa.Field) -> pa.Field:
    """What nested columns hold; no views, of which only whole columns can be `_pointed`."""
    kind = storage(field.type)
    kind = pa.large_string() if _IS.is_string_view(kind) else kind
    return field.with_type(pa.large_binary() if _IS.is_binary_view(kind) else kind)


def _may_view(kind: pa.DataType) -> bool:
    return is_view(kind.value_type if _IS.is_dictionary(kind) else kind)


def _pointed(array: pa.Array) -> pa.Array:
    """Views without memory that is none; the very same array where there is no such memory.

    Short texts and bytes lie in the views themselves. Casts of pyarrow before 25 leave a null pointer in place of the
    memory for others, and whoever exports such an array, to Polars or DuckDB, dies (apache/arrow#49740).
    """
    if _IS.is_dictionary(array.type) and is_view(array.type.value_type):
        pointed = _pointed(array.dictionary)
        return array if pointed is array.dictionary else pa.DictionaryArray.from_arrays(array.indices, pointed)
    if not is_view(array.type):
        return array
    validity, views, *memory = array.buffers()
    if all(each is not None for each in memory):
        return array
    # All texts are short, so that none points there.
    memory = [each for each in memory if each is not None]
    return pa.Array.from_buffers(array.type, len(array), [validity, views, *memory], -1, array.offset)


def lower(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column as `storage` says that Polars takes it; the very same object where nothing has to change.

    Raises:
        SourceError: A timestamp or duration in seconds lies beyond what milliseconds can count.

    Examples:
        >>> lower(pa.array([1], pa.duration("s"))).type
        DurationType(duration[ms])
    """
    target = storage(column.type)
    if _holds(column.type, _IS.is_fixed_size_list):
        column = _unsliced(column)
    if target == column.type:
        # Numbers have no views: nothing to look at in each step of a running query.
        if not _may_view(target):
            return column
        if not isinstance(column, pa.ChunkedArray):
            return _pointed(column)
        before = column.chunks
        chunks = [_pointed(chunk) for chunk in before]
        same = all(each is held for each, held in zip(chunks, before, strict=True))
        return column if same else pa.chunked_array(chunks, target)
    try:
        if _IS.is_dictionary(column.type):
            column = pc.dictionary_decode(column)
        return column.cast(target)
    except pa.ArrowInvalid as error:
        raise SourceError(
            f"A value of type {column.type} does not fit {target}, by which it is carried: {error}.",
            remedy="Remove the value, or cast the column.",
        ) from error


def _unsliced(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A copy of what is a slice: Polars takes fixed-size lists with nulls, however deep they are, only whole."""
    kind = column.type
    plain = _IS.is_fixed_size_list(kind) and not _holds(kind.value_type, _IS.is_fixed_size_list)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    # Only of the outermost can it be told whether it is a slice.
    whole = [plain and len(chunk.values) == len(chunk) * kind.list_size for chunk in chunks]
    if all(whole):
        return column
    copies = [chunk if complete else copied(chunk) for chunk, complete in zip(chunks, whole, strict=True)]
    return pa.chunked_array(copies, kind) if isinstance(column, pa.ChunkedArray) else copies[0]


def _comes_back_by_cast(kind: pa.DataType) -> bool:
    """Whether an Arrow cast alone restores a type, all the way down."""
    if _IS.is_date64(kind) or _IS.is_dictionary(kind) or _IS.is_null(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return _comes_back_by_cast(kind.storage_type)
    if _IS.is_nested(kind) and _holds(kind, is_view):
        return False
    if _IS.is_struct(kind) and any(not field.nullable for field in fields_of(kind)):
        return False
    return all(_comes_back_by_cast(field.type) for field in _children(kind))


def restore(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column that Polars gave back, in its declared type again, every value and null as it was.

    A chunk that is too large for the 32-bit offsets of ``string``, ``binary`` or ``list`` comes back as several.

    Args:
        column: What ``polars.DataFrame.to_arrow()`` gave for a column that went in as `lower` made it.
        kind: The type it had before `lower`.

    Examples:
        >>> restore(pa.array(["a", None], pa.large_string()), pa.dictionary(pa.int8(), pa.string())).type
        DictionaryType(dictionary<values=string, indices=int8, ordered=0>)
    """
    if _IS.is_nested(kind):
        column = _sound(column)
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([piece for chunk in column.chunks for piece in _pieces(chunk, kind)], kind)
    return _restored(column, kind)


def _sound(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column, made anew where its lists have no values: what Polars gives may begin past the end of their memory.

    Arrow cannot copy such an array, and writes it to a file that it cannot read.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_sound(chunk) for chunk in column.chunks], column.type)
    return _anew(column) if _begins_past_its_end(column) else column


def _begins_past_its_end(array: pa.Array) -> bool:
    if _IS.is_struct(array.type):
        return any(_begins_past_its_end(array.field(number)) for number in range(array.type.num_fields))
    if not _is_list(array.type):
        return False
    return bool(array.values.offset and not len(array.values)) or _begins_past_its_end(array.values)


def _anew(array: pa.Array) -> pa.Array:
    if _IS.is_struct(array.type):
        fields = fields_of(array.type)
        children = [_sound(array.field(number)) for number in range(len(fields))]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    values = _sound(array.values) if len(array.values) else pa.array([], array.type.value_type)
    return pa.Array.from_buffers(array.type, len(array), array.buffers()[:2], -1, array.offset, [values])


def _pieces(array: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    try:
        return [_restored(array, kind)]
    except pa.ArrowInvalid:
        # Too many bytes for 32-bit offsets, or too many values for a dictionary's indices: fewer rows fit.
        if len(array) < 2:
            raise
    middle = len(array) // 2
    # Copied: the offsets of a mere slice would still count from the start of the whole buffer.
    halves = copied(array.slice(0, middle)), copied(array.slice(middle))
    return [piece for half in halves for piece in _pieces(half, kind)]


def _restored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if _IS.is_null(kind):
        return pa.nulls(len(array))
    if _comes_back_by_cast(kind):
        decode = _IS.is_dictionary(array.type) and is_view(kind)  # which Arrow does not cast
        return _pointed((array.dictionary_decode() if decode else array).cast(kind))
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(_restored(array, kind.storage_type))
    if _IS.is_date64(kind):
        return array.view(kind)  # a cast would drop the time of day that ill-made dates carry
    if _IS.is_dictionary(kind):
        if _IS.is_dictionary(array.type) and len(array.dictionary) <= len(array):
            return array.cast(kind)
        # Here for the few rows of a large dictionary too: theirs may fit indices that the whole does not.
        values = array.dictionary_decode() if _IS.is_dictionary(array.type) else array
        return _restored(values, kind.value_type).dictionary_encode().cast(kind)
    return _rebuilt(array, kind)


def _rebuilt(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A nested array put together again from its restored children."""
    mask = array.is_null() if array.null_count else None
    if _IS.is_struct(kind):
        fields = fields_of(kind)
        children = [_restored(array.field(number), field.type) for number, field in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if _IS.is_fixed_size_list(kind):
        width = kind.list_size
        if not _IS.is_fixed_size_list(array.type):
            array = array.cast(pa.list_(array.type.value_field, width))
        values = array.values.slice(array.offset * width, len(array) * width)
        return pa.FixedSizeListArray.from_arrays(_restored(values, kind.value_type), type=kind, mask=mask)
    if _IS.is_map(kind):
        # A cast to a list would cut lists of nulls within off from their offsets.
        entries = array.values
        array = pa.Array.from_buffers(
            pa.list_(entries.type), len(array), array.buffers()[:2], -1, array.offset, [entries]
        )
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if _IS.is_map(kind):
        entries = array.flatten()
        keys, items = _restored(entries.field(0), kind.key_type), _restored(entries.field(1), kind.item_type)
        return pa.MapArray.from_arrays(_narrow(offsets), keys, items, type=kind, mask=mask)
    values = _restored(array.flatten(), kind.value_type)
    if _IS.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(offsets), values, type=kind, mask=mask)
    return pa.ListArray.from_arrays(_narrow(offsets), values, type=kind, mask=mask)


def _narrow(offsets: np.ndarray) -> pa.Array:
    return cast("pa.Array", pa.array(offsets).cast(pa.int32()))
