"""Chains of partitions: what a user says of them, and the nodes that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.cycles import WHENEVER, WINDOW, Schedule
from gpu_ops.core.turns import CLOCK
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregates import Aggregate, count
from gpu_ops.plan.combinations import Combinable, Combination
from gpu_ops.plan.cycle_picks import CyclePick, LastMilliseconds, LatestRows
from gpu_ops.plan.cycles import (
    HELD,
    CycleWindow,
    FixedBeats,
    Issued,
    IssuedTotals,
    TimedWindow,
    Total,
    Weighed,
    Weight,
    asked_by,
    beats_of,
    became,
    ticks_of,
)
from gpu_ops.plan.deliveries import Delivered, Deliveries, Life
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.plan.questions import aggregated_rows
from gpu_ops.plan.windows import Snapshot

Becoming = Literal["new", "dead"]
"""What a row of a partition has become in a cycle."""


@dataclass(frozen=True)
class IssuedAggregate:
    """An aggregate of a partition.

    Attributes:
        name: What its column is called.
        aggregate: The aggregate.
        entrance: Whether rows that leave still count (``entrance only``).
        difference: Whether the difference from the value before is issued (``$diff``).
        baseline: What the difference is from instead, where that is always the same number.
        hidden: Whether it is there for the results alone.
        double: Whether it is of numbers as doubles.
    """

    name: str
    aggregate: Combinable
    entrance: bool = False
    difference: bool = False
    baseline: float | None = None
    hidden: bool = False
    double: bool = False

    @property
    def whole(self) -> Combinable:
        """The aggregate, over doubles if it is of doubles."""
        if not self.double or not isinstance(self.aggregate, Aggregate) or self.aggregate.expression is None:
            return self.aggregate
        return replace(self.aggregate, expression=self.aggregate.expression.cast(nw.Float64()))

    def total(self, schema: pa.Schema) -> Total | None:
        """The same as a count or a sum of whole numbers; None if it is none, or is issued as differences."""
        each = self.aggregate
        if not isinstance(each, Aggregate) or self.difference or self.hidden or each.kind.name not in {"count", "sum"}:
            return None
        if each.filter is not None or each.distinct:
            return None
        counts = each.kind.name == "count"
        if each.expression is None:
            return Total(self.name, entrance=self.entrance) if counts else None
        column = bare_column(each.expression)
        if column not in schema.names or not (counts or pa.types.is_signed_integer(schema.field(column).type)):
            return None
        return Total(self.name, column, counts, self.entrance, self.double and not counts)


@dataclass(frozen=True)
class Stage:
    """A partition of a chain.

    Attributes:
        pick: What a window keeps.
        key: The columns that have a window for each combination of their values.
        takes: What rows of the partition before must have become; the first one takes what comes.
        where: Conditions on these.
        aggregates: Its aggregates; without any it shows its rows.
        results: Of some aggregates what is made of them before they are compared, by names, over the aggregates.
        pinned: Whether empty windows stay (``pinned``).
    """

    pick: CyclePick
    key: tuple[str, ...] = ()
    takes: Becoming = "new"
    where: tuple[nw.Expr, ...] = ()
    aggregates: tuple[IssuedAggregate, ...] = ()
    results: tuple[tuple[str, nw.Expr], ...] = ()
    pinned: bool = False

    def totals(self, schema: pa.Schema) -> tuple[Total, ...] | None:
        """Its aggregates, if all are counts and sums of whole numbers, of which nothing else is made."""
        made = [each.total(schema) for each in self.aggregates]
        return None if self.results or None in made else tuple(each for each in made if each is not None)


@dataclass(frozen=True, eq=False)
class Chain:
    """Partitions one behind the other.

    Attributes:
        source: What comes to the first one: points at cycles.
        stages: The partitions.
        schedule: When the query may run.
        weight: What a row of the source weighs: the query runs when all that have come weigh one.
    """

    source: Node
    stages: tuple[Stage, ...]
    schedule: Schedule = WHENEVER
    weight: float = 1.0

    def __post_init__(self) -> None:
        for at, (stage, behind) in enumerate(pairwise(self.stages)):
            asks = any(each.pick.asks for each in self.stages[at + 1 :])
            if isinstance(stage.pick, LatestRows) and asks and (stage.aggregates or behind.takes == "dead"):
                raise PlanError(
                    "Each cycle expels what latest keeps, and the partitions behind it make cycles run: what they take "
                    "would depend on themselves.",
                    remedy="Take new rows of it, without aggregates, or highest or lowest behind it.",
                )


def rows_of(chains: Sequence[Chain], until: int | None = None) -> tuple[tuple[Node, ...], Node]:
    """The rows of the last partition of each chain, and the cycles of a query over all of them.

    Args:
        chains: The chains, of one schedule.
        until: The last millisecond at which a query that runs at fixed times runs; None for the last at which anything
            happens.
    """
    chains = _weighed(chains)
    alone = [_built(chain, None) for chain in chains]
    points = [point for each in alone for point in each.points]
    beats = beats_of(*dict.fromkeys(points))
    if chains[0].schedule.every:
        beats = FixedBeats(beats, chains[0].schedule, until)
    made = [_built(chain, beats) if _expels_all(chain) else each for chain, each in zip(chains, alone, strict=True)]
    return tuple(each.rows for each in made), beats


def _weighed(chains: Sequence[Chain]) -> Sequence[Chain]:
    """The same, whose sources give rows where the query takes them."""
    if all(chain.weight >= 1 for chain in chains) or chains[0].schedule.every:
        return chains
    weights = []
    for chain in chains:
        first, *others = (each.pick for each in chain.stages)
        spans = [each for each in others if isinstance(each, LastMilliseconds)]
        if spans or (isinstance(first, LastMilliseconds) and first.most is not None):
            raise PlanError(
                "Where rows weigh less than one, the query has to know when the time of others is up before it takes "
                "them: it does of windows of time on streams, without most.",
                remedy="Let each row weigh one, or leave the other windows of time out.",
            )
        span = first.span if isinstance(first, LastMilliseconds) else None
        weights.append(Weight(chain.weight, span, first.stamp if isinstance(first, LastMilliseconds) else CLOCK))
    parts = tuple(chain.source for chain in chains)
    return [
        replace(chain, source=Weighed(parts, tuple(weights), at, chain.schedule)) for at, chain in enumerate(chains)
    ]


@dataclass(frozen=True)
class _Built:
    rows: Node
    points: tuple[Node, ...]


def _expels_all(chain: Chain) -> bool:
    return any(isinstance(stage.pick, LatestRows) for stage in chain.stages)


def _built(chain: Chain, beats: Node | None) -> _Built:
    node, points = chain.source, [chain.source]
    for at, stage in enumerate(chain.stages):
        if at:
            node = became(node, stage.takes)
        for condition in stage.where:
            node = Filter(node, condition)
        of_all = beats if isinstance(stage.pick, LatestRows) else None
        # Other aggregates need the number of each row's window.
        timed = TimedWindow.takes(stage.pick) and stage.totals(node.schema) is not None
        kind = TimedWindow if timed else CycleWindow
        window = kind(node, stage.pick, stage.key, chain.schedule, stage.pinned, of_all)
        points += asked_by(window)
        node = aggregated(window, stage, ticks_of(node)) if stage.aggregates else window
    return _Built(node, tuple(points))


def aggregated(window: CycleWindow, stage: Stage, ticks: Node) -> Node:
    """The rows of a partition's aggregates.

    Raises:
        ColumnError: Two columns have one name, a column is unknown, or an aggregate does not take its type.
        PlanError: An aggregate reads lifetimes.
    """
    names = [*stage.key, *(each.name for each in stage.aggregates)]
    for name in names:
        if names.count(name) > 1:
            raise ColumnError("Two columns of a partition have this name.", column=name, remedy="Name one otherwise.")
    totals = stage.totals(window.schema)
    if totals is not None:
        return IssuedTotals(window, stage.key, totals, window.schedule, stage.pinned)
    rows, made, parts = aggregated_rows(window, {each.name: each.whole for each in stage.aggregates})
    lives: list[Life] = []
    for each in stage.aggregates:
        given = each.whole.within(Snapshot())
        lives += ["ever" if each.entrance else "alive"] * (len(given.parts()) if isinstance(given, Combination) else 1)
    delivered = [replace(part, life=life) for part, life in zip(parts, lives, strict=True)]
    every = Deliveries(
        rows,
        ticks,
        "group",
        ((WINDOW,),),
        (*delivered, Delivered(replace(count(), name=HELD))),
        drops=frozenset({CLOCK}),
        carried=stage.key,
    )
    shown = [each.name for each in stage.aggregates if not each.hidden]
    own = [nw.col(name) for name in (*stage.key, WINDOW)]
    results = [made[each.name].alias(each.name) for each in stage.aggregates]
    values: Node = Project(every, (*own, nw.col(HELD).fill_null(0), *results), keep=False)
    if stage.results:
        finished = (value.alias(name) for name, value in stage.results)
        values = Project(extended(values, finished), (*own, nw.col(HELD), *map(nw.col, shown)), keep=False)
    differences = tuple((each.name, each.baseline) for each in stage.aggregates if each.difference)
    return Issued(values, stage.key, tuple(shown), differences, window.schedule, stage.pinned)
