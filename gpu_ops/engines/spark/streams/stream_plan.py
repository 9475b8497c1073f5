"""A plan over streams, made ready to run in epochs: its rows in one frame, and in which partition each is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.arrow_buffers import integers
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.engines.spark.session import check_sessions
from gpu_ops.engines.spark.sides import Slots, shared_slots
from gpu_ops.engines.spark.source import CTI, FAULT
from gpu_ops.engines.spark.streams.clocks import Clock, Moves, with_clocks
from gpu_ops.engines.spark.streams.inputs import StreamInput, live_plan
from gpu_ops.engines.spark.streams.keys import Partitioning, partitioning
from gpu_ops.engines.spark.streams.task import INPUT, SHARD
from gpu_ops.engines.spark.type_codecs import encoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import column, filled, to_timestamp
from gpu_ops.plan.nodes import Filter, Node, SparkSource


@dataclass(frozen=True)
class StreamPlan:
    """A plan over streams, made ready to run in epochs.

    Attributes:
        plan: The plan, over local sources.
        inputs: Its inputs.
        partitioning: How events go to partitions.
        clocks: The clocks whose moves partitions are shown.
    """

    plan: Node
    inputs: Sequence[StreamInput]
    partitioning: Partitioning
    clocks: Sequence[Clock] = ()
    _nothing: dict[int | None, DataFrame] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, node: Node, *, alone: bool = False) -> StreamPlan:
        """The plan of a user.

        Args:
            node: What the user wrote.
            alone: Whether it runs in one partition.

        Raises:
            PlanError: No query of this kind runs in epochs.
        """
        plan, inputs, leaves = live_plan(node)
        check_sessions([each.source.frame for each in inputs])
        cut = partitioning(node, [each.node for each in inputs])
        plan, clocks = with_clocks(plan, leaves) if cut.clocks and not alone else (plan, [])
        return cls(plan, inputs, cut, clocks)

    @property
    def session(self) -> SparkSession:
        """The session of the first input, in which all runs."""
        session: SparkSession = self.inputs[0].source.frame.sparkSession
        return session

    @property
    def columns(self) -> tuple[pa.Schema, ...]:
        """For each input the columns of its rows."""
        return tuple(each.columns for each in self.inputs)

    @property
    def payloads(self) -> tuple[pa.Schema, ...]:
        """For each input its payload."""
        return tuple(each.source.schema for each in self.inputs)

    @property
    def slots(self) -> Slots:
        """The columns in which the rows of all inputs come to tasks."""
        return shared_slots(self.payloads, self.partitioning.keys or ((),) * len(self.inputs))

    @property
    def _times(self) -> list[str]:
        return ["start"] if all(each.source.points for each in self.inputs) else ["start", "end"]

    def rows(self) -> DataFrame:
        """The rows of all inputs as one streaming DataFrame, so that an epoch has rows of each."""
        slots, sides = self.slots, []
        for number, each in enumerate(self.inputs):
            names = [slots.places[number][name] for name in encoded_schema(each.source.schema).names]
            payload = dict(zip(names, encoded_columns(each.source.schema), strict=True))
            ends = F.lit(None).cast("timestamp").alias("end") if each.source.points else column("end")
            times = [column("start"), *([ends] if len(self._times) > 1 else [])]
            mark = [F.lit(number).alias(INPUT)] if len(self.inputs) > 1 else []
            rest = [*filled(slots.schema, payload), *self._beside(each)]
            sides.append(each.source.frame.select(*mark, *times, *rest))
        united: DataFrame = reduce(DataFrame.union, sides)
        return united

    def _beside(self, of: StreamInput | None = None) -> list[Column]:
        """The columns of rows that are no events: what was dropped, and CTIs; those that one of all inputs has."""
        own = set() if of is None else {of.source.faults, of.source.ctis}
        there = {name for each in self.inputs for name in (each.source.faults, each.source.ctis)}
        kinds = {name: kind for name, kind in ((FAULT, "string"), (CTI, "timestamp")) if name in there}
        null = F.lit(None)
        return [column(name) if name in own else null.cast(kind).alias(name) for name, kind in kinds.items()]

    def nothing(self, session: SparkSession, shards: int | None = None) -> DataFrame:
        """A row of no input. With it there are as many tasks as partitions, whatever Spark finds in an epoch.

        It is made once: Spark would take 30 ms to analyse it in each epoch.

        Args:
            session: The session.
            shards: How many shards there are, for a row of each; None for one row that tells of none.
        """
        if shards in self._nothing:
            return self._nothing[shards]
        mark = [F.lit(-1).alias(INPUT)] if len(self.inputs) > 1 else []
        times = [F.lit(None).cast("timestamp").alias(name) for name in self._times]
        shard = [] if shards is None else [F.col("id").cast("int").alias(SHARD)]
        some: DataFrame = session.range(1 if shards is None else shards, numPartitions=1)
        self._nothing[shards] = some.select(*mark, *times, *filled(self.slots.schema, {}), *self._beside(), *shard)
        return self._nothing[shards]

    def moves(self, rows: DataFrame, ctis: Sequence[int | None]) -> Moves:
        """The times of an epoch's events that are not late, for each clock: a job of its own.

        Args:
            rows: The rows of the epoch.
            ctis: The CTI of each input.
        """
        found = []
        for clock in self.clocks:
            times = [self._moving(number, ctis[number]) for number in clock.of]
            if len(self.inputs) > 1:
                times = [F.when(F.col(INPUT) == number, each) for number, each in zip(clock.of, times, strict=True)]
            listed = rows.select(F.coalesce(*times).alias("time")).where("time IS NOT NULL").distinct().toArrow()
            found.append(np.unique(integers(listed["time"].cast(TIME_TYPE).combine_chunks())))
        return tuple(found)

    def _moving(self, number: int, cti: int | None) -> Column:
        """To what an event of an input moves the clock; null if it is late and left out."""
        start, settings = column("start"), self.inputs[number].settings
        if cti is None:
            return start
        at = to_timestamp(F.lit(cti).cast("long"))
        moved = F.when(start >= at, start)
        if settings is None or settings.late != "adjust" or self.inputs[number].source.points:
            return moved
        return moved.when(column("end") > at, at)

    def partitioned(self, rows: DataFrame, partitions: int, shards: int, hosts: Sequence[int] = ()) -> DataFrame:
        """The rows of an epoch, in their partitions.

        The shard of a row is its keys' hash modulo their number: with as many partitions as shards, Spark's own choice.

        Args:
            rows: The rows.
            partitions: How many partitions there are.
            shards: How many shards there are, in one of which each key is for the query's life.
            hosts: Where the numbers differ: for each partition a number that Spark's hash sends there (`hosts_of`).
        """
        session = rows.sparkSession
        if partitions == shards:
            by = self._by() if partitions > 1 else []
            both: DataFrame = rows.union(self.nothing(session)).repartition(partitions, *by)
            return both
        shard = F.pmod(F.hash(*self._by()), F.lit(shards)).alias(SHARD)
        marked: DataFrame = rows.select("*", shard).union(self.nothing(session, shards))
        host = F.array(*map(F.lit, hosts))[F.pmod(F.col(SHARD), F.lit(partitions))]
        return marked.repartition(partitions, *([host] if partitions > 1 else []))

    def _by(self) -> list[Column]:
        for keys, places, payload in zip(self.partitioning.keys, self.slots.places, self.payloads, strict=False):
            if keys:
                return [column(places[name]) for name in encoded_names(payload, keys)]
        return [column("start")]


def hosts_of(session: SparkSession, partitions: int) -> list[int]:
    """For each of some partitions a number that Spark's hash sends there."""
    numbers = session.range(40 * partitions, numPartitions=1).select(F.col("id").cast("int").alias("id"))
    found = {of: number for number, of in numbers.select("id", F.pmod(F.hash("id"), F.lit(partitions))).collect()}
    return [found.get(of, of) for of in range(partitions)]


_FILTERED = (
    "filters of the query run in tasks, since rows that they drop move the clock; a filter on the DataFrame itself "
    "reaches its files"
)


def notes(node: Node) -> tuple[Callable[[Node], list[str]], list[str]]:
    """What `explain` says of a query over streams: of each node, and of the whole."""
    plan = StreamPlan.of(node)
    leaves = {each.node: each for each in plan.inputs}
    frames: dict[Node, str] = {
        each.source: "a streaming DataFrame" if each.source.topic is None else "tasks read and decode the messages"
        for each in plan.inputs
    }
    filtered = {source for each in node.all(Filter) for source in each.all(SparkSource)}

    def of(each: Node) -> list[str]:
        lines = [f"CTIs: {_ctis(leaves[each])}"] if each in leaves else [f"time, live: {each.time_rule}"]
        if each in frames:
            behind = [_FILTERED] if each in filtered else []
            return [f"Spark: {frames[each]}; every row is validated before its epoch runs", *behind, *lines]
        return ["live engine, in the task of each partition", *lines]

    summary = [
        f"engine Spark {plan.session.version}, live: epochs of all inputs together, one repartition and one mapInArrow",
        plan.partitioning.shown,
        "state: of each partition, restored from the last committed epoch; an epoch is committed by its manifest",
        f"inputs: {', '.join(each.name for each in plan.inputs)}",
    ]
    return of, summary


def _ctis(each: StreamInput) -> str:
    said = _made_ctis(each)
    if each.source.ctis is None:
        return said
    return "from its rows of earlier epochs" + f"; and {said}" * (each.settings is not None or each.follows is not None)


def _made_ctis(each: StreamInput) -> str:
    if each.settings is not None and each.settings.period is not None:
        return f"from the latest start of earlier epochs ({each.settings}); rows before them are late"
    if each.follows is not None:
        return "those of the stream that it follows"
    return "none until the query ends (.advance_time(…) makes them)"
