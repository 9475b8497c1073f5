"""The node that shows each row in a window what came out of the windows before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from gpu_ops.core.turns import PLACE
from gpu_ops.errors import PlanError
from gpu_ops.plan.nodes import Ends, Unary
from gpu_ops.plan.splits import Split


@dataclass(frozen=True)
class Earlier:
    """A column of an earlier row.

    Attributes:
        name: What it is called.
        column: The column of the earlier row.
        back: How many rows before, from 0 on.
        together: Whether only rows count that entered together with this one, in its group.
    """

    name: str
    column: str
    back: int
    together: bool = False

    def __str__(self) -> str:
        return f"{self.name}={self.column} {self.back} before{' in its batch' * self.together}"


@dataclass(frozen=True, eq=False)
class LookBack(Unary):
    """Rows in windows, with columns of rows that entered before them (Esper: prior; prev of batches).

    The order is that in which rows enter, on turns: by the moment of it, then by `PLACE`. What a row saw when it
    entered stays with it until it leaves. The value is null where fewer rows came before.

    Attributes:
        earlier: The columns.
        group: The columns by which the windows group: rows of other groups are in other batches.
        within: Columns of whose values each combination is looked at by itself.

    Raises:
        PlanError: The rows are not on turns, or a row is asked for that comes later.
    """

    earlier: tuple[Earlier, ...]
    group: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if PLACE not in self.input.schema.names:
            raise PlanError(f"Looking back needs rows on turns, and these have no column {PLACE!r}.", remedy="")
        for each in self.earlier:
            if each.back < 0:
                raise PlanError(f"No row is {each.back} rows before another.", remedy="Give 0 or more.")

    @cached_property
    def schema(self) -> pa.Schema:
        before = self.input.schema
        made = (before.field(each.column).with_name(each.name).with_nullable(True) for each in self.earlier)
        return pa.schema([*before, *made])

    @property
    def most(self) -> int:
        """How many earlier rows it keeps."""
        return max((each.back for each in self.earlier if not each.together), default=0)

    stateless = False

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        # Rows that came before are those of all groups, but for those of a batch.
        group = self.group if all(each.together for each in self.earlier) else ()
        return below[0].by((*group, *self.within), "Looking back at rows of any key")

    def ends(self, at: int) -> Ends:
        return "passed on"

    time_rule = "CTI T leaves as T"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        made = {each.name for each in self.earlier}
        read = [name for name in wanted if name not in made]
        return [
            tuple(dict.fromkeys((*read, PLACE, *self.group, *self.within, *(each.column for each in self.earlier))))
        ]

    def describe(self) -> str:
        group = f" for each {', '.join(self.group)}" if self.group else ""
        within = f" within each {', '.join(self.within)}" if self.within else ""
        return f"LookBack {', '.join(map(str, self.earlier))}{group}{within}"
