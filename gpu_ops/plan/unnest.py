"""Several events of one: rows that a window gave as a list, each as an event of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from gpu_ops.plan.nodes import Unary


@dataclass(frozen=True, eq=False)
class Unnest(Unary):
    """An event for each struct in a column of lists of them, with the event's lifetime and its other columns."""

    column: str

    @cached_property
    def rows(self) -> pa.Schema:
        """The columns that the structs become."""
        return pa.schema(list(self.input.schema.field(self.column).type.value_type))

    @cached_property
    def _schema(self) -> pa.Schema:
        kept = [field for field in self.input.schema if field.name != self.column]
        return pa.schema([*kept, *self.rows])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def describe(self) -> str:
        return f"Unnest {', '.join(self.rows.names)}"
