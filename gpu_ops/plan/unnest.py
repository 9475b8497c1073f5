"""Nodes that make several events of one: the rows of a list, or copies of the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from gpu_ops.errors import ColumnError
from gpu_ops.plan.nodes import Unary


@dataclass(frozen=True, eq=False)
class Unnest(Unary):
    """An event for each struct in a list column, with the event's lifetime and its other columns."""

    column: str

    @cached_property
    def rows(self) -> pa.Schema:
        """The columns that the structs become."""
        return pa.schema(list(self.input.schema.field(self.column).type.value_type))

    @cached_property
    def schema(self) -> pa.Schema:
        kept = [field for field in self.input.schema if field.name != self.column]
        return pa.schema([*kept, *self.rows])

    takes_ends = "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(self.input.schema.names)]

    def describe(self) -> str:
        return f"Unnest {', '.join(self.rows.names)}"


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """Each event as often as a column of whole numbers says, without that column; never for null, 0 and less."""

    column: str

    def __post_init__(self) -> None:
        dtype = self.input.schema.field(self.column).type
        if not pa.types.is_integer(dtype):
            raise ColumnError(
                f"repeat takes a whole number, not {dtype}.", remedy="Cast it: g.col(…).cast(g.Int64), for instance."
            )

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field in self.input.schema if field.name != self.column])

    takes_ends = "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(self.input.schema.names)]

    def describe(self) -> str:
        return "Repeat"
