"""Arguments that are constants: numbers, texts, and spans of time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gpu_ops.epl.expressions import Constant, Expression, Operation, Period, Prefixed, Syntax
from gpu_ops.epl.placed_error import PlacedError
from gpu_ops.errors import PlanError
from gpu_ops.plan.clock_windows import ClockSpan

MILLISECOND = 1000
"""Ticks of a millisecond, the unit of Esper's clock."""

_MONTHS = {"year": 12, "month": 1}
_SECONDS = {
    "week": Decimal(604_800),
    "day": Decimal(86_400),
    "hour": Decimal(3_600),
    "minute": Decimal(60),
    "second": Decimal(1),
    "millisecond": Decimal("0.001"),
    "microsecond": Decimal("0.000001"),
}
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "||": lambda left, right: f"{left}{right}",
}


def failure_at(node: Syntax, problem: str, remedy: str = "", *, construct: str = "") -> PlacedError:
    """What is wrong with a part of a statement."""
    return PlacedError(node.place.start, node.place.end, problem, remedy, construct=construct)


def constant(node: Syntax) -> Any:
    """The value of an expression of constants alone.

    Raises:
        PlacedError: It is no constant.

    Examples:
        >>> constant(Operation("*", Constant(2, "int"), Prefixed("-", Constant(5, "int"))))
        -10
    """
    match node:
        case Constant(value=value):
            return value
        case Prefixed(operator="-" | "+" as sign, operand=operand):
            value = constant(operand)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value if sign == "-" else value
        case Operation(operator=sign, left=left, right=right) if sign in _OPERATORS:
            try:
                return _OPERATORS[sign](constant(left), constant(right))
            except (TypeError, ArithmeticError):
                pass
    raise failure_at(node, f"'{node}' is no constant.", "Write a number or a text.")


def period(node: Syntax) -> ClockSpan:
    """A span of time: a period, or a number of seconds; to the millisecond, as Esper's clock has it.

    Raises:
        PlacedError: It is neither, or not longer than nothing.

    Examples:
        >>> print(period(Period(((Constant(1, "int"), "year"), (Constant(1.5, "double"), "second")))))
        12mo 1s 500ms
        >>> print(period(Constant(10, "int")))
        10s
    """
    parts = node.parts if isinstance(node, Period) else ((node, "second"),)
    months, seconds = Decimal(0), Decimal(0)
    for amount, unit in parts:
        value = constant(amount)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise failure_at(node, f"A span of time is a number of seconds, or as 10 sec, not {node}.")
        if unit in _MONTHS:
            months += Decimal(str(value)) * _MONTHS[unit]
        else:
            seconds += Decimal(str(value)) * _SECONDS[unit]
    if months != int(months):
        raise failure_at(node, "A span of months or years is a whole number of months.", "Give the rest in days.")
    try:
        return ClockSpan(int(months), round(seconds * 1000) * MILLISECOND)
    except PlanError:
        raise failure_at(
            node, f"A window lasts longer than {node}.", "Give a span of at least a millisecond."
        ) from None


def whole_number(node: Expression | Syntax, what: str) -> int:
    """A whole number of at least 1.

    Raises:
        PlacedError: It is none.
    """
    value = constant(node)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise failure_at(node, f"{what} is a whole number of at least 1, not {node}.")
    return value
