"""How payload columns of each type pass through mapInArrow: one table for the driver and the workers.

The RAPIDS plugin (26.08 on Spark 4.1) plans ``mapInArrow`` for booleans, integers, floats, text, dates, timestamps and
arrays of these. Columns of other types are *encoded* as such columns before it and *decoded* after it. On the driver
Spark expressions do so, most of which the plugin plans too; in the worker Arrow arrays are decoded and encoded again.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.pandas.types import from_arrow_type

from gpu_ops.core.arrow_buffers import decimal_words, integers, packed, to_arrow, validity
from gpu_ops.engines.spark.types import column, plain_type, spark_type, to_ticks

_IS = pa.types
_LONG_DIGITS = 18
"""Decimals of up to this many digits fit an int64, unscaled."""


@dataclass(frozen=True)
class TypeCodec:
    """How columns of a plain type pass: this one unchanged. Others are its subclasses.

    Attributes:
        dtype: The plain Arrow type.
    """

    dtype: pa.DataType

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The Arrow types of the encoded columns."""
        return (self.dtype,)

    @property
    def refusal(self) -> str | None:
        """Why the plugin does not plan mapInArrow, or what encodes and decodes, for such a column; None if it does."""
        refused = (each for each in self.types if not _planned(each))
        return next((f"{each} is no type that the RAPIDS plugin passes to Python" for each in refused), None)

    @property
    def form(self) -> str | None:
        """The encoded columns in words; None for a column that passes unchanged."""
        return None

    def encode(self, value: Column) -> list[Column]:
        """The encoded columns; null for null."""
        return [value]

    def decode(self, parts: Sequence[Column]) -> Column:
        """The column, from the encoded ones."""
        return parts[0]

    def decode_array(self, parts: Sequence[pa.Array]) -> pa.Array:
        """In the worker: the array, from arrays of `types`."""
        return parts[0].cast(self.dtype)

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """In the worker: arrays of `types`."""
        return [array]


def _planned(dtype: pa.DataType) -> bool:
    """Whether the plugin passes this type into Python and out of it."""
    if _IS.is_list(dtype):
        return _planned(dtype.value_type)
    return (
        _IS.is_boolean(dtype)
        or _IS.is_integer(dtype)
        or _IS.is_floating(dtype)
        or _IS.is_string(dtype)
        or _IS.is_date32(dtype)
        or (_IS.is_timestamp(dtype) and dtype.tz is not None)
    )


class Unscaled(TypeCodec):
    """Decimals of up to 18 digits, as their unscaled LONG."""

    types = (pa.int64(),)
    form = "its unscaled BIGINT"

    @property
    def _factor(self) -> Column:
        scale = self.dtype.scale
        return F.expr(f"cast({10**scale} as decimal({scale + 1}, 0))")

    def encode(self, value: Column) -> list[Column]:
        """``value * 10**scale``, which is whole."""
        return [(value * self._factor).cast("long")]

    def decode(self, parts: Sequence[Column]) -> Column:
        """Divided again: Spark keeps scale + 2 digits after the point, or 18 of at most 18, so nothing is rounded."""
        return (parts[0].cast("decimal(20,0)") / self._factor).cast(from_arrow_type(self.dtype))

    def decode_array(self, parts: Sequence[pa.Array]) -> pa.Array:
        """An int64 is the low word; the high word is its sign."""
        low = integers(parts[0])
        return to_arrow(np.stack([low, low >> 63], axis=1), self.dtype, validity(parts[0]))

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """The low words."""
        low, _, valid = decimal_words(array)
        return [to_arrow(low, pa.int64(), valid)]


class Digits(TypeCodec):
    """Wider decimals, as text."""

    types = (pa.string(),)
    form = "STRING of its digits"

    def encode(self, value: Column) -> list[Column]:
        """A cast."""
        return [value.cast("string")]

    def decode(self, parts: Sequence[Column]) -> Column:
        """A cast."""
        return parts[0].cast(from_arrow_type(self.dtype))

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """A cast."""
        return [array.cast(pa.string())]


class Hex(TypeCodec):
    """Binary, as hexadecimal text: it is equal and ordered as the bytes are."""

    types = (pa.string(),)
    form = "STRING of hexadecimal digits"
    refusal = "binary comes back from Python by unhex, for which the RAPIDS plugin has no rule"

    def encode(self, value: Column) -> list[Column]:
        """Two digits a byte."""
        return [F.hex(value)]

    def decode(self, parts: Sequence[Column]) -> Column:
        """Bytes from their digits."""
        return F.unhex(parts[0])

    def decode_array(self, parts: Sequence[pa.Array]) -> pa.Array:
        """All digits at once; every offset is halved."""
        offsets, data = _text_buffers(parts[0])
        return _text_array(pa.binary(), parts[0], offsets // 2, binascii.unhexlify(data))

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """All bytes at once; every offset is doubled."""
        offsets, data = _text_buffers(array)
        return [_text_array(pa.string(), array, offsets * 2, binascii.hexlify(data).upper())]


class Microseconds(TypeCodec):
    """Day-time intervals, as LONG microseconds."""

    types = (pa.int64(),)
    form = "BIGINT microseconds"

    def encode(self, value: Column) -> list[Column]:
        """The instant so long after 1970, as ticks: casts would overflow after 106 days."""
        return [to_ticks(F.timestamp_micros(F.lit(0).cast("long")) + value)]

    def decode(self, parts: Sequence[Column]) -> Column:
        """An interval of as many microseconds."""
        return F.expr("interval '0.000001' second") * parts[0]

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """The same integers."""
        return [array.view(pa.int64())]


class Nothing(TypeCodec):
    """Columns of the null type, as null booleans."""

    types = (pa.bool_(),)
    form = "BOOLEAN"

    def encode(self, value: Column) -> list[Column]:
        """A cast."""
        return [value.cast("boolean")]

    def decode(self, parts: Sequence[Column]) -> Column:
        """Null, but not as a constant: the column is still to be read."""
        return F.when(parts[0].isNotNull(), F.lit(None)).otherwise(F.lit(None))

    def decode_array(self, parts: Sequence[pa.Array]) -> pa.Array:
        """As many nulls."""
        return pa.nulls(len(parts[0]))

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """As many nulls."""
        return [pa.nulls(len(array), pa.bool_())]


class Fields(TypeCodec):
    """Structs, as a mark that is true where there is one, and the encoded columns of each field."""

    @property
    def _codecs(self) -> list[TypeCodec]:
        return [codec(field.type) for field in self.dtype]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """One bool, then those of the fields."""
        return pa.bool_(), *(dtype for each in self._codecs for dtype in each.types)

    @property
    def refusal(self) -> str | None:
        """That of the first field that has one; and intervals do not come back in a struct."""
        if any(isinstance(each, Microseconds) for each in self._codecs):
            return "an interval comes back in a struct by expressions for which the RAPIDS plugin has no rule"
        return next((each.refusal for each in self._codecs if each.refusal is not None), None)

    @property
    def form(self) -> str | None:
        """The mark, and the forms of the fields."""
        forms = [(field.name, each.form) for field, each in zip(self.dtype, self._codecs, strict=True)]
        fields = [f"{name} as {form}" for name, form in forms if form is not None]
        return "BOOLEAN and its fields" + (f" ({', '.join(fields)})" if fields else "")

    def encode(self, value: Column) -> list[Column]:
        """The mark, and each ``value.field``, encoded in turn."""
        children = [(each, value.getField(field.name)) for field, each in zip(self.dtype, self._codecs, strict=True)]
        return [value.isNotNull(), *(part for each, child in children for part in each.encode(child))]

    def decode(self, parts: Sequence[Column]) -> Column:
        """A struct of the decoded fields where the mark is true."""
        mark, *rest = parts
        decoded = [each.decode(own) for each, own in _shared_out(self._codecs, rest)]
        return F.when(
            mark, F.struct(*(value.alias(field.name) for value, field in zip(decoded, self.dtype, strict=True)))
        )

    def decode_array(self, parts: Sequence[pa.Array]) -> pa.Array:
        """A struct of the decoded fields where the mark is true."""
        mark, *rest = parts
        children = [each.decode_array(own) for each, own in _shared_out(self._codecs, rest)]
        absent = compute.invert(mark.fill_null(False))
        return pa.StructArray.from_arrays(children, fields=list(self.dtype), mask=absent)

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """The fields, null where the struct is."""
        children = zip(self._codecs, array.flatten(), strict=True)
        return [array.is_valid(), *(part for each, child in children for part in each.encode_array(child))]


class Entries(TypeCodec):
    """Maps, as an array of keys and one of values."""

    form = "ARRAY of keys and ARRAY of values"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Two lists."""
        return pa.list_(self.dtype.key_type), pa.list_(self.dtype.item_type)

    def encode(self, value: Column) -> list[Column]:
        """Both in the same order."""
        return [F.map_keys(value), F.map_values(value)]

    def decode(self, parts: Sequence[Column]) -> Column:
        """Paired again."""
        return F.map_from_arrays(*parts)

    def decode_array(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Paired again."""
        keys, values = parts
        return pa.MapArray.from_arrays(
            _list_offsets(keys), keys.flatten(), values.flatten(), type=self.dtype, mask=_list_mask(keys)
        )

    def encode_array(self, array: pa.Array) -> list[pa.Array]:
        """Keys and values, with the map's own offsets."""
        pairs = array.cast(pa.list_(pa.struct([("key", self.dtype.key_type), ("value", self.dtype.item_type)])))
        offsets, mask = _list_offsets(pairs), _list_mask(pairs)
        return [
            pa.ListArray.from_arrays(offsets, child, type=dtype, mask=mask)
            for child, dtype in zip(pairs.flatten().flatten(), self.types, strict=True)
        ]


CODECS: tuple[tuple[Callable[[pa.DataType], bool], type[TypeCodec]], ...] = (
    (lambda dtype: _IS.is_decimal(dtype) and dtype.precision <= _LONG_DIGITS, Unscaled),
    (_IS.is_decimal, Digits),
    (_IS.is_binary, Hex),
    (_IS.is_duration, Microseconds),
    (_IS.is_null, Nothing),
    (_IS.is_struct, Fields),
    (_IS.is_map, Entries),
)
"""Which types pass in another form: the first row that holds a type counts. All others pass unchanged."""


def codec(dtype: pa.DataType) -> TypeCodec:
    """How columns of an Arrow type pass through mapInArrow.

    Examples:
        >>> codec(pa.decimal128(10, 2)).types, codec(pa.decimal128(38, 2)).types
        ((DataType(int64),), (DataType(string),))
        >>> codec(pa.list_(pa.binary())).refusal
        'list<item: binary> is no type that the RAPIDS plugin passes to Python'
    """
    plain = plain_type(dtype)
    return next((kind(plain) for holds, kind in CODECS if holds(plain)), TypeCodec(plain))


def passage(field: pa.Field) -> str | None:
    """How a column passes through mapInArrow, in words; None where Spark has its very type and the plugin passes it.

    Examples:
        >>> passage(pa.field("price", pa.decimal128(10, 2)))
        "'price' (decimal128(10, 2)) as its unscaled BIGINT"
        >>> passage(pa.field("total", pa.uint64()))
        "'total' (uint64) as DECIMAL(20,0), that as STRING of its digits"
    """
    each = codec(field.type)
    widened = None if each.dtype == field.type else spark_type(field.type).simpleString().upper()
    forms = [form for form in (widened, each.form) if form is not None]
    return f"{field.name!r} ({field.type}) as {', that as '.join(forms)}" if forms else None


# Whole payloads


def passes_unchanged(schema: pa.Schema) -> bool:
    """Whether all columns of a payload pass unchanged.

    Examples:
        >>> passes_unchanged(pa.schema([("zone", pa.string())])), passes_unchanged(pa.schema([("n", pa.null())]))
        (True, False)
    """
    return all(codec(field.type).form is None for field in schema)


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """The encoded columns of a payload, under names that every Spark expression can say.

    Examples:
        >>> encoded_schema(pa.schema([("price in €", pa.decimal128(9, 2)), ("zone", pa.string())])).names
        ['0_price_in__', '1_zone']
    """
    return pa.schema([each for fields in encoded_fields(schema).values() for each in fields])


def encoded_fields(schema: pa.Schema) -> dict[str, list[pa.Field]]:
    """For each column of a payload its encoded columns."""
    encoded = {}
    for number, field in enumerate(schema):
        types = codec(field.type).types
        name = f"{number}_{re.sub(r'[^A-Za-z0-9]', '_', field.name)}"
        encoded[field.name] = [
            pa.field(name if len(types) == 1 else f"{name}_{at}", dtype) for at, dtype in enumerate(types)
        ]
    return encoded


def encoded_names(schema: pa.Schema, names: Iterable[str]) -> list[str]:
    """The names of the encoded columns of some columns of a payload."""
    encoded = encoded_fields(schema)
    return [field.name for name in names for field in encoded[name]]


def encoded_columns(schema: pa.Schema) -> list[Column]:
    """Expressions over a payload's columns that give the encoded ones."""
    parts = [part for field in schema for part in codec(field.type).encode(column(field.name))]
    return [part.alias(name) for part, name in zip(parts, encoded_schema(schema).names, strict=True)]


def decoded_columns(schema: pa.Schema) -> list[Column]:
    """Expressions over the encoded columns of a payload that give its own."""
    parts = _shared_out(_codecs(schema), map(column, encoded_schema(schema).names))
    return [each.decode(own).alias(name) for name, (each, own) in zip(schema.names, parts, strict=True)]


def decoded_arrays(schema: pa.Schema, arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """In the worker: a payload's columns from the encoded ones."""
    parts = _shared_out(_codecs(schema), arrays)
    return [each.decode_array(own).cast(field.type) for field, (each, own) in zip(schema, parts, strict=True)]


def encoded_arrays(schema: pa.Schema, arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """In the worker: the encoded columns of a payload's."""
    return [
        part
        for each, array in zip(_codecs(schema), arrays, strict=True)
        for part in each.encode_array(array.cast(each.dtype))
    ]


def _codecs(schema: pa.Schema) -> list[TypeCodec]:
    return [codec(field.type) for field in schema]


def _shared_out(codecs: Iterable[TypeCodec], parts: Iterable[Any]) -> list[tuple[TypeCodec, list[Any]]]:
    """Each codec with as many of the parts as it has encoded columns."""
    rest = iter(parts)
    return [(each, [next(rest) for _ in each.types]) for each in codecs]


# Buffers


def _list_offsets(lists: pa.Array) -> pa.Array:
    """Offsets of lists into their flattened values; a null is an empty list there."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return to_arrow(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), pa.int32())


def _list_mask(lists: pa.Array) -> pa.Array | None:
    return lists.is_null() if lists.null_count else None


def _text_buffers(array: pa.Array) -> tuple[np.ndarray, memoryview]:
    """Offsets that begin at 0, and the bytes that they point into."""
    _, places, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), memoryview(b"")
    offsets = np.frombuffer(places, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, memoryview(data or b"")[first:last]


def _text_array(dtype: pa.DataType, like: pa.Array, offsets: np.ndarray, data: bytes) -> pa.Array:
    valid, places = validity(like), pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(
        dtype, len(like), [None if valid is None else packed(valid), places, pa.py_buffer(data)]
    )
