"""Covers: the times at which events are met by others, and the pieces of lifetimes within or outside of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.devices import Device

Matches = list[tuple[Any, Any, Any]]
"""Of pairs: (index of the event, int64 start, int64 end) each."""

Covers = tuple[Any, Any, Any]
"""(int32 number, int64 start, int64 end), in order; covers of one number do not touch."""


def covers_of(matches: Matches, device: Device) -> Covers:
    """When each event is met by at least one other."""
    none = device.columns.array(np.zeros(0, np.int64))
    rows, start, end = (np.concatenate([none, *each]) for each in (zip(*matches, strict=True) if matches else [()] * 3))
    codes = rows.astype(np.int32)
    groups = int(codes.max()) + 1 if len(codes) else 1
    order = device.kernels.group_order(codes, groups, start)
    return device.kernels.coverage(*(device.kernels.take(each, order) for each in (codes, start, end)))


def _covers_met(codes: Any, start: Any, end: Any, covers: Covers, device: Device) -> tuple[Any, Any]:
    search = device.kernels.search_pairs
    number, begin, over = covers
    first = search(number, over, codes, start)
    return first, np.maximum(first, search(number, begin, codes, end - 1))


def covered(codes: Any, start: Any, end: Any, covers: Covers, device: Device) -> tuple[Any, Any, Any]:
    """(row, start, end) of the pieces of lifetimes that lie within covers of the same number."""
    take = device.kernels.take
    first, last = _covers_met(codes, start, end, covers, device)
    rows, offset = device.kernels.expand(last - first)
    at = take(first, rows) + offset
    return rows, np.maximum(take(start, rows), take(covers[1], at)), np.minimum(take(end, rows), take(covers[2], at))


def uncovered(
    codes: Any, start: Any, end: Any, covers: Covers, device: Device, *, closed: Any | None = None
) -> tuple[Any, Any, Any]:
    """(row, start, end) of the pieces of lifetimes that lie outside of the covers of the same number.

    If a lifetime is not ``closed``, the piece after its last cover is left out: more covers may come.
    """
    take = device.kernels.take
    _, begin, over = covers
    if not len(begin):
        whole = start < end if closed is None else (start < end) & closed
        rows = device.kernels.keep(whole)
        return rows, take(start, rows), take(end, rows)
    first, last = _covers_met(codes, start, end, covers, device)
    # One piece before each cover that is met, and one after the last; empty pieces are left out.
    rows, offset = device.kernels.expand(last - first + 1)
    at = take(first, rows) + offset
    low = np.where(offset == 0, take(start, rows), take(over, np.maximum(at - 1, 0)))
    after_last = at == take(last, rows)
    high = np.where(after_last, take(end, rows), take(begin, np.minimum(at, len(begin) - 1)))
    there = low < high
    if closed is not None:
        there = there & (~after_last | take(closed, rows))
    left = device.kernels.keep(there)
    return take(rows, left), take(low, left), take(high, left)


def covered_until(codes: Any, start: Any, end: Any, covers: Covers, device: Device) -> Any:
    """The end of the last cover that each lifetime meets; its start if it meets none."""
    over = covers[2]
    if not len(over):
        return start
    first, last = _covers_met(codes, start, end, covers, device)
    return np.where(last > first, device.kernels.take(over, np.maximum(last - 1, 0)), start)
