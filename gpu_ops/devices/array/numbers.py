"""Exact sums and order codes in array form: numbers as int64 limbs, and limb sums as rounded numbers.

A limb is a digit of ``limb_bits`` bits and its number's sign. Limbs are summed as integers, which no order of addition
changes, so the rounded total has the same bits on every device and for every cut of the input.
`gpu_ops.devices.kernels.NumberKernels` says what each function takes and gives. Integers and shifts do the work: no
result depends on how a device would fuse a multiplication with an addition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from gpu_ops.devices.kernels import Array

_LOW_WORD = 0xFFFF_FFFF
_FRACTION = (1 << 52) - 1
_MAGNITUDE = (1 << 63) - 1
_LEAST = -(1 << 63)
_INFINITY = 0x7FF0_0000_0000_0000
_NAN = 0x7FF8_0000_0000_0000


# Integers and decimals


def exact_limbs_int(values: Array) -> tuple[Array, Array]:
    """Integers as limbs of 32 bits.

    Examples:
        >>> import numpy as np
        >>> exact_limbs_int(np.array([-1, 5]))
        (array([4294967295,          5]), array([-1,  0]))
    """
    xp = array_namespace(values)
    return xp.astype(values & _LOW_WORD, xp.int64), xp.astype(values >> 32, xp.int64)


def join_int(low: Array, high: Array) -> tuple[Array, Array]:
    """The integers that sums of `exact_limbs_int` limbs stand for.

    Examples:
        >>> import numpy as np
        >>> join_int(np.array([1 << 33]), np.array([-2]))
        (array([0]), array([False]))
    """
    high = high + (low >> 32)
    return (high << 32) | (low & _LOW_WORD), (high < -(1 << 31)) | (high >= 1 << 31)


def join_unsigned(low: Array, high: Array) -> tuple[Array, Array]:
    """The integers that sums of `exact_limbs_int` limbs stand for, as uint64.

    Examples:
        >>> import numpy as np
        >>> join_unsigned(np.array([5]), np.array([1 << 31]))
        (array([9223372036854775813], dtype=uint64), array([False]))
    """
    xp = array_namespace(low)
    high = high + (low >> 32)
    return xp.astype((high << 32) | (low & _LOW_WORD), xp.uint64), (high < 0) | (high >= 1 << 32)


def square_limbs_int(values: Array) -> tuple[Array, ...]:
    """The squares of integers as four limbs of 32 bits, the lowest first.

    Examples:
        >>> import numpy as np
        >>> [int(limb[0]) for limb in square_limbs_int(np.array([-(1 << 33) - 1]))]
        [1, 4, 4, 0]
    """
    xp = array_namespace(values)
    if values.dtype != xp.uint64:
        values = xp.where(values < 0, -values, values)  # the least int64 stays as it is: read unsigned, it is right
    low = xp.astype(values & _LOW_WORD, xp.int64)
    high = xp.astype(values >> 32, xp.int64) & _LOW_WORD
    # (high * 2**32 + low)**2; a product of two 32-bit halves may fill 64 bits, and is read as unsigned.
    squared, crossed, topmost = low * low, low * high, high * high
    second = ((squared >> 32) & _LOW_WORD) + 2 * (crossed & _LOW_WORD)
    third = (second >> 32) + 2 * ((crossed >> 32) & _LOW_WORD) + (topmost & _LOW_WORD)
    fourth = (third >> 32) + ((topmost >> 32) & _LOW_WORD)
    return squared & _LOW_WORD, second & _LOW_WORD, third & _LOW_WORD, fourth


def exact_limbs_decimal(low: Array, high: Array) -> tuple[Array, Array, Array, Array]:
    """128-bit integers, such as unscaled decimals, as four limbs of 32 bits, the lowest first.

    Examples:
        >>> import numpy as np
        >>> [int(limb[0]) for limb in exact_limbs_decimal(np.array([-2]), np.array([-1]))]
        [4294967294, 4294967295, 4294967295, -1]
    """
    return low & _LOW_WORD, (low >> 32) & _LOW_WORD, high & _LOW_WORD, high >> 32


def join_decimal(limb_sums: Sequence[Array], precision: int) -> tuple[Array, Array, Array]:
    """The decimals that sums of `exact_limbs_decimal` limbs stand for.

    Examples:
        >>> import numpy as np
        >>> limbs = [np.array([limb, limb]) for limb in (99, 0, 0, 0)]
        >>> join_decimal(limbs, 2)
        (array([99, 99]), array([0, 0]), array([False, False]))
        >>> bool(join_decimal(limbs, 1)[2].all())
        True
    """
    digits = []
    carry = limb_sums[0]
    for limb in limb_sums[1:]:
        digits.append(carry & _LOW_WORD)
        carry = limb + (carry >> 32)
    low, high = (digits[1] << 32) | digits[0], (carry << 32) | digits[2]
    bound = 10**precision
    overflow = (carry < -(1 << 31)) | (carry >= 1 << 31)
    overflow = overflow | _not_below(low, high, bound) | ~_not_below(low, high, 1 - bound)
    return low, high, overflow


def _not_below(low: Array, high: Array, bound: int) -> Array:
    """Whether 128-bit integers, in two words, are at least ``bound``."""
    # With its highest bit turned over, an unsigned word compares as a signed one.
    word = bound & ((1 << 64) - 1)
    least = word - (1 << 63)
    return (high > bound >> 64) | ((high == bound >> 64) & ((low ^ _LEAST) >= least))


# Floats


def limb_plan(values: Array, n: int) -> tuple[int, int, int]:
    """How to cut finite floats into limbs; the frexp of an isolated bit is its position."""
    xp = array_namespace(values)
    limb_bits = min(52, 62 - max(n - 1, 1).bit_length()) & ~1
    significand, exponent = _parts(xp, values)
    present = significand != 0
    if values.shape[0] == 0 or not bool(xp.any(present)):
        return limb_bits, 0, 1
    _, above_lowest = xp.frexp(xp.astype(significand & -significand, xp.float64))
    _, above_highest = xp.frexp(xp.astype(significand, xp.float64))
    lowest = int(xp.min(xp.where(present, exponent + above_lowest - 1, 1024)))
    highest = int(xp.max(xp.where(present, exponent + above_highest, lowest)))
    return limb_bits, lowest, max(1, -(-(highest - lowest) // limb_bits))


def float_limbs(values: Array, limb_bits: int, lowest_exponent: int, limbs: int) -> tuple[Array, ...]:
    """Finite floats as limbs: the bits of each significand that fall between two exponents."""
    xp = array_namespace(values)
    significand, exponent = _parts(xp, values)
    negative = values < 0
    made = []
    for limb in range(limbs):
        part = _between(xp, significand, exponent - (lowest_exponent + limb * limb_bits), limb_bits)
        made.append(xp.where(negative, -part, part))
    return tuple(made)


def square_limbs(values: Array, limb_bits: int, lowest_exponent: int) -> tuple[Array, ...]:
    """The squares of finite floats as limbs: a product of 53 bits by 53, in two words of 54 and 52 bits."""
    xp = array_namespace(values)
    greatest = float(xp.max(xp.abs(values))) if values.shape[0] else 0.0
    span = 2 * (math.frexp(greatest)[1] - lowest_exponent) if greatest else 1
    significand, exponent = _parts(xp, values)
    left, right = significand >> 27, significand & ((1 << 27) - 1)
    crossed = 2 * left * right
    low = right * right + ((crossed & ((1 << 27) - 1)) << 27)
    high = left * left + (crossed >> 27) + (low >> 54)
    low = low & ((1 << 54) - 1)
    made = []
    for limb in range(max(1, -(-span // limb_bits))):
        offset = 2 * exponent - (2 * lowest_exponent + limb * limb_bits)
        made.append(_between(xp, low, offset, limb_bits) | _between(xp, high, offset + 54, limb_bits))
    return tuple(made)


def round_limbs(limb_sums: Sequence[Array], limb_bits: int, lowest_exponent: int) -> Array:
    """The correctly rounded totals; one limb is an integer that the conversion rounds."""
    xp = array_namespace(limb_sums[0])
    if len(limb_sums) == 1 and lowest_exponent < 960:
        return xp.astype(limb_sums[0], xp.float64) * math.ldexp(1.0, lowest_exponent)
    significand, exponent, negative = leading_bits(xp, limb_sums, limb_bits)
    return scaled(xp.astype(xp.where(negative, -significand, significand), xp.float64), exponent + lowest_exponent)


def variance(
    count: Array, sums: Sequence[Array], squares: Sequence[Array], limb_bits: int, lowest_exponent: int, ddof: int
) -> Array:
    """``(n S2 - S1**2) / (n (n - ddof))``, the numerator exact in integers."""
    xp = array_namespace(count)
    half = limb_bits // 2
    first, second = _half_limbs(sums, limb_bits), _half_limbs(squares, limb_bits)
    spread = [count * digit for digit in second]
    spread += [xp.zeros_like(count)] * (2 * len(first) - 1 - len(spread))
    for at, digit in enumerate(first):
        spread[2 * at] = spread[2 * at] - digit * digit
        for further in range(at + 1, len(first)):
            spread[at + further] = spread[at + further] - 2 * (digit * first[further])
    significand, exponent, _ = leading_bits(xp, spread, half)
    divisor = count * (count - ddof)
    defined = (count > 0) & (divisor > 0)
    ratio = xp.astype(significand, xp.float64) / xp.astype(xp.where(defined, divisor, 1), xp.float64)
    return xp.where(defined, scaled(ratio, exponent + 2 * lowest_exponent), xp.nan)


def scaled(values: Array, exponent: Array) -> Array:
    """``values * 2**exponent``; too large results are infinite, without NumPy's warning.

    Examples:
        >>> import numpy as np
        >>> scaled(np.array([0.75, -1.0]), np.array([3, 5000]))
        array([  6., -inf])
    """
    xp = array_namespace(values)
    _, length = xp.frexp(values)
    fits = (values == 0) | (length + exponent <= 1024)
    made = xp.ldexp(xp.where(fits, values, 0.0), xp.astype(xp.where(fits, exponent, 0), xp.int32))
    return xp.where(fits, made, xp.where(values < 0, -xp.inf, xp.inf))


def _parts(xp: Any, values: Array) -> tuple[Array, Array]:
    """(significand, exponent), int64: ``|value| == significand * 2**exponent`` with a significand below 2**53."""
    bits = values.view(xp.int64)
    stored = (bits >> 52) & 0x7FF
    hidden = xp.astype(stored > 0, xp.int64)
    return (bits & _FRACTION) | (hidden << 52), stored - hidden - 1074


def _between(xp: Any, word: Array, offset: Array, bits: int) -> Array:
    """Bits ``0 … bits - 1`` of ``word * 2**offset``; what a left shift pushes out of the word lies above them."""
    left, right = xp.clip(offset, 0, 63), xp.clip(-offset, 0, 63)
    return ((word << left) >> right) & ((1 << bits) - 1)


def _half_limbs(limb_sums: Sequence[Array], limb_bits: int) -> list[Array]:
    """Limb sums as digits of half as many bits, from 0 to 2**half - 1, but for the last, which is 0 or -1."""
    half = limb_bits // 2
    mask = (1 << half) - 1
    digits = []
    carry = limb_sums[0]
    for limb in [*limb_sums[1:], None]:
        digits += [carry & mask, (carry >> half) & mask]
        carry = carry >> limb_bits
        if limb is not None:
            carry = limb + carry
    for _ in range((63 - limb_bits) // half + 1):
        digits.append(carry & mask)
        carry = carry >> half
    return [*digits, carry]


def leading_bits(xp: Any, limb_sums: Sequence[Array], limb_bits: int) -> tuple[Array, Array, Array]:
    """The totals' leading bits, up to 63, the last of them set where any bit below is: enough to round once.

    Returns:
        (significand, exponent, negative): the total's magnitude is about ``significand * 2**exponent``, exactly so
        where it has no more bits; exponents count from the lowest limb's.
    """
    digits, head, negative = magnitude(xp, limb_sums, limb_bits)
    return *leading_of(xp, digits, head, xp.zeros_like(negative), limb_bits), negative


def magnitude(xp: Any, limb_sums: Sequence[Array], limb_bits: int) -> tuple[list[Array], Array, Array]:
    """Totals without their signs, as digits from 0 to ``2**limb_bits - 1``.

    Returns:
        (digits, head, negative): the digits, the lowest first, and what is above them; where a total is negative.
    """
    mask = (1 << limb_bits) - 1
    digits = []
    carry = xp.zeros_like(limb_sums[0])
    for limb in limb_sums:
        total = limb + carry
        digits.append(total & mask)
        carry = total >> limb_bits
    negative = carry < 0
    up = xp.astype(negative, xp.int64)
    flip = up * mask
    for at, digit in enumerate(digits):
        total = (digit ^ flip) + up
        digits[at] = total & mask
        up = total >> limb_bits
    return digits, xp.where(negative, ~carry, carry) + up, negative


def leading_of(xp: Any, digits: Sequence[Array], head: Array, below: Array, limb_bits: int) -> tuple[Array, Array]:
    """The leading bits of what `magnitude` gave, as in `leading_bits`; ``below`` says where more is below the digits.

    Returns:
        (significand, exponent).
    """
    mask = (1 << limb_bits) - 1
    exponent = xp.zeros_like(head) + limb_bits * len(digits)
    for digit in reversed(digits):
        # The head's length, but at least 10; what a conversion to float64 might round up is cut off first.
        length = xp.astype(xp.frexp(xp.astype(head >> 10, xp.float64))[1], xp.int64) + 10
        room = xp.clip(63 - length, 0, limb_bits)
        head = (head << room) | (digit >> (limb_bits - room))
        below = below | ((digit & (mask >> room)) != 0)
        exponent = exponent - room
    return head | xp.astype(below, xp.int64), exponent


def nearest(xp: Any, significand: Array, exponent: Array, negative: Array) -> Array:
    """The float64 nearest to `leading_bits` times ``2**exponent``, half to even, also where it is subnormal."""
    # Where the result is subnormal two bits are kept below its last one, and that some were lost: enough to round once.
    lost = xp.clip(-1076 - exponent, 0, 63)
    kept = significand >> lost
    kept = kept | xp.astype((kept << lost) != significand, xp.int64)
    return scaled(xp.astype(xp.where(negative, -kept, kept), xp.float64), exponent + lost)


# Order codes


def order_float(values: Array) -> Array:
    """Floats as integers of the same order, which `range_max` compares.

    Examples:
        >>> import numpy as np
        >>> np.argsort(order_float(np.array([np.nan, 1.0, -np.inf, -1.0])))
        array([2, 3, 1, 0])
    """
    xp = array_namespace(values)
    bits = values.view(xp.int64)
    magnitude = bits & _MAGNITUDE
    codes = xp.where(bits < 0, -magnitude, magnitude)
    return xp.where(magnitude > _INFINITY, _NAN, codes)


def unorder_float(codes: Array) -> Array:
    """The floats that `order_float` codes stand for; NaN for what is none.

    Examples:
        >>> import numpy as np
        >>> unorder_float(order_float(np.array([-0.0, np.nan, -1.5])))
        array([ 0. ,  nan, -1.5])
    """
    xp = array_namespace(codes)
    bits = xp.where(codes < 0, -codes | _LEAST, codes)
    return xp.where((codes > _INFINITY) | (codes < -_INFINITY), _NAN, bits).view(xp.float64)
