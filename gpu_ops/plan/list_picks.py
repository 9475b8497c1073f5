"""Picks: what methods of lists find in a list of each row, as one more column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import pyarrow as pa

from gpu_ops.errors import ColumnError
from gpu_ops.plan.nodes import Unary
from gpu_ops.plan.splits import Split

Found: TypeAlias = Literal["element", "elements", "key", "keys", "count", "there"]
"""What is found: an element, several of them, the key of one, the number of keys, that of elements, or whether any."""

Place: TypeAlias = Literal["first", "last", "floor", "ceiling", "lower", "higher", "equal", "between", "at", "from end"]
"""Where it is looked for: an end of the list, beside a key, between two keys, or at an index."""


@dataclass(frozen=True, eq=False)
class ListPick(Unary):
    """Rows with one more column: what is found in the list of each.

    The elements of a list stand in the order of their keys; those of one key are next to each other. A list that is
    null has no elements. A row that finds no element has null; a row that finds none of several an empty list.

    Attributes:
        column: The column with the lists.
        place: Where it is looked for.
        found: What is found.
        keys: The fields of an element that are its keys; nothing where the order is none of keys.
        descending: Whether greater keys come first.
        arguments: The columns with a key, with two bounds (each a key, and a bool whether it counts), or with an index.
        name: The name of the column that is made.
    """

    column: str
    place: Place
    found: Found
    keys: tuple[str, ...]
    descending: bool
    arguments: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        dtype = self.input.schema.field(self.column).type
        if not pa.types.is_list(dtype):
            raise ColumnError(f"There are no elements of {dtype}.", column=self.column, remedy="Pick from lists.")

    @cached_property
    def schema(self) -> pa.Schema:
        return self.input.schema.append(pa.field(self.name, self.type))

    @property
    def type(self) -> pa.DataType:
        """The type of what is found."""
        lists = self.input.schema.field(self.column).type
        if self.found == "key":
            return lists.value_type.field(self.keys[0]).type
        types = {"element": lists.value_type, "elements": lists, "there": pa.bool_()}
        return types.get(self.found, pa.int32())

    takes_ends = "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {*wanted, self.column, *self.arguments}
        return [tuple(name for name in self.input.schema.names if name in read)]

    def split(self, below: Sequence[Split]) -> Split:
        return below[0]

    def describe(self) -> str:
        given = ", ".join(self.arguments)
        return f"ListPick {self.name}={self.column}: {self.found} {self.place}{f' {given}' if given else ''}"
