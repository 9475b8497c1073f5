"""Aggregates that need the events of a window in order: quantiles, modes, values by their place, lists.

`gpu_ops.operators.aggregates.holistic` computes them. A running query keeps the order or the events themselves.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.arguments import MOST, whole, word
from gpu_ops.core.time import LIFETIME, TIME_TYPE, Duration, positive_ticks
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregate_kinds import check_order, float_of_numbers, value_type
from gpu_ops.plan.aggregates import Aggregate, aggregate, count
from gpu_ops.plan.arguments import OrderBy, several
from gpu_ops.plan.expressions import Expression, as_expression, bare_column

Interpolation = Literal["linear", "midpoint", "lower", "higher", "discrete"]
_INTERPOLATIONS = ("linear", "midpoint", "lower", "higher", "discrete")
_BETWEEN = ("linear", "midpoint")

_EVERY = 1 << 62
"""More rows than any window has."""

RANK = "__rank"
"""A rank that the result drops; a payload may have a column ``rank``."""

START, END = nw.col("start").alias("__from"), nw.col("end").alias("__until")
"""The lifetime, under names that a payload column may have."""


def count_distinct(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The number of different values: `count` of an expression with ``distinct=True``.

    Args:
        expression: A column's name or an expression of any type that can be a key.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> visits = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "who": ["eve", "bob", "eve"]})
        >>> windows = g.events(visits, start="at").tumbling("1min")
        >>> windows.agg(people=g.count_distinct("who")).collect()["people"].to_pylist()
        [2]
    """
    return count(expression, where=where, distinct=True)


def median(expression: Expression, *, where: Expression | None = None, distinct: bool = False) -> Aggregate:
    """The middle value as float64, or the mean of the two middle values (Esper, StreamCruncher); null without values.

    It is `quantile` of 0.5; the mean is rounded once.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1, 2, 3], pa.timestamp("s", "UTC")), "price": [9, 1, 2, 4]})
        >>> g.events(bids, start="at").tumbling("1min").agg(m=g.median("price")).collect()["m"].to_pylist()
        [3.0]
    """
    return quantile(expression, 0.5, where=where, distinct=distinct)


def quantile(
    expression: Expression,
    q: float,
    *,
    interpolation: Interpolation = "linear",
    where: Expression | None = None,
    distinct: bool = False,
) -> Aggregate:
    """The value below which a share ``q`` of the values lies; null without values. NaN is the greatest value.

    For n values in order, x0 … x(n-1), ``"linear"`` interpolates at the place ``q * (n - 1)`` (SQL's and Trill's
    continuous percentile), ``"midpoint"`` is the mean of its two neighbours, ``"lower"`` and ``"higher"`` are one of
    them. ``"discrete"`` is SQL's percentile_disc: the first value that at least a share ``q`` does not exceed. Places
    are computed in integers from the decimal digits of ``q``, so that 0.07 of a hundred values are seven.

    Args:
        expression: A column's name or an expression. ``"linear"`` and ``"midpoint"`` take integers, decimals and floats
            and give float64: ``a * (1 - t) + b * t`` in doubles, decimals as the nearest ones, and in the middle the
            mean of the two, rounded once. The others take any type that has an order, and give that type.
        q: From 0 to 1.
        interpolation: The result if the place lies between two values.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Raises:
        PlanError: ``q`` is not a share, or the interpolation is unknown.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "price": [1, 2, 4]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> answer = windows.agg(a=g.quantile("price", 0.75), b=g.quantile("price", 0.75, interpolation="lower"))
        >>> answer.select("a", "b").collect().select(["a", "b"]).to_pylist()
        [{'a': 3.0, 'b': 2}]
    """
    given: Any = q
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise PlanError(f"quantile takes a share from 0 to 1, not {q!r}.", remedy="The median is 0.5.")
    word(interpolation, _INTERPOLATIONS, name="interpolation")
    options = {"q": q, "interpolation": interpolation}
    return _over("quantile", expression, where=where, options=options, distinct=distinct)


def share(q: float) -> tuple[int, int]:
    """A quantile's share as a fraction of integers that leaves room to multiply by a count.

    Examples:
        >>> share(0.07)
        (7, 100)
    """
    exact = Fraction(repr(float(q))).limit_denominator(1 << 30)
    return exact.numerator, exact.denominator


def mode(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The most frequent value; the least of several such values; null without values.

    Args:
        expression: A column's name or an expression of any type that has an order.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> visits = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "page": ["b", "a", "b"]})
        >>> g.events(visits, start="at").tumbling("1min").agg(page=g.mode("page")).collect()["page"].to_pylist()
        ['b']
    """
    return _over("mode", expression, where=where)


def nth(expression: Expression, n: int, *, order: OrderBy = None, where: Expression | None = None) -> Aggregate:
    """The value of the n-th event, of any type, nulls skipped; null if there are fewer.

    Events are in order of their start, then of ``order``, then of the value.

    Args:
        expression: A column's name or an expression of any type.
        n: From 0 on; negative numbers count from the end, -1 is the last (Esper's nth counts so: its 0 is our -1).
        order: One or several expressions that order events of one start, ascending, null first.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "price": [9, 1, 4]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(a=g.nth("price", 1), b=g.nth("price", -1)).collect().select(["a", "b"]).to_pylist()
        [{'a': 1, 'b': 4}]
    """
    if type(n) is not int or abs(n) > MOST:
        raise PlanError(f"nth takes a whole number, not {n!r}.", remedy="The first is 0, the last is -1.")
    others = (START, *listed(order, "nth(…, order=…)"))
    return _over("nth", expression, *others, where=where, options={"n": n})


def top(expression: Expression, k: int, *, by: Expression | None = None, where: Expression | None = None) -> Aggregate:
    """A list of the k greatest values, the greatest first; or the values of the events with the greatest ``by``.

    Nulls are skipped. For equal ``by``, the lesser value comes first. `Windowed.top` gives whole rows with ranks.

    Args:
        expression: A column's name or an expression of any type that has an order.
        k: The most values.
        by: The expression that decides, instead of the value.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table(
        ...     {"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "who": ["a", "b", "c"], "price": [1, 9, 4]}
        ... )
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(best=g.top("price", 2), who=g.top("who", 2, by="price")).collect()["who"].to_pylist()
        [['b', 'c']]
    """
    return _top(expression, k, by, where, "top")


def bottom(
    expression: Expression, k: int, *, by: Expression | None = None, where: Expression | None = None
) -> Aggregate:
    """A list of the k least values, the least first: `top` the other way round.

    Args:
        expression: As in `top`.
        k: As in `top`.
        by: As in `top`.
        where: As in `top`.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "price": [1, 9, 4]})
        >>> g.events(bids, start="at").tumbling("1min").agg(least=g.bottom("price", 2)).collect()["least"].to_pylist()
        [[1, 4]]
    """
    return _top(expression, k, by, where, "bottom")


def _top(expression: Expression, k: int, by: Expression | None, where: Expression | None, verb: str) -> Aggregate:
    whole(k, name="k")
    others = () if by is None else listed(by, f"{verb}(…, by=…)")
    return _over("top", expression, *others, where=where, options={"k": k, "descending": verb == "top"})


def mean_absolute_deviation(
    expression: Expression, *, where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The mean distance of the values from their mean (Esper's avedev) as float64; null without values.

    The mean is `g.mean`; each distance is rounded once, and so is their exact sum over the count. The cost grows with
    the number of pairs of a window and an event in it.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 4]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(d=g.mean_absolute_deviation("price")).collect()["d"].to_pylist()
        [1.5]
    """
    return _over("mean_absolute_deviation", expression, where=where, distinct=distinct)


def collect_list(expression: Expression, *, order: OrderBy = None, where: Expression | None = None) -> Aggregate:
    """All values as a list, nulls skipped: in order of the events' start, then of ``order``, then of the value.

    Without values the list is empty.

    Args:
        expression: A column's name or an expression of any type.
        order: One or several expressions that order events of one start, ascending, null first.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [9, 1]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(all=g.collect_list("price")).collect()["all"].to_pylist()
        [[9, 1]]
    """
    return _over("collect_list", expression, START, *listed(order, "collect_list(…, order=…)"), where=where)


def collect_set(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The different values as a list in their order, nulls skipped.

    Args:
        expression: A column's name or an expression of any type that can be a key.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "price": [9, 1, 9]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(all=g.collect_set("price")).collect()["all"].to_pylist()
        [[1, 9]]
    """
    return _over("collect_set", expression, where=where, distinct=True)


def rate(per: Duration = "1s", *, over: Duration | None = None, where: Expression | None = None) -> Aggregate:
    """The number of events per unit of time, as float64.

    Args:
        per: The unit.
        over: The span of time that the events are counted over; by default the window's own length. A sliding window's
            results last until something changes: give the span that it reaches back (Esper: rate).
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> visits = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "page": ["b", "a", "b"]})
        >>> g.events(visits, start="at").tumbling("1min").agg(r=g.rate("1s")).collect()["r"].to_pylist()
        [0.05]
    """
    options: dict[str, Any] = {"per": positive_ticks(per, name="per")}
    if over is not None:
        options["over"] = positive_ticks(over, name="over")
    return aggregate("rate", where=where, options=options | {"bounds": over is None})


def ranked(by: Expression, k: int, payload: pa.Schema, *, descending: bool) -> Aggregate:
    """The first k events by an order with their ranks, as a list of structs: `Windowed.top` uses it."""
    whole(k, name="k")
    decides = named(by, "top(…, by=…)")
    returns = pa.schema([pa.field("rank", pa.int64()), *payload])
    options = {"k": k, "descending": descending, "returns": returns}
    return aggregate("ranked", decides, *map(nw.col, payload.names), options=options)


def every_row(payload: pa.Schema) -> Aggregate:
    """All events with their lifetimes, as a list of structs: `Windowed.rows` uses it."""
    lifetime = [pa.field(name, TIME_TYPE) for name in ("event_start", "event_end")]
    returns = pa.schema([pa.field(RANK, pa.int64()), *payload, *lifetime])
    options = {"k": _EVERY, "descending": False, "returns": returns}
    return aggregate("ranked", START, *map(nw.col, payload.names), START, END, options=options)


# Helpers of the functions above


def _over(
    kind: str,
    expression: Expression,
    *others: nw.Expr,
    where: Expression | None,
    options: dict[str, Any] | None = None,
    distinct: bool = False,
) -> Aggregate:
    over = named(expression, f"{kind}(…)")
    return aggregate(kind, over, *others, where=where, options=options, distinct=distinct)


def listed(given: OrderBy, where: str) -> tuple[nw.Expr, ...]:
    """One expression, several or none; the lifetime gets names that a payload column may have."""
    return tuple(named(each, where) for each in several(given, where=where))


def named(given: Expression, where: str) -> nw.Expr:
    """An expression; the lifetime gets a name that a payload column may have."""
    expression = as_expression(given, where=where)
    return expression.alias(f"__{name}") if (name := bare_column(expression)) in LIFETIME else expression


# Types


def quantile_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of a quantile: float64 between two values, else that of the values."""
    check_order(aggregate, types)
    if aggregate.options["interpolation"] in _BETWEEN:
        remedy = 'Take one of the values: interpolation="lower"; or cast it to a number.'
        return float_of_numbers(aggregate, types, remedy)
    return value_type(aggregate, types)


def placed_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of a value by its event's place: the expressions that decide the place need an order."""
    check_order(aggregate, types, 1)
    return value_type(aggregate, types)


def returned_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The declared type; for a schema a list of rows."""
    returns = aggregate.options["returns"]
    return pa.list_(pa.struct(list(returns))) if isinstance(returns, pa.Schema) else returns


def ranked_type(aggregate: Aggregate, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of ranked rows."""
    check_order(aggregate, types[:1])
    return returned_type(aggregate, types)
