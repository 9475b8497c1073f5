"""Values that are JSON objects, each a row: Arrow parses many together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from gpu_ops.core.arrow_types import fields_of
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.soundness import sound
from gpu_ops.errors import ColumnError, SourceError
from gpu_ops.topics.decoded import Decoded, arrow_schema, one_by_one

_IS = pa.types

_SIMPLE: tuple[Callable[[pa.DataType], bool], ...] = (
    *(_IS.is_boolean, _IS.is_string, _IS.is_large_string, _IS.is_string_view),
    *(_IS.is_integer, _IS.is_float32, _IS.is_float64, _IS.is_decimal128, _IS.is_timestamp),
)
"""Types that Arrow parses itself, at any depth."""

_TEXT: tuple[Callable[[pa.DataType], bool], ...] = (_IS.is_date, _IS.is_time)
"""Types that it parses as text first."""


def json_columns(given: object) -> pa.Schema:
    """The columns of a schema that a user gave.

    Raises:
        PlanError: It is no pyarrow schema.
        ColumnError: JSON has no such column.
    """
    schema = arrow_schema(given, "json")
    _refuse(schema)
    return schema


def _refuse(schema: pa.Schema) -> None:
    """Refuse columns that are not read from JSON as they are written to it.

    Raises:
        ColumnError: A column has such a type.
    """
    for field in schema:
        wrong = _unknown(field.type, inner=False)
        if wrong is not None:
            raise ColumnError(
                f"A value in JSON holds no {wrong}.",
                column=field.name,
                remedy='Cast it (to a string, a number, a timestamp), or say value="arrow" or "avro".',
            )


def _unknown(kind: pa.DataType, *, inner: bool) -> pa.DataType | None:
    """The first type within one that JSON does not hold."""
    if _IS.is_dictionary(kind) and not inner:
        return _unknown(kind.value_type, inner=inner)
    if _IS.is_list(kind) or _IS.is_large_list(kind) or _IS.is_struct(kind):
        return next((wrong for each in fields_of(kind) if (wrong := _unknown(each.type, inner=True))), None)
    known = _SIMPLE if inner else (*_SIMPLE, *_TEXT)
    return None if any(holds(kind) for holds in known) else kind


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    if _IS.is_dictionary(kind):
        return _parsed_as(kind.value_type)
    return pa.string() if any(holds(kind) for holds in _TEXT) else kind


def decode_json(values: Sequence[bytes], given: Any, bounds: Bounds) -> Decoded:
    """The rows of values. Names that the schema has not are passed over, and what is missing is null.

    Times are texts in ISO 8601, as timestamps in UTC where they name no zone; decimals are texts or numbers.

    Examples:
        >>> schema = pa.schema([("n", pa.int64()), ("who", pa.string())])
        >>> decoded = decode_json([b'{"n": 1, "who": "A"}', b'{"n": 1.5}', b'{"m": 2}'], schema, Bounds())
        >>> decoded.table.to_pylist()
        [{'n': 1, 'who': 'A'}, {'n': None, 'who': None}]
        >>> decoded.faults[0].value, decoded.faults[0].rule, decoded.faults[0].column
        (1, 'other_schema', 'n')
    """
    schema = json_columns(given)
    fields = [pa.field(field.name, _parsed_as(field.type)) for field in schema]
    # Each value stands in an object that names its number. So no value, whatever it holds, can pass for two or for a
    # part of the next one: the numbers would not be 0, 1, 2 …
    wrapped = pa.schema([pa.field("number", pa.int64()), pa.field("value", pa.struct(fields))])
    parsing = pa.json.ParseOptions(explicit_schema=wrapped, unexpected_field_behavior="ignore")

    def together(some: Sequence[bytes]) -> pa.Table:
        text = b"".join(b'{"number":%d,"value":%b}\n' % (number, _line(value)) for number, value in enumerate(some))
        meter = bounds.meter("the value", len(text))
        meter.take(len(text))
        reading = pa.json.ReadOptions(use_threads=False, block_size=len(text))
        found = pa.json.read_json(pa.BufferReader(text), reading, parsing).combine_chunks()
        numbers, rows = found["number"].combine_chunks(), found["value"].combine_chunks()
        if not numbers.equals(pa.array(range(len(some)), pa.int64())) or rows.null_count:
            raise SourceError("It is no object.")
        table = pa.Table.from_arrays(rows.flatten(), schema=pa.schema(fields))
        return _cast(sound(table, meter), schema)

    return one_by_one(values, schema, together, lambda value, error: _fault(value, error, schema))


def _line(value: bytes) -> bytes:
    """A value in one line: between tokens a break is a space, and within a text it is an error."""
    if b"\n" in value or b"\r" in value:
        json.loads(value)
        return value.replace(b"\n", b" ").replace(b"\r", b" ")
    return value


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        made = column
        if not field.nullable and column.null_count:
            raise ColumnError("It is null or missing.", column=field.name)
        if _IS.is_time(field.type):
            made = pc.binary_join_element_wise("1970-01-01T", column, "").cast(pa.timestamp(field.type.unit))
        columns.append(made if made.type == field.type else made.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _fault(value: bytes, error: Exception, schema: pa.Schema) -> tuple[str, str, str | None]:
    """What is wrong with a value: its JSON, or a column of it. Each column is parsed alone to find it."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as wrong:
        return "undecodable", f"it is no JSON: {wrong}", None
    if not isinstance(found, dict):
        return "undecodable", f"it is no object, but a {type(found).__name__}", None
    if len(schema) > 1:
        for field in schema:
            alone = decode_json([value], pa.schema([field]), Bounds())
            if alone.faults:
                return "other_schema", alone.faults[0].problem, field.name
        return "undecodable", str(error), None
    field = schema.field(0)
    said = json.dumps(found.get(field.name))
    shown = said if len(said) <= 80 else f"{said[:77]}..."
    return "other_schema", f"{shown} is no {field.type}{'' if field.nullable else ' without nulls'}", field.name


def encode_json(table: pa.Table, given: Any) -> tuple[Sequence[bytes], Sequence[int]]:
    """Rows as objects in JSON, a value each: times in ISO 8601, decimals as texts.

    Raises:
        ColumnError: JSON has no such column, or no such number.

    Examples:
        >>> encode_json(pa.table({"n": [1, None]}), None)
        ([b'{"n":1}', b'{"n":null}'], [1, 1])
    """
    _refuse(table.schema)
    for field in table.schema:
        if _has_odd_number(table[field.name]):
            raise ColumnError(
                "JSON has no NaN and no infinity.",
                column=field.name,
                remedy='Filter or fill them (.fill_nan(None)), or say value="arrow" or "avro".',
            )
    columns = [
        column.cast(column.type.value_type) if _IS.is_dictionary(column.type) else column for column in table.columns
    ]
    text = pl.DataFrame(pa.table(columns, names=table.column_names)).write_ndjson().encode()
    values = text.split(b"\n")[: table.num_rows]
    return values, [1] * len(values)


def _has_odd_number(column: pa.ChunkedArray | pa.Array) -> bool:
    kind = column.type
    if _IS.is_floating(kind):
        return bool(pc.any(pc.invert(pc.is_finite(column))).as_py())
    if _IS.is_list(kind) or _IS.is_large_list(kind):
        return _has_odd_number(pc.list_flatten(column))
    if _IS.is_struct(kind):
        return any(_has_odd_number(pc.struct_field(column, [number])) for number in range(kind.num_fields))
    return False
