"""What a query in Esper's language says, as a plain structure: statements and the expressions in them."""

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
class Member:
    """A property of what another expression gives."""

    of: Expression
    name: str


@dataclass(frozen=True)
class Star:
    """All properties: the event itself."""


@dataclass(frozen=True)
class Period:
    """A span of calendar months and milliseconds."""

    months: int
    milliseconds: int


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


Expression = Literal | Name | Member | Star | Period | Ordered | Call | Operation | Case


@dataclass(frozen=True)
class Item:
    """A column of a select clause and its name; `Star` has none."""

    expression: Expression
    name: str


@dataclass(frozen=True)
class View:
    """A data window or another view of a stream."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Statement:
    """One select statement.

    Attributes:
        name: What ``@name`` says.
        selector: ``istream`` (the default), ``rstream`` or ``irstream``.
        distinct: Whether equal rows are shown once.
        items: Its columns.
        event_type: What it reads.
        filters: What events must be to be read.
        views: The stream's views, in their order.
        retain: ``union`` or ``intersection``.
        where: Which events are shown and aggregated.
        levels: By what it groups; several where it rolls up. None where it has no group by.
        having: Which results are shown.
        order: By what each delivery is sorted.
        limit: How many rows of a delivery are shown, and how many are left out before.
        keeps_last: Whether an iterator shows the last event where there is no window.
        into: What its rows are events of as well, if of anything; and which of them, by their selector.
        columns: What the properties of those events are called; empty where they are called as the rows' columns.
    """

    name: str
    selector: str
    distinct: bool
    items: tuple[Item, ...]
    event_type: str
    filters: tuple[Expression, ...]
    views: tuple[View, ...]
    retain: str
    where: Expression | None
    levels: tuple[tuple[Expression, ...], ...] | None
    having: Expression | None
    order: tuple[Ordered, ...]
    limit: tuple[int, int] | None
    keeps_last: bool = False
    into: tuple[str, str] | None = None
    columns: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[Expression, ...]:
        """All expressions that it groups by."""
        return tuple(dict.fromkeys(key for level in self.levels or () for key in level))


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
