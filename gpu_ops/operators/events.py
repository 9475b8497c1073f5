"""What operators pass to each other: lifetimes as arrays, and the payload as a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.bounds import gathered
from gpu_ops.core.time import MAX_TIME, MIN_TIME, format_time
from gpu_ops.devices import Device
from gpu_ops.errors import TimeError

# NumPy's functions act on CuPy's arrays too: these dispatch (NEP 13 and NEP 18). So operators use them on any device.


MANY, FEW = 8, 1024
"""Above `MANY` groups for each row and `FEW` more, a step makes no table of all groups."""


@dataclass(frozen=True)
class Events:
    """Events on a device.

    Attributes:
        start: int64 ticks.
        end: int64 ticks; or, when every lifetime lasts as long, for how many ticks.
        frame: The payload, one row per event.
    """

    start: Any
    end: Any
    frame: Any

    def __len__(self) -> int:
        return len(self.start)

    @property
    def ends(self) -> Any:
        """The end of each event, as an array."""
        return self.start + self.end if isinstance(self.end, int) else self.end

    def take(self, indices: Any, device: Device) -> Events:
        """The events at these indices."""
        take = device.kernels.take
        end = self.end if isinstance(self.end, int) else take(self.end, indices)
        return Events(take(self.start, indices), end, device.columns.take(self.frame, indices))

    def where(self, mask: Any, device: Device) -> Events:
        """The events for which a mask holds."""
        return self if bool(mask.all()) else self.take(device.kernels.keep(mask), device)


def concat(pieces: Iterable[Events], device: Device) -> Events | None:
    """All events in one; None when there is no piece at all."""
    parts = list(gathered(pieces, "What a node keeps of its input"))
    if len(parts) <= 1:
        return parts[0] if parts else None
    durations = {part.end if isinstance(part.end, int) else None for part in parts}
    one = durations.pop() if len(durations) == 1 else None
    end = one if one is not None else np.concatenate([part.ends for part in parts])
    start = np.concatenate([part.start for part in parts])
    return Events(start, end, device.columns.concat([part.frame for part in parts]))


def whole_groups(
    events: Events, codes: Any, count: int, schema: pa.Schema, device: Device
) -> Iterator[tuple[Events, Any, Any]]:
    """Events a bounded number at a time, all of a group in one piece.

    Args:
        events: The events, in any order.
        codes: int32 group of each, ``0 … count - 1``.
        count: How many groups there are; some may be empty.
        schema: The types of their payload.
        device: Where arrays live.

    Yields:
        (events, int32 group of each, int64 groups that have any), the groups from 0 on; in order of group and start.
        If all fit into one piece, they stay as they are.
    """
    rows, size = len(events), device.block_rows
    if not rows:
        return
    if size is None or rows <= size or count == 1:
        yield events, codes, present(codes, count, device)
        return
    bounds, part = _parts(events, codes, count, schema, device)
    bounds = np.unique(device.columns.host(bounds))  # the groups that have events, and no others
    group, done = 0, 0
    while done < rows:
        upto = int(np.searchsorted(bounds, min(done + size, rows)))
        high = int(bounds[upto])
        numbers, edges = (device.columns.array(each) for each in (np.arange(upto - group), bounds[group : upto + 1]))
        yield part(done, high), device.kernels.group_codes(edges - done), numbers
        group, done = upto, high


def present(codes: Any, count: int, device: Device) -> Any:
    """int64 groups that have events, ascending, of ``count`` groups."""
    if count > MANY * len(codes) + FEW:
        return np.unique(codes).astype(np.int64)
    found = device.columns.array(np.zeros(count, np.bool_))
    found[codes] = True
    return device.kernels.keep(found)


def _parts(
    events: Events, codes: Any, count: int, schema: pa.Schema, device: Device
) -> tuple[Any, Callable[[int, int], Events]]:
    """(where each group begins in order of group and start, what gives the events from one place to another)."""
    kernels, columns, names = device.kernels, device.columns, list(events.frame.columns)
    types = [schema.field(name).type for name in names]
    if not all(map(_is_plain, types)) or any(columns.validity(events.frame, name) is not None for name in names):
        order = kernels.group_order(codes, count, events.start)
        return kernels.group_bounds(codes, count), lambda low, high: events.take(order[low:high], device)
    # Plain numbers are moved where they belong in a third of the time that it takes to gather them.
    arrays = [events.start, *(columns.values(events.frame, name)[0] for name in names)]
    lasting = isinstance(events.end, int)
    moved = arrays if lasting else [*arrays, events.end]
    _, bounds, (start, *arrays) = kernels.partition(codes, count, moved)

    def part(low: int, high: int) -> Events:
        placed = zip(names, arrays, types, strict=False)
        built = {name: (values[low:high], None, dtype) for name, values, dtype in placed}
        return Events(start[low:high], events.end if lasting else arrays[-1][low:high], columns.build(built))

    return bounds, part


def _is_plain(dtype: pa.DataType) -> bool:
    """Whether values are stored on every device as the numbers that Arrow stores for them."""
    if pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        return bool(dtype.unit == "us")
    return bool(pa.types.is_primitive(dtype) and not pa.types.is_temporal(dtype))


def check_times(start: Any, end: Any, device: Device, *, verb: str) -> None:
    """Refuse lifetimes that leave the years 1 to 9999, and finite ones that reach the open end.

    Args:
        start: int64 ticks.
        end: int64 ticks, where the open end stands for itself; or a duration.
        device: Where they are.
        verb: What moved them.

    Raises:
        TimeError: With the first such event.
    """
    if not len(start):
        return
    least, most = device.kernels.extent(start)
    # What a duration leads to is finite, and would read as open on the maximum itself.
    limit = MAX_TIME - 1 if isinstance(end, int) else MAX_TIME
    most = most + end if isinstance(end, int) else max(most, device.kernels.extent(end)[1])
    if least >= MIN_TIME and most <= limit:
        return
    ends = start + end if isinstance(end, int) else end
    at = int(((start < MIN_TIME) | (ends > limit) | (start > limit)).argmax())
    raise TimeError(
        f"{verb} moves a time out of the years 1 to 9999.",
        row=at,
        values=f"start={format_time(int(start[at]))}, end={format_time(int(ends[at]))}",
        remedy="Bound the times first, or move them less.",
    )
