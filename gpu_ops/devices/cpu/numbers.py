"""Exact sums on the CPU: floats as int64 limbs, and limb sums as correctly rounded floats and variances, by Numba.

A limb is a digit of ``limb_bits`` bits and its number's sign. Limbs are summed as integers, which no order of addition
changes, so the rounded total has the same bits on every device and for every cut of the input (it is `math.fsum`'s).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpu_ops.devices.cpu.compiling import INT, INT_TABLE, INTS, Bools, Floats, Ints, inlined, kernel

_FRACTION = (1 << 52) - 1
_LEAST_NORMAL = math.ldexp(1.0, -1022)
_BEYOND = 1.0 + math.ldexp(1.0, -44)
"""By how much more than what is left of a sum is added to it before it counts as too little to matter."""
_FITS = math.ldexp(1.0, 62)
"""A product of floats up to this is one of integers below 2**63."""


def limb_plan(values: Floats, n: int) -> tuple[int, int, int]:
    """How to cut finite floats into limbs: as few as the bits present need, two for most data.

    Examples:
        >>> limb_plan(np.array([0.5, 3.0]), 1000)
        (52, -1, 1)
    """
    limb_bits = min(52, 62 - max(n - 1, 1).bit_length()) & ~1
    lowest, highest = _exponents(values.view(np.int64))
    return limb_bits, lowest, max(1, -(-(highest - lowest) // limb_bits))


@kernel(INTS)
def _exponents(bits: Ints) -> tuple[int, int]:
    """(lowest, highest): all numbers are multiples of ``2**lowest`` below ``2**highest``; zeros do not count."""
    # For each exponent, every bit that is set in any significand of it.
    seen = np.zeros(2048, np.int64)
    for at in range(bits.size):
        stored = (bits[at] >> 52) & 0x7FF
        seen[np.uint64(stored)] |= (bits[at] & _FRACTION) | (np.int64(stored > 0) << 52)
    lowest = highest = 0
    found = False
    for stored in range(2048):
        if seen[stored] == 0:
            continue
        exponent = max(stored, 1) - 1075
        low = high = 0
        while (seen[stored] >> low) & 1 == 0:
            low += 1
        while seen[stored] >> high > 0:
            high += 1
        lowest = min(lowest, exponent + low) if found else exponent + low
        highest = max(highest, exponent + high) if found else exponent + high
        found = True
    return int(lowest), int(highest)


def float_limbs(values: Floats, limb_bits: int, lowest_exponent: int, limbs: int) -> tuple[Ints, ...]:
    """Finite floats as limbs, exactly.

    Examples:
        >>> float_limbs(np.array([0.5, -3.0]), 2, -1, 2)
        (array([ 1, -2]), array([ 0, -1]))
    """
    return tuple(_float_limbs(values.view(np.int64), limb_bits, lowest_exponent, limbs))


@kernel(INTS, INT, INT, INT)
def _float_limbs(bits: Ints, limb_bits: int, lowest_exponent: int, limbs: int) -> Ints:
    made = np.empty((limbs, bits.size), np.int64)
    for limb in range(limbs):
        lowest = lowest_exponent + limb * limb_bits
        for at in range(bits.size):
            significand, exponent = _parts(bits[at])
            part = _between(significand, exponent - lowest, limb_bits)
            sign = bits[at] >> 63
            made[limb, at] = (part ^ sign) - sign
    return made


def square_limbs(values: Floats, limb_bits: int, lowest_exponent: int) -> tuple[Ints, ...]:
    """The squares of finite floats as limbs, exactly, also where a float64 would overflow or underflow.

    Examples:
        >>> square_limbs(np.array([0.5, -3.0]), 2, -1)
        (array([1, 0]), array([0, 1]), array([0, 2]))
    """
    greatest = float(np.abs(values).max()) if values.size else 0.0
    span = 2 * (math.frexp(greatest)[1] - lowest_exponent) if greatest else 1
    return tuple(_square_limbs(values.view(np.int64), limb_bits, lowest_exponent, max(1, -(-span // limb_bits))))


@kernel(INTS, INT, INT, INT)
def _square_limbs(bits: Ints, limb_bits: int, lowest_exponent: int, limbs: int) -> Ints:
    made = np.empty((limbs, bits.size), np.int64)
    for limb in range(limbs):
        lowest = 2 * lowest_exponent + limb * limb_bits
        for at in range(bits.size):
            significand, exponent = _parts(bits[at])
            left, right = significand >> 27, significand & ((1 << 27) - 1)
            crossed = 2 * left * right
            low = right * right + ((crossed & ((1 << 27) - 1)) << 27)
            high = left * left + (crossed >> 27) + (low >> 54)
            offset = 2 * exponent - lowest
            low_part = _between(low & ((1 << 54) - 1), offset, limb_bits)
            made[limb, at] = low_part | _between(high, offset + 54, limb_bits)
    return made


@inlined
def _parts(bits: int) -> tuple[int, int]:
    """(significand, exponent) of a float64's bits: its magnitude is ``significand * 2**exponent``."""
    stored = (bits >> 52) & 0x7FF
    hidden = int(stored > 0)
    return (bits & _FRACTION) | (hidden << 52), stored - hidden - 1074


@inlined
def _between(word: int, offset: int, bits: int) -> int:
    """Bits ``0 … bits - 1`` of ``word * 2**offset``; what a left shift pushes out of the word lies above them."""
    return ((word << min(max(offset, 0), 63)) >> min(max(-offset, 0), 63)) & ((1 << bits) - 1)


def round_limbs(limb_sums: Sequence[Ints], limb_bits: int, lowest_exponent: int) -> Floats:
    """The float64 nearest to sums of limbs, half to even; past the greatest float64 an infinity.

    Examples:
        >>> round_limbs([np.array([1, 3]), np.array([0, -1])], 2, -1)
        array([ 0.5, -0.5])
    """
    if len(limb_sums) == 1 and lowest_exponent < 960:  # no overflow, of which NumPy would warn
        return np.multiply(limb_sums[0], math.ldexp(1.0, lowest_exponent), dtype=np.float64)
    if len(limb_sums) == 2:
        return _round_two(limb_sums[0], limb_sums[1], limb_bits, lowest_exponent)
    if len(limb_sums) == 3 and lowest_exponent + limb_bits < 1023:
        low, middle, high = limb_sums
        return _round_three(low, middle, high, limb_bits, lowest_exponent)
    return _round_many(np.stack(limb_sums), limb_bits, lowest_exponent)


@kernel(INTS, INTS, INT, INT)
def _round_two(low: Ints, high: Ints, limb_bits: int, lowest_exponent: int) -> Floats:
    scale, base = math.ldexp(1.0, lowest_exponent), math.ldexp(1.0, limb_bits)
    mask = (1 << limb_bits) - 1
    totals = np.empty(low.size, np.float64)
    digits = np.empty(2, np.int64)
    for at in range(low.size):
        top = high[at] + (low[at] >> limb_bits)
        if abs(top) <= 1 << 53:
            # Both parts are float64 numbers, so their sum is rounded once. It is a multiple of 2**-1074: the scaling
            # is exact, or an overflow.
            totals[at] = (top * base + (low[at] & mask)) * scale
        else:
            digits[0], digits[1] = low[at], high[at]
            totals[at] = _rounded(digits, 2, limb_bits, lowest_exponent)
    return totals


@kernel(INTS, INTS, INTS, INT, INT)
def _round_three(low: Ints, middle: Ints, high: Ints, limb_bits: int, lowest_exponent: int) -> Floats:
    scale, base = math.ldexp(1.0, lowest_exponent + limb_bits), math.ldexp(1.0, limb_bits)
    step, mask = math.ldexp(1.0, -limb_bits), (1 << limb_bits) - 1
    totals = np.empty(low.size, np.float64)
    digits = np.empty(3, np.int64)
    for at in range(low.size):
        carried = middle[at] + (low[at] >> limb_bits)
        top = high[at] + (carried >> limb_bits)
        upper, lower = top * base, float(carried & mask)
        # The sum of the upper two as two float64 numbers, exactly; the lowest beside the second one.
        head = upper + lower
        beside = (lower - (head - upper)) + float(low[at] & mask) * step
        total = head + beside
        rest = beside - (total - head)
        # What was rounded off matters only next to the middle between two numbers.
        sure = total + rest * _BEYOND == total and abs(top) <= 1 << 53
        scaled = total * scale
        if sure and (abs(scaled) > _LEAST_NORMAL or total == 0):
            totals[at] = scaled
        else:
            digits[0], digits[1], digits[2] = low[at], middle[at], high[at]
            totals[at] = _rounded(digits, 3, limb_bits, lowest_exponent)
    return totals


@kernel(INT_TABLE, INT, INT)
def _round_many(limb_sums: Ints, limb_bits: int, lowest_exponent: int) -> Floats:
    limbs, size = limb_sums.shape
    totals = np.empty(size, np.float64)
    digits = np.empty(limbs, np.int64)
    for at in range(size):
        for limb in range(limbs):
            digits[limb] = limb_sums[limb, at]
        totals[at] = _rounded(digits, limbs, limb_bits, lowest_exponent)
    return totals


@inlined
def _rounded(digits: Ints, count: int, limb_bits: int, lowest_exponent: int) -> float:
    head, exponent, negative = _leading_bits(digits, count, limb_bits)
    return math.ldexp(float(-head if negative else head), exponent + lowest_exponent)


@inlined
def _leading_bits(digits: Ints, count: int, limb_bits: int) -> tuple[int, int, bool]:
    """A total's leading bits, up to 63, the last of them set where any bit below is: enough to round once.

    Args:
        digits: Limb sums, the lowest first; overwritten.
        count: How many.
        limb_bits: Bits of each.

    Returns:
        (significand, exponent, negative): the total's magnitude is about ``significand * 2**exponent``, exactly so
        where it has no more bits; exponents count from the lowest limb's.
    """
    mask = (1 << limb_bits) - 1
    carry = 0
    for at in range(count):
        total = digits[at] + carry
        digits[at] = total & mask
        carry = total >> limb_bits
    negative = carry < 0
    if negative:
        carry, up = ~carry, 1
        for at in range(count):
            total = (digits[at] ^ mask) + up
            digits[at] = total & mask
            up = total >> limb_bits
        carry += up
    head, exponent = carry, count * limb_bits
    at = count - 1
    while at >= 0 and head < 1 << (63 - limb_bits):
        head = (head << limb_bits) | digits[at]
        exponent -= limb_bits
        at -= 1
    if at < 0:
        return head, exponent, negative
    room = 0
    for step in (32, 16, 8, 4, 2, 1):
        if head < 1 << (63 - room - step):
            room += step
    below = digits[at] & (mask >> room)
    head = (head << room) | (digits[at] >> (limb_bits - room))
    exponent -= room
    while below == 0 and at > 0:
        at -= 1
        below = digits[at]
    return head | (below != 0), exponent, negative


def variance(
    count: Ints, sums: Sequence[Ints], squares: Sequence[Ints], limb_bits: int, lowest_exponent: int, ddof: int
) -> Floats:
    """The variance of each slot's values from their exact sums, ``(n S2 - S1**2) / (n (n - ddof))``.

    Examples:
        >>> values = np.array([2, 4, 9])
        >>> variance(np.array([3]), [values.sum(keepdims=True)], [(values**2).sum(keepdims=True)], 32, 0, 1)
        array([13.])
    """
    if len(sums) == 1 and len(squares) == 1 and lowest_exponent == 0:
        made, large = _variance_of_small(count, sums[0], squares[0], ddof)
        if large.any():
            at = np.flatnonzero(large)
            made[at] = _variance(count[at], sums[0][at][None], squares[0][at][None], limb_bits, 0, ddof)
        return made
    return _variance(count, np.stack(sums), np.stack(squares), limb_bits, lowest_exponent, ddof)


@kernel(INTS, INTS, INTS, INT)
def _variance_of_small(count: Ints, sums: Ints, squares: Ints, ddof: int) -> tuple[Floats, Bools]:
    """(`variance` of integers in one limb, where it may be wrong): where ``n S2`` fits, ``S1**2`` is not greater."""
    made, large = np.empty(count.size, np.float64), np.empty(count.size, np.bool_)
    for slot in range(count.size):
        n, total, squared = count[slot], sums[slot], squares[slot]
        divisor = n * (n - ddof)
        spread = float(n * squared - total * total) / float(divisor)
        made[slot] = spread if n > 0 and divisor > 0 else np.nan
        large[slot] = float(n) * float(squared) > _FITS
    return made, large


@kernel(INTS, INT_TABLE, INT_TABLE, INT, INT, INT)
def _variance(count: Ints, sums: Ints, squares: Ints, limb_bits: int, lowest_exponent: int, ddof: int) -> Floats:
    half = limb_bits // 2
    extra = (63 - limb_bits) // half + 2
    first = np.empty(2 * sums.shape[0] + extra, np.int64)
    second = np.empty(2 * squares.shape[0] + extra, np.int64)
    spread = np.empty(2 * max(first.size, second.size), np.int64)
    made = np.empty(count.size, np.float64)
    for slot in range(count.size):
        divisor = count[slot] * (count[slot] - ddof)
        if count[slot] <= 0 or divisor <= 0:
            made[slot] = np.nan
            continue
        first_size = _half_limbs(sums, slot, limb_bits, first)
        second_size = _half_limbs(squares, slot, limb_bits, second)
        size = max(2 * first_size - 1, second_size)
        for at in range(size):
            spread[at] = count[slot] * second[at] if at < second_size else 0
        for at in range(first_size):
            spread[2 * at] -= first[at] * first[at]
            for further in range(at + 1, first_size):
                spread[at + further] -= 2 * first[at] * first[further]
        head, exponent, _ = _leading_bits(spread, size, half)
        made[slot] = math.ldexp(float(head) / float(divisor), exponent + 2 * lowest_exponent)
    return made


@inlined
def _half_limbs(limb_sums: Ints, slot: int, limb_bits: int, digits: Ints) -> int:
    """A slot's limb sums as digits of half as many bits, from 0 to 2**half - 1, but for a last one of -1; how many."""
    half = limb_bits // 2
    mask = (1 << half) - 1
    carry = size = 0
    for limb in range(limb_sums.shape[0]):
        carry += limb_sums[limb, slot]
        digits[size], digits[size + 1] = carry & mask, (carry >> half) & mask
        carry >>= limb_bits
        size += 2
    while carry > 0 or carry < -1:
        digits[size] = carry & mask
        carry >>= half
        size += 1
    if carry == -1:
        digits[size] = carry
        return size + 1
    while size > 1 and digits[size - 1] == 0:
        size -= 1
    return size
