"""What a data window knows of each of its groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.state.rows import grown
from gpu_ops.plan.window_kinds import UNKNOWN, DataWindowKind


@dataclass
class GroupStates:
    """What is known of each group.

    Attributes:
        seen: int64: how many rows, or distinct starts, it has had.
        first: int64: its first start; `UNKNOWN` before.
        due: int64: when something happens even if no row comes; `UNKNOWN` if nothing does.
        closed: int64: what the window noted of it (`Membership.noted`); `UNKNOWN` before it did.
    """

    seen: Any
    first: Any
    due: Any
    closed: Any

    @classmethod
    def new(cls, count: int, device: Device) -> Self:
        """A number of groups about which nothing is known."""
        none = device.columns.array(np.zeros(count, np.int64))
        return cls(none, *(np.full_like(none, UNKNOWN) for _ in range(3)))

    def grow(self, groups: int) -> None:
        """Make room for groups that are new."""
        known = len(self.seen)
        if known < groups:
            self.seen = grown(self.seen, groups)
            self.first, self.due, self.closed = (grown(each, groups) for each in (self.first, self.due, self.closed))
            self.first[known:], self.due[known:], self.closed[known:] = UNKNOWN, UNKNOWN, UNKNOWN

    def wake(self, codes: Any, times: Any, touched: Any, device: Device) -> None:
        """Look at groups again at the least of some times of their rows, if that is known.

        Args:
            codes: For each row which of the touched groups it is of.
            times: int64 ticks.
            touched: int64 numbers of these groups.
            device: Where arrays live.
        """
        order = device.kernels.group_order(codes, len(touched), times)
        codes = codes[order]
        first = device.kernels.keep(np.concatenate([np.ones_like(codes[:1], dtype=np.bool_), codes[1:] != codes[:-1]]))
        here = touched[codes[first]]
        self.due[here] = np.minimum(self.due[here], times[order][first])

    def left(self, which: Any) -> GroupStates:
        """Some of the groups."""
        return GroupStates(*(each[which] for each in vars(self).values()))


def at_rest(window: DataWindowKind, groups: GroupStates, count: int, cti: int) -> Any | None:
    """Which of so many groups a row may come to as if it were their first one, if they hold none; None if none may."""
    remains, noted = window.remains, groups.closed[:count]
    if remains == "all":
        return None
    if remains == "nothing":
        return np.ones_like(noted, dtype=np.bool_)
    last = np.where(noted == UNKNOWN, -UNKNOWN, noted)
    if remains.since is not None:
        last = np.maximum(last, remains.since)
    return last + remains.span <= cti
