"""The times of `timer:schedule`: a date, a distance and a number of times, or all of them in ISO 8601."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from gpu_ops.core.time import MAX_TIME
from gpu_ops.epl.patterns import PatternObserver
from gpu_ops.epl.planning.arguments import MILLISECOND
from gpu_ops.plan.patterns import ScheduledTimes
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import constant, period
from gpu_ops.texts.placed_error import failure_at, unsupported

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_REPEATS = re.compile(r"R(\d*)")
_PERIOD = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?"
)
_MILLISECONDS = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000)


def scheduled_times(term: PatternObserver) -> ScheduledTimes:
    """The times that a schedule's arguments say.

    Raises:
        PlacedError: They say none, or gpu_ops does not have what they ask for.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> text = "select * from pattern [timer:schedule(iso: 'R2/1970-01-01T00:00:01Z/PT10S')]"
        >>> print(scheduled_times(parse(text)[0].body.stream.source.pattern))
        from 1000000 every 10000000 2 times
    """
    given: dict[str, e.Syntax] = {}
    for each in term.arguments:
        if not isinstance(each, e.NamedArgument) or each.name not in {"iso", "date", "period", "repetitions"}:
            raise failure_at(each, "A schedule takes iso, or date, period and repetitions, by these names.")
        given[each.name] = each.values[0]
    if "iso" in given:
        if len(given) > 1:
            raise failure_at(term, "A schedule in ISO 8601 says everything.", "Leave the other arguments out.")
        return _of_iso(given["iso"])
    first = None if "date" not in given else _date(constant(given["date"]), given["date"])
    every = 0
    if "period" in given:
        months, milliseconds = period(given["period"])
        every = _distance(months, milliseconds, given["period"])
    count: int | None = 1
    if "repetitions" in given:
        number = constant(given["repetitions"])
        if isinstance(number, bool) or not isinstance(number, int):
            raise failure_at(given["repetitions"], "A number of repetitions is a whole number.")
        count = None if number < 0 else number
    return _made(term, first, every, count)


def _made(node: e.Syntax, first: int | None, every: int, count: int | None) -> ScheduledTimes:
    if first is None and not every:
        raise failure_at(node, "A schedule has a date or a period.")
    return ScheduledTimes(first, every, count if every else 1)


def _of_iso(node: e.Syntax) -> ScheduledTimes:
    text = constant(node)
    if not isinstance(text, str):
        raise failure_at(node, "A schedule in ISO 8601 is a text.", "Write: iso: 'R3/2026-01-01T00:00:00Z/PT10S'.")
    first: int | None = None
    every, count = 0, 1 if not text.startswith("R") else None
    for place, part in enumerate(text.split("/")):
        if place == 0 and (repeats := _REPEATS.fullmatch(part)):
            count = int(repeats[1]) if repeats[1] else None
        elif part.startswith("P"):
            every = _period(part, node)
        else:
            first = _date(part, node)
    return _made(node, first, every, count)


def _period(text: str, node: e.Syntax) -> int:
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise failure_at(node, f"{text!r} is no period of ISO 8601.", "Write for instance PT10S, or P1DT2H.")
    years, months, *rest = (float(each or 0) for each in found.groups())
    milliseconds = sum(number * unit for number, unit in zip(rest, _MILLISECONDS, strict=True))
    return _distance(int(12 * years + months), round(milliseconds), node)


def _distance(months: int, milliseconds: int, node: e.Syntax) -> int:
    if months:
        raise unsupported(node, "schedules by months or years")
    if milliseconds <= 0:
        raise failure_at(node, "The period of a schedule is longer than nothing.")
    return milliseconds * MILLISECOND


def _date(value: Any, node: e.Syntax) -> int:
    """A time in ticks: of a text in ISO 8601, or milliseconds since 1970."""
    if isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            raise failure_at(node, f"{value!r} is no date of ISO 8601.", "Write: 2026-01-01T00:00:00Z.") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_TIME // MILLISECOND:
        raise failure_at(node, f"A date is a text in ISO 8601 or milliseconds since 1970, not {node}.")
    return value * MILLISECOND
