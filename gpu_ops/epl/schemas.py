"""The properties of types that texts create: named one by one, those of other types, or both."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from gpu_ops.epl.statements import ColumnDefinition, CreateSchema
from gpu_ops.errors import ColumnError
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.binding.types import event_type
from gpu_ops.texts.placed_error import failure_at, unsupported


def schema_of(schema: CreateSchema, types: Mapping[str, pa.Schema]) -> pa.Schema:
    """The properties of a type: its own ones, then those that it copies.

    Args:
        schema: What the text says.
        types: The types that there are.

    Raises:
        PlacedError: A property has no such type, or there are two of one name; or events are of two types.
    """
    if schema.kind.lower() == "variant":
        raise unsupported(schema, "variant streams", "Insert what both have: insert into S select a, b from A.")
    if "*" in schema.types:
        raise unsupported(schema, "schemas of any type", "Name the columns: create schema T (a int).")
    copied = list(schema.types)
    for word, names in schema.options:
        if word == "inherits":
            hint = "Write copyfrom, and insert the events into the other stream too: insert into A select a from B."
            raise unsupported(schema, "schemas that inherit: events that are of two types", hint)
        copied += names if word == "copyfrom" else ()
    fields = dict[str, pa.Field]()
    for each in schema.columns or ():
        if each.name in fields:
            raise failure_at(each, f"Two properties are called {each.name!r}.", "Rename one of them.")
        fields[each.name] = pa.field(each.name, _type_of(each, types))
    for name in copied:
        if name not in types:
            raise unknown(schema, f"There is no type of events {name!r}.", name, types, types, "Known")
        for field in types[name]:
            if fields.setdefault(field.name, field).type != field.type:
                said = f"{name!r} has a property {field.name!r} of another type."
                raise failure_at(schema, said, "Leave the property out here.")
    return pa.schema(list(fields.values()))


def _type_of(column: ColumnDefinition, types: Mapping[str, pa.Schema]) -> pa.DataType:
    """The type of a property: that of a value, or a whole event, or an array of these."""
    name = str(column.type)
    plain = name.replace("`", "").partition("[")[0]
    if plain in types:
        made: pa.DataType = pa.struct(list(types[plain]))
        for _ in range(name.count("[")):
            made = pa.list_(made)
        return made
    try:
        return event_type({column.name: name}).field(0).type
    except ColumnError as error:
        raise failure_at(column, str(error)) from None
