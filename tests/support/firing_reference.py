"""When an output rate fires, one delivery and one tick after the other."""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, Rate

DAY = 86_400_000_000


def later(period: ClockSpan, time: int) -> int:
    """A time a period later, in ticks."""
    if period.months:
        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=time)  # noqa: DTZ001  (UTC throughout)
        months = at.year * 12 + at.month - 1 + period.months
        year, month = divmod(months, 12)
        day = min(at.day, calendar.monthrange(year, month + 1)[1])
        at = at.replace(year=year, month=month + 1, day=day)
        time = (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)  # noqa: DTZ001
    return time + period.ticks


@dataclass
class Firing:
    """A rate as it runs.

    Attributes:
        rate: The rate; its condition, if it has one, is `condition`.
        first: As in `FiringTimes`.
        condition: From the counts since the last output and altogether, and the time of the last output.
    """

    rate: Rate
    first: bool = False
    condition: Callable[[int, int, int, int, int], bool] | None = None
    clock: int = field(init=False)

    def __post_init__(self) -> None:
        self.clock = self.fired = self.rate.since
        self.after_holds = self.rate.after is None and self.rate.after_rows is None
        self.gathered = self.entered = self.left = self.entered_total = self.left_total = 0
        self.due: int | None = None
        self.waits = True

    def next_time(self) -> int:
        """The next time behind the clock."""
        every = self.rate.every
        if isinstance(every, AtTimes):
            return every.crontab.next_after(self.clock)
        assert isinstance(every, EveryPeriod)
        due = self.clock if self.due is None else self.due
        if not every.period.months:
            return due + ((self.clock - due) // every.period.ticks + 1) * every.period.ticks
        while due <= self.clock:
            due = later(every.period, due)
        return due

    def tick(self, clock: int) -> int | None:
        """The clock moves; the time that was due, if it fires."""
        self.clock = clock
        if self.due is None or clock < self.due:
            return None
        fired, self.due = self.due, self.next_time()
        self.waits = True
        return fired

    def passes(self, entered: int) -> bool:
        """Whether a delivery counts, by the rate's `after`."""
        if not self.after_holds:
            self.gathered += entered
            rows, time = self.rate.after_rows, self.rate.after
            enough = rows is None or self.gathered > rows
            self.after_holds = enough and (time is None or self.clock >= later(time, self.rate.since))
        return self.after_holds

    def deliver(self, entered: int, left: int, *, shown: bool = True) -> bool:
        """A delivery that passes; whether it fires."""
        if self.first and self.waits and not shown:
            return False
        self.waits = False
        if isinstance(self.rate.every, EveryPeriod | AtTimes):
            self.due = self.next_time() if self.due is None else self.due
            return False
        self.entered, self.left = self.entered + entered, self.left + left
        self.entered_total, self.left_total = self.entered_total + entered, self.left_total + left
        if isinstance(self.rate.every, EveryRows):
            fires = max(self.entered, self.left) >= self.rate.every.rows
        else:
            numbers = (self.entered, self.left, self.entered_total, self.left_total, self.fired // 1000)
            fires = self.condition is not None and self.condition(*numbers)
        if fires:
            self.entered = self.left = 0
            self.fired, self.waits = self.clock, True
        return fires
