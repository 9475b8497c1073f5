"""Deliveries of the groups of a window whose rows leave it in the order in which they came: one walk computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import ASK, BATCH_DUE, CLOCK, DUE, PLACE
from gpu_ops.plan.clock_windows import ClockBatches, ClockedWindow, ClockSpan, UntilTick
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.nodes import Ends, Expressions, Filter, Node, Project
from gpu_ops.plan.splits import Split


@dataclass(frozen=True, eq=False)
class WalkedDeliveries(Node):
    """Deliveries of groups over a window of time, without the window: it gives the same rows in one walk.

    Attributes:
        deliveries: What it gives. Its rows are the arrivals.
        window: How long they are in: a span without months, until the first tick so long past their clock; or batches.
        gathering: Whether the content has the groups of the batch that gathers, with the values of the one that is in.
    """

    deliveries: Deliveries
    window: ClockSpan | ClockBatches
    gathering: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.deliveries.inputs

    def over(self, *inputs: Node) -> Node:
        return replace(self, deliveries=self.deliveries.over(*inputs))

    @cached_property
    def schema(self) -> pa.Schema:
        return self.deliveries.schema

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

    def split(self, below: Sequence[Split]) -> Split:
        (rows, *others), window = below, self.window
        if isinstance(window, ClockSpan):
            return self.deliveries.split([rows.seeing(window.ticks), *others])
        rows = rows if window.row_by_row else rows.by((), f"The window {window}")
        return self.deliveries.split([rows.seeing(window.sees), *others])

    time_rule = "CTI T leaves as T"
    held = "what the window holds of keys and of what aggregates read"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        rows, *_ = self.deliveries.needs(wanted)
        names = self.deliveries.rows.schema.names
        return [tuple(name for name in names if name in {*rows, CLOCK}), (CLOCK, ASK)]

    def describe(self) -> str:
        return f"{self.deliveries.describe()} over {self.window}, in one walk"


def in_one_walk(node: Node) -> Node:
    """Deliveries without the window below them where one walk over its rows gives them; every other node as it is.

    The window lasts as long for each row, by the clock that it came at. Groups have integers, texts or other values as
    keys that are equal only to themselves; aggregates are made of counts and exact sums.
    """
    if not isinstance(node, Deliveries) or not _walks(node):
        return node
    above, below = parted(node.rows)
    window = _of_span(below, node) if isinstance(below, UntilTick) else _of_batches(above, below, node)
    if window is None:
        return node
    rows: Node = below.inputs[0]
    for each in reversed(above):
        made = _over_arrivals(each, rows)
        if made is None:
            return node
        rows = made
    what = replace(node, rows=rows, waiting=None, drops=node.drops | {CLOCK, DUE})
    return WalkedDeliveries(what, window, gathering=node.waiting is not None)


def parted(rows: Node) -> tuple[list[Expressions], Node]:
    """The expressions over a window, the highest first, and the window."""
    above = list[Expressions]()
    while isinstance(rows, Expressions):
        above.append(rows)
        rows = rows.input
    return above, rows


def _of_span(window: UntilTick, node: Deliveries) -> ClockSpan | None:
    """How long rows are in a window; None if that differs."""
    own = window.ticks is node.ticks and window.since == CLOCK and node.waiting is None
    return window.span if own and window.span is not None and not window.span.months else None


def _of_batches(above: Sequence[Expressions], window: Node, node: Deliveries) -> ClockBatches | None:
    """The batches of a window of all rows; None of any other window."""
    if not isinstance(window, ClockedWindow) or window.ticks is not node.ticks or node.snapshot is not None:
        return None
    kind, others = window.window, window.group or window.aggregates or window.prior
    if not isinstance(kind, ClockBatches) or kind.runs or kind.span.months or window.output != "alive" or others:
        return None
    if kind.align is None and any(isinstance(each, Filter) for each in above):
        return None  # rows that do not pass begin the grid too
    if node.waiting is not None:
        over, below = parted(node.waiting)
        if not isinstance(below, ClockedWindow) or below.output != "gathering":
            return None
        other = replace(below, output="alive")
        if not _told_alike(over, other, above, window) and (
            _unsaid(over, other).identity != _unsaid(above, window).identity
        ):
            return None
    return kind


def _told_alike(over: Sequence[Expressions], other: ClockedWindow, above: Sequence[Expressions], window: Node) -> bool:
    """Whether windows are seen to be the same, where all above them and below only picks columns, of the same rows.

    To compare whole plans takes a third of the time in which such a statement is planned.
    """

    def told(nodes: Sequence[Expressions], node: ClockedWindow) -> tuple[Any, ...]:
        under, rows = parted(node.input)
        picked = [
            (each.beside, None if each.copies is None else list(each.copies.items())) for each in (*nodes, *under)
        ]
        own = (node.window, node.within, node.order, node.output, node.prior, node.drops)
        return len(nodes), picked, own, id(rows), id(node.ticks)

    assert isinstance(window, ClockedWindow)  # noqa: S101  (callers see to it)
    picks = all(each.copies is not None for each in (*above, *parted(window.input)[0]))
    return picks and not (other.aggregates or window.aggregates) and told(over, other) == told(above, window)


def _unsaid(above: Sequence[Expressions], node: Node) -> Node:
    """A node below some expressions, whatever errors call these."""
    for each in reversed(above):
        own = replace(each, said={}) if isinstance(each, Filter | Project) else each
        node = own.over(node)
    return node


def _walks(node: Deliveries) -> bool:
    """Whether one walk gives what the deliveries are, if their rows leave in the order in which they came."""
    schema = node.rows.schema
    others = node.marks or node.posts or node.momentary or node.passes or (node.touched and node.old)
    if node.per != "group" or len(node.levels) > 1 or others or {CLOCK, DUE} & {*node.schema.names}:
        return False
    if node.snapshot is not None and not node.at_outputs:
        return False
    own = all(each.keys is None and each.life == "alive" for each in node.aggregates)
    sums = all(each.aggregate.keeps(schema) == "sums" for each in node.aggregates)
    return bool(node.aggregates) and own and sums and all(_is_itself(schema.field(name).type) for name in node.keys)


def _is_itself(dtype: pa.DataType) -> bool:
    """Whether equal values are the same: numbers with a point have two zeros."""
    return not (pa.types.is_floating(dtype) or pa.types.is_nested(dtype))


def _over_arrivals(node: Expressions, rows: Node) -> Node | None:
    """The expressions below a window instead of above it; None if they read when rows leave."""
    known = [*node.input.schema.names, "start", "end"]
    if isinstance(node, Filter):
        reads = column_names(node.condition, known)
        return None if {DUE, BATCH_DUE, "end"} & {*reads} else node.over(rows)
    if not isinstance(node, Project):
        return None
    own = [each for each in node.expressions if column_names(each, known) not in ([DUE], [BATCH_DUE])]
    if any({DUE, BATCH_DUE, "end"} & {*column_names(each, known)} for each in own):
        return None
    made = replace(node, input=rows, expressions=tuple(own))
    if not node.keep and CLOCK not in made.schema.names:
        made = replace(made, expressions=(*made.expressions, nw.col(CLOCK)))
    return made if PLACE in made.schema.names else None
