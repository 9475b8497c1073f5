"""Joins cut in time, and what all has that is: for streams without a key and for keys that are few or hot.

A *slice* is a stretch of time ``[begin, finish)``. Events are listed once in each slice that they concern, with the
slice as one more column of their key, and the local engine does with each slice what it does with a whole stream.
Every result belongs to the slice in which it starts, and each slice is shown as much as its results need; so no result
is given twice, and none is put together from parts:

- A pair starts where the later of its events does: those that start in a slice are matched with all alive there.
- What has no partner ends at the next start on the other side. A *marker* says when, if a later slice knows.

What needs more than that, `gpu_ops.engines.spark.sliced_joins` has: clipping, as-of joins and joins with a condition.
Windows are in `gpu_ops.engines.spark.windows`, data windows in `gpu_ops.engines.spark.data_windows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.engines.spark.sides import MARK, Slots, shared_slots, united
from gpu_ops.engines.spark.slice_policy import slices_of
from gpu_ops.engines.spark.type_codecs import decoded_columns, encoded_fields, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import column, spark_type, to_ticks, to_timestamp
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.joins import Binary, Join
from gpu_ops.plan.nodes import Feed, Node

SLICE = "__gpu_ops_slice"
"""The column that says which slice an event is listed in."""
NUMBER = pa.field(SLICE, pa.int64())
_EVER = {"start": MIN_TIME, "end": MAX_TIME}


@dataclass(frozen=True)
class Cut:
    """One pass of events through workers, slice by slice.

    Attributes:
        rows: What workers get.
        task: What they do with it.
        together: The columns of ``rows`` whose equals must be in one task.
        passed: The columns of ``rows`` that go to the workers.
        finished: The results, with the columns of the answer, from what comes back.
    """

    rows: DataFrame
    task: Task
    together: list[str]
    passed: list[str]
    finished: Callable[[DataFrame], DataFrame]


Run = Callable[[Cut], DataFrame]
"""Passes a cut through workers, and gives its results, lowered."""


def in_slices(frame: DataFrame, slices: DataFrame, where: Column) -> DataFrame:
    """Rows beside each slice for which a condition holds, by the columns ``begin`` and ``finish``."""
    return frame.join(F.broadcast(slices), where)


def one_of(keys: Sequence[str]) -> list[Column]:
    """What a window function goes by: the keys, or one group.

    That is said in words that Spark does not see through: it would warn of a window function without a group.
    """
    return [column(name) for name in keys] or [F.pmod("begin", F.lit(1))]


def filled(schema: pa.Schema, given: dict[str, Column]) -> list[Column]:
    """The lowered columns of a schema: some of them, and nulls for the others."""
    return [
        given[field.name].alias(field.name)
        if field.name in given
        else F.lit(None).cast(spark_type(field.type)).alias(field.name)
        for field in schema
    ]


# Joins


@dataclass(frozen=True)
class Side:
    """One side of a join.

    Attributes:
        node: Where it comes from.
        frame: Its events.
        schema: What of their payload is needed.
    """

    node: Node
    frame: DataFrame
    schema: pa.Schema

    @property
    def ticks(self) -> DataFrame:
        """Its lifetimes."""
        return self.frame.select(to_ticks(F.col("start")).alias("low"), to_ticks(F.col("end")).alias("high"))

    def only(self, names: Sequence[str]) -> Side:
        """Some of its columns."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))


def cut_join(node: Join, left: Side, right: Side, answer: pa.Schema, count: int, run: Run) -> DataFrame:
    """A join over slices of time: its pairs, and what of either side has no partner, each in a pass of its own.

    Args:
        node: The join.
        left: Its left events.
        right: Its right events.
        answer: What is asked of its results.
        count: How many slices.
        run: What passes a cut through workers.

    Returns:
        The results, with the columns of the answer as lowered.
    """
    slices = slices_of([left.ticks, right.ticks], count)
    if node.how == "semi":
        return _with_partner(node, left, right, slices, answer, run)
    found = [run(pairs(node, left, right, slices, answer))] if node.pairs else []
    keys = [name for name, _ in node.on], [name for _, name in node.on]
    if node.alone[0]:
        found.append(run(_alone(node, left, right.only(keys[1]), slices, answer, columns_of(node, 0))))
    if node.alone[1]:
        swapped = replace(node, left=node.right, right=node.left, on=tuple((name, mine) for mine, name in node.on))
        found.append(run(_alone(swapped, right, left.only(keys[0]), slices, answer, columns_of(node, 1))))
    return reduce(DataFrame.union, found)


def columns_of(node: Join, at: int) -> dict[str, str]:
    """For the columns of a join's answer that an event of one side alone fills, those of the event."""
    if at == 0:
        return {name: name for name in node.left.schema.names}
    return dict(node.on) | {new: name for name, new in node.renamed.items()}


def beside_nulls(done: DataFrame, back: pa.Schema, answer: pa.Schema, columns: dict[str, str]) -> DataFrame:
    """The answer as lowered, from events of one side: nulls where they have nothing to say.

    Args:
        done: The events, lowered.
        back: Their payload.
        answer: What is asked for.
        columns: As `columns_of` gives them.
    """
    carried, wanted = encoded_fields(back), encoded_fields(answer)
    given = {
        part.name: column(from_.name)
        for name, source in columns.items()
        if name in wanted
        for part, from_ in zip(wanted[name], carried[source], strict=True)
    }
    return done.select("start", "end", *filled(encoded_schema(answer), given))


def _with_partner(node: Join, left: Side, right: Side, slices: DataFrame, answer: pa.Schema, run: Run) -> DataFrame:
    """The times at which left events have a partner: those without one of the times at which their key has none."""
    names = [name for name, _ in node.on]
    ever = [to_timestamp(F.lit(time).cast("long")).alias(name) for name, time in _EVER.items()]
    keyed = left.only(names)
    one = left.frame.sparkSession.range(1, numPartitions=1)
    each = left.frame.select(*map(column, names)).distinct() if names else one
    always = replace(keyed, node=Feed(keyed.schema, (), None), frame=each.select(*ever, *map(column, names)))
    columns = columns_of(node, 0)
    gaps = run(_alone(node, always, right.only([name for _, name in node.on]), slices, keyed.schema, columns))
    never = replace(always, frame=gaps.select("start", "end", *decoded_columns(keyed.schema)))
    return run(_alone(replace(node, on=tuple(zip(names, names, strict=True))), left, never, slices, answer, columns))


@dataclass(frozen=True)
class Both:
    """Two sides, to be matched by the slice and the keys.

    Attributes:
        rows: The events of both, with ``low`` and ``high``.
        task: What workers do with them.
        slots: Where their columns are.
        number: The slot of the slice.
        keys: Those of the keys.
    """

    rows: DataFrame
    task: Task
    slots: Slots
    number: str
    keys: list[str]

    @property
    def names(self) -> list[str]:
        """The columns that go to the workers."""
        return ["start", "end", MARK, *self.slots.schema.names]

    @property
    def known(self) -> Column:
        """Whether an event has all its keys."""
        return reduce(Column.__and__, (column(name).isNotNull() for name in self.keys), F.lit(True))

    def cut(self, rows: DataFrame, finished: Callable[[DataFrame], DataFrame] = lambda done: done) -> Cut:
        """A pass of these rows, which have a number each."""
        return Cut(rows, self.task, [self.number, *self.keys], self.names, finished)


def both_sides(node: Binary, left: Side, right: Side, answer: pa.Schema) -> Both:
    """Two sides of a node that are matched by the slice and its keys."""
    on = ((SLICE, SLICE), *node.on)
    sides = left, right
    feeds = [Feed(each.node.schema.append(NUMBER), (), None) for each in sides]
    payloads = tuple(each.schema.append(NUMBER) for each in sides)
    frames = [each.frame.withColumn(SLICE, F.lit(None).cast("long")) for each in sides]
    slots = shared_slots(payloads, [tuple(pair[at] for pair in on) for at in (0, 1)])
    number, *keys = (slots.places[0][name] for name in encoded_names(payloads[0], [mine for mine, _ in on]))
    task = Task(replace(node, left=feeds[0], right=feeds[1], on=on), payloads, answer, slots)
    rows = united(frames, payloads, [True, True], slots)
    ticks = {"low": to_ticks(F.col("start")), "high": to_ticks(F.col("end"))}
    return Both(rows.withColumns(ticks), task, slots, number, keys)


def pairs(node: Join, left: Side, right: Side, slices: DataFrame, answer: pa.Schema) -> Cut:
    """The pairs. Those whose left event starts in the slice are apart from those whose right one alone does."""
    both = both_sides(replace(node, how="inner"), left, right, answer)
    alive = (F.col("low") < F.col("finish")) & (F.col("high") > F.col("begin"))
    starts, of_right = F.col("low") >= F.col("begin"), F.col(MARK)
    parts = (
        F.when(starts & of_right, F.array(F.lit(0), F.lit(1)))
        .when(starts | of_right, F.array(F.lit(0)))
        .otherwise(F.array(F.lit(1)))
    )
    listed = in_slices(both.rows, slices, alive).withColumn("part", F.explode(parts))
    rows = listed.withColumn(both.number, F.col("begin") * 2 + F.col("part"))
    return both.cut(rows)


def _alone(node: Join, mine: Side, other: Side, slices: DataFrame, answer: pa.Schema, columns: dict[str, str]) -> Cut:
    """The times at which events of one side have no partner."""
    read = [field for field in mine.schema if field.name in columns.values()]
    back = pa.schema([*read, NUMBER])
    both = both_sides(replace(node, how="anti"), mine, other, back)
    schema = both.slots.schema
    of_other = F.col(MARK)
    # An event without a key is nowhere but where it starts: it has no partner there, nor later.
    meets = (F.col("high") > F.col("begin")) & (both.known | (F.col("low") >= F.col("begin")))
    touches = of_other & (F.col("high") >= F.col("begin"))
    listed = in_slices(both.rows, slices, (F.col("low") < F.col("finish")) & (touches | meets)).select(
        to_timestamp(F.greatest(F.col("low"), F.col("begin") - TICK)).alias("start"),
        to_timestamp(
            F.when(of_other & (F.col("high") >= F.col("finish")), F.lit(MAX_TIME)).otherwise(F.col("high"))
        ).alias("end"),
        MARK,
        *(F.col("begin").alias(name) if name == both.number else column(name) for name in schema.names),
    )
    # When the other side starts next, where that is in a later slice.
    starts = both.rows.where(of_other)
    within = in_slices(starts, slices, (F.col("low") >= F.col("begin")) & (F.col("low") < F.col("finish")))
    firsts = within.groupBy(*both.keys, "begin").agg(F.min("low").alias("first"))
    before = F.lag("first").over(Window.partitionBy(*one_of(both.keys)).orderBy("begin"))
    ahead = firsts.withColumn("before", before).drop("begin")
    sees = (F.col("finish") <= F.col("first")) & (F.col("before").isNull() | (F.col("finish") > F.col("before")))
    given = {name: column(name) for name in both.keys} | {both.number: F.col("begin")}
    markers = in_slices(ahead, slices, sees).select(
        to_timestamp(F.col("first")).alias("start"),
        to_timestamp(F.lit(MAX_TIME).cast("long")).alias("end"),
        F.lit(True).alias(MARK),
        *filled(schema, given),
    )

    def finished(done: DataFrame) -> DataFrame:
        own = done.where(to_ticks(F.col("start")) >= column(*encoded_names(back, [SLICE])))
        return beside_nulls(own, back, answer, columns)

    return both.cut(listed.union(markers), finished)
