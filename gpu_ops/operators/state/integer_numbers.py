"""The numbers of integers: a table of all integers between the least and the greatest, or sorted runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.devices import Device

_TABLE = 1 << 17
"""The widest range of integers that always has a table, however few they are."""

_SORTED = 64
"""More integers than so many are sorted before they are sought in runs."""

_PER_INTEGER = 4
"""A table has at most so many places for each integer, or `_TABLE` of them."""


class IntegerNumbers:
    """A number for each of some integers. To find one, and to add one, does not take longer with more of them.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._runs: list[tuple[Any, Any]] = []
        self._table: Any | None = None
        self._least = self._from = self._upto = 0

    def find(self, values: Any) -> Any:
        """int32 number of each of some integers, in an array of its own; -1 if it has none."""
        take = self._device.kernels.take
        if self._table is not None:
            at = values.astype(np.int64, copy=False)
            least, most = self._device.kernels.extent(at) if len(at) else (self._least, self._least)
            at = at - self._least if self._least else at
            if self._least <= least and most - self._least < len(self._table):
                return take(self._table, at)
            inside = (at >= 0) & (at < len(self._table))
            return np.where(inside, take(self._table, np.where(inside, at, 0)), np.int32(-1))
        if len(values) > _SORTED:
            # Searches for ascending integers find what they read in the caches.
            order = np.argsort(values, kind="stable")
            found = np.empty_like(values, dtype=np.int32)
            found[order] = self._in_runs(take(values, order))
            return found
        return self._in_runs(values)

    def _in_runs(self, values: Any) -> Any:
        take, found = self._device.kernels.take, np.full_like(values, -1, dtype=np.int32)
        for known, numbers in self._runs:
            at = np.minimum(np.searchsorted(known, values), len(known) - 1)
            found = np.where(take(known, at) == values, take(numbers, at), found)
        return found

    def add(self, values: Any, numbers: Any) -> None:
        """Give integers that have no number one each.

        Args:
            values: Distinct integers, all of the same type in each call.
            numbers: Their int32 numbers.
        """
        if not len(values):
            return
        take, known = self._device.kernels.take, bool(self._runs)
        while self._runs and len(self._runs[-1][0]) < 2 * len(values):
            more = self._runs.pop()
            values, numbers = np.concatenate([more[0], values]), np.concatenate([more[1], numbers])
        order = np.argsort(values, kind="stable")
        run = take(values, order), take(numbers, order)
        least, upto = int(run[0][0]), int(run[0][-1]) + 1
        self._from, self._upto = (min(self._from, least), max(self._upto, upto)) if known else (least, upto)
        self._runs.append(run)
        # Only 63 bits are told from a table's first integer on.
        width, room = self._upto - self._from, max(_TABLE, _PER_INTEGER * sum(len(each) for each, _ in self._runs))
        if values.dtype == np.uint64 or width > room:
            self._table = None
        elif self._table is None or self._from < self._least or self._upto > self._least + len(self._table):
            self._make_table(min(2 * width, room))
        else:
            self._table[run[0].astype(np.int64, copy=False) - self._least] = run[1]

    def _make_table(self, size: int) -> None:
        """Make a table with free places on the side where integers came last."""
        low = self._table is not None and self._from < self._least
        self._least = max(self._upto - size, -(1 << 63)) if low else self._from
        self._table = self._device.columns.array(np.full(size, -1, np.int32))
        for values, numbers in self._runs:
            self._table[values.astype(np.int64, copy=False) - self._least] = numbers
