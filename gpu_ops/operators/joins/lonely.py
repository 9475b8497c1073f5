"""When rows have no match, step by step: from how many matches they have, and the pairs that enter and leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.joins.coverage import Matches
from gpu_ops.operators.joins.turn_rows import OPEN
from gpu_ops.operators.row_order import run_starts


class Lonely:
    """Some rows, and how many matches they have; after `pieces` as they are at the end of the step.

    Args:
        begin: int64 places at which the rows enter; less than all places where they entered in an earlier step.
        end: int64 places at which they leave; `OPEN` where they do not.
        met: How many matches they have at the step's begin.
        since: Since when they have none, if so.
        device: Where arrays live.
    """

    def __init__(self, begin: Any, end: Any, met: Any, since: Any, device: Device) -> None:
        self._begin, self._end, self.met, self.since, self._device = begin, end, met, since, device

    def pieces(self, matches: Matches, done: int) -> tuple[Any, Any, Any]:
        """(row, start, end) of the times without a match, those that began before the step with their own starts.

        Args:
            matches: The pairs of these rows that enter or leave in the step.
            done: The place at which the step begins.
        """
        device, take = self._device, self._device.kernels.take
        count = len(self._begin)
        every = device.columns.array(np.arange(count))
        none = every[:0]
        at, start, end = (
            np.concatenate([none, *each]) for each in (zip(*matches, strict=True) if matches else [()] * 3)
        )
        come, go = device.kernels.keep(start >= done), device.kernels.keep(end < OPEN)
        rows = np.concatenate([every, take(at, come), take(at, go)])
        if not len(rows):
            return none, none, none
        places = np.concatenate([self._begin, take(start, come), take(end, go)])
        by = np.concatenate([self.met, np.ones_like(come), -np.ones_like(go)])
        order = device.kernels.group_order(rows.astype(np.int32), max(count, 1), places)
        rows, places, total = take(rows, order), take(places, order), np.cumsum(take(by, order))
        # Changes at one place are one; its count is that behind the last of them.
        first = device.kernels.keep(run_starts(rows, places))
        after = np.concatenate([first[1:], np.full_like(first[:1], len(rows))])
        row, place = take(rows, first), take(places, first)
        opens = device.kernels.keep(run_starts(row))
        begins = take(first, opens)
        before = np.where(begins > 0, take(total, np.maximum(begins - 1, 0)), 0)
        left = take(total, after - 1) - take(before, row)
        # Up to the row's next change, or to its end.
        limit = take(self._end, row)
        following = np.concatenate([place[1:], limit[-1:]])
        is_last = np.concatenate([row[1:] != row[:-1], np.ones_like(row[:1], dtype=np.bool_)])
        until = np.where(is_last, limit, np.minimum(following, limit))
        begin = np.where(place < done, take(self.since, row), place)
        alone = device.kernels.keep((left == 0) & (place < until))
        found = take(row, alone), take(begin, alone), take(until, alone)
        lasts = device.kernels.keep(is_last)
        self.met = take(left, lasts)
        self.since = np.where(self.met == 0, take(begin, lasts), self.since)
        return found
