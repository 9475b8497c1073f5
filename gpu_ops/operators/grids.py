"""Windows on a grid by a dense table of (window, group): for few groups, and events in about the order of time.

Counts and integer sums need no sorting there: each event adds to the first window that holds it and takes off after the
last, and a running sum down the windows gives every window's total. It applies where the table has not many more places
than there are events; `windows` has the general way, with the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import Block, Column, Columns, column_name
from gpu_ops.operators.events import Events
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.windows import Hopping, WindowAggregate
from gpu_ops.time import TICK

_PLACES_PER_EVENT = 4
"""How many places of the table an event may pay for; beyond it sorting costs less."""

_SLICE = 1 << 18
"""Events (and places) worked on at a time: their temporary arrays stay in a core's cache."""


def applies(node: WindowAggregate, columns: Columns, count: int) -> bool:
    """Whether all aggregates are counts, or sums and means of integers that cannot leave int64 over so many events."""
    return all(
        aggregate.kind == "count"
        or (aggregate.kind in {"sum", "mean"} and _sum_fits(column_name(aggregate.expression), node, columns, count))
        for aggregate in node.aggregates
    )


def _sum_fits(name: str, node: WindowAggregate, columns: Columns, count: int) -> bool:
    dtype = node.input.schema.field(name).type
    if not (pa.types.is_integer(dtype) or pa.types.is_duration(dtype)) or dtype == pa.uint64():
        return False
    values = columns[name, "numbers"].arrays[0]
    return max(abs(int(values.min())), abs(int(values.max()))) * count < 1 << 63


@dataclass(frozen=True)
class Grid:
    """Which windows there are: numbers ``low … low + windows - 1``, for each of ``groups`` groups."""

    low: int
    windows: int
    groups: int


def plan_grid(window: Hopping, events: Events, groups: int, device: Device) -> Grid | None:
    """The table for some events; None where it would be too large."""
    least, most = device.kernels.extent(events.start)
    end = most + events.end if isinstance(events.end, int) else device.kernels.extent(events.end)[1]
    if window.until is not None:
        end = min(end, window.until)
    corners = device.columns.array(np.array([least, most]))
    first, last = _ranges(window, corners, np.maximum(corners + TICK, end), device)
    low, windows = int(first[0]), int(last[1]) - int(first[0])
    if windows * groups > max(_PLACES_PER_EVENT * len(events), 1 << 16):
        return None
    return Grid(low, windows, groups)


def _ranges(window: Hopping, start: Any, end: Any, device: Device) -> tuple[Any, Any]:
    kernels = device.kernels
    if window.membership == "start":
        first, last = kernels.grid_ranges_by_start(start, window.size, window.hop, window.align)
    else:
        first, last = kernels.grid_ranges(start, end, window.size, window.hop, window.align)
    return first, last


def dense_results(
    node: WindowAggregate,
    window: Hopping,
    grid: Grid,
    events: Events,
    codes: Any | None,
    columns: Columns,
    device: Device,
) -> Iterator[tuple[Any, Any, Block]]:
    """Results of a node over a table of its windows, some windows at a time.

    Args:
        node: The node, over plain columns; `applies` holds for it.
        window: Its window.
        grid: From `plan_grid`.
        events: All events.
        codes: int32 group of each event; None when there is one group.
        columns: What the aggregates need.
        device: Where arrays live.

    Yields:
        (window numbers, int32 groups, block): one for each window and group that holds any event.
    """
    parts = {part: _Part(part, columns) for aggregate in node.aggregates for part in _parts(aggregate, columns)}
    parts[_ROWS] = _Part(_ROWS, columns)
    kernels, groups = device.kernels, grid.groups
    tables = {part: kernels.dense_zeros(events.start, groups, grid.windows) for part in parts}
    one_group = device.columns.array(np.zeros(min(_SLICE, len(events)), np.int32))
    for low in range(0, len(events), _SLICE):
        high = min(low + _SLICE, len(events))
        first, last = _slice_ranges(window, events, low, high, device)
        first, last = first - grid.low, last - grid.low
        owners = one_group[: high - low] if codes is None else codes[low:high]
        for part, made in parts.items():
            tables[part] = made.add(tables[part], owners, first, last, low, high, groups, device)
    tables = {part: kernels.dense_totals(table, groups) for part, table in tables.items()}
    rows = max(1, _SLICE // groups)
    windows = device.columns.array(np.repeat(np.arange(min(rows, grid.windows)), groups))
    owners = device.columns.array(np.tile(np.arange(groups, dtype=np.int32), min(rows, grid.windows)))
    for top in range(0, grid.windows, rows):
        cut = slice(top * groups, min(top + rows, grid.windows) * groups)
        block = DenseBlock(device, columns, node.input.schema, {part: table[cut] for part, table in tables.items()})
        if len(block.slots):
            yield kernels.take(windows, block.slots) + (top + grid.low), kernels.take(owners, block.slots), block


_PartName = tuple[str, str | None, str | None]
_ROWS: _PartName = ("count", None, None)


def _parts(aggregate: Aggregate, columns: Columns) -> list[_PartName]:
    """The tables that an aggregate needs: what is added up, of which column, where which condition holds."""
    name = None if aggregate.expression is None else column_name(aggregate.expression)
    where = None if aggregate.filter is None else column_name(aggregate.filter)
    nulls = name is not None and _column(name, columns).valid is not None
    counts: _PartName = ("count", name if nulls else None, where)
    return [counts] if aggregate.kind == "count" else [counts, ("sum", name, where)]


def _column(name: str, columns: Columns) -> Column:
    return columns[name, "numbers"] if (name, "numbers") in columns else columns[name, "valid"]


class _Part:
    """One table: how many events, or the sum of which column, of the events that take part."""

    def __init__(self, part: _PartName, columns: Columns) -> None:
        kind, name, where = part
        given = None if name is None else _column(name, columns)
        self.values = given.arrays[0] if given is not None and kind == "sum" else None
        self.masks = [] if given is None or given.valid is None else [given.valid]
        if where is not None:
            condition = columns[where, "numbers"]
            self.masks.append(condition.arrays[0] != 0)
            if condition.valid is not None:
                self.masks.append(condition.valid)

    def add(
        self, table: Any, codes: Any, first: Any, last: Any, low: int, high: int, groups: int, device: Device
    ) -> Any:
        """The table with the events from ``low`` to ``high`` added."""
        kernels = device.kernels
        values = None if self.values is None else self.values[low:high].astype(np.int64, copy=False)
        if self.masks:
            mask = self.masks[0][low:high]
            for more in self.masks[1:]:
                mask = mask & more[low:high]
            at = kernels.keep(mask)
            codes, first, last = kernels.take(codes, at), kernels.take(first, at), kernels.take(last, at)
            values = None if values is None else kernels.take(values, at)
        if values is None:
            return kernels.dense_count(table, codes, first, last, groups)
        return kernels.dense_sum(table, codes, first, last, values, groups)


def _slice_ranges(window: Hopping, events: Events, low: int, high: int, device: Device) -> tuple[Any, Any]:
    start = events.start[low:high]
    if window.until is None:
        end = start + events.end if isinstance(events.end, int) else events.end[low:high]
        return _ranges(window, start, end, device)
    end = np.minimum(events.ends[low:high], window.until)
    first, last = _ranges(window, start, np.maximum(end, start + TICK), device)
    return first, np.where(start < window.until, last, first)


class DenseBlock(Block):
    """A block whose counts and sums stand in tables already."""

    def __init__(self, device: Device, columns: Columns, schema: pa.Schema, tables: dict[_PartName, Any]) -> None:
        self._tables = tables
        rows = tables[_ROWS]
        super().__init__(device, rows, rows, len(rows), columns, schema)

    def __post_init__(self) -> None:
        rows = self._tables[_ROWS]
        self.slots = self.device.kernels.keep(rows > 0)
        self._rows = self.device.kernels.take(rows, self.slots)

    def _counts(self, aggregate: Aggregate, form: str | None) -> Any:
        part = _parts(aggregate, self.columns)[0]
        return self._rows if part == _ROWS else self.device.kernels.take(self._tables[part], self.slots)

    def _present(self, aggregate: Aggregate, form: str) -> Any | None:
        present = self._counts(aggregate, form) > 0
        return None if bool(present.all()) else present

    def _integer_sums(self, aggregate: Aggregate) -> tuple[list[Any], bool]:
        part = _parts(aggregate, self.columns)[1]
        return [self.device.kernels.take(self._tables[part], self.slots)], True
