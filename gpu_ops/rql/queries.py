"""What a query in StreamCruncher's language says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_ops.texts.expressions import Expression, Syntax

Status: TypeAlias = Literal["new", "dead", "not dead"]
SetWord: TypeAlias = Literal["union", "minus", "intersect"]


@dataclass(frozen=True)
class RowStatus(Expression):
    """`alias.$row_status is new`: which rows of a partition; within a chain it has no alias."""

    level = 6
    alias: str
    status: Status

    def __str__(self) -> str:
        return f"{self.alias}{'.' * bool(self.alias)}$row_status is {self.status}"


@dataclass(frozen=True)
class InnerQuery(Expression):
    """A query in parentheses, for its only value, or behind `in` for its values."""

    in_parentheses = True
    query: CycleQuery

    def __str__(self) -> str:
        return "(select …)"


@dataclass(frozen=True)
class QueryHasRows(Expression):
    """`exists (select …)`."""

    query: CycleQuery

    def __str__(self) -> str:
        return "exists (select …)"


# Partitions


@dataclass(frozen=True)
class Stored(Syntax):
    """What a window of a partition keeps.

    Attributes:
        kind: `last N`, `last N seconds` (a span), `latest N`, `random N`, `highest N` or `lowest N`.
        count: How many rows; of a span the most, None for any number.
        span: The length of a span in milliseconds; 0 for windows of rows.
        using: The column that says which rows are the highest.
        update: The columns of the update group: a row takes the place of one that has the same values.
        provider: Who says the size for each key; nothing for nobody.
    """

    kind: Literal["last", "span", "latest", "random", "highest", "lowest"]
    count: int | None
    span: int = 0
    using: str = ""
    update: tuple[str, ...] = ()
    provider: str = ""


@dataclass(frozen=True)
class StoredAggregate(Syntax):
    """An aggregate of each window of a partition: `count(id $diff 'name') entrance only as n`.

    Attributes:
        function: Its name; of `custom(name, …)` the registered name.
        column: Of which column; nothing for a custom one.
        alias: What the result is called.
        diff: Whether it is the difference from a baseline.
        baseline: Who says the baseline; nothing for the value before.
        entrance_only: Whether rows that leave are still counted.
        custom: Whether it is a custom one.
        arguments: The further arguments of a custom one.
    """

    function: str
    column: str
    alias: str
    diff: bool = False
    baseline: str = ""
    entrance_only: bool = False
    custom: bool = False
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class StagePartition(Syntax):
    """`(partition by columns store … with … where …)`: a window for each key, and aggregates of each."""

    by: tuple[str, ...]
    stored: Stored
    aggregates: tuple[StoredAggregate, ...] = ()
    pinned: bool = False
    where: Expression | None = None


# What is selected from


@dataclass(frozen=True)
class StreamTable(Syntax):
    """A stream through one partition, or a chain of them."""

    stream: str
    stages: tuple[StagePartition, ...]
    alias: str


@dataclass(frozen=True)
class PlainTable(Syntax):
    """A table whose rows stand still between two changes."""

    name: str
    alias: str


@dataclass(frozen=True)
class SelfTable(Syntax):
    """`self#of as alias`: the rows of a partition once more."""

    of: str
    alias: str


@dataclass(frozen=True)
class QueryTable(Syntax):
    """A query that is selected from."""

    query: CycleQuery
    alias: str


SourceTable: TypeAlias = StreamTable | PlainTable | SelfTable | QueryTable


@dataclass(frozen=True)
class JoinedTable(Syntax):
    """A further table of a from clause; behind a comma it is a cross join."""

    kind: Literal["cross", "inner", "left", "right", "full"]
    table: SourceTable
    on: Expression | None = None


@dataclass(frozen=True)
class JoinedTables(Syntax):
    """A from clause over tables."""

    first: SourceTable
    joins: tuple[JoinedTable, ...] = ()

    @property
    def tables(self) -> tuple[SourceTable, ...]:
        """All of them."""
        return self.first, *(each.table for each in self.joins)


@dataclass(frozen=True)
class ProjectedColumn(Syntax):
    """`alias.column as name`, of an alert."""

    alias: str
    column: str
    name: str


@dataclass(frozen=True)
class CorrelatedStream(Syntax):
    """`stream (partition …) as alias correlate on column`."""

    table: StreamTable
    column: str


@dataclass(frozen=True)
class PresentTerm(Syntax):
    """`alias`, or `not alias`."""

    alias: str
    present: bool


@dataclass(frozen=True)
class PresentPattern(Syntax):
    """`present(a and b and not c)`."""

    terms: tuple[PresentTerm, ...]


@dataclass(frozen=True)
class AlertSource(Syntax):
    """`alert … using … when …`: an event wherever one of the patterns of several streams fires."""

    columns: tuple[ProjectedColumn, ...]
    streams: tuple[CorrelatedStream, ...]
    patterns: tuple[PresentPattern, ...]


# Queries


@dataclass(frozen=True)
class ShownItem(Syntax):
    """A column of a select clause: an expression and its name if it has one; None for `*`, or for `of.*`."""

    expression: Expression | None
    alias: str = ""
    of: str = ""


@dataclass(frozen=True)
class OrderKey(Syntax):
    """What the rows of a cycle are ordered by; null is the least value where `nulls first` or `last` is not said."""

    expression: Expression
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True)
class OneSelect(Syntax):
    """A select clause and what it is over."""

    items: tuple[ShownItem, ...]
    source: JoinedTables | AlertSource
    first: int | None = None
    distinct: bool = False
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    having: Expression | None = None


@dataclass(frozen=True)
class FurtherSelect(Syntax):
    """`union all select …`: a further select, and how its rows and those before go together."""

    word: SetWord
    keeps_equal: bool
    select: OneSelect


@dataclass(frozen=True)
class CycleQuery(Syntax):
    """A query: selects, from left to right, in which order the rows of a cycle stand, and how many of them.

    Attributes:
        select: The first select.
        further: The others.
        order_by: In which order.
        limit: How many rows of a cycle; None for all.
        offset: How many are left out before them.
    """

    select: OneSelect
    further: tuple[FurtherSelect, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int = 0
