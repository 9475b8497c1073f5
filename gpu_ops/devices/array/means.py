"""Means in array form: exact sums over counts, in whole numbers until the one rounding at the end.

`gpu_ops.devices.kernels.MeanKernels` says what each function takes and gives. Long division, a limb at a time, gives
more bits of the quotient than a float64 has, and says whether anything is left below them.
"""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace

from gpu_ops.devices.array.numbers import leading_of, magnitude, nearest
from gpu_ops.devices.kernels import Array

_LONG = 62
"""Bits of a dividend: a remainder, which is below the divisor, and one limb."""

_ENOUGH = 55
"""Bits of a quotient that are to be right: two more than a float64 has."""


def mean_limbs(
    limb_sums: Sequence[Array], counts: Array, limb_bits: int, lowest_exponent: int, places: int = 0
) -> Array:
    """The float64 nearest to sums of limbs over counts and a power of ten, by long division."""
    xp = array_namespace(counts)
    digits, head, negative = magnitude(xp, limb_sums, limb_bits)
    room = _LONG - limb_bits
    more = -(-(_ENOUGH + room + (10**places).bit_length()) // limb_bits)
    digits = [xp.zeros_like(head)] * more + digits
    below = xp.zeros_like(negative)
    for divisor in (counts, *_powers_of_ten(places, room)):
        made = []
        quotient = head // divisor
        left = head - quotient * divisor
        for digit in reversed(digits):
            dividend = (left << limb_bits) | digit
            part = dividend // divisor
            left = dividend - part * divisor
            made.append(part)
        head, digits = quotient, made[::-1]
        below = below | (left != 0)
    significand, exponent = leading_of(xp, digits, head, below, limb_bits)
    return nearest(xp, significand, exponent + (lowest_exponent - more * limb_bits), negative)


def _powers_of_ten(places: int, room: int) -> list[int]:
    """Powers of ten below ``2**room`` that multiply to ``10**places``."""
    most = len(str(1 << room)) - 1
    return [10 ** min(most, places - at) for at in range(0, places, most)]
