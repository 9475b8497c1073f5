"""Declarations that the tables of operators share: places on an axis, groups, and rows of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.operators.aggregates.forms import Columns
from gpu_ops.plan.window_kinds import TimeWindowKind

BEFORE, AFTER = -(1 << 62), 1 << 62
"""Places on the axis for rows that began before a step, and for rows that end after it."""

TIME = Field(TIME_TYPE, least=MIN_TIME, most=MAX_TIME)

NUMBERED_TIME = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)


def extent(window: TimeWindowKind) -> tuple[int, int]:
    """(least, most): bounds of the places on a window's axis in the years 1 to 9999."""
    if window.grid is None:
        return MIN_TIME, MAX_TIME
    return window.grid.around(MIN_TIME)[0] - 2, window.grid.around(MAX_TIME)[1] + 2


def clock(window: TimeWindowKind | None = None) -> StateTable:
    """The table of the time, or the place on a window's axis, up to which results are given."""
    least, most = (MIN_TIME, MAX_TIME) if window is None else (BEFORE, AFTER)
    return StateTable("clock", {"done": Field(pa.int64(), least=least, most=most)}, rows=1, required=True)


def nullable_columns(schema: pa.Schema, prefix: str) -> dict[str, Field]:
    """Columns of some types, in which any value may be null."""
    return {f"{prefix}{each.name}": Field(each.type, nullable=True) for each in schema}


def table_of(columns: Mapping[str, Field], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """A table of some rows, at least one."""
    values = zip(columns.items(), zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(each, field.type) for (name, field), each in values})


def row_columns(
    low: Field,
    high: Field,
    groups: int,
    *,
    first: int = 0,
    columns: Columns | None = None,
    numbers: Mapping[tuple[str, str], Field] | None = None,
    frame: pa.Schema | None = None,
) -> dict[str, Field]:
    """The columns of `Rows.to_arrow`.

    Args:
        low: The place where each begins.
        high: Where it ends.
        groups: One past the greatest number of a group.
        first: The least.
        columns: Arrays that go with rows, of any length; they give the types.
        numbers: Bounds of the values of such arrays.
        frame: The columns of their frame.
    """
    made = {"group": Field(pa.int32(), least=first, most=groups - 1), "low": low, "high": high}
    for (name, form), column in (columns or {}).items():
        for at, part in enumerate(column.arrays):
            made[f"{name}.{form}.{at}"] = Field(_type(part))
        made[f"{name}.{form}.valid"] = Field(pa.bool_(), optional=True)
    for (name, form), each in (numbers or {}).items():
        made[f"{name}.{form}.0"] = each
    made |= {f"{each.name}.frame": Field(each.type, nullable=True) for each in frame or ()}
    return made


def _type(array: Any) -> pa.DataType:
    return pa.bool_() if array.dtype == bool else pa.from_numpy_dtype(array.dtype)
