"""Frames on the CPU: each column stays in the form that it came in, and takes others as they are asked for.

A step of a running query hands few rows through many nodes, which pick columns, put them side by side, and read one or
two. As frames of Polars that cost more than the work on the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import booleans, integers, repeated, validity
from gpu_ops.core.arrow_buffers import to_arrow as to_arrow_array
from gpu_ops.core.forking import use_threads
from gpu_ops.core.polars_frames import FEW, is_alike, to_frame, together
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.core.types import restore
from gpu_ops.devices.cpu.order import kept
from gpu_ops.devices.cpu.order import take as gather
from gpu_ops.devices.cpu.series import Array, filled, row_index, series_of, stored_in, valid_in

_MANY = 1 << 22
"""Rows from which on columns stay in the pieces that they come in, so that memory does not hold them twice."""

_SPARSE = 8
"""Where a part of the rows is kept that is smaller than one by this, they are gathered by their indices."""

_PIECES = 16
"""So many pieces of a column there may be before they become one."""


class FrameColumn:
    """A column as numbers, an array of Arrow, a series of Polars, pieces, rows of another column, or in several forms.

    Numbers are those of a type that Arrow, Polars and NumPy store alike. Whatever form it has, its values never change.
    """

    __slots__ = ("_arrow", "_dtype", "_length", "_numbers", "_pieces", "_rows", "_series", "_valid")

    def __init__(
        self,
        length: int,
        *,
        dtype: pa.DataType | None = None,
        numbers: Array | None = None,
        valid: Array | None = None,
        arrow: pa.Array | None = None,
        series: pl.Series | None = None,
        pieces: Sequence[FrameColumn] = (),
        rows: tuple[FrameColumn, Index] | None = None,
    ) -> None:
        self._length, self._dtype, self._numbers, self._valid = length, dtype, numbers, valid
        self._arrow, self._series, self._pieces, self._rows = arrow, series, pieces, rows

    def __len__(self) -> int:
        return self._length

    @staticmethod
    def of_numbers(numbers: Array, valid: Array | None, dtype: pa.DataType) -> FrameColumn:
        """Numbers of a type of fixed width; any number stands under a null."""
        kind = _stored_as(dtype)
        if kind is None:
            return FrameColumn(len(numbers), series=series_of("", numbers, valid, dtype))
        if numbers.dtype != kind:
            numbers = numbers != 0 if kind == np.bool_ else numbers.astype(kind)
        stored = np.ascontiguousarray(numbers)
        return FrameColumn(len(numbers), dtype=dtype, numbers=_fixed(stored), valid=valid)

    @staticmethod
    def of_arrow(array: pa.Array) -> FrameColumn:
        """An array of a type that Polars takes as it is."""
        dtype = array.type
        return FrameColumn(len(array), arrow=array, dtype=None if _stored_as(dtype) is None else dtype)

    @staticmethod
    def of_series(series: pl.Series) -> FrameColumn:
        """A series, whatever its name."""
        return FrameColumn(
            len(series), series=series, dtype=_TYPES.get(series.dtype) if series.n_chunks() == 1 else None
        )

    @staticmethod
    def of_pieces(columns: Sequence[FrameColumn]) -> FrameColumn:
        """Columns of one type, one behind the other, which are put together when somebody reads them."""
        columns = [each for each in columns if len(each)] or columns[:1]
        if len(columns) == 1:
            return columns[0]
        count, first = sum(map(len, columns)), columns[0].dtype
        if count >= _MANY:
            return FrameColumn(count, series=pl.concat([each.series() for each in columns], rechunk=False))
        dtype = first if all(each.dtype == first for each in columns) else None
        made = FrameColumn(count, dtype=dtype, pieces=[part for each in columns for part in each.pieces])
        if len(made.pieces) > _PIECES:
            made.become_one()
        return made

    @property
    def pieces(self) -> Sequence[FrameColumn]:
        """What it consists of."""
        return self._pieces or [self]

    @property
    def dtype(self) -> pa.DataType | None:
        """The type of its numbers; None where that is not stored alike everywhere, or nobody has told."""
        return self._dtype

    @property
    def _is_bool(self) -> bool:
        return self._dtype is not None and self._dtype.id == _BOOL.id

    def become_one(self) -> None:
        """Put its pieces together, or take its rows."""
        rows = self._rows  # another thread may take them too
        if rows is not None:
            column, index = rows
            taken = column.take(index)
            if self._dtype is None:
                self._series = taken.series()
            else:
                self._numbers, self._valid = taken.given()
            self._rows = None
            return
        pieces = self._pieces
        if not pieces:
            return
        if self._dtype is not None:
            parts = [each.given() for each in pieces]
            self._numbers = _fixed(np.concatenate([numbers for numbers, _ in parts]))
            if any(valid is not None for _, valid in parts):
                flags = [np.ones(len(numbers), np.bool_) if valid is None else valid for numbers, valid in parts]
                self._valid = np.concatenate(flags)
        else:
            first, *others = (each.series() for each in pieces)
            self._series = functools.reduce(pl.Series.append, others, first.clone()).rechunk()
        self._pieces = ()

    def given(self) -> tuple[Array, Array | None]:
        """Its numbers in NumPy's type, and which are not null; for types that are stored alike."""
        self.become_one()
        if self._numbers is None:
            if self._arrow is None:
                series = self.series()
                valid = valid_in(series)
                found = filled(stored_in(series), valid)
                found = found != 0 if self._is_bool else found
            else:
                valid = validity(self._arrow)
                found = booleans(self._arrow) if self._is_bool else integers(self._arrow).view(_stored_as(self._dtype))
            self._valid, self._numbers = valid, _fixed(found)
        if self._valid is not None and bool(self._valid.all()):
            self._valid = None  # some rows of a column with nulls may have none
        return self._numbers, self._valid

    def values(self) -> tuple[Array, Array | None]:
        """The stored numbers, 0 for null, and which are not null; see `Columns.values`."""
        if self._dtype is None:
            stored = stored_in(self.series())
            valid = valid_in(stored)
            return filled(stored, valid), valid
        numbers, valid = self.given()
        if numbers.dtype == np.bool_:
            numbers = numbers.view(np.int8)
        return (numbers if valid is None else np.where(valid, numbers, numbers.dtype.type(0))), valid

    def validity(self) -> Array | None:
        """Which values are not null; None if all are."""
        return valid_in(self.series()) if self._dtype is None else self.given()[1]

    def series(self, name: str = "") -> pl.Series:
        """The column as a series of Polars."""
        if self._series is None:
            self.become_one()
        if self._series is None:
            if self._arrow is not None:
                self._series = pl.Series(name, self._arrow)
            else:
                assert self._dtype is not None  # noqa: S101  (it has numbers)
                self._series = series_of(name, *self.given(), self._dtype)
        return self._series if self._series.name == name else self._series.alias(name)

    def arrow(self, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        """The column in the type that it was declared with."""
        self.become_one()
        if self._arrow is None and self._numbers is not None:
            self._arrow = to_arrow_array(self._numbers, self._dtype, self._valid)
        if self._arrow is not None and self._arrow.type == kind:
            return self._arrow
        series = self.series()
        short = pa.types.is_string(kind) and series.dtype == pl.String and len(series) < FEW
        # A frame gives each of its chunks as a record batch, which takes three times as long; but in types of its own.
        given = pa.chunked_array(series) if pa.types.is_primitive(kind) or short else series.to_frame().to_arrow()[0]
        made: pa.ChunkedArray = restore(given, kind)
        return made

    def take(self, index: Index) -> FrameColumn:
        """The values at these indices."""
        if self._dtype is None:
            return FrameColumn.of_series(self.series()[index.series])
        # Polars takes longer.
        numbers, valid = self.given()
        return FrameColumn.of_numbers(index.of(numbers), None if valid is None else index.of(valid), self._dtype)

    def take_later(self, index: Index) -> FrameColumn:
        """The values at these indices, taken when somebody reads them: until then all of this column is kept."""
        return FrameColumn(len(index), dtype=self._dtype, rows=(self, index))

    def cut(self, low: int, high: int) -> FrameColumn:
        """The values from one to another, in the same memory."""
        self.become_one()
        count = high - low
        if self._numbers is not None:
            valid = None if self._valid is None else self._valid[low:high]
            return FrameColumn(count, dtype=self._dtype, numbers=self._numbers[low:high], valid=valid)
        if self._arrow is not None:
            return FrameColumn(count, dtype=self._dtype, arrow=self._arrow.slice(low, count))
        return FrameColumn.of_series(self.series().slice(low, count))

    def null_where(self, valid: Array) -> FrameColumn:
        """The column with null where a flag is false."""
        if self._dtype is None:
            kept = pl.select(pl.when(pl.lit(pl.Series(valid))).then(pl.lit(self.series())))
            return FrameColumn.of_series(kept.to_series())
        numbers, before = self.given()
        return FrameColumn.of_numbers(numbers, valid if before is None else before & valid, self._dtype)

    def nulls(self, count: int) -> FrameColumn:
        """So many nulls of its type."""
        if self._dtype is not None:
            numbers = np.zeros(count, _stored_as(self._dtype))
            return FrameColumn.of_numbers(numbers, np.zeros(count, np.bool_), self._dtype)
        return FrameColumn.of_series(pl.Series(pa.nulls(count)).cast(self.series().dtype))


class Index:
    """Indices of rows, also as Polars takes them, made when they are asked for."""

    def __init__(self, indices: Array) -> None:
        self.indices = indices.astype(np.int64, copy=False)

    def __len__(self) -> int:
        return len(self.indices)

    @functools.cached_property
    def series(self) -> pl.Series:
        """Them in Polars' own type of index; positions are below 2**32."""
        return row_index(self.indices)

    def of(self, numbers: Array) -> Array:
        """The numbers at these indices."""
        return gather(numbers, self.indices)


class Held(Index):
    """The indices of the rows for which a flag holds.

    Args:
        flags: bool.
    """

    def __init__(self, flags: Array) -> None:
        self._flags, self._count = flags, int(np.count_nonzero(flags))

    def __len__(self) -> int:
        return self._count

    @functools.cached_property
    def indices(self) -> Array:  # type: ignore[override]
        """Them as int64."""
        return np.flatnonzero(self._flags)

    def of(self, numbers: Array) -> Array:
        """The numbers of these rows: moved by the flags, where most of a part of the memory is read anyway."""
        if len(self._flags) < FEW or self._count < len(self._flags) // _SPARSE:
            return gather(numbers, self.indices)
        return kept(numbers, self._flags, self._count)


class Frame:
    """Columns of one length by their names, in order; none has no rows.

    Examples:
        >>> frame = Frame.of_table(pa.table({"a": [1, 2], "b": ["x", "y"]}))
        >>> frame.columns, frame.height, frame["a"].values()[0].tolist()
        (['a', 'b'], 2, [1, 2])
        >>> frame.take(np.array([1])).polars().rows()
        [(2, 'y')]
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, FrameColumn]) -> None:
        self._columns = dict(columns)

    @staticmethod
    def of_table(table: pa.Table) -> Frame:
        """A frame over a table's memory."""
        use_threads()
        columns = dict[str, FrameColumn]()
        for name, column in zip(table.column_names, table.columns, strict=True):
            made = FrameColumn.of_arrow(column.chunk(0)) if column.num_chunks == 1 else None
            if (made is None or made.dtype is None) and (column.num_chunks > 1 or not is_alike(column.type)):
                return Frame.of(to_frame(table))
            columns[name] = FrameColumn.of_arrow(pa.array([], column.type)) if made is None else made
        return Frame(columns)

    @staticmethod
    def of(frame: pl.DataFrame) -> Frame:
        """The columns of a frame of Polars."""
        return Frame({column.name: FrameColumn.of_series(column) for column in frame.get_columns()})

    @staticmethod
    def concat(frames: Sequence[Frame]) -> Frame:
        """All rows, in the columns of the first frame."""
        if len(frames) == 1:
            return frames[0]
        return Frame({name: FrameColumn.of_pieces([each[name] for each in frames]) for name in frames[0].columns})

    def __len__(self) -> int:
        return self.height

    def __getitem__(self, name: str) -> FrameColumn:
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def items(self) -> Iterable[tuple[str, FrameColumn]]:
        """The columns with their names."""
        return self._columns.items()

    @property
    def columns(self) -> list[str]:
        """The names."""
        return list(self._columns)

    @property
    def height(self) -> int:
        """How many rows."""
        return next((len(each) for each in self._columns.values()), 0)

    def polars(self, names: Iterable[str] | None = None) -> pl.DataFrame:
        """Some columns, or all, as a frame of Polars."""
        return together([self._columns[name].series(name) for name in (self._columns if names is None else names)])

    def arrow(self, schema: pa.Schema) -> pa.Table:
        """A table of some columns in the types that they were declared with."""
        columns = [self._columns[field.name].arrow(field.type) for field in schema]
        return pa.Table.from_arrays(columns, schema=schema)

    def take(self, indices: Array) -> Frame:
        """The rows at these indices, in their order."""
        if len(indices) < FEW and len(indices) == self.height and bool((indices == np.arange(self.height)).all()):
            # Steps of few rows often take all of them.
            return self
        index = Index(indices)
        return Frame({name: column.take(index) for name, column in self._columns.items()})

    def take_later(self, index: Index) -> Frame:
        """The rows at these indices, each column when somebody reads it."""
        return Frame({name: column.take_later(index) for name, column in self._columns.items()})

    def taken(self) -> Frame:
        """The frame, after columns that wait for a reader have been taken."""
        for column in self._columns.values():
            column.become_one()
        return self

    def cut(self, low: int, high: int) -> Frame:
        """The rows from one to another, in the same memory."""
        return Frame({name: column.cut(low, high) for name, column in self._columns.items()})

    def select(self, names: Sequence[str]) -> Frame:
        """These columns."""
        return Frame({name: self._columns[name] for name in names})

    def without(self, names: Collection[str]) -> Frame:
        """The columns but for some."""
        return Frame({name: column for name, column in self._columns.items() if name not in names})

    def with_columns(self, columns: Mapping[str, FrameColumn]) -> Frame:
        """More columns, or others in place of those of their names."""
        return Frame({**self._columns, **columns})


def repeating(constant: pl.Series) -> Callable[[int], FrameColumn]:
    """What gives a column in which the only value of a series stands so many times."""
    dtype, missing = constant.to_arrow().type, constant.null_count() > 0
    if _stored_as(dtype) is not None and not missing:
        number = FrameColumn.of_series(constant).given()[0]
        kept = number.tobytes(), number.dtype.str

        def repeat(count: int) -> FrameColumn:
            return FrameColumn.of_numbers(_repeated(*kept, max(count - 1, 0).bit_length())[:count], None, dtype)

        return repeat
    if constant.dtype == pl.String and not missing:
        text = constant[0]
        return lambda count: FrameColumn.of_arrow(repeated(text, count))
    return lambda count: FrameColumn.of_series(constant.new_from_index(0, count))


@functools.lru_cache(maxsize=8)
def _repeated(number: bytes, kind: str, bits: int) -> Array:
    """A number again and again: columns of constants are parts of few arrays that are kept."""
    return _fixed(np.full(1 << bits, np.frombuffer(number, kind)[0]))


def rows_at(frame: pl.DataFrame, indices: Array) -> pl.DataFrame:
    """The rows of a frame of Polars at these indices, in their order."""
    return Frame.of(frame).take(indices).polars()


def _fixed(values: Array) -> Array:
    """A view of an array that nobody can write into."""
    if values.flags.writeable:
        values = values.view()
        values.flags.writeable = False
    return values


_BOOL = pa.bool_()

_STORED: dict[pa.DataType, Any] = {
    **{kind: np.dtype(kind.to_pandas_dtype()) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: np.dtype(kind.to_pandas_dtype()) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{kind: np.dtype(kind.to_pandas_dtype()) for kind in (pa.float32(), pa.float64())},
    _BOOL: np.dtype(np.bool_),
    pa.date32(): np.dtype(np.int32),
    **dict.fromkeys((TIME_TYPE, pa.timestamp("us"), pa.duration("us")), np.dtype(np.int64)),
}
"""The types whose numbers Arrow, Polars and NumPy store alike, and NumPy's."""

_BY_ID = {kind.id: stored for kind, stored in _STORED.items() if not hasattr(kind, "unit")}


def _stored_as(dtype: pa.DataType | None) -> Any:
    """NumPy's type for the numbers of a type; None if that is not stored alike everywhere."""
    if dtype is None or dtype is TIME_TYPE:
        return None if dtype is None else np.dtype(np.int64)
    # To hash a type, Arrow writes it out.
    found = _BY_ID.get(dtype.id)
    return _STORED.get(dtype) if found is None and dtype.id in _OF_UNITS else found


_OF_UNITS = {kind.id for kind in _STORED if hasattr(kind, "unit")}

_TYPES = {pl.Series(pa.array([], kind)).dtype: kind for kind in _STORED}
"""They by Polars' types."""
