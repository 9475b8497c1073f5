"""Answers in the kind of frame that came in."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pyarrow as pa

_OFFSET = re.compile(r"[+-]\d\d:?\d\d")


def to_origin(answer: pa.Table | pa.RecordBatchReader, origin: str) -> Any:
    """A table in the kind of frame that came in; an Arrow table where that was none (paths, readers, DuckDB).

    In pandas, integers and booleans with nulls have pandas' nullable types, so that no value becomes another.
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
        return _to_pandas(table)
    if origin == "polars":
        import polars as pl

        fields = [field.with_type(_named_zone(field.type)) for field in table.schema]
        return pl.DataFrame(table.cast(pa.schema(fields)))
    if origin == "cudf":
        return importlib.import_module("cudf").DataFrame.from_arrow(table)
    return table


def _to_pandas(table: pa.Table) -> Any:
    pd: Any = importlib.import_module("pandas")

    nullable = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    columns = {
        field.name: column.to_pandas(types_mapper=nullable.get if column.null_count else None)
        for field, column in zip(table.schema, table.columns, strict=True)
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), columns=table.column_names)


def _named_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz and _OFFSET.fullmatch(kind.tz):
        return pa.timestamp(kind.unit, "UTC")
    return kind
