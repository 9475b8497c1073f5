"""A plan whose deliveries carry what is read of them, and no other columns."""

from __future__ import annotations

from dataclasses import replace

from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.nodes import Node, selected


def lean(plan: Node) -> Node:
    """The same plan, without the columns of deliveries that nobody reads, and without those of the rows below."""
    wanted: dict[Node, set[str]] = {plan: set(plan.schema.names)}
    nodes = tuple(plan.walk())
    for node in reversed(nodes):
        for below, names in zip(node.inputs, node.needs(tuple(sorted(wanted[node]))), strict=True):
            wanted.setdefault(below, set()).update(names)
    made: dict[Node, Node] = {}
    for node in nodes:
        inputs = tuple(made[each] for each in node.inputs)
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        other = node if same else node.over(*inputs)
        made[node] = _leaner(other, wanted[node]) if isinstance(other, Deliveries) else other
    return made[plan]


def _leaner(node: Deliveries, wanted: set[str]) -> Deliveries:
    """Deliveries with the columns that are read of them."""
    lighter = replace(node, drops=frozenset(node.droppable) - wanted)
    read = set(lighter.needs(())[0])
    return replace(lighter, rows=selected(node.rows, [name for name in node.rows.schema.names if name in read]))
