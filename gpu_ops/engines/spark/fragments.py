"""Which part of a plan one pass through Python workers does: the pieces between two shuffles. Plans only, no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from gpu_ops.plan.expressions import bare_column, output_schema
from gpu_ops.plan.lifetimes import Stitch
from gpu_ops.plan.nodes import Feed, Node, Project, Unary
from gpu_ops.plan.windows import WindowAggregate


@dataclass(frozen=True, eq=False)
class Fragment:
    """Nodes that a worker runs on all events that agree in some columns.

    Attributes:
        input: What Spark itself computes before it.
        nodes: What workers run, the first one first.
        partition: The columns of ``input`` that decide which task an event goes to; none for a single task.
    """

    input: Node
    nodes: tuple[Unary, ...]
    partition: tuple[str, ...]

    def plan(self, schema: pa.Schema) -> Node:
        """The nodes over a `Feed` of a payload, as `gpu_ops.engines.local.run_fragment` takes them."""
        return over_feed(self.input, self.nodes, schema)


def over_feed(below: Node, nodes: Sequence[Unary], schema: pa.Schema | None = None) -> Node:
    """Nodes over a `Feed` that stands for what is below them; its payload is ``schema``, if not all of it."""
    plan: Node = Feed(below.schema if schema is None else schema, below.key, below.duration)
    for node in nodes:
        plan = replace(node, input=plan)
    return plan


def gathers(node: Node) -> bool:
    """Whether a node needs all events of a group at once."""
    return isinstance(node, WindowAggregate | Stitch)


def fragment(node: Unary) -> Fragment:
    """The fragment whose last node is a window or a stitch, as far down as one shuffle reaches.

    A window joins the fragment of the one below it when it groups by the columns that decide the task already, perhaps
    by more, and nothing between the two changes them. A stitch needs events of equal payload together, so any columns
    of the payload will do: it takes those that the node above it groups by.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = g.events(pa.table({"at": [0], "item": ["a"], "price": [3]}), start="at", unit="s").by("item")
        >>> busy = bids.sliding("1min").agg(n=g.count()).by("item").tumbling("1h").agg(most=g.max("n"))
        >>> [type(each).__name__ for each in fragment(busy._node).nodes], fragment(busy._node).partition
        (['WindowAggregate', 'KeyBy', 'Project', 'WindowAggregate'], ('item',))
    """
    lowered = node.lowered() if isinstance(node, WindowAggregate) else node
    wanted = node.group if isinstance(node, WindowAggregate) else tuple(node.schema.names)
    between: list[Unary] = []
    below = lowered.input
    while isinstance(below, Unary) and not gathers(below):
        between.insert(0, below)
        below = below.input
    if isinstance(below, Unary):
        inner = fragment(below)
        kept = tuple(name for name in inner.partition if name in wanted and all(_keeps(each, name) for each in between))
        only_stitches = not any(isinstance(each, WindowAggregate) for each in inner.nodes)
        if kept == inner.partition or (kept and only_stitches):
            return Fragment(inner.input, (*inner.nodes, *between, lowered), kept)
    return Fragment(lowered.input, (lowered,), wanted)


def _keeps(node: Unary, name: str) -> bool:
    """Whether a column comes out of a node as it went in."""
    if not isinstance(node, Project):
        return True
    if any(bare_column(expression) == name for expression in node.expressions):
        return True
    made = output_schema(node.input.schema, node.expressions, where="select", only_columns=True)
    return node.keep and name not in made.names
