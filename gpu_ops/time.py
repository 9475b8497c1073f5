"""Time: the tick, the ends of time, and durations. Nothing here reads a clock.

Time is ``timestamp[us, UTC]`` throughout; inside, it is an int64 count of microseconds (ticks) since 1970-01-01T00:00Z.
"""

from __future__ import annotations

import datetime
import re

import pyarrow as pa

from gpu_ops.errors import PlanError, TimeError

TICK = 1
"""One tick, the smallest lifetime: a microsecond."""

MIN_TIME = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z in ticks. It is also where grids of windows are aligned by default; it is a Monday."""

MAX_TIME = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z in ticks: the open end, "infinity". An event whose end is this one never ends."""

TIME_TYPE = pa.timestamp("us", tz="UTC")
"""The Arrow type of ``start`` and ``end``."""

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)\s*", re.IGNORECASE)

_SPANS = "a datetime.timedelta, a number of microseconds, or a text such as '10min', '1h 30m', '250ms', '-5s'"

Duration = datetime.timedelta | int | str
Instant = datetime.datetime | datetime.date | int | str


def ticks(duration: Duration, *, name: str = "duration") -> int:
    """A span of time in ticks (microseconds).

    Args:
        duration: A timedelta, an int of microseconds, or a text of numbers and units
            (us, ms, s, sec, m, min, h, d, w), with one optional sign in front.
        name: How the error calls it.

    Raises:
        PlanError: It is none of these.

    Examples:
        >>> ticks("1h 30m")
        5400000000
        >>> ticks("-5s")
        -5000000
    """
    value = _ticks(duration)
    if value is None:
        ours = isinstance(duration, str) and re.fullmatch(r"\s*\d+\s*(mo|q|y)\s*", duration)
        remedy = "Months are of different lengths: say whose calendar with zone=, as in tumbling('1mo', zone='UTC')."
        raise PlanError(f"{name} {duration!r} is not a span of time.", remedy=remedy if ours else f"Give {_SPANS}.")
    if abs(value) > MAX_TIME - MIN_TIME:
        raise PlanError(f"{name} {duration!r} is longer than all of time, the years 1 to 9999.", remedy="Shorten it.")
    return value


def _ticks(duration: object) -> int | None:
    if isinstance(duration, bool):
        return None
    if isinstance(duration, datetime.timedelta):
        return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    if isinstance(duration, int):
        return duration
    if isinstance(duration, str):
        text = duration.strip()
        sign = -1 if text.startswith("-") else 1
        text = text.lstrip("+-")
        at, total = 0, 0
        while at < len(text):
            part = _PART.match(text, at)
            if part is None or part[2].lower() not in _UNITS:
                break
            total += int(part[1]) * _UNITS[part[2].lower()]
            at = part.end()
        if text and at == len(text):
            return sign * total
    return None


def positive_ticks(duration: Duration, *, name: str) -> int:
    """As `ticks`, refusing zero and less."""
    value = ticks(duration, name=name)
    if value <= 0:
        raise PlanError(f"{name} must be longer than zero, not {duration!r}.", remedy="Give a positive span.")
    return value


def instant(value: Instant, *, name: str = "time") -> int:
    """A point in time in ticks since 1970-01-01T00:00Z.

    Args:
        value: An aware datetime, a date (its midnight in UTC), ticks, or an ISO 8601 text with a zone.
        name: How the error calls it.

    Raises:
        PlanError: It is none of these, or has no zone.
        TimeError: It is not within the years 1 to 9999.

    Examples:
        >>> instant("1970-01-01T00:00:01Z")
        1000000
    """
    moment: object = value
    if isinstance(moment, str):
        try:
            moment = datetime.datetime.fromisoformat(moment)
        except ValueError:
            moment = None
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise PlanError(f"{name} {value!r} has no zone.", remedy="Add one, as in '2026-01-31T12:00:00Z'.")
        return ticks(moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    if isinstance(moment, datetime.date):
        return ticks(moment - datetime.date(1970, 1, 1))
    if isinstance(moment, int) and not isinstance(moment, bool):
        if not MIN_TIME <= moment <= MAX_TIME:
            raise TimeError(f"{name} {value!r} is outside the years 1 to 9999.", remedy="Ticks are microseconds.")
        return moment
    raise PlanError(
        f"{name} {value!r} is not a point in time.", remedy="Give an aware datetime or an ISO 8601 text with a zone."
    )


def format_time(value: int) -> str:
    """Ticks as ISO 8601 text; the open end as ``infinity``.

    Examples:
        >>> format_time(1_000_000)
        '1970-01-01T00:00:01Z'
    """
    if value == MAX_TIME:
        return "infinity"
    if not MIN_TIME <= value <= MAX_TIME:
        return f"{value} us"
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=value)
    return moment.replace(tzinfo=None).isoformat() + "Z"


def format_span(value: int) -> str:
    """Ticks as a span, in the largest units that say it exactly.

    Examples:
        >>> format_span(5_400_000_000)
        '1h 30min'
    """
    if value == 0:
        return "0s"
    sign, rest, parts = ("-" if value < 0 else ""), abs(value), []
    for unit in ("d", "h", "min", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + " ".join(parts)
