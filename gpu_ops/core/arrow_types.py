"""Families of Arrow types, and the fields of nested types."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

_IS = pa.types


def is_text(kind: pa.DataType) -> bool:
    """Whether it is one of the types of text."""
    return bool(_IS.is_string(kind) or _IS.is_large_string(kind) or _IS.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether it is one of the types of bytes of any length."""
    return bool(_IS.is_binary(kind) or _IS.is_large_binary(kind) or _IS.is_binary_view(kind))


def is_view(kind: pa.DataType) -> bool:
    """Whether it is text or bytes whose values are views of buffers."""
    return bool(_IS.is_string_view(kind) or _IS.is_binary_view(kind))


def is_offset(kind: pa.DataType) -> bool:
    """Whether it is text or bytes whose values lie side by side, with an offset for each."""
    return (is_text(kind) or is_bytes(kind)) and not is_view(kind)


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type; none for other types.

    Examples:
        >>> [field.name for field in fields_of(pa.struct([("a", pa.int8()), ("b", pa.int8())]))]
        ['a', 'b']
    """
    return [kind.field(number) for number in range(kind.num_fields)]


def remade(kind: pa.DataType, field: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """A nested type with each field replaced by a function; other types unchanged."""
    if _IS.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field), keys_sorted=kind.keys_sorted)
    if _IS.is_large_list(kind):
        return pa.large_list(field(kind.value_field))
    if _IS.is_list(kind):
        return pa.list_(field(kind.value_field))
    if _IS.is_fixed_size_list(kind):
        return pa.list_(field(kind.value_field), kind.list_size)
    return pa.struct(map(field, fields_of(kind))) if _IS.is_struct(kind) else kind
