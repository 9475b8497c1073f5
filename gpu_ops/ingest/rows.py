"""Filter and take on Arrow tables of any types, and columns as one array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.arrow_types import is_text, is_view, remade
from gpu_ops.core.types import restore
from gpu_ops.ingest.zones import Mask

_IS = pa.types


def keep_rows(table: pa.Table, mask: Mask | pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows for which a mask is true; a table without columns keeps its number of rows too."""
    bits = to_arrow(mask, pa.bool_()) if isinstance(mask, np.ndarray) else mask
    return _plainly(table, lambda plain: plain.filter(bits))


def take_rows(table: pa.Table, places: pa.Array) -> pa.Table:
    """The rows at these places, in this order."""
    return _plainly(table, lambda plain: plain.take(places))


def _plainly(table: pa.Table, pick: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Pick rows of a table, with string and binary views (Polars' text) made plain: Arrow cannot pick rows of views."""
    plain = pa.schema([field.with_type(_without_views(field.type)) for field in table.schema])
    if plain == table.schema:
        return pick(table)
    kept = pick(table.cast(plain))
    columns = [restore(column, field.type) for column, field in zip(kept.columns, table.schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if is_view(kind):
        return pa.large_string() if is_text(kind) else pa.large_binary()
    return remade(kind, _plain)


def _plain(field: pa.Field) -> pa.Field:
    return field.with_type(_without_views(field.type))
