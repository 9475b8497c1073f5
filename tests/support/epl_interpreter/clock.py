"""The clock, and what is to be done when it has come to a time."""

from __future__ import annotations

import calendar
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Slot = tuple[int, int]
"""Which callback runs first among those that are due at the same time: the number of its statement, and its own."""


@dataclass(eq=False)
class Callback:
    """Something to do at a time."""

    due: int
    slot: Slot
    run: Callable[[], None]


class Clock:
    """The time in milliseconds, and the callbacks that wait for it."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._waiting: list[Callback] = []

    def after(self, delay: int, slot: Slot, run: Callable[[], None]) -> Callback:
        """Do something when so many milliseconds have passed."""
        callback = Callback(self.now + delay, slot, run)
        self._waiting.append(callback)
        return callback

    def cancel(self, callback: Callback | None) -> None:
        """Do it not."""
        if callback in self._waiting:
            self._waiting.remove(callback)

    def cancel_all_of(self, statement: int) -> None:
        """The statement is gone."""
        self._waiting = [each for each in self._waiting if each.slot[0] != statement]

    def next_due(self) -> int | None:
        """When the next callback is due."""
        return min((each.due for each in self._waiting), default=None)

    def move_to(self, now: int) -> list[Callback]:
        """Set the clock; the callbacks that are due, in the order in which they run. They wait no longer."""
        self.now = now
        due = [each for each in self._waiting if each.due <= now]
        self._waiting = [each for each in self._waiting if each.due > now]
        return sorted(due, key=lambda each: (each.due, each.slot))


@dataclass(frozen=True)
class Span:
    """A span of time: calendar months, and milliseconds behind them."""

    months: int
    milliseconds: int

    def after(self, time: int) -> int:
        """The time a span later. On the last day of a month that is too short for the day."""
        return _months_later(time, self.months) + self.milliseconds

    def before(self, time: int) -> int:
        """The time a span earlier."""
        return _months_later(time, -self.months) - self.milliseconds

    def next_on_grid(self, now: int, reference: int) -> tuple[int, int]:
        """The first time after now that is some spans from a reference; and the one before it, the next reference.

        Months are counted from one such time to the next: from January 31 to February 28 to March 28.
        """
        if not self.months:
            last = reference + (now - reference) // self.milliseconds * self.milliseconds
            return last + self.milliseconds, last
        while reference > now:
            reference = self.before(reference)
        last = reference
        while (end := self.after(last)) <= now:
            last = end
        return end, last


def _months_later(time: int, months: int) -> int:
    if not months:
        return time
    begins = _EPOCH + timedelta(milliseconds=time)
    years, month = divmod(begins.month - 1 + months, 12)
    day = min(begins.day, calendar.monthrange(begins.year + years, month + 1)[1])
    return (begins.replace(begins.year + years, month + 1, day) - _EPOCH) // timedelta(milliseconds=1)


def whole_milliseconds(seconds: float) -> int:
    """Seconds, rounded as Java does."""
    return math.floor(seconds * 1000 + 0.5)
