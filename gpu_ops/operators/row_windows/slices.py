"""Slices of one group's rows in time: each is shown the rows around it on which its own rows' membership depends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.window_kinds import GapHalo, GridHalo, Halo, LiveHalo, NoHalo, RowHalo


@dataclass(frozen=True)
class Slice:
    """A slice and the rows around it.

    Attributes:
        rows: Rows in order of start.
        begin: Where the slice's own rows begin among them.
        end: Where they end.
        number: The number of the first row in its group, as far as the window asks for it.
    """

    rows: AxisRows
    begin: int
    end: int
    number: int = 0


def slices(halo: Halo | str, rows: AxisRows, device: Device) -> Iterator[Slice] | None:
    """The rows of one group in slices of about a block's size; None if they are few, or the window has no bound.

    Args:
        halo: Which rows around a slice its window needs.
        rows: The rows, in any order.
        device: Where arrays live.
    """
    size = device.block_rows
    if size is None or len(rows) <= 2 * size or isinstance(halo, str) or not _cuts(halo):
        return None
    kernels = device.kernels
    if not kernels.is_ordered(rows.code, rows.low):
        rows = rows.take(kernels.group_order(rows.code, int(rows.code[0]) + 1, rows.low), device)
    return _around(halo, _Rows(rows, size, device))


def _cuts(halo: Halo) -> bool:
    """Whether slices can be made without looking at all rows first."""
    counts_starts = isinstance(halo, RowHalo) and halo.starts
    return not counts_starts and not (isinstance(halo, GridHalo) and halo.calendar is not None)


@dataclass(frozen=True)
class _Rows:
    """The rows of one group, in order of start.

    Attributes:
        rows: The rows.
        size: About how many rows a slice has.
        device: Where arrays live.
    """

    rows: AxisRows
    size: int
    device: Device

    def __len__(self) -> int:
        return len(self.rows)

    def begin_of(self, row: int) -> int:
        """The first row that starts when a row starts."""
        return int(np.searchsorted(self.rows.low[: row + 1], self.rows.low[row]))

    def end_of(self, row: int) -> int:
        """One past the last row that starts when a row starts."""
        return row + int(np.searchsorted(self.rows.low[row:], self.rows.low[row], side="right"))

    def end_after(self, low: int, more: int = 0) -> int:
        """Where a slice ends that begins at a row: rows of one start are in one slice."""
        upto = low + self.size + more
        return len(self) if upto + self.size // 2 >= len(self) else self.end_of(upto - 1)

    def cut(self, first: int, begin: int, end: int, last: int, number: int = 0) -> Slice:
        """A slice, shown the rows from one index to another."""
        return Slice(self.rows.cut(first, last, self.device), begin - first, end - first, number)


@singledispatch
def _around(halo: Halo, rows: _Rows) -> Iterator[Slice]:
    raise TypeError(halo)


@_around.register
def _(halo: NoHalo, rows: _Rows) -> Iterator[Slice]:
    low = 0
    while low < len(rows):
        high = rows.end_after(low)
        yield rows.cut(low, low, high, high)
        low = high


@_around.register
def _(halo: RowHalo, rows: _Rows) -> Iterator[Slice]:
    low, more = 0, 4 * halo.count  # at most a third of the rows that a slice is shown are around it
    while low < len(rows):
        high = rows.end_after(low, more)
        first = rows.begin_of(max(low - halo.count, 0))
        last = len(rows) if high + halo.count >= len(rows) else rows.end_of(high + halo.count - 1)
        yield rows.cut(first, low, high, last, first % halo.every)
        low = high


@_around.register
def _(halo: LiveHalo, rows: _Rows) -> Iterator[Slice]:
    device, kernels = rows.device, rows.device.kernels
    low, alive = 0, device.columns.array(np.zeros(0, np.int64))
    while low < len(rows):
        high = rows.end_after(low, 4 * len(alive))
        indices = np.concatenate([alive, device.columns.array(np.arange(low, high))])
        shown = rows.rows.take(indices, device).with_ends()
        yield Slice(shown, len(alive), len(indices))
        if high < len(rows):
            alive = kernels.take(indices, kernels.keep(shown.high > rows.rows.low[high]))
        low = high


@_around.register
def _(halo: GapHalo, rows: _Rows) -> Iterator[Slice]:
    low, start = 0, rows.rows.low
    while low < len(rows):
        high = rows.end_after(low)
        while high < len(rows):
            # Where the next gap is: a slice's length further in each turn.
            upto = min(high + rows.size, len(rows))
            gaps = rows.device.kernels.keep(start[high:upto] - start[high - 1 : upto - 1] >= halo.gap)
            high = high + int(gaps[0]) if len(gaps) else upto
            if len(gaps):
                break
        yield rows.cut(low, low, high, high)
        low = high


@_around.register
def _(halo: GridHalo, rows: _Rows) -> Iterator[Slice]:
    low, start = 0, rows.rows.low
    origin = int(start[0]) if halo.align is None else halo.align
    while low < len(rows):
        high = rows.end_after(low)
        if high < len(rows):
            newest = int(start[high - 1])
            window = newest - (newest - origin) % halo.span + halo.span
            high += int(np.searchsorted(start[high:], window))
        yield rows.cut(low, low, high, high)
        low = high
