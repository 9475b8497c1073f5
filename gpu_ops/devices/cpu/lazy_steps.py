"""Steps of Narwhals over a Polars frame, whose expressions are translated once.

Narwhals translates an expression whenever it is used, which takes ten times as long as Polars needs to plan it; the
steps of a running query use the same few expressions again and again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import narwhals as nw
import polars as pl

_NAMESPACE = nw.from_native(pl.LazyFrame()).__narwhals_namespace__()


class LazySteps:
    """A lazy frame of Polars with the verbs of Narwhals that steps use.

    Args:
        frame: The frame. Its expressions give a value for each row, and at least one of each `select` reads a column.
        end: What its column ``end`` is, where it has none yet: it gets it as an expression reads it.
    """

    def __init__(self, frame: pl.LazyFrame, end: Callable[[], pl.Expr] | None = None) -> None:
        self._frame, self._end = frame, end

    def filter(self, *conditions: nw.Expr) -> LazySteps:
        """The rows for which all conditions hold."""
        self._have_end(conditions)
        return LazySteps(self._frame.filter(*map(translated, conditions)), self._end)

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns alone, but for ``end`` where nothing has read it yet."""
        made = [each for each in expressions if not (isinstance(each, str) and each == "end")]
        self._have_end([*made, *named.values()])
        if self._end is None:
            made = [*expressions]
        return LazySteps(self._frame.select(*map(translated, made), **_each(named)), self._end)

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns beside the others, or in place of those with their names."""
        self._have_end([*expressions, *named.values()])
        return LazySteps(self._frame.with_columns(*map(translated, expressions), **_each(named)), self._end)

    def _have_end(self, expressions: Iterable[nw.Expr | str]) -> None:
        """Have the column ``end`` if some expressions read it."""
        if self._end is not None and any(_reads_end(each) for each in expressions):
            self._frame, self._end = self._frame.with_columns(end=self._end()), None

    def to_native(self, *, ends: bool) -> pl.LazyFrame:
        """Polars' frame, with the column ``end`` or without."""
        if ends:
            return self._frame
        return self._frame.drop("end") if self._end is None else self._frame


def _each(named: dict[str, nw.Expr]) -> dict[str, pl.Expr]:
    return {name: translated(expression) for name, expression in named.items()}


_translated: dict[int, tuple[weakref.ref[nw.Expr], pl.Expr, bool]] = {}
"""Polars' expression of each one of Narwhals, and whether it reads ``end``, by its address, as long as that one lives:
it has no hash."""


def translated(expression: nw.Expr | str) -> pl.Expr:
    """Polars' expression; a text is a column's name."""
    return pl.col(expression) if isinstance(expression, str) else _known(expression)[1]


def _reads_end(expression: nw.Expr | str) -> bool:
    return expression == "end" if isinstance(expression, str) else _known(expression)[2]


def _known(expression: nw.Expr) -> tuple[weakref.ref[nw.Expr], pl.Expr, bool]:
    address = id(expression)
    known = _translated.get(address)
    if known is not None and known[0]() is expression:
        return known
    compliant: Any = expression._to_compliant_expr(_NAMESPACE)  # noqa: SLF001  (there is no public way)
    made: pl.Expr = compliant.native

    def forget(gone: weakref.ref[nw.Expr]) -> None:
        if (now := _translated.get(address)) is not None and now[0] is gone:
            _translated.pop(address, None)

    # What names no column, or several at once, may read any.
    several = made.meta.has_multiple_outputs() or made.meta.is_regex_projection()
    found = weakref.ref(expression, forget), made, several or "end" in made.meta.root_names()
    _translated[address] = found
    return found
