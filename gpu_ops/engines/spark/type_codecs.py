"""How payload columns of each type pass through mapInArrow: one table for the driver and the workers.

The RAPIDS plugin (26.08 on Spark 4.1) plans ``mapInArrow`` for booleans, integers, floats, text, dates, timestamps and
arrays of these. Everything else is *lowered* to such columns before it and *raised* after it, both by expressions that
the plugin plans too where there are any; in the worker a column has its Arrow type again. Classes below are in pairs of
sides: `lower` and `raised` act on Spark columns, `restore` and `flatten` on Arrow arrays.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql.pandas.types import from_arrow_type

from gpu_ops.engines.spark.types import column, plain_type, spark_type, to_ticks

_IS = pa.types
_LONG_DIGITS = 18
"""Decimals of up to this many digits fit an int64, unscaled."""


@dataclass(frozen=True)
class Carrier:
    """How columns of a plain type pass: this one as they are. Others are its subclasses.

    Attributes:
        dtype: The plain Arrow type.
    """

    dtype: pa.DataType

    @property
    def types(self) -> list[pa.DataType]:
        """The Arrow types of the columns that pass in its place."""
        return [self.dtype]

    @property
    def refusal(self) -> str | None:
        """Why the plugin plans no mapInArrow with these columns, or not what stands around it; None where it does."""
        return None if _planned(self.dtype) else f"{self.dtype} is no type that the RAPIDS plugin passes to Python"

    @property
    def shape(self) -> str | None:
        """What passes in place of a column, in words; None where the column itself does."""
        return None

    def lower(self, value: Column) -> list[Column]:
        """The columns that pass in place of one; null for null."""
        return [value]

    def raised(self, parts: Sequence[Column]) -> Column:
        """The column that they stand for."""
        return parts[0]

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """In the worker: the array that arrays of `types` stand for."""
        return parts[0].cast(self.dtype)

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """In the worker: the arrays of `types` that stand for one."""
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


class Unscaled(Carrier):
    """Decimals of up to 18 digits, as their unscaled LONG."""

    @property
    def types(self) -> list[pa.DataType]:
        """One int64."""
        return [pa.int64()]

    @property
    def refusal(self) -> str | None:
        """None: all of it is planned."""
        return None

    @property
    def shape(self) -> str | None:
        """An integer."""
        return "its unscaled BIGINT"

    @property
    def _factor(self) -> Column:
        scale = self.dtype.scale
        return F.expr(f"cast({10**scale} as decimal({scale + 1}, 0))")

    def lower(self, value: Column) -> list[Column]:
        """``value * 10**scale``, which is whole."""
        return [(value * self._factor).cast("long")]

    def raised(self, parts: Sequence[Column]) -> Column:
        """Divided again: Spark keeps scale + 2 digits after the point, or 18 of at most 18, so nothing is rounded."""
        return (parts[0].cast("decimal(20,0)") / self._factor).cast(from_arrow_type(self.dtype))

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """An int64 is the low word; the high word is its sign."""
        low = parts[0].fill_null(0).to_numpy(zero_copy_only=False)
        words = np.stack([low, low >> 63], axis=1)
        return pa.Array.from_buffers(self.dtype, len(low), [_bitmap(parts[0]), pa.py_buffer(words)])

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """The low words."""
        words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, 2)
        low = np.ascontiguousarray(words[array.offset : array.offset + len(array), 0])
        return [pa.Array.from_buffers(pa.int64(), len(low), [_bitmap(array), pa.py_buffer(low)])]


class Digits(Carrier):
    """Wider decimals, as text."""

    @property
    def types(self) -> list[pa.DataType]:
        """One string."""
        return [pa.string()]

    @property
    def refusal(self) -> str | None:
        """None: all of it is planned."""
        return None

    @property
    def shape(self) -> str | None:
        """A text."""
        return "STRING of its digits"

    def lower(self, value: Column) -> list[Column]:
        """A cast."""
        return [value.cast("string")]

    def raised(self, parts: Sequence[Column]) -> Column:
        """A cast."""
        return parts[0].cast(from_arrow_type(self.dtype))

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """A cast."""
        return [array.cast(pa.string())]


class Hex(Carrier):
    """Binary, as hexadecimal text: it is equal and ordered as the bytes are."""

    @property
    def types(self) -> list[pa.DataType]:
        """One string."""
        return [pa.string()]

    @property
    def refusal(self) -> str | None:
        """On the way in all is planned."""
        return "binary comes back from Python by unhex, for which the RAPIDS plugin has no rule"

    @property
    def shape(self) -> str | None:
        """A text."""
        return "STRING of hexadecimal digits"

    def lower(self, value: Column) -> list[Column]:
        """Two digits a byte."""
        return [F.hex(value)]

    def raised(self, parts: Sequence[Column]) -> Column:
        """Read again."""
        return F.unhex(parts[0])

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """All digits at once; every offset is halved."""
        offsets, data = _text_buffers(parts[0])
        return _text_array(pa.binary(), parts[0], offsets // 2, binascii.unhexlify(data))

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """All bytes at once; every offset is doubled."""
        offsets, data = _text_buffers(array)
        return [_text_array(pa.string(), array, offsets * 2, binascii.hexlify(data).upper())]


class Microseconds(Carrier):
    """Day-time intervals, as LONG microseconds."""

    @property
    def types(self) -> list[pa.DataType]:
        """One int64."""
        return [pa.int64()]

    @property
    def refusal(self) -> str | None:
        """None: all of it is planned."""
        return None

    @property
    def shape(self) -> str | None:
        """An integer."""
        return "BIGINT microseconds"

    def lower(self, value: Column) -> list[Column]:
        """The instant so long after 1970, as ticks: casts would overflow after 106 days."""
        return [to_ticks(F.timestamp_micros(F.lit(0).cast("long")) + value)]

    def raised(self, parts: Sequence[Column]) -> Column:
        """An interval of as many microseconds."""
        return F.expr("interval '0.000001' second") * parts[0]

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """The same integers."""
        return parts[0].view(self.dtype)

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """The same integers."""
        return [array.view(pa.int64())]


class Nothing(Carrier):
    """Columns of the null type, as booleans, of which none is there."""

    @property
    def types(self) -> list[pa.DataType]:
        """One bool."""
        return [pa.bool_()]

    @property
    def refusal(self) -> str | None:
        """None: all of it is planned."""
        return None

    @property
    def shape(self) -> str | None:
        """A boolean."""
        return "BOOLEAN"

    def lower(self, value: Column) -> list[Column]:
        """A cast."""
        return [value.cast("boolean")]

    def raised(self, parts: Sequence[Column]) -> Column:
        """Null, but not as a constant: the column is still to be read."""
        return F.when(parts[0].isNotNull(), F.lit(None)).otherwise(F.lit(None))

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """As many nulls."""
        return pa.nulls(len(parts[0]))

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """As many nulls."""
        return [pa.nulls(len(array), pa.bool_())]


class Fields(Carrier):
    """Structs, as a mark whether they are there and the columns of each field."""

    @property
    def _fields(self) -> list[tuple[str, Carrier]]:
        return [(field.name, carrier(field.type)) for field in self.dtype]

    @property
    def types(self) -> list[pa.DataType]:
        """One bool, then those of the fields."""
        return [pa.bool_(), *(dtype for _, each in self._fields for dtype in each.types)]

    @property
    def refusal(self) -> str | None:
        """That of the first field that has one; and intervals do not come back in a struct."""
        if any(isinstance(each, Microseconds) for _, each in self._fields):
            return "an interval comes back in a struct by expressions for which the RAPIDS plugin has no rule"
        return next((each.refusal for _, each in self._fields if each.refusal is not None), None)

    @property
    def shape(self) -> str | None:
        """A mark, and what passes in place of each field."""
        fields = [f"{name} as {each.shape}" for name, each in self._fields if each.shape is not None]
        return "BOOLEAN and its fields" + (f" ({', '.join(fields)})" if fields else "")

    def lower(self, value: Column) -> list[Column]:
        """``value.field``, lowered in turn."""
        parts = [part for name, each in self._fields for part in each.lower(value.getField(name))]
        return [value.isNotNull(), *parts]

    def raised(self, parts: Sequence[Column]) -> Column:
        """Put together where the mark says so."""
        fields = [each.raised(taken).alias(name) for (name, each), taken in self._split(parts)]
        return F.when(parts[0], F.struct(*fields))

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Put together where the mark says so."""
        children = [each.restore(taken) for (_, each), taken in self._split(parts)]
        absent = pa.array(~parts[0].to_numpy(zero_copy_only=False).astype(bool))
        return pa.StructArray.from_arrays(children, fields=list(self.dtype), mask=absent)

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """The fields, null where the struct is."""
        children = zip(self._fields, array.flatten(), strict=True)
        return [array.is_valid(), *(part for (_, each), child in children for part in each.flatten(child))]

    def _split(self, parts: Sequence[Any]) -> list[tuple[tuple[str, Carrier], Sequence[Any]]]:
        split, at = [], 1
        for name, each in self._fields:
            split.append(((name, each), parts[at : at + len(each.types)]))
            at += len(each.types)
        return split


class Entries(Carrier):
    """Maps, as an array of keys and one of values."""

    @property
    def types(self) -> list[pa.DataType]:
        """Two lists."""
        return [pa.list_(self.dtype.key_type), pa.list_(self.dtype.item_type)]

    @property
    def refusal(self) -> str | None:
        """None where both lists are planned."""
        return next((reason for each in self.types if (reason := Carrier(each).refusal) is not None), None)

    @property
    def shape(self) -> str | None:
        """Two lists."""
        return "ARRAY of keys and ARRAY of values"

    def lower(self, value: Column) -> list[Column]:
        """Both in the same order."""
        return [F.map_keys(value), F.map_values(value)]

    def raised(self, parts: Sequence[Column]) -> Column:
        """Paired again."""
        return F.map_from_arrays(*parts)

    def restore(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Paired again."""
        keys = parts[0]
        lengths = keys.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        mask = keys.is_null() if keys.null_count else None
        return pa.MapArray.from_arrays(offsets, keys.flatten(), parts[1].flatten(), type=self.dtype, mask=mask)

    def flatten(self, array: pa.Array) -> list[pa.Array]:
        """Keys and values, with the map's own offsets."""
        pairs = array.cast(pa.list_(pa.struct([("key", self.dtype.key_type), ("value", self.dtype.item_type)])))
        lengths = pairs.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        entries, mask = pairs.flatten(), pairs.is_null() if pairs.null_count else None
        return [
            pa.ListArray.from_arrays(offsets, child, type=dtype, mask=mask)
            for child, dtype in zip(entries.flatten(), self.types, strict=True)
        ]


CARRIERS: tuple[tuple[Callable[[pa.DataType], bool], type[Carrier]], ...] = (
    (lambda dtype: _IS.is_decimal(dtype) and dtype.precision <= _LONG_DIGITS, Unscaled),
    (_IS.is_decimal, Digits),
    (_IS.is_binary, Hex),
    (_IS.is_duration, Microseconds),
    (_IS.is_null, Nothing),
    (_IS.is_struct, Fields),
    (_IS.is_map, Entries),
)
"""Which types pass in another shape. The first row that holds a type speaks; all others pass as they are."""


def carrier(dtype: pa.DataType) -> Carrier:
    """How columns of an Arrow type pass through mapInArrow.

    Examples:
        >>> carrier(pa.decimal128(10, 2)).types, carrier(pa.decimal128(38, 2)).types
        ([DataType(int64)], [DataType(string)])
        >>> carrier(pa.list_(pa.binary())).refusal
        'list<item: binary> is no type that the RAPIDS plugin passes to Python'
    """
    plain = plain_type(dtype)
    return next((kind(plain) for holds, kind in CARRIERS if holds(plain)), Carrier(plain))


def passage(field: pa.Field) -> str | None:
    """How a column passes through mapInArrow, in words; None where Spark has its very type and the plugin passes it.

    Examples:
        >>> passage(pa.field("price", pa.decimal128(10, 2)))
        "'price' (decimal128(10, 2)) as its unscaled BIGINT"
        >>> passage(pa.field("total", pa.uint64()))
        "'total' (uint64) as DECIMAL(20,0), that as STRING of its digits"
    """
    each = carrier(field.type)
    widened = [] if each.dtype == field.type else [spark_type(field.type).simpleString().upper()]
    shapes = [*widened, *([] if each.shape is None else [each.shape])]
    return f"{field.name!r} ({field.type}) as {', that as '.join(shapes)}" if shapes else None


# Whole tables


def as_they_are(schema: pa.Schema) -> bool:
    """Whether all columns of a payload pass as they are.

    Examples:
        >>> as_they_are(pa.schema([("zone", pa.string())])), as_they_are(pa.schema([("price", pa.decimal128(9, 2))]))
        (True, False)
    """
    return all(carrier(field.type).shape is None for field in schema)


def carried_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that pass in place of a payload's, by names that every Spark expression can say.

    Examples:
        >>> carried_schema(pa.schema([("price in €", pa.decimal128(9, 2)), ("zone", pa.string())])).names
        ['0_price_in__', '1_zone']
    """
    return pa.schema([each for fields in carried_fields(schema).values() for each in fields])


def carried_fields(schema: pa.Schema) -> dict[str, list[pa.Field]]:
    """For each column of a payload, those that pass in its place."""
    carried = {}
    for number, field in enumerate(schema):
        types = carrier(field.type).types
        name = f"{number}_{re.sub(r'[^A-Za-z0-9]', '_', field.name)}"
        carried[field.name] = [
            pa.field(name if len(types) == 1 else f"{name}_{at}", dtype) for at, dtype in enumerate(types)
        ]
    return carried


def lowered_columns(schema: pa.Schema) -> list[Column]:
    """Expressions over a payload's columns that give those that pass."""
    parts = [part for field in schema for part in carrier(field.type).lower(column(field.name))]
    return [part.alias(name) for part, name in zip(parts, carried_schema(schema).names, strict=True)]


def raised_columns(schema: pa.Schema) -> list[Column]:
    """Expressions over the columns that passed that give the payload's."""
    passed = iter(column(name) for name in carried_schema(schema).names)
    made = []
    for field in schema:
        each = carrier(field.type)
        made.append(each.raised([next(passed) for _ in each.types]).alias(field.name))
    return made


def restored_arrays(schema: pa.Schema, arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """In the worker: a payload's columns from those that passed."""
    passed = iter(arrays)
    made = []
    for field in schema:
        each = carrier(field.type)
        made.append(each.restore([next(passed) for _ in each.types]).cast(field.type))
    return made


def flattened_arrays(schema: pa.Schema, arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """In the worker: the columns that pass in place of a payload's."""
    return [
        part
        for field, array in zip(schema, arrays, strict=True)
        for part in carrier(field.type).flatten(array.cast(plain_type(field.type)))
    ]


# Buffers


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    there = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(there, bitorder="little"))


def _text_buffers(array: pa.Array) -> tuple[np.ndarray, memoryview]:
    """Offsets that begin at 0, and the bytes that they point into."""
    _, places, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), memoryview(b"")
    offsets = np.frombuffer(places, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, memoryview(data or b"")[first:last]


def _text_array(dtype: pa.DataType, like: pa.Array, offsets: np.ndarray, data: bytes) -> pa.Array:
    places = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(dtype, len(like), [_bitmap(like), places, pa.py_buffer(data)])
