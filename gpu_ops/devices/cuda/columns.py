"""Columns on the GPU, by cuDF: conversion, expressions, gathering and key codes.

A frame is a ``cudf.DataFrame`` with a plain range index; an array is a one-dimensional CuPy array.
`gpu_ops.devices.columns.Columns` says what each function does. Frames hold the types that ``lowering.py`` makes of
Arrow's (naive times in UTC, no categories, bytes as text); `to_arrow` restores the declared types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cudf
import cupy
import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import decimal_words
from gpu_ops.core.arrow_buffers import to_arrow as to_arrow_array
from gpu_ops.core.nested_keys import hashable, nested_codes
from gpu_ops.devices.array.order import first_rows
from gpu_ops.devices.columns import Frame, Step
from gpu_ops.devices.cuda.lowering import device_type, lower, restore
from gpu_ops.devices.kernels import Array


def array(values: Any) -> Array:
    """A host array on this device."""
    return cupy.asarray(values)


def host(values: Array) -> Any:
    """A device array on the host."""
    return cupy.asnumpy(values)


def from_arrow(table: pa.Table) -> Frame:
    """A frame with a copy of the table in device memory."""
    lowered = [lower(column) for column in table.columns]
    return cudf.DataFrame.from_arrow(pa.table(lowered, names=table.column_names))


def to_arrow(frame: Frame, schema: pa.Schema) -> pa.Table:
    """A table of the given schema in host memory."""
    held = frame.to_arrow(preserve_index=False)
    return pa.table([restore(held[field.name], field.type) for field in schema], schema=schema)


def rows(frame: Frame) -> int:
    """How many rows."""
    return len(frame)


def take(frame: Frame, indices: Array) -> Frame:
    """The rows at these indices, in their order."""
    return frame.take(indices).reset_index(drop=True)


def cut(frame: Frame, low: int, high: int) -> Frame:
    """The rows from ``low`` to ``high``."""
    return frame.iloc[low:high].reset_index(drop=True)


def select(frame: Frame, names: Sequence[str]) -> Frame:
    """These columns."""
    return frame[list(names)]


def concat(frames: Sequence[Frame]) -> Frame:
    """One frame of all rows."""
    if len(frames) == 1:
        return frames[0]
    names = list(frames[0].columns)
    return cudf.concat([select(each, names) for each in frames], ignore_index=True)


def beside(*frames: Frame) -> Frame:
    """The columns of one frame or several, row by row."""
    return cudf.concat(list(frames), axis=1) if len(frames) > 1 else frames[0]


def rename(frame: Frame, before: str, after: str) -> Frame:
    """The frame with one column's name changed."""
    return frame.rename(columns={before: after})


def evaluate(start: Array, end: Array | int, frame: Frame, steps: Sequence[Step]) -> tuple[Array, Array | int, Frame]:
    """Run Narwhals steps over events."""
    done = _stepped(start, end, frame, steps)
    after = end if isinstance(end, int) else done["end"].astype("int64").values
    return done["start"].astype("int64").values, after, done.drop(columns=["start", "end"])


def answer(start: Array, end: Array | int, frame: Frame, steps: Sequence[Step], schema: pa.Schema) -> pa.Table:
    """The events of `evaluate` as a table."""
    return to_arrow(_stepped(start, end, frame, steps), schema)


def _stepped(start: Array, end: Array | int, frame: Frame, steps: Sequence[Step]) -> Frame:
    frame = frame.copy(deep=False)
    frame["start"] = cudf.Series(start).astype("datetime64[us]")
    frame["end"] = cudf.Series(start + end if isinstance(end, int) else end).astype("datetime64[us]")
    work: Any = nw.from_native(frame, eager_only=True)
    for step in steps:
        work = step(work)
    return work.to_native().reset_index(drop=True)


def values(frame: Frame, name: str) -> tuple[Array, Array | None]:
    """A column's stored values, and which of them are not null."""
    series = frame[name]
    valid = validity(frame, name)
    if series.dtype.kind in "mM":
        series = series.astype("int64")
    elif series.dtype.kind == "b":
        series = series.astype("int8")
    return (series if valid is None else series.fillna(0)).values, valid


def extent(frame: Frame, name: str) -> tuple[int, int]:
    """The least and the greatest stored value of a column."""
    series = frame[name].dropna()
    if not len(series):
        return 0, 0
    numbers = series.astype("int64") if series.dtype.kind in "mM" else series
    return int(numbers.min()), int(numbers.max())


def validity(frame: Frame, name: str) -> Array | None:
    """Which values of a column are not null; None if all are."""
    series = frame[name]
    return series.notnull().values if series.null_count else None


def words(frame: Frame, name: str) -> tuple[Array, Array, Array | None]:
    """A decimal column's unscaled 128-bit values."""
    stored = frame[name].to_arrow()
    low, high, valid = decimal_words(stored.cast(pa.decimal128(38, stored.type.scale)))
    return array(low), array(high), None if valid is None else array(valid)


def ranks(frame: Frame, name: str) -> tuple[Array, Array | None, Frame]:
    """Order codes for a column of any ordered type."""
    series = frame[name]
    valid = validity(frame, name)
    distinct = series.dropna().unique().sort_values().reset_index(drop=True)
    if not len(distinct):
        return cupy.zeros(len(series), cupy.int64), valid, distinct.to_frame(name)
    filled = series if valid is None else series.fillna(distinct.iloc[0])
    codes = cupy.asarray(distinct.searchsorted(filled)).astype(cupy.int64)
    return codes, valid, distinct.to_frame(name)


def build(columns: dict[str, tuple[Array, Array | None, pa.DataType]]) -> Frame:
    """A frame from arrays."""
    frame = cudf.DataFrame()
    for name, (numbers, valid, dtype) in columns.items():
        stored = np.dtype(device_type(dtype).to_pandas_dtype())
        if stored.kind in "mM":
            made = cudf.Series(cupy.asarray(numbers, dtype=cupy.int64)).astype(stored)
        else:
            made = cudf.Series(cupy.asarray(numbers).astype(stored))
        frame[name] = made if valid is None else made.where(cudf.Series(valid))
    return frame


def build_decimal(name: str, low: Array, high: Array, valid: Array | None, dtype: pa.DataType) -> Frame:
    """A frame of one decimal column from the words of its unscaled values."""
    made = to_arrow_array(np.stack([host(low), host(high)], axis=1), dtype, None if valid is None else host(valid))
    return cudf.DataFrame({name: cudf.Series.from_arrow(made)})


def null_where(frame: Frame, valid: Array | None) -> Frame:
    """The frame with null in all columns of rows that are not valid."""
    if valid is None:
        return frame
    holds = cudf.Series(valid)
    return cudf.DataFrame({name: frame[name].where(holds) for name in frame.columns})


def nulls(frame: Frame, count: int) -> Frame:
    """A number of rows of null, in the frame's columns."""
    schema = frame.to_arrow(preserve_index=False).schema
    return cudf.DataFrame.from_arrow(pa.table([pa.nulls(count, field.type) for field in schema], schema=schema))


def tuples(frame: Frame) -> list[tuple[Any, ...]]:
    """Each row as a tuple, made on the host; tuples are equal if and only if the keys are."""
    columns = []
    for name in frame.columns:
        stored = frame[name].to_arrow()
        if pa.types.is_nested(stored.type):
            columns.append([hashable(each) for each in stored.to_pylist()])
            continue
        if pa.types.is_floating(stored.type) or pa.types.is_temporal(stored.type):
            stored = stored.view(pa.int32() if stored.type.bit_width == 32 else pa.int64())
        elif pa.types.is_string(stored.type):
            stored = stored.view(pa.binary())  # it may be bytes that are no valid text
        columns.append(stored.to_pylist())
    return list(zip(*columns, strict=True))


def key_codes(frame: Frame, names: Sequence[str]) -> tuple[Array, int, Frame | None]:
    """Group numbers of rows by the values of some columns."""
    if not names:
        return cupy.zeros(len(frame), cupy.int32), 1, None
    keys = frame[list(names)]
    numbered = keys
    for name in names:
        if isinstance(keys[name].dtype, cudf.ListDtype | cudf.StructDtype):
            # libcudf has no groups by these: the host numbers them.
            stored = keys[name].to_arrow()
            numbers, distinct = nested_codes(pl.Series(stored))
            codes = cupy.asarray(numbers)
            plain = cudf.DataFrame.from_arrow(pa.table({name: distinct.to_arrow().cast(stored.type)}))
            keys = keys.assign(**{name: take(plain, codes)[name]})
            numbered = numbered.assign(**{name: codes})
        elif keys[name].dtype.kind == "f":
            # Adding zero makes -0.0 into 0.0; libcudf takes all NaNs for one value.
            keys = keys.assign(**{name: keys[name] + 0.0})
            numbered = numbered.assign(**{name: keys[name]})
    codes = numbered.groupby(list(names), sort=True, dropna=False).ngroup().values.astype(cupy.int32)
    if not len(codes):
        return codes, 1, keys
    groups = int(codes.max()) + 1
    return codes, groups, take(keys, first_rows(codes, groups))
