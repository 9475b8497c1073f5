"""Columns on the CPU, by Polars and Arrow over shared memory: conversion, expressions, gathering and key codes.

A frame is a `Frame`; an array is a one-dimensional NumPy array. `gpu_ops.devices.columns.Columns` says
what each function does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import decimal_words, integers, later, room
from gpu_ops.core.arrow_buffers import to_arrow as to_arrow_array
from gpu_ops.core.nested_keys import hashable, nested_codes
from gpu_ops.core.polars_frames import FEW, from_frame
from gpu_ops.core.threads import in_parallel, parts
from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.devices.columns import Step
from gpu_ops.devices.cpu.frame_steps import LazySteps, RowSteps
from gpu_ops.devices.cpu.frames import Frame, FrameColumn
from gpu_ops.devices.cpu.order import extent as extent_of
from gpu_ops.devices.cpu.order import take as gather
from gpu_ops.devices.cpu.series import (
    TIME,
    Array,
    filled,
    in_arrow,
    in_numpy,
    physical,
    series_of,
    stored_in,
    valid_in,
)

POLARS = True


def array(values: npt.NDArray[Any]) -> Array:
    """A host array on this device."""
    return values


def host(values: Array) -> npt.NDArray[Any]:
    """A device array on the host."""
    return values


def from_arrow(table: pa.Table) -> Frame:
    """A frame over a table's memory."""
    return Frame.of_table(table)


def to_arrow(frame: Frame, schema: pa.Schema) -> pa.Table:
    """A table of the given schema over the frame's memory."""
    return frame.arrow(schema)


def rows(frame: Frame) -> int:
    """How many rows."""
    return frame.height


def take(frame: Frame, indices: Array) -> Frame:
    """The rows at these indices, in their order."""
    return frame.take(indices)


def cut(frame: Frame, low: int, high: int) -> Frame:
    """The rows from ``low`` to ``high``, in the same memory."""
    return frame.cut(low, high)


def select(frame: Frame, names: Sequence[str]) -> Frame:
    """These columns."""
    return frame.select(names)


def concat(frames: Sequence[Frame]) -> Frame:
    """One frame of all rows, whose columns are put together when somebody reads them."""
    return Frame.concat(frames)


def beside(*frames: Frame) -> Frame:
    """The columns of one frame or several, row by row."""
    return Frame({name: column for frame in frames for name, column in frame.items()})


def evaluate(start: Array, end: Array | int, frame: Frame, steps: Sequence[Step]) -> tuple[Array, Array | int, Frame]:
    """Run Narwhals steps over events: over many by one lazy query, over few step by step."""
    if len(start) < _MANY and frame.columns:
        # Polars hands a lazy query to its threads, and plans it: that takes longer than to run it over these rows.
        at_once: RowSteps = _stepped(RowSteps(start, end, frame), steps)
        return at_once.done()
    work: LazySteps = _stepped(_lazily(start, end, frame), steps)
    done = work.frame.collect()
    if work.filters and done.height == len(start):
        return start, end, frame  # all hold: nothing is copied out of Polars' chunks
    after = end if isinstance(end, int) else physical(done["end"])
    return physical(done["start"]), after, Frame.of(done).without(LIFETIME)


_MANY = 1 << 19
"""Rows from which on Polars' threads are of use."""


def answer(start: Array, end: Array | int, frame: Frame, steps: Sequence[Step], schema: pa.Schema) -> pa.Table:
    """The events of `evaluate` as a table."""
    done = _stepped(_lazily(start, end, frame), steps).frame.collect()
    if not isinstance(end, int):
        return from_frame(done, schema)
    table = from_frame(done, schema.remove(1))
    ends = later([integers(chunk) for chunk in table["start"].chunks], end)
    return table.add_column(1, schema.field(1), to_arrow_array(ends, schema.field(1).type))


def _stepped(work: Any, steps: Sequence[Step]) -> Any:
    for step in steps:
        work = step(work)
    return work


def _lazily(start: Array, end: Array | int, frame: Frame) -> LazySteps:
    lifetime = [series_of("start", start, None, TIME_TYPE)]
    if not isinstance(end, int):
        lifetime.append(series_of("end", end, None, TIME_TYPE))
    # A lazy column: it is there only if a step reads it, and behind the filters before that step.
    return LazySteps(
        frame.polars().hstack(lifetime).lazy(), functools.partial(_later, end) if isinstance(end, int) else None
    )


def _later(duration: int) -> pl.Expr:
    """The column ``end`` of lifetimes of one length."""
    return (pl.col("start").to_physical() + duration).cast(TIME)


def values(frame: Frame, name: str) -> tuple[Array, Array | None]:
    """A column's stored values, and which of them are not null."""
    return frame[name].values()


def extent(frame: Frame, name: str) -> tuple[int, int]:
    """The least and the greatest stored value of a column."""
    column = frame[name]
    if column.dtype is not None:
        numbers, valid = column.values()
        some = numbers if valid is None else numbers[valid]
        return extent_of(some) if len(some) else (0, 0)
    series = stored_in(column.series())
    if not series.null_count() and series.dtype.is_integer() and series.dtype not in {pl.Int128, pl.UInt128}:
        found = [extent_of(in_numpy(chunk)) for chunk in series.get_chunks() if len(chunk)]
        return min((least for least, _ in found), default=0), max((most for _, most in found), default=0)
    least: Any
    most: Any
    least, most = series.min() or 0, series.max() or 0
    return int(least), int(most)


def validity(frame: Frame, name: str) -> Array | None:
    """Which values of a column are not null; None if all are."""
    return frame[name].validity()


def rename(frame: Frame, before: str, after: str) -> Frame:
    """The frame with one column's name changed."""
    return Frame({after if name == before else name: column for name, column in frame.items()})


def nulls(frame: Frame, count: int) -> Frame:
    """A number of rows of null, in the frame's columns."""
    return Frame({name: column.nulls(count) for name, column in frame.items()})


def structs(frame: Frame, name: str) -> Frame:
    """A frame of one column of structs, whose fields are the frame's columns."""
    return Frame.of(frame.polars().to_struct(name).to_frame())


def words(frame: Frame, name: str) -> tuple[Array, Array, Array | None]:
    """A decimal column's unscaled 128-bit values."""
    return decimal_words(in_arrow(frame[name].series()))


def ranks(frame: Frame, name: str) -> tuple[Array, Array | None, Frame]:
    """Order codes for a column of any ordered type: its distinct values are sorted, and numbered by their own codes."""
    series = frame[name].series(name)
    if series.dtype == pl.Categorical or isinstance(series.dtype, pl.Enum):
        series = series.cast(pl.String)
    valid = valid_in(series)
    codes, known = _column_codes(FrameColumn.of_series(series if valid is None else series.filter(pl.Series(valid))))
    values_of = known.series(name)
    distinct = values_of.sort()
    # To sort values takes an eighth of the time that Polars needs for their order.
    both, _ = _column_codes(FrameColumn.of_series(pl.concat([values_of, distinct])))
    places = np.empty(len(distinct), np.int64)
    places[both[len(distinct) :]] = np.arange(len(distinct))
    found = gather(gather(places, both[: len(distinct)].astype(np.int64)), codes.astype(np.int64, copy=False))
    if valid is None:
        return found, None, Frame.of(distinct.to_frame())
    placed = np.zeros(len(series), np.int64)
    placed[valid] = found
    return placed, valid, Frame.of(distinct.to_frame())


def build(columns: dict[str, tuple[Array, Array | None, pa.DataType]]) -> Frame:
    """A frame from arrays, over their memory if possible."""
    return Frame({name: FrameColumn.of_numbers(*column) for name, column in columns.items()})


def build_decimal(name: str, low: Array, high: Array, valid: Array | None, dtype: pa.DataType) -> Frame:
    """A frame of one decimal column from the words of its unscaled values."""
    return Frame({name: FrameColumn.of_series(pl.Series(to_arrow_array(np.stack([low, high], axis=1), dtype, valid)))})


def null_where(frame: Frame, valid: Array | None) -> Frame:
    """The frame with null in all columns of rows that are not valid."""
    if valid is None:
        return frame
    return Frame({name: column.null_where(valid) for name, column in frame.items()})


def tuples(frame: Frame) -> list[tuple[Any, ...]]:
    """Each row as a tuple; tuples are equal if and only if the keys are."""
    return pl.DataFrame([_hashable(column.series(name)) for name, column in frame.items()]).rows()


def row_hashes(frame: Frame, schema: pa.Schema) -> Array | None:
    """A hash of each row of texts, bytes, integers, times and bools; floats are not told apart by their bytes."""
    if not all(map(_has_hash, schema.types)):
        return None
    series = [frame[name].series(name) for name in schema.names]
    return pl.DataFrame(series).hash_rows(seed=1).to_numpy().view(np.int64)


def _has_hash(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind)
    return bool(is_text or is_bytes or is_number)


def _hashable(series: pl.Series) -> pl.Series:
    if series.dtype.is_temporal():
        return series.to_physical()
    if series.dtype.is_nested():
        return pl.Series(series.name, [hashable(each) for each in series.to_list()], dtype=pl.Object)
    return _float_bits(series) if series.dtype.is_float() else series


def _float_bits(series: pl.Series) -> pl.Series:
    floats = series.rechunk().to_arrow()
    bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[floats.type.bit_width]
    return pl.Series(series.name, floats.view(bits))


def key_codes(frame: Frame, names: Sequence[str]) -> tuple[Array, int, Frame | None]:
    """Group numbers of rows by the values of some columns: the columns' codes are digits of one number."""
    if not names:
        return np.zeros(frame.height, np.int32), 1, None
    codes, keys = _column_codes(frame[names[0]])
    found = Frame({names[0]: keys})
    for name in names[1:]:
        more, values_of = _column_codes(frame[name])
        count = max(len(values_of), 1)
        # Both bounds are below 2**32 (each code is a position in an array), so the product fits.
        codes = codes.astype(np.int64) * count + more
        if found.height * count <= _roomy(codes):
            decoded = np.arange(found.height * count)
        else:
            codes, decoded = _dense(codes)
        found = beside(take(found, decoded // count), take(Frame({name: values_of}), decoded % count))
    return codes.astype(np.int32, copy=False), max(found.height, 1), found


def _roomy(codes: Array) -> int:
    """How many groups a table may have to cost no more than the rows themselves."""
    return max(1 << 16, 2 * len(codes))


def _column_codes(column: FrameColumn) -> tuple[Array, FrameColumn]:
    """(codes, values): equal codes for equal values; ``values[code]`` is the value, null included."""
    dtype = column.dtype
    if dtype is None or pa.types.is_floating(dtype):
        codes, values_of = _series_codes(column.series())
        return codes, FrameColumn.of_series(values_of)
    numbers, valid = column.values()
    codes, distinct = _integer_codes(numbers)
    if valid is None:
        return codes, FrameColumn.of_numbers(distinct, None, dtype)
    there = np.arange(len(distinct) + 1) < len(distinct)
    codes = np.where(valid, codes.astype(np.int64, copy=False), len(distinct))
    return codes, FrameColumn.of_numbers(np.concatenate([distinct, np.zeros(1, distinct.dtype)]), there, dtype)


def _series_codes(series: pl.Series) -> tuple[Array, pl.Series]:
    """`_column_codes` of a series."""
    dtype = series.dtype
    if dtype.is_nested():
        return nested_codes(series)
    valid = valid_in(series)
    if dtype.is_float():
        # Adding zero makes -0.0 into 0.0; one NaN stands for all.
        floats = filled(series, valid) + 0
        floats[np.isnan(floats)] = np.nan
        codes, distinct = _integer_codes(floats.view(f"i{floats.itemsize}"))
        values_of = pl.Series(series.name, distinct.view(floats.dtype))
    elif dtype == pl.Boolean or dtype.is_integer() or dtype.is_temporal():
        numbers = stored_in(series)
        codes, distinct = _integer_codes(filled(numbers, valid))
        values_of = series_of(series.name, distinct, None, pa.from_numpy_dtype(distinct.dtype))
        if values_of.dtype != dtype:
            values_of = values_of.cast(dtype)
    elif len(series) >= FEW and dtype in {pl.String, pl.Binary} and (found := _hashed_codes(series)) is not None:
        codes, values_of = found
    else:
        stored = in_arrow(series)
        if not pa.types.is_dictionary(stored.type):
            stored = stored.dictionary_encode()
        codes = integers(stored.indices if valid is None else stored.indices.fill_null(0))
        values_of = pl.Series(series.name, stored.dictionary).cast(dtype)
    if valid is not None:
        codes = np.where(valid, codes.astype(np.int64, copy=False), len(values_of))
        values_of = values_of.append(pl.Series(pa.nulls(1)).cast(dtype))
    return codes, values_of


def _hashed_codes(texts: pl.Series) -> tuple[Array, pl.Series] | None:
    """(codes, values) of texts by their hashes, half the cost of a table of texts; None if two texts share a hash."""
    if texts.null_count():
        texts = texts.fill_null("")
    cut = parts(len(texts))
    hashes = in_parallel(lambda part: in_numpy(texts[slice(*part)].hash()).view(np.int64), cut)
    codes, _ = _dense(hashes[0] if len(hashes) == 1 else np.concatenate(hashes))
    at = np.empty(int(codes.max(initial=-1)) + 1, np.uint32)
    at[codes] = np.arange(len(codes), dtype=np.uint32)
    values_of = texts[at]
    same = in_parallel(lambda part: (values_of[codes[slice(*part)]] == texts[slice(*part)]).all(), cut)
    return (codes, values_of) if all(same) else None


def _integer_codes(whole: Array) -> tuple[Array, Array]:
    """(codes, integers): positions in ``integers``; by offset where the range is narrow, else by hashing."""
    if not len(whole):
        return whole.astype(np.int32), whole
    least, most = int(whole.min()), int(whole.max())
    if most - least < _roomy(whole):
        if least == 0 and whole.dtype.kind == "i":
            codes = whole
        elif whole.dtype.itemsize < 8:
            codes = whole.astype(np.int64) - least
        else:
            codes = (whole - whole.dtype.type(least)).astype(np.int64, copy=False)
        return codes, np.arange(least, most + 1, dtype=whole.dtype)
    return _dense(whole)


def _dense(whole: Array) -> tuple[Array, Array]:
    """(codes, integers): numbered as they come."""
    cut = parts(len(whole))
    if len(cut) == 1 or 4 * len(_encoded(whole[:_SAMPLE])[1]) > _SAMPLE:
        # Where few are equal, the parts' integers would be as many as the rows.
        return _encoded(whole)
    made = in_parallel(lambda part: _encoded(whole[slice(*part)]), cut)
    numbers, distinct = _encoded(np.concatenate([found for _, found in made]))
    ends = np.cumsum([len(found) for _, found in made])
    codes = room(len(whole), np.int32)

    def number(at: int) -> None:
        known = numbers[ends[at] - len(made[at][1]) : ends[at]]
        codes[slice(*cut[at])] = gather(known, made[at][0].astype(np.int64))

    in_parallel(number, range(len(cut)))
    return codes, distinct


_SAMPLE = 1 << 14
"""How many rows tell whether many are equal."""


def _encoded(whole: Array) -> tuple[Array, Array]:
    encoded = to_arrow_array(whole, pa.from_numpy_dtype(whole.dtype)).dictionary_encode()
    return integers(encoded.indices), integers(encoded.dictionary).view(whole.dtype)
