"""What is said by constants: numbers, texts, arrays and spans of time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import narwhals as nw

from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.expressions import Expression, FunctionCall, Member, Name, Period
from gpu_ops.texts.placed_error import PlacedError, failure_at, unsupported

MONTHS = {"year": 12, "month": 1}
"""The units of the calendar, and how many months each has."""
_DAY = 86_400_000
_MILLISECONDS = {
    "week": Fraction(7 * _DAY),
    "day": Fraction(_DAY),
    "hour": Fraction(3_600_000),
    "minute": Fraction(60_000),
    "second": Fraction(1000),
    "millisecond": Fraction(1),
    "microsecond": Fraction(1, 1000),
}

_MOST_MONTHS = 10_000 * 12
_MOST = 10_000 * 366 * _DAY
"""The longest span: times and spans together fit int64 as microseconds."""


class TimeSpan(NamedTuple):
    """A span of time.

    Attributes:
        months: Those of the calendar, which are not of one length.
        milliseconds: What is added to them.
    """

    months: int
    milliseconds: int


class ConstantScope:
    """Expressions without names."""

    def special(self, node: Expression) -> Bound | None:
        """Nothing has a meaning of its own."""
        return None

    def property(self, node: Name | Member) -> Bound | None:
        """There is none."""
        self._refuse(node)

    def aggregate(self, call: FunctionCall) -> Bound:
        """There is none."""
        self._refuse(call)

    def _refuse(self, node: Expression) -> NoReturn:
        raise failure_at(node, f"'{node}' is no constant.", "Write a number or a text.")


def span(parts: Period, amount: Callable[[Expression], Any]) -> TimeSpan:
    """The span of a period whose amounts are constants.

    Raises:
        PlacedError: An amount is no number, or the span is longer than all times together.
    """
    months, milliseconds = 0, Fraction(0)
    for expression, unit in parts.parts:
        number = amount(expression)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise failure_at(expression, f"An amount of time is a number, not {expression}.")
        if not abs(number) <= _MOST:
            raise _too_long(parts)
        if unit not in MONTHS:
            milliseconds += Fraction(number) * _MILLISECONDS[unit]
        elif number == int(number):
            months += int(number) * MONTHS[unit]
        else:
            raise failure_at(expression, f"A {unit} has no parts of one length.", "Write days.")
    if abs(months) > _MOST_MONTHS or abs(milliseconds) > _MOST:
        raise _too_long(parts)
    return TimeSpan(months, nearest(milliseconds))


def _too_long(parts: Period) -> PlacedError:
    return failure_at(parts, "A span of time is at most 10,000 years long.", "Times are those of the years 1 to 9999.")


def nearest(milliseconds: Fraction) -> int:
    """The nearest whole number; a half is rounded up, as by Java."""
    return (milliseconds + Fraction(1, 2)).__floor__()


def long_of(parts: Period, bound: Callable[[Expression], Bound]) -> Bound:
    """The milliseconds of a period whose amounts are not all constants, as a long."""
    made: nw.Expr | None = None
    for expression, unit in parts.parts:
        if unit in MONTHS:
            raise unsupported(parts, f"{unit}s whose number is no constant", "Write days.")
        amount = bound(expression)
        if not t.is_numeric(amount.type):
            kind = t.type_name(amount.type)
            raise failure_at(expression, f"An amount of time is a number, and '{expression}' is of type {kind}.")
        factor = _MILLISECONDS[unit]
        if t.is_integer(amount.type) and factor.denominator == 1:
            part = as_type(amount, t.LONG) * int(factor)
        else:
            part = (as_type(amount, t.DOUBLE) * float(factor) + 0.5).floor().cast(nw.Int64())
        made = part if made is None else made + part
    assert made is not None  # noqa: S101  (a period has a part)
    return Bound(made, t.LONG, str(parts))
