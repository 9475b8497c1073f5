"""Which functions of Narwhals mean the same everywhere, and which are the backend's own.

`docs/expressions.md` shows the table. A function that no row names is the backend's own.
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
        functions: Narwhals' names of the functions.
        shown: Their names on the page.
        why: What they mean, or how backends differ: a sentence whose first letter may become small.
        remedy: What to write instead, as the end of a sentence; empty if the functions mean the same everywhere.
        applies: Whether the row is about a term of these functions; by default about each.
    """

    functions: str
    shown: str
    why: str
    remedy: str = ""
    applies: Callable[[Term], bool] = lambda _: True

    @property
    def same(self) -> bool:
        """Whether the functions mean the same everywhere."""
        return not self.remedy


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

TABLE = (
    Meaning("col lit alias name.keep name.prefix name.suffix", "`col`, `lit`, `alias`, `name`", "The value, unchanged"),
    Meaning(
        "__mul__ __truediv__",
        "`* /` of durations by floats",
        "Backends round or drop half a tick",
        "multiply by a whole number",
        _by_a_float,
    ),
    Meaning(
        "__truediv__",
        "`/` of durations",
        "Backends round or drop the fraction of a tick",
        "take `dt.total_microseconds()` first",
        _of_times,
    ),
    Meaning(
        "__add__ __sub__",
        "dates `+ -` durations",
        "Backends drop the time of day at different steps",
        "write `cast(g.Datetime)` first",
        _of_dates,
    ),
    Meaning(
        "__mul__ __truediv__",
        "`* /` of two decimals",
        "Each backend has its own scale and rounding for the result",
        "write `cast(g.Float64)` first",
        _of_decimals,
    ),
    Meaning(
        "__add__ __sub__ __mul__ __neg__ abs",
        "`+ - *`, unary minus, `abs`",
        "Whole numbers, times and durations are exact or an error; floats follow IEEE 754; decimals are exact",
    ),
    Meaning("__truediv__", "`/`", "A float by IEEE 754: division by zero gives an infinity, and 0 / 0 gives NaN"),
    Meaning(
        "__floordiv__ __mod__",
        "`// %` of floats",
        "Results for NaN, infinities, a zero divisor and the sign of zero differ",
        "cast to a whole number",
        _of_floats,
    ),
    Meaning("__floordiv__ __mod__", "`// %`", "Rounded down, as in Python; division by zero gives null"),
    Meaning(
        "__pow__",
        "`**` of floats",
        "The last bits differ, and so do powers of -0.0 and -inf",
        "write `x * x` for a square",
        _of_floats,
    ),
    Meaning("__pow__", "`**` of whole numbers", "Exact or an error; a negative exponent is an error"),
    Meaning("sqrt", "`sqrt`", "IEEE 754's square root; NaN for a negative number"),
    Meaning("exp log sin cos", "`exp`, `log`, `sin`, `cos`", "The last bits differ", "compute it after `collect()`"),
    Meaning(
        "round",
        "`round` of floats",
        "Backends round halves to even or away from zero, and detect halves differently",
        "write `floor(x + 0.5)`",
        _of_floats,
    ),
    Meaning(
        "round floor ceil",
        "`floor`, `ceil`; `round` of whole numbers",
        "The type stays the same; NaN, infinities and -0.0 stay as they are",
    ),
    Meaning(
        "__gt__ __ge__ __lt__ __le__ __eq__ __ne__ is_between is_in",
        "comparisons, `is_between`, `is_in`",
        "Null with anything gives null; -0.0 equals 0.0; NaN equals itself and is greater than every number; text is "
        "ordered by its UTF-8 bytes",
    ),
    Meaning(
        "__and__ __or__ __invert__ __xor__ all_horizontal any_horizontal",
        "`&`, `|`, `~`, `^`, `all_horizontal`, `any_horizontal`",
        "SQL's three-valued logic",
    ),
    Meaning("is_null is_nan is_finite", "`is_null`, `is_nan`, `is_finite`", "Null is neither NaN nor finite"),
    Meaning(
        "fill_null fill_nan coalesce when_then",
        "`fill_null`, `fill_nan`, `coalesce`, `when`",
        "The first value that is not null; the branch whose condition holds (null counts as no)",
    ),
    Meaning(
        "clip clip_lower clip_upper max_horizontal min_horizontal",
        "`clip`, `max_horizontal`, `min_horizontal` of floats",
        "Results for NaN and the sign of zero differ",
        "write `when(x > y).then(x).otherwise(y)` over values without NaN",
        _of_floats,
    ),
    Meaning(
        "clip clip_lower clip_upper max_horizontal min_horizontal",
        "`clip`, `max_horizontal`, `min_horizontal`",
        "The last two skip null",
    ),
    Meaning(
        "sum_horizontal mean_horizontal",
        "`sum_horizontal`, `mean_horizontal` of more than two floats",
        "Backends add floats in different orders",
        "write `a + b + c`",
        lambda term: len(term.terms) > 2 and (_of_floats(term) or term.name == "mean_horizontal"),
    ),
    Meaning(
        "sum_horizontal mean_horizontal",
        "`sum_horizontal`, `mean_horizontal`",
        "Null is skipped; whole sums are exact or an error",
    ),
    Meaning(
        "cast",
        "casts of floats to text",
        "Backends write 1e+300 or 1.0E300, inf or Infinity",
        "keep the number",
        _cast(is_float, _is_text),
    ),
    Meaning(
        "cast",
        "casts of times to text",
        "Backends write zones and fractions differently",
        "write the parts: `dt.year()` and so on",
        _cast(_is_time, _is_text),
    ),
    Meaning(
        "cast",
        "casts of text",
        "Backends take different texts for numbers, dates and conditions, and treat all other texts differently",
        "declare the type in the source",
        _cast(_is_text, lambda dtype: not _is_text(dtype)),
    ),
    Meaning(
        "cast",
        "casts to decimals",
        "Backends round halves of the last digit differently",
        "cast whole numbers alone",
        lambda term: _is_decimal(term.dtype) and (_of_floats(term) or _is_decimal(term.terms[0].dtype)),
    ),
    Meaning(
        "cast",
        "casts between numbers, and of whole numbers, dates and conditions to text",
        "Floats lose their fraction; a value that does not fit is an error",
        applies=lambda term: all(
            _is_number(each) or _is_text(each) or each == nw.Date for each in (term.dtype, term.terms[0].dtype)
        ),
    ),
    Meaning(
        "cast",
        "casts between times and whole numbers, times and dates",
        "Ticks of the type's unit since 1970; a value that does not fit is an error",
        applies=lambda term: _is_time(term.dtype) or _is_time(term.terms[0].dtype),
    ),
    Meaning("cast", "casts of categories to text", "The text", applies=lambda term: _is_text(term.dtype)),
    Meaning(
        "str.to_uppercase str.to_lowercase str.to_titlecase",
        "`str.to_uppercase`, `str.to_lowercase`, `str.to_titlecase`",
        "Each backend follows its own version of Unicode, with its own rules for İ, ß, ǆ and a final Σ",
        "change the case in the source",
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
        "Characters are Unicode code points, not bytes",
    ),
    Meaning(
        "str.contains str.replace str.replace_all",
        "`str.contains`, `str.replace`, `str.replace_all` with `literal=True`",
        "The text is matched as it is",
        applies=_LITERAL,
    ),
    Meaning(
        "str.contains str.replace str.replace_all",
        "`str.contains`, `str.replace`, `str.replace_all` by regular expressions",
        "The dialects of Rust, Java and cuDF differ: what `\\w` matches, what `$0` means",
        "say `literal=True`",
    ),
    Meaning(
        "str.strip_chars str.strip_chars_start str.strip_chars_end",
        "`str.strip_chars`, … without characters",
        "Backends take different characters for white space outside ASCII",
        'name the characters: `strip_chars(" \\t")`',
        _option("characters", None),
    ),
    Meaning(
        "str.strip_chars str.strip_chars_start str.strip_chars_end",
        "`str.strip_chars`, … of given characters",
        "The text without these characters at its ends",
    ),
    Meaning(
        "str.to_datetime str.to_date str.to_time",
        "`str.to_datetime`, `str.to_date`, `str.to_time`",
        "Backends take different texts for times, and treat all other texts differently",
        "declare the type in the source",
    ),
    Meaning(
        (
            "dt.year dt.month dt.day dt.hour dt.minute dt.second dt.millisecond dt.microsecond dt.nanosecond "
            "dt.weekday dt.ordinal_day dt.date"
        ),
        "`dt.year` … `dt.nanosecond`, `dt.weekday`, `dt.ordinal_day`, `dt.date`",
        "The proleptic Gregorian calendar, also before 1970; Monday is 1",
    ),
    Meaning(
        (
            "dt.timestamp dt.total_minutes dt.total_seconds dt.total_milliseconds dt.total_microseconds "
            "dt.total_nanoseconds"
        ),
        "`dt.timestamp`, `dt.total_minutes` … `dt.total_nanoseconds`",
        "Exact or an error; totals are truncated towards zero",
    ),
    Meaning(
        "dt.truncate",
        "`dt.truncate` to one unit",
        "The start of the unit, also before 1970",
        applies=lambda term: bool(_ONE_UNIT.fullmatch(str(term.options.get("every")))),
    ),
    Meaning(
        "dt.truncate",
        "`dt.truncate` to several units",
        "Backends begin the first period at different times",
        "use the verbs `hopping` and `tumbling`, with `align=`",
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
        "Backends differ at the end of longer months",
        "use days",
    ),
    Meaning("dt.to_string", "`dt.to_string`", "Format codes differ", "write the parts: `dt.year()` and so on"),
    Meaning(
        "list.len list.contains list.max list.min list.sum",
        "`list.len`; `list.contains`, `list.max`, `list.min`, `list.sum` of whole numbers",
        "Null is skipped; sums are exact or an error",
        applies=lambda term: not _of_floats(term) and not _list_of_floats(term),
    ),
    Meaning("struct.field", "`struct.field`", "The field"),
    Meaning("replace_strict", "`replace_strict`", "The entry of `new` at the place that the value has in `old`"),
)
"""The first row that applies to a term counts."""


def _list_of_floats(term: Term) -> bool:
    return any(isinstance(each.dtype, nw.List) and is_float(each.dtype.inner) for each in term.terms)


UNKNOWN = Meaning("", "any other function", "gpu_ops has not compared it", "use a function of this table")


def meaning(term: Term) -> Meaning:
    """The row of the table for a term's own function.

    Examples:
        >>> import polars as pl
        >>> from gpu_ops.plan.terms import terms
        >>> frame = nw.from_native(pl.DataFrame({"x": [1.0]}))
        >>> (made,) = terms(nw.col("x").exp(), frame).values()
        >>> meaning(made).same, meaning(made.terms[0]).same
        (False, True)
    """
    return next((row for row in TABLE if term.name in row.functions.split() and row.applies(term)), UNKNOWN)
