"""The state of each group of a data window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.row_order import run_starts
from gpu_ops.operators.state.rows import grown
from gpu_ops.plan.window_kinds import UNKNOWN, DataWindowKind


@dataclass
class GroupStates:
    """The state of each group.

    Attributes:
        seen: int64: the number of its rows so far, or of its distinct starts.
        first: int64: its first start; `UNKNOWN` before its first row.
        due: int64: the next time at which the window changes without a new row; `UNKNOWN` if there is none.
        closed: int64: the window's note of the group (`Membership.noted`); `UNKNOWN` before the first note.
    """

    seen: Any
    first: Any
    due: Any
    closed: Any

    @classmethod
    def new(cls, count: int, device: Device) -> Self:
        """A number of new groups."""
        none = device.columns.array(np.zeros(count, np.int64))
        return cls(none, *(np.full_like(none, UNKNOWN) for _ in range(3)))

    def grow(self, groups: int) -> None:
        """Make room for new groups."""
        known = len(self.seen)
        if known < groups:
            self.seen = grown(self.seen, groups)
            self.first, self.due, self.closed = (grown(each, groups) for each in (self.first, self.due, self.closed))
            self.first[known:], self.due[known:], self.closed[known:] = UNKNOWN, UNKNOWN, UNKNOWN

    def wake(self, codes: Any, times: Any, touched: Any, device: Device) -> None:
        """Let groups be due at the least of some times of their rows.

        Args:
            codes: For each row the place of its group among the touched groups.
            times: int64 ticks.
            touched: int64 numbers of these groups.
            device: Where arrays live.
        """
        order = device.kernels.group_order(codes, len(touched), times)
        codes = codes[order]
        first = device.kernels.keep(run_starts(codes))
        here = touched[codes[first]]
        self.due[here] = np.minimum(self.due[here], times[order][first])

    def left(self, which: Any) -> GroupStates:
        """Some of the groups."""
        return GroupStates(*(each[which] for each in vars(self).values()))


def at_rest(window: DataWindowKind, groups: GroupStates, count: int, cti: int) -> Any | None:
    """Which of ``count`` groups treat the next row as a first one, if they hold no row; None if no group does."""
    remains, noted = window.remains, groups.closed[:count]
    if remains == "all":
        return None
    if remains == "nothing":
        return np.ones_like(noted, dtype=np.bool_)
    last = np.where(noted == UNKNOWN, -UNKNOWN, noted)
    if remains.since is not None:
        last = np.maximum(last, remains.since)
    return last + remains.span <= cti
