"""Steps of Narwhals over a Polars frame, whose expressions are translated once.

Narwhals translates an expression whenever it is used, which takes ten times as long as Polars needs to plan it; the
steps of a running query use the same few expressions again and again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import booleans, nulls
from gpu_ops.core.once import once_for_each_object
from gpu_ops.core.polars_frames import FEW, together
from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.devices.cpu.frames import Frame, FrameColumn, Held, repeating
from gpu_ops.devices.cpu.plain_numbers import PlainNumbers, plain_numbers
from gpu_ops.devices.cpu.series import Array, filled, in_arrow, in_numpy, stored_in, valid_in

_INT64 = {pa.int64().id}

_SIGNED = {each.id for each in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}

_NAMESPACE = nw.from_native(pl.LazyFrame()).__narwhals_namespace__()


class LazySteps:
    """A lazy frame of Polars with the verbs of Narwhals that steps use.

    Args:
        frame: The frame. Its expressions give a value for each row, and at least one of each `select` reads a column.
        end: What its column ``end`` is, where it has none yet: it gets it as an expression reads it.
        filters: Whether there were only filters so far.

    Attributes:
        frame: The frame, with the column ``end`` only where it was read, or there before.
        filters: Likewise.
    """

    def __init__(self, frame: pl.LazyFrame, end: Callable[[], pl.Expr] | None = None, *, filters: bool = True) -> None:
        self.frame, self._end, self.filters = frame, end, filters

    def filter(self, *conditions: nw.Expr) -> LazySteps:
        """The rows for which all conditions hold."""
        self._have_end(conditions)
        return LazySteps(self.frame.filter(*map(translated, conditions)), self._end, filters=self.filters)

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns alone, but for ``end`` where nothing has read it yet."""
        made = [each for each in expressions if not (isinstance(each, str) and each == "end")]
        self._have_end([*made, *named.values()])
        if self._end is None:
            made = [*expressions]
        return LazySteps(self.frame.select(*map(translated, made), **_each(named)), self._end, filters=False)

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns beside the others, or in place of those with their names."""
        self._have_end([*expressions, *named.values()])
        made = self.frame.with_columns(*map(translated, expressions), **_each(named))
        return LazySteps(made, self._end, filters=False)

    def _have_end(self, expressions: Iterable[nw.Expr | str]) -> None:
        """Have the column ``end`` if some expressions read it."""
        if self._end is not None and "end" in _read(expressions):
            self.frame, self._end = self.frame.with_columns(end=self._end()), None


class RowSteps:
    """Events with the same verbs, each of which runs at once, on this thread: Polars hands all else to its own threads.

    Columns that are only picked or renamed, and constants, do not pass through Polars.

    Args:
        start: int64 ticks.
        end: int64 ticks, or one duration.
        frame: The payload, which has a column.
    """

    def __init__(self, start: Array, end: Array | int, frame: Frame) -> None:
        self._start, self._end, self._frame = start, end, frame

    def filter(self, *conditions: nw.Expr) -> RowSteps:
        """The rows for which all conditions hold."""
        flags = functools.reduce(np.logical_and, self._flags(conditions))
        held = Held(flags)
        if len(held) == len(flags):
            return self
        end = self._end if isinstance(self._end, int) else held.of(self._end)
        return RowSteps(held.of(self._start), end, self._frame.take_later(held))

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> RowSteps:
        """These columns of the payload alone."""
        given = [each for each in expressions if not (isinstance(each, str) and each in LIFETIME)]
        return RowSteps(self._start, self._end, Frame(self._made(given, named)))

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> RowSteps:
        """These columns beside the others, or in place of those with their names."""
        return RowSteps(self._start, self._end, self._frame.with_columns(self._made(expressions, named)))

    def done(self) -> tuple[Array, Array | int, Frame]:
        """(starts, ends, the payload)."""
        return self._start, self._end, self._frame.without(LIFETIME).taken()

    def _flags(self, conditions: Sequence[nw.Expr]) -> list[Array]:
        """For which rows each condition holds; not where it is null."""
        plain = [self._plainly(_known(each).plain) for each in conditions]
        found = [each for each in plain if each is not None]
        if len(found) == len(plain):
            return found
        known = [_known(each) for each, flags in zip(conditions, plain, strict=True) if flags is None]
        asked = [each.native.alias(f"{at}") for at, each in enumerate(known)]
        return [*found, *map(_holds, self._asked(known, asked))]

    def _plainly(self, plain: PlainNumbers | None) -> Array | None:
        """The values of an expression, if it is one over whole numbers and its columns are such; else None."""
        if plain is None:
            return None
        columns = {name: self._column(name) for name in plain.read}
        kinds = {name: None if each.dtype is None else each.dtype.id for name, each in columns.items()}
        if any(kind not in (_INT64 if name in plain.wide else _SIGNED) for name, kind in kinds.items()):
            return None
        given = {name: each.given() for name, each in columns.items()}
        if any(valid is not None for _, valid in given.values()):
            return None
        return plain.over({name: numbers for name, (numbers, _) in given.items()})

    def _asked(self, known: Sequence[_Known], expressions: Sequence[pl.Expr], *beside: str) -> list[pl.Series]:
        """What Polars makes of expressions, of which this is known, and of columns beside them."""
        frame = self._polars(set[str](beside).union(*(each.read for each in known)))
        if len(self._start) < FEW or sum(each.reads for each in known) == len(frame.columns):
            return frame.select_seq([*beside, *expressions]).get_columns()
        # A part of them may stand there several times, which Polars finds where it plans a query.
        return frame.lazy().select([*beside, *expressions]).collect().get_columns()

    def _made(self, expressions: Iterable[nw.Expr | str], named: dict[str, nw.Expr]) -> dict[str, FrameColumn]:
        """The columns of some expressions, in their order."""
        each = [(None, expression) for expression in expressions] + [*named.items()]
        made = dict[str, FrameColumn | None]()
        left, parts = list[pl.Expr](), list[_Known]()
        for called, expression in each:
            if isinstance(expression, str):
                made[expression] = self._column(expression)
                continue
            known = _known(expression)
            name = called or known.called
            if known.copies is not None and name is not None:
                made[name] = self._column(known.copies)
            elif known.casts is not None and name is not None and self._column(known.casts[0]).dtype == known.casts[1]:
                made[name] = self._column(known.casts[0])
            elif known.constant is not None and name is not None:
                made[name] = known.constant(len(self._start))
            elif name is not None and (numbers := self._plainly(known.plain)) is not None:
                made[name] = FrameColumn.of_numbers(numbers, None, pa.from_numpy_dtype(numbers.dtype))
            else:
                if name is not None:
                    # Its place among the others.
                    made[name] = None
                left.append(known.native if called is None else known.native.alias(called))
                parts.append(known)
        if left:
            # Constants alone have no height: another column gives it.
            alone = [] if any(each.read for each in parts) else ["start"]
            done = self._asked(parts, left, *alone)
            made |= {column.name: FrameColumn.of_series(column) for column in done[len(alone) :]}
        return {name: column for name, column in made.items() if column is not None}

    def _polars(self, read: Collection[str]) -> pl.DataFrame:
        """What expressions read, as a frame of Polars; where they may read any column, all of them."""
        if ALL in read:
            return self._frame.with_columns({name: self._column(name) for name in LIFETIME}).polars()
        return together([self._column(name).series(name) for name in read])

    def _column(self, name: str) -> FrameColumn:
        """A column of the payload, or of the lifetime."""
        if name in self._frame or name not in LIFETIME:
            return self._frame[name]
        end = self._start + self._end if isinstance(self._end, int) else self._end
        return FrameColumn.of_numbers(self._start if name == "start" else end, None, TIME_TYPE)


def _holds(condition: pl.Series) -> Array:
    """For which rows a condition holds; not where it is null."""
    if len(condition) < FEW:
        valid = valid_in(condition)
        return in_numpy(condition) if valid is None else filled(stored_in(condition), valid) != 0
    # Polars' own way to NumPy takes ten times as long over many bits.
    bits = in_arrow(condition)
    held = booleans(bits)
    return held & ~nulls(bits) if bits.null_count else held


def _read(expressions: Iterable[nw.Expr | str]) -> set[str]:
    """The columns that expressions read; where one names several at once, those of the lifetime as well."""
    read = set[str]()
    for each in expressions:
        read |= {each} if isinstance(each, str) else _known(each).read
    return read | set(LIFETIME) if ALL in read else read


def _each(named: dict[str, nw.Expr]) -> dict[str, pl.Expr]:
    return {name: translated(expression) for name, expression in named.items()}


def translated(expression: nw.Expr | str) -> pl.Expr:
    """Polars' expression; a text is a column's name."""
    return pl.col(expression) if isinstance(expression, str) else _known(expression).native


ALL = "*"
"""Stands among the names that an expression reads where it may read any column."""


@dataclass(frozen=True)
class _Known:
    """What is known of an expression.

    Attributes:
        native: Polars' expression.
        read: The columns that it reads; `ALL` where it may read any.
        called: The name of its column; None where it may give several.
        reads: How often it names one.
        plain: It over whole numbers, if it is that simple.
        copies: The column that it picks or renames, if it does no more.
        casts: The column that it casts, and to which type, if it does no more.
        constant: What gives a column of so many rows, if it is a constant.
    """

    native: pl.Expr
    read: frozenset[str]
    called: str | None = None
    reads: int = 0
    plain: PlainNumbers | None = None
    copies: str | None = None
    casts: tuple[str, pa.DataType] | None = None
    constant: Callable[[int], FrameColumn] | None = None


@once_for_each_object
def _known(expression: nw.Expr) -> _Known:
    compliant: Any = expression._to_compliant_expr(_NAMESPACE)  # noqa: SLF001  (there is no public way)
    made: pl.Expr = compliant.native
    meta = made.meta
    # What names no column, or several at once, may read any.
    if meta.has_multiple_outputs() or meta.is_regex_projection():
        return _Known(made, frozenset([ALL]))
    roots, called = meta.root_names(), meta.output_name()
    names, reads = frozenset(roots), len(roots)
    if meta.is_literal(allow_aliasing=True):
        return _Known(made, names, called, reads, constant=repeating(pl.select(made).to_series()))
    if len(names) == 1 and meta.is_column_selection(allow_aliasing=True):
        return _Known(made, names, called, reads, copies=next(iter(names)))
    return _Known(made, names, called, reads, plain_numbers(expression), casts=_cast(expression))


def _cast(expression: nw.Expr) -> tuple[str, pa.DataType] | None:
    """(a column, a type) of an expression that casts it to that; None of others."""
    first, *rest = (node for node in expression._nodes if node.name != "alias")  # noqa: SLF001  (as in plain_numbers)
    if first.kind.name != "COL" or len(first.kwargs["names"]) != 1 or [node.name for node in rest] != ["cast"]:
        return None
    kind = next((kind for dtype, kind in _NUMBERS if rest[0].kwargs["dtype"] == dtype), None)
    return None if kind is None else (str(first.kwargs["names"][0]), kind)


_NUMBERS = [(nw.Int32, pa.int32()), (nw.Int64, pa.int64()), (nw.Float32, pa.float32()), (nw.Float64, pa.float64())]
