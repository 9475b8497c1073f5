"""Windows: which slots of time there are, which events each holds, and the results' lifetimes.

Every window is a range over an integer axis. An event of a group covers ``[low, high)`` there: its lifetime in ticks
for snapshots, the numbers of its windows for a grid. The axis' boundaries are the distinct ends of these intervals; a
slot is what lies between two neighbours. A slot's events are the same throughout, so a snapshot result is a slot, and a
slot of a grid that is several windows wide is several results of the same value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gpu_ops.core.time import MAX_TIME, TICK, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.operators.aggregates.block import Block, Columns, Places, load_columns
from gpu_ops.operators.events import Events, check_times
from gpu_ops.operators.sizes import expanded, refuse_counts
from gpu_ops.operators.windows import calendars, grids
from gpu_ops.plan.window_kinds import GridKind, Hopping, TimeWindowKind
from gpu_ops.plan.windows import WindowAggregate

T = TypeVar("T")
R = TypeVar("R")

_FEWER = "Choose a longer hop, or filter first: an event has a result in each window that holds it."

_RESULT_ROWS = 1 << 22
"""About how many results are made at a time where one slot is many windows."""


@dataclass(frozen=True)
class GroupedEvents:
    """Events ordered by group and start, with the groups' own columns.

    Attributes:
        codes: int32 group of each event, ascending.
        bounds: Host int64; group g's events are ``bounds[g] … bounds[g + 1] - 1``.
        start: int64 ticks.
        end: int64 ticks or a duration.
        columns: What the aggregates need, in the same order.
        keys: A frame with row g for group g; None without a key.
    """

    codes: Any
    bounds: Any
    start: Any
    end: Any
    columns: Columns
    keys: Any | None

    def cut(self, low: int, high: int) -> GroupedEvents:
        """The events from ``low`` to ``high``."""
        end = self.end if isinstance(self.end, int) else self.end[low:high]
        columns = {
            name: column.with_parts([part[low:high] for part in column.parts()])
            for name, column in self.columns.items()
        }
        return GroupedEvents(self.codes[low:high], self.bounds, self.start[low:high], end, columns, self.keys)


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
    groups = _group(events, codes, count, keys, loaded, device)
    del events, codes, loaded
    blocks = _blocks(groups, device.block_rows)
    for results in in_order(device.threads, lambda block: list(_block_results(node, block, device)), blocks):
        yield from results


def check_open(window: TimeWindowKind, events: Events) -> None:
    """Refuse events that never end where each has a window every hop."""
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
    """The results by a dense table, where that is the better way."""
    window = None if node.window.grid is None else node.window.grid.regular
    if window is None or not grids.applies(node, loaded, len(events)):
        return None
    grid = grids.plan_grid(window, events, count, device)
    if grid is None:
        return None

    def results() -> Iterator[Events]:
        owners = None if keys is None else codes
        for point, group, block in grids.dense_results(node, grid, events, owners, loaded, device):
            frame = block.results(node.aggregates)
            start, end = _lasting(window, point, device)
            yield Events(start, end, with_keys(keys, group, frame, device))

    return results()


def _lasting(window: Hopping, point: Any, device: Device) -> tuple[Any, int]:
    """(start, duration) of the results of the windows at some grid points, in ticks."""
    begin, finish = window.lifetime
    start = point + begin if begin else point
    check_times(start, finish - begin, device, verb="hopping")
    return start, finish - begin


def result_times(window: GridKind, numbers: Any, device: Device) -> tuple[Any, Any]:
    """(start, end or duration) of the results of some windows, by their numbers."""
    regular = window.regular
    if regular is not None:
        return _lasting(regular, numbers * regular.hop + regular.align, device)
    start, end = calendars.lifetimes(window, numbers, device)
    return (end, TICK) if window.output == "point" else (start, end)


def with_keys(keys: Any | None, group: Any, frame: Any, device: Device) -> Any:
    """Results with their groups' columns before them."""
    return frame if keys is None else device.columns.beside(device.columns.take(keys, group), frame)


def _group(events: Events, codes: Any, count: int, keys: Any | None, loaded: Columns, device: Device) -> GroupedEvents:
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
    return GroupedEvents(codes, bounds, start, end, placed, keys)


def _blocks(groups: GroupedEvents, rows: int | None) -> Iterator[GroupedEvents]:
    total = len(groups.start)
    if rows is None or total <= rows:
        yield groups
        return
    low = 0
    while low < total:
        # Whole groups: the first boundary at least `rows` on.
        at = int(np.searchsorted(groups.bounds, min(low + rows, total)))
        high = int(groups.bounds[at])
        yield groups.cut(low, high)
        low = high


def _block_results(node: WindowAggregate, block: GroupedEvents, device: Device) -> Iterator[Events]:
    grid = node.window.grid
    if grid is None:
        low, high = block.start, block.start + block.end if isinstance(block.end, int) else block.end
    else:
        low, high, block = _grid(grid, block, device)
    if len(low):
        yield from _placed_results(node, block, low, high, device)


def placed_results(
    node: WindowAggregate, codes: Any, low: Any, high: Any, frame: Any, keys: Any | None, device: Device
) -> Iterator[Events]:
    """The results of a window node over events that are placed on its axis already, in pieces of bounded size.

    Args:
        node: The node, over plain columns.
        codes: int32 group of each event, from 0 on.
        low: Where each begins on the axis: a time, or of a grid the number of its first window.
        high: Where it ends.
        frame: What the aggregates read.
        keys: A frame with row g for group g; None without a key.
        device: Where arrays live.
    """
    loaded = load_columns(node.aggregates, node.input.schema, frame, device)
    count = 1 if keys is None else device.columns.rows(keys)
    groups = _group(Events(low, high, frame), codes, count, keys, loaded, device)
    for block in _blocks(groups, device.block_rows):
        yield from _placed_results(node, block, block.start, block.end, device)


def _placed_results(
    node: WindowAggregate, block: GroupedEvents, low: Any, high: Any, device: Device
) -> Iterator[Events]:
    grid, kernels = node.window.grid, device.kernels
    axis_code, axis, first, last = kernels.axis(block.codes, low, high)
    if grid is not None and any(each.options.get("bounds") for each in node.aggregates):
        axis_code, axis, first, last = _each_window(axis_code, axis, first, last, device)
    ranges = Block(device, first, last, len(axis), block.columns, node.input.schema)
    shown = ranges.slots  # not the block itself, which would stay in memory until somebody looked for circles
    ranges.places = lambda: places_of(node, kernels.slot_bounds(axis_code, axis, shown), block.keys, device)
    frame = ranges.results(node.aggregates)
    group, low, high = kernels.slot_bounds(axis_code, axis, ranges.slots)
    if grid is None:
        yield Events(low, high, with_keys(block.keys, group, frame, device))
    else:
        yield from grid_results(grid, low, high, block.keys, group, frame, device)


def _each_window(axis_code: Any, axis: Any, first: Any, last: Any, device: Device) -> tuple[Any, Any, Any, Any]:
    """An axis with a slot for each window that holds any event, instead of one for neighbours that hold the same."""
    kernels = device.kernels
    held, _ = kernels.occupied(first, last, len(axis))
    widths = np.ones_like(axis)
    widths[held] = kernels.take(axis, held + 1) - kernels.take(axis, held)
    begins = np.cumsum(widths) - widths
    source, offset = expanded(widths, device, what="A window aggregate", remedy=_FEWER)
    made = kernels.take(axis, source) + offset
    return kernels.take(axis_code, source), made, kernels.take(begins, first), kernels.take(begins, last)


def places_of(node: WindowAggregate, bounds: tuple[Any, Any, Any], keys: Any | None, device: Device) -> Places:
    """Where slots are in time; a slot of a grid that is several windows wide is where the first of them is."""
    group, start, end = bounds
    if node.window.grid is not None:
        start, end = result_times(node.window.grid.giving("window"), start, device)
        end = start + end if isinstance(end, int) else end
    return Places(group, start, end, keys, node.group)


def grid_results(
    window: GridKind, low: Any, high: Any, keys: Any | None, group: Any, frame: Any, device: Device
) -> Iterator[Events]:
    """Results of slots of a grid, each as often as the slot has windows, a bounded number at a time."""
    kernels = device.kernels
    for number, source in _numbers(low, high, device):
        start, end = result_times(window, number, device)
        if source is None:
            yield Events(start, end, with_keys(keys, group, frame, device))
        else:
            rows = device.columns.take(frame, source)
            yield Events(start, end, with_keys(keys, kernels.take(group, source), rows, device))


def _grid(window: GridKind, block: GroupedEvents, device: Device) -> tuple[Any, Any, GroupedEvents]:
    """The numbers of each event's windows, without the events that have none."""
    low, high, at = window_numbers(window, block.start, block.end, device)
    if at is None:
        return low, high, block
    take = device.kernels.take
    columns = {
        name: column.with_parts([take(part, at) for part in column.parts()]) for name, column in block.columns.items()
    }
    end = block.end if isinstance(block.end, int) else take(block.end, at)
    return (
        low,
        high,
        GroupedEvents(take(block.codes, at), block.bounds, take(block.start, at), end, columns, block.keys),
    )


def window_numbers(window: GridKind, start: Any, end: Any | int, device: Device) -> tuple[Any, Any, Any | None]:
    """(low, high, indices): the numbers ``low … high - 1`` of each event's windows.

    Events that are in none are left out; then ``indices`` says which are left, else it is None.
    """
    kernels, regular = device.kernels, window.regular
    if regular is None:
        return _in_any(*_listed_numbers(window, start, end, device), device)
    if regular.membership == "start":
        low, high = kernels.grid_ranges_by_start(start, regular.size, regular.hop, regular.align)
    else:
        if regular.until is not None:
            end = np.minimum(start + end if isinstance(end, int) else end, regular.until)
        low, high = kernels.grid_ranges(start, end, regular.size, regular.hop, regular.align)
    if regular.until is not None:
        high = np.where(start < regular.until, high, low)
    if regular.until is None and regular.hop <= regular.size:
        return low, high, None
    return _in_any(low, high, device)


def covered_windows(window: GridKind, events: Events, device: Device) -> tuple[Any, Any]:
    """(low, high) of events of a window without a bound, none left out; an event that never ends has any ``high``."""
    regular = window.regular
    if regular is None:
        return _listed_numbers(window, events.start, events.end, device)
    low, high = device.kernels.grid_ranges(events.start, events.end, regular.size, regular.hop, regular.align)
    return low, high


def _listed_numbers(window: GridKind, start: Any, end: Any | int, device: Device) -> tuple[Any, Any]:
    if not len(start):
        return start, start
    end = start + end if isinstance(end, int) else end
    if window.until is None:
        return calendars.overlapped(window, start, end, device)
    inside = start < window.until
    end = np.where(inside, np.minimum(end, window.until), start + TICK)
    low, high = calendars.overlapped(window, start, end, device)
    return low, np.where(inside, high, low)


def _in_any(low: Any, high: Any, device: Device) -> tuple[Any, Any, Any | None]:
    kernels = device.kernels
    inside = high > low
    if bool(inside.all()):
        return low, high, None
    at = kernels.keep(inside)
    return kernels.take(low, at), kernels.take(high, at), at


def _numbers(low: Any, high: Any, device: Device) -> Iterator[tuple[Any, Any | None]]:
    """(window numbers, which slot each is of), a bounded number at a time; None where each slot is one window."""
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


def in_order(threads: int, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """``map`` on some threads, at most twice as many items ahead; kernels release the interpreter's lock."""
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
