"""Esper's aggregate functions as aggregates of deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.chosen_events import BY_PLACE, BY_VALUE, by_place, by_value
from gpu_ops.epl.planning.nested_aggregates import Nested
from gpu_ops.epl.planning.point_rates import ClockRate, by_clock, by_stamps, is_by_clock
from gpu_ops.plan import aggregates as g
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.deliveries import Life
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.ordered_aggregates import mean_absolute_deviation, median
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.expressions import Expression, FunctionCall, NamedArgument, Wildcard
from gpu_ops.texts.placed_error import failure_at, unsupported

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
class PlannedAggregates(AggregateColumns):
    """The aggregates of a statement by how they are written.

    Attributes:
        within: Columns by which they group whatever they say.
        known: Aggregates that were asked for, as columns of deliveries.
        rates: Rates by the clock, whose columns deliveries do not have yet.
        nested: Aggregates of aggregates, likewise.
        found: Which rows they are of, if not of all.
        drifts: Which of them are of what an outer join delivers, and not of the rows that stand; None for none.
    """

    within: tuple[str, ...] = ()
    known: dict[FunctionCall, Bound] = field(default_factory=dict)
    rates: list[ClockRate] = field(default_factory=list)
    nested: Nested = field(default_factory=Nested)
    found: nw.Expr | None = None
    drifts: Callable[[FunctionCall], bool] | None = None

    def aggregate(self, call: FunctionCall) -> Bound:
        """An aggregate as a column of deliveries.

        Raises:
            PlacedError: gpu_ops has no such aggregate, or not with these arguments.
        """
        call = replace(call, name=call.name.lower())
        if call not in self.known:
            self.known[call] = self._bound(call)
        return self.known[call].of(call)

    @property
    def written(self) -> dict[str, str]:
        """How the aggregates are written, by the names of their columns."""
        made = [each.aggregate.name for each in self.made]
        return {name: str(call) for call, bound in self.known.items() for name in column_names(bound.value, made)}

    def counted(self) -> None:
        """Have a count of rows: where there is no other aggregate, groups are known by it."""
        if not any(each.keys is None and each.life == "alive" for each in self.made):
            self.add(g.count(), None, "alive")

    def _bound(self, call: FunctionCall) -> Bound:
        nested = self.nested.bound(self, call)
        if nested is not None:
            return nested
        given = [each for each in call.arguments if not isinstance(each, NamedArgument)]
        options = {each.name.lower(): each for each in call.arguments if isinstance(each, NamedArgument)}
        for each in options.values():
            if each.name.lower() not in {"filter", "group_by"}:
                raise failure_at(each, f"Aggregates have no parameter {each.name!r}.", "Write filter: or group_by:.")
        keys = None
        if "group_by" in options:
            keys = (
                *self.within,
                *(self.column(self._single(each), "key") for each in options["group_by"].values),
            )
        conditions: list[Any] = list(options["filter"].values) if "filter" in options else []
        name, ever = call.name, call.name in {"firstever", "lastever"}
        if name.endswith("ever") and not ever:
            name, ever = name.removesuffix("ever"), True
        if name in {"fmin", "fmax"}:
            name = name.removeprefix("f")
        if name in {"firstever", "lastever"}:
            name = name.removesuffix("ever")
        takes = 2 if name == "nth" or (name in {"first", "last"} and not ever) else 1
        if name in BY_VALUE or name == "rate":
            takes = len(given)
        if name == "leaving":
            takes = 0
        if len(given) > takes:
            conditions += given[takes:]
            given = given[:takes]
        if len(conditions) > 1 and len(given) + len(conditions) > takes + 1 + ("filter" in options):
            raise failure_at(call, f"{call.name} takes at most {takes + 1} arguments.")
        held = [self._condition(each) for each in conditions] + ([] if self.found is None else [self.found])
        life: Life = "ever" if ever else "alive"
        if self.drifts is not None and self.drifts(call):
            life = "delivered"
        return self._value(call, name, given, held, keys, life)

    def _single(self, node: Any) -> Bound:
        if not isinstance(node, Expression):
            raise failure_at(node, f"An aggregate takes no {node}.")
        return bind(node, self.events)

    def _condition(self, node: Any) -> nw.Expr:
        if not isinstance(node, Expression):
            raise failure_at(node, f"An aggregate takes no {node}.")
        return bind_condition(node, self.events, "'filter'").value

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
            made = self.add(self.only(g.count(), held), keys, "left")
            return Bound(nw.col(made).fill_null(0) > 0, t.BOOLEAN)
        if name in BY_PLACE:
            return by_place(self, call, name, given, held, keys, life)
        if name in BY_VALUE:
            return by_value(self, call, name, given, held, keys, life)
        if name == "rate" and given:
            return self._rate(call, given, held, keys)
        if not given:
            raise failure_at(call, f"{call.name} needs an argument.", f"Write {call.name}(price), for instance.")
        if isinstance(given[0], Wildcard):
            if name != "count":
                raise unsupported(call, f"{call.name} of whole events")
            made = self.add(self.only(g.count(), held), keys, life)
            return Bound(nw.col(made).fill_null(0), t.LONG)
        bound = self._single(given[0])
        if name == "count":
            column = self.column(bound)
            made = self.add(self.only(g.count(column, **distinct), held), keys, life)
            return Bound(nw.col(made).fill_null(0), t.LONG)
        if name in _NUMBERS:
            return self._number(call, name, bound, held, keys, life, distinct)
        if name in _EXTREMES:
            column = self.column(bound)
            made = self.add(self.only(_EXTREMES[name](column), held), keys, life)
            return Bound(nw.col(made), bound.type)
        raise unsupported(call, f"aggregate {call.name}")

    def _rate(
        self, call: FunctionCall, given: Sequence[Any], held: list[nw.Expr], keys: tuple[str, ...] | None
    ) -> Bound:
        if keys is not None:
            raise unsupported(call, "rates by groups of their own")
        if not is_by_clock(given):
            return by_stamps(self, call, given, held)
        bound, rate = by_clock(self, call, given, held)
        self.rates.append(rate)
        return bound

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
        if life == "delivered":
            return self._of_delivered(call, name, bound, held)
        column = self.column(bound)
        made = self.add(self.only(_NUMBERS[name](column, **distinct), held), keys, life)
        if name != "sum":
            return Bound(nw.col(made).cast(nw.Float64), t.DOUBLE)
        dtype = t.INT if bound.type in {pa.int8(), pa.int16()} else bound.type
        if t.is_decimal(dtype):
            return Bound(nw.col(made), dtype)
        return Bound(nw.col(made).cast(t.narwhals_type(dtype)), dtype)

    def _of_delivered(self, call: FunctionCall, name: str, bound: Bound, held: list[nw.Expr]) -> Bound:
        """A sum or a mean of what an outer join delivers."""
        if not t.is_integer(bound.type):
            raise unsupported(call, f"{call} of numbers that are not whole, over such an outer join")
        column = self.column(replace(bound, value=bound.value.cast(nw.Int64), type=pa.int64()))
        total = nw.col(self.add(self.only(g.sum(column), held), None, "delivered"))
        if name == "avg":
            count = nw.col(self.add(self.only(g.count(column), held), None, "delivered"))
            return Bound(nw.when(count > 0).then(total * 1.0 / count), t.DOUBLE)
        dtype = t.INT if bound.type in {pa.int8(), pa.int16()} else bound.type
        return Bound(total.cast(t.narwhals_type(dtype)), dtype)
