"""Values that are rows in Avro, without a container and without a number of a schema before them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_types import remade
from gpu_ops.core.bounds import Bounds
from gpu_ops.errors import SourceError
from gpu_ops.topics.avro_schemas import avro_schema
from gpu_ops.topics.client import fastavro
from gpu_ops.topics.decoded import Decoded, Fault, one_by_one

_IS = pa.types


def decode_avro(values: Sequence[bytes], given: Any, bounds: Bounds) -> Decoded:
    """The rows of values, as they were written by one schema.

    Examples:
        >>> bid = {"type": "record", "name": "Bid", "fields": [{"name": "n", "type": "long"}]}
        >>> values, _ = encode_avro(pa.table({"n": [1, 300]}), bid)
        >>> decoded = decode_avro([*values, b"", values[0] + b"more"], bid, Bounds())
        >>> decoded.table["n"].to_pylist(), [fault.rule for fault in decoded.faults]
        ([1, 300], ['undecodable', 'undecodable'])
    """
    schema = avro_schema(given)
    read = fastavro().schemaless_reader
    rows: list[Any] = []
    faults: list[Fault] = []
    kept: list[int] = []
    for number, value in enumerate(values):
        source = io.BytesIO(value)
        try:
            row = read(source, schema.plain)
        except Exception as error:  # noqa: BLE001  (of bytes from outside: of any kind)
            said = str(error) or type(error).__name__
            faults.append(Fault(number, "undecodable", f"it is no row of the Avro schema: {said}"))
        else:
            behind = len(value) - source.tell()
            if behind:
                faults.append(Fault(number, "undecodable", f"{behind} bytes follow the row of the Avro schema"))
            else:
                kept.append(number)
                rows.append(row)

    # What is a row may yet hold a number that is no time, or a decimal of too many digits.
    def together(some: Sequence[Any]) -> pa.Table:
        return pa.Table.from_pylist(some, schema=schema.columns)

    made = one_by_one(rows, schema.columns, together, lambda row, error: ("undecodable", str(error), None))
    found = np.zeros(len(values), np.int64)
    found[kept] = made.rows
    faults += [Fault(kept[each.value], each.rule, each.problem, each.column) for each in made.faults]
    return Decoded(made.table, found, sorted(faults, key=lambda each: each.value))


def encode_avro(table: pa.Table, given: Any) -> tuple[Sequence[bytes], Sequence[int]]:
    """Rows that have the columns of a schema as its values.

    Raises:
        SourceError: The schema does not hold a value, such as another word than those of an enum.
    """
    plain, write = avro_schema(given).plain, fastavro().schemaless_writer
    stored = [column.cast(_stored(column.type)) for column in table.columns]
    values = []
    for row in pa.table(stored, names=table.column_names).to_pylist(maps_as_pydicts="strict"):
        sink = io.BytesIO()
        try:
            write(sink, plain, row)
        except Exception as error:
            raise SourceError(
                f"A result is no row of the Avro schema of the topic: {error}.", remedy="See what it allows there."
            ) from error
        values.append(sink.getvalue())
    return values, [1] * len(values)


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in place of times."""
    if _IS.is_date(kind) or _IS.is_time32(kind):
        return pa.int32()
    if _IS.is_time64(kind) or _IS.is_timestamp(kind):
        return pa.int64()
    return remade(kind, lambda field: field.with_type(_stored(field.type)))
