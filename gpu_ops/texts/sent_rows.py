"""What users send: rows and times, as tables and as milliseconds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from time import time_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import table_copied
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices.cpu.order import extent
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.ingest.turn_numbers import numbered
from gpu_ops.texts.binding.types import type_name

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_FIRST, _LAST = -(-MIN_TIME // 1000), MAX_TIME // 1000
"""The milliseconds that the clock can show, of the years 1 to 9999."""


def milliseconds(time: int | dt.datetime) -> int:
    """A time as milliseconds since 1970.

    Raises:
        PlanError: It is no time, has no zone, or is not in the years 1 to 9999.
    """
    if isinstance(time, dt.datetime):
        if time.tzinfo is None:
            raise PlanError("The clock has no local time.", remedy="Give a datetime with a zone.")
        return (time - _EPOCH) // dt.timedelta(milliseconds=1)
    # NumPy's durations are integers to Python.
    if isinstance(time, bool | np.timedelta64) or not isinstance(time, int | np.integer):
        raise PlanError(f"A time is {shown(time)}.", remedy="Give milliseconds since 1970, or an aware datetime.")
    if not _FIRST <= time <= _LAST:
        raise _out_of_range(int(time), "A time is")
    return int(time)


def _out_of_range(time: int, what: str) -> PlanError:
    return PlanError(
        f"{what} {time}, which is no millisecond of the years 1 to 9999.",
        remedy="Times are milliseconds since 1970: divide microseconds by 1,000 and nanoseconds by 1,000,000, "
        "or give timestamps.",
    )


def system_time() -> int:
    """What the system's clock shows, in milliseconds since 1970."""
    return time_ns() // 1_000_000


def arrival_times(at: Any, count: int) -> Any:
    """int64 milliseconds at which some rows come.

    Args:
        at: The times of the rows: integers, or timestamps, as an array.
        count: How many rows there are.

    Raises:
        PlanError: These are no times of these rows.
    """
    return _times(at, count, "at")


def placed(times: Any, clock: int, turn: int) -> Any:
    """int64 places of rows that come at some times, each behind the turn that moves the clock there.

    Args:
        times: int64 milliseconds.
        clock: What the clock shows before them, in milliseconds.
        turn: The number of the first turn.

    Raises:
        PlanError: The times go back.
    """
    places, row = numbered(times, clock, turn)
    if row >= 0:
        before = f"The clock shows {clock}" if row == 0 else f"Row {row - 1} comes at {times[row - 1]}"
        raise PlanError(f"{before}, row {row} at {times[row]}, which is earlier.", remedy="Sort the rows by time.")
    return places


def _times(at: Any, count: int, name: str) -> Any:
    """int64 milliseconds, one for each of some rows."""
    if type(at) is np.ndarray and at.dtype == np.int64 and at.shape == (count,):  # no subclass: those may be masked
        return _in_range(at, name)
    try:
        given = at.combine_chunks() if isinstance(at, pa.ChunkedArray) else pa.array(at)
        if pa.types.is_timestamp(given.type):
            given = pc.floor_temporal(given, unit="millisecond").cast(pa.timestamp("ms", given.type.tz))
        times = given if given.type == pa.int64() else given.cast(pa.int64())
    except (TypeError, ValueError, LookupError, pa.ArrowException) as error:
        raise PlanError(
            f"{name} has no times: {error}", remedy="Give milliseconds since 1970, or timestamps, one for each row."
        ) from error
    if len(times) != count:
        raise PlanError(f"{name} has {len(times):,} times for {count:,} rows.", remedy="Give one for each row.")
    if times.null_count:
        row = pc.index(times.is_null(), value=True).as_py()
        raise PlanError(f"{name} has no time for row {row}.", remedy="Give one for each row.")
    return _in_range(times.to_numpy(), name)


def _in_range(times: Any, name: str) -> Any:
    """Times that the clock can show."""
    least, most = extent(np.ascontiguousarray(times)) if len(times) else (_FIRST, _LAST)
    if least < _FIRST or most > _LAST:
        row = int(np.flatnonzero((times < _FIRST) | (times > _LAST))[0])
        raise _out_of_range(int(times[row]), f"{name} has for row {row} the time")
    return times


def timed_rows(rows: Any, schema: pa.Schema, time: str) -> tuple[pa.Table, Any]:
    """Rows as a table of a schema, and int64 milliseconds of each, both in order of these times.

    Args:
        rows: As in `table_of`.
        schema: The schema.
        time: The column with the times; it may be one of the schema.

    Raises:
        ColumnError: As in `table_of`; or there is no such column.
        PlanError: These are no rows, or no times.
    """
    if isinstance(rows, Mapping) and not _has_columns(rows, schema):
        rows = [rows]
    if isinstance(rows, list):
        at: Any = [row.get(time) if isinstance(row, Mapping) else None for row in rows]
        if time not in schema.names:
            rows = [
                {name: row[name] for name in row if name != time} if isinstance(row, Mapping) else row for row in rows
            ]
        table = _of_rows(rows, schema)
        count = len(rows)
    else:
        rows = _given(rows)
        table, count = table_of(rows, schema), len(rows)
        if time not in rows.column_names:
            raise ColumnError("The events have no times.", column=time, remedy="Name the column with their times.")
        at = rows[time]
    times = _times(at, count, repr(time))
    if (times[1:] >= times[:-1]).all():
        return table, times
    order = np.argsort(times, kind="stable")
    return table.take(order) if table.num_columns else table, times[order]


def _given(rows: Any) -> pa.Table:
    """Rows as a table. Arrays are copied: their owner may write into them, while windows hold the rows."""
    try:
        return rows if isinstance(rows, pa.Table) else table_copied(pa.table(rows))
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise PlanError(
            f"These are no rows: {type(rows).__name__}.", remedy="Give a mapping, a list of mappings, or a table."
        ) from error


def constants_given(constants: Any) -> pa.Table:
    """Constants of statements, a row for each.

    Raises:
        PlanError: They are no rows, or none.
    """
    try:
        table = pa.Table.from_pylist(constants) if isinstance(constants, list) else pa.table(constants)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise PlanError(
            f"These are no constants: {shown(constants)}.", remedy="Give a table, a frame, or a list of mappings."
        ) from error
    if not len(table):
        raise PlanError("There are no constants.", remedy="Give a row for each statement.")
    return table


def names_given(table: pa.Table, names: str) -> list[str]:
    """The names of statements, which a column of their constants has.

    Raises:
        ColumnError: There is no such column, or a row has no name, or that of another one.
    """
    if names not in table.column_names:
        raise ColumnError(
            "The constants lack a column.", column=names, remedy=f"They have: {', '.join(table.column_names)}."
        )
    given: list[Any] = table[names].to_pylist()
    seen: dict[str, int] = {}
    for row, name in enumerate(given):
        if not isinstance(name, str) or not name:
            raise ColumnError(f"{shown(name)} is no name.", column=names, row=row, remedy="Give a text.")
        if seen.setdefault(name, row) != row:
            raise ColumnError(f"Row {seen[name]} is called {name!r} too.", column=names, row=row, remedy="Rename it.")
    return given


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
    given = _given(rows)
    if given.schema.equals(schema, check_metadata=True):
        return given
    columns, names = [], {*given.column_names}
    for each in schema:
        if each.name in names:
            columns.append(_casted(given[each.name], each.type, each.name))
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
            made, problem = pa.array(values, each.type), None
        except (pa.ArrowException, TypeError, OverflowError) as error:
            made, problem = None, error
        if made is None or any(_is_cut(value, each.type) for value in values):
            at = next(at for at, value in enumerate(values) if not _fits(value, each.type))
            raise ColumnError(
                f"{shown(values[at])} is no {type_name(each.type)}.", column=each.name, row=at, remedy="Mend the row."
            ) from problem
        columns.append(made)
    return pa.table(columns, schema)


def _fits(value: Any, dtype: pa.DataType) -> bool:
    try:
        pa.array([value], dtype)
    except (pa.ArrowException, TypeError, OverflowError):
        return False
    return not _is_cut(value, dtype)


def _is_cut(value: Any, dtype: pa.DataType) -> bool:
    """Whether a value has a fraction that a whole number of its type does not have: Arrow would cut it off."""
    if isinstance(value, float | Decimal | np.floating):
        return bool(pa.types.is_integer(dtype) and value != value // 1)
    if isinstance(value, Mapping) and pa.types.is_struct(dtype):
        return any(_is_cut(value.get(each.name), each.type) for each in dtype)
    if isinstance(value, list | tuple) and _is_list(dtype):
        return any(_is_cut(each, dtype.value_type) for each in value)
    return False


def _casted(column: pa.ChunkedArray, dtype: pa.DataType, name: str) -> pa.ChunkedArray:
    """A column as one of a type.

    Raises:
        ColumnError: A value is none of this type.
    """
    try:
        return column if column.type == dtype else column.cast(dtype)
    except pa.ArrowException as error:
        problem = error
    first, last = 0, len(column)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            column.slice(first, middle - first).cast(dtype)
        except pa.ArrowException:
            last = middle
        else:
            first = middle
    value = column.slice(first, 1).to_pylist()
    raise ColumnError(
        f"{shown(value[0]) if value else column.type} is no {type_name(dtype)}.",
        column=name,
        row=first,
        remedy="Mend the row, or cast the column.",
    ) from problem
