"""Arrow tables as Polars frames and back, without loss: columns get their declared Arrow types again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from gpu_ops.core.forking import use_threads
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.core.types import lower, restore
from gpu_ops.errors import SourceError

FEW = 1 << 14
"""Rows up to which one core is quicker than to hand them to the threads of Polars, or to have it plan a query."""


def to_frame(table: pa.Table) -> pl.DataFrame:
    """A Polars frame over an Arrow table's memory; only columns that Polars stores in another layout are copied.

    Raises:
        SourceError: Polars does not take the columns.
    """
    use_threads()
    if table.num_columns and all(column.num_chunks < 2 and is_alike(column.type) for column in table.columns):
        # By Arrow's C interface alone: for a table of pyarrow's Polars plans work for its threads.
        return pl.DataFrame(_OnlyColumns(table))
    columns = [lower(column) for column in table.columns]
    # Its metadata goes along: by it Polars knows its own enums again.
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    try:
        return pl.DataFrame(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:  # a panic is no Exception
        raise SourceError(
            f"Polars does not take {', '.join(table.column_names)}: {error}",
            remedy="Read fewer rows at a time, or cast the columns to plainer types.",
        ) from error


@dataclass(frozen=True)
class _OnlyColumns:
    """A table as Arrow's C interface shows it, and nothing of it but that."""

    table: pa.Table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def from_frame(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """An Arrow table of the given schema from a Polars frame with these columns, among others."""
    texts = {name for name, dtype in frame.schema.items() if dtype == pl.String} if frame.height < FEW else ()
    if all(pa.types.is_primitive(field.type) or _is_short(field, texts) for field in schema):
        # Column by column: a frame gives each of its chunks as a record batch, which takes three times as long.
        columns = [restore(pa.chunked_array(frame.get_column(field.name)), field.type) for field in schema]
        return pa.Table.from_arrays(columns, schema=schema)
    table = frame.to_arrow()
    return pa.Table.from_arrays([restore(table[field.name], field.type) for field in schema], schema=schema)


def together(columns: Sequence[pl.Series]) -> pl.DataFrame:
    """A frame of some columns. The steps of a running query make many, and Polars' own way takes six times as long."""
    if not columns:
        return pl.DataFrame()
    first, *rest = columns
    return first.to_frame().hstack(rest)


def _is_short(field: pa.Field, texts: Collection[str]) -> bool:
    return field.name in texts and bool(pa.types.is_string(field.type))


def is_alike(dtype: pa.DataType) -> bool:
    """Whether Polars takes a column of a type as it is, and needs no field to know it."""
    return dtype in _ALIKE


_ALIKE = {
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
    *(pa.date32(), TIME_TYPE, pa.timestamp("us"), pa.duration("us")),
}


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows. pyarrow's ``schema.empty_table()`` fails for dictionaries of views, as Polars has.

    Examples:
        >>> empty_table(pa.schema([("c", pa.dictionary(pa.uint32(), pa.string_view()))])).num_rows
        0
    """
    return pa.Table.from_batches([], schema)


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """The Arrow type that results have for a type of Polars': plain strings and lists, not Polars' own storage."""
    if pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype) or pa.types.is_binary_view(dtype):
        return pa.binary()
    if pa.types.is_large_list(dtype):
        return pa.list_(plain_type(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(plain_type(field.type)) for field in dtype])
    if pa.types.is_dictionary(dtype):
        return pa.dictionary(pa.int32(), plain_type(dtype.value_type))
    return dtype
