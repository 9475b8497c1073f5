"""Nodes that look into a list, or make several events of one: the rows of a list, or copies of the event."""

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


@dataclass(frozen=True, eq=False)
class ElementOf(Unary):
    """Events with a further column: the element of a list at a place that a column says.

    It is null where the list has no such place: the first one is 0.

    Attributes:
        column: The column of lists.
        place: The column of whole numbers.
        name: The name of the element's column.
    """

    column: str
    place: str
    name: str

    @cached_property
    def schema(self) -> pa.Schema:
        lists = self.input.schema.field(self.column).type
        return self.input.schema.append(pa.field(self.name, lists.value_type))

    takes_ends = "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, self.column, self.place}
        return [tuple(name for name in self.input.schema.names if name in read)]

    def describe(self) -> str:
        return f"ElementOf {self.name}={self.column}[{self.place}]"
