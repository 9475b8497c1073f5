"""The least of many times that come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Times: TypeAlias = npt.NDArray[np.int64]
_Run: TypeAlias = tuple[_Times, _Times]
"""Ascending times, and how many more of each were added than removed; no number is 0."""

_FEW = 1 << 12
"""With so many times or more they are not sorted before one of them is the least."""
_LOOKED_AT = 16
"""How many times of a run are looked at first."""
_PIECE = 64
"""One of so many unsorted times is sorted when the least of them has gone."""


class Least:
    """The least of some times that are added and removed.

    What is changed is kept in sorted runs, each longer than the next. Of many times that are added at once only the
    least is known, until it is removed: then the lowest of them are sorted. So a state of ten million rows is restored
    by one look at their times.

    Args:
        host: Makes NumPy arrays of arrays of times.

    Examples:
        >>> times = Least()
        >>> times.add(np.array([7, 5, 5]))
        >>> times.remove(np.array([5]))
        >>> times.least(9), times.least(3)
        (5, 3)
        >>> times.remove(np.array([5, 7]))
        >>> times.least(9)
        9
    """

    def __init__(self, host: Callable[[Any], Any] = np.asarray) -> None:
        self._host = host
        self._runs: list[_Run] = []
        self._unsorted: list[tuple[_Times, int]] = []

    def add(self, times: Any) -> None:
        """Add times."""
        if len(times) >= _FEW:
            self._hold(self._host(times))
        elif len(times):
            self._change(self._host(times), 1)

    def remove(self, times: Any) -> None:
        """Remove times that were added, each once."""
        if len(times):
            self._change(self._host(times), -1)

    def least(self, otherwise: int) -> int:
        """The least time, at most ``otherwise``; ``otherwise`` if there is no time."""
        size = _LOOKED_AT
        while self._runs or self._unsorted:
            head = min((int(times[0]) for times, _ in self._runs), default=None)
            low = min((least for _, least in self._unsorted), default=None)
            if low is not None and (head is None or low < head):
                return min(low, otherwise)  # no run says anything of it
            if low is not None and low == head:
                self._sort_lowest(low)
                continue
            bound = min(int(times[min(size, len(times)) - 1]) for times, _ in self._runs)
            bound = bound if low is None else min(bound, low - 1)
            cuts = [int(np.searchsorted(times, bound, side="right")) for times, _ in self._runs]
            there, _ = _summed([(times[:cut], counts[:cut]) for (times, counts), cut in self._cut(cuts)])
            if len(there):
                return min(int(there[0]), otherwise)
            self._runs = [(times[cut:], counts[cut:]) for (times, counts), cut in self._cut(cuts) if cut < len(times)]
            size *= 2
        return otherwise

    def _cut(self, cuts: Sequence[int]) -> list[tuple[_Run, int]]:
        return list(zip(self._runs, cuts, strict=True))

    def _change(self, times: _Times, count: int) -> None:
        found, counts = np.unique(times, return_counts=True)
        self._take_in((found, count * counts))

    def _take_in(self, run: _Run) -> None:
        while self._runs and len(run[0]) and len(self._runs[-1][0]) <= 2 * len(run[0]):
            run = _summed([self._runs.pop(), run])
        if len(run[0]):
            self._runs.append(run)

    def _hold(self, times: _Times) -> None:
        while self._unsorted and len(self._unsorted[-1][0]) <= 2 * len(times):
            times = np.concatenate([self._unsorted.pop()[0], times])
        self._unsorted.append((times, int(times.min())))

    def _sort_lowest(self, low: int) -> None:
        """Sort the lowest of the times whose least is a given one."""
        at = next(at for at, (_, least) in enumerate(self._unsorted) if least == low)
        times, _ = self._unsorted.pop(at)
        count = max(_FEW, len(times) // _PIECE)
        below = np.ones(len(times), np.bool_)
        if count < len(times):
            below = times <= np.partition(times, count)[count]
        rest = times[~below]
        if len(rest):
            self._unsorted.insert(at, (rest, int(rest.min())))
        self._change(times[below], 1)


def _summed(runs: Sequence[_Run]) -> _Run:
    """Several runs as one."""
    if len(runs) == 1:
        return runs[0]
    times, counts = (np.concatenate(each) for each in zip(*runs, strict=True))
    order = np.argsort(times, kind="stable")
    times, counts = times[order], counts[order]
    if not len(times):
        return times, counts
    first = np.flatnonzero(np.concatenate([[True], times[1:] != times[:-1]]))
    counts = np.add.reduceat(counts, first)
    left = counts != 0
    return times[first][left], counts[left]
