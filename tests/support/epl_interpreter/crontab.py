"""A crontab: minutes, hours, days of month, months, days of week and, if they are said, seconds, in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e

_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (0, 59))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = 8
"""A day that does not come in so many years never comes."""


class Times:
    """The times at which the fields of a crontab are met."""

    def __init__(self, crontab: q.Crontab, number: Callable[[Any], int]) -> None:
        if not 5 <= len(crontab.fields) <= len(_BOUNDS):
            raise NotImplementedError("crontab in a time zone")
        self._number = number
        fields = [self._numbers(*pair) for pair in zip(crontab.fields, _BOUNDS, strict=False)]
        self._minutes, self._hours, self._days, self._months, self._weekdays = fields[:5]
        self._seconds = fields[5] if len(fields) > 5 else {0}
        every_day, every_weekday = (isinstance(crontab.fields[at], e.Wildcard) for at in (2, 4))
        self._either_day = not every_day and not every_weekday

    def _numbers(self, field: Any, bounds: tuple[int, int]) -> set[int]:
        low, high = bounds
        match field:
            case e.Wildcard():
                return set(range(low, high + 1))
            case e.CronStep():
                return set(range(low, high + 1, self._number(field.step)))
            case e.CronRange():
                return set(range(self._number(field.low), self._number(field.high) + 1))
            case e.CronList():
                return {number for item in field.items for number in self._numbers(item, bounds)}
            case e.CronLast():
                raise NotImplementedError("last days of a crontab")
        return {self._number(field)}

    def next_after(self, now: int) -> int:
        """The first of them behind a time. As in Esper, the milliseconds of that time stay."""
        minute = _EPOCH + timedelta(milliseconds=now // 60_000 * 60_000)
        last = minute + timedelta(days=366 * _YEARS)
        while minute < last:
            if not self._has_day(minute):
                minute = minute.replace(hour=0, minute=0) + timedelta(days=1)
                continue
            if minute.hour in self._hours and minute.minute in self._minutes:
                begins = (minute - _EPOCH) // timedelta(milliseconds=1)
                later = [time for second in sorted(self._seconds) if (time := begins + second * 1000) > now]
                if later:
                    return later[0] + now % 1000
            minute += timedelta(minutes=1)
        raise NotImplementedError("crontab of a day that never comes")

    def _has_day(self, time: datetime) -> bool:
        """Where both are said, a day of the month or one of the week is enough."""
        if time.month not in self._months:
            return False
        by_month, by_week = time.day in self._days, time.isoweekday() % 7 in self._weekdays
        return by_month or by_week if self._either_day else by_month and by_week
