"""By which columns the events of a live query go to partitions that never need each other's events. Plans, no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_ops.errors import PlanError
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.plan.splits import Split, matched, united


@dataclass(frozen=True)
class Partitioning:
    """How events go to partitions.

    Attributes:
        keys: For each input the columns that decide it, in the same order; empty for any way, or if there is one.
        alone: Why there is one partition; None if there may be many.
    """

    keys: tuple[tuple[str, ...], ...]
    alone: str | None = None

    @property
    def shown(self) -> str:
        """What decides it, for people."""
        if self.alone is not None:
            return f"one partition: {self.alone}"
        names = [", ".join(dict.fromkeys(each)) for each in zip(*self.keys, strict=True)]
        return f"partitions by {'; '.join(names)}" if names else "partitions by start, as no event needs another"


def partitioning(plan: Node, leaves: Sequence[Node]) -> Partitioning:
    """How the events of a plan may go to partitions.

    Args:
        plan: The plan.
        leaves: Where its inputs come in, by their numbers.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = g.events(pa.table({"at": [0], "item": ["a"], "price": [3]}), start="at", unit="s")
        >>> best = bids.by("item").tumbling("1min").agg(best=g.max("price"))
        >>> partitioning(best._node, [bids._node]).keys
        (('item',),)
        >>> print(partitioning(best.tumbling("1h").agg(n=g.count())._node, [bids._node]).shown)
        one partition: Window tumbling size=1h agg n=count() needs all events in one order
    """
    numbers = {leaf: number for number, leaf in enumerate(leaves)}
    splits: dict[Node, Split] = {}
    try:
        for each in plan.walk():
            splits[each] = _split(each, splits, numbers)
    except PlanError as error:
        return Partitioning((), error.problem.partition(", and Spark")[0])
    keys = [dict(each) for each in sorted(map(sorted, splits[plan].keys or ()))]
    return Partitioning(tuple(tuple(key[number] for key in keys) for number in range(len(leaves))))


def _split(node: Node, splits: Mapping[Node, Split], numbers: Mapping[Node, int]) -> Split:
    """How the rows of a node may be split among partitions.

    Raises:
        PlanError: They cannot: it needs all of them together.
    """
    if node in numbers:
        return Split.of_stream(numbers[node], node.schema.names)
    below = [splits[each] for each in node.inputs]
    if not below:  # a source below the leaf at which its time advances
        return Split()
    what = node.explained()
    if node.gathers and len(below) > 1:
        pairs = list(zip(*node.matched, strict=True))
        return matched(below[0], below[1], [(left, right) for left, right in pairs], what, (node.together, ()))
    if node.gathers:
        kept = [name for name in node.together if name in node.schema.names]
        return below[0].by(node.together, what).picked({name: name for name in kept})
    if len(below) > 1:
        return united(below, what)
    if isinstance(node, Project):  # it may give a column another name
        return node.split(below)
    return below[0].picked({name: name for name in node.schema.names if node.keeps(name)})
