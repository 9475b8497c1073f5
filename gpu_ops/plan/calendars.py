"""Windows of the calendar: days, weeks, months, quarters and years on the clocks of a time zone."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

import numpy as np

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, Duration, Instant, format_time, instant
from gpu_ops.errors import PlanError
from gpu_ops.ingest.zones import Ticks, Zone
from gpu_ops.plan.window_kinds import GridKind, WindowOutput

_UNITS = {"d": (0, 1), "w": (0, 7), "mo": (1, 0), "q": (3, 0), "y": (12, 0)}
_WRITTEN = re.compile(r"\s*(\d+)\s*(d|w|mo|q|y)\s*")

_DAY = 86_400_000_000
_FIRST, _LAST = MIN_TIME // _DAY + 2, MAX_TIME // _DAY - 2
"""The days that any zone's clocks can show, since 1970."""
_MARGIN = 2
"""Periods by which a guess from UTC may be wrong: local clocks differ from UTC by at most a day."""


@dataclass(frozen=True)
class CalendarSpan:
    """A number of months, or a number of days; one of them is zero.

    Examples:
        >>> str(CalendarSpan(months=3)), str(CalendarSpan(days=14))
        ('3mo', '14d')
    """

    months: int = 0
    days: int = 0

    def __str__(self) -> str:
        return f"{self.months}mo" if self.months else f"{self.days}d"

    @property
    def least_days(self) -> int:
        """The days of the shortest such span."""
        return self.days or 28 * self.months

    def steps(self, anchor: int, numbers: Ticks) -> Ticks:
        """Times that are some numbers of this span after an anchor, on clocks that never change, in ticks."""
        if self.days:
            return anchor + numbers * (self.days * _DAY)
        month = np.array(anchor, "datetime64[us]").astype("datetime64[M]")
        into = anchor - int(month.astype("datetime64[us]").astype(np.int64))
        starts = (month + numbers * self.months).astype("datetime64[us]").astype(np.int64)
        return np.asarray(starts + into)


@dataclass(frozen=True)
class Calendar(GridKind):
    """Windows ``[anchor + k * every, + size)`` on the calendar of a zone; a day there has 23 to 25 hours.

    Attributes:
        size: The length of a window.
        every: From the start of one window to the next.
        zone: The time zone.
        anchor: The start of window 0 on the zone's clocks, in ticks as if it were UTC.
        output: As in `Hopping`: the window itself, or one tick at its end.
        until: Lifetimes are first clipped there, in ticks.
    """

    size: CalendarSpan
    every: CalendarSpan
    zone: str
    anchor: int = MIN_TIME
    output: WindowOutput = "window"
    until: int | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown zone, and spans that do not fit each other."""
        Zone(self.zone)
        if bool(self.size.months) != bool(self.every.months):
            raise PlanError(
                f"Windows of {self.size} do not start every {self.every}: months are of different lengths.",
                remedy='Give both in days and weeks, or both in months, quarters and years: size="1y", every="1mo".',
            )

    def __str__(self) -> str:
        kind = "tumbling" if self.every == self.size else "hopping"
        every = "" if self.every == self.size else f" every={self.every}"
        align = "" if self.anchor == MIN_TIME else f" align={format_time(self.anchor)[:-1]}"
        until = "" if self.until is None else f" until={format_time(self.until)}"
        output = "" if self.output == "window" else f" output={self.output}"
        return f"{kind} size={self.size}{every} zone={self.zone}{align}{until}{output}"

    @property
    def duration(self) -> int | None:
        return TICK if self.output == "point" else None

    def begins(self, numbers: Ticks) -> Ticks:
        """Times outside of the years 1 to 9999 are clipped to these years; an end there is finite."""
        return self._to_utc(self.every.steps(self.anchor, numbers))

    def finishes(self, numbers: Ticks) -> Ticks:
        span, every = self.size, self.every
        if span.months:
            return self._to_utc(CalendarSpan(months=1).steps(self.anchor, numbers * every.months + span.months))
        return self._to_utc(every.steps(self.anchor, numbers) + span.days * _DAY)

    def around(self, time: int) -> tuple[int, int]:
        reach = -(-self.size.least_days // self.every.least_days) + _MARGIN
        guess = self._guess(time)
        return guess - reach, guess + _MARGIN

    def _guess(self, time: int) -> int:
        """A guess of the number of the period that holds a time."""
        if self.every.days:
            return (time - self.anchor) // (self.every.days * _DAY)
        months = np.array([time, self.anchor], "datetime64[us]").astype("datetime64[M]").astype(np.int64)
        return int(months[0] - months[1]) // self.every.months

    def _to_utc(self, local: Ticks) -> Ticks:
        known = np.clip(local, _FIRST * _DAY, _LAST * _DAY)
        # The first of two midnights counts; a skipped midnight is the moment at which the clock jumps forward.
        instants, _ = Zone(self.zone).to_utc(known, "earliest", "shift_forward")
        # No clock changes in the first and the last days.
        return np.clip(instants + (local - known), MIN_TIME, MAX_TIME - TICK)


def calendar_span(span: Duration, *, name: str) -> CalendarSpan:
    """A span of whole days or months: ``"1d"``, ``"2w"``, ``"1mo"``, ``"1q"``, ``"1y"``.

    Raises:
        PlanError: It is none.

    Examples:
        >>> calendar_span("1q", name="size")
        CalendarSpan(months=3, days=0)
    """
    written = _WRITTEN.fullmatch(span) if isinstance(span, str) else None
    if written is None or not int(written[1]):
        raise PlanError(
            f"{name} {span!r} is no calendar span.",
            remedy='With zone= it is a whole number of days, weeks, months, quarters or years, as "1d", "2w", "1mo", '
            '"1q" or "1y".',
        )
    months, days = (int(written[1]) * each for each in _UNITS[written[2]])
    return CalendarSpan(months, days)


def anchored(zone: str, align: Instant | None, every: CalendarSpan) -> int:
    """What a zone's clocks show at an instant, as if it were UTC, in ticks: windows are counted from there.

    Args:
        zone: The time zone.
        align: The instant; None for 0001-01-01T00:00 on these clocks.
        every: From the start of one window to the next.

    Raises:
        PlanError: Windows of months are counted from a day that some months do not have.

    Examples:
        >>> anchored("Europe/Vienna", "1970-01-01T00:00Z", CalendarSpan(days=1)) // 3_600_000_000
        1
    """
    if align is None:
        return MIN_TIME
    since = datetime.timedelta(microseconds=instant(align, name="align"))
    shown = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + since
    local = shown.astimezone(Zone(zone).info).replace(tzinfo=None)
    if every.months and local.day > 28:
        raise PlanError(f"align is on day {local.day} of a month.", remedy="Not every month has it: choose one to 28.")
    return (local - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)  # noqa: DTZ001  (local)
