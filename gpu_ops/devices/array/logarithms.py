"""Logarithms as exact limbs, and powers of two of their sums, in array form: what products and geometric means are of.

The libraries' logarithms differ from one another in their last bits. These are a fixed sequence of additions and
multiplications of pairs of float64 (the sum of the two is the number: some 106 bits), each of which IEEE 754 rounds in
one way; every operation is an array function of its own, so that no device contracts two into one. A logarithm is cut
at 2**-96 and summed as integers; sums have the same bits in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

from array_api_compat import array_namespace

from gpu_ops.devices.array.numbers import scaled
from gpu_ops.devices.kernels import Array

Pair = tuple[Any, Any]

_LOW_WORD = 0xFFFF_FFFF
_SPLIT = float((1 << 27) + 1)
_STEPS = 64
"""How many values the tables have: one for each part of 1 … 2."""


def log_limbs(values: Array) -> tuple[Array, ...]:
    """The logarithms to base 2 of positive floats, to the nearest multiple of 2**-96.

    Examples:
        >>> import numpy as np
        >>> [limb.tolist() for limb in log_limbs(np.array([0.25, 1.0, 2.0]))]
        [[0, 0, 0], [0, 0, 0], [0, 0, 0], [-2, 0, 1]]
    """
    xp = array_namespace(values)
    halves, exponent = xp.frexp(values)
    exponent = xp.astype(exponent, xp.int64) - 1
    ones = halves * 2.0
    at = xp.astype((ones - 1.0) * _STEPS, xp.int64)
    reciprocal, high, low = (xp.take(xp.asarray(column, dtype=xp.float64), at) for column in _logarithms())
    # A value times the reciprocal of one near it is 1 + z, exactly; log(1 + z) = 2 atanh(z / (2 + z)).
    product, rest = _product(ones, reciprocal)
    z = _quick_sum(product - 1.0, rest)
    s = _divided(z, _sum(_constant(xp, ones, 2.0, 0.0), z))
    t = _times(s, s)
    # Past the third term a float64 is exact enough: t is below 2**-14.
    tail = t[0] * (1 / 9 + t[0] * (1 / 11 + t[0] * (1 / 13 + t[0] * (1 / 15))))
    series = _quick_sum(xp.zeros_like(tail) + 1 / 7, tail)
    for odd in (5, 3):
        series = _sum(_constant(xp, ones, *_parts(Decimal(1) / odd)), _times(t, series))
    atanh = _sum(s, _times(s, _times(t, series)))
    fraction = _sum((high, low), _times(atanh, _constant(xp, ones, *_two_over_ln2())))
    # Above 2**31 in the first limb and then what is left of it in the next ones: all exact until the last is rounded.
    limbs = []
    for _ in range(2):
        upper, lower = fraction[0] * 2.0**32, fraction[1] * 2.0**32
        whole = xp.floor(upper)
        limbs.append(xp.astype(whole, xp.int64))
        fraction = _sum_of_two(upper - whole, lower)
    last = xp.floor((fraction[0] * 2.0**32 + 0.5) + fraction[1] * 2.0**32)
    return xp.astype(last, xp.int64), limbs[1], limbs[0], exponent


def exp_limbs(limb_sums: Sequence[Array], divisor: Array) -> Array:
    """Two to the power of sums of `log_limbs` limbs, divided by whole numbers.

    Examples:
        >>> import numpy as np
        >>> sums = [limb.sum(keepdims=True) for limb in log_limbs(np.array([3.0, 5.0, 7.0]))]
        >>> exp_limbs(sums, np.array([1]))
        array([105.])
    """
    xp = array_namespace(divisor)
    carry = xp.zeros_like(limb_sums[0])
    digits = []
    for limb in limb_sums[:3]:
        total = limb + carry
        digits.append(total & _LOW_WORD)
        carry = total >> 32
    whole = limb_sums[3] + carry
    exponent = whole // divisor
    remainder = whole - exponent * divisor
    quotients = []
    for digit in reversed(digits):
        dividend = (remainder << 32) | digit
        quotients.append(dividend // divisor)
        remainder = dividend - quotients[-1] * divisor
    at = quotients[0] >> 26
    first = xp.astype(quotients[0] & ((1 << 26) - 1), xp.float64) * 2.0**-32
    second = xp.astype(quotients[1], xp.float64) * 2.0**-64
    third = xp.astype(quotients[2], xp.float64) * 2.0**-96
    y = _times(_sum(_sum_of_two(first, second), (third, xp.zeros_like(third))), _constant(xp, first, *_ln2()))
    tail = y[0] / 11.0 + 1.0
    for factor in range(10, 4, -1):
        tail = y[0] / float(factor) * tail + 1.0
    series = (tail, xp.zeros_like(tail))
    one = (xp.zeros_like(first) + 1.0, xp.zeros_like(first))
    for factor in range(4, 0, -1):
        over = _constant(xp, first, *_parts(Decimal(1) / factor))
        series = _sum(one, _times(_times(y, over), series))
    high, low = (xp.take(xp.asarray(column, dtype=xp.float64), at) for column in _powers())
    power = _times(series, (high, low))
    return scaled(power[0], exponent)


# Pairs of float64: the first is the sum, rounded, and the second what is left


def _sum_of_two(x: Array, y: Array) -> Pair:
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _quick_sum(x: Array, y: Array) -> Pair:
    """As `_sum_of_two`, where x is 0 or not smaller than y."""
    total = x + y
    return total, y - (total - x)


def _product(x: Array, y: Array) -> Pair:
    product = x * y
    x_high, y_high = _upper(x), _upper(y)
    x_low, y_low = x - x_high, y - y_high
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _upper(x: Array) -> Array:
    far = x * _SPLIT
    return far - (far - x)


def _sum(x: Pair, y: Pair) -> Pair:
    high, rest = _sum_of_two(x[0], y[0])
    low, last = _sum_of_two(x[1], y[1])
    high, rest = _quick_sum(high, rest + low)
    return _quick_sum(high, rest + last)


def _times(x: Pair, y: Pair) -> Pair:
    high, rest = _product(x[0], y[0])
    return _quick_sum(high, rest + (x[0] * y[1] + x[1] * y[0]))


def _divided(x: Pair, y: Pair) -> Pair:
    first = x[0] / y[0]
    nothing = first * 0.0
    left = _sum(x, _times((-first, nothing), y))
    second = left[0] / y[0]
    left = _sum(left, _times((-second, nothing), y))
    return _sum(_quick_sum(first, second), (left[0] / y[0], nothing))


def _constant(xp: Any, like: Array, high: float, low: float) -> Pair:
    return xp.zeros_like(like) + high, xp.zeros_like(like) + low


def _parts(exact: Decimal) -> tuple[float, float]:
    """A number as a pair."""
    high = float(exact)
    with localcontext(prec=60):
        return high, float(exact - Decimal(high))


# Tables, from 60 decimal digits


@functools.cache
def _logarithms() -> tuple[list[float], list[float], list[float]]:
    """(reciprocals, high, low): of the middle of each part of 1 … 2 in few bits, and minus their logarithms."""
    reciprocals = [round(1024 / (1 + (part + 0.5) / _STEPS)) / 1024 for part in range(_STEPS)]
    reciprocals[0] = 1.0  # then powers of two have whole logarithms
    with localcontext(prec=60):
        pairs = [_parts(-Decimal(each).ln() / Decimal(2).ln()) for each in reciprocals]
    return reciprocals, [high for high, _ in pairs], [low for _, low in pairs]


@functools.cache
def _powers() -> tuple[list[float], list[float]]:
    """(high, low) of 2**(0 / 64), 2**(1 / 64) and so on."""
    with localcontext(prec=60):
        pairs = [_parts((Decimal(2).ln() * part / _STEPS).exp()) for part in range(_STEPS)]
    return [high for high, _ in pairs], [low for _, low in pairs]


@functools.cache
def _two_over_ln2() -> tuple[float, float]:
    with localcontext(prec=60):
        return _parts(2 / Decimal(2).ln())


@functools.cache
def _ln2() -> tuple[float, float]:
    with localcontext(prec=60):
        return _parts(Decimal(2).ln())
