"""Aggregates that weigh values by how long they hold: integrals over time, and means by time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import narwhals as nw

from gpu_ops.core.time import Duration, positive_ticks
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregates import Aggregate, aggregate, mean
from gpu_ops.plan.combinations import Combinable, Combination, Span
from gpu_ops.plan.expressions import Expression, as_expression
from gpu_ops.plan.window_kinds import Hopping
from gpu_ops.plan.windows import Snapshot

_LIFETIME = (nw.col("start"), nw.col("end"))


@dataclass(frozen=True, eq=False)
class TimeWeighted(Combinable):
    """An aggregate that depends on how long events are in a window: over snapshots, throughout.

    Attributes:
        aggregate: Over a grid, which clips lifetimes to each window.
        alone: Over snapshots, where all events of a window last as long as it.
    """

    aggregate: Aggregate
    alone: Combinable

    def __str__(self) -> str:
        return str(self.aggregate)

    def within(self, window: object) -> Combinable:
        """The one of the two that these windows need."""
        if isinstance(window, Snapshot):
            return self.alone
        if isinstance(window, Hopping) and window.membership == "start":
            # StreamInsight's windows hold what overlaps them, and clip that. Trill's put the window's lifetime in the
            # place of the event's own, so that all events would weigh the same.
            raise PlanError(
                "Windows that hold the events that start in them do not say how long each is in them.",
                remedy='Take windows that hold what overlaps them: .hopping(…), without membership="start".',
            )
        until = getattr(window, "until", None)
        if until is None:
            return self.aggregate
        start, end = self.aggregate.others
        bound = nw.lit(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=until), dtype=nw.Datetime("us", "UTC"))
        return replace(self.aggregate, others=(start, nw.when(end > bound).then(bound).otherwise(end)))


def integral(expression: Expression, *, unit: Duration = "1s", where: Expression | None = None) -> TimeWeighted:
    """The values of events times how long each is in the window, summed up, as float64; null where no value is.

    Over snapshots the sum of the values times the result's length; over hopping and tumbling windows each event counts
    for as long as its lifetime lies in the window, and before their ``until``.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        unit: In what time is counted: of watts, ``"1h"`` makes watt hours.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> power = pa.table({"on": [0, 60], "off": [120, 90], "watts": [100, 20]})
        >>> s = g.events(power, start="on", end="off", unit="s").snapshot()
        >>> s.agg(joules=g.integral("watts")).collect()["joules"].to_pylist()
        [6000.0, 3600.0, 3000.0]
    """
    ticks = positive_ticks(unit, name="unit")
    value = as_expression(expression, where="integral(…)")
    condition = None if where is None else as_expression(where, where="integral(…, where=…)")
    options = {"unit": ticks, "bounds": True}
    clipped = aggregate("clipped_integral", value, *_LIFETIME, where=condition, options=options)
    return TimeWeighted(clipped, Combination("*", aggregate("total", value, where=condition), Span(ticks)))


def time_weighted_mean(expression: Expression, *, where: Expression | None = None) -> TimeWeighted:
    """The mean of the values, each weighted by how long its event is in the window, as float64 (StreamInsight).

    It is the exact sum of values times lengths, over the sum of the lengths, rounded once. Over snapshots all events of
    a window last as long as it: there it is the mean. Over hopping and tumbling windows lifetimes are clipped to the
    window. Null where no value is.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> power = pa.table({"on": [0, 60], "off": [120, 90], "watts": [100, 20]})
        >>> s = g.events(power, start="on", end="off", unit="s").snapshot()
        >>> s.agg(watts=g.time_weighted_mean("watts")).collect()["watts"].to_pylist()
        [100.0, 60.0, 100.0]
    """
    alone = mean(expression, where=where)
    return TimeWeighted(aggregate("clipped_mean", expression, *_LIFETIME, where=where, options={"bounds": True}), alone)
