"""Times by the fields of the calendar: milliseconds since 1970, in UTC.

Months count from 0, as in Java. A month or a day beyond its bounds moves on what is above it, as in Java's calendar.
"""

from __future__ import annotations

import narwhals as nw

_DAY = 86_400_000
_YEARS = 40_000
"""Years that are added, a hundred cycles of 400, so that none is negative."""
_EPOCH = 719_468 + _YEARS // 400 * 146_097
"""The days from the first of March, as many years before the year 0, to 1970."""


def as_time(value: nw.Expr) -> nw.Expr:
    """Milliseconds as a time."""
    return (value * 1000).cast(nw.Datetime("us", "UTC"))


def later(value: nw.Expr, months: int) -> nw.Expr:
    """A time so many months later, on the same day, or on the last one of a month that has fewer."""
    return as_time(value).dt.offset_by(f"{months}mo").dt.timestamp("ms")


def begin_of(value: nw.Expr, field: str) -> nw.Expr:
    """The beginning of the month or the year of a time."""
    return as_time(value).dt.truncate("1mo" if field == "month" else "1y").dt.timestamp("ms")


def with_date(
    value: nw.Expr, *, year: nw.Expr | None = None, month: nw.Expr | None = None, day: nw.Expr | None = None
) -> nw.Expr:
    """A time with another date, or a part of another."""
    time = as_time(value)
    year = time.dt.year().cast(nw.Int64) if year is None else year
    month = time.dt.month().cast(nw.Int64) - 1 if month is None else month
    day = time.dt.day().cast(nw.Int64) if day is None else day
    return (_days(year, month) + day) * _DAY + (value % _DAY + _DAY) % _DAY


def with_last_day(value: nw.Expr) -> nw.Expr:
    """A time on the last day of its month."""
    length = later(begin_of(value, "month"), 1) - begin_of(value, "month")
    return with_date(value, day=length // _DAY)


def _days(year: nw.Expr, month: nw.Expr) -> nw.Expr:
    """Days from 1970 to the day before a month of the Gregorian calendar."""
    # Years begin in March, so that a leap day is the last one of its year.
    months = (year + _YEARS) * 12 + month - 2
    begun = months // 12
    return begun * 365 + begun // 4 - begun // 100 + begun // 400 + (months % 12 * 153 + 2) // 5 - _EPOCH - 1
