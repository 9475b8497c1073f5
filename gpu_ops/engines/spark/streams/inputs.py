"""The inputs of a live query on Spark: their CTIs, which are made between epochs, and the plan that partitions run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.errors import PlanError
from gpu_ops.ingest import open_source
from gpu_ops.plan.advance import Advance, AdvanceTime
from gpu_ops.plan.nodes import Node, Source, SparkSource


@dataclass(frozen=True)
class StreamInput:
    """An input of the query.

    Attributes:
        name: What the running query of a partition calls it.
        node: Its leaf in the user's plan: the node at which its time advances, or its source.
        source: Its source.
        settings: How its time advances; None if nothing but the end of the query advances it.
        follows: The number of the input whose CTIs it imports.
    """

    name: str
    node: Node
    source: SparkSource
    settings: Advance | None
    follows: int | None = None

    @property
    def columns(self) -> pa.Schema:
        """The columns of its rows: ``start``, ``end`` if it has ends, and the payload."""
        times = ["start"] if self.source.points else ["start", "end"]
        return pa.schema([*((name, TIME_TYPE) for name in times), *self.source.schema])

    def advanced(self, cti: int | None, latest: int | None, said: int | None = None) -> int | None:
        """Its own CTI after an epoch: that of its rows, or by the rule of `Advance.period` of its latest start.

        Args:
            cti: Its CTI in the epoch.
            latest: The latest start that the epoch brought; None if it brought no row.
            said: The latest CTI among its rows; None if there was none.

        Examples:
            >>> from gpu_ops.plan.advance import Advance
            >>> made = StreamInput("input", None, None, Advance(period=10, delay=2))
            >>> made.advanced(None, 7), made.advanced(5, 14), made.advanced(5, 15), made.advanced(5, 15, 14)
            (5, 5, 13, 14)
        """
        made = self._made(cti, latest)
        return max((each for each in (made, said) if each is not None), default=None)

    def _made(self, cti: int | None, latest: int | None) -> int | None:
        settings = self.settings
        if settings is None or settings.period is None or latest is None:
            return cti
        baseline = MIN_TIME if cti is None else cti
        if settings.snapped:
            baseline -= (baseline - MIN_TIME) % settings.period
        if cti is not None and latest - baseline < settings.period:
            return cti
        made = latest - settings.delay
        if settings.snapped:
            made -= (made - MIN_TIME) % settings.period
        made = min(max(made, MIN_TIME), MAX_TIME - TICK)
        return made if cti is None else max(made, cti)


def advanced(
    inputs: Sequence[StreamInput],
    ctis: Sequence[int | None],
    latest: Sequence[int | None],
    said: Sequence[int | None],
) -> list[int | None]:
    """The CTIs of the inputs after an epoch: their own, and what they import.

    Args:
        inputs: The inputs.
        ctis: Their CTIs in the epoch.
        latest: The latest start that the epoch brought to each; None without rows.
        said: The latest CTI that the rows of each said; None without one.
    """
    own = [each.advanced(*told) for each, *told in zip(inputs, ctis, latest, said, strict=True)]

    def imported(at: int) -> int | None:
        found = [own[at], None if (other := inputs[at].follows) is None else imported(other)]
        return max((each for each in found if each is not None), default=None)

    return [imported(at) for at in range(len(inputs))]


def live_plan(plan: Node) -> tuple[Node, list[StreamInput], list[Node]]:
    """The plan that the running query of each partition runs, over local sources; its inputs, and their leaves there.

    Late rows are judged there, by CTIs that the driver has made: no row makes one.

    Raises:
        PlanError: A frame is a batch; or an input imports CTIs of a stream that the query does not read.
    """
    if not all(each.endless for each in plan.all(SparkSource)):
        raise PlanError(
            "A batch DataFrame is read beside a stream, and a live query takes rows as they come.",
            remedy="Read it as a stream too (spark.readStream); its rows then come in epochs of their own.",
        )
    made: dict[Node, Node] = {}
    bare = {below for each in plan.walk() if not isinstance(each, AdvanceTime) for below in each.inputs} | {plan}
    leaves: list[tuple[Node, SparkSource, AdvanceTime | None]] = []
    for each in plan.walk():
        if isinstance(each, SparkSource):
            made[each] = _local(each)
            leaves += [(each, each, None)] if each in bare else []
        elif isinstance(each, AdvanceTime):
            made[each] = AdvanceTime(made[each.input], Advance(late=each.settings.late, final=each.settings.final))
            leaves += [(each, below, each) for below in each.inputs if isinstance(below, SparkSource)]
        else:
            made[each] = each.over(*(made[below] for below in each.inputs))
    numbers = {node.identity: number for number, (node, _, _) in enumerate(leaves)}
    inputs = []
    for node, source, advance in leaves:
        followed = None if advance is None or advance.follows is None else advance.follows.identity
        if followed is not None and followed not in numbers:
            raise PlanError(
                "advance_with names a stream that the query itself does not read.",
                remedy="On Spark CTIs come from the query's own inputs: read that stream in the query too.",
            )
        inputs.append(
            StreamInput(
                source.name or "input",
                node,
                source,
                None if advance is None else advance.settings,
                None if followed is None else numbers[followed],
            )
        )
    return made[plan], inputs, [made[node] for node, _, _ in leaves]


def _local(source: SparkSource) -> Source:
    """A local source of the same events: their rows are pushed, with the lifetimes that Spark has found."""
    columns = StreamInput("", source, source, None).columns
    opened = open_source(empty_table(columns), start="start", end=None if source.points else "end")
    return Source(opened, source.name)
