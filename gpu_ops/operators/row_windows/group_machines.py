"""Data windows as state machines of one group, on the host: a row arrives, a row is forgotten, or time passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.plan.clock_windows import Accumulated, ClockBatches, ClockLengthBatches, FirstClock, StampSpan
from gpu_ops.plan.data_windows import Best, First, FirstSpan, Last, Sorted, TimeBatches, TimeLengthBatches
from gpu_ops.plan.window_kinds import UNKNOWN
from gpu_ops.plan.window_sets import UntilTime

_NO, _HELD, _IS_OUT = 0, 1, 2
"""How a machine holds a row: not at all; in the window, or gathering for a batch; in the batch that is out."""

Rows = Sequence[int]
_NONE: Rows = ()


@dataclass
class RowColumns:
    """The columns that a window reads of its rows; None if it does not read one.

    Attributes:
        within: Equal for rows of one window, if a group has several windows.
        rank: The best row has the greatest.
        unique: Equal for rows of which only one is kept.
        time: When the row leaves, or when its batch is complete at the latest.
        taken: Whether the window takes the row at all.
        clock: What the clock showed when the row came, or its stamp.
    """

    within: list[int] | None = None
    rank: list[int] | None = None
    unique: list[int] | None = None
    time: list[int] | None = None
    taken: list[bool] | None = None
    clock: list[int] | None = None


class Machine(ABC):
    """A window of one group: the rows that it holds, and the rows that leave as a row arrives or time passes."""

    in_batches = False
    keeps_first = False
    """Whether it refuses rows since others came before."""

    timed = False
    keeps_timer = False
    posts = False
    """Whether it posts whenever it is due, be it nothing."""

    timer = UNKNOWN
    """When it is due, if its rows do not say so."""

    @abstractmethod
    def arrive(self, row: int) -> tuple[Rows, Rows]:
        """A row arrives: (rows that enter, rows that leave; a row that is not taken is among the latter)."""

    def restore(self, row: int, how: int) -> None:
        """Hold a row from an earlier step; rows are restored in the order of their arrival."""
        del how
        self.arrive(row)

    @abstractmethod
    def forget(self, row: int) -> None:
        """Drop a row, if it is held."""

    @abstractmethod
    def how(self, row: int) -> int:
        """How a row is held."""

    def due(self) -> int:
        """When time alone changes the window; `UNKNOWN` for never."""
        return UNKNOWN

    def wait(self, time: int) -> tuple[Rows, Rows]:
        """A time has come at which time alone changes this window or another one: as `arrive`."""
        del time
        return _NONE, _NONE


class _CountMachine(Machine):
    """The first or the last rows, of each value of some columns."""

    def __init__(self, window: Last | First, columns: RowColumns, *, keeps_last: bool) -> None:
        self._count, self._within, self._keeps_last = window.count, columns.within, keeps_last
        self.keeps_first = not keeps_last
        self._rows: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)

    def _window(self, row: int) -> OrderedDict[int, None]:
        return self._rows[0 if self._within is None else self._within[row]]

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        rows = self._window(row)
        if len(rows) < self._count:
            rows[row] = None
            return (row,), _NONE
        if not self._keeps_last:
            return _NONE, (row,)
        rows[row] = None
        return (row,), (rows.popitem(last=False)[0],)

    def forget(self, row: int) -> None:
        self._window(row).pop(row, None)

    def how(self, row: int) -> int:
        return _HELD if row in self._window(row) else _NO


class _Spanned(Machine):
    """Rows that start within a span; a row does not depend on other rows."""

    keeps_first = True

    def __init__(self, window: FirstSpan, columns: RowColumns) -> None:
        del window
        self._taken: Any = columns.taken

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        return ((row,), _NONE) if self._taken[row] else (_NONE, (row,))

    def forget(self, row: int) -> None:
        pass

    def how(self, row: int) -> int:
        return _HELD if self._taken[row] else _NO


class _Ending(Machine):
    """Each row until its own time."""

    timed = True

    def __init__(self, window: UntilTime, columns: RowColumns) -> None:
        del window
        self._time: Any = columns.time
        self._taken: Any = columns.taken
        self._rows: set[int] = set()
        self._times: list[tuple[int, int]] = []

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        if not self._taken[row]:
            return _NONE, (row,)
        self._rows.add(row)
        if self._time[row] < MAX_TIME:
            heappush(self._times, (self._time[row], row))
        return (row,), _NONE

    def forget(self, row: int) -> None:
        self._rows.discard(row)

    def how(self, row: int) -> int:
        return _HELD if row in self._rows else _NO

    def due(self) -> int:
        while self._times and self._times[0][1] not in self._rows:
            heappop(self._times)
        return self._times[0][0] if self._times else UNKNOWN

    def wait(self, time: int) -> tuple[Rows, Rows]:
        gone = []
        while self.due() <= time:
            row = heappop(self._times)[1]
            self._rows.remove(row)
            gone.append(row)
        return _NONE, gone


class _Ranked(Machine):
    """The best rows, and one of each value of some columns."""

    def __init__(self, window: Best | Sorted, columns: RowColumns) -> None:
        self._count, self._unique, self._taken = window.count, columns.unique, columns.taken
        self._rank: Any = columns.rank
        # The least first, and of equal ones the oldest: the first one leaves.
        self._rows: list[tuple[int, int]] = []
        self._latest: dict[int, int] = {}

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        if self._taken is not None and not self._taken[row]:
            return _NONE, (row,)
        gone = []
        if self._unique is not None:
            before = self._latest.get(self._unique[row])
            if before is not None:
                self.forget(before)
                gone.append(before)
            self._latest[self._unique[row]] = row
        insort(self._rows, (self._rank[row], row))
        if len(self._rows) > self._count:
            worst = self._rows[0][1]
            self.forget(worst)
            gone.append(worst)
        return (_NONE if row in gone else (row,)), gone

    def forget(self, row: int) -> None:
        at = self._place(row)
        if at is not None:
            del self._rows[at]
            if self._unique is not None and self._latest.get(self._unique[row]) == row:
                del self._latest[self._unique[row]]

    def how(self, row: int) -> int:
        return _NO if self._place(row) is None else _HELD

    def _place(self, row: int) -> int | None:
        entry = (self._rank[row], row)
        at = bisect_left(self._rows, entry)
        return at if at < len(self._rows) and self._rows[at] == entry else None


class _Gathering(Machine):
    """Rows that gather for a batch, and the rows of the batch that is out."""

    in_batches = True

    def __init__(self) -> None:
        self._gathers: dict[int, None] = {}
        self._out: dict[int, None] = {}

    def restore(self, row: int, how: int) -> None:
        (self._out if how == _IS_OUT else self._gathers)[row] = None

    def forget(self, row: int) -> None:
        self._gathers.pop(row, None)

    def how(self, row: int) -> int:
        return _HELD if row in self._gathers else _IS_OUT if row in self._out else _NO

    def _complete(self) -> tuple[Rows, Rows]:
        gone, self._out, self._gathers = list(self._out), self._gathers, {}
        return list(self._out), gone


class _CountBatchMachine(_Gathering):
    """Batches of a number of rows."""

    def __init__(self, window: Last, columns: RowColumns) -> None:
        del columns
        super().__init__()
        self._count = window.count

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self._gathers[row] = None
        return self._complete() if len(self._gathers) == self._count else (_NONE, _NONE)


class _TimeBatchMachine(_Gathering):
    """The rows of each span of a grid; they are in during the next span."""

    timed = True

    def __init__(self, window: TimeBatches, columns: RowColumns) -> None:
        super().__init__()
        self._span = window.span
        self._time: Any = columns.time

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self._gathers[row] = None
        return _NONE, _NONE

    def due(self) -> int:
        # All rows that gather are of one span; so are all rows that are out.
        gathers = self._time[next(iter(self._gathers))] if self._gathers else UNKNOWN
        out = self._time[next(iter(self._out))] + self._span if self._out else UNKNOWN
        return int(min(gathers, out))

    def wait(self, time: int) -> tuple[Rows, Rows]:
        return self._complete() if self.due() <= time else (_NONE, _NONE)


class _TimerBatches(_Gathering):
    """Batches of a number of rows, or of the rows that gather until a timer is due.

    When a batch is complete, the timer is set to a span later, if this batch or the one before has a row; else the next
    row sets it.
    """

    timed = True
    keeps_timer = True

    def __init__(self, window: TimeLengthBatches, columns: RowColumns) -> None:
        super().__init__()
        self._count, self._span = window.count, window.span
        self._time: Any = columns.time

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self._gathers[row] = None
        if len(self._gathers) == self._count:
            self.timer = self._time[row]
            return self._complete()
        self.timer = min(self.timer, self._time[row])
        return _NONE, _NONE

    def due(self) -> int:
        return self.timer

    def wait(self, time: int) -> tuple[Rows, Rows]:
        if self.timer > time:
            return _NONE, _NONE
        self.timer = self.timer + self._span if self._gathers or self._out else UNKNOWN
        return self._complete()


# By a clock, of which a tick may be late: what waits for it is asked once, with what it shows


class _TogetherMachine(Machine):
    """All rows, until no row has come for a span."""

    timed = True
    keeps_timer = True

    def __init__(self, window: Accumulated, columns: RowColumns) -> None:
        del window
        self._time: Any = columns.time
        self._rows: dict[int, None] = {}

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self._rows[row] = None
        self.timer = self._time[row]
        return (row,), _NONE

    def restore(self, row: int, how: int) -> None:
        del how
        self._rows[row] = None

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)

    def how(self, row: int) -> int:
        return _HELD if row in self._rows else _NO

    def due(self) -> int:
        return self.timer if self._rows else UNKNOWN

    def wait(self, time: int) -> tuple[Rows, Rows]:
        del time
        gone, self._rows = list(self._rows), {}
        return _NONE, gone


class _ClockBatchMachine(_Gathering):
    """The rows of each span of a grid. The timer is a point of the grid, the next one while it is set."""

    timed = True
    keeps_timer = True

    def __init__(self, window: ClockBatches, columns: RowColumns) -> None:
        super().__init__()
        self._window, self._clock = window, columns.clock
        self.posts = window.runs

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        clock: int = self._clock[row]  # type: ignore[index]
        if self.due() == UNKNOWN:
            align = self._window.align
            point = self.timer if align is None else align
            self.timer = self._after(clock, clock if point == UNKNOWN else point)
        self._gathers[row] = None
        return _NONE, _NONE

    def due(self) -> int:
        return self.timer if self._window.runs or self._gathers or self._out else UNKNOWN

    def wait(self, time: int) -> tuple[Rows, Rows]:
        self.timer = self._after(time, self.timer)
        return self._complete()

    def _after(self, clock: int, point: int) -> int:
        return int(self._window.span.next_end(np.array([clock]), np.array([point]))[0])


class _ClockLengthMachine(_Gathering):
    """Batches of a number of rows, or of the rows that gather until a timer is due."""

    timed = True
    keeps_timer = True

    def __init__(self, window: ClockLengthBatches, columns: RowColumns) -> None:
        super().__init__()
        self._window, self._time = window, columns.time
        self.posts = window.runs

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self._gathers[row] = None
        due: int = self._time[row]  # type: ignore[index]
        if len(self._gathers) == self._window.count:
            self.timer = due
            return self._complete()
        self.timer = due if self.timer == UNKNOWN else self.timer
        return _NONE, _NONE

    def due(self) -> int:
        return self.timer

    def wait(self, time: int) -> tuple[Rows, Rows]:
        goes_on = self._gathers or self._out or self._window.runs
        self.timer = int(self._window.span.after(np.array([time]))[0]) if goes_on else UNKNOWN
        return self._complete()


class _FirstInTime(Machine):
    """Rows that come within a span; the timer is its end."""

    keeps_first = True

    def __init__(self, window: FirstClock, columns: RowColumns) -> None:
        self._clock: Any = columns.clock
        self._time: Any = columns.time
        self.keeps_timer = window.since is None
        self._rows: set[int] = set()
        if window.since is not None:
            self.timer = int(window.span.after(np.array([window.since]))[0])

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self.timer = self._time[row] if self.timer == UNKNOWN else self.timer
        if self._clock[row] >= self.timer:
            return _NONE, (row,)
        self._rows.add(row)
        return (row,), _NONE

    def forget(self, row: int) -> None:
        self._rows.discard(row)

    def how(self, row: int) -> int:
        return _HELD if row in self._rows else _NO


class _StampMachine(Machine):
    """The oldest leave while their stamps are a span or more before that of the row that comes."""

    def __init__(self, window: StampSpan, columns: RowColumns) -> None:
        del window
        self._stamp: Any = columns.clock
        self._time: Any = columns.time
        self._rows: OrderedDict[int, None] = OrderedDict()

    def arrive(self, row: int) -> tuple[Rows, Rows]:
        self._rows[row] = None
        gone = []
        while self._time[next(iter(self._rows))] <= self._stamp[row]:
            gone.append(self._rows.popitem(last=False)[0])
        return (row,), gone

    def restore(self, row: int, how: int) -> None:
        del how
        self._rows[row] = None

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)

    def how(self, row: int) -> int:
        return _HELD if row in self._rows else _NO


def _last(window: Last, columns: RowColumns) -> Machine:
    return _CountMachine(window, columns, keeps_last=True) if window.partial else _CountBatchMachine(window, columns)


MACHINES: dict[type, Callable[[Any, RowColumns], Machine]] = {
    Last: _last,
    First: partial(_CountMachine, keeps_last=False),
    FirstSpan: _Spanned,
    UntilTime: _Ending,
    Best: _Ranked,
    Sorted: _Ranked,
    TimeBatches: _TimeBatchMachine,
    TimeLengthBatches: _TimerBatches,
    Accumulated: _TogetherMachine,
    ClockBatches: _ClockBatchMachine,
    ClockLengthBatches: _ClockLengthMachine,
    FirstClock: _FirstInTime,
    StampSpan: _StampMachine,
}
