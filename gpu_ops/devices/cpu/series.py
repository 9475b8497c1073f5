"""Series of Polars as arrays and back, over the same memory if possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import booleans, integers
from gpu_ops.core.arrow_buffers import to_arrow as to_arrow_array

Array = npt.NDArray[Any]

TIME = pl.Datetime("us", "UTC")

_AS_IT_IS = pl.CompatLevel.newest()

_WITHOUT_ARROW = {pl.Int128, pl.UInt128}
"""Types that Arrow has not."""


def row_index(indices: Array) -> pl.Series:
    """Indices in Polars' own type; positions are below 2**32."""
    return pl.Series(indices.astype(np.uint32))


def in_numpy(series: pl.Series) -> Array:
    """The values of a series without nulls."""
    if series.n_chunks() == 1:
        return series.to_numpy()
    # Not by Polars: its memory is new each time, which costs more than to copy.
    return np.concatenate([each.to_numpy() for each in series.get_chunks()])


def physical(series: pl.Series) -> Array:
    """The numbers that a series without nulls is stored as."""
    return in_numpy(stored_in(series))


def stored_in(series: pl.Series) -> pl.Series:
    """The numbers that a series is stored as. Polars' own `to_physical` plans a query: thirty times as long."""
    if series.dtype.is_numeric():
        return series
    if series.dtype == pl.Boolean:
        return series.cast(pl.Int8)
    if series.dtype.is_temporal():
        return series.cast(pl.Int32 if series.dtype == pl.Date else pl.Int64)
    return series.to_physical()


def valid_in(series: pl.Series) -> Array | None:
    """Which values are not null; None if all are."""
    if not series.null_count():
        return None
    if series.dtype in _WITHOUT_ARROW:
        return in_numpy(series.is_not_null())
    # Polars' own `is_not_null` plans a query.
    found = [booleans(chunk.to_arrow(compat_level=_AS_IT_IS).is_valid()) for chunk in series.get_chunks()]
    return found[0] if len(found) == 1 else np.concatenate(found)


def filled(series: pl.Series, valid: Array | None) -> Array:
    """Numbers, with 0 for those that are not valid."""
    if valid is None:
        return in_numpy(series)
    if series.dtype in _WITHOUT_ARROW:
        return in_numpy(series.fill_null(0))
    stored = in_arrow(series)
    numbers = integers(stored).view(stored.type.to_pandas_dtype())
    filled: Array = np.where(valid, numbers, numbers.dtype.type(0))
    return filled


def in_arrow(series: pl.Series) -> pa.Array:
    """A series as one array of Arrow."""
    stored = series.to_arrow()
    return stored.combine_chunks() if isinstance(stored, pa.ChunkedArray) else stored


def series_of(name: str, numbers: Array, valid: Array | None, dtype: pa.DataType) -> pl.Series:
    """A series over an array's memory."""
    if pa.types.is_boolean(dtype):
        stored = numbers != 0
    else:
        stored = numbers.astype(dtype.to_pandas_dtype() if _is_number(dtype) else _width(dtype), copy=False)
    return pl.Series(name, to_arrow_array(stored, dtype, valid))


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))


def _width(dtype: pa.DataType) -> type:
    return np.int32 if dtype.bit_width == 32 else np.int64
