"""StreamCruncher's queries as a plain structure, which `rql` reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.conformance.rql_tree import Expression, Operation, Ordered, parts


@dataclass(frozen=True)
class Pick:
    """What a window keeps.

    Attributes:
        kind: "sliding", "tumbling", "time", "random", "highest" or "lowest".
        size: How many rows; None for a window of time without a limit.
        span: How long, in milliseconds; 0 for windows of rows.
        column: What the best are of.
        update: By what a later row takes an earlier one's place.
        provider: Who says the size for each key.
    """

    kind: str
    size: int | None
    span: int = 0
    column: str = ""
    update: tuple[str, ...] = ()
    provider: str | None = None


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate of a partition: a function of a column.

    Attributes:
        function: Its name; "custom" for a function of one's own.
        column: Of what.
        name: What the result is called.
        diff: Whether it is the difference from a baseline.
        baseline: Who says that; the value before if nobody does.
        entrance_only: Whether rows count for good once they came.
    """

    function: str
    column: str
    name: str
    diff: bool = False
    baseline: str | None = None
    entrance_only: bool = False


@dataclass(frozen=True)
class Part:
    """One partition: a window for each key, and aggregates over each."""

    by: tuple[str, ...]
    pick: Pick
    aggregates: tuple[AggregateCall, ...] = ()
    pinned: bool = False
    where: Expression | None = None


@dataclass(frozen=True)
class Table:
    """What is selected from.

    Attributes:
        name: A stream if there are parts, else a table; the alias of another one if ``itself``.
        alias: What its columns are called by.
        parts: The partitions, one behind the other.
        itself: Whether it is another one's rows again.
        select: The query that it is the answer of.
        how: How it is joined with those before it.
        on: What joined rows are to fulfil.
    """

    name: str
    alias: str
    parts: tuple[Part, ...] = ()
    itself: bool = False
    select: Select | None = None
    how: str = "inner"
    on: Expression | None = None


@dataclass(frozen=True)
class Alert:
    """Patterns of streams that have a value in common.

    Attributes:
        columns: Alias, column and name of each column.
        tables: The streams.
        on: For each alias the column that is compared.
        patterns: What fires: aliases and whether each is to be there.
    """

    columns: tuple[tuple[str, str, str], ...]
    tables: tuple[Table, ...]
    on: tuple[tuple[str, str], ...]
    patterns: tuple[tuple[tuple[str, bool], ...], ...]


@dataclass(frozen=True)
class Select:
    """A query. A query within another one has the same parts.

    Attributes:
        items: What it shows, by which names.
        tables: What it selects from.
        alert: Or what it is told by.
        where: Which rows.
        groups: By what it aggregates.
        having: Which groups.
        order: By what each batch is sorted.
        distinct: Whether equal rows are shown once.
        limit: How many rows of a batch.
        offset: How many are left out before.
        others: Other queries, and how their rows and these go together: "union", "union all", "minus", "intersect".
    """

    items: tuple[tuple[Expression, str], ...]
    tables: tuple[Table, ...]
    alert: Alert | None
    where: Expression | None
    groups: tuple[Expression, ...]
    having: Expression | None
    order: tuple[Sorted, ...]
    distinct: bool
    limit: int | None
    offset: int
    others: tuple[tuple[str, Select], ...] = ()


@dataclass(frozen=True)
class Sorted:
    """An expression to sort by; null is the least unless something else is said."""

    by: Ordered
    nulls_first: bool


@dataclass(frozen=True)
class Status:
    """Whether the row of an alias is in a state: "new", "dead" or "not dead"."""

    alias: str
    state: str


@dataclass(frozen=True)
class Inner:
    """A condition about another query: that it has a row, or has this value."""

    select: Select
    value: Expression | None = None


def conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """The conditions that have to hold together."""
    match condition:
        case None:
            return
        case Operation("and", (left, right)):
            yield from conjuncts(left)
            yield from conjuncts(right)
        case _:
            yield condition


def inner_selects(condition: Expression | None) -> list[Select]:
    """The queries within a condition, not those within them."""
    found = [] if condition is None else parts(condition, stop=lambda each: isinstance(each, Inner))
    return [each.select for each in found if isinstance(each, Inner)]
