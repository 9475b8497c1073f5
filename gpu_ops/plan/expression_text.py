"""Expressions as their users write them, for plans that are explained.

The lines of a plan that checkpoints hold have Narwhals' own form, which `line_text` gives outside of `for_readers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import narwhals as nw

_reader: ContextVar[bool] = ContextVar("reader", default=False)


@contextmanager
def for_readers() -> Iterator[None]:
    """Within it `line_text` writes expressions as their users do."""
    before = _reader.set(True)
    try:
        yield
    finally:
        _reader.reset(before)


def line_text(expression: nw.Expr | None) -> str:
    """An expression as text: for a reader within `for_readers`, else in Narwhals' form, which identifies it."""
    return text_of(expression) if _reader.get() and isinstance(expression, nw.Expr) else repr(expression)


def text_of(expression: nw.Expr) -> str:
    """An expression as its user wrote it, in Python's operators; columns stand by their names alone.

    Examples:
        >>> text_of((nw.col("price") * 2 > 3) & ~nw.col("item").is_in(["pen"]))
        "(price * 2 > 3) & ~item.is_in(['pen'])"
        >>> text_of((7 - nw.col("v").abs()).alias("rest"))
        '7 - v.abs() as rest'
        >>> text_of(nw.when(nw.col("v") > 1).then(nw.col("v").cast(nw.Float64)).otherwise(nw.lit(None)))
        'when(v > 1).then(v.cast(Float64)).otherwise(None)'
    """
    return _text(expression).text


class _Text(NamedTuple):
    text: str
    binds: int
    """How tightly its outermost operator binds; a greater number binds tighter."""

    def within(self, binds: int) -> str:
        return self.text if self.binds >= binds else f"({self.text})"


_NAME, _UNARY, _ALIAS, _ALONE = 9, 7, 0, 1
_OPERATORS = {
    "__pow__": ("**", 8),
    "__mul__": ("*", 6),
    "__truediv__": ("/", 6),
    "__floordiv__": ("//", 6),
    "__mod__": ("%", 6),
    "__add__": ("+", 5),
    "__sub__": ("-", 5),
    "__and__": ("&", 4),
    "__or__": ("|", 3),
    "__eq__": ("==", 2),
    "__ne__": ("!=", 2),
    "__lt__": ("<", 2),
    "__le__": ("<=", 2),
    "__gt__": (">", 2),
    "__ge__": (">=", 2),
}
_BEFORE = {"__neg__": "-", "__invert__": "~"}
_USUAL = {"closed": "both", "ignore_nulls": False}
"""Options that are not shown where they have these values."""
_SHOWN = 8


def _text(expression: nw.Expr) -> _Text:
    first, *rest = expression._nodes  # noqa: SLF001  (see `gpu_ops.plan.expressions`)
    made = _first(first)
    for node in rest:
        made = _step(made, node)
    return made


def _first(node: Any) -> _Text:
    if node.kind.name == "COL":
        return _Text(", ".join(map(_name, node.kwargs["names"])), _NAME if len(node.kwargs["names"]) == 1 else _ALONE)
    if node.name == "lit":
        constant, dtype = _constant(node.kwargs["value"]), node.kwargs["dtype"]
        return constant if dtype is None else _Text(f"lit({constant.text}, {dtype!r})", _NAME)
    if node.name == "when_then":
        condition, value, *otherwise = (_operand(node, each).text for each in node.exprs)
        tail = "".join(f".otherwise({each})" for each in otherwise)
        return _Text(f"when({condition}).then({value}){tail}", _NAME)
    if node.name == "all_horizontal" and len(node.exprs) == 1:  # what `when` makes of its condition
        return _operand(node, node.exprs[0])
    return _Text(f"{node.name}({_arguments(node)})", _NAME)


def _step(on: _Text, node: Any) -> _Text:
    if node.name == "alias":
        return _Text(f"{on.within(_ALONE)} as {_name(node.kwargs['name'])}", _ALIAS)
    if node.name in _BEFORE:
        return _Text(f"{_BEFORE[node.name]}{on.within(_UNARY)}", _UNARY)
    reversed_name = f"__{node.name[3:]}" if node.name.startswith("__r") else ""
    if node.name in _OPERATORS or reversed_name in _OPERATORS:
        sign, binds = _OPERATORS.get(node.name) or _OPERATORS[reversed_name]
        other = _operand(node, node.exprs[0])
        left, right = (on, other) if node.name in _OPERATORS else (other, on)
        # Of one strength the left one comes first, of powers the right one; comparisons are not chained.
        lower, upper = (binds + 1, binds) if sign == "**" else (binds + (binds == 2), binds + 1)
        return _Text(f"{left.within(lower)} {sign} {right.within(upper)}", binds)
    return _Text(f"{on.within(_NAME)}.{node.name}({_arguments(node)})", _NAME)


def _arguments(node: Any) -> str:
    given = [_operand(node, each).text for each in node.exprs]
    said = {name: each for name, each in node.kwargs.items() if not _is_usual(name, each)}
    if len(said) == 1 and not given:
        return _value(*said.values())
    return ", ".join([*given, *(f"{name}={_value(each)}" for name, each in said.items())])


def _is_usual(name: str, value: Any) -> bool:
    return value is None or (name in _USUAL and value == _USUAL[name])


def _operand(node: Any, given: Any) -> _Text:
    if isinstance(given, nw.Expr):
        return _text(given)
    named = isinstance(given, str) and not node.str_as_lit
    return _Text(_name(given), _NAME) if named else _constant(given)


def _constant(value: Any) -> _Text:
    text = _value(value)
    return _Text(text, _UNARY if text.startswith("-") else _NAME)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[@\w][\w.]*", name) else f"`{name}`"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple) and len(value) > _SHOWN:
        return f"[{', '.join(map(repr, value[:_SHOWN]))}, … {len(value) - _SHOWN} more]"
    return repr(list(value)) if isinstance(value, tuple) else repr(value)
