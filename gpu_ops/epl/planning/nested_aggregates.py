"""Aggregates of aggregates: `avg(count(*))` is over what the count has been as each row entered and left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import narwhals as nw
import pyarrow as pa

from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.mentions import aggregate_calls
from gpu_ops.plan.nested_aggregates import NestedAggregate, NestedAggregates
from gpu_ops.plan.nodes import Node
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.expressions import Expression, FunctionCall, NamedArgument, Wildcard
from gpu_ops.texts.placed_error import unsupported

_OUTER = frozenset({"avg", "sum", "count"})
_INNER = frozenset({"count", "sum"})


@dataclass
class Nested:
    """The aggregates of aggregates of a statement.

    Attributes:
        calls: Where they stand.
        made: What has to be computed for them.
    """

    calls: list[FunctionCall] = field(default_factory=list)
    made: list[NestedAggregate] = field(default_factory=list)

    def bound(self, aggregates: AggregateColumns, call: FunctionCall) -> Bound | None:
        """An aggregate of an aggregate as an expression over `over`'s columns; None for any other.

        Raises:
            PlacedError: It is none that there is.
        """
        inner = next(aggregate_calls(call.arguments), None)
        if inner is None:
            return None
        said = (*call.arguments, *inner.arguments)
        plain = not (call.quantity or inner.quantity or any(isinstance(each, NamedArgument) for each in said))
        if call.name not in _OUTER or inner.name.lower() not in _INNER or call.arguments != (inner,) or not plain:
            raise unsupported(
                call, f"{call.name} of such an aggregate", "Write avg, sum or count of count(…) or sum(…) alone."
            )
        column, dtype, counts = None, t.LONG, inner.name.lower() == "count"
        (of,) = inner.arguments
        if not isinstance(of, Wildcard):
            assert isinstance(of, Expression)  # noqa: S101  (named ones are refused)
            bound = bind(of, aggregates.events)
            if not counts and not t.is_integer(bound.type):
                raise unsupported(bound, f"{call.name} of sums of numbers that are not whole")
            column, dtype = aggregates.column(bound), t.LONG if counts else bound.type
        made = NestedAggregate(f"@nested {len(self.made)}", column, counts=counts)
        self.calls.append(call)
        self.made.append(made)
        count, total = nw.col(made.count), nw.col(made.total)
        if call.name == "count":
            return Bound(count, t.LONG)
        if call.name == "avg":
            return Bound(nw.when(count > 0).then(total * 1.0 / count), t.DOUBLE)
        dtype = t.INT if dtype in {pa.int8(), pa.int16()} else dtype
        return Bound(nw.when(count > 0).then(total).cast(t.narwhals_type(dtype)), dtype)

    def over(self, deliveries: Node, rows: Node, levels: Sequence[tuple[str, ...]]) -> Node:
        """Deliveries with their columns, over the rows that are aggregated."""
        if not self.made:
            return deliveries
        if len(levels) > 1:
            raise unsupported(self.calls[0], "aggregates of aggregates of rollups")
        return NestedAggregates(rows, deliveries, (), keys=levels[0], nested=tuple(self.made))
