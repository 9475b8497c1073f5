"""Columns on the GPU, by cuDF: conversion, expressions, gathering and key codes.

A frame is a ``cudf.DataFrame`` with a plain range index; an array is a one-dimensional CuPy array.
`gpu_ops.devices.columns.Columns` says what each function does. Frames hold the types that ``lowering.py`` makes of
Arrow's (naive times in UTC, no categories, bytes as text); `to_arrow` restores the declared types.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import cudf
import cupy
import cupyx
import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pylibcudf as plc
import rmm

from gpu_ops.core.arrow_buffers import decimal_words
from gpu_ops.core.arrow_buffers import to_arrow as to_arrow_array
from gpu_ops.core.nested_keys import hashable, nested_codes
from gpu_ops.devices.array.order import first_rows
from gpu_ops.devices.columns import Frame, Step
from gpu_ops.devices.cuda.lowering import device_type, lower, restore
from gpu_ops.devices.kernels import Array

if type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource:
    # RMM's default asks the driver for each array and waits for the GPU at each release; CUDA's own pool does neither.
    # Who has set another resource keeps it: the RAPIDS plugin gives its Python workers a bounded pool.
    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())

POLARS = False

_NESTED = (cudf.ListDtype, cudf.StructDtype)


def array(values: Any) -> Array:
    """A host array on this device."""
    return cupy.asarray(values)


_WORTH_PINNING = 1 << 20
"""From so many bytes on a copy to the host goes to page-locked memory, to which the GPU writes ten times as fast."""

_FREE_BLOCKS = 64
"""How many freed blocks of page-locked memory wait to be used again: to lock new ones takes longer than the copy."""


def host(values: Array) -> Any:
    """A device array on the host."""
    if values.nbytes < _WORTH_PINNING:
        return cupy.asnumpy(values)
    pool = cupy.get_default_pinned_memory_pool()
    if pool.n_free_blocks() > _FREE_BLOCKS:
        pool.free_all_blocks()
    # A few sizes, so that a block is used again for a little more or less.
    step = 1 << max(values.nbytes.bit_length() - 3, 0)
    block = cupyx.empty_pinned(-(-values.nbytes // step) * step, np.uint8)
    made = block[: values.nbytes].view(values.dtype)
    values.get(out=made)
    return made


def from_arrow(table: pa.Table) -> Frame:
    """A frame with a copy of the table in device memory."""
    lowered = [lower(column) for column in table.columns]
    return cudf.DataFrame.from_arrow(pa.table(lowered, names=table.column_names))


def to_arrow(frame: Frame, schema: pa.Schema) -> pa.Table:
    """A table of the given schema in host memory."""
    held = (pa.chunked_array([_to_arrow(frame[field.name])]) for field in schema)
    return pa.table([restore(each, field.type) for each, field in zip(held, schema, strict=True)], schema=schema)


def _in_arrow(series: Any) -> pa.Array:
    """A column in host memory: libcudf tells no types within a nested column that holds no values."""
    made = series.to_arrow()
    return made.cast(series.dtype.to_arrow()) if isinstance(series.dtype, _NESTED) else made


def _to_arrow(series: Any) -> pa.Array:
    """A column in host memory; numbers and times in page-locked memory."""
    if isinstance(series.dtype, _NESTED):
        return _in_arrow(series)
    kind = series.dtype.kind
    if kind not in "iufmM" or len(series) * series.dtype.itemsize < _WORTH_PINNING:
        return series.to_arrow()
    unit = np.datetime_data(series.dtype)[0] if kind in "mM" else ""
    numbers = series.astype("int64") if unit else series
    dtype = {"m": pa.duration, "M": pa.timestamp}[kind](unit) if unit else pa.from_numpy_dtype(series.dtype)
    mask, nulls = None, series.null_count
    if nulls:
        column = _column(numbers)
        mask = pa.py_buffer(host(cupy.packbits(_series(plc.unary.is_valid(column)).values, bitorder="little")))
        numbers = _series(plc.replace.replace_nulls(column, plc.Scalar.from_py(0, column.type())))
    return pa.Array.from_buffers(dtype, len(series), [mask, pa.py_buffer(host(numbers.values))], nulls)


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
    if valid is None:
        return series.values, None
    column = _column(series)
    return _series(plc.replace.replace_nulls(column, plc.Scalar.from_py(0, column.type()))).values, valid


def _column(series: Any) -> Any:
    """The column of libcudf: there NaN is a value, and not null as for a series."""
    return series.to_pylibcudf()[0]


def _series(column: Any) -> Any:
    return cudf.Series.from_pylibcudf(column)


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
    return _series(plc.unary.is_valid(_column(series))).values if series.null_count else None


def words(frame: Frame, name: str) -> tuple[Array, Array, Array | None]:
    """A decimal column's unscaled 128-bit values."""
    stored = frame[name].to_arrow()
    low, high, valid = decimal_words(stored.cast(pa.decimal128(38, stored.type.scale)))
    return array(low), array(high), None if valid is None else array(valid)


def ranks(frame: Frame, name: str) -> tuple[Array, Array | None, Frame]:
    """Order codes for a column of any ordered type."""
    valid = validity(frame, name)
    codes = _dense(frame[name])
    if valid is not None:
        codes = cupy.where(valid, codes, 0)
    some = codes if valid is None else codes[valid]
    if not len(some):
        return codes, valid, frame[[name]].iloc[:0]
    there = cupy.arange(len(codes)) if valid is None else cupy.flatnonzero(valid)
    return codes, valid, take(frame[[name]], there[first_rows(some.astype(cupy.int32), int(some.max()) + 1)])


def _dense(series: Any) -> Array:
    """int64: the place of each value among the distinct ones in their order; null is the greatest, NaN before it."""
    types = plc.types
    return (
        _series(
            plc.sorting.rank(
                _column(series),
                plc.aggregation.RankMethod.DENSE,
                types.Order.ASCENDING,
                types.NullPolicy.INCLUDE,
                types.NullOrder.AFTER,
                percentage=False,
            )
        ).values.astype(cupy.int64)
        - 1
    )


def build(columns: dict[str, tuple[Array, Array | None, pa.DataType]]) -> Frame:
    """A frame from arrays."""
    frame = cudf.DataFrame()
    for name, (numbers, valid, dtype) in columns.items():
        stored = np.dtype(device_type(dtype).to_pandas_dtype())
        if stored.kind in "mM":
            made = cudf.Series(cupy.asarray(numbers, dtype=cupy.int64) * _ticks(dtype)).astype(stored)
        else:
            made = cudf.Series(cupy.asarray(numbers).astype(stored), nan_as_null=False)
        frame[name] = made if valid is None else made.where(cudf.Series(valid))
    return frame


def _ticks(dtype: pa.DataType) -> int:
    """How many ticks of the stored type are one of the declared type: cuDF gets milliseconds for seconds."""
    return 1000 if getattr(dtype, "unit", None) == "s" and device_type(dtype) != dtype else 1


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
    kinds = {name: _in_arrow(frame[name].iloc[:0]).type for name in frame.columns}
    return cudf.DataFrame.from_arrow(pa.table({name: pa.nulls(count, kind) for name, kind in kinds.items()}))


def structs(frame: Frame, name: str) -> Frame:
    """A frame of one column of structs, whose fields are the frame's columns; made on the host."""
    fields = [_in_arrow(frame[each]) for each in frame.columns]
    made = pa.StructArray.from_arrays(fields, names=list(frame.columns))
    return cudf.DataFrame.from_arrow(pa.table({name: made}))


def tuples(frame: Frame) -> list[tuple[Any, ...]]:
    """Each row as a tuple, made on the host; tuples are equal if and only if the keys are."""
    columns = []
    for name in frame.columns:
        stored = _in_arrow(frame[name])
        if pa.types.is_nested(stored.type):
            columns.append([hashable(each) for each in stored.to_pylist()])
            continue
        if pa.types.is_floating(stored.type) or pa.types.is_temporal(stored.type):
            stored = stored.view(pa.int32() if stored.type.bit_width == 32 else pa.int64())
        elif pa.types.is_string(stored.type) or pa.types.is_large_string(stored.type):
            large = pa.types.is_large_string(stored.type)
            columns.append(
                [_text(each) for each in stored.view(pa.large_binary() if large else pa.binary()).to_pylist()]
            )
            continue
        columns.append(stored.to_pylist())
    return list(zip(*columns, strict=True))


def row_hashes(frame: Frame, schema: pa.Schema) -> Array | None:
    """None: keys are told apart by their tuples."""
    del frame, schema
    return None


def _text(value: bytes | None) -> str | bytes | None:
    """A text, or the bytes for which text of the same bytes stands, where they are none."""
    try:
        return value if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def key_codes(frame: Frame, names: Sequence[str]) -> tuple[Array, int, Frame | None]:
    """Group numbers of rows by the values of some columns."""
    if not names:
        return cupy.zeros(len(frame), cupy.int32), 1, None
    keys = frame[list(names)]
    found = []
    for name in names:
        if isinstance(keys[name].dtype, _NESTED):
            # libcudf has no order of lists: the host numbers them.
            stored = _in_arrow(keys[name])
            numbers, distinct = nested_codes(pl.Series(stored))
            mine = cupy.asarray(numbers).astype(cupy.int64)
            plain = cudf.DataFrame.from_arrow(pa.table({name: distinct.to_arrow().cast(stored.type)}))
            keys = keys.assign(**{name: take(plain, mine)[name]})
        else:
            if keys[name].dtype.kind == "f":
                keys = keys.assign(**{name: _series(plc.replace.normalize_nans_and_zeros(_column(keys[name])))})
            mine = _dense(keys[name])
        found.append(mine)
    if not len(keys):
        return cupy.zeros(0, cupy.int32), 1, keys
    codes = reduce(_paired, found).astype(cupy.int32)
    groups = int(codes.max()) + 1
    return codes, groups, take(keys, first_rows(codes, groups))


def _paired(codes: Array, more: Array) -> Array:
    """Codes of the pairs of two codes: both are below 2**31, so that their number fits."""
    return _dense(cudf.Series(codes * (more.max() + 1) + more))
