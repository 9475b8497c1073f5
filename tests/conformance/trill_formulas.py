"""Expressions and aggregates as Trill's cases write them, in Narwhals' words: ``v mod 2 = 0``, ``sum(v*2)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

import gpu_ops as g
from tests.conformance.unsupported import UnsupportedError, aggregate

TIMES: Mapping[str, nw.Expr] = {
    "start_time": g.col("start").dt.timestamp("us"),
    "duration": (g.col("end") - g.col("start")).dt.total_microseconds(),
}
"""What is said of a lifetime."""

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
}

_CALLS: Mapping[str, Callable[[nw.Expr], nw.Expr]] = {
    "int": lambda given: given.cast(g.Int64),
    "float": lambda given: given.cast(g.Float64),
    "abs": lambda given: given.abs(),
    "length": lambda given: given.str.len_chars(),
}

_WORDS = ((r"\(integer division\)", ""), (r"\bmod\b", "%"), (r"\bAND\b", "and"), (r"\bOR\b", "or"))
_EQUAL = r"(?<![<>!=])=(?!=)"


def formula(text: str, schema: pa.Schema) -> nw.Expr:
    """An expression of the columns; of whole numbers a quotient is one.

    Raises:
        UnsupportedError: It is none, or has a name that is no column.
    """
    for word, sign in _WORDS:
        text = re.sub(word, sign, text)
    try:
        tree = ast.parse(re.sub(_EQUAL, "==", text.strip()), mode="eval").body
    except SyntaxError as error:
        raise UnsupportedError(f"no word for {text}") from error
    made, _ = _value(tree, schema)
    return made if isinstance(made, nw.Expr) else g.lit(made)


def names(text: str) -> list[str]:
    """The names in an expression."""
    return re.findall(r"\b(?!mod\b|and\b|or\b|in\b|not\b|int\b|float\b)[a-zA-Z_]\w*", text)


def _value(tree: ast.expr, schema: pa.Schema) -> tuple[Any, bool]:
    """An expression, and whether it is a float."""
    match tree:
        case ast.Constant(value):
            return value, isinstance(value, float)
        case ast.Name(name) if name in TIMES:
            return TIMES[name], False
        case ast.Name(name) if name in schema.names:
            return g.col(name), pa.types.is_floating(schema.field(name).type)
        case ast.UnaryOp(ast.USub(), operand):
            made, is_float = _value(operand, schema)
            return -made, is_float
        case ast.UnaryOp(ast.Not(), operand):
            return ~_value(operand, schema)[0], False
        case ast.BinOp(left, operator, right):
            (one, first), (other, second) = _value(left, schema), _value(right, schema)
            if isinstance(operator, ast.Div):
                return (one / other, True) if first or second else (one // other, False)
            if type(operator) in _BINARY:
                return _BINARY[type(operator)](one, other), first or second
        case ast.Compare(left, [ast.In()], [ast.Tuple(values)]):
            return _value(left, schema)[0].is_in([_value(each, schema)[0] for each in values]), False
        case ast.Compare(left, [operator], [right]) if type(operator) in _BINARY:
            return _BINARY[type(operator)](_value(left, schema)[0], _value(right, schema)[0]), False
        case ast.BoolOp(operator, values):
            made = [_value(each, schema)[0] for each in values]
            whole = made[0]
            for each in made[1:]:
                whole = whole & each if isinstance(operator, ast.And) else whole | each
            return whole, False
        case ast.Call(ast.Name(name), [argument]) if name in _CALLS:
            return _CALLS[name](_value(argument, schema)[0]), name == "float"
    raise UnsupportedError(f"no word for {ast.unparse(tree)}")


# Aggregates

_AGGREGATE = re.compile(r"(?:(\w+)=)?(\w+)\((.*)\)")
_SYNONYMS = {"count_not_null": "count", "average": "avg"}
_SPREADS = {"variance": g.variance, "stddev": g.standard_deviation, "standard_deviation": g.standard_deviation}
_QUANTILES = {"percentile_continuous": "linear", "percentile_cont": "linear", "percentile_discrete": "lower"}


def aggregates(parts: Sequence[str], schema: pa.Schema) -> dict[str, Any]:
    """Aggregates by their names: ``a=sum(v)``, ``count()``, ``sum(v where v > 3)``."""
    found: dict[str, Any] = {}
    for text in parts:
        part = _AGGREGATE.fullmatch(text.strip())
        if part is None:
            raise UnsupportedError(f"no word for the aggregate {text}")
        found[part[1] or ("v" if len(parts) == 1 else part[2])] = _aggregate(part[2], part[3], schema)
    return found


def _aggregate(kind: str, given: str, schema: pa.Schema) -> Any:
    given, _, condition = given.partition(" where ")
    options: dict[str, Any] = {"where": formula(condition, schema)} if condition else {}
    column, *more = (each.strip() for each in given.rstrip(", ").split(",")) if given.strip() else ("",)
    value: Any = column if column in {"", *schema.names} else formula(column, schema)
    kind, _, of = kind.partition("_") if kind.endswith(("_sample", "_population")) else (kind, "", "")
    if of:
        options["of"] = of
    if kind in _SPREADS:
        return _SPREADS[kind](value, **options)
    if kind in {"sum_squares", "average_squares", "avg_squares"}:
        squared = formula(f"({column})*({column})", schema)
        return (g.sum if kind == "sum_squares" else g.mean)(squared, **options)
    if kind in _QUANTILES and len(more) == 1:
        return g.quantile(value, float(more[0]), interpolation=_QUANTILES[kind], **options)  # type: ignore[arg-type]
    if more:
        raise UnsupportedError(f"no word for the aggregate {kind} of {given}")
    return aggregate(_SYNONYMS.get(kind, kind), value, **options)
