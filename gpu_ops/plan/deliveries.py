"""Deliveries: what a listener is handed as rows enter and leave a window, as a stream of points."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import BATCH_DUE, CLOCK, DUE, ENTERED, GROUPING, IS_NEW, IS_OLD, LEFT, NEW, ORDER, PLACE, ROW
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Ends, Node, Project, selected
from gpu_ops.plan.rates import Rate
from gpu_ops.plan.splits import Split, one_order

Life = Literal["alive", "ever", "left", "window", "remembered", "remembered left", "delivered"]
"""Over which rows an aggregate is: those in the window that pass, those of them that ever entered or ever left, or all
that are in the window, whether they pass or not. Of groups, those that entered or left since the group was made: one
that all rows have left is forgotten as the next row enters any group. Or what is delivered: rows of an outer join that
enter as new rows, less those that leave as old ones, be they others; counts do not go below nothing."""

REMEMBERED: Mapping[Life, Life] = {"ever": "remembered", "left": "remembered left"}
"""The lives of aggregates of groups that forget, by those of others."""

Per = Literal["row", "group"]


@dataclass(frozen=True)
class Delivered:
    """An aggregate of a delivery.

    Attributes:
        aggregate: The aggregate, over plain columns; its name is that of the column.
        keys: The columns by which it groups; None for those of the level.
        life: Over which rows it is.
    """

    aggregate: Aggregate
    keys: tuple[str, ...] | None = None
    life: Life = "alive"

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{self.aggregate}{by}{'' if self.life == 'alive' else f' {self.life}'}"


@dataclass(frozen=True, eq=False)
class Deliveries(Node):
    """New and old rows of each turn (Esper: insert and remove stream), with aggregates over the window's content.

    Attributes:
        rows: Rows in a window, on turns.
        ticks: The ticks, which tell the clock, and where content is asked for.
        per: ``"row"``: a row for each row that enters or leaves, with the aggregates after the turn. ``"group"``: a row
            for each group in which any does, with the aggregates after the turn; the old row has those before it.
        levels: With ``"group"``: the keys of the groups; several where it rolls up, the finest first.
        aggregates: The aggregates. With groups, each level has one over the rows in the window.
        new: Whether it gives new rows.
        old: Whether it gives old rows.
        content: Whether it gives the content where it is asked for.
        marks: Whether it says how many rows each turn moved.
        posts: Places at which the window posts without rows, if it does. If all rows are one group, it has a row then.
        waiting: The rows that are the content, with the columns of the others, where these are not those in the window:
            rows that wait for their batch. Aggregates are of the rows in the window nevertheless.
        momentary: Whether rows are there for their own moment only, so that aggregates begin anew with each.
        drops: Columns that it does not hand on, as nobody reads them.
        snapshot: When the whole content is output, as new rows; then there are no other new and old rows.
        touched: Whether an output has the groups that rows entered or left since the last output, and no others.
        passes: A boolean column: rows for which it holds are delivered and aggregated; None for all rows.
        carried: With ``"group"``: columns of which all rows of a group have the same values, which it hands on.
    """

    rows: Node
    ticks: Node
    per: Per
    levels: tuple[tuple[str, ...], ...] = ((),)
    aggregates: tuple[Delivered, ...] = ()
    new: bool = True
    old: bool = False
    content: bool = False
    marks: bool = False
    snapshot: Rate | None = None
    touched: bool = False
    passes: str | None = None
    posts: Node | None = None
    waiting: Node | None = None
    momentary: bool = False
    drops: frozenset[str] = frozenset()
    carried: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.rows.schema.names
        if PLACE not in names:
            raise ColumnError("Deliveries need rows on turns.", column=PLACE, remedy="Make them on turns.")
        if self.touched and not self.at_outputs:
            raise PlanError(
                "Only groups in a window are output where they were touched.",
                remedy="Take an OutputRate for the others.",
            )
        for delivered in self.aggregates:
            for read in delivered.aggregate.reads:
                if bare_column(read) is None:
                    raise PlanError("An aggregate of deliveries is over plain columns.", remedy="Compute them first.")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.rows, self.ticks, *(each for each in (self.posts, self.waiting) if each is not None))

    def over(self, *inputs: Node) -> Deliveries:
        rows, ticks, *more = inputs
        posts = more.pop(0) if self.posts is not None else None
        return replace(self, rows=rows, ticks=ticks, posts=posts, waiting=more[0] if more else None)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """All columns by which it groups."""
        return tuple(dict.fromkeys(key for level in self.levels for key in level))

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The columns of rows that it hands on."""
        if self.per == "group":
            return (*self.keys, *self.carried)
        special = {CLOCK, PLACE, DUE, BATCH_DUE, IS_NEW, IS_OLD, self.passes, *self.drops}
        return tuple(name for name in self.rows.schema.names if name not in special)

    @property
    def at_outputs(self) -> bool:
        """Whether all that it gives is about its groups at outputs, so that what happens in between happens there."""
        if self.snapshot is None or self.per != "group" or self.momentary:
            return False
        # The places of joined rows do not tell in which order they came.
        in_order = IS_NEW not in self.rows.schema.names or PLACE not in self._grouped
        return in_order and all(each.life in {"alive", "window"} for each in self.aggregates)

    @property
    def lists(self) -> bool:
        """Whether it gives the groups that hold rows, where it is asked or at outputs."""
        return self.per == "group" and (self.content or (self.snapshot is not None and not self.touched))

    @property
    def remembers(self) -> bool:
        """Whether an aggregate is over what groups remember."""
        return any(each.life in {*REMEMBERED.values(), "delivered"} for each in self.aggregates)

    @property
    def when_asked(self) -> bool:
        """Whether it gives no more than the content of groups where it is asked for, of the rows then in the window."""
        lives = {each.life for each in self.aggregates}
        others = self.new or self.old or self.marks or self.snapshot or self.waiting
        return self.per == "group" and not others and lives <= {"alive"}

    @property
    def droppable(self) -> tuple[str, ...]:
        """The columns that it need not hand on."""
        return (CLOCK, DUE) if self.per == "group" else (*self.shown, CLOCK, DUE)

    @cached_property
    def schema(self) -> pa.Schema:
        before = self.rows.schema
        fields = [before.field(name).with_nullable(True) for name in self.shown]
        fields += [each.aggregate.field(before).with_nullable(True) for each in self.aggregates]
        fields += [
            pa.field(name, TIME_TYPE) for name in (CLOCK, DUE) if name in before.names and name not in self.drops
        ]
        if len(self.levels) > 1:
            fields.append(pa.field(GROUPING, pa.int64()))
        fields += [pa.field(ROW, pa.int8()), pa.field(ORDER, pa.int64())]
        if self.marks:
            fields += [pa.field(ENTERED, pa.int64()), pa.field(LEFT, pa.int64())]
        return pa.schema(fields)

    @cached_property
    def duration(self) -> int | None:
        return TICK

    stateless = False

    def ends(self, at: int) -> Ends:
        return "later"

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        rows, *_ = below
        asked = {
            f"The output rate {self.snapshot}": self.snapshot is not None,
            "A window that posts without rows": self.posts is not None,
            "Content that is asked for": self.content,
            "An aggregate over each moment's rows": self.momentary and bool(self.aggregates),
            "An aggregate of groups that are forgotten as a row enters another one": self.remembers,
        }
        for what, there in asked.items():
            if there:
                raise one_order(what)
        levels = self.levels if self.per == "group" else ()
        for level in levels:
            rows = rows.by(level, f"An aggregate{_over(level)}")
        for each in self.aggregates:
            for keys in levels if each.keys is None and levels else (each.keys or (),):
                rows = rows.by(keys, f"{each.aggregate.kind.name}{_over(keys)}")
        shown = [name for name in self.shown if all(name in level for level in levels)]
        return rows.picked({name: name for name in shown}).made()

    time_rule = "CTI T leaves as T"

    collects = True

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        drops = self.drops | (frozenset(self.droppable) - {*wanted})
        read = {PLACE, IS_NEW, IS_OLD, self.passes, *self._grouped, *({CLOCK, DUE, *self.shown} - drops)}
        read |= {DUE} if self.snapshot is not None else set()
        read |= {BATCH_DUE} if DUE in read else set()
        if IS_NEW in self.rows.schema.names:
            read |= {name for name in self.rows.schema.names if name.startswith(f"{PLACE} ")}
        names = tuple(name for name in self.rows.schema.names if name in read)
        rest = [tuple(each.schema.names) for each in (self.ticks, self.posts) if each is not None]
        return [names, *rest, *([names] if self.waiting is not None else [])]

    def lighter(self, wanted: Collection[str]) -> Node:
        made = replace(self, drops=frozenset(self.droppable) - {*wanted})
        if self._gives_arrivals and (rows := self.rows.arriving) is not None:
            kept = [nw.col(name) for name in made.schema.names if name in rows.schema.names]
            own = [nw.lit(NEW, nw.Int8()).alias(ROW), nw.lit(0, nw.Int64()).alias(ORDER)]
            return Project(rows, (*kept, *own), keep=False)
        read = {*made.needs(tuple(wanted))[0]}
        names = [name for name in self.rows.schema.names if name in read]
        waiting = None if self.waiting is None else selected(self.waiting, names)
        return replace(made, rows=selected(self.rows, names), waiting=waiting)

    @property
    def _gives_arrivals(self) -> bool:
        """Whether it gives new rows as they come, and nothing else unless one leaves."""
        others = self.aggregates or self.content or self.marks or self.snapshot or self.posts or self.passes
        return self.per == "row" and self.new and not others

    @property
    def _grouped(self) -> tuple[str, ...]:
        """The columns by which it groups, and those of which it has aggregates."""
        read = [str(bare_column(each)) for delivered in self.aggregates for each in delivered.aggregate.reads]
        keys = [key for delivered in self.aggregates for key in delivered.keys or ()]
        return (*self.keys, *keys, *read)

    def describe(self) -> str:
        sides = " and ".join(
            word for word, there in (("new", self.new), ("old", self.old), ("held", self.content)) if there
        )
        per = self.per if self.levels == ((),) else " and ".join(f"({', '.join(level)})" for level in self.levels)
        aggregates = ", ".join(map(str, self.aggregates))
        if self.snapshot is not None:
            sides = f"{sides if self.touched else 'all content'} {self.snapshot}"
        passes = "" if self.passes is None else f" where {self.passes}"
        return f"Deliveries of {sides} rows per {per}{f' agg {aggregates}' if aggregates else ''}{passes}"


def _over(keys: Sequence[str]) -> str:
    """Over which rows an aggregate is, in words."""
    return " of groups by which its windows are not grouped" if keys else " over all events"
