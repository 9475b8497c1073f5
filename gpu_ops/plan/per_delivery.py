"""The node that orders the rows of each delivery, leaves out equal ones, and limits their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_ops.core.turns import ORDER, ROW
from gpu_ops.errors import PlanError
from gpu_ops.plan.nodes import Unary, check_flat, check_known
from gpu_ops.plan.splits import Split, one_order


@dataclass(frozen=True)
class RowKey:
    """A column that the rows of a delivery are ordered by; null is the least value."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.column}{' desc' * self.descending}"


@dataclass(frozen=True, eq=False)
class PerDelivery(Unary):
    """The rows of each delivery in order, some of them, each once (Esper: order by, limit, distinct).

    A delivery is the rows of one place, those of the insert stream, the remove stream and the content by themselves.
    Rows with equal keys stay in their order. `@order` counts the rows that are left from 0 on. Marks and empty
    deliveries pass as they are.

    Attributes:
        keys: What rows are ordered by, the first key before the others.
        distinct: Of rows within the limit that are equal in these columns the first one stays; None if equal rows stay.
        within: Columns of whose values each combination has its own limit and offset. `keys` begin with these.
        limit: How many rows stay, equal ones counted; None for all.
        offset: How many rows are left out before them.
        leaves_empty: Whether a delivery of which no row is left is an empty one, as where an output rate posts it;
            else there is none.

    Raises:
        ColumnError: A column is unknown or nested.
        PlanError: The limit or the offset is negative.
    """

    keys: tuple[RowKey, ...] = ()
    distinct: tuple[str, ...] | None = None
    limit: int | None = None
    offset: int = 0
    within: tuple[str, ...] = ()
    leaves_empty: bool = False

    def __post_init__(self) -> None:
        check_known(self.input.schema, (*(self.distinct or ()), *self.within), what="delivery")
        for name in (ROW, ORDER, *(key.column for key in self.keys)):
            check_flat(self.input.schema, name, "has no order", what="delivery")
        for said, rows in (("limit", self.limit or 0), ("offset", self.offset)):
            if rows < 0:
                raise PlanError(f"A delivery cannot have {rows} rows.", remedy=f"Give {said}= of 0 or more.")

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that it compares."""
        return (ROW, ORDER, *(key.column for key in self.keys), *(self.distinct or ()), *self.within)

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(dict.fromkeys((*self.read, *wanted)))]

    def split(self, below: Sequence[Split]) -> Split:
        if self.limit is not None or self.offset:
            raise one_order("A limit of each delivery's rows")
        # In what order a delivery has its rows, their tables do not say.
        return (
            below[0] if self.distinct is None else below[0].by(self.distinct, "Leaving out equal rows of several keys")
        )

    held = "deliveries, all at once"

    def describe(self) -> str:
        keys = f" by {', '.join(map(str, self.keys))}" if self.keys else ""
        distinct = "" if self.distinct is None else f" distinct {', '.join(self.distinct)}"
        limit = "" if self.limit is None else f" limit={self.limit}"
        offset = f" offset={self.offset}" if self.offset else ""
        within = f" within each {', '.join(self.within)}" if self.within else ""
        return f"PerDelivery{keys}{distinct}{limit}{offset}{within}"
