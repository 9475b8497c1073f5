"""How expressions and schemas are written, as keys: what is found out of one holds for all that are written alike."""

from __future__ import annotations

import datetime
import decimal
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import narwhals as nw
import polars as pl
import pyarrow as pa

from gpu_ops.core.once import once_for_each_object

_PLAIN = (*(type(None), bool, int, float, str, bytes), *(datetime.date, datetime.time, datetime.timedelta))
_BY_REPR = (*_PLAIN, datetime.timezone, decimal.Decimal, nw.dtypes.DType)
"""The types whose ``repr`` tells everything about a value."""

T = TypeVar("T")


class _UnknownFormError(Exception):
    """An expression holds an object that nothing is known of."""


class _WrittenAlike:
    """Arguments, equal if they are written alike."""

    __slots__ = ("_hash", "arguments", "form", "named")

    def __init__(self, form: Hashable, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.form, self.arguments, self.named, self._hash = form, arguments, named, hash(form)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WrittenAlike) and self.form == other.form


def once_for_each_form(found: Callable[..., T]) -> Callable[..., T]:
    """Have a function of expressions, schemas and constants computed once for those that are written alike.

    What it gives must never change, and it must depend on its arguments' content alone. Expressions that hold other
    objects, as series or functions, are computed each time; errors are not kept.

    Examples:
        >>> @once_for_each_form
        ... def shown(expression: nw.Expr) -> list[str]:
        ...     return [repr(expression)]
        >>> shown(nw.col("v") + 1) is shown(nw.col("v") + 1), shown(nw.col("v") + 1) is shown(nw.col("v") + 1.0)
        (True, False)
    """
    kept = functools.lru_cache(maxsize=1 << 13)(lambda given: found(*given.arguments, **given.named))

    @functools.wraps(found)
    def known(*arguments: Any, **named: Any) -> T:
        try:
            form = *map(_form, arguments), *named, *map(_form, named.values())
        except _UnknownFormError:
            return found(*arguments, **named)
        return kept(_WrittenAlike(form, arguments, named))

    return known


def _form(value: Any) -> Hashable:
    kind = type(value)
    if isinstance(value, str) and kind is str:
        return value
    if isinstance(value, nw.Expr):
        return _expression_form(value)
    if kind is tuple or kind is list:
        return kind, *map(_form, value)
    if isinstance(value, pa.Schema):
        return _schema_form(value)
    if isinstance(value, _BY_REPR):
        return kind, repr(value)
    if isinstance(value, type | pl.DataType):
        return value
    raise _UnknownFormError


@once_for_each_object
def _expression_form(expression: nw.Expr) -> Hashable:
    return tuple(map(_node_form, expression._nodes))  # noqa: SLF001  (see `gpu_ops.plan.expressions`)


@once_for_each_object
def _schema_form(schema: pa.Schema) -> Hashable:
    return pa.Schema, schema.serialize().to_pybytes()


def _node_form(node: Any) -> Hashable:
    # Kinds are members of an enumeration; to hash one costs more than all else.
    said: Sequence[Any] = [each for pair in node.kwargs.items() for each in pair]
    own: tuple[Hashable, ...] = (id(node.kind), node.name, node.str_as_lit, node.allow_multi_output)
    return *own, *map(_form, node.exprs), None, *map(_form, said)


def own_name(expression: nw.Expr) -> str | None:
    """The name of an expression's column, where it is an alias or that of the column that it begins with; else None."""
    first, *rest = expression._nodes  # noqa: SLF001
    if rest and rest[-1].name == "alias":
        return str(rest[-1].kwargs["name"])
    if first.kind.name == "COL" and not any(each.name.startswith("name.") for each in rest):
        return str(first.kwargs["names"][0])
    return None


def remade(node: Any, operands: Sequence[Any]) -> Any:
    """The same node of an expression with other operands."""
    options = {"str_as_lit": node.str_as_lit, "allow_multi_output": node.allow_multi_output}
    return type(node)(node.kind, node.name, exprs=tuple(operands), **options, **node.kwargs)
