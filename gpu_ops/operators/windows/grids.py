"""Windows on a grid by a dense table of (window, group): for few groups, and events in about the order of time.

Counts and integer sums need no sorting there: each event adds to the first window that holds it and takes off after the
last, and a running sum down the windows gives every window's total. It applies where the table has not many more places
than there are events; `windows` has the general way, with the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Block, Column, Columns, column_name
from gpu_ops.operators.events import Events
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.window_kinds import Hopping
from gpu_ops.plan.windows import WindowAggregate

_PLACES_PER_EVENT = 4
"""How many places of the table an event may pay for; beyond it sorting costs less."""


def applies(node: WindowAggregate, columns: Columns, count: int) -> bool:
    """Whether all aggregates are counts, or sums and means of integers that fit int64 over the given events."""
    return not any(aggregate.distinct for aggregate in node.aggregates) and all(
        made_of == "counts"
        or (made_of != "more" and _sum_fits(column_name(aggregate.expression), node, columns, count))
        for aggregate, made_of in ((each, each.kind.incremental.made_of) for each in node.aggregates)
    )


def _sum_fits(name: str, node: WindowAggregate, columns: Columns, count: int) -> bool:
    dtype = node.input.schema.field(name).type
    if not (pa.types.is_integer(dtype) or pa.types.is_duration(dtype)) or dtype == pa.uint64():
        return False
    return _most(columns[name, "numbers"].arrays[0], count) < 1 << 63


def _most(values: Any, count: int) -> int:
    """A bound on any sum of the given number of these integers."""
    return max(abs(int(values.min())), abs(int(values.max()))) * count


@dataclass(frozen=True)
class Grid:
    """A table of ``windows`` x ``groups`` places.

    Attributes:
        window: The windows; number 0 of them is the table's first row.
        windows: How many rows.
        groups: How many groups.
    """

    window: Hopping
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
    # Aligned to another window of the same grid, its numbers begin with 0.
    return Grid(replace(window, align=window.align + low * window.hop), windows, groups)


def _ranges(window: Hopping, start: Any, end: Any | int, device: Device) -> tuple[Any, Any]:
    kernels = device.kernels
    if window.membership == "start":
        first, last = kernels.grid_ranges_by_start(start, window.size, window.hop, window.align)
    else:
        first, last = kernels.grid_ranges(start, end, window.size, window.hop, window.align)
    return first, last


def dense_results(
    node: WindowAggregate, grid: Grid, events: Events, codes: Any | None, columns: Columns, device: Device
) -> Iterator[tuple[Any, Any, DenseBlock]]:
    """Results of a node over a table of its windows, some windows at a time.

    Args:
        node: The node, over plain columns; `applies` holds for it.
        grid: From `plan_grid`.
        events: All events.
        codes: int32 group of each event; None when there is one group.
        columns: What the aggregates need.
        device: Where arrays live.

    Yields:
        (grid points in ticks, int32 groups, block): one for each window and group that holds any event.
    """
    parts = {part: _CountTable(part, columns) for aggregate in node.aggregates for part in _parts(aggregate, columns)}
    parts[_ROWS] = _CountTable(_ROWS, columns)
    kernels, groups, window = device.kernels, grid.groups, grid.window
    bounded = [each for each in node.aggregates if each.kind.incremental.made_of == "bounded sums"]
    averaged = {column_name(each.expression) for each in bounded}
    most = {name: _most(columns[name, "numbers"].arrays[0], len(events)) for name in averaged}
    tables = {part: kernels.dense_zeros(events.start, groups, grid.windows) for part in parts}
    step = device.block_rows or len(events)
    one_group = device.columns.array(np.zeros(min(step, len(events)), np.int32))
    for low in range(0, len(events), step):
        high = min(low + step, len(events))
        first, last = _slice_ranges(window, events, low, high, device)
        owners = one_group[: high - low] if codes is None else codes[low:high]
        for part, made in parts.items():
            tables[part] = made.add(tables[part], owners, first, last, low, high, groups, device)
    tables = {part: kernels.dense_totals(table, groups) for part, table in tables.items()}
    rows = max(1, (device.block_rows or grid.windows * groups) // groups)
    for top in range(0, grid.windows, rows):
        cut = slice(top * groups, min(top + rows, grid.windows) * groups)
        rest = {part: table[cut] for part, table in tables.items()}
        slots, start, owners, counts = kernels.dense_slots(
            rest[_ROWS], groups, window.align + top * window.hop, window.hop
        )
        if len(slots):
            yield start, owners, DenseBlock(device, columns, node.input.schema, rest, slots, counts, most)


_PartName = tuple[str, str | None, str | None]
_ROWS: _PartName = ("count", None, None)


def _parts(aggregate: Aggregate, columns: Columns) -> list[_PartName]:
    """The tables that an aggregate needs: what is added up, of which column, where which condition holds."""
    name = None if aggregate.expression is None else column_name(aggregate.expression)
    where = None if aggregate.filter is None else column_name(aggregate.filter)
    nulls = name is not None and _column(name, columns).valid is not None
    counts: _PartName = ("count", name if nulls else None, where)
    return [counts] if aggregate.kind.incremental.made_of == "counts" else [counts, ("sum", name, where)]


def _column(name: str, columns: Columns) -> Column:
    return columns[name, "numbers"] if (name, "numbers") in columns else columns[name, "valid"]


class _CountTable:
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
    end = events.end if isinstance(events.end, int) else events.end[low:high]
    if window.until is None:
        return _ranges(window, start, end, device)
    end = np.minimum(events.ends[low:high], window.until)
    first, last = _ranges(window, start, np.maximum(end, start + TICK), device)
    return first, np.where(start < window.until, last, first)


class DenseBlock(Block):
    """A block whose counts and sums stand in tables already."""

    def __init__(
        self,
        device: Device,
        columns: Columns,
        schema: pa.Schema,
        tables: dict[_PartName, Any],
        slots: Any,
        counts: Any,
        most: dict[str, int],
    ) -> None:
        self._tables = tables
        self._given = slots, counts
        self._most = most
        super().__init__(device, slots, slots, len(slots), columns, schema)

    def __post_init__(self) -> None:
        self.slots, self.rows = self._given

    def counts(self, aggregate: Aggregate, form: str | None) -> Any:
        """Those of the tables."""
        part = _parts(aggregate, self.columns)[0]
        return self.rows if part == _ROWS else self.device.kernels.take(self._tables[part], self.slots)

    def present(self, aggregate: Aggregate, form: str) -> Any | None:
        """As they say."""
        if _parts(aggregate, self.columns)[0] == _ROWS:
            return None
        present = self.counts(aggregate, form) > 0
        return None if bool(present.all()) else present

    def integer_sums(self, aggregate: Aggregate) -> tuple[list[Any], int]:
        """Those of the tables."""
        part = _parts(aggregate, self.columns)[1]
        sums = self.device.kernels.take(self._tables[part], self.slots)
        return [sums], self._most.get(column_name(aggregate.expression), (1 << 63) - 1)
