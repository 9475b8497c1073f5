"""Values that are Arrow IPC streams or files: each holds a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core import arrow_files
from gpu_ops.core.bounds import Bounds, naming
from gpu_ops.errors import GpuOpsError, SourceError
from gpu_ops.topics.decoded import Decoded, Fault, arrow_schema

_ROWS = 1 << 14
"""The most rows in a value."""

_BYTES = 900_000
"""The most bytes in a value of several rows: a broker takes a message of 1 MB, unless it is set up otherwise."""


def arrow_columns(given: object) -> pa.Schema:
    """The columns of a schema that a user gave.

    Raises:
        PlanError: It is no pyarrow schema.
    """
    return arrow_schema(given, "arrow")


def decode_arrow(values: Sequence[bytes], given: Any, bounds: Bounds) -> Decoded:
    """The rows of values. A value may have more columns than the schema, and has those of the schema by their names.

    Examples:
        >>> schema = pa.schema([("n", pa.int64())])
        >>> (value,), _ = encode_arrow(pa.table({"n": [1, 2]}, schema), schema)
        >>> decoded = decode_arrow([value, b"no Arrow", value], schema, Bounds())
        >>> decoded.table["n"].to_pylist(), decoded.rows.tolist(), decoded.faults[0].rule
        ([1, 2, 1, 2], [2, 0, 2], 'undecodable')
    """
    schema = arrow_columns(given)
    tables, faults, rows = [schema.empty_table()], [], np.zeros(len(values), np.int64)
    for number, value in enumerate(values):
        try:
            table = _decoded(value, schema, bounds)
        except _OtherColumnError as error:
            faults.append(Fault(number, "other_schema", error.problem, error.column))
        except GpuOpsError as error:
            faults.append(Fault(number, "undecodable", error.problem.rstrip(".")))
        else:
            rows[number] = table.num_rows
            tables.append(table)
    return Decoded(pa.concat_tables(tables), rows, faults)


class _OtherColumnError(SourceError):
    """A column is missing, or of another type."""


def _decoded(value: bytes, schema: pa.Schema, bounds: Bounds) -> pa.Table:
    with naming("the value"):
        content = pa.py_buffer(value)
        found = arrow_files.read_schema(pa.BufferReader(content))
        for field in schema:
            there = found.get_all_field_indices(field.name)
            kind = found.field(there[0]).type if len(there) == 1 else None
            if kind != field.type:
                what = f"{len(there)} columns of this name" if kind is None else str(kind)
                raise _OtherColumnError(f"it has {what}, and the schema {field.type}", column=field.name)
        table = arrow_files.read_table(content, schema.names, "the value", bounds)
        for field in schema:
            if not field.nullable and table[field.name].null_count:
                raise _OtherColumnError("it has a null, and the schema none", column=field.name)
        return pa.Table.from_arrays(table.columns, schema=schema)


def encode_arrow(table: pa.Table, given: Any) -> tuple[Sequence[bytes], Sequence[int]]:
    """Rows as Arrow IPC streams of many rows each, and the number of rows in each."""
    values: list[bytes] = []
    rows: list[int] = []
    left = [table.slice(first, _ROWS) for first in range(0, table.num_rows, _ROWS)][::-1]
    while left:
        piece = left.pop()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece.combine_chunks())
        value = sink.getvalue().to_pybytes()
        if len(value) > _BYTES and piece.num_rows > 1:
            half = piece.num_rows // 2
            left += [piece.slice(half), piece.slice(0, half)]
        else:
            values.append(value)
            rows.append(piece.num_rows)
    return values, rows
