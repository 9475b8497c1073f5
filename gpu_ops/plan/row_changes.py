"""What events do to kept rows, one event after the other, in a form that a walk over them takes.

A condition or a value of a pair (an event, a kept row) is a Narwhals expression over the columns of both. What reads
the event alone is a column of the events, made for all of them at once. What reads the kept row, which earlier events
may have changed, is a row program (`gpu_ops.plan.row_programs`) over such columns and the columns of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.plan.expressions import bare_column, column_names
from gpu_ops.plan.nodes import Feed, Project
from gpu_ops.plan.row_programs import RowProgram, RowSlots, program

EVENT_SLOT, KEPT_SLOT = "event", "kept"


@dataclass(frozen=True, eq=False)
class PairValue:
    """A condition or a value of a pair of an event and a kept row: one of three.

    Attributes:
        event: The column of the events that it is.
        kept: The column of the kept row that it is.
        program: What computes it of both.
        cells: For each cell of the program the column of the events, or of the kept row, that it is.
    """

    event: str = ""
    kept: str = ""
    program: RowProgram | None = None
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PairPrograms:
    """All conditions and values of pairs.

    Attributes:
        events: The leaf of the events.
        columns: What is computed of the events alone, by the names of the columns.
        values: The conditions and values, by their names.
    """

    events: Feed
    columns: Mapping[str, nw.Expr]
    values: Mapping[str, PairValue]

    @cached_property
    def computed(self) -> Project | None:
        """The node of the events' columns; None if there are none."""
        made = tuple(value.alias(name) for name, value in self.columns.items())
        return Project(self.events, made, keep=False) if made else None


def pair_programs(expressions: Mapping[str, nw.Expr], pairs: pa.Schema, kept: Mapping[str, str]) -> PairPrograms:
    """The conditions and values of pairs as programs.

    Args:
        expressions: They, by name.
        pairs: The columns of an event and of a kept row side by side.
        kept: The columns of the kept row by what they are called there.

    Raises:
        PlanError: One computes of a kept row what programs do not have.

    Examples:
        >>> pairs = pa.schema([("d.x", pa.int64()), ("w.v", pa.int64())])
        >>> made = pair_programs({"v": nw.col("w.v") + nw.col("d.x"), "x": nw.col("d.x") * 2}, pairs, {"w.v": "v"})
        >>> made.values["v"].cells, made.values["x"].event, list(made.columns)
        (('v', '@cell 0'), '@cell 1', ['@cell 0', '@cell 1'])
    """
    events = Feed(pa.schema([each for each in pairs if each.name not in kept]), (), TICK)
    places = {each.name: (KEPT_SLOT if each.name in kept else EVENT_SLOT, each.name) for each in pairs}
    # What is computed of a kept row is computed in the walk: nobody knows the row before.
    slots = RowSlots(pairs, places, EVENT_SLOT, frozenset({KEPT_SLOT}))
    columns: dict[str, nw.Expr] = {}
    known: dict[str, str] = {}

    def column(value: nw.Expr) -> str:
        name = known.setdefault(repr(value), f"@cell {len(known)}")
        columns[name] = value
        return name

    values: dict[str, PairValue] = {}
    for name, expression in expressions.items():
        bare = bare_column(expression)
        if bare in kept:
            values[name] = PairValue(kept=kept[str(bare)])
        elif kept.keys().isdisjoint(column_names(expression, pairs.names)):
            values[name] = PairValue(event=column(expression))
        else:
            made = program(expression, slots)
            names = (kept.get(str(bare_column(each.value))) or column(each.value) for each in made.cells)
            values[name] = PairValue(program=made, cells=tuple(names))
    return PairPrograms(events, columns, values)
