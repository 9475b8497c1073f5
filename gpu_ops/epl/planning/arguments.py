"""Arguments of views that are constants: whole numbers, and spans of time."""

from __future__ import annotations

from gpu_ops.errors import PlanError
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.texts.binding.expressions import constant, period
from gpu_ops.texts.expressions import Syntax
from gpu_ops.texts.placed_error import failure_at

MILLISECOND = 1000
"""Ticks of a millisecond, the unit of Esper's clock."""


def clock_span(node: Syntax) -> ClockSpan:
    """A span of time: a period, or a number of seconds.

    Raises:
        PlacedError: It is neither, or not longer than nothing.

    Examples:
        >>> from gpu_ops.texts.expressions import Constant, Period
        >>> print(clock_span(Period(((Constant(1, "int"), "year"), (Constant(1.5, "double"), "second")))))
        12mo 1s 500ms
        >>> print(clock_span(Constant(10, "int")))
        10s
    """
    months, milliseconds = period(node)
    try:
        return ClockSpan(months, milliseconds * MILLISECOND)
    except PlanError:
        raise failure_at(
            node, f"A span of time is longer than {node}.", "Give a span of at least a millisecond."
        ) from None


def whole_number(node: Syntax, what: str) -> int:
    """A whole number of at least 1.

    Raises:
        PlacedError: It is none.
    """
    value = constant(node)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise failure_at(node, f"{what} is a whole number of at least 1, not {node}.")
    return value


def milliseconds(node: Syntax, what: str) -> int:
    """A number of milliseconds since 1970, in ticks.

    Raises:
        PlacedError: It is none.
    """
    value = constant(node)
    if isinstance(value, bool) or not isinstance(value, int):
        raise failure_at(node, f"{what} is a number of milliseconds, not {node}.")
    return value * MILLISECOND
