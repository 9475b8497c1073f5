"""Aggregates of aggregates: what counts and sums were as each row entered and left, summed up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from gpu_ops.core.turns import PLACE
from gpu_ops.errors import ColumnError
from gpu_ops.plan.joins import On
from gpu_ops.plan.lookups import Lookup


@dataclass(frozen=True)
class NestedAggregate:
    """The values that an aggregate of a group has had, one for each row that entered, less those for rows that left.

    Attributes:
        name: What its columns begin with.
        column: The whole numbers that the inner aggregate sums; None if it counts rows.
        counts: Whether the inner aggregate counts the values that are not null, and does not sum them.
    """

    name: str
    column: str | None = None
    counts: bool = False

    @property
    def total(self) -> str:
        """The column with the sum of its values (int64)."""
        return f"{self.name} total"

    @property
    def count(self) -> str:
        """The column with their number (int64): a sum of nothing is null and does not count."""
        return f"{self.name} count"

    def __str__(self) -> str:
        return f"{'count' if self.counts or self.column is None else 'sum'}({self.column or '*'})"


@dataclass(frozen=True, eq=False)
class NestedAggregates(Lookup):
    """Rows with aggregates of aggregates of their groups, behind all that happens at their places (Esper: avg(count(*))).

    Rows enter one after the other, in the order of their arrival, and then others leave. Each adds what the inner aggregate
    is then; one that leaves takes that off. A group that all rows have left begins anew.

    Attributes:
        keys: The columns of the groups, of the rows that are held and of those that ask.
        nested: The aggregates.
    """  # noqa: E501

    keys: tuple[str, ...] = ()
    nested: tuple[NestedAggregate, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for each in self.nested:
            if each.column is not None and not each.counts:
                dtype = self.content.schema.field(each.column).type
                if not pa.types.is_signed_integer(dtype):
                    raise ColumnError(f"Sums of {dtype} are not aggregated again.", column=each.column, remedy="")

    @cached_property
    def schema(self) -> pa.Schema:
        made = [(name, pa.int64()) for each in self.nested for name in (each.total, each.count)]
        return pa.schema([*self.rows.schema, *(pa.field(*each) for each in made)])

    @property
    def _pairs(self) -> Sequence[On]:
        return [tuple((name, name) for name in self.keys)]

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {PLACE, *self.keys, *(each.column for each in self.nested)}
        return [tuple(name for name in self.content.schema.names if name in read), tuple(self.rows.schema.names)]

    def describe(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"NestedAggregates of {', '.join(map(str, self.nested))}{by}"
