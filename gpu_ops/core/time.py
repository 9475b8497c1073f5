"""Time: the tick, the first and last time, and durations. Nothing here reads a clock.

Time is ``timestamp[us, UTC]`` throughout; inside, it is an int64 count of microseconds (ticks) since 1970-01-01T00:00Z.
"""

from __future__ import annotations

import datetime
import numbers
import re
from typing import Literal

import numpy as np
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

LIFETIME = ("start", "end")
"""The names of an event's two times: as columns of results, and in expressions."""

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
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_SPANS = "a text such as '10min', '1h 30m', '250ms', '-5s', a datetime.timedelta or a numpy.timedelta64"
_INSTANTS = "an aware datetime, an ISO 8601 text with a zone, a numpy.datetime64 (UTC), or 'infinity'"

Duration = datetime.timedelta | np.timedelta64 | str | Literal[0]
Instant = datetime.datetime | datetime.date | np.datetime64 | str


def ticks(duration: Duration, *, name: str = "duration") -> int:
    """A span of time in ticks (microseconds).

    Args:
        duration: A text of numbers and units (us, ms, s, sec, m, min, h, d, w), with one optional sign in front; a
            timedelta, NumPy's and pandas' too. A bare number has no unit and is refused, but for 0, which is none.
        name: How the error calls it.

    Raises:
        PlanError: It is none of these, or finer than a microsecond.

    Examples:
        >>> ticks("1h 30m")
        5400000000
        >>> ticks("-5s")
        -5000000
        >>> ticks(np.timedelta64(5, "us"))
        5
        >>> ticks(60)
        Traceback (most recent call last):
        gpu_ops.errors.PlanError: duration is 60, a number without a unit. Say '60s' for seconds, or ...
    """
    number = _number(duration)
    if number is not None:
        if number == 0:
            return 0
        raise _no_unit(name, number)
    value = _span_ticks(duration, name)
    if value is None:
        ours = isinstance(duration, str) and re.fullmatch(r"\s*\d+\s*(mo|q|y)\s*", duration)
        remedy = "Months are of different lengths: say whose calendar with zone=, as in tumbling('1mo', zone='UTC')."
        raise PlanError(f"{name} {duration!r} is not a span of time.", remedy=remedy if ours else f"Give {_SPANS}.")
    if abs(value) > MAX_TIME - MIN_TIME:
        raise PlanError(f"{name} {duration!r} is longer than the years 1 to 9999.", remedy="Shorten it.")
    return value


def _number(value: object) -> int | float | None:
    """A bare number, or a text of digits as a number; None of anything else."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value) else None
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_ | np.timedelta64):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return None


def _no_unit(name: str, number: float) -> PlanError:
    said = f"Give {_SPANS}."
    if isinstance(number, int) and abs(number) < 10**18:
        said = f"Say '{number}s' for seconds, or '{number}us' for microseconds."
    elif abs(number) < 10**9:
        said = f"Say '{format_span(round(number * 1_000_000))}' for seconds."
    return PlanError(f"{name} is {number!r}, a number without a unit.", remedy=said)


def _span_ticks(duration: object, name: str) -> int | None:
    if isinstance(duration, np.timedelta64):
        return _of_numpy(duration, name)
    if isinstance(duration, datetime.timedelta):
        _refuse_finer(getattr(duration, "nanoseconds", 0), duration, name)
        return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
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


def _of_numpy(value: np.timedelta64 | np.datetime64, name: str) -> int | None:
    """NumPy's spans, and times since 1970, in ticks; None without a fixed unit, and for NaT."""
    unit, each = np.datetime_data(value)
    if np.isnat(value) or (unit in {"generic", "M", "Y"} and isinstance(value, np.timedelta64)):
        return None
    if unit in {"M", "Y"}:
        value = value.astype("datetime64[D]")
        unit, each = "D", 1
    count = int(value.astype(np.int64)) * each
    if unit in _FINER:
        _refuse_finer(count % _FINER[unit], value, name)
        return count // _FINER[unit]
    return count * _UNITS[_NUMPY_UNITS.get(unit, unit)]


_FINER = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}
_NUMPY_UNITS = {"D": "d", "W": "w"}


def _refuse_finer(rest: int, value: object, name: str) -> None:
    if rest:
        raise PlanError(f"{name} {value!r} is finer than a microsecond.", remedy="Round it to microseconds first.")


def positive_ticks(duration: Duration, *, name: str) -> int:
    """As `ticks`, refusing zero and less."""
    value = ticks(duration, name=name)
    if value <= 0:
        raise PlanError(f"{name} must be longer than zero, not {duration!r}.", remedy="Give a positive span.")
    return value


def instant(value: Instant, *, name: str = "time") -> int:
    """A point in time in ticks since 1970-01-01T00:00Z.

    Args:
        value: An aware datetime, pandas' too; a date (its midnight in UTC); a ``numpy.datetime64``, which is UTC; an
            ISO 8601 text with a zone; or the text ``"infinity"``. A bare number has no unit and is refused.
        name: How the error calls it.

    Raises:
        PlanError: It is none of these, has no zone, or is finer than a microsecond.
        TimeError: It is not within the years 1 to 9999.

    Examples:
        >>> instant("1970-01-01T00:00:01Z")
        1000000
        >>> instant(np.datetime64(5, "us"))
        5
        >>> instant(5)
        Traceback (most recent call last):
        gpu_ops.errors.PlanError: time is 5, a number without a unit. Say np.datetime64(5, 's') for seconds ...
    """
    moment: object = value
    if isinstance(moment, str):
        if moment.strip().lower() == "infinity":
            return MAX_TIME
        try:
            moment = datetime.datetime.fromisoformat(moment)
        except ValueError:
            moment = None
    if isinstance(moment, np.datetime64):
        found = _of_numpy(moment, name)
        if found is not None and not MIN_TIME <= found <= MAX_TIME:
            raise TimeError(f"{name} {value!r} is outside the years 1 to 9999.", remedy="'infinity' is the open end.")
        if found is not None:
            return found
    # pandas' NaT is a datetime too, and unequal to itself.
    if isinstance(moment, datetime.datetime) and moment == moment:  # noqa: PLR0124
        if moment.tzinfo is None:
            raise PlanError(f"{name} {value!r} has no zone.", remedy="Add one, as in '2026-01-31T12:00:00Z'.")
        return ticks(moment - _EPOCH, name=name)
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        return ticks(moment - _EPOCH.date())
    number = _number(value)
    if number is not None:
        raise PlanError(
            f"{name} is {number!r}, a number without a unit.",
            remedy=f"Say np.datetime64({number!r}, 's') for seconds since 1970, 'us' for microseconds (so a CTI that "
            "gpu_ops gave), or an ISO 8601 text: '2026-01-31T12:00:00Z'.",
        )
    raise PlanError(f"{name} {value!r} is not a point in time.", remedy=f"Give {_INSTANTS}.")


def utc(value: int) -> np.datetime64:
    """Ticks as an instant, in the form that public arguments take.

    Examples:
        >>> utc(1_000_000)
        np.datetime64('1970-01-01T00:00:01.000000')
    """
    return np.datetime64(value, "us")


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
    """Ticks as a span, in the largest units that are exact.

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
