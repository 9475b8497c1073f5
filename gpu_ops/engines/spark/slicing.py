"""What all nodes share that are computed slice by slice of time; and joins, but for those of `sliced_joins`.

Streams without a key are cut into slices, and streams whose keys are few or hot. A *slice* is a stretch of time
``[begin, finish)``. Events are listed once in each slice that they concern, with the slice as one more column of their
key, and the local engine computes each slice as if it were a whole stream. A result belongs to the slice in which it
starts, and each slice sees all rows that its results need. So no result is given twice, and none is put together from
parts. *Markers*, rows that are not events, tell a slice about other slices.

- A pair starts with the later of its events: events that start in a slice are matched with all events alive there.
- An event without a partner ends at the next start on the other side. If that is in a later slice, a marker says when.

`gpu_ops.engines.spark.sliced_joins` has clipping, as-of joins and joins with a condition, which need more than that.
Windows are in `gpu_ops.engines.spark.windows`, data windows in `gpu_ops.engines.spark.data_windows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.engines.spark.sides import MARK, FragmentInput, Slots, low_and_high, shared_slots, united
from gpu_ops.engines.spark.slice_policy import AMONG, in_one_task
from gpu_ops.engines.spark.type_codecs import decoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import all_known, column, filled, lifetime, to_ticks
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.joins import Binary, Join
from gpu_ops.plan.nodes import Feed

SLICE = "__gpu_ops_slice"
"""The column that says which slice an event is listed in."""
NUMBER = pa.field(SLICE, pa.int64())
_LOW = ("begin", "since")
"""The columns of slices that say from when on; all others say until when."""


@dataclass(frozen=True)
class Cut:
    """One pass of events through workers, slice by slice.

    Attributes:
        rows: The events and markers of all slices.
        task: What workers do with the columns that it takes of them.
        partition: The columns of ``rows`` by which they are partitioned.
        finished: Makes the results, with the encoded columns of the answer, of what comes back.
    """

    rows: DataFrame
    task: Task
    partition: list[str]
    finished: Callable[[DataFrame], DataFrame] = lambda done: done


RunCut = Callable[[Cut], DataFrame]
"""Passes a cut through workers, and gives its results, encoded."""


@dataclass(frozen=True)
class SliceRows:
    """The columns of the rows of slices: a payload, the number of the slice, and columns of our own.

    Attributes:
        payload: The part of the events' payload that is needed.
        own: Our own columns besides the number.
    """

    payload: pa.Schema
    own: tuple[pa.Field, ...]

    @property
    def schema(self) -> pa.Schema:
        """All of them."""
        return pa.schema([*self.payload, NUMBER, *self.own])

    def columns(self, *names: str) -> list[Column]:
        """Some of them."""
        return [column(name) for name in encoded_names(self.schema, names)]

    def rows(self, listed: DataFrame, start: Column, end: Column, own: Mapping[str, Column]) -> DataFrame:
        """Events or markers as the rows of slices.

        Args:
            listed: The ``begin`` of their slice, and encoded columns of the payload; markers have those of the key.
            start: When they start, in ticks.
            end: When they end, in ticks.
            own: Our own columns; those left out are null.
        """
        given = {SLICE: F.col("begin"), **own}
        encoded = dict(zip(encoded_names(self.schema, given), given.values(), strict=True))
        return listed.select(*lifetime(start, end), *filled(encoded_schema(self.schema), encoded, listed.columns))

    def partition(self, keys: Sequence[str]) -> list[str]:
        """The columns by which rows are partitioned: the slice, and those of the key."""
        return encoded_names(self.schema, (SLICE, *keys))


def in_slices(frame: DataFrame, slices: DataFrame, where: Column, *, searchable: bool = False) -> DataFrame:
    """Rows beside each slice for which a condition holds.

    Many slices are searched in two steps: first the stretches of neighbours for which the condition holds, then the
    slices of these. So a row is compared with some two roots of their number.

    Args:
        frame: The rows.
        slices: The slices.
        where: The condition. If it holds for a slice, it holds for what begins before it and finishes behind it too.
        searchable: Whether the rows are to be slices that can be searched themselves: `AMONG` stays, if it is there.
    """
    if AMONG not in slices.columns:
        return frame.join(F.broadcast(slices), where)
    others = [name for name in slices.columns if name != AMONG]
    bounds = [(F.min if name in _LOW else F.max)(name).alias(name) for name in others]
    stretches = slices.groupBy(F.col(AMONG).alias("stretch")).agg(*bounds)
    near = frame.join(F.broadcast(stretches), where).select(*map(column, frame.columns), "stretch")
    found = near.join(F.broadcast(slices), (F.col("stretch") == F.col(AMONG)) & where).drop("stretch")
    return found if searchable else found.drop(AMONG)


def within(time: str = "low") -> Column:
    """Whether a time is in the slice."""
    return (F.col(time) >= F.col("begin")) & (F.col(time) < F.col("finish"))


def alive() -> Column:
    """Whether an event, from ``low`` to ``high``, is alive at some time in the slice."""
    return (F.col("low") < F.col("finish")) & (F.col("high") > F.col("begin"))


def one_of(keys: Sequence[str]) -> list[Column]:
    """The keys for a window function to partition by; without keys, one group.

    The one group is an expression that Spark does not see through: it would warn of a window function without a group.
    """
    return [column(name) for name in keys] or [F.pmod("begin", F.lit(1))]


# Joins


def unmatched(
    node: Join, sides: tuple[FragmentInput, FragmentInput], at: int, slices: DataFrame, answer: pa.Schema, run: RunCut
) -> DataFrame:
    """The times at which events of one side of a join have no partner; with one, for a semi join.

    Args:
        node: The join, without a condition.
        sides: Its left and its right events.
        at: Which side.
        slices: The slices.
        answer: The wanted columns of its results.
        run: Passes a cut through workers.

    Returns:
        The results, with the encoded columns of the answer.
    """
    mine, other = sides[at], sides[1 - at]
    if node.how == "semi":
        return _with_partner(node, mine, other, slices, answer, run)
    on = tuple((pair[at], pair[1 - at]) for pair in node.on)
    match = replace(node, left=node.inputs[at], right=node.inputs[1 - at], on=on)
    other = other.only([name for _, name in on])
    return run(_alone(match, mine, other, slices, answer, columns_of(node, at)))


def columns_of(node: Join, at: int) -> dict[str, str]:
    """The columns of a join's answer that events of one side alone fill, each with the column of the events."""
    if at == 0:
        return {name: name for name in node.left.schema.names}
    return dict(node.on) | {new: name for name, new in node.renamed.items()}


def beside_nulls(done: DataFrame, back: pa.Schema, answer: pa.Schema, columns: dict[str, str]) -> DataFrame:
    """The encoded columns of the answer, from events of one side: those of the other side are null.

    Args:
        done: The events, encoded.
        back: Their payload.
        answer: The wanted columns of the results.
        columns: As `columns_of` gives them.
    """
    filling = {name: source for name, source in columns.items() if name in answer.names}
    wanted, found = encoded_names(answer, filling), encoded_names(back, filling.values())
    given = dict(zip(wanted, map(column, found), strict=True))
    return done.select("start", "end", *filled(encoded_schema(answer), given))


def _with_partner(
    node: Join, left: FragmentInput, right: FragmentInput, slices: DataFrame, answer: pa.Schema, run: RunCut
) -> DataFrame:
    """The times at which left events have a partner: those without one of the times at which their key has none."""
    names = [name for name, _ in node.on]
    ever = lifetime(*(F.lit(time).cast("long") for time in (MIN_TIME, MAX_TIME)))
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
    """Two sides that are matched by the slice and the keys.

    Attributes:
        rows: The events of both, with ``low`` and ``high``; the number is null.
        task: What workers do with them.
        slots: The slots of their columns.
        number: The slot of the slice.
        keys: The slots of the keys.
    """

    rows: DataFrame
    task: Task
    slots: Slots
    number: str
    keys: list[str]

    @property
    def meets_slice(self) -> Column:
        """Whether an event is alive in the slice or later.

        One without a key is only in the slice in which it starts: it has no partner there, nor later.
        """
        return (F.col("high") > F.col("begin")) & (all_known(self.keys) | (F.col("low") >= F.col("begin")))

    def listed(self, rows: DataFrame, start: Column, end: Column, given: Mapping[str, Column]) -> DataFrame:
        """Events or markers as the rows of slices.

        Args:
            rows: The ``begin`` of their slice, and the slots of events; markers have those of the keys.
            start: When they start, in ticks.
            end: When they end, in ticks.
            given: Columns with other values: the side of markers, or another slice.
        """
        columns = {self.number: F.col("begin"), **given}
        mark = pa.field(MARK, pa.bool_())
        return rows.select(*lifetime(start, end), *filled(pa.schema([mark, *self.slots.schema]), columns, rows.columns))

    def cut(self, rows: DataFrame, finished: Callable[[DataFrame], DataFrame] = lambda done: done) -> Cut:
        """A pass of these rows, which have a number each."""
        return Cut(rows, self.task, [self.number, *self.keys], finished)


def both_sides(node: Binary, left: FragmentInput, right: FragmentInput, answer: pa.Schema) -> Both:
    """Two sides of a node that are matched by the slice and its keys."""
    on = ((SLICE, SLICE), *node.on)
    sides = left, right
    feeds = [Feed(each.node.schema.append(NUMBER), (), None) for each in sides]
    payloads = tuple(each.schema.append(NUMBER) for each in sides)
    slots = shared_slots(payloads, [tuple(pair[at] for pair in on) for at in (0, 1)])
    number, *keys = (slots.places[0][name] for name in encoded_names(payloads[0], [mine for mine, _ in on]))
    task = Task(replace(node, left=feeds[0], right=feeds[1], on=on), payloads, answer, slots)
    return Both(united(sides, [True, True], slots, low_and_high()), task, slots, number, keys)


def pairs(node: Join, left: FragmentInput, right: FragmentInput, slices: DataFrame, answer: pa.Schema) -> Cut:
    """The pairs. Those whose left event starts in the slice are apart from those whose right one alone does."""
    both = both_sides(replace(node, how="inner"), left, right, answer)
    return pairs_of(both, in_slices(both.rows, slices, alive()))


def pairs_of(both: Both, listed: DataFrame) -> Cut:
    """The pairs of the rows of both sides, beside the slices in which they live; null where a key is in no slice."""
    of_right = F.col(MARK)
    starts = F.coalesce(F.col("low") >= F.col("begin"), ~of_right)
    # A null would equal no other, and a key that is in no slice is in none of the others' either.
    begin = F.coalesce("begin", F.lit(0).cast("long"))
    part, other = begin * 2, begin * 2 + 1
    parts = (
        F.when(starts & of_right, F.array(part, other)).when(starts | of_right, F.array(part)).otherwise(F.array(other))
    )
    return both.cut(listed.withColumn(both.number, F.explode(parts)))


def _alone(
    node: Join, mine: FragmentInput, other: FragmentInput, slices: DataFrame, answer: pa.Schema, columns: dict[str, str]
) -> Cut:
    """The times at which events of one side have no partner."""
    read = [field for field in mine.schema if field.name in columns.values()]
    back = pa.schema([*read, NUMBER])
    both = both_sides(replace(node, how="anti"), mine, other, back)
    of_other = F.col(MARK)
    touches = of_other & (F.col("high") >= F.col("begin"))
    shown = in_slices(both.rows, slices, (F.col("low") < F.col("finish")) & (touches | both.meets_slice))
    end = F.when(of_other & (F.col("high") >= F.col("finish")), F.lit(MAX_TIME)).otherwise(F.col("high"))
    events = both.listed(shown, F.greatest(F.col("low"), F.col("begin") - TICK), end, {})
    told = _next_starts(both, slices)
    markers = both.listed(told, F.col("first"), F.lit(MAX_TIME).cast("long"), {MARK: F.lit(True)})

    def finished(done: DataFrame) -> DataFrame:
        own = done.where(to_ticks(F.col("start")) >= column(*encoded_names(back, [SLICE])))
        return beside_nulls(own, back, answer, columns)

    return both.cut(events.union(markers), finished)


def _next_starts(both: Both, slices: DataFrame) -> DataFrame:
    """For each key and slice the ``first`` start of the right side after the slice, if there is one."""
    starts = in_slices(both.rows, slices, F.col(MARK) & within())
    firsts = in_one_task(starts.groupBy(*both.keys, "begin").agg(F.min("low").alias("first")), both.keys)
    before = F.lag("first").over(Window.partitionBy(*one_of(both.keys)).orderBy("begin"))
    ahead = firsts.select(*map(column, both.keys), "first", before.alias("before"))
    sees = (F.col("finish") <= F.col("first")) & (F.col("before").isNull() | (F.col("finish") > F.col("before")))
    return ahead.join(F.broadcast(slices.drop(AMONG)), sees)
