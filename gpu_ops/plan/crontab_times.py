"""Times that a crontab names (Esper: `timer:at`, `output at`)."""

from __future__ import annotations

import calendar
import datetime
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gpu_ops.core.time import MAX_TIME

_SECOND = 1_000_000
_MILLISECOND = 1000
_DAY = 86_400
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_ZERO = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  (the zone is said beside it)


_OFFSET = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2})(?::?(\d\d))?")


@lru_cache(maxsize=64)
def zone_of(name: str) -> datetime.tzinfo | None:
    """A time zone: ``"Europe/Vienna"`` and other names of the tz database, or an offset; None if there is no such zone.

    Examples:
        >>> print(zone_of("GMT-5"), zone_of("GMT+05:30"), zone_of("Europe/Vienna"), zone_of("Mars"))
        UTC-05:00 UTC+05:30 Europe/Vienna None
    """
    found = _OFFSET.fullmatch(name)
    if found is not None:
        sign, hours, minutes = found.groups(default="0")
        span = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        return datetime.timezone(-span if sign == "-" else span) if span < datetime.timedelta(days=1) else None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


@dataclass(frozen=True)
class CrontabTimes:
    """The times whose second, minute, hour, day and month are named, in UTC or in a time zone. None is a wildcard.

    Where both days of the month and days of the week are named, either is enough, as in Unix.

    Attributes:
        minutes: 0 to 59.
        hours: 0 to 23.
        days: Days of the month, 1 to 31.
        months: 1 to 12.
        weekdays: 0 (Sunday) to 6 (Saturday).
        seconds: 0 to 59.
        milliseconds: 0 to 999, of each named second.
        last_day: Whether the last day of the month is one of the days.
        last_weekdays: Weekdays whose last one of the month is one of the days: 5 for its last Friday.
        workdays: Days of the month that stand for the Monday to Friday nearest to them in that month.
        last_workday: Whether the last Monday to Friday of the month is one of the days.
        once_a_day: Whether only the first named second of each day is meant (Esper: where days are named by `last`,
            `weekday` or `lastweekday`, and each second is).
        zone: The time zone, as `zone_of` knows it; nothing for UTC. A time that a change of the clocks leaves out is as
            much later as they are put forward; of a time that is there twice the first one counts.

    Examples:
        >>> noon = CrontabTimes(minutes=frozenset({0}), hours=frozenset({12}))
        >>> noon.next_after(0) // 3_600_000_000, noon.next_after(12 * 3_600_000_000) // 3_600_000_000
        (12, 36)
    """

    minutes: frozenset[int] | None = None
    hours: frozenset[int] | None = None
    days: frozenset[int] | None = None
    months: frozenset[int] | None = None
    weekdays: frozenset[int] | None = None
    seconds: frozenset[int] | None = frozenset({0})
    last_day: bool = False
    last_weekdays: frozenset[int] = frozenset()
    workdays: frozenset[int] = frozenset()
    last_workday: bool = False
    once_a_day: bool = False
    zone: str = ""
    milliseconds: frozenset[int] | None = frozenset({0})

    def __str__(self) -> str:
        fields = [self.minutes, self.hours, self.days, self.months, self.weekdays, self.seconds]
        zone = f", {self.zone}" * bool(self.zone)
        fields += [] if self.milliseconds == frozenset({0}) else [self.milliseconds]
        return f"({', '.join('*' if each is None else str(sorted(each)) for each in fields)}{zone})"

    def next_after(self, time: int) -> int:
        """The first named time after a time, both in ticks; `MAX_TIME` if there is none."""
        zone = zone_of(self.zone) if self.zone else None
        if zone is None:
            return self._next_after(time)
        shown = time + _ahead(_ZERO + datetime.timedelta(seconds=time // _SECOND), zone, is_local=False)
        while (shown := self._next_after(shown)) < MAX_TIME:
            found = shown - _ahead(_ZERO + datetime.timedelta(seconds=shown // _SECOND), zone, is_local=True)
            if found > time:
                return found
        return MAX_TIME

    def _next_after(self, time: int) -> int:
        """The first named time after a time, as the clocks of the zone show both."""
        # A named second stands for its named milliseconds: the one that it is now has those that come.
        milliseconds = _named(self.milliseconds, 1000)
        left = [each for each in milliseconds if each * _MILLISECOND > time % _SECOND]
        now = self._next_second(time // _SECOND - 1) if left else None
        if left and now == time // _SECOND:
            return now * _SECOND + left[0] * _MILLISECOND
        found = self._next_second(time // _SECOND)
        return MAX_TIME if found is None else found * _SECOND + milliseconds[0] * _MILLISECOND

    def _next_second(self, second: int) -> int | None:
        """The first named second after one, both since 1970; None if there is none."""
        day, second = divmod(second + 1, _DAY)
        first = self._second_from(0)
        if self.once_a_day and first is not None and second > first:
            day, second = day + 1, 0
        for date in self._dates(day + _EPOCH):
            at = self._second_from(second) if date == day + _EPOCH else first
            if at is not None:
                return (date - _EPOCH) * _DAY + at
        return None

    def _second_from(self, second: int) -> int | None:
        """The first named second of a day, at or after one of them."""
        least = (second // 3600, second // 60 % 60, second % 60)
        for hour in _named(self.hours, 24):
            for minute in _named(self.minutes, 60):
                if (hour, minute) < least[:2]:
                    continue
                for at in _named(self.seconds, 60):
                    if (hour, minute, at) >= least:
                        return hour * 3600 + minute * 60 + at
        return None

    def _dates(self, first: int) -> Iterator[int]:
        """The named days from one on, as ordinals."""
        date = datetime.date.fromordinal(min(first, datetime.date.max.toordinal()))
        year, month = date.year, date.month
        while year <= datetime.MAXYEAR:
            if self.months is None or month in self.months:
                begin = datetime.date(year, month, 1).toordinal()
                yield from (begin + day - 1 for day in sorted(self._days(year, month)) if begin + day - 1 >= first)
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)

    def _days(self, year: int, month: int) -> set[int]:
        """The named days of a month."""
        before, length = calendar.monthrange(year, month)  # the weekday of the first day, from Monday on
        weekday = {day: (before + day) % 7 for day in range(1, length + 1)}
        by_number = self.days is not None or self.last_day or self.last_workday or bool(self.workdays)
        by_weekday = self.weekdays is not None or bool(self.last_weekdays)
        if not by_number and not by_weekday:
            return set(weekday)
        working = [day for day, each in weekday.items() if 0 < each < 6]
        found = {day for day in self.days or () if day <= length}
        found |= {length} if self.last_day else set()
        found |= {working[-1]} if self.last_workday else set()
        found |= {min(working, key=lambda each: abs(each - day)) for day in self.workdays if day <= length}
        found |= {day for day, each in weekday.items() if each in (self.weekdays or ())}
        return found | {day for day, each in weekday.items() if each in self.last_weekdays and day > length - 7}


def _ahead(time: datetime.datetime, zone: datetime.tzinfo, *, is_local: bool) -> int:
    """How many ticks the clocks of a zone are ahead of UTC, at a time in UTC or as they show it."""
    there = time.replace(tzinfo=zone) if is_local else time.replace(tzinfo=datetime.UTC).astimezone(zone)
    ahead = there.utcoffset()
    assert ahead is not None  # noqa: S101  (a zone has an offset at each time)
    return ahead // datetime.timedelta(microseconds=1)


def _named(values: frozenset[int] | None, count: int) -> list[int]:
    return list(range(count)) if values is None else sorted(values)
