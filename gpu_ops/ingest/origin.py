"""Results in the kind of frame that came in."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pyarrow as pa

_OFFSET = re.compile(r"[+-]\d\d:?\d\d")


def to_origin(answer: pa.Table | pa.RecordBatchReader, origin: str) -> Any:
    """A table in the kind of frame that came in; an Arrow table for other sources (paths, readers, DuckDB).

    The dtype of a pandas column follows from its field alone (docs/semantics.md): integers and booleans that may be
    null have pandas' nullable types, also where none is null, so that no value changes.
    In Polars, a zone that has no name (``+05:30``) becomes UTC: the instants are the same.

    Args:
        answer: An Arrow table, or a reader of one.
        origin: "pandas", "polars", "cudf"; anything else gives Arrow.

    Examples:
        >>> to_origin(pa.table({"n": [1, None]}), "pandas")["n"].dtype
        Int64Dtype()
    """
    table = answer if isinstance(answer, pa.Table) else answer.read_all()
    if origin == "pandas":
        from gpu_ops.ingest.pandas_frames import to_pandas

        return to_pandas(table)
    if origin == "polars":
        import polars as pl

        fields = [field.with_type(_named_zone(field.type)) for field in table.schema]
        return pl.DataFrame(table.cast(pa.schema(fields)))
    if origin == "cudf":
        return importlib.import_module("cudf").DataFrame.from_arrow(table)
    return table


def _named_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz and _OFFSET.fullmatch(kind.tz):
        return pa.timestamp(kind.unit, "UTC")
    return kind
