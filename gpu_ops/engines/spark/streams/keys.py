"""By which columns the events of a live query go to partitions that never need each other's events. Plans, no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpu_ops.engines.spark.streams.clocks import movers
from gpu_ops.errors import PlanError
from gpu_ops.plan.contexts import Instances, check_unnumbered
from gpu_ops.plan.expressions import column_names, output_schema
from gpu_ops.plan.ledger import TURN_NUMBER, AtClock, EventLedger, TurnNumbers
from gpu_ops.plan.nodes import Node, Project
from gpu_ops.plan.splits import Split, matched, one_order, united


@dataclass(frozen=True)
class Partitioning:
    """How events go to partitions.

    Attributes:
        keys: For each input the columns that decide it, in the same order; empty for any way, or if there is one, and
            for an input that does nothing but move the clock.
        alone: Why there is one partition; None if there may be many.
        on_turns: Whether the plan asks what happens at each event: one partition is what its user has to ask for.
        clocks: Whether something waits for the clock, so that many partitions are shown all its moves.
    """

    keys: tuple[tuple[str, ...], ...]
    alone: str | None = None
    on_turns: bool = False
    clocks: bool = False

    @property
    def shown(self) -> str:
        """What decides it, for people."""
        if self.alone is not None:
            return f"one partition{', on request (partitions=1)' * self.on_turns}: {self.alone}"
        names = [", ".join(dict.fromkeys(each)) for each in zip(*filter(None, self.keys), strict=True)]
        by = f"partitions by {'; '.join(names)}" if names else "partitions by start, as no event needs another"
        return by + ", each shown all moves of the clock, which a job before each epoch asks for" * self.clocks


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
    on_turns: set[Node] = {*plan.all(TurnNumbers)}
    asks_of_turns, waits = bool(on_turns), False
    try:
        for each in plan.walk():
            if each in numbers or not (each in on_turns or on_turns.intersection(each.inputs)):
                splits[each] = _split(each, splits, numbers)
                continue
            splits[each] = _split_on_turns(each, splits)
            if not isinstance(each, AtClock):
                on_turns.add(each)
            elif splits[each].spans != frozenset():
                ledgers = [ledger for ledger in each.all(TurnNumbers) if ledger.moves]
                if any(movers(ledger, numbers) is None for ledger in ledgers):
                    raise one_order("What waits for the clock, which other rows than those of the inputs move,")
                waits = waits or bool(ledgers)
        if plan.all(Instances):
            check_unnumbered(plan)
        if asks_of_turns and _shows_turns(plan):
            raise one_order("The column turn, which counts the events of all keys,")
    except PlanError as error:
        return Partitioning((), error.problem.partition(", and Spark")[0], asks_of_turns)
    keys = [dict(each) for each in sorted(map(sorted, splits[plan].keys or ()))]
    return Partitioning(
        tuple(tuple(key[number] for key in keys if number in key) for number in range(len(leaves))),
        on_turns=asks_of_turns,
        clocks=waits,
    )


def _split_on_turns(node: Node, splits: Mapping[Node, Split]) -> Split:
    """How the rows of a node on turns may be split; its partition numbers the turns that it has.

    Raises:
        PlanError: They cannot.
    """
    if isinstance(node, EventLedger) and node.events is not None:
        return replace(splits[node.events], arrive=True)
    return node.split([splits[each] for each in node.inputs])


def _shows_turns(plan: Node) -> bool:
    """Whether any result depends on the numbers of turns."""
    numbers: dict[Node, frozenset[str]] = {}
    for each in plan.walk():
        below = frozenset(name for under in each.inputs for name in numbers[under])
        if isinstance(each, AtClock):
            numbers[each] = frozenset({TURN_NUMBER})
        elif isinstance(each, Project):
            known = each.input.schema
            made = {
                name: not below.isdisjoint(column_names(one, known.names))
                for one in each.expressions
                for name in output_schema(known, (one,), where="select", only_columns=True).names
            }
            stay = below - made.keys() if each.keep else frozenset[str]()
            numbers[each] = stay | {name for name, counts in made.items() if counts}
        elif below and not below.isdisjoint(name for read in each.needs(()) for name in read):
            return True
        else:
            numbers[each] = below.intersection(each.schema.names)
    return bool(numbers[plan])


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
