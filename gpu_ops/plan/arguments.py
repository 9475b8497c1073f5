"""Checks of the columns that verbs and aggregates are given, when the plan is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import narwhals as nw

from gpu_ops.errors import PlanError
from gpu_ops.plan.expressions import Expression, as_expression

Names = str | Sequence[str]
"""One name or several."""

OrderBy = Expression | Sequence[Expression] | None
"""The expressions that decide an order."""


def several(given: object, *, where: str) -> tuple[nw.Expr, ...]:
    """One expression or column name, or a sequence of them, or None for none.

    Raises:
        PlanError: It is none of these.
    """
    return tuple(as_expression(each, where=where) for each in _each(given, nw.Expr | str, where))


def names(given: object, *, where: str) -> tuple[str, ...]:
    """One column name, or a sequence of them.

    Raises:
        PlanError: It is neither.
    """
    made: list[str] = []
    for each in _each(given, str, where):
        if not isinstance(each, str):
            raise PlanError(f"{where} takes column names, not {type(each).__name__}.", remedy='Write ["item", "city"].')
        made.append(each)
    return tuple(made)


def _each(given: Any, one: Any, where: str) -> Iterable[object]:
    if given is None:
        return ()
    if isinstance(given, one):
        return (given,)
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise PlanError(
            f"{where} takes columns, one or a list of them, not {type(given).__name__}.",
            remedy='Write "item", or ["item", "city"].',
        )
    return given
