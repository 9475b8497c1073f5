"""The parts of a table of a state: rows that never change, under a name, and which of them are still wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import in_one, integers, nulls
from gpu_ops.core.state_tables import Tables


@dataclass(frozen=True)
class Beyond:
    """The rows of a part that are wanted: those whose place is above a limit, or not known yet.

    Attributes:
        column: The column of places: integers, or times in ticks. A null is a place that is not known yet.
        limit: The greatest place of a row that is not wanted.
    """

    column: str
    limit: int


@dataclass(frozen=True)
class StatePart:
    """Some rows of a table of a state. The table is the wanted rows of its parts, one part after the other.

    Attributes:
        rows: Gives all the rows, wanted or not.
        name: A name that no other rows have, had or will have; None for rows that are not kept apart from the others,
            and may be others at the next step.
        size: About how many bytes the rows are.
        passed: How many rows at the beginning are not wanted.
        beyond: Which of the others are wanted by their places; None for all.
        gone: Which rows are not wanted in any case, a bool for each; None for none.
        is_sound: Whether these rows were restored from the same file before, and were what their table asks for: then
            they are not looked at again.

    Examples:
        >>> part = StatePart(lambda: pa.table({"n": [1, 2, 3]}), "r1", passed=1, gone=np.array([False, False, True]))
        >>> part.wanted()["n"].to_pylist()
        [2]
    """

    rows: Callable[[], pa.Table]
    name: str | None = None
    size: int = 0
    passed: int = 0
    beyond: Beyond | None = None
    gone: Any | None = None
    is_sound: bool = False

    @classmethod
    def of(cls, table: pa.Table) -> StatePart:
        """A whole table of this moment."""
        return cls(lambda: table, size=table.nbytes)

    def wanted(self) -> pa.Table:
        """The rows that are wanted."""
        rows = self.rows()
        keep = None if self.gone is None else ~self.gone
        if self.beyond is not None:
            places = in_one(rows[self.beyond.column])
            above = integers(places) > self.beyond.limit
            above |= nulls(places) if places.null_count else False
            keep = above if keep is None else keep & above
        if keep is None or keep.all():
            return rows.slice(self.passed)
        keep[: self.passed] = False
        return rows.take(pa.array(np.flatnonzero(keep)))


Parts = Mapping[str, Sequence[StatePart]]
"""A state: the parts of its tables, by the names of the tables."""


def doubtful(parts: Parts) -> dict[str, pa.Table]:
    """The tables that parts make up, without the rows of those that are known to be sound."""
    return {
        name: joined([part.rows().slice(0, 0) if part.is_sound else part.wanted() for part in each])
        for name, each in parts.items()
        if each
    }


def whole(parts: Parts) -> dict[str, pa.Table]:
    """The tables that parts make up; none of no part."""
    return {name: joined([part.wanted() for part in each]) for name, each in parts.items() if each}


def in_parts(tables: Tables) -> dict[str, list[StatePart]]:
    """Tables as parts of this moment."""
    return {name: [StatePart.of(table)] for name, table in tables.items()}


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one after the other; a column of bools that some of them lack is true there.

    Examples:
        >>> joined([pa.table({"n": [1]}), pa.table({"n": [2], "valid": [False]})])["valid"].to_pylist()
        [True, False]
    """
    if len(tables) == 1:
        return tables[0]
    made = pa.concat_tables(tables, promote_options="default")
    for at, name in enumerate(made.column_names):
        if any(name not in each.column_names for each in tables):
            made = made.set_column(at, name, pc.fill_null(made[name], True))
    return made
