"""Esper's aggregate functions as aggregates of deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import LIFETIME
from gpu_ops.core.turns import PLACE
from gpu_ops.epl.binding import types as t
from gpu_ops.epl.binding.bound import Bound
from gpu_ops.epl.binding.expressions import bind, bind_condition, constant
from gpu_ops.epl.binding.scope import BindingScope
from gpu_ops.epl.expressions import Expression, FunctionCall, NamedArgument, Wildcard
from gpu_ops.epl.placed_error import failure_at, unsupported
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.choices import first, last
from gpu_ops.plan.deliveries import Delivered, Life
from gpu_ops.plan.expressions import bare_column, column_names
from gpu_ops.plan.ordered_aggregates import collect_list, mean_absolute_deviation, median, nth

Make = Callable[..., Aggregate]

_NUMBERS: dict[str, Make] = {
    "sum": g.sum,
    "avg": g.mean,
    "median": median,
    "stddev": g.standard_deviation,
    "avedev": mean_absolute_deviation,
}
_EXTREMES: dict[str, Make] = {"min": g.min, "max": g.max}


@dataclass
class PlannedAggregates:
    """The aggregates of a statement, and the columns that they read.

    Attributes:
        events: What names stand for in expressions of single events.
        columns: Expressions of single events, by the names of their columns.
        made: The aggregates.
        named: What the names of its columns begin with, behind the `@`.
    """

    events: BindingScope
    columns: dict[str, nw.Expr] = field(default_factory=dict)
    made: list[Delivered] = field(default_factory=list)
    named: str = ""
    _known: dict[FunctionCall, Bound] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)

    def column(self, bound: Bound, hint: str = "read") -> str:
        """The column of an expression of single events."""
        key = f"{bound.text}: {bound.type}"
        if not bound.text or key not in self._named:
            self._named[key] = f"@{self.named}{hint} {len(self.columns)}"
            self.columns[self._named[key]] = bound.value
        return self._named[key]

    def aggregate(self, call: FunctionCall) -> Bound:
        """An aggregate as a column of deliveries.

        Raises:
            PlacedError: gpu_ops has no such aggregate, or not with these arguments.
        """
        call = replace(call, name=call.name.lower())
        if call not in self._known:
            self._known[call] = self._bound(call)
        return self._known[call].of(call)

    def counted(self) -> None:
        """Have a count of rows: where there is no other aggregate, groups are known by it."""
        if not any(each.keys is None and each.life == "alive" for each in self.made):
            self._add(g.count(), None, "alive")

    def add(self, aggregate: Aggregate) -> str:
        """The column of another aggregate over the rows in the window."""
        return self._add(aggregate, None, "alive")

    def _add(self, aggregate: Aggregate, keys: tuple[str, ...] | None, life: Life) -> str:
        name = f"@{self.named}value {len(self.made)}"
        self.made.append(Delivered(replace(aggregate.over(_in_turns), name=name), keys, life))
        return name

    def _bound(self, call: FunctionCall) -> Bound:
        given = [each for each in call.arguments if not isinstance(each, NamedArgument)]
        options = {each.name.lower(): each for each in call.arguments if isinstance(each, NamedArgument)}
        for each in options.values():
            if each.name.lower() not in {"filter", "group_by"}:
                raise failure_at(each, f"Aggregates have no parameter {each.name!r}.", "Write filter: or group_by:.")
        keys = None
        if "group_by" in options:
            keys = tuple(self.column(self._single(each), "key") for each in options["group_by"].values)
        conditions: list[Any] = list(options["filter"].values) if "filter" in options else []
        name, ever = call.name, call.name in {"firstever", "lastever"}
        if name.endswith("ever") and not ever:
            name, ever = name.removesuffix("ever"), True
        if name in {"fmin", "fmax"}:
            name = name.removeprefix("f")
        if name in {"firstever", "lastever"}:
            name = name.removesuffix("ever")
        takes = 2 if name == "nth" or (name in {"first", "last"} and not ever) else 1
        if name == "leaving":
            takes = 0
        if len(given) > takes:
            conditions += given[takes:]
            given = given[:takes]
        if len(conditions) > 1 and len(given) + len(conditions) > takes + 1 + ("filter" in options):
            raise failure_at(call, f"{call.name} takes at most {takes + 1} arguments.")
        held = [self._condition(each) for each in conditions]
        return self._value(call, name, given, held, keys, "ever" if ever else "alive")

    def _single(self, node: Any) -> Bound:
        if not isinstance(node, Expression):
            raise failure_at(node, f"An aggregate takes no {node}.")
        return bind(node, self.events)

    def _condition(self, node: Any) -> nw.Expr:
        if not isinstance(node, Expression):
            raise failure_at(node, f"An aggregate takes no {node}.")
        return bind_condition(node, self.events, "'filter'").value

    def _where(self, held: Sequence[nw.Expr]) -> dict[str, Any]:
        if not held:
            return {}
        condition = held[0] if len(held) == 1 else nw.all_horizontal(*held, ignore_nulls=False)
        name = f"@{self.named}read {len(self.columns)}"
        self.columns[name] = condition
        return {"where": nw.col(name)}

    def _value(
        self,
        call: FunctionCall,
        name: str,
        given: Sequence[Any],
        held: list[nw.Expr],
        keys: tuple[str, ...] | None,
        life: Life,
    ) -> Bound:
        distinct: dict[str, Any] = {"distinct": True} if call.quantity == "distinct" else {}
        if name == "leaving":
            made = self._add(g.count(**self._where(held)), keys, "left")
            return Bound(nw.col(made).fill_null(0) > 0, t.BOOLEAN)
        if not given:
            if name in {"last", "first", "window"}:
                raise unsupported(call, f"{call.name} of whole events")
            raise failure_at(call, f"{call.name} needs an argument.", f"Write {call.name}(price), for instance.")
        if isinstance(given[0], Wildcard):
            if name != "count":
                raise unsupported(call, f"{call.name} of whole events")
            made = self._add(g.count(**self._where(held)), keys, life)
            return Bound(nw.col(made).fill_null(0), t.LONG)
        bound = self._single(given[0])
        if name == "count":
            column = self.column(bound)
            made = self._add(g.count(column, **distinct, **self._where(held)), keys, life)
            return Bound(nw.col(made).fill_null(0), t.LONG)
        if name in _NUMBERS:
            return self._number(call, name, bound, held, keys, life, distinct)
        if name in _EXTREMES:
            column = self.column(bound)
            made = self._add(_EXTREMES[name](column, **self._where(held)), keys, life)
            return Bound(nw.col(made), bound.type)
        if name in {"first", "last", "nth", "window"}:
            return self._chosen(call, name, bound, given[1:], held, keys, life)
        raise unsupported(call, f"aggregate {call.name}")

    def _number(
        self,
        call: FunctionCall,
        name: str,
        bound: Bound,
        held: list[nw.Expr],
        keys: tuple[str, ...] | None,
        life: Life,
        distinct: dict[str, Any],
    ) -> Bound:
        if not (t.is_integer(bound.type) or t.is_float(bound.type) or t.is_decimal(bound.type)):
            raise failure_at(
                call.arguments[0],
                f"{call.name} needs numbers, and {bound.typed}.",
                "Aggregate a number, or cast it first.",
            )
        column = self.column(bound)
        made = self._add(_NUMBERS[name](column, **distinct, **self._where(held)), keys, life)
        if name != "sum":
            return Bound(nw.col(made).cast(nw.Float64), t.DOUBLE)
        dtype = t.INT if bound.type in {pa.int8(), pa.int16()} else bound.type
        if t.is_decimal(dtype):
            return Bound(nw.col(made), dtype)
        return Bound(nw.col(made).cast(t.narwhals_type(dtype)), dtype)

    def _chosen(
        self,
        call: FunctionCall,
        name: str,
        bound: Bound,
        more: Sequence[Any],
        held: list[nw.Expr],
        keys: tuple[str, ...] | None,
        life: Life,
    ) -> Bound:
        column = self.column(bound)
        index = 0
        if more:
            index = constant(more[0])
            if isinstance(index, bool) or not isinstance(index, int) or index < 0:
                raise failure_at(more[0], f"{call.name} needs a number from 0 on, not {more[0]}.")
        if name == "nth":
            made = self._add(nth(column, -1 - index, order=PLACE, **self._where(held)), keys, life)
        elif name == "window":
            made = self._add(collect_list(column, order=PLACE, **self._where(held)), keys, life)
            return Bound(nw.col(made), pa.list_(bound.type))
        elif more:
            at = index if name == "first" else -1 - index
            made = self._add(nth(column, at, order=PLACE, **self._where(held)), keys, life)
        else:
            if life == "ever":
                held = [*held, ~bound.value.is_null()]
            choose = first if name == "first" else last
            made = self._add(choose(column, order=PLACE, **self._where(held)), keys, life)
        return Bound(nw.col(made), bound.type)


def _in_turns(expression: nw.Expr) -> str:
    """The column of a plain one; the order of turns stands for that of time."""
    if column_names(expression, LIFETIME):
        return PLACE
    return str(bare_column(expression))
