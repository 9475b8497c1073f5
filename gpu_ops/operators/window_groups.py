"""What a data window knows of each of its groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.data_windows import UNKNOWN
from gpu_ops.operators.running_blocks import grown
from gpu_ops.plan.data_windows import (
    Alive,
    Best,
    First,
    FirstSpan,
    Kind,
    Last,
    Session,
    TimeBatches,
    TimeLengthBatches,
)
from gpu_ops.plan.together import Ends, Together
from gpu_ops.plan.window_conditions import Until, While


@dataclass
class Groups:
    """What is known of each group.

    Attributes:
        seen: int64: how many rows, or distinct starts, it has had.
        first: int64: its first start; `UNKNOWN` before.
        due: int64: when something happens even if no row comes; `UNKNOWN` if nothing does.
        closed: int64: when its last batch was complete; `UNKNOWN` if none was. Of windows together, when their timer is
            due; of sessions, its last start.
    """

    seen: Any
    first: Any
    due: Any
    closed: Any

    @classmethod
    def new(cls, count: int, device: Device) -> Self:
        """So many groups of which nothing is known."""
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

    def left(self, which: Any) -> Groups:
        """Some of the groups."""
        return Groups(*(each[which] for each in vars(self).values()))


KNOWS_LEAVES = Alive | First | FirstSpan | TimeBatches
"""Windows that know of each row when it leaves as soon as it comes."""

_FROM_ROWS = Last | First | Best | Ends
"""Windows that, taken together with others, know nothing but the rows that they hold."""


def at_rest(window: Kind, groups: Groups, count: int, cti: int) -> Any | None:
    """Which of so many groups a row may come to as if it were their first one, if they hold none; None if none may.

    What counts rows from the first one on, or time from the first start on, does so for ever.
    """
    if isinstance(window, TimeLengthBatches) and not window.runs:
        # A clock that was set a second time and met no row stands still.
        last = np.where(groups.closed[:count] == UNKNOWN, -UNKNOWN, groups.closed[:count])
        if window.since is not None:
            last = np.maximum(last, window.since)
        return last + 2 * window.span <= cti
    if isinstance(window, Together):
        aside = all(isinstance(part.window, _FROM_ROWS) or _looks_not_back(part.window) for part in window.parts)
    else:
        aside = isinstance(window, Best | While | Until) or _looks_not_back(window)
    return np.ones_like(groups.seen[:count], dtype=np.bool_) if aside else None


def _looks_not_back(window: Kind | Ends) -> bool:
    """Whether nothing that a window does depends on rows that are gone."""
    return (
        isinstance(window, Alive)
        or (isinstance(window, Session) and window.grid_cap is None)
        or (isinstance(window, TimeBatches) and (window.align is not None or window.calendar is not None))
        or (isinstance(window, FirstSpan) and window.since is not None)
    )
