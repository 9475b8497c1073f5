"""Moments from exact sums of powers and products, in integers up to the last step: nothing cancels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.operators.aggregates.block import Block
from gpu_ops.operators.aggregates.exact_sums import Digits, Result, Taken, as_float, computed_once, scale, taken
from gpu_ops.operators.aggregates.forms import number_columns
from gpu_ops.plan.aggregate_kinds import AggregateKind, Sums, float_of_numbers
from gpu_ops.plan.aggregates import Aggregate

# Central moments


@dataclass(frozen=True)
class Spread:
    """Integers from sums of powers: ``n S2 - S1**2`` and its terms, as digits.

    Attributes:
        n: The number of values.
        first: S1.
        second: S2.
        spread: ``n S2 - S1**2``, n times the sum of squared differences from the mean.
    """

    n: Digits
    first: Digits
    second: Digits
    spread: Digits


@computed_once
def _spread(some: Taken, at: int) -> Spread:
    kernels = some.block.device.kernels
    times, plus = kernels.multiply_digits, kernels.sum_digits
    powers = [0] * len(some.names)
    powers[at] = 1
    first, _ = some.moment(*powers)
    powers[at] = 2
    second, _ = some.moment(*powers)
    n = kernels.digits_int(some.count())
    return Spread(n, first, second, plus([times(n, second), times(first, first)], [1, -1]))


def _quotient(some: Taken, above: Digits, below: Digits, shift: int = 0) -> tuple[Any, Any]:
    """(above / below * 2**shift, where below is not 0): each rounded once, and then their quotient."""
    kernels = some.block.device.kernels
    (upper, up), (lower, down) = kernels.round_digits(above), kernels.round_digits(below)
    defined = lower != 0
    return kernels.scaled(upper / np.where(defined, lower, 1.0), up - down + shift), defined


def _root(some: Taken, sign: Digits, above: Digits, below: Digits) -> tuple[Any, Any]:
    """(the root of above / below with a sign, where below is not 0): the root halves the error of three roundings."""
    kernels = some.block.device.kernels
    (upper, up), (lower, down) = kernels.round_digits(above), kernels.round_digits(below)
    defined = lower != 0
    odd = (up - down) & 1
    root = np.sqrt(upper / np.where(defined, lower, 1.0) * (1 + odd))
    root = kernels.scaled(root, (up - down - odd) >> 1)
    return np.where(kernels.round_digits(sign)[0] < 0, -root, root), defined


def _odd(some: Taken, values: Any, defined: Any) -> tuple[Any, Any]:
    """NaN where a value is NaN or infinite."""
    strange = some.strange()
    if strange is None:
        return values, defined
    return np.where(strange > 0, np.nan, values), defined | (strange > 0)


def _skewness(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    kernels = block.device.kernels
    times, plus = kernels.multiply_digits, kernels.sum_digits
    of = _spread(some, 0)
    third, _ = some.moment(3)
    # n**2 times the sum of cubed differences: n (n S3 - 3 S1 S2) + 2 S1**3.
    inner = plus([times(of.n, third), times(of.first, of.second)], [1, -3])
    cubed = plus([times(of.n, inner), times(of.first, times(of.first, of.first))], [1, 2])
    above = times(cubed, cubed)
    below = times(of.spread, times(of.spread, of.spread))
    count = some.count()
    if aggregate.degrees:
        # The sample's is the population's times the root of n (n - 1), over n - 2.
        wide = np.maximum(count, 3)
        above = times(above, kernels.digits_int(wide * (wide - 1)))
        below = times(below, kernels.digits_int((wide - 2) * (wide - 2)))
    made, defined = _odd(some, *_root(some, cubed, above, below))
    return as_float(made, defined & (count > 2 * aggregate.degrees))


def _kurtosis(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    kernels = block.device.kernels
    times, plus = kernels.multiply_digits, kernels.sum_digits
    of = _spread(some, 0)
    third, fourth = some.moment(3)[0], some.moment(4)[0]
    squared = times(of.first, of.first)
    # n**3 M4 - 3 (n M2)**2: n**2 (n S4 - 4 S1 S3 - 3 S2**2) + 6 S1**2 (2 n S2 - S1**2), M being sums of powers of
    # differences; and over (n M2)**2 it is the excess.
    inner = plus([times(of.n, fourth), times(of.first, third), times(of.second, of.second)], [1, -4, -3])
    outer = plus([of.spread, times(of.n, of.second)], [1, 1])
    excess = plus([times(times(of.n, of.n), inner), times(squared, outer)], [1, 6])
    below = times(of.spread, of.spread)
    count = some.count()
    if aggregate.degrees:
        # (n - 1) ((n + 1) excess + 6) / ((n - 2) (n - 3)), which is the sample's formula put in another way.
        wide = np.maximum(count, 4)
        excess = plus([times(kernels.digits_int(wide + 1), excess), below], [1, 6])
        excess = times(kernels.digits_int(wide - 1), excess)
        below = times(kernels.digits_int((wide - 2) * (wide - 3)), below)
    made, defined = _quotient(some, excess, below)
    made, defined = _odd(some, made, defined)
    return as_float(made, defined & (count > 3 * aggregate.degrees))


# Two columns


@computed_once
def _cross_spread(some: Taken) -> Digits:
    """``n Sxy - Sx Sy``."""
    kernels = some.block.device.kernels
    n = kernels.digits_int(some.count())
    products, (left, _), (right, _) = some.moment(1, 1)[0], some.moment(1, 0), some.moment(0, 1)
    return kernels.sum_digits([kernels.multiply_digits(n, products), kernels.multiply_digits(left, right)], [1, -1])


def _covariance(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    count = some.count()
    fraction, exponent = block.device.kernels.round_digits(_cross_spread(some))
    divisor = count * (count - aggregate.degrees)
    made = fraction / np.where(divisor > 0, divisor, 1).astype(np.float64)
    made = block.device.kernels.scaled(made, exponent + some.moment(1, 1)[1])
    made = made / 10.0 ** (scale(some, 0) + scale(some, 1))
    made, _ = _odd(some, made, True)
    return as_float(made, divisor > 0)


def _correlation(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    times = block.device.kernels.multiply_digits
    # The square in the numerator is at most the denominator, so that the root is at most 1.
    product, spreads = _cross_spread(some), times(_spread(some, 0).spread, _spread(some, 1).spread)
    return as_float(*_odd(some, *_root(some, product, times(product, product), spreads)))


def _slope(block: Block, aggregate: Aggregate) -> Result:
    """The slope of the least-squares line through (x, y); y is the first column, x the second."""
    some = taken(block, aggregate)
    shift = some.moment(1, 0)[1] - some.moment(0, 1)[1]
    made, defined = _quotient(some, _cross_spread(some), _spread(some, 1).spread, shift)
    made = made * 10.0 ** (scale(some, 1) - scale(some, 0))
    return as_float(*_odd(some, made, defined))


def _intercept(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    kernels = block.device.kernels
    of = _spread(some, 1)
    ups, shift = some.moment(1, 0)
    above = [kernels.multiply_digits(ups, of.second), kernels.multiply_digits(of.first, some.moment(1, 1)[0])]
    made, defined = _quotient(some, kernels.sum_digits(above, [1, -1]), of.spread, shift)
    return as_float(*_odd(some, made / 10.0 ** scale(some, 0), defined))


def _weighted_mean(block: Block, aggregate: Aggregate) -> Result:
    some = taken(block, aggregate)
    kernels = block.device.kernels
    (above, _), (below, _) = some.moment(1, 1), some.moment(0, 1)
    # The exponent of products less that of weights, and the weights' decimal places, which both sums have.
    made = kernels.divide_digits(above, some.times_ten(below, scale(some, 0)), some.moment(1, 0)[1])
    defined = kernels.round_digits(below)[0] != 0
    if some.strange() is None:
        return as_float(made, defined)
    # As IEEE 754 adds products: an infinite value counts by the signs of its weight and of the sum of weights.
    value, weight = some.floats(0), some.floats(1)
    upward = (value == np.inf) & (weight > 0) | (value == -np.inf) & (weight < 0)
    downward = (value == -np.inf) & (weight > 0) | (value == np.inf) & (weight < 0)
    unknown = ~np.isfinite(weight) | np.isnan(value) | (np.isinf(value) & (weight == 0))
    up, down, none = (
        some.count_if(kind, mask & (~np.isfinite(weight) | ~np.isfinite(value)))
        for kind, mask in (
            ("upward", upward & np.isfinite(weight)),
            ("downward", downward & np.isfinite(weight)),
            ("unknown", unknown),
        )
    )
    sign = np.where(block.device.kernels.round_digits(below)[0] < 0, -1.0, 1.0)
    made = np.where(up > 0, np.inf * sign, np.where(down > 0, -np.inf * sign, made))
    unknown = (none > 0) | ((up > 0) & (down > 0))
    return as_float(np.where(unknown, np.nan, made), defined | unknown)


for _name, _result in {
    "skewness": _skewness,
    "kurtosis": _kurtosis,
    "covariance": _covariance,
    "correlation": _correlation,
    "slope": _slope,
    "intercept": _intercept,
    "weighted_mean": _weighted_mean,
}.items():
    AggregateKind(name=_name, types=float_of_numbers, columns=number_columns, result=_result, incremental=Sums())
