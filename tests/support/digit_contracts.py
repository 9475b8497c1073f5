"""What the kernels of exact numbers of any length must give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.kernel_contracts import (
    Contract,
    int_or_unsigned,
    ints,
    limb_sums,
    nearest,
    total,
)

BITS = 26
LOGARITHMS = ("exp_limbs", "log_limbs")


def in_digits(values: Sequence[int], least: int = 1) -> tuple[Any, ...]:
    """The numbers as digits, as few as all of them need."""
    count = least
    while not all(-1 << BITS * count <= value < 1 << BITS * count for value in values):
        count += 1
    low = [ints([(value >> BITS * at) & ((1 << BITS) - 1) for value in values]) for at in range(count - 1)]
    return *low, ints([value >> BITS * (count - 1) for value in values])


def numbers(digits: Sequence[Any]) -> list[int]:
    """What digits stand for."""
    return [sum(int(digit) << BITS * at for at, digit in enumerate(each)) for each in zip(*digits, strict=True)]


def rounded(digits: Sequence[Any]) -> tuple[Any, Any]:
    fractions, exponents = [], []
    for number in numbers(digits):
        shift = max(0, abs(number).bit_length() - 900)
        fraction, exponent = math.frexp(float(Fraction(number, 1 << shift)))
        fractions.append(fraction)
        exponents.append(exponent + shift if fraction else 0)
    return np.array(fractions), ints(exponents)


def quotients(above: Sequence[Any], below: Sequence[Any], exponent: int) -> Any:
    pairs = zip(numbers(above), numbers(below), strict=True)
    return np.array([nearest(Fraction(up, down) * Fraction(2) ** exponent) if down else 0.0 for up, down in pairs])


def of_limbs(limb_sums: Sequence[Any], limb_bits: int) -> tuple[Any, ...]:
    return in_digits([total(tuple(limb_sums), limb_bits, at) for at in range(len(limb_sums[0]))])


def times_power(values: Any, exponent: Any) -> Any:
    made = []
    for value, power in zip(values, exponent, strict=True):
        exact = Fraction(float(value)) * Fraction(2) ** int(power)
        try:
            made.append(float(exact) if exact else float(value) * 0.0)
        except OverflowError:
            made.append(math.copysign(math.inf, value))
    return np.array(made, np.float64)


SIZES = st.integers(-9, 9) | st.integers(-(1 << 26), 1 << 26) | st.integers(-(1 << 300), 1 << 300)


@st.composite
def some_numbers(draw: st.DrawFn, lists: int = 1) -> tuple[list[int], ...]:
    size = draw(st.integers(1, 5))
    return tuple(draw(st.lists(SIZES, min_size=size, max_size=size)) for _ in range(lists))


@st.composite
def sums_of_digits(draw: st.DrawFn) -> tuple[Any, ...]:
    size, count = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    digit = st.integers(-3, 3) | st.integers(-(1 << 62) + 1, (1 << 62) - 1)
    return tuple(ints(draw(st.lists(digit, min_size=size, max_size=size))) for _ in range(count))


@st.composite
def terms(draw: st.DrawFn) -> tuple[tuple[Any, ...], list[int]]:
    given = draw(some_numbers(draw(st.integers(1, 3))))
    factors = draw(st.lists(st.integers(-12, 12), min_size=len(given), max_size=len(given)))
    return tuple(map(in_digits, given)), factors


@st.composite
def fractions(draw: st.DrawFn) -> tuple[tuple[Any, ...], tuple[Any, ...], int]:
    """(numerators, denominators, exponent): any, and such that the quotient is near the middle between two floats."""
    above, below = draw(some_numbers(2))
    if draw(st.booleans()):
        middle = st.integers(1 << 52, (1 << 53) - 1).map(lambda head: 2 * head + 1)
        above = [number * draw(middle) + draw(st.integers(-1, 1)) for number in below]
    exponent = draw(st.sampled_from([0, -1074, -1130]) | st.integers(-1500, 900))
    return in_digits(above), in_digits(below), exponent


CONTRACTS = {
    "digits_decimal": Contract(
        st.lists(st.integers(-9, 9) | st.integers(-(10**38), 10**38), min_size=1, max_size=4).map(
            lambda values: (
                np.array([value & ((1 << 64) - 1) for value in values], np.uint64).view(np.int64),
                ints([value >> 64 for value in values]),
            )
        ),
        lambda low, high: in_digits(
            [(int(up) << 64) | (int(down) & ((1 << 64) - 1)) for down, up in zip(low, high, strict=True)], 5
        ),
    ),
    "digits_int": Contract(
        int_or_unsigned().map(lambda values: (values,)), lambda values: in_digits([int(value) for value in values])
    ),
    "digits_limbs": Contract(
        limb_sums().map(lambda drawn: drawn[:2]),
        of_limbs,
    ),
    "divide_digits": Contract(fractions(), quotients),
    "multiply_digits": Contract(
        some_numbers(2).map(lambda pair: tuple(map(in_digits, pair))),
        lambda left, right: in_digits([x * y for x, y in zip(numbers(left), numbers(right), strict=True)]),
    ),
    "round_digits": Contract(sums_of_digits().map(lambda sums: (sums,)), rounded),
    "scaled": Contract(
        st.lists(st.tuples(st.floats(-2, 2), st.integers(-3000, 3000)), min_size=1, max_size=5).map(
            lambda pairs: (np.array([value for value, _ in pairs]), ints([power for _, power in pairs]))
        ),
        times_power,
    ),
    "sum_digits": Contract(
        terms(),
        lambda digits, factors: in_digits(
            [
                sum(number * factor for number, factor in zip(each, factors, strict=True))
                for each in zip(*map(numbers, digits), strict=True)
            ]
        ),
    ),
}
