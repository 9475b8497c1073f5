"""What aggregates are by definition, in exact numbers: fractions, and decimals of many digits where there is a root."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from tests.support.reference import order

Pair = tuple[Any, Any]
DIGITS = 120


def decimal(exact: Fraction) -> Decimal:
    with localcontext(prec=DIGITS):
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def central(values: Sequence[Fraction], power: int) -> Fraction:
    """The sum of some power of the differences from the mean."""
    mean = sum(values, start=Fraction(0)) / len(values)
    return sum(((value - mean) ** power for value in values), start=Fraction(0))


def skewness(values: Sequence[Fraction], *, sample: bool) -> Decimal | None:
    n = len(values)
    if n < (3 if sample else 1) or len(set(values)) < 2:
        return None
    with localcontext(prec=DIGITS):
        third, second = decimal(central(values, 3)), decimal(central(values, 2))
        if sample:
            return Decimal(n) / ((n - 1) * (n - 2)) * third / (second / (n - 1)).sqrt() ** 3
        return third / n / (second / n).sqrt() ** 3


def kurtosis(values: Sequence[Fraction], *, sample: bool) -> Fraction | None:
    n = len(values)
    if n < (4 if sample else 1) or len(set(values)) < 2:
        return None
    fourth, second = central(values, 4), central(values, 2)
    if not sample:
        return n * fourth / second**2 - 3
    variance = second / (n - 1)
    scale = Fraction(n * (n + 1), (n - 1) * (n - 2) * (n - 3))
    return scale * fourth / variance**2 - Fraction(3 * (n - 1) ** 2, (n - 2) * (n - 3))


def together(pairs: Sequence[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction, Fraction]:
    """Sums of products of the differences from the means: of left with right, left with left, right with right."""
    left, right = (sum(side, start=Fraction(0)) / len(pairs) for side in zip(*pairs, strict=True))
    return (
        sum(((x - left) * (y - right) for x, y in pairs), start=Fraction(0)),
        sum(((x - left) ** 2 for x, _ in pairs), start=Fraction(0)),
        sum(((y - right) ** 2 for _, y in pairs), start=Fraction(0)),
    )


def covariance(pairs: Sequence[tuple[Fraction, Fraction]], *, sample: bool) -> Fraction | None:
    if len(pairs) <= sample:
        return None
    return together(pairs)[0] / (len(pairs) - sample)


def correlation(pairs: Sequence[tuple[Fraction, Fraction]]) -> Decimal | None:
    if not pairs:
        return None
    product, left, right = together(pairs)
    if not left or not right:
        return None
    with localcontext(prec=DIGITS):
        return decimal(product) / decimal(left * right).sqrt()


def slope(pairs: Sequence[tuple[Fraction, Fraction]]) -> Fraction | None:
    """Of y, the first of each pair, by x, the second."""
    if not pairs or not together(pairs)[2]:
        return None
    product, _, spread = together(pairs)
    return product / spread


def intercept(pairs: Sequence[tuple[Fraction, Fraction]]) -> Fraction | None:
    steep = slope(pairs)
    if steep is None:
        return None
    return (sum(y for y, _ in pairs) - steep * sum(x for _, x in pairs)) / len(pairs)


def weighted_mean(pairs: Sequence[tuple[Fraction, Fraction]]) -> Fraction | None:
    weights = sum((weight for _, weight in pairs), start=Fraction(0))
    return sum((x * weight for x, weight in pairs), start=Fraction(0)) / weights if weights else None


def product(values: Sequence[Fraction]) -> Fraction | None:
    return math.prod(values, start=Fraction(1)) if values else None


def geometric_mean(values: Sequence[Fraction]) -> Decimal | None:
    if not values or min(values) < 0:
        return None
    with localcontext(prec=DIGITS):
        if 0 in values:
            return Decimal(0)
        return (sum((decimal(value).ln() for value in values), start=Decimal(0)) / len(values)).exp()


def close(given: float | None, exact: Fraction | Decimal | None, ulps: float) -> bool:
    """Whether a float is as near to the exact number as so many times 2**-53 of it."""
    if given is None or exact is None:
        return given is None and exact is None
    wanted = Fraction(exact)
    if not wanted:
        return given == 0
    if not math.isfinite(given):
        return False
    return abs(Fraction(given) - wanted) <= abs(wanted) * Fraction(ulps) / 2**53 + Fraction(1, 2**1074)


# Choices: an event is (start, value, key)

Triple = tuple[int, Any, Any]


def nulls_first(value: Any) -> Any:
    return (False, (False, 0)) if value is None else (True, order(value))


def first(events: Sequence[Triple]) -> Any:
    there = [event for event in events if event[1] is not None]
    return min(there, key=lambda e: (e[0], nulls_first(e[2]), order(e[1])))[1] if there else None


def last(events: Sequence[Triple]) -> Any:
    there = [event for event in events if event[1] is not None]
    return max(there, key=lambda e: (e[0], nulls_first(e[2]), order(e[1])))[1] if there else None


def arg_min(events: Sequence[Triple]) -> Any:
    there = [event for event in events if event[1] is not None and event[2] is not None]
    return min(there, key=lambda e: (order(e[2]), e[0], order(e[1])))[1] if there else None


def arg_max(events: Sequence[Triple]) -> Any:
    there = [event for event in events if event[1] is not None and event[2] is not None]
    if not there:
        return None
    greatest = max(order(event[2]) for event in there)
    return min((e for e in there if order(e[2]) == greatest), key=lambda e: (e[0], order(e[1])))[1]


CHOICES: dict[str, Callable[[Sequence[Triple]], Any]] = {
    "first": first,
    "last": last,
    "arg_min": arg_min,
    "arg_max": arg_max,
}
