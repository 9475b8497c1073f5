"""Cycles: the runs of a query of StreamCruncher, as places on a time axis.

A cycle is the clock at which it runs, in milliseconds, and how many cycles ran at that instant before. Both together
are one place, so that each partition knows the places of its own cycles, and no cycle has to be numbered before all are
known. A row that comes in one cycle and is expelled in another lives from the one place to the other.

All places are even, as those of turns are (`gpu_ops.core.turns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

CYCLE = 2
"""The distance between the places of two cycles that run at one instant, one behind the other."""

_SHIFT = 16
INSTANT = 1 << _SHIFT
"""The distance between the places of the first cycles of two milliseconds."""

MS = 1000
"""Ticks in a millisecond."""

WINDOW = "@window"
"""The column with the number of a key's window (int64): a key whose window was dropped gets a new one."""

STATUS = "@status"
"""The column that says what a row is in a cycle (int8): one of the constants below."""

NEW, OLD, DEAD = range(3)
"""A row that the cycle let in, one that was there before, and one that the cycle expelled."""

CYCLE_NUMBER = "cycle"
"""The column of results with the number of a cycle among those of its query (int64), from 0 on."""


@dataclass(frozen=True)
class Schedule:
    """When a query may run (StreamCruncher: its schedule, pause and resume).

    Attributes:
        since: The millisecond from which places are counted.
        every: Milliseconds between two runs, if it runs at fixed times and at no other; 0 if it runs when it has to.
        pauses: Pairs of milliseconds between which it does not run; what falls due then runs at the second.
    """

    since: int = 0
    every: int = 0
    pauses: tuple[tuple[int, int], ...] = ()

    def runs(self, times: Any) -> Any:
        """int64: when the first cycle can run that something at some milliseconds asks for.

        Examples:
            >>> Schedule(every=10, pauses=((3, 25),)).runs(np.array([2, 3, 41])).tolist()
            [10, 30, 50]
        """
        for begin, end in self.pauses:
            times = np.where((times >= begin) & (times < end), end, times)
        return -(-times // self.every) * self.every if self.every else times

    def places(self, times: Any) -> Any:
        """int64: the place of the first cycle at some milliseconds."""
        return (times - self.since) * INSTANT if self.since else times * INSTANT

    def clocks(self, places: Any) -> Any:
        """int64: the milliseconds that the clock shows at some places."""
        shown = places >> _SHIFT
        if self.since:
            shown += self.since
        return shown

    def times(self, places: Any) -> Any:
        """int64: the same in ticks.

        Examples:
            >>> Schedule(since=10).times(np.array([0, 2, INSTANT])).tolist()
            [10000, 10000, 11000]
        """
        shown = self.clocks(places)
        shown *= MS
        return shown


WHENEVER = Schedule()
"""The schedule of a query that runs when it has to."""
