"""What users send: rows and times, as tables and as milliseconds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.epl.binding.types import type_name
from gpu_ops.errors import ColumnError, PlanError, shown

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def milliseconds(time: int | dt.datetime) -> int:
    """A time as milliseconds since 1970.

    Raises:
        PlanError: It is no time, or has no zone.
    """
    if isinstance(time, dt.datetime):
        if time.tzinfo is None:
            raise PlanError("The clock has no local time.", remedy="Give a datetime with a zone.")
        return (time - _EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(time, bool) or not isinstance(time, int | np.integer):
        raise PlanError(f"A time is {shown(time)}.", remedy="Give milliseconds since 1970, or an aware datetime.")
    return int(time)


def arrival_times(at: Any, count: int, clock: int) -> Any:
    """int64 milliseconds at which some rows come.

    Args:
        at: The times of the rows: integers, or timestamps, as an array.
        count: How many rows there are.
        clock: What the clock shows, in milliseconds.

    Raises:
        PlanError: These are no times of these rows, or they go back.
    """
    try:
        given = at.combine_chunks() if isinstance(at, pa.ChunkedArray) else pa.array(at)
        if pa.types.is_timestamp(given.type):
            given = given.cast(pa.timestamp("ms", given.type.tz))
        times = given.cast(pa.int64())
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(
            f"at has no times: {error}", remedy="Give milliseconds since 1970, or timestamps, one for each row."
        ) from error
    if len(times) != count:
        raise PlanError(f"at has {len(times):,} times for {count:,} rows.", remedy="Give one for each row.")
    if times.null_count:
        row = pc.index(times.is_null(), value=True).as_py()
        raise PlanError(f"at has no time for row {row}.", remedy="Give one for each row.")
    found = times.to_numpy()
    back = np.flatnonzero(found < np.concatenate([[clock], found[:-1]]))
    if len(back):
        row = int(back[0])
        before = f"The clock shows {clock}" if row == 0 else f"Row {row - 1} comes at {found[row - 1]}"
        raise PlanError(f"{before}, row {row} at {found[row]}, which is earlier.", remedy="Sort the rows by time.")
    return found


def table_of(rows: Any, schema: pa.Schema, *, missing: bool = False) -> pa.Table:
    """Rows as a table of a schema.

    Raises:
        ColumnError: A column is missing or unknown, or a value is of another type.
        PlanError: These are no rows.
    """
    if isinstance(rows, Mapping) and not _has_columns(rows, schema):
        rows = [rows]
    if isinstance(rows, list):
        return _of_rows(rows, schema)
    try:
        given = rows if isinstance(rows, pa.Table) else pa.table(rows)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(
            f"These are no rows: {type(rows).__name__}.", remedy="Give a mapping, a list of mappings, or a table."
        ) from error
    columns = []
    for each in schema:
        if each.name in given.column_names:
            try:
                columns.append(given[each.name].cast(each.type))
            except pa.ArrowException as error:
                raise ColumnError(
                    f"Its values are no {each.type}: {error}", column=each.name, remedy="Cast them."
                ) from error
        elif missing:
            columns.append(pa.nulls(len(given), each.type))
        else:
            raise ColumnError("The events lack a property.", column=each.name, remedy="Give it, or null.")
    return pa.table(columns, schema)


def _has_columns(rows: Mapping[str, Any], schema: pa.Schema) -> bool:
    """Whether a mapping has columns, and not the values of one row."""
    plain = (each for name, each in rows.items() if name not in schema.names or not _is_list(schema.field(name).type))
    return any(isinstance(each, list | pa.Array | pa.ChunkedArray | np.ndarray) for each in plain)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype))


def _of_rows(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """A table of mappings; what one has not is null."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise PlanError(f"Row {number} is {shown(row)}.", remedy="Give each event as a mapping.")
        for name in row:
            if name not in schema.names:
                raise ColumnError(
                    "An event has no such property.",
                    column=str(name),
                    row=number,
                    remedy=f"It has: {', '.join(schema.names)}.",
                )
    columns = []
    for each in schema:
        values = [row.get(each.name) for row in rows]
        try:
            columns.append(pa.array(values, each.type))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            at = next(at for at, value in enumerate(values) if not _fits(value, each.type))
            raise ColumnError(
                f"{shown(values[at])} is no {type_name(each.type)}.", column=each.name, row=at, remedy="Mend the row."
            ) from error
    return pa.table(columns, schema)


def _fits(value: Any, dtype: pa.DataType) -> bool:
    try:
        pa.array([value], dtype)
    except (pa.ArrowException, TypeError, OverflowError):
        return False
    return True
