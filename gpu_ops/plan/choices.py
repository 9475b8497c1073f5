"""Aggregates that choose: whether any or all conditions hold, and the value of one event by an order of events.

The chosen event never depends on the order of rows: the events' starts, then the values decide between equal events.
"""

from __future__ import annotations

import narwhals as nw

from gpu_ops.plan.aggregates import Aggregate, aggregate
from gpu_ops.plan.arguments import OrderBy, several
from gpu_ops.plan.expressions import Expression


def any(condition: Expression, *, where: Expression | None = None) -> Aggregate:  # noqa: A001  (the field's word)
    """Whether a condition holds for any event; nulls are skipped, and the answer is null where nothing else is.

    Args:
        condition: A boolean column's name or expression.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 3]})
        >>> g.events(bids, start="at").tumbling("1min").agg(m=g.any(g.col("price") > 2)).collect()["m"].to_pylist()
        [True]
    """
    return aggregate("any", condition, where=where)


def all(condition: Expression, *, where: Expression | None = None) -> Aggregate:  # noqa: A001  (the field's word)
    """Whether a condition holds for all events; nulls are skipped, and the answer is null where nothing else is.

    Args:
        condition: A boolean column's name or expression.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 3]})
        >>> g.events(bids, start="at").tumbling("1min").agg(m=g.all(g.col("price") > 2)).collect()["m"].to_pylist()
        [False]
    """
    return aggregate("all", condition, where=where)


def first(expression: Expression, *, order: OrderBy = None, where: Expression | None = None) -> Aggregate:
    """The value of the event that starts first; null where no value is.

    Args:
        expression: A column's name or an expression of any ordered type.
        order: The order of events that start together: one expression or several, ascending, nulls first. Of events
            equal in it, the one with the least value counts.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([1, 0], pa.timestamp("s", "UTC")), "who": ["eve", "bob"]})
        >>> g.events(bids, start="at").tumbling("1min").agg(who=g.first("who")).collect()["who"].to_pylist()
        ['bob']
    """
    return aggregate("first", expression, nw.col("start"), *several(order, where="order="), where=where)


def last(expression: Expression, *, order: OrderBy = None, where: Expression | None = None) -> Aggregate:
    """The value of the event that starts last; null where no value is.

    Args:
        expression: A column's name or an expression of any ordered type.
        order: The order of events that start together, as for `first`: the greatest comes last. Of events equal in it,
            the one with the greatest value counts.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([1, 0], pa.timestamp("s", "UTC")), "who": ["eve", "bob"]})
        >>> g.events(bids, start="at").tumbling("1min").agg(who=g.last("who")).collect()["who"].to_pylist()
        ['eve']
    """
    return aggregate("last", expression, nw.col("start"), *several(order, where="order="), where=where)


def arg_min(expression: Expression, by: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value of the event where another expression is least; null where there is none.

    Of several such events it is the one that starts first, and of those the least value. Events of which the value or
    ``by`` is null take no part.

    Args:
        expression: The result: a column's name or an expression of any ordered type.
        by: The value to minimize: likewise; NaN is greater than all other values.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "who": ["eve", "bob"], "price": [3, 5]})
        >>> g.events(bids, start="at").tumbling("1min").agg(who=g.arg_min("who", "price")).collect()["who"].to_pylist()
        ['eve']
    """
    return aggregate("arg_min", expression, by, nw.col("start"), where=where)


def arg_max(expression: Expression, by: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value of the event where another expression is greatest; null where there is none.

    Of several such events it is the one that starts first, and of those the least value. Events of which the value or
    ``by`` is null take no part.

    Args:
        expression: The result: a column's name or an expression of any ordered type.
        by: The value to maximize: likewise; NaN is greater than all other values.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "who": ["eve", "bob"], "price": [3, 5]})
        >>> g.events(bids, start="at").tumbling("1min").agg(who=g.arg_max("who", "price")).collect()["who"].to_pylist()
        ['bob']
    """
    return aggregate("arg_max", expression, by, nw.col("start"), where=where)
