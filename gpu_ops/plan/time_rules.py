"""How a CTI passes each node: what a node promises of its results, given what was promised of its events."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from gpu_ops.plan.advance import AdvanceTime, Late
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.expressions import LIFETIME, column_names
from gpu_ops.plan.fills import Fill
from gpu_ops.plan.joins import Binary, ClipBy, Join, Union
from gpu_ops.plan.lifetimes import (
    AlterLifetime,
    HopLifetime,
    Lifetime,
    Quantize,
    Shift,
    Stitch,
)
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.windows import WindowAggregate
from gpu_ops.time import MAX_TIME, MIN_TIME, format_span


def time_rule(node: Node) -> str:
    """A node's rule in a few words, as `explain` shows it.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> s = g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")
        >>> time_rule(s.shift("5s")._node)
        'CTI T leaves as T + 5s'
    """
    if isinstance(node, AdvanceTime):
        return "CTIs are made and late events judged here"
    if isinstance(node, Late):
        return "no CTI before the end: what is late can be as late as it likes"
    if isinstance(node, WindowAggregate | DataWindow):
        return _window_rule(node)
    if isinstance(node, Fill):
        if node.span is None:
            return "CTI T leaves as T, or as the start of the first window that some group may yet have empty"
        return "CTI T leaves as T, or as the start of the span while it is being filled"
    if isinstance(node, Stitch):
        return "CTI T leaves as T, or as the start of the oldest event that may still go on"
    if isinstance(node, Union):
        return "the oldest CTI of all inputs leaves"
    if isinstance(node, Join) and (any(node.alone) or not node.pairs):
        return "the older CTI of both inputs leaves, or the start of the oldest piece that may still go on"
    if isinstance(node, ClipBy):
        return "the older CTI of both inputs leaves, or the start of the oldest event that has not ended by then"
    if isinstance(node, Binary):
        return "the older CTI of both inputs leaves"
    if isinstance(node, Lifetime):
        if isinstance(node.change, AlterLifetime) and node.change.start is not None:
            if depends_on_start_alone(node):
                return "CTI T leaves as the new start of an event at T; an earlier new start is then an error"
            return "no CTI before the end: a new start can be anywhere"
        return _change_rule(node.change)
    return "CTI T leaves as T"


def _window_rule(node: WindowAggregate | DataWindow) -> str:
    if isinstance(node, WindowAggregate):
        return node.window.time_rule
    return node.window.time_rule(node.output)


@singledispatch
def _change_rule(change: Any) -> str:
    del change
    return "CTI T leaves as T"


@_change_rule.register
def _(change: Shift) -> str:
    sign = "+" if change.by >= 0 else "-"
    return f"CTI T leaves as T {sign} {format_span(abs(change.by))}"


@_change_rule.register
def _(change: HopLifetime) -> str:
    return f"CTI T leaves as T rounded up to the grid of {format_span(change.hop)}"


@_change_rule.register
def _(change: Quantize) -> str:
    return f"CTI T leaves as T rounded down to the grid of {format_span(change.progress or change.hop)}"


def depends_on_start_alone(node: Lifetime) -> bool:
    """Whether a new start is computed from the start and nothing else, so that a CTI can go the same way."""
    change = node.change
    if not isinstance(change, AlterLifetime) or change.start is None:
        return False
    return column_names(change.start, [*node.input.schema.names, *LIFETIME]) == ["start"]


def moved_cti(change: Any, cti: int) -> int | None:
    """The CTI after a change of lifetime that needs no expression; None after one that does."""
    if cti in {MIN_TIME, MAX_TIME}:
        return cti
    if isinstance(change, Shift):
        moved = cti + change.by
    elif isinstance(change, HopLifetime):
        moved = -((change.align - cti) // change.hop) * change.hop + change.align
    elif isinstance(change, Quantize):
        grid = change.progress or change.hop
        moved = (cti - change.align) // grid * grid + change.align
    elif isinstance(change, AlterLifetime) and change.start is not None:
        return None
    else:
        moved = cti
    return max(MIN_TIME, min(MAX_TIME, moved))
