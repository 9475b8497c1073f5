"""Methods of lists that ask something of each element, as one more column of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from gpu_ops.errors import ColumnError
from gpu_ops.plan.nodes import Project, Unary
from gpu_ops.plan.splits import Split

ELEMENT, INDEX, SIZE = "@element", "@index", "@size"
"""The columns of elements: the element, its place in its list from 0 on, how many elements that has (both int32)."""

VALUE = "@value"
"""What a function gives for an element."""


@dataclass(frozen=True, eq=False)
class ListMethod(Unary):
    """Rows with one more column: what a method of lists (Esper's enumeration methods) makes of the list of each.

    A list that is null gives null, or is one without elements where ``absent`` says so.

    Attributes:
        column: The column with the lists.
        method: The method, in small letters, such as ``"where"``.
        elements: What the function gives for each element, as the column `VALUE`: over a leaf with the columns of
            elements, and those of the row that it reads. None where the element itself is asked.
        argument: The column with a number of elements or another list; nothing if the method takes none.
        type: The type of what the method gives.
        name: The name of the column that is made.
        absent: Whether a list that is null has no elements.
    """

    column: str
    method: str
    elements: Project | None
    argument: str
    type: pa.DataType
    name: str
    absent: bool = False

    def __post_init__(self) -> None:
        dtype = self.input.schema.field(self.column).type
        if not pa.types.is_list(dtype):
            raise ColumnError(f"There are no elements of {dtype}.", column=self.column, remedy="Ask it of lists.")

    @cached_property
    def schema(self) -> pa.Schema:
        return self.input.schema.append(pa.field(self.name, self.type))

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The columns of the row that the function reads."""
        if self.elements is None:
            return ()
        return tuple(name for name in self.elements.input.schema.names if name not in {ELEMENT, INDEX, SIZE})

    takes_ends = "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, self.column, self.argument, *self.outer}
        return [tuple(name for name in self.input.schema.names if name in read)]

    def split(self, below: Sequence[Split]) -> Split:
        return below[0]

    def describe(self) -> str:
        given = "" if self.elements is None else self.elements.describe()
        return f"ListMethod {self.name}={self.column}.{self.method}({self.argument or given})"
