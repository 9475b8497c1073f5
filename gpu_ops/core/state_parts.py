"""The parts of a table of a state: rows that never change, under a name; which of them are wanted, and what changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import in_one, integers, nulls, to_arrow
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


ROW = "row"
"""The column of the places of rows in their part."""


@dataclass(frozen=True)
class NewerValues:
    """Newer values of some rows of a part: these never change either.

    Attributes:
        name: A name that no other values and no rows have, had or will have.
        rows: Gives `ROW`, the places of the rows in the part (uint32, ascending), and the newer values of some columns.
    """

    name: str
    rows: Callable[[], pa.Table]


@dataclass(frozen=True)
class StatePart:
    """Some rows of a table of a state. The table is the wanted rows of its parts, one part after the other.

    Attributes:
        rows: Gives all the rows, wanted or not, as they were at first.
        name: A name that no other rows have, had or will have; None for rows that are not kept apart from the others,
            and may be others at the next step.
        passed: How many rows at the beginning are not wanted.
        beyond: Which of the others are wanted by their places; None for all.
        gone: Which rows are not wanted in any case, a bool for each; None for none.
        changed: Newer values, the newest last.
        is_sound: Whether these rows were restored from the same file before, and were what their table asks for: then
            they are not looked at again.

    Examples:
        >>> part = StatePart(lambda: pa.table({"n": [1, 2, 3]}), "r1", passed=1, gone=np.array([False, False, True]))
        >>> part.wanted()["n"].to_pylist()
        [2]
    """

    rows: Callable[[], pa.Table]
    name: str | None = None
    passed: int = 0
    beyond: Beyond | None = None
    gone: Any | None = None
    is_sound: bool = False
    changed: Sequence[NewerValues] = ()

    @classmethod
    def of(cls, table: pa.Table) -> StatePart:
        """A whole table of this moment."""
        return cls(lambda: table)

    def wanted(self) -> pa.Table:
        """The rows that are wanted."""
        rows = with_changes(self.rows(), [each.rows() for each in self.changed])
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

    def doubtful(self) -> pa.Table:
        """The rows that are to be looked at when it is restored: those that are wanted; of sound ones what changed."""
        if not self.is_sound:
            return self.wanted()
        rows = self.rows()
        if not self.changed:
            return rows.slice(0, 0)
        tables = [each.rows() for each in self.changed]
        at = np.unique(np.concatenate([integers(in_one(each[ROW])).view(np.uint32) for each in tables]))
        among = [each.set_column(0, ROW, _places(np.searchsorted(at, each[ROW].to_numpy()))) for each in tables]
        return with_changes(rows.take(_places(at)), among)


def with_changes(rows: pa.Table, changed: Sequence[pa.Table]) -> pa.Table:
    """Rows with newer values of some of them.

    Args:
        rows: The rows.
        changed: As `NewerValues.rows` gives them, the newest last.

    Examples:
        >>> newer = pa.table({"row": pa.array([1], pa.uint32()), "n": [5]})
        >>> with_changes(pa.table({"n": [1, 2, 3]}), [newer])["n"].to_pylist()
        [1, 5, 3]
    """
    names = dict.fromkeys(name for table in changed for name in table.column_names if name != ROW)
    places = [integers(in_one(table[ROW])).view(np.uint32) for table in changed]
    for name in names:
        kind, arrays = rows.schema.field(name), [in_one(each[name]) for each in (rows, *changed)]
        if _is_plain(kind.type) and not any(each.null_count for each in arrays):
            values = integers(arrays[0]).copy()
            for at, newer in zip(places, arrays[1:], strict=True):
                values[at] = integers(newer)
            made = to_arrow(values, kind.type)
        else:
            which, begin = np.arange(rows.num_rows), rows.num_rows
            for at in places:
                which[at] = np.arange(begin, begin + len(at))
                begin += len(at)
            made = pa.concat_arrays(arrays).take(pa.array(which))
        rows = rows.set_column(rows.schema.get_field_index(name), kind, made)
    return rows


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values are stored as integers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _places(at: Any) -> pa.Array:
    return to_arrow(at.astype(np.uint32), pa.uint32())


Parts = Mapping[str, Sequence[StatePart]]
"""A state: the parts of its tables, by the names of the tables."""


def doubtful(parts: Parts, entire: Collection[str] = ()) -> dict[str, pa.Table]:
    """The tables that parts make up, without the rows that are known to be sound.

    Args:
        parts: The parts.
        entire: The tables of which all rows are wanted.
    """
    return {
        name: joined([part.wanted() if name in entire else part.doubtful() for part in each])
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
