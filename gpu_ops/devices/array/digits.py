"""Exact whole numbers of any length in array form: products and sums of digits, for moments and weighted sums.

A number is a list of int64 arrays, its digits of 26 bits, the lowest first; all but the last are in 0 … 2**26 - 1, the
last one carries the sign and is in -2**26 … 2**26 - 1. A product of two digits and a sum of a thousand of them fit
int64, and so does a sum of one digit of 2**36 numbers. Both devices use these functions: integers alone do the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from gpu_ops.devices.array.numbers import leading_bits, magnitude, nearest
from gpu_ops.devices.kernels import Array

DIGIT_BITS = 26

_MASK = (1 << DIGIT_BITS) - 1
_BASE = 1 << DIGIT_BITS


def digits_int(values: Array) -> tuple[Array, ...]:
    """Integers as digits of 26 bits, as few as all of them need.

    Examples:
        >>> import numpy as np
        >>> digits_int(np.array([-1, 1 << 26]))
        (array([67108863,        0]), array([-1,  1]))
    """
    xp = array_namespace(values)
    least, most = (int(xp.min(values)), int(xp.max(values))) if values.shape[0] else (0, 0)
    count = 1
    while not -1 << DIGIT_BITS * count <= least <= most < 1 << DIGIT_BITS * count:
        count += 1
    low = [xp.astype((values >> DIGIT_BITS * at) & _MASK, xp.int64) for at in range(count - 1)]
    return *low, xp.astype(values >> DIGIT_BITS * (count - 1), xp.int64)


def digits_decimal(low: Array, high: Array) -> tuple[Array, ...]:
    """128-bit integers, such as unscaled decimals, as five digits of 26 bits.

    Examples:
        >>> import numpy as np
        >>> [int(digit[0]) for digit in digits_decimal(np.array([5]), np.array([1]))]
        [5, 0, 4096, 0, 0]
    """
    middle = ((low >> 52) & 0xFFF) | ((high & 0x3FFF) << 12)
    return low & _MASK, (low >> 26) & _MASK, middle, (high >> 14) & _MASK, high >> 40


def digits_limbs(limb_sums: Sequence[Array], limb_bits: int) -> tuple[Array, ...]:
    """Sums of limbs as digits of 26 bits.

    Examples:
        >>> import numpy as np
        >>> digits_limbs([np.array([5]), np.array([3])], 30)
        (array([5]), array([48]))
    """
    xp = array_namespace(limb_sums[0])
    terms = []
    for at, limb in enumerate(limb_sums):
        place, shift = divmod(at * limb_bits, DIGIT_BITS)
        shifted = multiply_digits(digits_int(limb), (xp.zeros_like(limb) + (1 << shift),))
        terms.append([xp.zeros_like(limb)] * place + list(shifted))
    return sum_digits(terms, [1] * len(terms))


def multiply_digits(left: Sequence[Array], right: Sequence[Array]) -> tuple[Array, ...]:
    """The products of two lists of numbers.

    Examples:
        >>> import numpy as np
        >>> multiply_digits(digits_int(np.array([-3, 1 << 20])), digits_int(np.array([5, 1 << 20])))
        (array([67108849,        0]), array([   -1, 16384]))
    """
    made: list[Any] = [None] * (len(left) + len(right) - 1)
    for at, digit in enumerate(left):
        for more, other in enumerate(right):
            if left is right and more < at:
                continue
            product = digit * other
            if left is right and more > at:
                product = product + product
            made[at + more] = product if made[at + more] is None else made[at + more] + product
    return _carried(made)


def sum_digits(terms: Sequence[Sequence[Array]], factors: Sequence[int]) -> tuple[Array, ...]:
    """A sum of numbers, each times a factor.

    Examples:
        >>> import numpy as np
        >>> three, ten = digits_int(np.array([3])), digits_int(np.array([10]))
        >>> sum_digits([ten, three], [1, -4])
        (array([-2]),)
    """
    made: list[Any] = []
    for digits, factor in zip(terms, factors, strict=True):
        for at, digit in enumerate(digits):
            times = digit if factor == 1 else digit * factor
            if at == len(made):
                made.append(times)
            else:
                made[at] = made[at] + times
    return _carried(made)


def _carried(sums: Sequence[Array]) -> tuple[Array, ...]:
    """Sums of digits as digits, as few as all numbers need."""
    xp = array_namespace(sums[0])
    digits = []
    carry = xp.zeros_like(sums[0])
    for each in sums:
        total = each + carry
        digits.append(total & _MASK)
        carry = total >> DIGIT_BITS
    while not bool(xp.all((carry >= -_BASE) & (carry < _BASE))):
        digits.append(carry & _MASK)
        carry = carry >> DIGIT_BITS
    digits.append(carry)
    while len(digits) > 1 and bool(xp.all((digits[-1] == 0) | (digits[-1] == -1))):
        top = digits.pop()
        digits[-1] = digits[-1] + (top << DIGIT_BITS)
    return tuple(digits)


def round_digits(digits: Sequence[Array]) -> tuple[Array, Array]:
    """The nearest float64 to each number, half to even, as fraction and exponent, so that no number is too large.

    Examples:
        >>> import numpy as np
        >>> round_digits(digits_int(np.array([-6, 0])))
        (array([-0.75,  0.  ]), array([3, 0]))
    """
    xp = array_namespace(digits[0])
    significand, exponent, negative = leading_bits(xp, digits, DIGIT_BITS)
    rounded = xp.astype(xp.where(negative, -significand, significand), xp.float64)
    fraction, length = xp.frexp(rounded)
    return fraction, xp.where(fraction == 0, 0, exponent + xp.astype(length, xp.int64))


def divide_digits(above: Sequence[Array], below: Sequence[Array], exponent: int) -> Array:
    """The float64 nearest to quotients of numbers, half to even: rounded once, subnormal or not.

    Examples:
        >>> import numpy as np
        >>> divide_digits(digits_int(np.array([-6, 1, 5])), digits_int(np.array([4, 3, 0])), 1)
        array([-3.        ,  0.66666667,  0.        ])
    """
    xp = array_namespace(above[0])
    upper, above_top, above_negative = _from_the_top(xp, above)
    lower, below_top, below_negative = _from_the_top(xp, below)
    divisor = _leading_float(xp, lower)
    there = divisor != 0
    divisor = xp.where(there, divisor, 1.0)
    upper = [xp.where(there, digit, 0) for digit in upper]
    upper += [xp.zeros_like(upper[0])] * (len(lower) + 1 - len(upper))
    # Each round takes the nearest digit, of either sign, so that what is left is at most half the divisor.
    made = []
    for _ in range(_ROUNDS):
        digit = xp.astype(xp.round(_leading_float(xp, upper) / divisor), xp.int64)
        made.append(digit)
        carry = xp.zeros_like(digit)
        for at in range(len(lower) - 1, 0, -1):
            left = upper[at] - digit * lower[at] + carry
            upper[at], carry = left & _MASK, left >> DIGIT_BITS
        first = upper[0] - digit * lower[0] + carry
        upper = [(first << DIGIT_BITS) + upper[1], *upper[2:], xp.zeros_like(first)]
    rest = xp.zeros_like(there)
    for digit in upper:
        rest = rest | (digit != 0)
    # Below the digits only the sign of what is left counts.
    below_all = xp.where(upper[0] < 0, -1, xp.astype(rest, xp.int64))
    significand, shift, _ = leading_bits(xp, [below_all, *reversed(made)], DIGIT_BITS)
    shift = shift + (DIGIT_BITS * (above_top - below_top - _ROUNDS) + exponent)
    return nearest(xp, significand, shift, above_negative != below_negative)


_ROUNDS = 5
"""Digits of a quotient: the first may be 0, and the second as small as 1; then there are still 78 bits."""


def _from_the_top(xp: Any, digits: Sequence[Array]) -> tuple[list[Array], Array, Array]:
    """Numbers' magnitudes as digits, each number's own highest one first.

    Returns:
        (digits, how many places the highest is above the lowest, where a number is negative).
    """
    low, head, negative = magnitude(xp, digits, DIGIT_BITS)
    low.append(head)
    top = xp.zeros_like(head)
    for at, digit in enumerate(low):
        top = xp.where(digit != 0, at, top)
    rows = head.shape[0]
    every = xp.reshape(xp.stack([xp.zeros_like(head), *low]), (-1,))
    row = xp.arange(rows, dtype=xp.int64)
    return [xp.take(every, xp.maximum(top + 1 - at, 0) * rows + row) for at in range(len(low))], top, negative


def _leading_float(xp: Any, digits: Sequence[Array]) -> Array:
    """An approximation of numbers by their three highest digits, in units of the first one."""
    made = xp.astype(digits[0], xp.float64)
    for at, digit in enumerate(digits[1:3], 1):
        made = made + xp.astype(digit, xp.float64) * 2.0 ** (-DIGIT_BITS * at)
    return made
