"""The ranges of whole numbers in expressions, and the rows whose numbers do not fit their type.

Nothing wraps around: a result of ``+ - * // **``, of ``abs`` and unary minus, of a sum of columns or of a cast is exact
or an error. That holds for integers of each width, and for times and durations, which are int64 counts of ticks.

A `Guard` of an expression decides in two steps. Interval arithmetic carries the ranges of the columns (their types', or
their least and greatest values) through the tree: if every result fits its type, nothing is left to do. Else `wrong` is
an expression that finds the rows that do not fit. It skips nulls, and rows that a branch of ``when``, or the left side
of ``&`` and ``|``, leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.plan.expression_text import text_of
from gpu_ops.plan.terms import HIGHEST_EXPONENT, INT64, SCALES, Range, Term, is_float, renamed, truncates, unnamed

Known = Callable[[str], Range | None]
"""From the name of a column to the range of its values; None if it holds no whole numbers."""

OPERATIONS = {
    "__add__",
    "__sub__",
    "__mul__",
    "__truediv__",
    "__floordiv__",
    "__pow__",
    "__neg__",
    "abs",
    "cast",
    "sum_horizontal",
    "dt.timestamp",
    "dt.total_milliseconds",
    "dt.total_microseconds",
    "dt.total_nanoseconds",
    "dt.offset_by",
    "list.sum",
}
"""The functions of Narwhals whose whole results may not fit their type."""

NAMES = OPERATIONS | {f"__r{name[2:]}" for name in OPERATIONS if name.startswith("__")}
"""Their names in expressions: ``7 - v`` has ``__rsub__``."""

CONDITION = Range(0, 1)
_PARTS = {
    "dt.month": Range(1, 12),
    "dt.day": Range(1, 31),
    "dt.hour": Range(0, 23),
    "dt.minute": Range(0, 59),
    "dt.second": Range(0, 59),
    "dt.millisecond": Range(0, 999),
    "dt.microsecond": Range(0, 999_999),
    "dt.nanosecond": Range(0, 999_999_999),
    "dt.weekday": Range(1, 7),
    "dt.ordinal_day": Range(1, 366),
}
_SAME = {"alias", "round", "floor", "ceil", "name.keep", "name.map", "name.prefix", "name.suffix"}
_CHOICES = {"coalesce", "fill_null", "max_horizontal", "min_horizontal"}
_FACTORS = {"dt.total_milliseconds": "ms", "dt.total_microseconds": "us", "dt.total_nanoseconds": "ns"}


@dataclass(frozen=True, eq=False)
class Guard:
    """An expression in which a whole number may not fit its type.

    Attributes:
        expression: The expression as it was written.
        schema: The payload that it may read.
        values: Its terms, by the names of its columns.
        said: The names that errors show for columns that the user has not named, and what the user has written for
            a column, behind ``=`` and its name, or for a condition, behind ``=`` alone.

    Examples:
        >>> import polars as pl
        >>> from gpu_ops.plan.terms import terms
        >>> frame = nw.from_native(pl.DataFrame({"v": [1]}))
        >>> twice = nw.col("v") * 2
        >>> guard = Guard(twice, pa.schema([("v", pa.int64())]), terms(twice, frame))
        >>> guard.may_not_fit(lambda name: Range(0, 9)), guard.may_not_fit(lambda name: INT64)
        (False, True)
    """

    expression: nw.Expr
    schema: pa.Schema
    values: dict[str, Term]
    said: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        own = [self.said[key] for key in (*(f"={name}" for name in self.values), "=") if key in self.said]
        return own[0] if own else text_of(renamed(unnamed(self.expression), self.said))

    def called(self, name: str) -> str:
        """The name that an error shows for a column."""
        return self.said.get(name, name)

    @property
    def tolerant(self) -> list[nw.Expr]:
        """The expression in a form that fails for no row: a number that does not fit is null or wraps around."""
        return [term.value.alias(name) for name, term in self.values.items()]

    def may_not_fit(self, known: Known) -> bool:
        """Whether any number may not fit its type, by the ranges of the columns."""
        # Numbers of narrower ranges fit too: mostly the next step has those of the last one.
        fits, now = self._fits, {name: known(name) for name in self._columns}
        if fits and all(each == fits[name] or _is_within(each, fits[name]) for name, each in now.items()):
            return False
        ranges = IntegerRanges(now.__getitem__)
        if any(ranges.overflows(term) for value in self.values.values() for term in value.walk()):
            return True
        fits.update(now)
        return False

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        terms = (term for value in self.values.values() for term in value.walk())
        return tuple(dict.fromkeys(term.options["name"] for term in terms if term.name == "col" and term.holds))

    @cached_property
    def _fits(self) -> dict[str, Range | None]:
        """Ranges of columns for which all numbers fit."""
        return {}

    def wrong(self, known: Known, tests: Tests) -> nw.Expr:
        """A condition: whether a row has a number that does not fit; null counts as no."""
        ranges = IntegerRanges(known)
        found = _either(_wrong(value, ranges, tests) for value in self.values.values())
        return nw.lit(False) if found is None else found


def _is_within(one: Range | None, other: Range | None) -> bool:
    return one is not None and other is not None and one.within(other)


def by_type(name: str) -> Range | None:
    """The range of a column without a look at its values: the years of lifetimes."""
    return Range(MIN_TIME, MAX_TIME) if name in {"start", "end"} else None


# Ranges


class IntegerRanges:
    """The ranges of terms, if every number that does not fit is an error.

    Args:
        known: The ranges of columns.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._found: dict[Term, Range | None] = {}

    def of(self, term: Term) -> Range | None:
        """The range of a term; None if it is no whole number."""
        if term not in self._found:
            own = term.holds
            if own is None:
                # Null never counts, so any number may stand for it.
                found = Range(0, 0) if term.name == "lit" and term.options["value"] is None else None
            elif term.literal is not None:
                found = Range(term.literal, term.literal)
            elif term.name == "col":
                found = self._known(term.options["name"]) or own
            else:
                exact = self.exact(term)
                found = own if exact is None else exact.clipped(own)
            self._found[term] = found
        return self._found[term]

    def overflows(self, term: Term) -> bool:
        """Whether a term's own operation may give a number that does not fit."""
        own = term.holds
        if own is None or term.name not in OPERATIONS or own == CONDITION:
            return False
        if term.name == "cast" and term.terms[0].holds is None and not is_float(term.terms[0].dtype):
            return False  # of text and decimals, which stop by themselves
        found = self.exact(term)
        return found is None or not found.within(own)

    def exact(self, term: Term) -> Range | None:
        """The exact range of a term, whatever its type holds; None if it is unknown."""
        name, given = term.name, [self._in_scale(each, term) for each in term.terms]
        if name in _PARTS:
            return _PARTS[name]
        if name == "when_then":
            given = given[1:]
            return _hull(given) if None not in given else None
        if name == "dt.offset_by" or not given or None in given:
            return None
        ranges = [each for each in given if each is not None]
        if name in _SAME or name == "cast" or name.startswith("dt.t"):
            return ranges[0]
        if name in _CHOICES:
            return _hull(given)
        if name == "clip" and all(each.literal is not None for each in term.terms[1:]):
            return ranges[0].clipped(Range(ranges[1].low, ranges[2].high))
        return _ARITHMETIC[name](*ranges) if name in _ARITHMETIC else None

    def _in_scale(self, term: Term, above: Term) -> Range | None:
        """The range of a function's operand, in the ticks of the function's result."""
        found, mine, theirs = self.of(term), term.scale, _scale(above)
        if found is None or mine is None or theirs is None or mine == theirs:
            return found
        return Range(found.low * mine // theirs, -(-found.high * mine // theirs))


def _scale(term: Term) -> int | None:
    """The nanoseconds of one tick of a term, also for functions that count ticks as plain numbers."""
    unit = term.options.get("time_unit") if term.name == "dt.timestamp" else _FACTORS.get(term.name)
    return term.scale if unit is None else SCALES[unit]


def _hull(ranges: Iterable[Range | None]) -> Range:
    lows, highs = zip(*(each for each in ranges if each is not None), strict=True)
    return Range(min(lows), max(highs))


def _products(one: Range, other: Range) -> Range:
    made = [mine * theirs for mine in one for theirs in other]
    return Range(min(made), max(made))


def _absolute(one: Range) -> Range:
    return Range(max(0, one.low, -one.high), max(-one.low, one.high))


def _floor_divided(one: Range, other: Range) -> Range:
    most = _absolute(one).high
    if one.low >= 0 and other.low >= 0:
        return Range(0, most)
    # Only division by -1 makes a result that is greater than the type's greatest number.
    return Range(-most, most) if other.low <= -1 <= other.high else Range(-most, max(one.high, most - 1))


def _modulo(_: Range, other: Range) -> Range:
    return Range(min(0, other.low + 1), max(0, other.high - 1))


def _divided(one: Range, other: Range) -> Range | None:
    most = _absolute(one).high
    return None if other.low <= 0 <= other.high else Range(-most, most)


def _power(base: Range, exponent: Range) -> Range | None:
    most = _absolute(base).high
    if exponent.low < 0:
        return None
    highest = most if most < 2 else most ** min(exponent.high, 256)
    return Range(0 if base.low >= 0 else -highest, max(highest, 1))


_ARITHMETIC: dict[str, Callable[..., Range | None]] = {
    "__add__": lambda one, other: Range(one.low + other.low, one.high + other.high),
    "__sub__": lambda one, other: Range(one.low - other.high, one.high - other.low),
    "__mul__": _products,
    "__neg__": lambda one: Range(-one.high, -one.low),
    "abs": _absolute,
    "__floordiv__": _floor_divided,
    "__mod__": _modulo,
    "__truediv__": _divided,
    "__pow__": _power,
    "clip": lambda *given: _hull(given),
    "clip_lower": lambda one, other: Range(max(one.low, other.low), max(one.high, other.high)),
    "clip_upper": lambda one, other: Range(min(one.low, other.low), min(one.high, other.high)),
    "sum_horizontal": lambda *given: Range(
        sum(min(each.low, 0) for each in given), sum(max(each.high, 0) for each in given)
    ),
}


# Rows that do not fit


def _wrong(term: Term, ranges: IntegerRanges, tests: Tests) -> nw.Expr | None:
    """A condition: whether a number in a term or below it does not fit; None if all numbers fit."""
    below = [_wrong(each, ranges, tests) for each in term.terms]
    if not any(each is not None for each in below):
        found = None
    elif term.name == "when_then":
        condition, value, *otherwise = below
        found = condition
        if value is not None or any(each is not None for each in otherwise):
            rest = otherwise[0] if otherwise else None
            branches = nw.when(term.terms[0].value).then(_or_no(value)).otherwise(_or_no(rest))
            found = _either([condition, branches])
    elif term.name in _GUARDS:
        found = _left_to_right(term, below)
    else:
        found = _either(below)
    return _either([found, tests.overflows(term)]) if ranges.overflows(term) else found


def _left_to_right(term: Term, below: list[nw.Expr | None]) -> nw.Expr | None:
    """For ``&``, ``|``, coalesce and the like: a later part counts only where the earlier ones have not decided."""
    undecided = _GUARDS[term.name]
    if term.name in {"__and__", "__or__"} and term.dtype != nw.Boolean:
        return _either(below)
    found: list[nw.Expr | None] = []
    looks: nw.Expr | None = None
    for each, wrong in zip(term.terms, below, strict=True):
        if wrong is not None:
            no = nw.lit(False)
            found.append(wrong if looks is None else nw.when(looks).then(wrong).otherwise(no))
        open_still = undecided(each.value)
        looks = open_still if looks is None else looks & open_still
    return _either(found)


_GUARDS: dict[str, Callable[[nw.Expr], nw.Expr]] = {
    "__and__": lambda value: value.fill_null(True),
    "all_horizontal": lambda value: value.fill_null(True),
    "__or__": lambda value: ~value.fill_null(False),
    "any_horizontal": lambda value: ~value.fill_null(False),
    "coalesce": lambda value: value.is_null(),
    "fill_null": lambda value: value.is_null(),
}


def _either(tests: Iterable[nw.Expr | None]) -> nw.Expr | None:
    """Whether any condition holds; each is evaluated only where none before it holds, since it might fail there."""
    found = [each for each in tests if each is not None]
    if not found:
        return None
    *rest, made = found
    for each in reversed(rest):
        made = nw.when(each).then(nw.lit(True)).otherwise(made)
    return made


def _or_no(test: nw.Expr | None) -> nw.Expr:
    return nw.lit(False) if test is None else test


def _outside(value: nw.Expr, fits: Range, own: Range) -> nw.Expr:
    """Whether a number is outside a range; only the bounds that it can pass are compared."""
    tests = []
    if fits.high < own.high:
        tests.append(value > fits.high)
    if fits.low > own.low:
        tests.append(value < fits.low)
    return _or_no(tests[0] if len(tests) == 1 else tests[0] | tests[1] if tests else None)


class Tests:
    """Conditions for results that do not fit, where such results wrap around: they are compared with float64 results.

    A wrapped result is off by a multiple of two to the power of its type's width. The float64 result is off by far
    less, so the two differ clearly.
    """

    def overflows(self, term: Term) -> nw.Expr:
        """A condition: whether the result of a term's own operation does not fit."""
        own, given = term.holds, term.terms
        assert own is not None  # noqa: S101  (checked by the caller)
        if term.name == "cast" and given[0].holds is None:
            return ~truncates(given[0].value, own)
        fits = _fitting(term, own)
        if fits is not None:
            at, allowed = fits
            return _outside(given[at].number, allowed, given[at].holds or INT64)
        if term.name == "__floordiv__":
            return (given[0].number == own.low) & (given[1].number == -1)
        return self.compound(term, own)

    def compound(self, term: Term, own: Range) -> nw.Expr:
        """A condition: whether the result of an operation on two or more values does not fit."""
        near = _near(term)
        outside = (near - term.number.cast(nw.Float64)).abs() > float((own.high - own.low + 1) // 4)
        if term.name == "__truediv__" or any(each.holds is None for each in term.terms):
            return ~((near >= float(own.low)) & (near < float(own.high + 1)))
        if term.name == "__pow__":
            exponent = term.terms[1].number
            return (exponent < 0) | (exponent > HIGHEST_EXPONENT) | outside
        return outside


class DecimalTests(Tests):
    """The same where results fail instead of wrapping: small types are computed in int64, int64 in decimals."""

    def overflows(self, term: Term) -> nw.Expr:
        """A condition: whether the result of a term's own operation does not fit; not for times, which fail anyway."""
        return _or_no(None) if term.scale is not None else super().overflows(term)

    def compound(self, term: Term, own: Range) -> nw.Expr:
        """A condition: whether the result of an operation on two values does not fit.

        Raises:
            NotImplementedError: There is no such test.
        """
        whole = [each for each in term.terms if each.scale is None and each.holds is not None]
        if term.name not in _EXACTLY or len(whole) != 2 or not own.within(INT64):
            raise NotImplementedError(f"there is no test that {term.name} fits")
        small = all((each.holds or INT64).within(Range(-(1 << 31), (1 << 31) - 1)) for each in whole)
        wide: Any = nw.Int64 if small else nw.Decimal(20, 0)
        one, other = (each.value.cast(wide) for each in whole)
        made = _EXACTLY[term.name](one, other)
        low, high = (own.low, own.high) if small else (Decimal(own.low), Decimal(own.high))
        return (made > nw.lit(high)) | (made < nw.lit(low))


_EXACTLY: dict[str, Callable[[nw.Expr, nw.Expr], nw.Expr]] = {
    "__add__": lambda one, other: one + other,
    "__sub__": lambda one, other: one - other,
    "__mul__": lambda one, other: one * other,
}


def _fitting(term: Term, own: Range) -> tuple[int, Range] | None:
    """For an operation on one value: the place of that operand, and the range in which the result fits."""
    name, given = term.name, term.terms
    low, high = own
    if len(given) == 1 or name == "dt.timestamp":
        mine, theirs = given[0].scale, _scale(term)
        factor = mine // theirs if mine is not None and theirs is not None and mine > theirs else 1
        if name in {"abs", "__neg__"}:
            return 0, Range(-high if name == "abs" or low else 0, high if name == "abs" or low else 0)
        return (0, Range(-(-low // factor), high // factor)) if name != "list.sum" else None
    literals = [each.literal for each in given]
    plain = all(each.scale is None and each.holds is not None for each in given)
    if len(given) != 2 or not plain or (literals[0] is None) == (literals[1] is None):
        return None
    at = 0 if literals[0] is None else 1
    number = literals[1 - at]
    assert number is not None  # noqa: S101  (one of the two is a literal)
    if name == "__add__":
        return at, Range(low - number, high - number)
    if name == "__sub__":
        return at, Range(low + number, high + number) if at == 0 else Range(number - high, number - low)
    if name == "__mul__" and number > 0:
        return at, Range(-(-low // number), high // number)
    if name == "__mul__" and number < 0:
        return at, Range(-(high // -number), -low // -number)
    return None


def _near(term: Term) -> nw.Expr:
    """A float64 near the result of an operation; null for nulls."""
    name, given = term.name, term.terms
    if name == "list.sum":
        return given[0].value.cast(nw.List(nw.Float64)).list.sum()
    floats = []
    for each in given:
        number = (each.number if each.holds is not None else each.value).cast(nw.Float64)
        factor = each.scale / term.scale if each.scale is not None and term.scale is not None else 1
        floats.append(number if factor == 1 else number * factor)
    if name == "dt.offset_by":
        return floats[0]
    if name == "sum_horizontal":
        return nw.sum_horizontal(*floats)
    made: nw.Expr = _FLOATS[name](*floats)
    return made


_FLOATS: dict[str, Callable[..., nw.Expr]] = {
    **_EXACTLY,
    "__truediv__": lambda one, other: one / other,
    "__pow__": lambda one, other: one**other,
}
