"""Expressions that Spark would compute with other results than the local engine, which therefore computes them."""

from __future__ import annotations

from collections.abc import Sequence

import narwhals as nw
import pyarrow as pa

from gpu_ops.plan.expressions import function_names, names_read, rewritten, values, whole_form
from gpu_ops.plan.terms import Term, is_float

_FLOOR = "Spark's floor is a LONG, 0 for NaN"
_DIVIDED = "Spark's quotient goes through DOUBLE, which does not hold every LONG, and is 0 for NaN"
_REST = "Spark's remainder by 0 is an error"
_POWER = "Spark's power is a DOUBLE"
_PART = "Spark's fractions of seconds before 1970 are negative"
_GREATEST = "Spark's greatest and least of DOUBLEs take NaN and -0.0 otherwise"
_SECONDS = "Spark counts times in seconds where it casts them"
OTHERWISE = {
    "floor": _FLOOR,
    "ceil": _FLOOR.replace("floor", "ceil"),
    "round": "Spark rounds halves away from zero",
    "__floordiv__": _DIVIDED,
    "__rfloordiv__": _DIVIDED,
    "__mod__": _REST,
    "__rmod__": _REST,
    "dt.millisecond": _PART,
    "dt.microsecond": _PART,
    "dt.nanosecond": _PART,
    "dt.weekday": "Spark's Sunday is 0",
    "list.sum": "Spark's sum of a list is a DOUBLE",
}
"""What Narwhals would let Spark compute with another result than the local engine's (seen with Narwhals 2.29)."""

_QUOTED = frozenset(".`")
"""What a column's name has if Spark would take it for more than one name."""

_BY_TYPE = {"__pow__", "__rpow__", "cast", "max_horizontal", "min_horizontal", "clip", "clip_lower", "clip_upper"}


def computed_otherwise(expressions: Sequence[nw.Expr], schema: pa.Schema) -> str:
    """Why expressions are not left to Spark; empty where they are.

    Args:
        expressions: Row-wise expressions.
        schema: The payload that they read, beside ``start`` and ``end``.

    Examples:
        >>> schema = pa.schema([("v", pa.int64()), ("x", pa.float64())])
        >>> computed_otherwise([nw.col("v") ** 2, nw.col("x") ** 2, nw.col("x") * 2], schema)
        "Spark's power is a DOUBLE"
        >>> computed_otherwise([nw.col("x") ** 2], schema)
        ''
    """
    found = {OTHERWISE[name] for each in expressions for name in function_names(each) if name in OTHERWISE}
    # Spark says in its log that there is no such column, however the query goes on.
    quoted = {name for each in expressions for name in names_read(each) if not _QUOTED.isdisjoint(name)}
    found |= {f"Narwhals does not quote the name {name!r}" for name in quoted}
    typed = [each for each in expressions if not function_names(each).isdisjoint(_BY_TYPE)]
    if typed:
        terms = (term for value in values(typed, schema).values() for term in value.walk())
        found |= {reason for reason in map(_by_type, terms) if reason is not None}
    return "; ".join(sorted(found))


def _by_type(term: Term) -> str | None:
    """Why Spark computes a function otherwise for values of its types; None if it does not."""
    if term.name == "__pow__":
        return None if term.holds is None else _POWER
    if term.name == "cast":
        (given,) = term.terms
        numbers = term.holds is not None and given.holds is not None
        dates = nw.Date in {term.dtype, given.dtype}
        return _SECONDS if numbers and not dates and (term.scale is None) != (given.scale is None) else None
    if term.name in _BY_TYPE and is_float(term.dtype):
        return _GREATEST
    return None


def spelled(expression: nw.Expr, schema: pa.Schema) -> nw.Expr:
    """An expression rewritten so that Spark gives what the local engine gives.

    Args:
        expression: One that is left to Spark.
        schema: The payload that it reads, beside ``start`` and ``end``.
    """
    return rewritten(expression, schema, _spelled, {"mean_horizontal", "__truediv__", "__rtruediv__"})


def _spelled(term: Term) -> Term:
    if term.name == "__truediv__" and is_float(term.dtype) and is_float(term.terms[0].dtype):
        one, other = (each.value for each in term.terms)
        # Narwhals asks whether the divisor is zero, and then for an infinity.
        divisor = term.terms[1]
        if divisor.name != "lit" or divisor.options["value"] == 0:
            return term.meaning(nw.when(one.is_nan()).then(one).otherwise(one / other))
    return whole_form(term) if term.name == "mean_horizontal" else term
