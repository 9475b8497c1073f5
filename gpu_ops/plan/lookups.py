"""Lookups: what a sub-query's windows hold when each row of the query around asks, as further columns of the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.expression_text import line_text
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.joins import On
from gpu_ops.plan.nodes import Ends, Feed, Filter, Node, extended
from gpu_ops.plan.splits import Split, matched

ASKING = "@asking"
"""The column of pairs with the number of the row that asks (int64)."""


@dataclass(frozen=True)
class Looked:
    """An aggregate of the rows that are held.

    Attributes:
        aggregate: The aggregate, over plain columns; its name is that of the column.
        on: Which rows it is over: those that equal the asking row in pairs (its column, theirs). Null equals null.
    """

    aggregate: Aggregate
    on: On = ()

    def __str__(self) -> str:
        on = ", ".join(f"{outer}={inner}" for outer, inner in self.on)
        return f"{self.aggregate}{f' where {on}' if on else ''}"


@dataclass(frozen=True, eq=False)
class Lookup(Node):
    """Rows with aggregates of what is held at their places (Esper: sub-queries). Where nothing is, these are null.

    What enters and leaves at a row's place has done so already; with ``before`` it has not.

    Attributes:
        content: The rows that are held, on turns.
        rows: The rows that ask: points on turns.
        looked: The aggregates.
        before: Whether they are of what is held before the rows' places.
    """

    content: Node
    rows: Node
    looked: tuple[Looked, ...]
    before: bool = False

    def __post_init__(self) -> None:
        if PLACE not in self.content.schema.names:
            raise PlanError(f"A lookup needs rows on turns, and these have no column {PLACE!r}.", remedy="")
        for each in self.looked:
            for outer, inner in each.on:
                types = [node.schema.field(name).type for node, name in ((self.rows, outer), (self.content, inner))]
                if types[0] != types[1]:
                    raise PlanError(
                        f"A lookup compares {outer!r}, which is {types[0]}, with {inner!r}, which is {types[1]}.",
                        remedy="Cast one of them first.",
                    )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.content, self.rows

    def over(self, *inputs: Node) -> Node:
        content, rows = inputs
        return replace(self, content=content, rows=rows)

    @property
    def folded(self) -> pa.Schema:
        """The columns that the aggregates read."""
        return self.content.schema

    @cached_property
    def schema(self) -> pa.Schema:
        made = [each.aggregate.field(self.folded).with_nullable(True) for each in self.looked]
        return pa.schema([*self.rows.schema, *made])

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.rows.key

    @cached_property
    def zone(self) -> str:
        return self.rows.zone

    @cached_property
    def duration(self) -> int | None:
        return self.rows.duration

    stateless = False

    def ends(self, at: int) -> Ends:
        return "later"

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        content, rows = below
        names = self.rows.schema.names
        for pairs in self._pairs:
            rows = matched(
                rows,
                content,
                pairs,
                "A sub-query without an equal column by which its windows are grouped",
                (names, ()),
            )
        return rows

    @property
    def _pairs(self) -> Sequence[On]:
        """For each of its aggregates which columns are equal: of a row that asks, and of those that are held."""
        return [each.on for each in self.looked]

    time_rule = "the older CTI of both inputs leaves"

    collects = True

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(each.schema.names) for each in self.inputs]

    @property
    def decisive(self) -> frozenset[str]:
        read = {name for each in self.looked for one in each.aggregate.reads for name in self._named(one)}
        return frozenset({PLACE, *read, *(name for pairs in self._pairs for pair in pairs for name in pair)})

    def _named(self, expression: nw.Expr) -> list[str]:
        return column_names(expression, self.content.schema.names)

    def describe(self) -> str:
        return f"Lookup {'before ' * self.before}{', '.join(map(str, self.looked))}"


@dataclass(frozen=True)
class PairGroups:
    """Groups of the pairs of a row that asks (Esper: sub-queries with `group by`).

    Attributes:
        keys: The columns of pairs by which they are grouped.
        aggregates: The aggregates of each group, over plain columns of pairs.
        condition: What holds for a group that counts (`having`), over the keys, the aggregates and the columns of the
            row that asks; None for nothing.
        columns: Further columns of groups, over the same.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    condition: nw.Expr | None = None
    columns: tuple[nw.Expr, ...] = ()

    def __str__(self) -> str:
        having = "" if self.condition is None else f" having {line_text(self.condition)}"
        return f"by {', '.join(self.keys)} agg {', '.join(map(str, self.aggregates))}{having}"


@dataclass(frozen=True, eq=False)
class PairLookup(Lookup):
    """The same where rows meet by a condition: the aggregates are over the pairs of each row that asks.

    Attributes:
        on: Pairs of columns (of the rows that ask, of those that are held) that are equal in each pair.
        condition: What else holds in each pair, over the columns of both; None for nothing.
        columns: Further columns of pairs, over those of both.
        groups: Groups of pairs, if the aggregates are over these and not over pairs.
    """

    on: On = ()
    condition: nw.Expr | None = None
    columns: tuple[nw.Expr, ...] = ()
    groups: PairGroups | None = None

    @property
    def _pairs(self) -> Sequence[On]:
        return [self.on]

    @property
    def decisive(self) -> frozenset[str]:
        return frozenset(name for names in self.needs(()) for name in names)

    @cached_property
    def paired(self) -> tuple[str, ...]:
        """The columns of the asking row that are in a pair: of two with one name the held row's is."""
        return tuple(name for name in self.rows.schema.names if name not in self.content.schema.names)

    @cached_property
    def pairs(self) -> Node:
        """What becomes of pairs, over a leaf that gives them as points."""
        fields = [*(self.rows.schema.field(name) for name in self.paired), *self.content.schema]
        node: Node = Feed(pa.schema([*fields, (ASKING, pa.int64())]), (), TICK)
        return extended(node if self.condition is None else Filter(node, self.condition), self.columns)

    @cached_property
    def of_groups(self) -> Node | None:
        """What becomes of groups, over a leaf that gives them as points; None without groups."""
        if self.groups is None:
            return None
        groups, before = self.groups, self.pairs.schema
        fields = [before.field(name) for name in (*self.paired, *groups.keys)]
        made = [each.field(before).with_nullable(True) for each in groups.aggregates]
        node: Node = Feed(pa.schema([*fields, *made, (ASKING, pa.int64())]), (), TICK)
        return extended(node if groups.condition is None else Filter(node, groups.condition), groups.columns)

    @property
    def folded(self) -> pa.Schema:
        return (self.of_groups or self.pairs).schema

    def describe(self) -> str:
        on = ", ".join(f"{outer}={inner}" for outer, inner in self.on)
        where = "" if self.condition is None else f" where {line_text(self.condition)}"
        groups = "" if self.groups is None else f"groups {self.groups} of "
        return f"{super().describe()} of {groups}pairs{f' on {on}' if on else ''}{where}"
