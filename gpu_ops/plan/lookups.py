"""Lookups: what a sub-query's windows hold when each row of the query around asks, as further columns of the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from gpu_ops.core.turns import PLACE
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.joins import On
from gpu_ops.plan.nodes import Ends, Node


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

    @cached_property
    def schema(self) -> pa.Schema:
        made = [each.aggregate.field(self.content.schema).with_nullable(True) for each in self.looked]
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

    time_rule = "the older CTI of both inputs leaves"

    collects = True

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(each.schema.names) for each in self.inputs]

    def describe(self) -> str:
        return f"Lookup {'before ' * self.before}{', '.join(map(str, self.looked))}"
