"""Expressions of StreamCruncher's language in Narwhals' words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any, Protocol

import narwhals as nw

import gpu_ops as g
from tests.conformance.rql_structure import Inner, Status
from tests.conformance.rql_tree import Call, Case, Expression, Literal, Name, Operation
from tests.conformance.unsupported import UnsupportedError


class Scope(Protocol):
    """What names mean."""

    def column(self, name: str) -> tuple[nw.Expr, str]:
        """A column and its kind: "whole", "real", "text" or "truth"."""

    def status(self, status: Status) -> nw.Expr:
        """Whether a row is in a state."""

    def inner(self, inner: Inner) -> nw.Expr:
        """A condition about another query."""

    def call(self, call: Call) -> tuple[nw.Expr, str]:
        """The value of a function, and its kind."""


def condition(expression: Expression, scope: Scope) -> nw.Expr:
    """A condition, as SQL has it: null where a part is unknown."""
    return value(expression, scope)[0]


def value(expression: Expression, scope: Scope) -> tuple[nw.Expr, str]:
    """An expression and its kind.

    Raises:
        UnsupportedError: It has a word that is not known here.
    """
    match expression:
        case Literal(given):
            return g.lit(given), _KINDS.get(type(given), "real")
        case Name(name):
            return scope.column(name)
        case Status():
            return scope.status(expression), "truth"
        case Inner():
            return scope.inner(expression), "truth"
        case Call():
            return scope.call(expression)
        case Case(branches, otherwise):
            made, kind = value(otherwise, scope)
            for held, then in reversed(branches):
                shown, kind = value(then, scope)
                made = g.when(condition(held, scope)).then(shown).otherwise(made)
            return made, kind
        case Operation("in", (wanted, *values)):
            return _in(value(wanted, scope)[0], values), "truth"
        case Operation("like", (text, Literal(str() as pattern))):
            marks = "".join({"%": ".*", "_": "."}.get(mark, re.escape(mark)) for mark in pattern)
            return value(text, scope)[0].str.contains(f"(?s)^{marks}$"), "truth"
        case Operation("||", operands):
            texts = [shown.cast(g.String) for shown, _ in (value(operand, scope) for operand in operands)]
            return g.concat_str(texts), "text"
        case Operation(name, operands):
            made_operands = [value(operand, scope) for operand in operands]
            kinds = {kind for _, kind in made_operands}
            kind = "whole" if kinds == {"whole"} else "real"
            if name == "/" and kind == "whole":
                return _divided(*(each for each, _ in made_operands)), kind
            if name not in _OPERATIONS:
                raise UnsupportedError(f"RQL: no operator {name!r}")
            result = _OPERATIONS[name](*(each for each, _ in made_operands))
            return result, kind if name in _ARITHMETIC else "truth"
    raise UnsupportedError(f"RQL: no expression {type(expression).__name__}")


def _in(wanted: nw.Expr, values: list[Expression]) -> nw.Expr:
    """Among literal values; unknown, where the value is."""
    literals = [each.value for each in values if isinstance(each, Literal)]
    if len(literals) < len(values):
        raise UnsupportedError("RQL: no lists of expressions yet")
    return one_of(wanted, literals)


def one_of(wanted: nw.Expr, values: list[Any]) -> nw.Expr:
    """Whether a value is one of these; unknown, where it is not known itself."""
    present = [each for each in values if each is not None]
    return reduce(or_, (wanted == each for each in present), wanted != wanted)  # noqa: PLR0124  (null stays null)


def _divided(left: nw.Expr, right: nw.Expr) -> nw.Expr:
    """Whole numbers, toward zero."""
    size = left.abs() // right.abs()
    return g.when((left < 0) == (right < 0)).then(size).otherwise(-size)


_KINDS = {bool: "truth", int: "whole", float: "real", str: "text"}

_ARITHMETIC = {"+", "-", "*", "/", "%", "negative"}

_OPERATIONS: dict[str, Callable[..., nw.Expr]] = {
    "and": and_,
    "or": or_,
    "not": lambda each: ~each,
    "is null": lambda each: each.is_null(),
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "%": lambda left, right: left % right,
    "negative": lambda each: -each,
}
