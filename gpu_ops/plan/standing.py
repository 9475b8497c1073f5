"""What many standing questions ask of each row: they differ in constants, and each row is wanted by some of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from gpu_ops.plan.nodes import Feed, Node

PASSES, HOLDS = "@passes", "@holds"
"""Columns: whether a row passes what all questions ask alike; whether a pair of row and question passes the rest."""


def value_name(number: int) -> str:
    """The column with a value of each row."""
    return f"@value {number}"


def constant_name(number: int) -> str:
    """The column with a constant of each question."""
    return f"@constant {number}"


@dataclass(frozen=True)
class Equal:
    """A value equals one of some constants; no question wants a row whose value is null.

    Attributes:
        value: The column of the value.
        type: The type in which they are compared.
        options: The columns of the constants.
    """

    value: str
    type: pa.DataType
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.value} in ({', '.join(self.options)})"


@dataclass(frozen=True)
class InRange:
    """A value is between two constants, or on one side of one; NaN and null are nowhere.

    Attributes:
        value: The column of the value.
        type: The type in which they are compared, of numbers.
        low: The column of the lesser constant; nothing where there is none.
        high: The column of the greater one; nothing where there is none.
        with_low: Whether the lesser one is part of it.
        with_high: Whether the greater one is.
        either: Whether the greater constant may be in the column of the lesser one, which then counts as the greater.
    """

    value: str
    type: pa.DataType
    low: str
    high: str
    with_low: bool = True
    with_high: bool = True
    either: bool = False

    def __str__(self) -> str:
        low = f"{self.low} {'<=' if self.with_low else '<'} " if self.low else ""
        high = f" {'<=' if self.with_high else '<'} {self.high}" if self.high else ""
        return f"{low}{self.value}{high}"


@dataclass(frozen=True)
class StandingFilter:
    """Which questions want a row: those for whose constants all of these hold.

    Attributes:
        rows: The leaf of the rows.
        values: The values of each row, over that leaf, and `PASSES` if all questions ask something alike; None if
            nothing is asked.
        constants: The constants of each question.
        equal: Equalities.
        between: Ranges.
        rest: `HOLDS` over pairs of values and constants, for what is neither; None if there is nothing else.
    """

    rows: Feed
    values: Node | None
    constants: pa.Schema
    equal: tuple[Equal, ...] = ()
    between: tuple[InRange, ...] = ()
    rest: Node | None = None

    @property
    def computed(self) -> tuple[Node, ...]:
        """The nodes that compute something."""
        return tuple(node for node in (self.values, self.rest) if node is not None)

    def describe(self) -> list[str]:
        """It in words, a line for each part."""
        lines = [] if self.values is None else [self.values.describe()]
        lines += [f"Wanted where {each}" for each in (*self.equal, *self.between)]
        return lines if self.rest is None else [*lines, f"Wanted where {HOLDS}: {self.rest.describe()}"]
