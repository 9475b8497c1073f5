"""`rate`: how many rows come in a second, by the clock, or by stamps of the rows in a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw

from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.arguments import clock_span
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.choices import last
from gpu_ops.plan.clock_windows import ClockedWindow, ClockSpan, StampSpan
from gpu_ops.plan.deliveries import Life
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Filter, Node
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.expressions import Constant, Expression, FunctionCall, Period
from gpu_ops.texts.placed_error import failure_at, unsupported

_MILLISECONDS = 1000


@dataclass(frozen=True)
class ClockRate:
    """A rate by the clock.

    Attributes:
        call: Where it stands.
        name: The column of the count of rows that came less than the span before the latest one.
        span: The span.
        held: The conditions on these rows.
    """

    call: FunctionCall
    name: str
    span: ClockSpan
    held: tuple[nw.Expr, ...]

    def over(self, deliveries: Node, points: Node, ticks: Node, keys: tuple[str, ...]) -> Node:
        """Deliveries with its column, over the rows as they came."""
        for each in self.held:
            points = Filter(points, each)
        recent = ClockedWindow(points, StampSpan(self.span, CLOCK), keys, (PLACE,), "alive", ticks=ticks)
        counted = replace(g.count(), name=self.name)
        return Lookup(recent, deliveries, (Looked(counted, tuple((key, key) for key in keys)),))


def is_by_clock(given: Sequence[Any]) -> bool:
    """Whether a rate is by the clock: over so many seconds."""
    return len(given) == 1 and isinstance(given[0], Constant | Period)


def by_clock(
    aggregates: AggregateColumns, call: FunctionCall, given: Sequence[Any], held: list[nw.Expr]
) -> tuple[Bound, ClockRate]:
    """(the rate, what has to be looked up for it)."""
    span = clock_span(given[0])
    if span.months:
        raise unsupported(call, "rates by months")
    ever = aggregates.add(aggregates.only(g.count(), held), None, "ever")
    recent = nw.col(name := f"@recent {ever}").fill_null(0)
    value = nw.when(nw.col(ever).fill_null(0) > recent).then(recent * 1.0 / (span.ticks / 1_000_000))
    return Bound(value, t.DOUBLE), ClockRate(call, name, span, tuple(held))


def by_stamps(aggregates: AggregateColumns, call: FunctionCall, given: Sequence[Any], held: list[nw.Expr]) -> Bound:
    """What is in the window, by the time from the last row that left to the latest one."""
    if not 1 <= len(given) <= 2:
        raise failure_at(call, f"{call.name} takes seconds, or stamps and a quantity.", f"Write: {call.name}(10).")
    stamp, *quantities = [_number(aggregates, call, each) for each in given]
    column = aggregates.column(stamp)
    newest, oldest = (aggregates.add(aggregates.only(last(column, order=PLACE), held), None, life) for life in _LIVES)
    if quantities:
        amount = aggregates.add(aggregates.only(g.sum(aggregates.column(quantities[0])), held), None, "alive")
    else:
        amount = aggregates.add(aggregates.only(g.count(), held), None, "alive")
    total = nw.col(amount).cast(nw.Float64).fill_null(0.0) * _MILLISECONDS
    span = (nw.col(newest) - nw.col(oldest)).cast(nw.Float64)
    return Bound(nw.when(~nw.col(oldest).is_null()).then(total / span), t.DOUBLE)


_LIVES: tuple[Life, Life] = ("ever", "left")


def _number(aggregates: AggregateColumns, call: FunctionCall, node: Any) -> Bound:
    if not isinstance(node, Expression):
        raise failure_at(node, f"{call.name} takes no {node}.")
    bound = bind(node, aggregates.events)
    if not (t.is_integer(bound.type) or t.is_float(bound.type)):
        raise failure_at(node, f"{call.name} needs numbers, and {bound.typed}.", "Give milliseconds, and a quantity.")
    return bound
