"""The values of messages as rows, and rows as values: one table of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.topics.arrow_values import arrow_columns, decode_arrow, encode_arrow
from gpu_ops.topics.avro_schemas import avro_columns
from gpu_ops.topics.avro_values import decode_avro, encode_avro
from gpu_ops.topics.decoded import Decoded
from gpu_ops.topics.json_values import decode_json, encode_json, json_columns


@dataclass(frozen=True)
class ValueFormat:
    """How values are written.

    Attributes:
        columns: The columns of what a user gives as ``schema=``; an error if it is not what the format takes.
        decode: From values and that schema to rows. What cannot be decoded is a fault, and no error.
        encode: From rows and that schema, or None, to values; with the number of rows in each.
        one_row: Whether each value is one row.
        writes_any: Whether rows are written without a schema.
    """

    columns: Callable[[Any], pa.Schema]
    decode: Callable[[Sequence[bytes], Any, Bounds], Decoded]
    encode: Callable[[pa.Table, Any], tuple[Sequence[bytes], Sequence[int]]]
    one_row: bool = True
    writes_any: bool = True


FORMATS: Mapping[str, ValueFormat] = {
    "json": ValueFormat(json_columns, decode_json, encode_json),
    "avro": ValueFormat(avro_columns, decode_avro, encode_avro, writes_any=False),
    "arrow": ValueFormat(arrow_columns, decode_arrow, encode_arrow, one_row=False),
}
"""The formats, by the words that `gpu_ops.kafka` takes."""
