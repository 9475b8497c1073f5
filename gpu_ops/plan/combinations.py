"""Combinations of aggregates: sums, differences, products and quotients of aggregates and numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.other_names import OtherNames
from gpu_ops.errors import PlanError

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class Combinable(OtherNames):
    """An aggregate, or a combination of aggregates: it adds, subtracts, multiplies and divides.

    ``+``, ``-`` and ``*`` are Narwhals' operators on the results' types; ``/`` is IEEE 754's division of float64:
    by zero it gives an infinity, or NaN for zero by zero (for durations it is Narwhals'). Null with anything is null.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = pa.table({"at": pa.array([0, 1], pa.timestamp("s", "UTC")), "paid": [3, 4], "items": [2, 8]})
        >>> windows = g.events(bids, start="at").tumbling("1min")
        >>> windows.agg(each=g.sum("paid") / g.sum("items"), spread=g.max("paid") - g.min("paid")).select(
        ...     "each", "spread"
        ... ).collect().drop_columns(["start", "end"]).to_pylist()
        [{'each': 0.7, 'spread': 1}]
    """

    _known_as = "aggregate"

    def within(self, window: object) -> Combinable:
        """The aggregate over a kind of windows; most are the same over all kinds."""
        return self

    def __add__(self, other: object) -> Combination:
        return Combination("+", self, other)

    def __radd__(self, other: object) -> Combination:
        return Combination("+", other, self)

    def __sub__(self, other: object) -> Combination:
        return Combination("-", self, other)

    def __rsub__(self, other: object) -> Combination:
        return Combination("-", other, self)

    def __mul__(self, other: object) -> Combination:
        return Combination("*", self, other)

    def __rmul__(self, other: object) -> Combination:
        return Combination("*", other, self)

    def __truediv__(self, other: object) -> Combination:
        return Combination("/", self, other)

    def __rtruediv__(self, other: object) -> Combination:
        return Combination("/", other, self)

    def __neg__(self) -> Combination:
        return Combination("*", self, -1)


@dataclass(frozen=True, eq=False)
class Combination(Combinable):
    """An operator between two operands: aggregates, combinations or numbers.

    Attributes:
        operator: One of ``+ - * /``.
        left: The operand before it.
        right: The operand behind it.
    """

    operator: str
    left: object
    right: object

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if isinstance(side, int) and not isinstance(side, bool) and not -(1 << 63) <= side < 1 << 63:
                raise PlanError(f"{side} does not fit 64 bits.", remedy="Take a float.")
            if isinstance(side, bool) or not isinstance(side, Combinable | Span | int | float):
                raise PlanError(
                    f"An aggregate {self.operator} {type(side).__name__} cannot be computed.",
                    remedy='Combine aggregates with aggregates and numbers: g.sum("a") / g.count(). An expression of '
                    'each event goes inside: g.sum(g.col("a") / g.col("b")).',
                )

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"

    def within(self, window: object) -> Combination:
        """The same combination, with its operands over a kind of windows."""
        left, right = (
            side.within(window) if isinstance(side, Combinable) else side for side in (self.left, self.right)
        )
        return Combination(self.operator, left, right)

    def parts(self) -> list[Combinable]:
        """Its aggregates, from left to right."""
        made: list[Combinable] = []
        for side in (self.left, self.right):
            if isinstance(side, Combination):
                made += side.parts()
            elif isinstance(side, Combinable):
                made.append(side)
        return made

    def result(self, columns: Sequence[str], schema: pa.Schema) -> nw.Expr:
        """The combination as an expression over the columns of its `parts`.

        Args:
            columns: A column for each part.
            schema: The columns' types.
        """
        half = len(self.left.parts()) if isinstance(self.left, Combination) else int(isinstance(self.left, Combinable))
        left, right = (
            side.result(names, schema) if isinstance(side, Combination) else _side(side, names)
            for side, names in ((self.left, columns[:half]), (self.right, columns[half:]))
        )
        if self.operator == "/" and not any(pa.types.is_temporal(schema.field(name).type) for name in columns):
            # A quotient of decimals would be a decimal.
            left, right = (side.cast(nw.Float64) if isinstance(side, nw.Expr) else side for side in (left, right))
        made: nw.Expr = _OPERATORS[self.operator](left, right)
        return made


@dataclass(frozen=True)
class Span:
    """The length of a result in some unit, as float64.

    Attributes:
        unit: The unit, in ticks.
    """

    unit: int

    def __str__(self) -> str:
        return f"length/{self.unit}"

    @property
    def expression(self) -> nw.Expr:
        """The length as an expression over results."""
        ticks = nw.col("end").dt.timestamp("us") - nw.col("start").dt.timestamp("us")
        return ticks.cast(nw.Float64) / self.unit


def _side(side: object, names: Sequence[str]) -> Any:
    if isinstance(side, Span):
        return side.expression
    return nw.col(*names) if names else side


def hangs_on_bounds(given: object, window: object) -> bool:
    """Whether an aggregate, or an operand of a combination, depends on its window's bounds."""
    side = given.within(window) if isinstance(given, Combinable) else given
    if isinstance(side, Combination):
        return hangs_on_bounds(side.left, window) or hangs_on_bounds(side.right, window)
    return isinstance(side, Span) or bool(getattr(side, "options", {}).get("bounds"))
