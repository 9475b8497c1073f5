"""Fragments: the nodes of a plan that one pass through Python workers runs, between two shuffles. Plans, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.plan.nodes import Feed, Node

ONE = pa.schema([("one", pa.bool_())])
"""The payload of events of which workers need no column."""


@dataclass(frozen=True, eq=False)
class Fragment:
    """Nodes that a worker runs on all events that agree in some columns.

    Attributes:
        inputs: The nodes below it, which Spark computes first: one, or a left and a right one.
        nodes: The nodes that workers run, the lowest first.
        partition: The columns of the (left) input that decide which task an event goes to; none for a single task.
    """

    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    partition: tuple[str, ...]

    @property
    def input(self) -> Node:
        """The first input."""
        return self.inputs[0]

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...]:
        """For each input the columns that decide which task an event goes to."""
        if len(self.inputs) < 2:
            return (self.partition,)
        matched = self.nodes[0].matched
        right = dict(zip(*matched, strict=True)) if matched else {}
        return self.partition, tuple(right[name] for name in self.partition)

    @property
    def keeps(self) -> tuple[bool, ...]:
        """For each input, whether its events with a null key give results."""
        first = self.nodes[0]
        kept = first.alone if first.matched else (True,) * len(first.inputs)
        return kept if len(self.inputs) == len(kept) else (any(kept),)

    def plan(self, schema: pa.Schema | None = None) -> Node:
        """The nodes over a `Feed` for each input, as `gpu_ops.engines.local.engine.run_fragment` takes them.

        Args:
            schema: The payload of a single input, if not all of it.
        """
        first = self.nodes[0]
        if len(first.inputs) < 2:
            return over_feed(self.input, self.nodes, schema)
        feeds = [Feed(each.schema, each.key, each.duration) for each in self.inputs]
        if len(feeds) > 1 and first.ends(1) == "unread":
            feeds[1] = replace(feeds[1], length=TICK)
        return _stacked(first.over(feeds[0], feeds[-1]), self.nodes[1:])


def over_feed(below: Node, nodes: Sequence[Node], schema: pa.Schema | None = None) -> Node:
    """Nodes over a `Feed` that stands for what is below them; its payload is ``schema``, if not all of it."""
    return _stacked(Feed(below.schema if schema is None else schema, below.key, below.duration), nodes)


def _stacked(plan: Node, nodes: Sequence[Node]) -> Node:
    for node in nodes:
        plan = node.over(plan)
    return plan


def fragment(node: Node, apart: Callable[[Node], bool] = lambda _: False) -> Fragment:
    """The fragment whose last node is a window, a stitch or a join: as many nodes below it as one shuffle serves.

    Args:
        node: The node.
        apart: Whether a node shares its fragment with no other node that gathers, nor its inputs with each other.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = g.events(pa.table({"at": [0], "item": ["a"], "price": [3]}), start="at", unit="s").by("item")
        >>> busy = bids.sliding("1min").agg(n=g.count()).by("item").tumbling("1h").agg(most=g.max("n"))
        >>> [type(each).__name__ for each in fragment(busy._node).nodes], fragment(busy._node).partition
        (['WindowAggregate', 'KeyBy', 'Project', 'WindowAggregate'], ('item',))
    """
    if len(node.inputs) > 1:
        return Fragment(_distinct_inputs(node, apart), (node,), node.together)
    lowered = node.lowered()
    (source,) = lowered.inputs
    between, below = gathering_below(source)
    if below.gathers and not apart(node) and not apart(below):
        shared = fragment(below, apart)
        partition = _shared_partition(shared, between, node.together)
        if partition is not None:
            return Fragment(shared.inputs, (*shared.nodes, *between, lowered), partition)
    return Fragment((source,), (lowered,), node.together)


def gathering_below(node: Node) -> tuple[list[Node], Node]:
    """The nearest node that does more than handle each event of one input: this one, or one below it.

    Returns:
        The nodes above it, the lowest first, and the node itself.
    """
    above: list[Node] = []
    while len(node.inputs) == 1 and not node.gathers:
        above.insert(0, node)
        (node,) = node.inputs
    return above, node


def _distinct_inputs(node: Node, apart: Callable[[Node], bool]) -> tuple[Node, ...]:
    """The inputs of a node that has several. A stream matched with itself by the same columns is one input."""
    matches_itself = len({*node.inputs}) == 1 and len({*node.matched}) < 2
    return node.inputs[:1] if matches_itself and not apart(node) else node.inputs


def _shared_partition(below: Fragment, between: Sequence[Node], wanted: Sequence[str]) -> tuple[str, ...] | None:
    """The columns that partition a fragment so that another node can join it; None where there are none.

    Args:
        below: The fragment.
        between: The nodes between it and the other node. They must leave these columns as they are.
        wanted: The columns that the events which the other node needs together agree in.
    """
    kept = tuple(name for name in below.partition if name in wanted and all(each.keeps(name) for each in between))
    if kept == below.partition:
        return kept
    # Fewer columns do only for nodes that compare whole events, such as a stitch.
    return kept if kept and all(each.takes_part for each in below.nodes) else None


def ways(part: Fragment, *, spread: bool) -> list[str]:
    """How the events of a fragment are partitioned, in words.

    Args:
        part: The fragment.
        spread: Whether events without a key may go to any task.
    """
    two = len(part.inputs) > 1
    sides = "one DataFrame of both sides' rows, " if two else ""
    workers = "then one mapInArrow with the local engine"
    if not part.partition:
        return [f"Spark: {sides}one task, as there is no key: repartition(1), {workers}"]
    lines = [f"Spark: {sides}one repartition by {', '.join(part.partition)}, {workers}"]
    for kept, what in ((False, "left out first"), (True, "in any task")):
        names = [name for name, keeps in zip(("left", "right"), part.keeps, strict=False) if keeps is kept]
        if names and (spread or not kept):
            lines.append(f"events without a key: {what}" + (f" ({' and '.join(names)})" if two else ""))
    return lines


def read_columns(plan: Node) -> dict[Node, tuple[str, ...]]:
    """For each node of a plan, which of its columns the nodes above it or the answer read."""
    read: dict[Node, set[str]] = {}

    def visit(node: Node, wanted: Sequence[str]) -> None:
        before = read.get(node)
        if before is not None and before >= set(wanted):
            return
        read[node] = (before or set()) | set(wanted)
        names = _in_order(node, read[node])
        for below, needed in zip(node.inputs, node.needs(names), strict=True):
            visit(below, needed)

    visit(plan, plan.schema.names)
    return {node: _in_order(node, names) for node, names in read.items()}


def needed(part: Fragment, read: Mapping[Node, tuple[str, ...]]) -> list[tuple[pa.Schema, set[str]]]:
    """For each input of a fragment the payload that workers need, and the columns of it that they only count.

    Of a counted column only its nulls matter, so it passes as BOOLEAN.

    Args:
        part: The fragment.
        read: As `read_columns` gives it.
    """
    first = part.nodes[0]
    if len(first.inputs) == 1 and first.handed == "all":
        return [(part.input.schema, set())]
    # A lowered node is not in the plan, and needs the same columns for any answer.
    names = [set(each) for each in first.needs(read.get(first, ()))]
    if len(first.inputs) == 1 and not names[0]:
        return [(ONE, set())]
    if len(part.inputs) < len(names):
        names = [names[0] | names[1]]
    counted = first.counted
    return [
        (
            pa.schema(
                pa.field(field.name, pa.bool_()) if field.name in counted else field
                for field in each.schema
                if field.name in wanted
            ),
            counted,
        )
        for each, wanted in zip(part.inputs, names, strict=True)
    ]


def _in_order(node: Node, names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in node.schema.names if name in names)
