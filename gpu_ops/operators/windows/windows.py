"""Windows in a batch: the slots of time, the events that each slot holds, and the lifetimes of results.

Every window is a range on an integer axis. An event of a group covers ``[low, high)`` there: its lifetime in ticks for
snapshots, the numbers of its windows for a grid. The axis' boundaries are the distinct ends of these intervals; a slot
lies between two neighbouring boundaries. All windows within a slot hold the same events. So each slot is one snapshot
result; a slot of a grid that is several windows wide gives several results of the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from gpu_ops.core.threads import ordered_map
from gpu_ops.core.time import MAX_TIME, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.operators.aggregates.block import Block, Columns, Places, load_columns
from gpu_ops.operators.events import Events, group_spans
from gpu_ops.operators.sizes import expanded, refuse_counts
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows import dense_grids, grids
from gpu_ops.plan.window_kinds import GridKind, TimeWindowKind
from gpu_ops.plan.windows import WindowAggregate

Place = Callable[[AxisRows], tuple[AxisRows, Any | None]]
"""Gives rows their places on a window's axis: (rows, their indices; None if all rows are among them)."""

_FEWER = "Choose a longer hop, or filter first: an event has a result in each window that holds it."

_RESULT_ROWS = 1 << 22
"""About how many results are made at a time if slots have many windows."""


def window_aggregate(node: WindowAggregate, events: Events, device: Device) -> Iterator[Events]:
    """The results of a window node whose aggregates are over plain columns, in pieces of bounded size."""
    if not len(events):
        return
    check_open(node.window, events)
    loaded = load_columns(node.aggregates, node.input.schema, events.frame, device)
    codes, count, keys = device.columns.key_codes(events.frame, node.group)
    dense = _dense(node, events, codes, count, keys, loaded, device)
    if dense is not None:
        yield from dense
        return
    rows, bounds = _by_group(events, codes, count, loaded, device)
    del events, codes, loaded
    blocks = _blocks(rows, bounds, lambda some: _on_axis(node.window.grid, some, device), device)
    for results in ordered_map(device.threads, lambda block: list(_block_results(node, block, keys, device)), blocks):
        yield from results


def check_open(window: TimeWindowKind, events: Events) -> None:
    """Refuse events that never end, if such an event would have endlessly many windows."""
    grid = window.grid
    if grid is None or grid.until is not None or grid.membership == "start":
        return
    if isinstance(events.end, int) or int(events.end.max()) != MAX_TIME:
        return
    at = int((events.end == MAX_TIME).argmax())
    raise TimeError(
        "An event that never ends has endlessly many hopping windows.",
        row=at,
        values=f"start={format_time(int(events.start[at]))}",
        remedy="Bound them: .hopping(…, until=…).",
    )


def _dense(
    node: WindowAggregate, events: Events, codes: Any, count: int, keys: Any | None, loaded: Columns, device: Device
) -> Iterator[Events] | None:
    """The results by a dense table, if that is quicker; else None."""
    window = None if node.window.grid is None else node.window.grid.regular
    if window is None or not dense_grids.applies(node, loaded, len(events)):
        return None
    grid = dense_grids.plan_grid(window, events, count, device)
    if grid is None:
        return None

    def results(piece: dense_grids.Piece) -> list[Events]:
        made = piece()
        if made is None:
            return []
        point, group, block = made
        frame = block.results(node.aggregates)
        start, end = grids.regular_times(window, point, device)
        return [Events(start, end, with_keys(keys, group, frame, device))]

    owners = None if keys is None else codes
    pieces = dense_grids.dense_pieces(node, grid, events, owners, loaded, device)
    return chain.from_iterable(ordered_map(device.threads, results, pieces))


def with_keys(keys: Any | None, group: Any, frame: Any, device: Device) -> Any:
    """Results with their groups' columns before them."""
    return frame if keys is None else device.columns.beside(device.columns.take(keys, group), frame)


def _by_group(events: Events, codes: Any, count: int, loaded: Columns, device: Device) -> tuple[AxisRows, Any]:
    """(events with what the aggregates need, in order of group and start; host int64: where each group begins)."""
    arrays = [events.start]
    if not isinstance(events.end, int):
        arrays.append(events.end)
    for column in loaded.values():
        arrays.extend(column.parts())
    codes, bounds, arrays = device.kernels.partition(codes, count, arrays)
    start, rest = arrays[0], arrays[1:]
    end = events.end
    if not isinstance(end, int):
        end, rest = rest[0], rest[1:]
    placed: Columns = {}
    for name, column in loaded.items():
        parts = len(column.parts())
        placed[name], rest = column.with_parts(rest[:parts]), rest[parts:]
    return AxisRows(codes, start, end, placed), bounds


@dataclass(frozen=True)
class _BlockRows:
    """Events whose results are computed at a time: whole groups, or one group within a stretch of its axis.

    Attributes:
        rows: The events, in order of group and start.
        place: Gives rows their places on the axis; None if they have them.
        since: The place at which the stretch begins; None if the block has all earlier events of its group.
        until: The place at which it ends; None if the block has all later events.
    """

    rows: AxisRows
    place: Place | None
    since: int | None = None
    until: int | None = None

    def placed(self, device: Device) -> AxisRows:
        """The rows with their places, as far as they lie in the stretch; both its bounds are boundaries of the axis."""
        rows = self.rows if self.place is None else self.place(self.rows)[0]
        if self.until is not None:
            rows = rows.cut(0, int(np.searchsorted(rows.low, self.until)), device)
            rows = replace(rows, high=np.minimum(rows.high, self.until))
        return rows if self.since is None else replace(rows, low=np.maximum(rows.low, self.since))


def _blocks(rows: AxisRows, bounds: Any, place: Place | None, device: Device) -> Iterator[_BlockRows]:
    """Blocks of about as many events as a core's cache holds.

    Args:
        rows: All events, in order of group and start.
        bounds: Host int64: where each group begins.
        place: As in `_BlockRows`.
        device: Where arrays live.
    """
    total, size = len(rows), device.block_rows
    if size is None or total <= size:
        yield _BlockRows(rows, place)
        return
    for low, high in group_spans(bounds, size):
        if high - low > 2 * size:
            yield from _stretches(rows, low, high, place, device)
        else:
            yield _BlockRows(rows.cut(low, high, device), place)


def _stretches(rows: AxisRows, begin: int, end: int, place: Place | None, device: Device) -> Iterator[_BlockRows]:
    """One group in stretches of its axis. An event is in the block of each stretch that it overlaps.

    A stretch ends where its newest event begins. If many events are alive there, the next block is larger: at most a
    fifth of a block's events are in an earlier one too.
    """
    take, size = device.kernels.take, device.block_rows or end - begin
    since, alive = None, device.columns.array(np.zeros(0, np.int64))
    low = begin
    while low < end:
        high = min(end, low + max(size, 4 * len(alive)))
        if end - high < size:
            high = end
        first = low - len(alive)
        if not len(alive) or int(alive[0]) == first:  # they stand directly before the new ones
            some, indices = rows.cut(first, high, device), None
        else:
            indices = np.concatenate([alive, device.columns.array(np.arange(low, high))])
            some = rows.take(indices, device)
        some, at = (some, None) if place is None else place(some)
        low = high
        if not len(some):
            continue
        if high == end:
            yield _BlockRows(some, None, since)
            return
        until = int(some.low[-1])
        if until != since:
            yield _BlockRows(some, None, since, until)
        alive = device.kernels.keep(some.high > until)
        alive = alive if at is None else take(at, alive)
        alive = alive + first if indices is None else take(indices, alive)
        since = until


def _block_results(node: WindowAggregate, block: _BlockRows, keys: Any | None, device: Device) -> Iterator[Events]:
    rows = block.placed(device)
    if len(rows):
        yield from _placed_results(node, rows, keys, device)


def _on_axis(grid: GridKind | None, rows: AxisRows, device: Device) -> tuple[AxisRows, Any | None]:
    """(rows with their places on a window's axis, their indices): without those in no window; None if none is."""
    if grid is None:
        return rows.with_ends(), None
    low, high, at = grids.windows_of(grid, rows.low, rows.high, device)
    return replace(rows if at is None else rows.take(at, device), low=low, high=high), at


def placed_results(
    node: WindowAggregate, codes: Any, low: Any, high: Any, frame: Any, keys: Any | None, device: Device
) -> Iterator[Events]:
    """The results of a window node over events that are placed on its axis already, in pieces of bounded size.

    Args:
        node: The node, over plain columns.
        codes: int32 group of each event, from 0 on.
        low: Each event's begin on the axis: a time, or the number of its first window on a grid.
        high: Its end.
        frame: The columns that the aggregates read.
        keys: A frame with row g for group g; None without a key.
        device: Where arrays live.
    """
    loaded = load_columns(node.aggregates, node.input.schema, frame, device)
    count = 1 if keys is None else device.columns.rows(keys)
    rows, bounds = _by_group(Events(low, high, frame), codes, count, loaded, device)
    blocks = _blocks(rows, bounds, None, device)
    for results in ordered_map(device.threads, lambda block: list(_block_results(node, block, keys, device)), blocks):
        yield from results


def _placed_results(node: WindowAggregate, block: AxisRows, keys: Any | None, device: Device) -> Iterator[Events]:
    grid, kernels = node.window.grid, device.kernels
    axis_code, axis, first, last = kernels.axis(block.code, block.low, block.high)
    if grid is not None and any(each.options.get("bounds") for each in node.aggregates):
        axis_code, axis, first, last = _each_window(axis_code, axis, first, last, device)
    ranges = Block(device, first, last, len(axis), block.columns, node.input.schema)
    shown = ranges.slots  # not the block itself: a reference to it would be a circle, and keep it in memory
    ranges.places = lambda: places_of(node, kernels.slot_bounds(axis_code, axis, shown), keys, device)
    frame = ranges.results(node.aggregates)
    group, low, high = kernels.slot_bounds(axis_code, axis, ranges.slots)
    if grid is None:
        yield Events(low, high, with_keys(keys, group, frame, device))
    else:
        yield from grid_results(grid, low, high, keys, group, frame, device)


def _each_window(axis_code: Any, axis: Any, first: Any, last: Any, device: Device) -> tuple[Any, Any, Any, Any]:
    """An axis with a slot for each window that holds an event, instead of one slot for neighbours with equal events."""
    kernels = device.kernels
    held, _ = kernels.occupied(first, last, len(axis))
    widths = np.ones_like(axis)
    widths[held] = kernels.take(axis, held + 1) - kernels.take(axis, held)
    begins = np.cumsum(widths) - widths
    source, offset = expanded(widths, device, what="A window aggregate", remedy=_FEWER)
    made = kernels.take(axis, source) + offset
    return kernels.take(axis_code, source), made, kernels.take(begins, first), kernels.take(begins, last)


def places_of(node: WindowAggregate, bounds: tuple[Any, Any, Any], keys: Any | None, device: Device) -> Places:
    """Where slots are in time; a slot of a grid that is several windows wide has the time of the first window."""
    group, start, end = bounds
    if node.window.grid is not None:
        start, end = grids.result_times(node.window.grid.giving("window"), start, device)
        end = start + end if isinstance(end, int) else end
    return Places(group, start, end, keys, node.group)


def grid_results(
    window: GridKind, low: Any, high: Any, keys: Any | None, group: Any, frame: Any, device: Device
) -> Iterator[Events]:
    """Results of slots of a grid, one for each window of a slot, a bounded number at a time."""
    kernels = device.kernels
    for number, source in _slot_windows(low, high, device):
        start, end = grids.result_times(window, number, device)
        if source is None:
            yield Events(start, end, with_keys(keys, group, frame, device))
        else:
            rows = device.columns.take(frame, source)
            yield Events(start, end, with_keys(keys, kernels.take(group, source), rows, device))


def _slot_windows(low: Any, high: Any, device: Device) -> Iterator[tuple[Any, Any | None]]:
    """(window numbers, slot of each), a bounded number at a time; the slots are None if each slot is one window."""
    widths = high - low
    if bool((widths == 1).all()):
        yield low, None
        return
    refuse_counts(widths, what="A window aggregate", remedy=_FEWER)
    total = device.columns.host(np.cumsum(widths))
    done = 0
    while done < len(widths):
        reached = 0 if done == 0 else int(total[done - 1])
        upto = max(done + 1, int(np.searchsorted(total, reached + _RESULT_ROWS)))
        source, offset = device.kernels.expand(widths[done:upto])
        source = source + done
        yield device.kernels.take(low, source) + offset, source
        done = upto
