"""The events that operators pass to each other: lifetimes as arrays, the payload as a frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.bounds import gathered
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError
from gpu_ops.ingest.arrivals import Extent
from gpu_ops.operators.row_order import run_starts

# Operators call NumPy's functions on any device: they dispatch to CuPy for its arrays (NEP 13 and NEP 18).


MANY, FEW = 8, 1024
"""Above `MANY` groups for each row and `FEW` more, a step makes no table of all groups."""


class TimeOrder(IntEnum):
    """What is known of times one behind the other: nothing, or that none is before the one in front of it."""

    UNKNOWN = 0
    ASCENDS = 1


@dataclass(frozen=True)
class Events:
    """Events on a device.

    Attributes:
        start: int64 ticks.
        end: int64 ticks; or one duration in ticks, if all lifetimes are equally long.
        frame: The payload, one row per event.
        extent: Where the lifetimes are, if their source told.
        host_ends: The ends in the host's memory, if their source made them.
        order: What is known of the starts, so that not every node looks at each of them.
        end_order: The same of the ends.
    """

    start: Any
    end: Any
    frame: Any
    extent: Extent | None = None
    host_ends: Any | None = None
    order: TimeOrder = TimeOrder.UNKNOWN
    end_order: TimeOrder = TimeOrder.UNKNOWN

    def __len__(self) -> int:
        return len(self.start)

    @property
    def ends(self) -> Any:
        """The end of each event, as an array."""
        return self.start + self.end if isinstance(self.end, int) else self.end

    def points(self, frame: Any) -> Events:
        """Points at the starts of the events, with another payload."""
        return Events(self.start, TICK, frame, order=self.order)

    def ascend(self, device: Device) -> bool:
        """Whether no event starts before the one in front of it."""
        return self.order is TimeOrder.ASCENDS or device.kernels.ascends(self.start)

    def first_and_last(self, device: Device) -> tuple[int, int]:
        """The least and the greatest start; there is at least one event."""
        return extent_in(self.start, self.order, device)

    def take(self, indices: Any, device: Device) -> Events:
        """The events at these indices."""
        return self.repeated(indices, device.columns.take(self.frame, indices), device)

    def repeated(self, source: Any, frame: Any, device: Device) -> Events:
        """The lifetimes of the events at some indices, with another payload."""
        end = self.end if isinstance(self.end, int) else device.kernels.take(self.end, source)
        return Events(device.kernels.take(self.start, source), end, frame)

    def where(self, mask: Any, device: Device) -> Events:
        """The events for which a mask is true."""
        if bool(mask.all()):
            return self
        return replace(self.take(device.kernels.keep(mask), device), order=self.order, end_order=self.end_order)


def concat(pieces: Iterable[Events], device: Device) -> Events | None:
    """All pieces as one; None if there is no piece."""
    parts = list(gathered(pieces, "What a node keeps of its input"))
    if len(parts) <= 1:
        return parts[0] if parts else None
    durations = {part.end if isinstance(part.end, int) else None for part in parts}
    one = durations.pop() if len(durations) == 1 else None
    starts, frames = [part.start for part in parts], [part.frame for part in parts]
    ends = [] if one is not None else [part.ends for part in parts]
    # The pieces' memory is free as soon as it is joined: at no time are all arrays there twice.
    parts.clear()
    end = np.concatenate(ends) if one is None else one
    ends.clear()
    start = np.concatenate(starts)
    starts.clear()
    return Events(start, end, device.columns.concat(frames))


def whole_groups(
    events: Events, codes: Any, count: int, schema: pa.Schema, device: Device
) -> Iterator[tuple[Events, Any, Any]]:
    """Events in pieces of bounded size; each group is in one piece.

    Args:
        events: The events, in any order.
        codes: int32 group of each, ``0 … count - 1``.
        count: The number of groups; some may be empty.
        schema: The types of their payload.
        device: Where arrays live.

    Yields:
        (events in order of group and start, int32 group of each from 0 on, int64 numbers of the groups with events).
        If all events fit into one piece, they keep their order.
    """
    rows, size = len(events), device.block_rows
    if not rows:
        return
    if size is None or rows <= size or count == 1:
        yield events, codes, present(codes, count, device)
        return
    payload = Payload.of(events.frame, schema, device)
    times = [events.start] if isinstance(events.end, int) else [events.start, events.end]
    _, bounds, moved = device.kernels.partition(codes, count, [*times, *payload.arrays])
    bounds = device.columns.host(bounds)
    bounds = np.concatenate([bounds[:1], bounds[1:][bounds[1:] > bounds[:-1]]])  # of the groups that have events
    for low, high in group_spans(bounds, size):
        first, last = (int(np.searchsorted(bounds, edge)) for edge in (low, high))
        numbers, edges = (device.columns.array(each) for each in (np.arange(last - first), bounds[first : last + 1]))
        arrays = [each[low:high] for each in moved]
        end = events.end if isinstance(events.end, int) else arrays[1]
        placed = Events(arrays[0], end, payload.moved(arrays[len(times) :], device))
        yield placed, device.kernels.group_codes(edges - low), numbers


def group_spans(bounds: Any, size: int) -> Iterator[tuple[int, int]]:
    """(low, upto) of stretches of whole groups, of about a number of events; larger groups stand alone.

    A stretch of more than twice as many events is one group.

    Args:
        bounds: Host int64: where each group begins, and where the last one ends.
        size: About how many events a stretch has; a group of more than twice as many is larger.

    Examples:
        >>> list(group_spans(np.array([0, 2, 3, 9, 10]), 2))
        [(0, 2), (2, 3), (3, 9), (9, 10)]
        >>> list(group_spans(np.array([0, 1, 5]), 2))
        [(0, 1), (1, 5)]
    """
    larger = np.flatnonzero(np.diff(bounds) > 2 * size)
    low, total = 0, int(bounds[-1])
    for begin, end in [*zip(bounds[larger].tolist(), bounds[larger + 1].tolist(), strict=True), (total, total)]:
        while low < begin:
            at = int(np.searchsorted(bounds, min(low + size, begin)))
            high = int(bounds[at])
            if high - low > 2 * size:
                high = int(bounds[at - 1])
            yield low, high
            low = high
        if begin < end:
            yield begin, end
        low = end


def present(codes: Any, count: int, device: Device) -> Any:
    """int64 groups that have events, ascending, of ``count`` groups."""
    if count == 1 and len(codes):
        return device.columns.array(np.zeros(1, np.int64))
    if count > MANY * len(codes) + FEW:
        # NumPy would hash integers to find the distinct ones, and sort these.
        ordered = np.sort(codes)
        return device.kernels.take(ordered, device.kernels.keep(run_starts(ordered))).astype(np.int64, copy=False)
    return device.kernels.occurring(codes.astype(np.int32, copy=False), count)


def stretch_of(at: Any) -> tuple[int, int] | None:
    """(low, upto) of ascending indices that are all of a stretch, so that rows are cut and not copied; else None.

    Examples:
        >>> stretch_of(np.array([3, 4, 5])), stretch_of(np.array([3, 5]))
        ((3, 6), None)
    """
    if not len(at):
        return None
    low, upto = int(at[0]), int(at[-1]) + 1
    return (low, upto) if upto - low == len(at) else None


@dataclass(frozen=True)
class Payload:
    """A frame as arrays that kernels move: plain numbers take a third of the time that it takes to gather them.

    Attributes:
        frame: The frame.
        types: Its columns of plain numbers without null.
        arrays: Their values; then each row's index, by which other columns are gathered, where there are any.
    """

    frame: Any
    types: dict[str, pa.DataType]
    arrays: list[Any]

    @classmethod
    def of(cls, frame: Any, schema: pa.Schema, device: Device) -> Payload:
        """A frame whose columns have these types."""
        columns, types, arrays = device.columns, {}, []
        for name in frame.columns:
            dtype = schema.field(name).type
            if _is_plain(dtype) and columns.validity(frame, name) is None:
                types[name] = dtype
                arrays.append(columns.values(frame, name)[0])
        if len(types) < len(frame.columns):
            arrays.append(columns.array(np.arange(columns.rows(frame))))
        return cls(frame, types, arrays)

    def moved(self, arrays: Sequence[Any], device: Device) -> Any:
        """The frame that its arrays make, moved."""
        columns, names = device.columns, list(self.frame.columns)
        rest = [name for name in names if name not in self.types]
        parts = [columns.take(columns.select(self.frame, rest), arrays[-1])] if rest else []
        if self.types:
            placed = zip(self.types.items(), arrays, strict=False)
            parts.append(columns.build({name: (values, None, dtype) for (name, dtype), values in placed}))
        return parts[0] if len(parts) == 1 else columns.select(columns.beside(*parts), names)


def _is_plain(dtype: pa.DataType) -> bool:
    """Whether every device stores the same numbers for these values as Arrow does."""
    if pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        return bool(dtype.unit == "us")
    return bool(pa.types.is_primitive(dtype) and not pa.types.is_temporal(dtype))


def extent_of(events: Events, device: Device) -> Extent:
    """Where the lifetimes of some events are; there is at least one."""
    least, most = events.first_and_last(device)
    if isinstance(events.end, int):
        return Extent(least, most, most + events.end)
    return Extent(least, most, extent_in(events.end, events.end_order, device)[1])


def extent_in(times: Any, order: TimeOrder, device: Device) -> tuple[int, int]:
    """The least and the greatest of some times, at least one, of whose order something may be known."""
    if order is TimeOrder.ASCENDS:
        return int(times[0]), int(times[-1])
    return device.kernels.extent(times)


def check_times(start: Any, end: Any, device: Device, *, verb: str, order: TimeOrder = TimeOrder.UNKNOWN) -> None:
    """Refuse lifetimes outside of the years 1 to 9999, and finite ends at the time that means "open".

    Args:
        start: int64 ticks.
        end: int64 ticks, `MAX_TIME` for an open end; or a duration.
        device: Where they are.
        verb: The user's verb that moved them.
        order: What is known of the starts.

    Raises:
        TimeError: With the first such event.
    """
    if not len(start):
        return
    # A start plus a duration is finite; at `MAX_TIME` it would read as open.
    limit = MAX_TIME - 1 if isinstance(end, int) else MAX_TIME
    least, *most = extent_of(Events(start, end, None, order=order), device)
    if least >= MIN_TIME and max(most) <= limit:
        return
    ends = start + end if isinstance(end, int) else end
    at = int(((start < MIN_TIME) | (ends > limit) | (start > limit)).argmax())
    raise TimeError(
        f"{verb} moves a time out of the years 1 to 9999.",
        row=at,
        values=f"start={format_time(int(start[at]))}, end={format_time(int(ends[at]))}",
        remedy="Bound the times first, or move them less.",
    )
