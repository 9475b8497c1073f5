"""Views that derive statistics of a window: one row of them, which each delivery replaces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, DUE, ENTERED, LEFT, MARK, ORDER, ROW
from gpu_ops.epl.column_names import column_name
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.chosen_events import last_of
from gpu_ops.epl.planning.mentions import STAYS_FILLED
from gpu_ops.epl.queries import View
from gpu_ops.plan import aggregates as g
from gpu_ops.plan import moments
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.expressions import Argument, Expression, Wildcard
from gpu_ops.texts.placed_error import failure_at, unsupported

_INPUTS = {"size": 0, "uni": 1, "weighted_avg": 2, "correl": 2, "linest": 2}
_MOVES_ONE_WAY = frozenset({"keepall", "time", "time_accum", "firstunique", "firstevent", "firstlength", "firsttime"})


def is_derived(view: View) -> bool:
    """Whether a view derives statistics."""
    return view.name.lower() in _INPUTS


@dataclass
class DerivedView:
    """A view of statistics over what its stream's windows hold; with groups, a row for each.

    Args:
        view: The view.
        events: What names stand for in expressions of the stream's events.
        windows: The views before it.

    Attributes:
        aggregates: The aggregates of events that it shows.
        keys: The columns by which it groups.
        has_windows: Whether there are windows before it, besides groupwin.

    Raises:
        PlacedError: Its arguments are not what it takes, or gpu_ops does not have it behind such windows.
    """

    view: View
    events: StreamScope
    windows: Sequence[View]
    _columns: dict[str, Bound] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.view.name.lower()
        inputs = _INPUTS[name]
        if len(self.view.arguments) < inputs:
            takes = "an expression" if inputs == 1 else "two expressions"
            raise failure_at(self.view, f"{name} takes {takes}.", f"Write: #{name}({_USES[name]}).")
        self.aggregates = PlannedAggregates(self.events)
        grouping = [each for each in self.windows if each.name.lower() in {"groupwin", "groupby"}]
        rest = [each for each in self.windows if each not in grouping]
        for each in rest:
            if grouping and each.name.lower() not in STAYS_FILLED:
                raise unsupported(each, f"{name} behind groups of {each.name}", "Use 'group by' and aggregates.")
            if name == "size" and each.name.lower() not in _MOVES_ONE_WAY:
                raise unsupported(each, f"size behind {each.name}", "Select count(*) instead.")
        self.has_windows = bool(rest)
        self._inputs = [self._number(each) for each in self.view.arguments[:inputs]]
        self._columns.update(_MADE[name](self))
        for argument in self.view.arguments[inputs:]:
            for shown, bound in self._copied(argument):
                self._columns.setdefault(shown, self._last(bound))
        self.keys = tuple(self._key(argument) for view in grouping for argument in view.arguments)

    @property
    def stream(self) -> BoundStream:
        """Its rows as a stream."""
        schema = pa.schema([(name, bound.type) for name, bound in self._columns.items()])
        of = self.events.streams[0]
        return BoundStream(of.alias, of.type_name, schema, {name: f"@derived {name}" for name in schema.names})

    def rows(self, delivered: Deliveries) -> Node:
        """Its new and old rows, of deliveries that have its aggregates: each moves one row in and one out."""
        special = [nw.col(name) for name in (ROW, ORDER, CLOCK, DUE) if name in delivered.schema.names]
        if delivered.marks:
            is_mark = nw.col(ROW) == MARK
            special += [nw.when(is_mark).then(nw.lit(1, nw.Int64)).alias(name) for name in (ENTERED, LEFT)]
        columns = [bound.value.alias(f"@derived {name}") for name, bound in self._columns.items()]
        return Project(delivered, (*columns, *special), keep=False)

    # Columns

    def _number(self, argument: Argument) -> Bound:
        bound = self._bound(argument)
        if not (t.is_integer(bound.type) or t.is_float(bound.type) or t.is_decimal(bound.type)):
            raise failure_at(argument, f"{self.view.name} needs numbers, and {bound.typed}.", "Cast it first.")
        return Bound(bound.value.cast(nw.Float64), t.DOUBLE, bound.text)

    def _bound(self, argument: Argument) -> Bound:
        if not isinstance(argument, Expression):
            raise failure_at(argument, f"{self.view.name} takes no {argument}.", "Give an expression.")
        return bind(argument, self.events)

    def _copied(self, argument: Argument) -> list[tuple[str, Bound]]:
        """Columns of the last event."""
        if isinstance(argument, Wildcard):
            (stream,) = self.events.streams
            return [(name, stream.bound(name)) for name in stream.schema.names]
        return [(column_name(argument), self._bound(argument))]

    def _last(self, bound: Bound) -> Bound:
        return Bound(last_of(self.aggregates, bound, life="ever"), bound.type)

    def _key(self, argument: Argument) -> str:
        bound = self._bound(argument)
        name = self.aggregates.column(bound, "key")
        self._columns.setdefault(column_name(argument), Bound(nw.col(name), bound.type))
        return name

    def value(self, make: Callable[..., Aggregate], *inputs: Bound, empty: float = math.nan) -> Bound:
        """An aggregate of the events that have all numbers, and what it is of none."""
        there = [~each.value.is_null() for each in self._inputs]
        columns = [self.aggregates.column(each) for each in inputs]
        made = self.aggregates.add(self.aggregates.only(make(*columns), there), None, "alive")
        return Bound(nw.col(made).cast(nw.Float64).fill_null(empty), t.DOUBLE)

    def count(self) -> Bound:
        """How many events have all numbers."""
        there = [~each.value.is_null() for each in self._inputs]
        made = self.aggregates.add(self.aggregates.only(g.count(), there), None, "alive")
        return Bound(nw.col(made).fill_null(0), t.LONG)

    # Views

    def size(self) -> Mapping[str, Bound]:
        """How many events there are."""
        return {"size": self.count()}

    def univariate(self) -> Mapping[str, Bound]:
        """Moments of a number."""
        (x,) = self._inputs
        return {
            "datapoints": self.count(),
            "total": self.value(g.sum, x, empty=0.0),
            "stddev": self.value(g.standard_deviation, x),
            "stddevpa": self.value(_of_population, x),
            "variance": self.value(g.variance, x),
            "average": self.value(g.mean, x),
        }

    def weighted(self) -> Mapping[str, Bound]:
        """A mean by weights."""
        return {"average": self.value(moments.weighted_mean, *self._inputs)}

    def correlation(self) -> Mapping[str, Bound]:
        """Pearson's correlation."""
        return {"correlation": self.value(moments.correlation, *self._inputs)}

    def regression(self) -> Mapping[str, Bound]:
        """The line of least squares."""
        x, y = self._inputs
        made = {"slope": self.value(moments.slope, y, x), "YIntercept": self.value(moments.intercept, y, x)}
        for side, each in (("X", x), ("Y", y)):
            made |= {
                f"{side}Average": self.value(g.mean, each),
                f"{side}StandardDeviationPop": self.value(_of_population, each),
                f"{side}StandardDeviationSample": self.value(g.standard_deviation, each),
                f"{side}Sum": self.value(g.sum, each, empty=0.0),
                f"{side}Variance": self.value(g.variance, each),
            }
        products = {"sumX": (x,), "sumXSq": (x, x), "sumXY": (x, y), "sumY": (y,), "sumYSq": (y, y)}
        sums = {name: self.value(g.sum, _product(*each), empty=0.0) for name, each in products.items()}
        return {**made, "dataPoints": self.count(), "n": self.count(), **sums}


def _of_population(column: str) -> Aggregate:
    return g.standard_deviation(column, of="population")


def _product(first: Bound, *more: Bound) -> Bound:
    for each in more:
        first = Bound(first.value * each.value, t.DOUBLE, f"{first.text}*{each.text}")
    return first


_USES = {"uni": "price", "weighted_avg": "price, volume", "correl": "price, volume", "linest": "price, volume"}
_MADE: Mapping[str, Callable[[DerivedView], Mapping[str, Bound]]] = {
    "size": DerivedView.size,
    "uni": DerivedView.univariate,
    "weighted_avg": DerivedView.weighted,
    "correl": DerivedView.correlation,
    "linest": DerivedView.regression,
}
"""The columns of each view, by its name."""
