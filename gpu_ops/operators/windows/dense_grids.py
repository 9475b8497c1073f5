"""Results of a grid by a dense table of (window, group): for few groups, and events in about the order of time.

Counts and integer sums need no sorting: each event adds to the first window that holds it and subtracts after the last
one, and a running sum over the windows gives every window's total. It applies if the table has not many more places
than there are events; `windows` computes the same results in general.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.threads import in_parallel
from gpu_ops.core.time import TICK
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Block, Column, Columns, PartName, column_name, condition_holds
from gpu_ops.operators.events import Events, extent_of
from gpu_ops.operators.windows.grids import ends_by, grid_arguments, ranges
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.window_kinds import Hopping
from gpu_ops.plan.windows import WindowAggregate

_LEAST_SHARES = 4
"""The least number of threads, times that of tables, for which windows are cut into stretches."""

_PLACES_PER_EVENT = 4
"""The most places of the table for each event; with more places, sorting costs less."""


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
        is_part: Whether events may also be in windows before or after these.
    """

    window: Hopping
    windows: int
    groups: int
    is_part: bool = False

    @property
    def cut(self) -> int | None:
        """``windows`` of `dense_places`."""
        return self.windows if self.is_part else None


def plan_grid(window: Hopping, events: Events, groups: int, device: Device) -> Grid | None:
    """The table for some events; None if it would be too large."""
    least, most, end = events.extent or extent_of(events, device)
    if window.until is not None:
        end = min(end, window.until)
    corners = device.columns.array(np.array([least, most]))
    unbounded = replace(window, until=None)
    first, last = ranges(unbounded, corners, np.maximum(corners + TICK, end), device)
    low, windows = int(first[0]), int(last[1]) - int(first[0])
    if windows * groups > max(_PLACES_PER_EVENT * len(events), 1 << 16):
        return None
    # Aligned to another window of the same grid, its numbers begin with 0.
    return Grid(replace(window, align=window.align + low * window.hop), windows, groups)


Piece = Callable[[], "tuple[Any, Any, DenseBlock] | None"]
"""Computes some results: (grid points in ticks, int32 groups, block), one for each window and group that holds any
event; None if none does."""


def dense_pieces(
    node: WindowAggregate, grid: Grid, events: Events, codes: Any | None, columns: Columns, device: Device
) -> Iterator[Piece]:
    """Results of a node over a table of its windows, some windows at a time.

    Args:
        node: The node, over plain columns; `applies` holds for it.
        grid: From `plan_grid`.
        events: All events.
        codes: int32 group of each event; None when there is one group.
        columns: What the aggregates need.
        device: Where arrays live.
    """
    names = [name for aggregate in node.aggregates for name in _table_names(aggregate, columns)]
    parts = {name: _CountTable(name, columns) for name in (*names, _ROWS)}
    groups, schema = grid.groups, node.input.schema
    bounded = [each for each in node.aggregates if each.kind.incremental.made_of == "bounded sums"]
    averaged = {column_name(each.expression) for each in bounded}
    most = {name: _most(columns[name, "numbers"].arrays[0], len(events)) for name in averaged}
    size = min(device.block_rows or len(events), len(events))
    one_group = device.columns.array(np.zeros(size, np.int32))

    def filled(stretch: _Stretch) -> tuple[Grid, dict[PartName, Any]]:
        """The totals of the windows of a stretch."""
        table = stretch.grid
        tables = {part: device.kernels.dense_zeros(events.start, groups, table.windows) for part in parts}
        for low, high in stretch.blocks:
            cut = slice(low, high)
            start, end = events.start[cut], events.end if isinstance(events.end, int) else events.end[cut]
            end = ends_by(table.window, start, end)
            owners = one_group[: len(start)] if codes is None else codes[cut]
            places = device.kernels.dense_places(start, *grid_arguments(table.window, end), table.cut)
            for part, made in parts.items():
                tables[part] = made.add(tables[part], cut, owners, start, end, places, table, device)
        return table, {part: device.kernels.dense_totals(each, groups) for part, each in tables.items()}

    def piece(table: Grid, tables: dict[PartName, Any], top: int, rows: int) -> tuple[Any, Any, DenseBlock] | None:
        cut = slice(top * groups, min(top + rows, table.windows) * groups)
        rest = {part: each[cut] for part, each in tables.items()}
        slots, start, owners, counts = device.kernels.dense_slots(
            rest[_ROWS], groups, table.window.align + top * table.window.hop, table.window.hop
        )
        return (start, owners, DenseBlock(device, columns, schema, rest, slots, counts, most)) if len(slots) else None

    for table, tables in in_parallel(filled, _stretches(grid, events, len(parts), device)):
        rows = max(1, (device.block_rows or table.windows * groups) // groups)
        for top in range(0, table.windows, rows):
            yield partial(piece, table, tables, top, rows)


@dataclass(frozen=True)
class _Stretch:
    """Some of a table's windows, one after the other: events are cut to it, so that its totals need no other stretch.

    Attributes:
        grid: A table of these windows.
        blocks: (low, upto) of the events of which some may be in them.
    """

    grid: Grid
    blocks: list[tuple[int, int]]


def _stretches(grid: Grid, events: Events, tables: int, device: Device) -> list[_Stretch]:
    """A stretch of windows for each thread; one if the events are not in about the order of time.

    Cutting takes a pass over the times. With one table and few threads that costs as much as it saves.
    """
    step = device.block_rows or len(events)
    blocks = [(low, min(low + step, len(events))) for low in range(0, len(events), step)]
    whole = [_Stretch(grid, blocks)]
    if device.threads * tables < _LEAST_SHARES or device.threads == 1 or len(blocks) < 2:
        return whole
    first, last = _windows_of(grid.window, events, blocks, device)
    count = min(device.threads, len(blocks))
    begins = [0, *(int(first[len(blocks) * at // count]) for at in range(1, count)), grid.windows]
    made = []
    for low, upto in pairwise(begins):
        spans = zip(blocks, first, last, strict=True)
        there = [block for block, begin, end in spans if begin < upto and end > low]
        if low >= upto or 4 * len(there) > 3 * len(blocks):
            return whole
        window = replace(grid.window, align=grid.window.align + low * grid.window.hop)
        made.append(_Stretch(replace(grid, window=window, windows=upto - low, is_part=True), there))
    return made


def _windows_of(window: Hopping, events: Events, blocks: list[tuple[int, int]], device: Device) -> tuple[Any, Any]:
    """(first, last): each block's events are in the windows ``first … last - 1`` at most."""

    def span(block: tuple[int, int]) -> tuple[int, int, int]:
        least, most = device.kernels.extent(events.start[slice(*block)])
        end = most + events.end if isinstance(events.end, int) else device.kernels.extent(events.end[slice(*block)])[1]
        return least, most, end if window.until is None else min(end, window.until)

    share = -(-len(blocks) // device.threads)  # a block is looked at in less time than it takes to hand it over
    shares = [blocks[low : low + share] for low in range(0, len(blocks), share)]
    spans = chain.from_iterable(in_parallel(lambda some: list(map(span, some)), shares))
    least, most, end = np.array(list(spans)).T
    unbounded = replace(window, until=None)
    first, _ = ranges(unbounded, np.ascontiguousarray(least), TICK, device)
    _, last = ranges(unbounded, np.ascontiguousarray(most), np.maximum(most + TICK, end), device)
    return first, last


_ROWS: PartName = ("count", None, None)


def _table_names(aggregate: Aggregate, columns: Columns) -> list[PartName]:
    """The names of the tables that an aggregate needs: what is added up, of which column, under which condition."""
    name = None if aggregate.expression is None else column_name(aggregate.expression)
    where = None if aggregate.filter is None else column_name(aggregate.filter)
    nulls = name is not None and _column(name, columns).valid is not None
    counts: PartName = ("count", name if nulls else None, where)
    return [counts] if aggregate.kind.incremental.made_of == "counts" else [counts, ("sum", name, where)]


def _column(name: str, columns: Columns) -> Column:
    return columns[name, "numbers"] if (name, "numbers") in columns else columns[name, "valid"]


class _CountTable:
    """One table: the count of the events that take part, or the sum of a column over them."""

    def __init__(self, part: PartName, columns: Columns) -> None:
        kind, name, where = part
        given = None if name is None else _column(name, columns)
        self.values = given.arrays[0] if given is not None and kind == "sum" else None
        self.mask = None if given is None else given.valid
        if where is not None:
            holds = condition_holds(columns, where)
            self.mask = holds if self.mask is None else self.mask & holds

    def add(
        self,
        table: Any,
        cut: slice,
        codes: Any,
        start: Any,
        end: Any | int,
        places: Any,
        grid: Grid,
        device: Device,
    ) -> Any:
        """The table with the events of a cut added; ``places`` are those of all of them."""
        kernels, window = device.kernels, grid.window
        values = None if self.values is None else self.values[cut].astype(np.int64, copy=False)
        mask = None if self.mask is None else self.mask[cut]
        if window.until is not None:
            mask = start < window.until if mask is None else mask & (start < window.until)
        if mask is not None:
            at = kernels.keep(mask)
            codes, start = kernels.take(codes, at), kernels.take(start, at)
            end = end if isinstance(end, int) else kernels.take(end, at)
            values = None if values is None else kernels.take(values, at)
            places = kernels.dense_places(start, *grid_arguments(window, end), grid.cut)
        if values is None:
            return kernels.dense_count(table, codes, places, grid.groups)
        return kernels.dense_sum(table, codes, places, values, grid.groups)


class DenseBlock(Block):
    """A block whose counts and sums are already in tables."""

    def __init__(
        self,
        device: Device,
        columns: Columns,
        schema: pa.Schema,
        tables: dict[PartName, Any],
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
        part = _table_names(aggregate, self.columns)[0]
        return self.rows if part == _ROWS else self.device.kernels.take(self._tables[part], self.slots)

    def takes_all(self, aggregate: Aggregate, form: str) -> bool:
        """Whether its table is that of all rows."""
        return _table_names(aggregate, self.columns)[0] == _ROWS

    def integer_sums(self, aggregate: Aggregate) -> tuple[list[Any], int]:
        """Those of the tables."""
        part = _table_names(aggregate, self.columns)[1]
        sums = self.device.kernels.take(self._tables[part], self.slots)
        return [sums], self._most.get(column_name(aggregate.expression), (1 << 63) - 1)
