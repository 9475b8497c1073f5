"""Aggregates of aggregates: sums, differences, products and quotients of them, and of them and numbers."""

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
    """What adds, subtracts, multiplies and divides: an aggregate, or a combination of some.

    ``+``, ``-`` and ``*`` are what Narwhals makes of the results' types; ``/`` gives float64 as IEEE 754 divides: by
    zero an infinity, or NaN for zero by zero (of durations, what Narwhals makes of them). Null with anything is null.

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
        """What it is over a kind of windows; most are the same over all."""
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
    """Two aggregates, or combinations, or one and a number, with an operator between them.

    Attributes:
        operator: One of ``+ - * /``.
        left: What stands before it.
        right: What stands behind it.
    """

    operator: str
    left: object
    right: object

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if isinstance(side, int) and not isinstance(side, bool) and not -(1 << 63) <= side < 1 << 63:
                raise PlanError(f"{side} is more than 64 bits hold.", remedy="Take a float.")
            if isinstance(side, bool) or not isinstance(side, Combinable | Span | int | float):
                raise PlanError(
                    f"An aggregate {self.operator} {type(side).__name__} is nothing that can be computed.",
                    remedy='Combine aggregates with one another and with numbers: g.sum("a") / g.count(); what is one '
                    'for each event goes inside: g.sum(g.col("a") / g.col("b")).',
                )

    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"

    def within(self, window: object) -> Combination:
        """The same of what its sides are over a kind of windows."""
        left, right = (
            side.within(window) if isinstance(side, Combinable) else side for side in (self.left, self.right)
        )
        return Combination(self.operator, left, right)

    def parts(self) -> list[Combinable]:
        """The aggregates that it is made of, in the order in which they stand."""
        made: list[Combinable] = []
        for side in (self.left, self.right):
            if isinstance(side, Combination):
                made += side.parts()
            elif isinstance(side, Combinable):
                made.append(side)
        return made

    def result(self, columns: Sequence[str], schema: pa.Schema) -> nw.Expr:
        """The combination of columns that stand for its `parts`.

        Args:
            columns: One for each part.
            schema: Their types.
        """
        half = len(self.left.parts()) if isinstance(self.left, Combination) else int(isinstance(self.left, Combinable))
        left, right = (
            side.result(names, schema) if isinstance(side, Combination) else _side(side, names)
            for side, names in ((self.left, columns[:half]), (self.right, columns[half:]))
        )
        if self.operator == "/" and not any(pa.types.is_temporal(schema.field(name).type) for name in columns):
            # A quotient of decimals would be a decimal again.
            left, right = (side.cast(nw.Float64) if isinstance(side, nw.Expr) else side for side in (left, right))
        made: nw.Expr = _OPERATORS[self.operator](left, right)
        return made


@dataclass(frozen=True)
class Span:
    """How long a result lasts, in some unit, as float64.

    Attributes:
        unit: In ticks.
    """

    unit: int

    def __str__(self) -> str:
        return f"length/{self.unit}"

    @property
    def expression(self) -> nw.Expr:
        """It, as an expression over results."""
        ticks = nw.col("end").dt.timestamp("us") - nw.col("start").dt.timestamp("us")
        return ticks.cast(nw.Float64) / self.unit


def _side(side: object, names: Sequence[str]) -> Any:
    if isinstance(side, Span):
        return side.expression
    return nw.col(*names) if names else side


def hangs_on_bounds(given: object, window: object) -> bool:
    """Whether an aggregate, or a side of a combination, depends on when its window begins and ends."""
    side = given.within(window) if isinstance(given, Combinable) else given
    if isinstance(side, Combination):
        return hangs_on_bounds(side.left, window) or hangs_on_bounds(side.right, window)
    return isinstance(side, Span) or bool(getattr(side, "options", {}).get("bounds"))
