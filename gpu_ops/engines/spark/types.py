"""Spark types of Arrow types and the reverse; columns by name, timestamps as ticks, and lists of columns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from gpu_ops.core.arrow_types import is_bytes, is_text
from gpu_ops.errors import ColumnError

_IS = pa.types


def column(name: str) -> Column:
    """A column by its exact name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _reinterpret(value: Column, before: Literal["Timestamp", "Long"], after: Literal["Timestamp", "Long"]) -> Column:
    # The expression behind Spark's own window(): the same 64 bits as another type, exact for every value in any session
    # zone. The plugin has no rule for unix_micros, and plans no other exact form as short.
    from pyspark.sql.classic.column import Column as ClassicColumn

    context = SparkContext._active_spark_context  # noqa: SLF001  (the JVM is reached in no other way)
    jvm: Any = None if context is None else context._jvm  # noqa: SLF001
    made = _jvm_class(jvm, "catalyst.expressions.PreciseTimestampConversion")(
        _jvm_member(jvm, "classic.ExpressionUtils", "expression")(value._jc),  # noqa: SLF001
        _jvm_member(jvm, "types.DataTypes", f"{before}Type"),
        _jvm_member(jvm, "types.DataTypes", f"{after}Type"),
    )
    return ClassicColumn(_jvm_member(jvm, "classic.ExpressionUtils", "column")(made))


# Cached: looking up each part of a name takes the JVM as long as the rest of a conversion.


@functools.lru_cache(maxsize=8)
def _jvm_class(jvm: Any, name: str) -> Any:
    return getattr(jvm, f"org.apache.spark.sql.{name}")


@functools.lru_cache(maxsize=16)
def _jvm_member(jvm: Any, name: str, member: str) -> Any:
    return getattr(_jvm_class(jvm, name), member)


def to_ticks(timestamp: Column) -> Column:
    """LONG microseconds since 1970 UTC of a TIMESTAMP column."""
    return _reinterpret(timestamp, "Timestamp", "Long")


def to_timestamp(ticks: Column) -> Column:
    """A TIMESTAMP column from LONG microseconds since 1970 UTC."""
    return _reinterpret(ticks, "Long", "Timestamp")


def lifetime(start: Column, end: Column) -> list[Column]:
    """The columns ``start`` and ``end`` (TIMESTAMP) from LONG microseconds since 1970 UTC."""
    return [to_timestamp(start).alias("start"), to_timestamp(end).alias("end")]


def filled(schema: pa.Schema, given: Mapping[str, Column], known: Collection[str] = ()) -> list[Column]:
    """The columns of a schema.

    Args:
        schema: The schema.
        given: The values of some of its columns.
        known: The columns that the frame has itself. All others are null.
    """
    columns = []
    for field in schema:
        if field.name not in given and field.name in known:
            columns.append(column(field.name))
        else:
            value = given.get(field.name)
            columns.append((F.lit(None).cast(spark_type(field.type)) if value is None else value).alias(field.name))
    return columns


def all_of(conditions: Iterable[Column]) -> Column:
    """Whether all conditions hold; true if there are none."""
    return reduce(Column.__and__, [*conditions] or [F.lit(True)])


def all_known(names: Iterable[str]) -> Column:
    """Whether none of these columns is null."""
    return all_of(column(name).isNotNull() for name in names)


# Spark's types as Arrow types, and back


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark has for an Arrow type: unsigned integers widen, dictionaries become their values.

    Raises:
        ColumnError: Spark has none.

    Examples:
        >>> plain_type(pa.uint32()), plain_type(pa.dictionary(pa.int8(), pa.string()))
        (DataType(int64), DataType(string))
    """
    for holds, plain in _PLAIN:
        if holds(dtype):
            return plain(dtype)
    raise ColumnError(f"Spark has no type for {dtype}.", remedy="Cast it, or leave the column out with .select(…).")


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type))


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (_IS.is_uint8, lambda _: pa.int16()),
    (_IS.is_uint16, lambda _: pa.int32()),
    (_IS.is_uint32, lambda _: pa.int64()),
    (_IS.is_uint64, lambda _: pa.decimal128(20, 0)),
    (_IS.is_float16, lambda _: pa.float32()),
    (lambda dtype: _IS.is_boolean(dtype) or _IS.is_integer(dtype) or _IS.is_floating(dtype), lambda dtype: dtype),
    (lambda dtype: _IS.is_null(dtype) or _IS.is_date32(dtype), lambda dtype: dtype),
    (_IS.is_decimal128, lambda dtype: dtype),
    (lambda dtype: _IS.is_decimal32(dtype) or _IS.is_decimal64(dtype), lambda t: pa.decimal128(t.precision, t.scale)),
    (is_text, lambda _: pa.string()),
    (is_bytes, lambda _: pa.binary()),
    (_IS.is_fixed_size_binary, lambda _: pa.binary()),
    (_IS.is_timestamp, lambda dtype: pa.timestamp("us", None if dtype.tz is None else "UTC")),
    (_IS.is_duration, lambda _: pa.duration("us")),
    (_IS.is_dictionary, lambda dtype: plain_type(dtype.value_type)),
    (
        lambda t: _IS.is_list(t) or _IS.is_large_list(t) or _IS.is_fixed_size_list(t),
        lambda t: pa.list_(plain_type(t.value_type)),
    ),
    (_IS.is_struct, lambda dtype: pa.struct([_plain_field(field) for field in dtype])),
    (_IS.is_map, lambda dtype: pa.map_(plain_type(dtype.key_type), plain_type(dtype.item_type))),
)


UNUNITED = {"duration", "local time", "binary"}
"""The kinds of types that the RAPIDS plugin does not take in a union."""


def held(dtype: pa.DataType, kinds: Collection[str]) -> pa.DataType | None:
    """The first type of these kinds that a type is, or holds; None if there is none."""
    plain = plain_type(dtype)
    if _IS.is_nested(plain):
        children = (held(plain.field(at).type, kinds) for at in range(plain.num_fields))
        return next((each for each in children if each is not None), None)
    local = _IS.is_timestamp(plain) and plain.tz is None
    return plain if ("local time" if local else str(plain).split("[")[0]) in kinds else None


def spark_type(dtype: pa.DataType) -> spark_types.DataType:
    """The Spark type of a payload column.

    Examples:
        >>> spark_type(pa.duration("us")), spark_type(pa.uint64())
        (DayTimeIntervalType(0, 3), DecimalType(20,0))
    """
    return from_arrow_type(plain_type(dtype), prefer_timestamp_ntz=True)


def spark_schema(schema: pa.Schema) -> spark_types.StructType:
    """The Spark types of columns."""
    return spark_types.StructType([spark_types.StructField(each.name, spark_type(each.type)) for each in schema])


def arrow_type(name: str, dtype: spark_types.DataType) -> pa.DataType:
    """The Arrow type of a Spark column.

    Raises:
        ColumnError: Events cannot carry it.
    """
    refused = _refusal(dtype)
    if refused is None:
        return to_arrow_type(dtype)
    raise ColumnError(f"A payload column cannot be {dtype.simpleString()}.", column=name, remedy=refused)


def _refusal(dtype: spark_types.DataType) -> str | None:
    if isinstance(dtype, spark_types.StringType):
        if dtype.collation == "UTF8_BINARY":
            return None
        return "Texts are compared by their bytes here: collate(column, 'UTF8_BINARY') says so to Spark."
    if isinstance(dtype, spark_types.ArrayType):
        return _refusal(dtype.elementType)
    if isinstance(dtype, spark_types.MapType):
        return _refusal(dtype.keyType) or _refusal(dtype.valueType)
    if isinstance(dtype, spark_types.StructType):
        return next((found for field in dtype if (found := _refusal(field.dataType)) is not None), None)
    if isinstance(dtype, spark_types.DayTimeIntervalType | spark_types.NullType):
        return None
    # By name: a subclass such as TimeType or VariantType must not slip in with its parent.
    if type(dtype).__name__ in _ATOMS:
        return None
    return "Cast it to a number, a text, a timestamp or a day-time interval, or drop the column first."


_ATOMS = {
    f"{name}Type"
    for name in (
        *("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Decimal"),
        *("Binary", "Date", "Timestamp", "TimestampNTZ"),
    )
}
