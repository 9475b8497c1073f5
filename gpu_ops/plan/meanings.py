"""Which functions of Narwhals mean the same everywhere, and which are the backend's own.

`docs/expressions.md` shows the table. A function that no row is about is the backend's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import narwhals as nw

from gpu_ops.plan.terms import Term, is_float


@dataclass(frozen=True)
class Meaning:
    """A row of the table.

    Attributes:
        functions: Narwhals' names of the functions that it is about.
        shown: What the page calls them.
        why: What they mean; or how backends differ.
        same: Whether they mean the same everywhere.
        remedy: What to write where that matters.
        applies: Whether a term of one of the functions is meant; by default each is.
    """

    functions: str
    shown: str
    why: str
    same: bool = True
    remedy: str = ""
    applies: Callable[[Term], bool] = lambda _: True


def _is_decimal(dtype: Any) -> bool:
    return dtype is not None and dtype == nw.Decimal


def _may_be_nan(term: Term) -> bool:
    """Whether a float may be NaN."""
    if not is_float(term.dtype):
        return False
    if term.name == "lit":
        return isinstance(term.options["value"], float) and math.isnan(term.options["value"])
    if term.name == "fill_nan":
        value = term.options.get("value")
        return isinstance(value, float) and math.isnan(value)
    if term.name == "cast":
        return _may_be_nan(term.terms[0]) or not (term.terms[0].holds is not None or _is_decimal(term.terms[0].dtype))
    if term.name in {"alias", "abs", "__neg__"}:
        return _may_be_nan(term.terms[0])
    return True


def _any_nan(term: Term) -> bool:
    return any(_may_be_nan(each) for each in term.terms)


def _of_floats(term: Term) -> bool:
    return any(is_float(each.dtype) for each in (term, *term.terms))


def _of_times(term: Term) -> bool:
    return any(each.scale is not None for each in (term, *term.terms))


def _of_decimals(term: Term) -> bool:
    return sum(_is_decimal(each.dtype) for each in term.terms) > 1 or (
        term.name == "__truediv__" and _is_decimal(term.dtype)
    )


def _by_a_float(term: Term) -> bool:
    return _of_times(term) and any(is_float(each.dtype) for each in term.terms)


def _of_dates(term: Term) -> bool:
    return term.dtype == nw.Date and any(isinstance(each.dtype, nw.Duration) for each in term.terms)


def _cast(given: Callable[[Any], bool], made: Callable[[Any], bool]) -> Callable[[Term], bool]:
    return lambda term: given(term.terms[0].dtype) and made(term.dtype)


def _is_text(dtype: Any) -> bool:
    return bool(dtype == nw.String)


def _is_time(dtype: Any) -> bool:
    return isinstance(dtype, nw.Datetime | nw.Duration)


def _is_number(dtype: Any) -> bool:
    return dtype is not None and (dtype.is_numeric() or dtype == nw.Boolean)


def _is_plain(dtype: Any) -> bool:
    return _is_number(dtype) or _is_text(dtype) or bool(dtype == nw.Date)


def _option(name: str, *wanted: object) -> Callable[[Term], bool]:
    return lambda term: term.options.get(name) in wanted


_LITERAL = _option("literal", True)
_ONE_UNIT = re.compile(r"1(us|ms|s|m|h|d|mo|q|y)")
_FIXED = re.compile(r"-?\d+(us|ms|s|m|h|d)")
_FILL = "`fill_nan(None)` before"

TABLE = (
    Meaning("col lit alias name.keep name.prefix name.suffix", "`col`, `lit`, `alias`, `name`", "The value as it is"),
    Meaning(
        "__mul__ __truediv__",
        "`* /` of durations by floats",
        "A half of a tick is rounded or dropped",
        same=False,
        remedy="multiply by a whole number",
        applies=_by_a_float,
    ),
    Meaning(
        "__truediv__",
        "`/` of durations",
        "The rest of a tick is rounded or dropped",
        same=False,
        remedy="`dt.total_microseconds()` before",
        applies=_of_times,
    ),
    Meaning(
        "__add__ __sub__",
        "dates `+ -` durations",
        "Parts of days are dropped at different times",
        same=False,
        remedy="`cast(g.Datetime)` before",
        applies=_of_dates,
    ),
    Meaning(
        "__mul__ __truediv__",
        "`* /` of two decimals",
        "Each backend has a scale of its own for the result, and a rounding",
        same=False,
        remedy="`cast(g.Float64)` before",
        applies=_of_decimals,
    ),
    Meaning(
        "__add__ __sub__ __mul__ __neg__ abs",
        "`+ - *`, unary minus, `abs`",
        ("Whole numbers, times and durations are exact or an error; floats are IEEE 754's; decimals are exact"),
    ),
    Meaning("__truediv__", "`/`", "A float, as IEEE 754 divides: by zero an infinity, or NaN for 0 / 0"),
    Meaning(
        "__floordiv__ __mod__",
        "`// %` of floats",
        "NaN, infinities, zero divisors and the sign of zero differ",
        same=False,
        remedy="cast to a whole number",
        applies=_of_floats,
    ),
    Meaning("__floordiv__ __mod__", "`// %`", "Rounded down, as in Python; null by zero"),
    Meaning(
        "__pow__",
        "`**` of floats",
        "The last bits differ; so do powers of -0.0 and -inf",
        same=False,
        remedy="`x * x` for a square",
        applies=_of_floats,
    ),
    Meaning("__pow__", "`**` of whole numbers", "Exact or an error; a negative exponent is one too"),
    Meaning("sqrt", "`sqrt`", "IEEE 754's; NaN of a negative number"),
    Meaning(
        "exp log sin cos",
        "`exp`, `log`, `sin`, `cos`",
        "The last bits differ",
        same=False,
        remedy="nothing that is the same to the bit",
    ),
    Meaning(
        "round",
        "`round` of floats",
        "Halves go to even or away from zero, and are found in different ways",
        same=False,
        remedy="`floor(x + 0.5)`",
        applies=_of_floats,
    ),
    Meaning(
        "round floor ceil",
        "`floor`, `ceil`; `round` of whole numbers",
        "The type stays as it is, and so do NaN, the infinities and -0.0",
    ),
    Meaning(
        "__gt__ __ge__ __lt__ __le__ __eq__ __ne__ is_between is_in",
        "comparisons, `is_between`, `is_in` of floats that may be NaN",
        "NaN is the greatest and equal to itself in Polars and Spark, and neither on a GPU",
        same=False,
        remedy=_FILL,
        applies=_any_nan,
    ),
    Meaning(
        "__gt__ __ge__ __lt__ __le__ __eq__ __ne__ is_between is_in",
        "comparisons, `is_between`, `is_in`",
        "Null with anything is null; -0.0 equals 0.0; text is ordered by the bytes of its UTF-8",
    ),
    Meaning(
        "__and__ __or__ __invert__ __xor__ all_horizontal any_horizontal",
        "`&`, `|`, `~`, `^`, `all_horizontal`, `any_horizontal`",
        "SQL's three values",
    ),
    Meaning("is_null is_nan is_finite", "`is_null`, `is_nan`, `is_finite`", "Null is neither NaN nor finite"),
    Meaning(
        "fill_null fill_nan coalesce when_then",
        "`fill_null`, `fill_nan`, `coalesce`, `when`",
        "The first value that is there; the branch whose condition holds, null counts as no",
    ),
    Meaning(
        "clip clip_lower clip_upper max_horizontal min_horizontal",
        "`clip`, `max_horizontal`, `min_horizontal` of floats",
        "NaN and the sign of zero differ",
        same=False,
        remedy="`when(x > y).then(x).otherwise(y)` without NaN",
        applies=_of_floats,
    ),
    Meaning(
        "clip clip_lower clip_upper max_horizontal min_horizontal",
        "`clip`, `max_horizontal`, `min_horizontal`",
        "Null is skipped by the last two",
    ),
    Meaning(
        "sum_horizontal mean_horizontal",
        "`sum_horizontal`, `mean_horizontal` of more than two floats",
        "Floats are added in different orders",
        same=False,
        remedy="`a + b + c`",
        applies=lambda term: len(term.terms) > 2 and (_of_floats(term) or term.name == "mean_horizontal"),
    ),
    Meaning(
        "sum_horizontal mean_horizontal",
        "`sum_horizontal`, `mean_horizontal`",
        "Null is skipped; whole sums are exact or an error",
    ),
    Meaning(
        "cast",
        "casts of floats to text",
        "1e+300 and 1.0E300, inf and Infinity",
        same=False,
        remedy="keep the number",
        applies=_cast(is_float, _is_text),
    ),
    Meaning(
        "cast",
        "casts of times to text",
        "Zones and fractions are written differently",
        same=False,
        remedy="the parts: `dt.year()` and so on",
        applies=_cast(_is_time, _is_text),
    ),
    Meaning(
        "cast",
        "casts of text",
        "What is a number, a date or a condition differs, and so does what becomes of the rest",
        same=False,
        remedy="the type in the source",
        applies=_cast(_is_text, lambda dtype: not _is_text(dtype)),
    ),
    Meaning(
        "cast",
        "casts to decimals",
        "Halves of the last digit are rounded differently",
        same=False,
        remedy="whole numbers as they are",
        applies=lambda term: _is_decimal(term.dtype) and (_of_floats(term) or _is_decimal(term.terms[0].dtype)),
    ),
    Meaning(
        "cast",
        "casts between numbers, and of whole numbers, dates and conditions to text",
        "Floats lose their fraction; what does not fit is an error",
        applies=lambda term: all(
            _is_number(each) or _is_text(each) or each == nw.Date for each in (term.dtype, term.terms[0].dtype)
        ),
    ),
    Meaning(
        "cast",
        "casts between times and whole numbers, times and dates",
        "Ticks of the type's unit since 1970; what does not fit is an error",
        applies=lambda term: _is_time(term.dtype) or _is_time(term.terms[0].dtype),
    ),
    Meaning("cast", "casts of categories to text", "The text", applies=lambda term: _is_text(term.dtype)),
    Meaning(
        "str.to_uppercase str.to_lowercase str.to_titlecase",
        "`str.to_uppercase`, `str.to_lowercase`, `str.to_titlecase`",
        "Each follows a version of Unicode of its own, and İ, ß, ǆ or a final Σ some rules of theirs",
        same=False,
        remedy="the case in the source",
    ),
    Meaning(
        (
            "str.len_chars str.slice str.starts_with str.ends_with concat_str str.zfill str.pad_start "
            "str.pad_end str.split"
        ),
        (
            "`str.len_chars`, `str.slice`, `str.head`, `str.tail`, `str.starts_with`, `str.ends_with`, "
            "`concat_str`, `str.zfill`, `str.pad_start`, `str.pad_end`, `str.split`"
        ),
        "Characters are Unicode's code points, not bytes",
    ),
    Meaning(
        "str.contains str.replace str.replace_all",
        "`str.contains`, `str.replace`, `str.replace_all` with `literal=True`",
        "The text as it is",
        applies=_LITERAL,
    ),
    Meaning(
        "str.contains str.replace str.replace_all",
        "`str.contains`, `str.replace`, `str.replace_all` by regular expressions",
        "Rust, Java and cuDF have dialects of their own: what `\\w` holds, what `$0` means",
        same=False,
        remedy="`literal=True`",
    ),
    Meaning(
        "str.strip_chars str.strip_chars_start str.strip_chars_end",
        "`str.strip_chars`, … without characters",
        "What is white space differs outside of ASCII",
        same=False,
        remedy='characters: `strip_chars(" \\t")`',
        applies=_option("characters", None),
    ),
    Meaning(
        "str.strip_chars str.strip_chars_start str.strip_chars_end",
        "`str.strip_chars`, … of given characters",
        "The text without them at its ends",
    ),
    Meaning(
        "str.to_datetime str.to_date str.to_time",
        "`str.to_datetime`, `str.to_date`, `str.to_time`",
        "What is a time, and what becomes of the rest, differs",
        same=False,
        remedy="the type in the source",
    ),
    Meaning(
        (
            "dt.year dt.month dt.day dt.hour dt.minute dt.second dt.millisecond dt.microsecond dt.nanosecond "
            "dt.weekday dt.ordinal_day dt.date"
        ),
        "`dt.year` … `dt.nanosecond`, `dt.weekday`, `dt.ordinal_day`, `dt.date`",
        "The proleptic Gregorian calendar, before 1970 too; Monday is 1",
    ),
    Meaning(
        (
            "dt.timestamp dt.total_minutes dt.total_seconds dt.total_milliseconds dt.total_microseconds "
            "dt.total_nanoseconds"
        ),
        "`dt.timestamp`, `dt.total_minutes` … `dt.total_nanoseconds`",
        "Exact or an error; a total is cut towards zero",
    ),
    Meaning(
        "dt.truncate",
        "`dt.truncate` to one unit",
        "The start of the unit, before 1970 too",
        applies=lambda term: bool(_ONE_UNIT.fullmatch(str(term.options.get("every")))),
    ),
    Meaning(
        "dt.truncate",
        "`dt.truncate` to several units",
        "Where the first one begins differs",
        same=False,
        remedy="the verbs `hopping` and `tumbling`, with `align=`",
    ),
    Meaning(
        "dt.offset_by",
        "`dt.offset_by` of days and less",
        "A day is 24 hours in UTC; exact or an error",
        applies=lambda term: bool(_FIXED.fullmatch(str(term.options.get("by")))),
    ),
    Meaning(
        "dt.offset_by",
        "`dt.offset_by` of months, quarters and years",
        "What the end of a longer month becomes",
        same=False,
        remedy="days",
    ),
    Meaning(
        "dt.to_string",
        "`dt.to_string`",
        "The codes of a format differ",
        same=False,
        remedy="the parts: `dt.year()` and so on",
    ),
    Meaning(
        "list.len list.contains list.max list.min list.sum",
        "`list.len`; `list.contains`, `list.max`, `list.min`, `list.sum` of whole numbers",
        "Null is skipped; sums are exact or an error",
        applies=lambda term: not _of_floats(term) and not _list_of_floats(term),
    ),
    Meaning("struct.field", "`struct.field`", "The field"),
    Meaning("replace_strict", "`replace_strict`", "What `new` has at the place that a value has in `old`"),
)
"""Of the rows that are about a term the first counts."""


def _list_of_floats(term: Term) -> bool:
    return any(isinstance(each.dtype, nw.List) and is_float(each.dtype.inner) for each in term.terms)


UNKNOWN = Meaning("", "any other function", "gpu_ops has not compared it", same=False)


def meaning(term: Term) -> Meaning:
    """The row of the table that is about a term's own function.

    Examples:
        >>> import polars as pl
        >>> from gpu_ops.plan.terms import terms
        >>> frame = nw.from_native(pl.DataFrame({"x": [1.0]}))
        >>> (made,) = terms(nw.col("x").exp(), frame).values()
        >>> meaning(made).same, meaning(made.terms[0]).same
        (False, True)
    """
    return next((row for row in TABLE if term.name in row.functions.split() and row.applies(term)), UNKNOWN)
