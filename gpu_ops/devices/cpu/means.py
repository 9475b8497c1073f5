"""Means on the CPU: exact sums over counts, rounded once, by Numba.

A sum is taken apart into two float64 numbers, its quotient is rounded, and the exact remainder says what the quotient
is off by. Where that cannot tell which float64 is the nearest (next to the middle between two, or for a subnormal
result), whole numbers do: by the GPU's function, which is exact for every row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_ops.devices.array import means as exact
from gpu_ops.devices.cpu.compiling import FLOAT, INT, INT_TABLE, INTS, Bools, Floats, Ints, inlined, kernel, unsigned

_LEAST_NORMAL = math.ldexp(1.0, -1022)
_SPLIT = 134217729.0  # 2**27 + 1: the factor by which Veltkamp halves a float64
_EXACT, _SMALL = math.ldexp(1.0, 50), math.ldexp(1.0, 26)
_BEYOND = 1.0 + math.ldexp(1.0, -44)
"""By how much more than the remainder's error is added to it before it counts as too small to matter."""


def mean_limbs(
    limb_sums: Sequence[Ints], counts: Ints, limb_bits: int, lowest_exponent: int, places: int = 0
) -> Floats:
    """The float64 nearest to sums of limbs over counts, half to even: rounded once, subnormal or not.

    Examples:
        >>> mean_limbs([np.array([7, -3])], np.array([2, 3]), 32, 0)
        array([ 3.5, -1. ])
        >>> mean_limbs([np.array([1025])], np.array([2]), 32, 0, 2)
        array([5.125])
    """
    if len(limb_sums) <= 2 and places == 0:
        both = len(limb_sums) == 2
        made, doubtful = _means(limb_sums[0], limb_sums[-1], both, counts, limb_bits, lowest_exponent)
    elif len(limb_sums) == 3 and places == 0 and lowest_exponent + limb_bits < 1023:
        low, middle, high = limb_sums
        made, doubtful = _means_of_three(low, middle, high, counts, limb_bits, lowest_exponent)
    else:
        ten = float(10**places)
        less = float(10**places - int(ten))
        made, doubtful = _means_of_many(np.stack(limb_sums), counts, limb_bits, lowest_exponent, ten, less)
    if doubtful.any():
        at = np.flatnonzero(doubtful)
        limbs = [limb[at] for limb in limb_sums]
        made[at] = exact.mean_limbs(limbs, counts[at], limb_bits, lowest_exponent, places)
    return made


@kernel(INTS, INTS, INT, INTS, INT, INT)
def _means(
    low: Ints, high: Ints, both: int, counts: Ints, limb_bits: int, lowest_exponent: int
) -> tuple[Floats, Bools]:
    """(means, whether each may be wrong); without branches, so that several rows are computed at a time."""
    scale, base = math.ldexp(1.0, lowest_exponent), math.ldexp(1.0, limb_bits)
    mask = (1 << limb_bits) - 1
    made = np.empty(low.size, np.float64)
    doubtful = np.empty(low.size, np.bool_)
    for row in range(low.size):
        at = unsigned(row)
        top = (low[at] >> limb_bits) + (high[at] if both else 0)
        # The sum as two float64 numbers, exactly if the upper limb is one.
        upper, lower = top * base, float(low[at] & mask)
        total = upper + lower
        rest = lower - (total - upper)
        mean, sure, halfway = _quotient(total, rest, float(counts[at]))
        # A correction by a power of two is exact: right also in the middle between two numbers.
        sure |= halfway & (counts[at] & (counts[at] - 1) == 0)
        scaled = mean * scale
        made[at] = scaled
        small = (abs(scaled) <= _LEAST_NORMAL) & (total != 0)
        doubtful[at] = (not sure) | small | (abs(top) > 1 << 53) | (float(counts[at]) > _SMALL)
    return made, doubtful


@kernel(INTS, INTS, INTS, INTS, INT, INT)
def _means_of_three(
    low: Ints, middle: Ints, high: Ints, counts: Ints, limb_bits: int, lowest_exponent: int
) -> tuple[Floats, Bools]:
    """`_means` of sums of three limbs; what is below both float64 numbers is too little to matter next to a middle."""
    scale, base = math.ldexp(1.0, lowest_exponent + limb_bits), math.ldexp(1.0, limb_bits)
    step, mask = math.ldexp(1.0, -limb_bits), (1 << limb_bits) - 1
    made = np.empty(low.size, np.float64)
    doubtful = np.empty(low.size, np.bool_)
    for row in range(low.size):
        at = unsigned(row)
        carried = middle[at] + (low[at] >> limb_bits)
        top = high[at] + (carried >> limb_bits)
        upper, lower, lowest = top * base, float(carried & mask), float(low[at] & mask) * step
        # The sum of the upper two as two numbers, exactly; then the lowest one beside the second.
        head = upper + lower
        tail = lower - (head - upper)
        beside = tail + lowest
        about = beside - tail
        below = (tail - (beside - about)) + (lowest - about)
        total = head + beside
        rest = beside - (total - head)
        mean, sure, halfway = _quotient(total, rest, float(counts[at]))
        sure |= halfway & (counts[at] & (counts[at] - 1) == 0) & (below == 0)
        scaled = mean * scale
        made[at] = scaled
        small = (abs(scaled) <= _LEAST_NORMAL) & (total != 0)
        doubtful[at] = (not sure) | small | (abs(top) > 1 << 53) | (float(counts[at]) > _SMALL)
    return made, doubtful


@inlined
def _quotient(total: float, rest: float, divisor: float) -> tuple[float, bool, bool]:
    """(``(total + rest) / divisor`` for a small divisor, whether it is the nearest, whether nothing was lost)."""
    inverse = 1.0 / divisor
    # Half a quotient times a small divisor is exact, and so is each difference: they are small multiples of ulps.
    quotient = total * inverse
    wide = quotient * _SPLIT
    half = wide - (wide - quotient)
    remainder = (total - half * divisor) - (quotient - half) * divisor
    left = remainder + rest
    about = left - remainder
    lost = (remainder - (left - about)) + (rest - about)
    correction = left * inverse
    mean = quotient + correction
    beyond = correction - (mean - quotient)
    return mean, mean + beyond * _BEYOND == mean, lost == 0


@kernel(INT_TABLE, INTS, INT, INT, FLOAT, FLOAT)
def _means_of_many(
    limb_sums: Ints, counts: Ints, limb_bits: int, lowest_exponent: int, ten: float, less: float
) -> tuple[Floats, Bools]:
    limbs, size = limb_sums.shape
    mask, step = (1 << limb_bits) - 1, math.ldexp(1.0, -limb_bits)
    digits = np.empty(limbs + 1, np.int64)
    made = np.empty(size, np.float64)
    doubtful = np.empty(size, np.bool_)
    for at in range(size):
        carry = 0
        for limb in range(limbs):
            total = limb_sums[limb, at] + carry
            digits[limb] = total & mask
            carry = total >> limb_bits
        digits[limbs] = carry
        top = limbs
        while top > 0 and digits[top] == 0:
            top -= 1
        # From the top down in units of the uppermost digit, until the rest no longer counts beside the sum.
        more, weight = abs(int(digits[top])) > 1 << 53, 1.0
        upper, lower = 0.0, 0.0
        place = top
        while place >= 0 and weight > _LEAST_NORMAL and (upper == 0 or weight > abs(upper) * 2.0**-170):
            part = float(digits[place]) * weight
            total_upper = upper + part
            about = total_upper - upper
            error = (upper - (total_upper - about)) + (part - about)
            total_lower = lower + error
            more = more or total_lower - lower != error or total_lower - error != lower
            upper, lower = total_upper, total_lower
            weight *= step
            place -= 1
        sound = place < 0 or weight > _LEAST_NORMAL
        joined = upper + lower
        rest = lower - (joined - upper)
        mean, sure = _mean(joined, rest, more or place >= 0, float(counts[at]), ten, less)
        mean = math.ldexp(mean, lowest_exponent + top * limb_bits)
        made[at] = mean
        small = abs(mean) <= _LEAST_NORMAL and joined != 0
        doubtful[at] = small or not (sure and sound) or abs(digits[top]) > 1 << 53
    return made, doubtful


@inlined
def _mean(total: float, rest: float, more: int, count: float, ten: float, less: float) -> tuple[float, bool]:
    """(``(total + rest) / (count * (ten + less))``, whether it is the nearest); ``more``: if more is in the sum.

    The remainder of a correctly rounded quotient is a float64, and gives a correction. The part of the correction that
    is lost when it is added is compared with half the distance to the next float64.
    """
    divisor = count * ten
    quotient = total / divisor
    whole = not more and less == 0 and divisor <= _EXACT
    if whole and rest == 0:
        return quotient, True
    product = quotient * divisor
    remainder = (total - product) - _product_error(quotient, divisor, product)
    # What the divisor lacks is taken off it.
    remainder -= quotient * (_product_error(count, ten, divisor) + less * count)
    left = remainder + rest
    correction = left / divisor
    mean = quotient + correction
    beyond = correction - (mean - quotient)
    sure = mean + beyond * _BEYOND == mean
    if not sure and whole:
        # In the middle, if the correction is exact.
        about = left - remainder
        lost = (remainder - (left - about)) + (rest - about)
        product = correction * divisor
        sure = lost == 0 and product == left and _product_error(correction, divisor, product) == 0
    return mean, sure


@inlined
def _product_error(left: float, right: float, product: float) -> float:
    """The rounding error of a product of two float64 numbers, exactly."""
    wide = left * _SPLIT
    high = wide - (wide - left)
    low = left - high
    wide = right * _SPLIT
    upper = wide - (wide - right)
    lower = right - upper
    return ((high * upper - product) + high * lower + low * upper) + low * lower
