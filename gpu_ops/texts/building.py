"""From what a grammar found to the syntax tree: what builders of all languages have.

A builder has a method for each rule, or for the name behind its arrow. Each takes its place and what its symbols gave:
a node, a text for a token, or what a helping rule returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gpu_ops.texts import expressions as e
from gpu_ops.texts.expressions import Expression, TextPlace
from gpu_ops.texts.placed_error import PlacedError

_Kind = TypeVar("_Kind")


def of_kind(values: Sequence[Any], kind: type[_Kind]) -> tuple[_Kind, ...]:
    """Those of some values that are of a kind."""
    return tuple(value for value in values if isinstance(value, kind))


def node(kind: Callable[..., Any], *, skip: int = 0, rest: int | None = None, **more: Any) -> Any:
    """A rule whose values are the fields of a node: from `skip` on, and from `rest` on as one tuple."""

    def build(place: TextPlace, *values: Any) -> Any:
        values = values[skip:]
        fields = values if rest is None else (*values[:rest], values[rest:])
        return kind(*fields, **more, place=place)

    return staticmethod(build)


def every(_place: TextPlace, *values: Any) -> tuple[Any, ...]:
    """All that the symbols of a rule gave."""
    return values


def only(_place: TextPlace, *values: Any) -> Any:
    """What the only symbol of a rule gave; None for none."""
    return values[0] if values else None


def text_of(_place: TextPlace, *values: Any) -> str:
    """The text of the only token of a rule, or none."""
    return str(values[0]) if values else ""


def one_word(_place: TextPlace, *values: Any) -> str:
    """The word that is the only token of a rule, in small letters."""
    return str(values[0]).lower() if values else ""


class ExpressionBuilder:
    """Builds the expressions that languages share; it has no state."""

    def either(self, place: TextPlace, left: Expression, right: Expression) -> Expression:
        return e.logical("or", (left, right), place)

    def both(self, place: TextPlace, left: Expression, right: Expression) -> Expression:
        return e.logical("and", (left, right), place)

    def binary(self, place: TextPlace, left: Expression, operator: str, right: Expression) -> Expression:
        return e.Operation(operator_of(operator), left, right, place=place)

    def unary(self, place: TextPlace, operator: Any, operand: Expression) -> Expression:
        return e.Prefixed(operator.lower(), operand, place=place)

    def negated(self, place: TextPlace, *no: str) -> bool:
        return bool(no)

    def within(self, place: TextPlace, value: Any, no: Any, values: Any) -> Expression:
        return e.Inclusion(value, values, no, place=place)

    values = staticmethod(every)

    member = node(e.Member)

    name = node(e.Name)

    def number(self, place: TextPlace, text: str) -> e.Constant:
        if text[:2].lower() == "0x":
            return self._whole(place, int(text.rstrip("lL"), 16), long=text[-1].lower() == "l")
        suffix = text[-1].lower()
        digits = text[:-1] if suffix in "lfd" else text
        if digits.isdigit() and suffix not in "fd":
            return self._whole(place, int(digits), long=suffix == "l")
        if suffix == "l":
            raise PlacedError(place.start, place.end, f"{text} is not a whole number, as its L says.")
        value = float(digits)
        if math.isinf(value):
            raise PlacedError(place.start, place.end, f"{text} is too large for a floating-point number.")
        return e.Constant(value, "float" if suffix == "f" else "double", place=place)

    def _whole(self, place: TextPlace, value: int, *, long: bool) -> e.Constant:
        if value >= 2**63:
            raise PlacedError(
                place.start, place.end, f"{value} does not fit into 64 bits.", "Write it with a decimal point."
            )
        return e.Constant(value, "long" if long or value >= 2**31 else "int", place=place)

    parenthesised = staticmethod(only)

    def case(self, place: TextPlace, *values: Any) -> Expression:
        *branches, otherwise = values
        return e.Case(None, tuple(branches), otherwise, place=place)

    def case_of(self, place: TextPlace, subject: Expression, *values: Any) -> Expression:
        *branches, otherwise = values
        return e.Case(subject, tuple(branches), otherwise, place=place)

    when_then = staticmethod(every)

    def yes(self, place: TextPlace) -> bool:
        return True

    def no(self, place: TextPlace) -> bool:
        return False


def operator_of(text: str) -> str:
    """An operator as the syntax tree has it."""
    return {"<>": "!="}.get(text, text.lower())
