"""Steps of Narwhals over a Polars frame, whose expressions are translated once.

Narwhals translates an expression whenever it is used, which takes ten times as long as Polars needs to plan it; the
steps of a running query use the same few expressions again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from gpu_ops.core.once import once_for_each_object
from gpu_ops.core.polars_frames import together
from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.devices.cpu.series import Array, filled, in_numpy, rows_at, series_of, stored_in, valid_in

_NAMESPACE = nw.from_native(pl.LazyFrame()).__narwhals_namespace__()


class LazySteps:
    """A lazy frame of Polars with the verbs of Narwhals that steps use.

    Args:
        frame: The frame. Its expressions give a value for each row, and at least one of each `select` reads a column.
        end: What its column ``end`` is, where it has none yet: it gets it as an expression reads it.

    Attributes:
        frame: The frame, with the column ``end`` only where it was read, or there before.
    """

    def __init__(self, frame: pl.LazyFrame, end: Callable[[], pl.Expr] | None = None) -> None:
        self.frame, self._end = frame, end

    def filter(self, *conditions: nw.Expr) -> LazySteps:
        """The rows for which all conditions hold."""
        self._have_end(conditions)
        return LazySteps(self.frame.filter(*map(translated, conditions)), self._end)

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns alone, but for ``end`` where nothing has read it yet."""
        made = [each for each in expressions if not (isinstance(each, str) and each == "end")]
        self._have_end([*made, *named.values()])
        if self._end is None:
            made = [*expressions]
        return LazySteps(self.frame.select(*map(translated, made), **_each(named)), self._end)

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns beside the others, or in place of those with their names."""
        self._have_end([*expressions, *named.values()])
        return LazySteps(self.frame.with_columns(*map(translated, expressions), **_each(named)), self._end)

    def _have_end(self, expressions: Iterable[nw.Expr | str]) -> None:
        """Have the column ``end`` if some expressions read it."""
        if self._end is not None and "end" in _read(expressions):
            self.frame, self._end = self.frame.with_columns(end=self._end()), None


class RowSteps:
    """Events with the same verbs, each of which runs at once, on this thread: Polars hands all else to its own threads.

    Args:
        start: int64 ticks.
        end: int64 ticks, or one duration.
        frame: The payload, which has a column.
    """

    def __init__(self, start: Array, end: Array | int, frame: pl.DataFrame) -> None:
        self._start, self._end, self._frame = start, end, frame

    def filter(self, *conditions: nw.Expr) -> RowSteps:
        """The rows for which all conditions hold."""
        asked = [translated(each).alias(f"{at}") for at, each in enumerate(conditions)]
        held = np.logical_and.reduce([_holds(each) for each in self._with(_read(conditions)).select_seq(asked)])
        if held.all():
            return self
        rows = np.flatnonzero(held)
        end = self._end if isinstance(self._end, int) else self._end[rows]
        return RowSteps(self._start[rows], end, rows_at(self._frame, rows))

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> RowSteps:
        """These columns of the payload alone."""
        given = [each for each in expressions if not (isinstance(each, str) and each in LIFETIME)]
        read = _read([*given, *named.values()])
        if not read:
            # Constants alone have no height: another column gives it.
            given, read = ["start", *given], {"start"}
        return RowSteps(self._start, self._end, self._with(read).select_seq([*map(translated, given)], **_each(named)))

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> RowSteps:
        """These columns beside the others, or in place of those with their names."""
        frame = self._with(_read([*expressions, *named.values()]))
        return RowSteps(self._start, self._end, frame.with_columns_seq([*map(translated, expressions)], **_each(named)))

    def done(self) -> tuple[Array, Array | int, pl.DataFrame]:
        """(starts, ends, the payload)."""
        names = [name for name in self._frame.columns if name not in LIFETIME]
        here = len(names) == self._frame.width
        return self._start, self._end, self._frame if here else together([self._frame.get_column(n) for n in names])

    def _with(self, read: Collection[str]) -> pl.DataFrame:
        """The payload with those columns of the lifetime that are read."""
        added = [name for name in LIFETIME if name in read and name not in self._frame.columns]
        return self._frame.hstack([self._times(name) for name in added]) if added else self._frame

    def _times(self, name: str) -> pl.Series:
        """A column of the lifetime."""
        end = self._start + self._end if isinstance(self._end, int) else self._end
        return series_of(name, self._start if name == "start" else end, None, TIME_TYPE)


def _holds(condition: pl.Series) -> Array:
    """For which rows a condition holds; not where it is null."""
    valid = valid_in(condition)
    if valid is None:
        return in_numpy(condition)
    held: Array = filled(stored_in(condition), valid) != 0
    return held


def _read(expressions: Iterable[nw.Expr | str]) -> set[str]:
    """The columns that expressions read; where one names several at once, those of the lifetime as well."""
    read = set[str]()
    for each in expressions:
        read |= {each} if isinstance(each, str) else _known(each)[1]
    return read


def _each(named: dict[str, nw.Expr]) -> dict[str, pl.Expr]:
    return {name: translated(expression) for name, expression in named.items()}


def translated(expression: nw.Expr | str) -> pl.Expr:
    """Polars' expression; a text is a column's name."""
    return pl.col(expression) if isinstance(expression, str) else _known(expression)[0]


@once_for_each_object
def _known(expression: nw.Expr) -> tuple[pl.Expr, frozenset[str]]:
    """(Polars' expression, the columns that it reads)."""
    compliant: Any = expression._to_compliant_expr(_NAMESPACE)  # noqa: SLF001  (there is no public way)
    made: pl.Expr = compliant.native
    # What names no column, or several at once, may read any.
    several = made.meta.has_multiple_outputs() or made.meta.is_regex_projection()
    return made, frozenset([*made.meta.root_names(), *(LIFETIME if several else ())])
