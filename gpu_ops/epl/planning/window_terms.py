"""Conditions on windows (`expr`, `expr_batch`): what they say of the window's events, and of the oldest and newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK
from gpu_ops.epl.planning.arguments import MILLISECOND
from gpu_ops.plan.window_conditions import COUNT, NEWEST, OLDEST, SUM
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.binding.scope import BindingScope
from gpu_ops.texts.expressions import Expression, FunctionCall, Member, Name, NamedArgument, Wildcard
from gpu_ops.texts.placed_error import failure_at, unsupported

_EVENTS = {"newest_event": NEWEST, "oldest_event": OLDEST}
_STAMPS = {"newest_timestamp": NEWEST, "oldest_timestamp": OLDEST}
_AGGREGATES = frozenset({"sum", "avg", "count", "first", "last"})


class WindowScope:
    """What names stand for in a condition on a window: the columns of `gpu_ops.plan.window_conditions`.

    Args:
        events: What names stand for in expressions of single events.
        column: Takes an expression of single events, and gives the name of a column that has its values.
        alone: Which event's a property by itself is.
    """

    def __init__(self, events: BindingScope, column: Callable[[nw.Expr], str], alone: str) -> None:
        self._events, self._column, self._alone = events, column, alone

    def special(self, node: Expression) -> Bound | None:
        """The terms of windows; anything else that means something of its own is of the newest event."""
        match node:
            case Name(name="current_count"):
                return Bound(nw.col(COUNT), t.LONG)
            case Name(name=name) if name in _STAMPS:
                return self._of_one(_STAMPS[name], Bound(nw.col(CLOCK).cast(nw.Int64) // MILLISECOND, t.LONG))
            case Name(name=("expired_count" | "view_reference") as name):
                raise unsupported(node, f"{name} in conditions on windows", "Count with current_count.")
            case Member(of=Name(name=name)) if name in _EVENTS:
                found = self._events.property(Name(node.name, node.dynamic, place=node.place))
                return None if found is None else self._of_one(_EVENTS[name], found)
        made = self._events.special(node)
        return None if made is None else self._of_one(NEWEST, made)

    def property(self, node: Name | Member) -> Bound | None:
        """A property by itself."""
        made = self._events.property(node)
        return None if made is None else self._of_one(self._alone, made)

    def aggregate(self, call: FunctionCall) -> Bound:
        """An aggregate over the events in the window.

        Raises:
            PlacedError: There is none such in conditions on windows.
        """
        plain = [each for each in call.arguments if isinstance(each, Expression)]
        filters = [
            each.values[0] for each in call.arguments if isinstance(each, NamedArgument) and each.name == "filter"
        ]
        conditions = [*plain[1:], *filters]
        known = call.name.lower() in _AGGREGATES and not call.quantity and 1 <= len(plain) <= 2
        if not known or len(plain) + len(filters) != len(call.arguments):
            raise unsupported(call, f"{call} in conditions on windows")
        held = [bind_condition(each, self._events).value for each in conditions if isinstance(each, Expression)]
        return self._over(call.name.lower(), plain[0], held)

    def _over(self, name: str, given: Expression, held: Sequence[nw.Expr]) -> Bound:
        if isinstance(given, Wildcard) and name == "count":
            return self._counted(held) if held else Bound(nw.col(COUNT), t.LONG)
        bound = bind(given, self._events)
        if name in {"first", "last"}:
            return self._of_one(OLDEST if name == "first" else NEWEST, bound)
        count = self._counted([~bound.value.is_null(), *held])
        if name == "count":
            return count
        if not pa.types.is_integer(bound.type) and not pa.types.is_floating(bound.type):
            raise failure_at(given, f"There is no {name} of {t.type_name(bound.type)}.", "Cast it first.")
        dtype = t.LONG if pa.types.is_integer(bound.type) else t.DOUBLE
        value = bound.value.cast(t.narwhals_type(dtype))
        total = self._sum(nw.when(nw.all_horizontal(*held, ignore_nulls=True)).then(value) if held else value)
        return Bound(total, dtype) if name == "sum" else Bound(total / count.value, t.DOUBLE)

    def _counted(self, held: Sequence[nw.Expr]) -> Bound:
        there = nw.when(nw.all_horizontal(*held, ignore_nulls=True))
        return Bound(self._sum(there.then(nw.lit(1, nw.Int64)).otherwise(nw.lit(0, nw.Int64))), t.LONG)

    def _of_one(self, which: str, bound: Bound) -> Bound:
        return Bound(nw.col(f"{which}{self._column(bound.value)}"), bound.type, bound.text)

    def _sum(self, value: nw.Expr) -> nw.Expr:
        return nw.col(f"{SUM}{self._column(value)}")
