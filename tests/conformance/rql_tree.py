"""What a query in RQL says, as a plain structure: the expressions in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True)
class Literal:
    """A number, a text, a truth value or null."""

    value: Any


@dataclass(frozen=True)
class Name:
    """A property of the event, or a stream's or column's name."""

    name: str


@dataclass(frozen=True)
class Star:
    """All properties: the event itself."""


@dataclass(frozen=True)
class Ordered:
    """An expression to sort by."""

    expression: Expression
    descending: bool


@dataclass(frozen=True)
class Call:
    """A function or, behind a dot, a method of what ``of`` gives; options are named parameters."""

    name: str
    arguments: tuple[Expression, ...] = ()
    options: tuple[tuple[str, tuple[Expression, ...]], ...] = ()
    distinct: bool = False
    of: Expression | None = None


@dataclass(frozen=True)
class Operation:
    """An operator and what it works on."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Case:
    """The value of the first condition that holds, else ``otherwise``."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


Expression = Literal | Name | Star | Ordered | Call | Operation | Case


def parts(expression: Expression, *, stop: Callable[[Expression], bool] = lambda _: False) -> Iterator[Expression]:
    """An expression and all within it; not what is within one that ``stop`` holds for."""
    yield expression
    if not stop(expression):
        for inner in _children(expression):
            yield from parts(inner, stop=stop)


def _children(value: Any) -> Iterator[Expression]:
    if is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in fields(value))
    for inner in value if isinstance(value, tuple) else ():
        if is_dataclass(inner):
            yield inner  # type: ignore[misc]
        else:
            yield from _children(inner)
