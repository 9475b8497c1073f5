"""Deliveries of a join of two windows of time, whose rows leave in the order in which they came, in one walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import ASK, BATCH_DUE, CLOCK, DUE, IS_NEW, IS_OLD, ORDER, PLACE, ROW, of_stream
from gpu_ops.plan.clock_windows import ClockSpan, UntilTick
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.expressions import column_names, names_read, output_schema
from gpu_ops.plan.joins import On
from gpu_ops.plan.nodes import Ends, Expressions, Filter, Node, Project, selected
from gpu_ops.plan.per_delivery import PerDelivery, RowKey
from gpu_ops.plan.splits import Split, matched, one_order
from gpu_ops.plan.turn_joins import TurnJoin
from gpu_ops.plan.walked_deliveries import parted

_SPECIAL = frozenset({PLACE, CLOCK, DUE, BATCH_DUE, IS_NEW, IS_OLD, "start", "end"})

_BY_PLACES = tuple(RowKey(of_stream(PLACE, number)) for number in range(2))


@dataclass(frozen=True, eq=False)
class WalkedJoin(Node):
    """The pairs of rows of two streams with equal keys, while both are in their windows, as they come and as they go.

    The rows of a place and kind are in order of the left rows' places, then of the right rows'.

    Attributes:
        left: The arrivals of the first stream, with ``@place 0`` and ``@clock 0``.
        right: Those of the second one.
        ticks: The moves of the clock, and questions for content.
        on: Pairs of columns that are equal. Null equals nothing.
        spans: How long the rows of each are in: until the first tick so long past their clock; None for ever.
        old: Whether pairs are given as they go, beside those that come.
        content: Whether the pairs are given where content is asked for.
        drops: Columns that it does not hand on.
    """

    left: Node
    right: Node
    ticks: Node
    on: On
    spans: tuple[ClockSpan | None, ClockSpan | None]
    old: bool
    content: bool
    drops: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right, self.ticks

    def over(self, *inputs: Node) -> Node:
        left, right, ticks = inputs
        return replace(self, left=left, right=right, ticks=ticks)

    def columns(self, number: int) -> pa.Schema:
        """The columns of a stream that it hands on."""
        drops = {*self.drops, CLOCK, PLACE, of_stream(CLOCK, number)}
        return pa.schema([each for each in self.inputs[number].schema if each.name not in drops])

    @cached_property
    def schema(self) -> pa.Schema:
        rows = [each.with_nullable(True) for number in range(2) for each in self.columns(number)]
        return pa.schema([*rows, pa.field(ROW, pa.int8()), pa.field(ORDER, pa.int64())])

    @cached_property
    def duration(self) -> int | None:
        return TICK

    stateless = False
    gathers = True
    collects = True

    def ends(self, at: int) -> Ends:
        return "unread"

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    time_rule = "CTI T leaves as T"
    held = "rows that have not left, in order of their keys"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [*(tuple(each.schema.names) for each in (self.left, self.right)), (CLOCK, ASK)]

    def split(self, below: Sequence[Split]) -> Split:
        left, right = (
            rows if span is None else rows.seeing(span.ticks) for rows, span in zip(below, self.spans, strict=False)
        )
        if self.content:
            raise one_order("Content that is asked for")
        names = self.columns(0).names, self.columns(1).names
        what = "A join without an equal column by which its windows are grouped"
        return matched(left, right, self.on, what, names).made()

    def describe(self) -> str:
        on = ", ".join(f"{mine}={other}" for mine, other in self.on)
        spans = " and ".join("all" if span is None else str(span) for span in self.spans)
        kinds = ["new", *["old"] * self.old, *["held"] * self.content]
        return f"Join of {spans} on {on}, {' and '.join(kinds)} rows, in one walk"


def join_in_one_walk(node: Node) -> Node:
    """Deliveries of a join without windows, join and order where one walk gives them; every other node as it is.

    Both windows last as long for each row, by the clock that it came at. What is computed of pairs, and which of them
    pass, stands above the join then.
    """
    if isinstance(node, PerDelivery):
        return _in_order_already(node)
    return _walked(node) if isinstance(node, Deliveries) and _gives_pairs(node) else node


def _gives_pairs(node: Deliveries) -> bool:
    """Whether deliveries give pairs as they come, and maybe as they go, or where they are asked for, and no more."""
    others = node.aggregates or node.marks or node.snapshot or node.posts or node.waiting or node.momentary
    return node.per == "row" and node.new and not others and node.passes is None and node.drops >= {CLOCK, DUE}


def _walked(node: Deliveries) -> Node:
    above, join = parted(node.rows)
    if not isinstance(join, TurnJoin) or len(join.streams) != 2 or join.unidirectional:
        return node
    (how,) = join.further
    sides = [_arrivals(rows, number, node.ticks) for number, rows in enumerate(join.streams)]
    if how.kind != "inner" or not how.on or how.condition is not None or None in sides:
        return node
    (left, first), (right, second) = (side for side in sides if side is not None)
    drops = (join.drops | {each for each in node.drops if not above}) - {PLACE, CLOCK}
    made: Node = WalkedJoin(left, right, node.ticks, how.on, (first, second), node.old, node.content, drops)
    for each in reversed(above):
        over = _over_pairs(each, made)
        if over is None:
            return node
        made = over
    return selected(made, node.schema.names) if {*node.schema.names} <= {*made.schema.names} else node


def _arrivals(rows: Node, number: int, ticks: Node) -> tuple[Node, ClockSpan | None] | None:
    """(a stream's rows as they come, how long they are in); None if that differs, or if they show when they leave."""
    above, window = parted(rows)
    made: Node | None
    if not isinstance(window, UntilTick):
        made = rows.arriving
        return None if made is None or of_stream(CLOCK, number) not in made.schema.names else (made, None)
    span = window.span
    if window.ticks is not ticks or window.since != CLOCK or span is None or span.months or span.ticks <= 0:
        return None
    made = window.arrivals
    for each in reversed(above):
        known = [*each.input.schema.names, "start", "end"]
        if any({DUE, "end"} & {*column_names(read, known)} for read, _ in each.computed):
            return None
        made = each.over(made)
        if isinstance(made, Project) and CLOCK not in made.schema.names:
            # Rows that show the clock that they came at are arrivals: tasks see no more moves of it than these need.
            made = replace(made, expressions=(*made.expressions, nw.col(CLOCK)))
    return (made, span) if of_stream(CLOCK, number) in made.schema.names else None


def _over_pairs(node: Expressions, pairs: Node) -> Node | None:
    """Expressions over pairs that are delivered; None if they read more than the columns of their rows."""
    if isinstance(node, Filter):
        return None if _SPECIAL & {*names_read(node.condition)} else node.over(pairs)
    if not isinstance(node, Project):
        return None
    own = [each for each in node.expressions if not _SPECIAL.issuperset(_made(node, each))]
    if any(_SPECIAL & {*names_read(each)} for each in own):
        return None
    if node.keep:
        return replace(node, input=pairs, expressions=tuple(own)) if own else pairs
    return replace(node, input=pairs, expressions=(*own, nw.col(ROW), nw.col(ORDER)))


def _made(node: Project, expression: nw.Expr) -> list[str]:
    """The names of the columns that an expression of a projection makes."""
    return list(output_schema(node.input.schema, [expression], where="select", only_columns=True).names)


def _in_order_already(node: PerDelivery) -> Node:
    """What is below an order that the rows of a join have already, without the columns of that order."""
    others = node.distinct is not None or node.limit is not None or node.offset
    above, join = parted(node.input)
    if others or node.keys != _BY_PLACES or not isinstance(join, WalkedJoin):
        return node
    places = frozenset(key.column for key in _BY_PLACES)
    made: Node = replace(join, drops=join.drops | places)
    for each in reversed(above):
        if not isinstance(each, Project) or each.keep:
            return node
        own = tuple(one for one in each.expressions if not places.issuperset(_made(each, one)))
        if any(places & {*names_read(one)} for one in own):
            return node
        made = replace(each, input=made, expressions=own)
    return made
