"""Output clauses as rates, and crontabs as times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import narwhals as nw

from gpu_ops.core.time import MIN_TIME
from gpu_ops.epl.planning.arguments import clock_span
from gpu_ops.epl.queries import Crontab, EventCount, Output, OutputWhen
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes, zone_of
from gpu_ops.plan.rates import AtTimes, Condition, EveryPeriod, EveryRows, Rate, When
from gpu_ops.texts.binding.expressions import constant
from gpu_ops.texts.expressions import (
    Argument,
    Constant,
    CronLast,
    CronList,
    CronRange,
    CronStep,
    Expression,
    Name,
    Period,
    Syntax,
    Wildcard,
)
from gpu_ops.texts.placed_error import failure_at

Numbers: TypeAlias = Callable[[Expression], Any]
"""The value of an expression when the statement begins, such as a variable's."""

Conditions: TypeAlias = Callable[[Expression], nw.Expr]
"""A condition over the columns `gpu_ops.plan.rates.COUNTS` and `LAST_OUTPUT`."""


@dataclass(frozen=True)
class PlannedOutput:
    """What an output clause says.

    Attributes:
        rate: When there is output.
        selection: Which rows; with ``"snapshot"`` the whole content.
    """

    rate: Rate
    selection: Literal["", "first", "last", "all", "snapshot"] = ""


def output_rate(
    output: Output, *, since: int = MIN_TIME, resolve: Numbers = constant, conditions: Conditions | None = None
) -> PlannedOutput:
    """An output clause as a rate.

    Args:
        output: The clause.
        since: The clock at which the statement begins, in ticks.
        resolve: Gives the values of numbers in it, as variables have them.
        conditions: Makes its condition; None if there can be none.

    Raises:
        PlacedError: The clause asks for what gpu_ops does not have, or a number in it is none that it takes.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("select * from Ticks output after 2 min last every 1.5 sec")
        >>> planned = output_rate(statement.body.output)
        >>> print(planned.selection, planned.rate)
        last after 2min every 1s 500ms
    """
    if output.terminated is not None:
        raise failure_at(
            output.terminated,
            "gpu_ops has no output when a context partition ends.",
            "Leave 'when terminated' out.",
            construct="output when terminated",
        )
    rows = after = None
    if isinstance(output.after, EventCount):
        rows = _whole(output.after.count, "A number of events", 0, None, resolve)
    elif output.after is not None:
        after = _span(output.after, resolve)
    return PlannedOutput(Rate(_condition(output, resolve, conditions), rows, after, since), output.selection)


def posts_empty(output: Output | None) -> bool:
    """Whether a delivery without rows is posted: at all outputs but those of so many events, and of the first rows."""
    if output is None or output.selection == "first" or (output.rate is None and output.terminated is None):
        return False
    return not isinstance(output.rate, EventCount)


def _condition(output: Output, resolve: Numbers, conditions: Conditions | None) -> Condition | None:
    match output.rate:
        case None:
            return None
        case EventCount(count=count):
            return EveryRows(_whole(count, "A number of events", 1, None, resolve))
        case Period():
            return EveryPeriod(_span(output.rate, resolve))
        case Crontab(fields=fields):
            return AtTimes(crontab_times(fields, output.rate, resolve))
        case OutputWhen(condition=condition):
            if conditions is None:
                raise failure_at(condition, "There is no condition for output here.", construct="output when")
            return When(conditions(condition))


_FIELDS: tuple[tuple[str, str, int, int], ...] = (
    ("minutes", "A minute", 0, 59),
    ("hours", "An hour", 0, 23),
    ("days", "A day of the month", 1, 31),
    ("months", "A month", 1, 12),
    ("weekdays", "A day of the week", 0, 6),
    ("seconds", "A second", 0, 59),
)
_SATURDAY = 6


def crontab_times(fields: Sequence[Argument], of: Syntax, resolve: Numbers = constant) -> CrontabTimes:
    """The times of a crontab's fields: minutes, hours, days of month, months, days of week, and maybe seconds.

    Behind these a time zone, milliseconds and microseconds may stand; of the last, a wildcard or 0.

    Args:
        fields: The fields.
        of: What they are part of, for errors.
        resolve: As in `output_rate`.

    Raises:
        PlacedError: A field is out of range, or asks for what gpu_ops does not have.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("select * from Ticks output at (*/20, 8:10, *, *, [1,5])")
        >>> print(crontab_times(statement.body.output.rate.fields, statement.body.output.rate))
        ([0, 20, 40], [8, 9, 10], *, *, [1, 5], [0])
    """
    if not 5 <= len(fields) <= 9:
        raise failure_at(
            of,
            f"A crontab has five fields or more, not {len(fields)}.",
            "Write (minutes, hours, days, months, weekdays).",
        )
    times = CrontabTimes()
    for (name, what, least, most), each in zip(_FIELDS, fields, strict=False):
        times = _named(times, name, each, (what, least, most), resolve)
    times = replace(times, once_a_day=times.seconds is None and any(map(_is_special, fields)))
    for each in fields[6:7]:
        if isinstance(each, Wildcard):
            continue
        zone = each.value if isinstance(each, Constant) else None
        if not isinstance(zone, str) or (zone not in {"UTC", "GMT"} and zone_of(zone) is None):
            said, hint = f"There is no time zone {each}.", "Write: 'Europe/Vienna', or 'GMT-5', for instance."
            raise failure_at(each, said, hint, construct="time zone of a crontab")
        times = replace(times, zone="" if zone in {"UTC", "GMT"} else zone)
    for each in fields[7:8]:
        times = _named(times, "milliseconds", each, ("A millisecond", 0, 999), resolve)
    for each in fields[8:]:
        if not isinstance(each, Wildcard) and resolve(each) != 0:  # type: ignore[arg-type]
            raise failure_at(each, "The times of a crontab are whole milliseconds.", "Write 0.")
    return times


def _is_special(field: Argument) -> bool:
    """Whether a field names days by a word."""
    return isinstance(field, CronLast) or (isinstance(field, Name) and field.name in {"last", "lastweekday"})


def _named(
    times: CrontabTimes, name: str, field: Argument, limits: tuple[str, int, int], resolve: Numbers
) -> CrontabTimes:
    """Times with the values of one more field."""
    changed: dict[str, Any] = {name: None}
    if isinstance(field, Wildcard):
        return replace(times, **changed)
    word = field.word if isinstance(field, CronLast) else field.name if isinstance(field, Name) else ""
    if name not in {"days", "weekdays"} or word not in {"last", "weekday", "lastweekday"}:
        changed[name] = frozenset(_values(field, limits, resolve))
        return replace(times, **changed)
    number = _whole(field.value, *limits, resolve) if isinstance(field, CronLast) else None
    if name == "weekdays" and word == "last":
        if number is None:
            return replace(times, weekdays=frozenset({_SATURDAY}))
        return replace(times, last_weekdays=frozenset({number}))
    if name == "days" and word == "last" and number is None:
        return replace(times, last_day=True)
    if name == "days" and word == "weekday" and number is not None:
        return replace(times, workdays=frozenset({number}))
    if name == "days" and word == "lastweekday" and number is None:
        return replace(times, last_workday=True)
    raise failure_at(field, f"'{field}' names no days here.")


def _values(field: Argument, limits: tuple[str, int, int], resolve: Numbers) -> set[int]:
    """The values that a field names."""
    _, least, most = limits
    match field:
        case CronList(items=items):
            return {value for item in items for value in _values(item, limits, resolve)}
        case CronRange(low=low, high=high):
            return set(range(_whole(low, *limits, resolve), _whole(high, *limits, resolve) + 1))
        case CronStep(step=step):
            every = _whole(step, "A step", 1, None, resolve)
            return {value for value in range(least, most + 1) if value % every == 0}
        case Expression():
            return {_whole(field, *limits, resolve)}
    raise failure_at(field, f"'{field}' is no field of a crontab.")


def _whole(node: Expression, what: str, least: int, most: int | None, resolve: Numbers) -> int:
    """A whole number from one limit to another."""
    value = resolve(node)
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise failure_at(node, f"{what} is a whole number {limits}, not {node}.")
    return value


def _span(node: Period, resolve: Numbers) -> ClockSpan:
    """A period whose amounts may be variables."""
    return clock_span(replace(node, parts=tuple((_constant(amount, resolve), unit) for amount, unit in node.parts)))


def _constant(amount: Expression, resolve: Numbers) -> Expression:
    value = resolve(amount)
    return Constant(value, "double" if isinstance(value, float) else "int", place=amount.place)
