"""Steps of Narwhals over a Polars frame, whose expressions are translated once.

Narwhals translates an expression whenever it is used, which takes ten times as long as Polars needs to plan it; the
steps of a running query use the same few expressions again and again.
"""

from __future__ import annotations

import weakref
from typing import Any

import narwhals as nw
import polars as pl

_NAMESPACE = nw.from_native(pl.LazyFrame()).__narwhals_namespace__()


class LazySteps:
    """A lazy frame of Polars with the verbs of Narwhals that steps use.

    Args:
        frame: The frame. Its expressions give a value for each row, and at least one of each `select` reads a column.
    """

    def __init__(self, frame: pl.LazyFrame) -> None:
        self._frame = frame

    def filter(self, *conditions: nw.Expr) -> LazySteps:
        """The rows for which all conditions hold."""
        return LazySteps(self._frame.filter(*map(translated, conditions)))

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns alone."""
        return LazySteps(self._frame.select(*map(translated, expressions), **_each(named)))

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> LazySteps:
        """These columns beside the others, or in place of those with their names."""
        return LazySteps(self._frame.with_columns(*map(translated, expressions), **_each(named)))

    def to_native(self) -> pl.LazyFrame:
        """Polars' frame."""
        return self._frame


def _each(named: dict[str, nw.Expr]) -> dict[str, pl.Expr]:
    return {name: translated(expression) for name, expression in named.items()}


_translated: dict[int, tuple[weakref.ref[nw.Expr], pl.Expr]] = {}
"""Polars' expression of each one of Narwhals, by its address, as long as that one lives: it has no hash."""


def translated(expression: nw.Expr | str) -> pl.Expr:
    """Polars' expression; a text is a column's name."""
    if isinstance(expression, str):
        return pl.col(expression)
    address = id(expression)
    known = _translated.get(address)
    if known is not None and known[0]() is expression:
        return known[1]
    compliant: Any = expression._to_compliant_expr(_NAMESPACE)  # noqa: SLF001  (there is no public way)
    made: pl.Expr = compliant.native

    def forget(gone: weakref.ref[nw.Expr]) -> None:
        if (now := _translated.get(address)) is not None and now[0] is gone:
            _translated.pop(address, None)

    _translated[address] = weakref.ref(expression, forget), made
    return made
