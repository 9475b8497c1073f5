"""Alerts: patterns of rows in several partitions that have a value in common (StreamCruncher: alert … when present)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.cycles import InCycles
from gpu_ops.plan.nodes import Ends, Node, check_known

MOST_SOURCES = 62
"""So many partitions an alert can have."""


@dataclass(frozen=True)
class Present:
    """A pattern.

    Attributes:
        wanted: The numbers of the partitions that have to have a row.
        absent: Those that must not.
    """

    wanted: tuple[int, ...]
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class ShownColumn:
    """A column of an alert.

    Attributes:
        name: What it is called.
        source: The number of the partition that it comes from.
        column: Its name there.
    """

    name: str
    source: int
    column: str


@dataclass(frozen=True, eq=False)
class Alerts(InCycles):
    """A point where a pattern fires, for each value.

    Attributes:
        sources: The rows of partitions, which live from cycle to cycle.
        called: What errors call them.
        on: The column of each whose values are compared; null equals nothing.
        patterns: The patterns.
        columns: The columns: null of partitions of which the pattern wants no row.
    """

    sources: tuple[Node, ...]
    called: tuple[str, ...]
    on: tuple[str, ...]
    patterns: tuple[Present, ...]
    columns: tuple[ShownColumn, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.sources) <= MOST_SOURCES:
            raise PlanError(f"An alert is about 2 to {MOST_SOURCES} partitions.", remedy="Name another one.")
        for node, column in zip(self.sources, self.on, strict=True):
            check_known(node.schema, [column])
        types = [node.schema.field(column).type for node, column in zip(self.sources, self.on, strict=True)]
        for name, column, dtype in zip(self.called, self.on, types, strict=True):
            if dtype != types[0]:
                raise ColumnError(
                    f"It is {dtype} of {name!r}, and {types[0]} of {self.called[0]!r}: they are compared.",
                    column=column,
                    remedy="Cast one of them first.",
                )
        for pattern in self.patterns:
            every = (*pattern.wanted, *pattern.absent)
            if not pattern.wanted or len(every) < 2 or len({*every}) < len(every):
                raise PlanError(
                    "A pattern is about two partitions at least, each named once, and wants a row of one.",
                    remedy="Name one more.",
                )
        if not self.patterns:
            raise PlanError("An alert needs a pattern.", remedy="Say when it fires.")
        names = [each.name for each in self.columns]
        if not names:
            raise PlanError("An alert needs a column.", remedy="Name one.")
        for each in self.columns:
            check_known(self.sources[each.source].schema, [each.column])
            if names.count(each.name) > 1:
                raise ColumnError("Two columns of an alert have this name.", column=each.name, remedy="Rename one.")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sources

    def over(self, *inputs: Node) -> Node:
        return replace(self, sources=inputs)

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [self.sources[each.source].schema.field(each.column).with_name(each.name) for each in self.columns]
        return pa.schema([each.with_nullable(True) for each in fields])

    duration: ClassVar[int | None] = TICK
    takes_ends: ClassVar[Ends] = "later"
    time_rule = "the oldest CTI leaves"
    held = "rows that are in, one for each value"

    def kept(self, at: int) -> tuple[str, ...]:
        """The columns of a partition that it keeps."""
        read = {self.on[at], PLACE, *(each.column for each in self.columns if each.source == at)}
        return tuple(name for name in self.sources[at].schema.names if name in read)

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [self.kept(at) for at in range(len(self.sources))]

    def describe(self) -> str:
        patterns = (
            " and ".join([*(self.called[at] for at in each.wanted), *(f"not {self.called[at]}" for at in each.absent)])
            for each in self.patterns
        )
        return f"Alerts present({') or present('.join(patterns)}) on {', '.join(self.on)}"
