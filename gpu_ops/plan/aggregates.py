"""The functions that declare counts, sums, means, extremes and variances.

A part is a range aggregate that a device computes for all windows at once: a count, an exact sum, an extreme.
Aggregates that need the same part share it. `gpu_ops.operators.aggregates` makes results from the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gpu_ops.core.arguments import flag, word
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregate_kinds import Aggregate, AggregateKind, kind_named
from gpu_ops.plan.expressions import Expression, as_expression

__all__ = ["Aggregate", "Population", "aggregate", "count", "degrees_of"]
__all__ += ["max", "mean", "min", "standard_deviation", "sum", "variance"]


def aggregate(
    kind: AggregateKind | str,
    *given: Expression,
    where: Expression | None = None,
    of: Population = "sample",
    distinct: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Aggregate:
    """An aggregate of a kind: the functions of all kinds call it.

    Args:
        kind: The kind; one of this package by its name.
        given: Columns' names or expressions: the aggregated one, then other inputs. None for a count of rows.
        where: Only events for which this condition holds count.
        of: Whether the values are a sample (one degree of freedom less) or the population.
        distinct: Whether equal values count once.
        options: Other parameters, for the functions of the kind.

    Raises:
        PlanError: It is no kind of aggregate; or an argument is no column, no expression, or no condition.
    """
    kind = kind_named(kind) if isinstance(kind, str) else kind
    if not isinstance(kind, AggregateKind):
        raise PlanError(
            f"aggregate takes a kind of aggregate, not {type(kind).__name__}.",
            remedy="Declare one: gpu_ops.extend.AggregateKind(…) (docs/extending.md).",
        )
    inputs = [as_expression(each, where=f"{kind}(…)") for each in given]
    if flag(distinct, name="distinct") and not inputs:
        raise PlanError(
            f"{kind}(distinct=True) needs the values that count once.",
            remedy=f'Say which: g.{kind}("v", distinct=True).',
        )
    return Aggregate(
        kind,
        inputs[0] if inputs else None,
        None if where is None else as_expression(where, where=f"{kind}(…, where=…)"),
        degrees_of(of),
        others=tuple(inputs[1:]),
        options=options or {},
        distinct=distinct,
    )


Population = Literal["sample", "population"]


def degrees_of(population: Population) -> int:
    """Delta degrees of freedom.

    Raises:
        PlanError: It is neither.
    """
    return 1 if word(population, ["sample", "population"], name="of") == "sample" else 0


def count(
    expression: Expression | None = None, *, where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """How many events; with an expression, how many of them where it is not null.

    Args:
        expression: A column's name or an expression of any type, or nothing to count rows.
        where: Count only events for which this condition holds. A window without any gives 0, not "no row".
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Returns:
        An aggregate of type int64 for ``.agg``.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> visits = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "page": ["a", None]})
        >>> windows = g.events(visits, start="at").tumbling("1min")
        >>> windows.agg(n=g.count(), named=g.count("page")).select("n", "named").collect().to_pylist()[0]["named"]
        1
    """
    return aggregate("count", *([] if expression is None else [expression]), where=where, distinct=distinct)


def sum(  # noqa: A001  (the field's word)
    expression: Expression, *, where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The exact sum, nulls skipped; null where no value is.

    Integers give int64 (uint64 for uint64) and decimals ``decimal128(38, scale)``: a sum that does not fit is an error.
    Floats give float64, correctly rounded from the exact sum: no order of addition and no value that has passed
    through the window leaves a trace. NaN and infinities act as in IEEE 754 while their event is in the window.

    Args:
        expression: A column's name or an expression: integer, decimal, float or duration.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [0.1, 1e300]})
        >>> g.events(bids, start="at").tumbling("1min").agg(total=g.sum("price")).collect()["total"].to_pylist()
        [1e+300]
    """
    return aggregate("sum", expression, where=where, distinct=distinct)


def mean(expression: Expression, *, where: Expression | None = None, distinct: bool = False) -> Aggregate:
    """The mean as float64: the exact sum over the count, rounded once (half to even). Null where no value is.

    That holds of integers and decimals too: nothing is rounded before the end, and no sum is too large. NaN and
    infinities act as in `sum`.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 2]})
        >>> g.events(bids, start="at").tumbling("1min").agg(m=g.mean("price")).collect()["m"].to_pylist()
        [1.5]
    """
    return aggregate("mean", expression, where=where, distinct=distinct)


def min(expression: Expression, *, where: Expression | None = None) -> Aggregate:  # noqa: A001
    """The least value, of any ordered type; null where no value is. NaN sorts greatest; -0.0 is 0.0.

    Args:
        expression: A column's name or an expression.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "who": ["eve", "bob"]})
        >>> g.events(bids, start="at").tumbling("1min").agg(first=g.min("who")).collect()["first"].to_pylist()
        ['bob']
    """
    return aggregate("min", expression, where=where)


def max(expression: Expression, *, where: Expression | None = None) -> Aggregate:  # noqa: A001
    """The greatest value, of any ordered type; null where no value is. NaN sorts greatest; -0.0 is 0.0.

    Args:
        expression: A column's name or an expression.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [3, 2]})
        >>> g.events(bids, start="at").tumbling("1min").agg(best=g.max("price")).collect()["best"].to_pylist()
        [3]
    """
    return aggregate("max", expression, where=where)


def variance(
    expression: Expression, *, of: Population = "sample", where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The variance as float64; null where no value is, and for a sample of one.

    It is computed in integers from the exact sums of the values and of their squares and rounded at the end, so the
    bits agree everywhere and nothing cancels.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        of: ``"sample"`` divides by n - 1, ``"population"`` by n.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 3]})
        >>> g.events(bids, start="at").tumbling("1min").agg(v=g.variance("price")).collect()["v"].to_pylist()
        [2.0]
    """
    return aggregate("variance", expression, where=where, of=of, distinct=distinct)


def standard_deviation(
    expression: Expression, *, of: Population = "sample", where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The square root of `variance`, with the same rules.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        of: ``"sample"`` or ``"population"``.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once; NaN equals NaN, and -0.0 equals 0.0.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [1, 3]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(d=g.standard_deviation("price", of="population")).collect()["d"].to_pylist()
        [1.0]
    """
    return aggregate("standard_deviation", expression, where=where, of=of, distinct=distinct)
