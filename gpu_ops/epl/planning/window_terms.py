"""Conditions on windows (`expr`, `expr_batch`): what they say of the window's events, and of the oldest and newest."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK
from gpu_ops.epl.expressions import (
    Between,
    Constant,
    Expression,
    FunctionCall,
    Logical,
    Member,
    Name,
    NamedArgument,
    Operation,
    Prefixed,
    Wildcard,
)
from gpu_ops.epl.planning.constants import MILLISECOND, failure_at
from gpu_ops.plan.window_conditions import COUNT, NEWEST, OLDEST, SUM

Resolve = Callable[[Expression], tuple[nw.Expr, pa.DataType]]
"""From an expression of single events to what computes it, and its type."""

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_EVENTS = {"newest_event": NEWEST, "oldest_event": OLDEST}
_STAMPS = {"newest_timestamp": NEWEST, "oldest_timestamp": OLDEST}


class WindowTerms:
    """A condition on a window, as an expression over the columns of `gpu_ops.plan.window_conditions`.

    Args:
        resolve: Binds expressions of single events.
        column: Takes an expression of single events, and gives the name of a column that has its values.
        alone: Which event's a property by itself is.
    """

    def __init__(self, resolve: Resolve, column: Callable[[nw.Expr], str], alone: str) -> None:
        self._resolve, self._column, self._alone = resolve, column, alone

    def bound(self, node: Expression) -> nw.Expr:
        """What computes a condition.

        Raises:
            PlacedError: There is no such condition on windows.
        """
        made = self._window_term(node)
        if made is not None:
            return made
        match node:
            case Constant(value=value):
                return nw.lit(value)
            case Logical(operator="and", operands=operands):
                return nw.all_horizontal(*map(self.bound, operands), ignore_nulls=False)
            case Logical(operator="or", operands=operands):
                return nw.any_horizontal(*map(self.bound, operands), ignore_nulls=False)
            case Prefixed(operator="not", operand=operand):
                return ~self.bound(operand)
            case Prefixed(operator="-", operand=operand):
                return -self.bound(operand)
            case Operation(operator=sign, left=left, right=right) if sign in _OPERATORS:
                return _OPERATORS[sign](self.bound(left), self.bound(right))  # type: ignore[no-any-return]
            case Between(value=value, low=low, high=high, negated=negated):
                bounds = [self.bound(each) for each in (low, high)]
                held = self.bound(value).is_between(nw.min_horizontal(*bounds), nw.max_horizontal(*bounds))
                return ~held if negated else held
        # Anything else is about a single event.
        return self._of_one(self._alone, self._resolve(node)[0])

    def _window_term(self, node: Expression) -> nw.Expr | None:
        match node:
            case Name(name="current_count"):
                return nw.col(COUNT)
            case Name(name=name) if name in _STAMPS:
                milliseconds = nw.col(CLOCK).cast(nw.Int64) // MILLISECOND
                return self._of_one(_STAMPS[name], milliseconds)
            case Name(name=("expired_count" | "view_reference") as name):
                raise failure_at(
                    node,
                    f"gpu_ops has no {name} in conditions on windows.",
                    "Count with current_count.",
                    construct=name,
                )
            case Member(of=Name(name=name)) if name in _EVENTS:
                return self._of_one(_EVENTS[name], self._resolve(Name(node.name, place=node.place))[0])
            case FunctionCall(name=name, arguments=arguments, of=None) if name.lower() in _AGGREGATES:
                plain = [each for each in arguments if isinstance(each, Expression)]
                filters = [
                    each.values[0] for each in arguments if isinstance(each, NamedArgument) and each.name == "filter"
                ]
                if node.quantity or len(plain) not in {1, 2} or len(plain) + len(filters) != len(arguments):
                    raise failure_at(node, f"gpu_ops has no {node} in conditions on windows.", construct=name)
                conditions = [*plain[1:], *(each for each in filters if isinstance(each, Expression))]
                return self._aggregate(name.lower(), plain[0], conditions)
        return None

    def _aggregate(self, name: str, given: Expression, conditions: list[Expression]) -> nw.Expr:
        if name in {"first", "last"}:
            return self._of_one(OLDEST if name == "first" else NEWEST, self._resolve(given)[0])
        held = [self._resolve(each)[0] for each in conditions]
        if isinstance(given, Wildcard):
            if not held:
                return nw.col(COUNT)
            return self._sum(_when(held, nw.lit(1), nw.lit(0)))
        value, dtype = self._resolve(given)
        count = self._sum(_when([~value.is_null(), *held], nw.lit(1), nw.lit(0)))
        if name == "count":
            return count
        if pa.types.is_integer(dtype):
            value = value.cast(nw.Int64)
        total = self._sum(_when(held, value, nw.lit(None)) if held else value)
        return total if name == "sum" else total / count

    def _of_one(self, which: str, value: nw.Expr) -> nw.Expr:
        return nw.col(f"{which}{self._column(value)}")

    def _sum(self, value: nw.Expr) -> nw.Expr:
        return nw.col(f"{SUM}{self._column(value)}")


_AGGREGATES = frozenset({"sum", "avg", "count", "first", "last"})


def _when(conditions: list[nw.Expr], value: nw.Expr, otherwise: nw.Expr) -> nw.Expr:
    return nw.when(nw.all_horizontal(*conditions, ignore_nulls=True)).then(value).otherwise(otherwise)
