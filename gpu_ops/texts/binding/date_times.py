"""Esper's date-time methods of times: milliseconds since 1970, in UTC."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import narwhals as nw

from gpu_ops.texts.binding import text_times
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.calendar_fields import begin_of, later, with_date, with_last_day
from gpu_ops.texts.expressions import FunctionCall
from gpu_ops.texts.placed_error import failure_at, unsupported

_UNITS = {"msec": 1, "sec": 1_000, "min": 60_000, "hour": 3_600_000, "day": 86_400_000}
_UNIT_OF = {
    **{f"{unit}{more}": unit for unit in _UNITS for more in ("", "s")},
    "millisecond": "msec",
    "milliseconds": "msec",
    "second": "sec",
    "seconds": "sec",
    "minute": "min",
    "minutes": "min",
}
"""Names of fields whose lengths are always the same."""

_GETTERS: Mapping[str, Callable[[nw.Expr], nw.Expr]] = {
    "getDayOfWeek": lambda time: time.dt.weekday() % 7 + 1,
    "getDayOfMonth": lambda time: time.dt.day(),
    "getDayOfYear": lambda time: time.dt.ordinal_day(),
    "getMonthOfYear": lambda time: time.dt.month() - 1,
    "getYear": lambda time: time.dt.year(),
    "getHourOfDay": lambda time: time.dt.hour(),
    "getMinuteOfHour": lambda time: time.dt.minute(),
    "getSecondOfMinute": lambda time: time.dt.second(),
    "getMillisOfSecond": lambda time: time.dt.millisecond(),
}
"""Methods of times: milliseconds since 1970, in UTC, with the numbers of Java's calendar (Sunday is 1, January 0)."""

_FIELDS = {
    "msec": "getMillisOfSecond",
    "sec": "getSecondOfMinute",
    "min": "getMinuteOfHour",
    "hour": "getHourOfDay",
    "day": "getDayOfMonth",
    "month": "getMonthOfYear",
    "year": "getYear",
}
"""The fields of `get`."""
_SIZES = {"msec": 1_000, "sec": 60, "min": 60, "hour": 24}
"""How many values fields have, all times the same number."""
_OF_CALENDAR = {"day": "day", "days": "day", "month": "month", "months": "month", "year": "year", "years": "year"}
"""Names of the fields of the calendar."""

_ROUNDS = ("roundFloor", "roundCeiling", "roundHalf")
_METHODS: Mapping[str, tuple[int, int]] = {
    "plus": (1, 1),
    "minus": (1, 1),
    "before": (1, 3),
    "after": (1, 3),
    "coincides": (1, 2),
    "between": (2, 4),
    **dict.fromkeys(("toMillisec", "toDate", "toCalendar"), (0, 0)),
    "get": (1, 1),
    "set": (2, 2),
    "withTime": (4, 4),
    "withDate": (3, 3),
    "format": (1, 1),
    **dict.fromkeys(("withMin", "withMax"), (1, 1)),
    **dict.fromkeys(_ROUNDS, (1, 1)),
}
"""The methods, and how many arguments they take."""

NAMES = (*_GETTERS, *_METHODS)


def date_time_method(node: FunctionCall, of: Bound, given: Sequence[Bound]) -> Bound:
    """A method of a time.

    Args:
        node: The call.
        of: The time, a long.
        given: Its arguments; a period is a long of milliseconds.

    Raises:
        PlacedError: There are more arguments, or fewer, or they are of other types.
    """
    least, most = _METHODS.get(node.name, (0, 0))
    if not least <= len(given) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise failure_at(node, f"{node.name}(…) takes {wanted} values, not {len(given)}.")
    if node.name in _ROUNDS:
        return Bound(_rounded(node, of.value, given[0]), t.LONG)
    value = of.value
    if node.name in {"toMillisec", "toDate", "toCalendar"}:
        return of
    if node.name in _GETTERS:
        return _got(value, node.name)
    if node.name == "get":
        return _got(value, _FIELDS[_field(node, given[0], _FIELDS)])
    if node.name == "withDate":
        year, month, day = (_time(node, each) for each in given)
        return Bound(with_date(value, year=year, month=month, day=day), t.LONG)
    if node.name == "format":
        return Bound((value * 1000).cast(nw.Datetime("us")).dt.to_string(_written(given[0])), t.TEXT)
    if node.name in {"set", "withMin", "withMax"}:
        if (field := _of_calendar(given[0])) is not None:
            return Bound(_with_date(node, value, field, given), t.LONG)
        field = _field(node, given[0], _SIZES)
        number = nw.lit(0 if node.name == "withMin" else _SIZES[field] - 1, nw.Int64())
        return Bound(_with(value, field, _time(node, given[1]) if node.name == "set" else number), t.LONG)
    if node.name == "withTime":
        for field, each in zip(("hour", "min", "sec", "msec"), given, strict=True):
            value = _with(value, field, _time(node, each))
        return Bound(value, t.LONG)
    if node.name == "between":
        return Bound(_between(node, value, given), t.BOOLEAN)
    times = [_time(node, each) for each in given]
    if node.name in {"plus", "minus"}:
        return Bound(value + times[0] if node.name == "plus" else value - times[0], t.LONG)
    return Bound(_COMPARED[node.name](value, *times), t.BOOLEAN)


def moved_by_calendar(node: FunctionCall, of: Bound, months: Sequence[int], rest: Bound | None) -> Bound:
    """A time moved by years and months, and then by a span: `plus(1 month 2 days)`.

    As in Java's calendar, the day is the last one of a month that has fewer.

    Args:
        node: The call of `plus` or `minus`.
        of: The time.
        months: How many months it is moved, one step after another.
        rest: The span behind them, in milliseconds.
    """
    sign = 1 if node.name == "plus" else -1
    value = of.value
    for each in months:
        value = later(value, sign * each)
    return Bound(value if rest is None else value + rest.value * sign, t.LONG)


def _of_calendar(given: Bound) -> str | None:
    """The field of the calendar that an argument names, if it does."""
    name = None if given.constant is None else given.constant.value
    return _OF_CALENDAR.get(name.lower()) if isinstance(name, str) else None


def _with_date(node: FunctionCall, value: nw.Expr, field: str, given: Sequence[Bound]) -> nw.Expr:
    """A time with another day, month or year: one that is said, the least or the greatest."""
    if node.name == "set":
        return with_date(value, **{field: _time(node, given[1])})
    if field == "year":
        raise unsupported(given[0], f"{node.name} of 'year'", "Take one of msec, sec, min, hour, day, month.")
    if field == "day":
        return with_date(value, day=nw.lit(1, nw.Int64())) if node.name == "withMin" else with_last_day(value)
    return with_date(value, month=nw.lit(0 if node.name == "withMin" else 11, nw.Int64()))


_WRITTEN: Mapping[str, str] = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "MMM": "%b",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "a": "%p",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%3f",
}
"""Java's fields as those of `strftime`, where both write the same."""


def _written(given: Bound) -> str:
    """A format of Java's `SimpleDateFormat`, as `strftime` has it."""
    said = None if given.constant is None else given.constant.value
    if not isinstance(said, str):
        raise failure_at(given, "format(…) takes a constant text.", "Write: format('yyyy-MM-dd HH:mm').")
    parts = text_times.parts_of(given, said)
    return "".join(each if is_literal else _field_of(given, each) for each, is_literal in parts)


def _field_of(given: Bound, part: str) -> str:
    if part not in _WRITTEN:
        raise unsupported(given, f"field {part!r} of a format", f"It has {' '.join(_WRITTEN)}.")
    return _WRITTEN[part]


def _time(node: FunctionCall, given: Bound) -> nw.Expr:
    """A time, or a span of it, in milliseconds."""
    if not t.is_integer(given.type):
        raise failure_at(given, f"{node.name}(…) takes times or periods, and {given.typed}.", "Cast it to long.")
    return as_type(given, t.LONG)


def _before(value: nw.Expr, other: nw.Expr, least: nw.Expr | None = None, most: nw.Expr | None = None) -> nw.Expr:
    """Whether a time is earlier than another; by at least a span, and at most another one, where they are said."""
    if least is None:
        return value < other
    far = other - value >= least
    return far if most is None else far & (other - value <= most)


def _coincides(value: nw.Expr, other: nw.Expr, most: nw.Expr | None = None) -> nw.Expr:
    """Whether two times are one, or no farther apart than a span."""
    return value == other if most is None else (value - other).abs() <= most


_COMPARED: Mapping[str, Callable[..., nw.Expr]] = {
    "before": _before,
    "after": lambda value, other, *spans: _before(other, value, *spans),
    "coincides": _coincides,
}


def _between(node: FunctionCall, value: nw.Expr, given: Sequence[Bound]) -> nw.Expr:
    """Whether a time is in a range, whose ends may be said in either order; both are in it unless it is said."""
    one, other = (_time(node, each) for each in given[:2])
    included = [True, True]
    for at, each in enumerate(given[2:]):
        if each.constant is None or not isinstance(each.constant.value, bool):
            raise failure_at(each, "between(…) takes true or false behind its times.")
        included[at] = each.constant.value

    def inside(low: nw.Expr, high: nw.Expr, *, first: bool, last: bool) -> nw.Expr:
        above = value >= low if first else value > low
        return above & (value <= high if last else value < high)

    first, last = included
    forward = inside(one, other, first=first, last=last)
    return nw.when(one <= other).then(forward).otherwise(inside(other, one, first=last, last=first))


def _got(value: nw.Expr, getter: str) -> Bound:
    """A field of a time, in UTC."""
    return Bound(_GETTERS[getter]((value * 1000).cast(nw.Datetime("us", "UTC"))).cast(nw.Int32()), t.INT)


def _with(value: nw.Expr, field: str, number: nw.Expr) -> nw.Expr:
    """A time with another value of a field; one that is too great moves on what is above it, as in Java."""
    unit = _UNITS[field]
    return value - _behind(value, unit * _SIZES[field]) + _behind(value, unit) + number * unit


def _behind(value: nw.Expr, unit: int) -> nw.Expr:
    """How far a time is behind the unit of time that it is in, whichever way times before 1970 are divided."""
    return (value % unit + unit) % unit


def _field(node: FunctionCall, given: Bound, known: Collection[str]) -> str:
    """The field that an argument names."""
    name = None if given.constant is None else given.constant.value
    if not isinstance(name, str):
        raise failure_at(given, f"{node.name}(…) takes the name of a field.", "Write 'hour', for instance.")
    field = _UNIT_OF.get(name.lower(), name.lower())
    if field not in known:
        raise unsupported(given, f"{node.name} of {name!r}", f"Take one of {', '.join(known)}.")
    return field


def _rounded(node: FunctionCall, value: nw.Expr, given: Bound) -> nw.Expr:
    """A time without what is behind a field of it, or with more of it."""
    name = None if given.constant is None else given.constant.value
    if not isinstance(name, str):
        raise failure_at(given, f"{node.name}(…) takes the name of a field.", "Write 'hour', for instance.")
    if (field := _of_calendar(given)) in {"month", "year"} and node.name != "roundHalf":
        assert field is not None  # noqa: S101  (it is one of the two)
        floor = begin_of(value, field)
        if node.name == "roundFloor":
            return floor
        return nw.when(value > floor).then(later(floor, 1 if field == "month" else 12)).otherwise(floor)
    if name.lower() not in _UNIT_OF:
        raise unsupported(given, f"{node.name} to {name!r}", f"Take one of {', '.join(_UNITS)}.")
    unit = _UNITS[_UNIT_OF[name.lower()]]
    behind = _behind(value, unit)
    floor = value - behind
    if node.name == "roundFloor":
        return floor
    up = behind > 0 if node.name == "roundCeiling" else behind * 2 >= unit
    return nw.when(up).then(floor + unit).otherwise(floor)
