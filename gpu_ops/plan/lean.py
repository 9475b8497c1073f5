"""A plan whose deliveries and windows carry what is read of them, and no more; some are one walk over their rows."""

from __future__ import annotations

from gpu_ops.plan.nodes import Node
from gpu_ops.plan.walked_deliveries import in_one_walk
from gpu_ops.plan.walked_joins import join_in_one_walk


def lean(plan: Node) -> Node:
    """The same plan, without the columns of deliveries and windows that nobody reads, and those of the rows below.

    Deliveries that one walk over a window's rows gives are `WalkedDeliveries`, those of two windows' rows `WalkedJoin`.
    """
    wanted: dict[Node, set[str]] = {plan: set(plan.schema.names)}
    nodes = tuple(plan.walk())
    for node in reversed(nodes):
        for below, names in zip(node.inputs, node.needs(tuple(sorted(wanted[node]))), strict=True):
            wanted.setdefault(below, set()).update(names)
    made: dict[Node, Node] = {}
    for node in nodes:
        inputs = tuple(made[each] for each in node.inputs)
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        made[node] = join_in_one_walk(in_one_walk((node if same else node.over(*inputs)).lighter(wanted[node])))
    return made[plan]
