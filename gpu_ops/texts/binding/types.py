"""Esper's types, the Arrow types of their columns, and which type an operation on two of them has.

Java's types are Arrow's of the same width; a string and a character are text, a BigInteger has 38 digits, a BigDecimal
has 38 digits of which `SCALE` stand behind the point. Promotion is that of Esper's `JavaClassHelper`: whole numbers
become int at least, a float with a whole number becomes double.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.arguments import by_names
from gpu_ops.errors import ColumnError

SCALE = 10
"""The digits behind the point of a BigDecimal whose Arrow type is not said."""

INT, LONG, DOUBLE, TEXT, BOOLEAN, NULL = pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.null()
BIG_INTEGER, BIG_DECIMAL = pa.decimal128(38, 0), pa.decimal128(38, SCALE)

_NAMES = {
    INT: "int integer",
    LONG: "long",
    pa.int16(): "short",
    pa.int8(): "byte",
    pa.float32(): "float",
    DOUBLE: "double",
    TEXT: "string char character",
    BOOLEAN: "boolean bool",
    BIG_INTEGER: "biginteger bigint",
    BIG_DECIMAL: "bigdecimal decimal",
    NULL: "null",
}
_TYPES = {name: dtype for dtype, names in _NAMES.items() for name in names.split()}
_JAVA = {
    INT: "Integer",
    LONG: "Long",
    pa.int16(): "Short",
    pa.int8(): "Byte",
    pa.float32(): "Float",
    DOUBLE: "Double",
    TEXT: "String",
    BOOLEAN: "Boolean",
}
_NARWHALS = {
    INT: nw.Int32(),
    LONG: nw.Int64(),
    pa.int16(): nw.Int16(),
    pa.int8(): nw.Int8(),
    pa.float32(): nw.Float32(),
    DOUBLE: nw.Float64(),
    TEXT: nw.String(),
    BOOLEAN: nw.Boolean(),
}
_WIDTHS = (pa.int8(), pa.int16(), INT, LONG)


def type_of(name: str) -> pa.DataType | None:
    """The Arrow type of a name of Esper's, such as `int`, `java.lang.String` or `long[]`; None for any other name."""
    plain = name.strip()
    if plain.endswith("]"):
        inner = type_of(plain[: plain.rindex("[")])
        return None if inner is None else pa.list_(inner)
    for package in ("java.lang.", "java.math."):
        plain = plain.removeprefix(package)
    return _TYPES.get(plain.lower())


def event_type(fields: Mapping[str, str | pa.DataType]) -> pa.Schema:
    """The properties of an event type as columns.

    Args:
        fields: For each property the name of its type in Esper, or an Arrow type: a list for an array, a struct for a
            nested event.

    Raises:
        ColumnError: There is no such type.

    Examples:
        >>> event_type({"account": "string", "amount": "int", "tags": "string[]", "at": pa.float64()})
        account: string
        amount: int32
        tags: list<item: string>
          child 0, item: string
        at: double
    """
    given = by_names(fields, name="The properties", holds="types")
    return pa.schema([(name, _arrow(name, each)) for name, each in given.items()])


def _arrow(name: str, given: str | pa.DataType) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    found = type_of(given)
    if found is None:
        raise ColumnError(
            f"There is no type {given!r}.",
            column=name,
            remedy=f"Write one of {', '.join(sorted(_TYPES))}, with [] for an array, or an Arrow type.",
        )
    return found


def type_name(dtype: pa.DataType) -> str:
    """What Esper calls a type, for errors.

    Examples:
        >>> [type_name(each) for each in (pa.int32(), pa.list_(pa.string()), pa.struct([("a", pa.int8())]))]
        ['int', 'string[]', 'event']
    """
    if pa.types.is_list(dtype):
        return f"{type_name(dtype.value_type)}[]"
    if pa.types.is_struct(dtype):
        return "event"
    if is_decimal(dtype):
        return "BigInteger" if dtype.scale == 0 else "BigDecimal"
    return _NAMES[dtype].split()[0] if dtype in _NAMES else str(dtype)


def java_name(dtype: pa.DataType) -> str:
    """The name that `typeof` gives."""
    if pa.types.is_list(dtype):
        return f"{java_name(dtype.value_type)}[]"
    return _JAVA.get(dtype, type_name(dtype))


def narwhals_type(dtype: pa.DataType) -> nw.dtypes.DType:
    """The type by which an expression casts."""
    if dtype in _NARWHALS:
        return _NARWHALS[dtype]
    if is_decimal(dtype):
        return nw.Decimal(38, dtype.scale)
    made: nw.dtypes.DType = nw.from_native(pa.table({"": pa.array([], dtype)}), eager_only=True).schema[""]
    return made


def is_integer(dtype: pa.DataType) -> bool:
    """Whether it is int, long, short or byte."""
    return dtype in _WIDTHS


def is_float(dtype: pa.DataType) -> bool:
    """Whether it is float or double."""
    return dtype in {DOUBLE, pa.float32()}


def is_decimal(dtype: pa.DataType) -> bool:
    """Whether it is BigInteger or BigDecimal."""
    return bool(pa.types.is_decimal(dtype))


def is_numeric(dtype: pa.DataType) -> bool:
    """Whether it is a number."""
    return is_integer(dtype) or is_float(dtype) or is_decimal(dtype)


def arithmetic_type(operator: str, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of `one operator other`, where both are numbers; None where gpu_ops has no such operation.

    Examples:
        >>> arithmetic_type("+", pa.int16(), pa.int16()), arithmetic_type("/", pa.int32(), pa.int32())
        (DataType(int32), DataType(double))
        >>> arithmetic_type("*", pa.float32(), pa.int64())
        DataType(double)
    """
    made = promoted(one, other)
    if made in {pa.int8(), pa.int16()}:
        made = INT
    if made is None or (operator == "%" and not is_integer(made)):
        return None
    if operator == "/":
        return None if is_decimal(made) and made.scale else DOUBLE
    return made


def promoted(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type in which two numbers are compared; None where there is none."""
    if one == other:
        return one
    if is_decimal(one) or is_decimal(other):
        if is_float(one) or is_float(other):
            return None
        scales = [each.scale for each in (one, other) if is_decimal(each)]
        return pa.decimal128(38, max(scales))
    if DOUBLE in {one, other} or is_float(one) or is_float(other):
        return DOUBLE
    return LONG if LONG in {one, other} else INT


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type of a value that is one of several; null is of any type. None where they have none in common.

    Examples:
        >>> common_type([pa.int32(), pa.null(), pa.float64()]), common_type([pa.int32(), pa.string()])
        (DataType(double), None)
    """
    return reduce(_both, types, NULL)


def _both(one: pa.DataType | None, other: pa.DataType) -> pa.DataType | None:
    if one is None or other in {NULL, one}:
        return one
    if one == NULL:
        return other
    return promoted(one, other) if is_numeric(one) and is_numeric(other) else None
