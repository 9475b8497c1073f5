"""A batch over much data in memory, in pieces of time: a plan that walks through time takes one after the other.

The plan runs step by step, as a running query does. What a piece makes in between stays in the processor's caches, and
the next one has the same memory, where arrays over all events would each be new to the process: to be given new memory
costs more than most of what is done with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.engines.local.in_order import can_run_in_order
from gpu_ops.operators.events import Events
from gpu_ops.plan.nodes import Node, Source

PIECE = 1 << 18
"""About how many events a piece has."""


def runs_in_pieces(node: Node) -> bool:
    """Whether a plan has a part that walks through time, and more events in memory than a piece has."""
    leaves = [each for each in node.walk() if each.comes_in]
    if not any(each.in_pieces for each in node.walk()) or not can_run_in_order(node):
        return False
    sources = node.all(Source)
    if len(sources) < len(leaves) or any(each.source.marked or each.source.rows is None for each in sources):
        return False
    return sum(each.source.rows or 0 for each in sources) > PIECE


def read_of(node: Node) -> dict[Node, tuple[str, ...]]:
    """The columns that a plan reads of each leaf."""
    wanted: dict[Node, dict[str, None]] = {node: dict.fromkeys(node.schema.names)}
    for each in reversed(tuple(node.walk())):
        for below, names in zip(each.inputs, each.needs(tuple(wanted[each])), strict=True):
            wanted.setdefault(below, {}).update(dict.fromkeys(names))
    return {each: tuple(names) for each, names in wanted.items() if each.comes_in}


def pieces(leaves: Mapping[Node, Events], device: Device) -> Iterator[tuple[dict[Node, list[Events]], int]]:
    """(events of each leaf, CTI): of all leaves those of a time, and the time at which the next piece begins.

    Args:
        leaves: Their events, in order of start.
        device: Where they are.
    """
    most = max(leaves.values(), key=len).start
    count = -(-sum(map(len, leaves.values())) // PIECE)
    ctis = np.unique([int(most[len(most) * at // count]) for at in range(1, count)]).tolist()
    done = dict.fromkeys(leaves, 0)
    for cti in (*ctis, MAX_TIME):
        upto = {each: int(np.searchsorted(events.start, cti)) for each, events in leaves.items()}
        yield {each: [_cut(leaves[each], done[each], at, device)] for each, at in upto.items()}, cti
        done = upto


def _cut(events: Events, low: int, high: int, device: Device) -> Events:
    end = events.end if isinstance(events.end, int) else events.end[low:high]
    return Events(events.start[low:high], end, device.columns.cut(events.frame, low, high), order=events.order)
