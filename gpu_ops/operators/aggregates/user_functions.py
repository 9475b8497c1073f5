"""The user's functions over windows: called with each window's events; an error names the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.errors import FunctionError
from gpu_ops.operators.aggregates.block import Block, column_name
from gpu_ops.operators.aggregates.holistic import Members, all_rows, members, order_keys, structs, whole
from gpu_ops.operators.aggregates.pairs import pairs
from gpu_ops.operators.row_order import stable_order
from gpu_ops.plan.aggregate_kinds import AggregateKind, AllEvents
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.ordered_aggregates import returned_type


def _by_time(block: Block, aggregate: Aggregate, chosen: Members, read: int) -> Any:
    """The order of events by start, then by the columns that the function reads."""
    others = aggregate.others
    keys = order_keys(block, (others[read], *others[:read], *others[read + 1 :]), chosen)
    return stable_order(keys, chosen.first, block.device)


def _table(block: Block, aggregate: Aggregate, chosen: Members, at: Any, names: list[str]) -> pa.Table:
    """The events at some indices as a table of the columns that a function reads, the lifetimes last."""
    columns = block.device.columns
    frames: list[Any] = []
    fields: list[pa.Field] = []
    for expression in aggregate.others:
        name = column_name(expression)
        if name not in {field.name for field in fields}:
            fields.append(block.schema.field(name))
            column = whole(block, expression)
            frames.append(columns.take(column.distinct, chosen.pick(column.arrays[0], block)[at]))
    table = columns.to_arrow(columns.beside(*frames), pa.schema(fields))
    arrays = [table[column_name(expression)] for expression in aggregate.others]
    return pa.Table.from_arrays(arrays, [*names, "start", "end"][: len(arrays)])


def _calls(block: Block, aggregate: Aggregate) -> Iterator[tuple[int, Any]]:
    """(slot, the function's result) for each slot in which an event takes part."""
    options = aggregate.options
    names, sensitive = list(options["columns"]), bool(options["bounds"])
    chosen = members(block, aggregate, [])
    order = _by_time(block, aggregate, chosen, len(names))
    if sensitive:
        places = block.where_windows_are()
        begin, finish = (block.device.columns.host(each) for each in (places.start, places.end))
        bounds = [to_arrow(np.ascontiguousarray(each), TIME_TYPE).to_pylist() for each in (begin, finish)]
    for some in pairs(block, chosen, order):
        table = _table(block, aggregate, chosen, some.at, names)
        counts = block.device.columns.host(some.counts)
        if sensitive and options["clip"]:
            table = _clipped(
                table, np.repeat(begin[some.low : some.high], counts), np.repeat(finish[some.low : some.high], counts)
            )
        elif not sensitive:
            table = table.select(names)
        table, at = table.combine_chunks(), 0
        for slot, count in enumerate(counts.tolist(), some.low):
            if count:
                window = table.slice(at, count)
                try:
                    made = options["function"](*([window, bounds[0][slot], bounds[1][slot]] if sensitive else [window]))
                except Exception as error:  # noqa: BLE001  (whatever the user's function raises)
                    _blame(block, aggregate, slot, error)
                yield slot, made
                at += count


def _clipped(table: pa.Table, begin: Any, finish: Any) -> pa.Table:
    # A data window may hold an event that ended before the window: its clipped lifetime is empty.
    for name in ("start", "end"):
        ticks = np.clip(table[name].cast(pa.int64()).to_numpy(), begin, finish)
        table = table.set_column(table.schema.get_field_index(name), name, to_arrow(ticks, TIME_TYPE))
    return table


def _blame(block: Block, aggregate: Aggregate, slot: int, error: BaseException) -> NoReturn:
    """Raise the error of a user's function, with the window in which it occurred."""
    of_rows = isinstance(aggregate.options["returns"], pa.Schema)
    raise FunctionError(
        f"The function of {'apply' if of_rows else aggregate.kind} failed: {type(error).__name__}: {error}",
        column=None if of_rows else aggregate.name,
        values=block.shown(slot),
        remedy="Its own traceback is above.",
    ) from error


def _window_function(block: Block, aggregate: Aggregate) -> Any:
    values: list[Any] = [None] * len(block.slots)
    for slot, made in _calls(block, aggregate):
        values[slot] = made.as_py() if isinstance(made, pa.Scalar) else made
    return _returned(block, aggregate, values)


def _returned(block: Block, aggregate: Aggregate, values: list[Any]) -> Any:
    returns = aggregate.options["returns"]
    try:
        made = _array(values, returns)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        for slot, value in enumerate(values):
            try:
                _array([value], returns)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as wrong:
                _blame(block, aggregate, slot, wrong)
        raise FunctionError(f"The results do not fit {returns}: {error}", column=aggregate.name) from error
    return block.device.columns.from_arrow(pa.table({aggregate.name: made}))


def _table_function(block: Block, aggregate: Aggregate) -> Any:
    returns: pa.Schema = aggregate.options["returns"]
    tables, counts = [], np.zeros(len(block.slots), np.int64)
    for slot, made in _calls(block, aggregate):
        try:
            table = _as_table(made, returns)
        except Exception as error:  # noqa: BLE001  (whatever there is in what it gave)
            _blame(block, aggregate, slot, error)
        counts[slot] = table.num_rows
        if table.num_rows:
            tables.append(table)
    return structs(block, aggregate, tables, counts)


def _as_table(made: Any, returns: pa.Schema) -> pa.Table:
    """A function's result as a table: given as a table, a dictionary of columns, rows as dictionaries, or None."""
    if made is None:
        return empty_table(returns)
    if hasattr(made, "__arrow_c_stream__"):
        return pa.table(made).select(returns.names).cast(returns)
    if not isinstance(made, Mapping):
        rows = list(made)
        for row in rows:
            if not isinstance(row, Mapping):
                raise TypeError(f"a row is a {type(row).__name__}, not a dictionary")
            for name in row:
                if name not in returns.names:
                    raise KeyError(f"{name!r} is not in the schema")
        made = {name: [row.get(name) for row in rows] for name in returns.names}
    return pa.table([_array(made[field.name], field.type) for field in returns], schema=returns)


def _array(values: Any, dtype: pa.DataType) -> pa.Array:
    """Values as an array; Arrow itself would truncate 1.5 to the integer 1."""
    if isinstance(values, np.ndarray | pa.Array | pa.ChunkedArray):
        return (pa.array(values) if isinstance(values, np.ndarray) else values).cast(dtype)
    made = pa.array(values, dtype)
    if pa.types.is_integer(dtype):
        for value in values:
            if isinstance(value, float | np.floating) and not value.is_integer():
                raise pa.ArrowInvalid(f"{value} is no {dtype}")
    return made


def _incremental(block: Block, aggregate: Aggregate) -> Any:
    options, host = aggregate.options, block.device.columns.host
    names = list(options["columns"])
    chosen = members(block, aggregate, [])
    order = _by_time(block, aggregate, chosen, len(names))
    take = block.device.kernels.take
    rows = _row_tuples(_table(block, aggregate, chosen, order, names).select(names), len(order))
    first, last = host(take(chosen.first, order)), host(take(chosen.last, order))
    entering, leaving = np.argsort(first, kind="stable").tolist(), np.argsort(last, kind="stable").tolist()
    entered = left = 0
    zero: Callable[[], Any] = options["zero"] if callable(options["zero"]) else lambda: options["zero"]
    state, add, remove, result = None, options["add"], options["remove"], options["result"]
    first, last = first.tolist(), last.tolist()
    values: list[Any] = [None] * len(block.slots)
    for at, slot in enumerate(host(block.slots).tolist()):
        try:
            while left < entered and last[leaving[left]] <= slot:
                if left + 1 < entered:
                    state = remove(state, *rows[leaving[left]])
                left += 1
            if left == entered:
                # No event is in the window: the state begins anew.
                state = zero()
            while entered < len(entering) and first[entering[entered]] <= slot:
                state = add(state, *rows[entering[entered]])
                entered += 1
            if entered > left:
                values[at] = result(state)
        except Exception as error:  # noqa: BLE001  (whatever the user's functions raise)
            _blame(block, aggregate, at, error)
    return _returned(block, aggregate, values)


def _row_tuples(table: pa.Table, count: int) -> list[tuple[Any, ...]]:
    if not table.num_columns:
        return [()] * count
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


for _name, _result in {
    "window_function": _window_function,
    "table_function": _table_function,
    "incremental": _incremental,
}.items():
    AggregateKind(name=_name, types=returned_type, columns=all_rows, result=_result, incremental=AllEvents())
