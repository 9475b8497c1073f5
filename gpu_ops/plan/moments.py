"""Aggregates that add up beside sums and variances: other means, products, higher moments, and those of two columns.

All are float64. Powers and products are summed exactly and put together in whole numbers of any length, so that the
bits agree on every device and for any cut of the input, and nothing cancels however far from zero the values lie.
"""

from __future__ import annotations

from gpu_ops.plan.aggregates import Aggregate, Population, aggregate
from gpu_ops.plan.expressions import Expression


def product(expression: Expression, *, where: Expression | None = None, distinct: bool = False) -> Aggregate:
    """The product as float64; null where no value is.

    It is two to the power of the sum of the values' logarithms, each of which is exact to 2**-96: the answer is the
    float64 nearest to the exact product, or, where that lies within n * 2**-95 of the middle between two of them, one
    of the two. So a product of integers that is a float64 is exact. A zero makes it 0 for as long as its event is in
    the window; NaN, and an infinity with a zero, make it NaN. Integers past 2**53 and decimals take part as the nearest
    float64.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> growth = pa.table({"at": pa.array([0, 1, 2], pa.timestamp("s", "UTC")), "times": [3, -5, 7]})
        >>> g.events(growth, start="at").tumbling("1min").agg(p=g.product("times")).collect()["p"].to_pylist()
        [-105.0]
    """
    return aggregate("product", expression, where=where, distinct=distinct)


def geometric_mean(expression: Expression, *, where: Expression | None = None, distinct: bool = False) -> Aggregate:
    """The n-th root of the product, as float64; null where no value is, and where one is negative (StreamCruncher).

    A zero makes it 0, also beside others. It is two to the power of the mean of the logarithms (see `product`), rounded
    once from 80 bits; nothing on the way can be too large.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> growth = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "times": [2.0, 8.0]})
        >>> g.events(growth, start="at").tumbling("1min").agg(m=g.geometric_mean("times")).collect()["m"].to_pylist()
        [4.0]
    """
    return aggregate("geometric_mean", expression, where=where, distinct=distinct)


def harmonic_mean(expression: Expression, *, where: Expression | None = None, distinct: bool = False) -> Aggregate:
    """How many values there are, divided by the sum of their reciprocals, as float64; null where no value is.

    Each reciprocal is rounded to float64; the count over their exact sum is rounded once. A zero makes the mean 0; it
    is null where the reciprocals of positive and negative values come to nothing.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> trips = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "speed": [2, 6]})
        >>> g.events(trips, start="at").tumbling("1min").agg(m=g.harmonic_mean("speed")).collect()["m"].to_pylist()
        [3.0]
    """
    return aggregate("harmonic_mean", expression, where=where, distinct=distinct)


def weighted_mean(expression: Expression, weight: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sum of values times weights, divided by the sum of the weights, as float64 (Esper's wavg).

    Both sums are exact, of decimals too, and their quotient is rounded once. Events of which the value or the weight is
    null take no part; the mean is null where none is left, and where the weights come to zero.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        weight: Likewise; it may be negative.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> trades = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "price": [10, 20], "amount": [3, 1]})
        >>> windows = g.events(trades, start="at").tumbling("1min")
        >>> windows.agg(paid=g.weighted_mean("price", "amount")).collect()["paid"].to_pylist()
        [12.5]
    """
    return aggregate("weighted_mean", expression, weight, where=where)


def skewness(
    expression: Expression, *, of: Population = "sample", where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The skewness as float64: which side of the mean reaches further.

    With m the mean and M2, M3 the sums of the squares and cubes of the differences from it, ``"population"`` is
    ``(M3 / n) / (M2 / n)**1.5``, the standard one. ``"sample"`` is StreamCruncher's (and commons-math's),
    ``n / ((n - 1) (n - 2)) * M3 / s**3`` with the sample's standard deviation s. Both are null where all values are
    equal or none is, and the sample's for fewer than three. M2 and M3 are exact: the relative error is below
    ``3 * 2**-53``, however large the mean is.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        of: ``"sample"`` or ``"population"``.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> waits = pa.table({"at": pa.array([0, 1, 2, 3], pa.timestamp("s", "UTC")), "v": [0.0, 0.0, 0.0, 4.0]})
        >>> windows = g.events(waits, start="at").tumbling("1min")
        >>> windows.agg(s=g.skewness("v")).collect()["s"].to_pylist()
        [2.0]
    """
    return aggregate("skewness", expression, where=where, of=of, distinct=distinct)


def kurtosis(
    expression: Expression, *, of: Population = "sample", where: Expression | None = None, distinct: bool = False
) -> Aggregate:
    """The excess kurtosis as float64: how heavy the tails are; 0 is a normal distribution's.

    With M2 and M4 the sums of the squares and fourth powers of the differences from the mean, ``"population"`` is
    ``n * M4 / M2**2 - 3``, the standard one. ``"sample"`` is StreamCruncher's (and commons-math's),
    ``n (n + 1) / ((n - 1) (n - 2) (n - 3)) * M4 / s**4 - 3 (n - 1)**2 / ((n - 2) (n - 3))``. Both are null where all
    values are equal or none is, and the sample's for fewer than four. The difference is taken in whole numbers: the
    relative error is below ``4 * 2**-53``, also where the excess is near 0.

    Args:
        expression: A column's name or an expression: integer, decimal or float.
        of: ``"sample"`` or ``"population"``.
        where: Only events for which this condition holds.
        distinct: Whether equal values count once.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> waits = pa.table({"at": pa.array([0, 1, 2, 3], pa.timestamp("s", "UTC")), "v": [0.0, 0.0, 0.0, 4.0]})
        >>> windows = g.events(waits, start="at").tumbling("1min")
        >>> windows.agg(k=g.kurtosis("v")).collect()["k"].to_pylist()
        [4.0]
    """
    return aggregate("kurtosis", expression, where=where, of=of, distinct=distinct)


def covariance(
    left: Expression, right: Expression, *, of: Population = "sample", where: Expression | None = None
) -> Aggregate:
    """How two columns vary together, as float64, over the events of which both values are there.

    The numerator ``n Sxy - Sx Sy`` is computed in integers and rounded once: the relative error is below
    ``4 * 2**-53``. Null where there is no such event, and for a sample of one.

    Args:
        left: A column's name or an expression: integer, decimal or float.
        right: Likewise.
        of: ``"sample"`` divides by n - 1, ``"population"`` by n.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> rides = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "km": [1, 3], "paid": [4.0, 9.0]})
        >>> windows = g.events(rides, start="at").tumbling("1min")
        >>> windows.agg(c=g.covariance("km", "paid")).collect()["c"].to_pylist()
        [5.0]
    """
    return aggregate("covariance", left, right, where=where, of=of)


def correlation(left: Expression, right: Expression, *, where: Expression | None = None) -> Aggregate:
    """Pearson's coefficient of correlation as float64, from -1 to 1, over the events of which both values are there.

    It comes from exact sums as `covariance` does. Null where all values of either column are equal, and with fewer than
    two events.

    Args:
        left: A column's name or an expression: integer, decimal or float.
        right: Likewise.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> rides = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "km": [1, 3], "paid": [4.0, 9.0]})
        >>> windows = g.events(rides, start="at").tumbling("1min")
        >>> windows.agg(r=g.correlation("km", "paid")).collect()["r"].to_pylist()
        [1.0]
    """
    return aggregate("correlation", left, right, where=where)


def slope(y: Expression, x: Expression, *, where: Expression | None = None) -> Aggregate:
    """The slope of the line ``y = intercept + slope * x`` of least squares, as float64 (Esper's linest view).

    It comes from exact sums as `covariance` does. Null where all x are equal, and with fewer than two events.

    Args:
        y: The dependent variable: a column's name or an expression: integer, decimal or float.
        x: By what: likewise. An event of which either is null takes no part.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> rides = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "km": [1, 3], "paid": [4.0, 9.0]})
        >>> windows = g.events(rides, start="at").tumbling("1min")
        >>> windows.agg(a_km=g.slope("paid", "km"), flat=g.intercept("paid", "km")).select("a_km", "flat").collect()[
        ...     "flat"
        ... ].to_pylist()
        [1.5]
    """
    return aggregate("slope", y, x, where=where)


def intercept(y: Expression, x: Expression, *, where: Expression | None = None) -> Aggregate:
    """Where the line of least squares meets ``x = 0``, as float64; `slope` tells the rest.

    Args:
        y: The dependent variable: a column's name or an expression: integer, decimal or float.
        x: By what: likewise. An event of which either is null takes no part.
        where: Only events for which this condition holds.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> rides = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "km": [1, 3], "paid": [4.0, 9.0]})
        >>> windows = g.events(rides, start="at").tumbling("1min")
        >>> windows.agg(flat=g.intercept("paid", "km")).collect()["flat"].to_pylist()
        [1.5]
    """
    return aggregate("intercept", y, x, where=where)
