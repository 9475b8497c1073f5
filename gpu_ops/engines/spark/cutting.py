"""Windows and joins cut in time, for streams without a key and for keys that are few or hot.

A *slice* is a stretch of time ``[begin, finish)``. Events are listed once in each slice that they concern, with the
slice as one more column of their key, and the local engine does with each slice what it does with a whole stream.
Every result belongs to the slice in which it starts, and each slice is shown as much as its results need; so no result
is given twice, and none is put together from parts:

- A window of a grid is whole in its slice. Lifetimes become the numbers of their windows first, and these are cut.
- A snapshot begins where some event starts or ends. All that is alive from one tick before a slice is shown there, so
  that what begins with the slice is told from what has begun before. Where its last snapshot ends, a later event may
  say: a *marker* brings along the first time after the slice at which any event of the key starts or ends.
- A pair starts where the later of its events does: those that start in a slice are matched with all alive there.
- What has no partner ends at the next start on the other side. Again a marker says when, if a later slice knows.

What needs more than that, `gpu_ops.engines.spark.seams` has: clipping, as-of joins and joins with a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.carriers import carried_fields, carried_schema, lowered_columns, raised_columns
from gpu_ops.engines.spark.checks import checked, error_text, shown
from gpu_ops.engines.spark.sides import MARK, Slots, shared_slots, united
from gpu_ops.engines.spark.slices import slices_of
from gpu_ops.engines.spark.types import column, spark_type, to_ticks, to_timestamp
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.joins import Binary, Join
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.windows import Hopping, WindowAggregate
from gpu_ops.time import MAX_TIME, MIN_TIME, TICK

_SLICE, _REAL, _NEXT, _COUNT = (f"__gpu_ops_{name}" for name in ("slice", "real", "next", "count"))
_NUMBER = pa.field(_SLICE, pa.int64())
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


# Windows


def cut_window(first: WindowAggregate, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int) -> Cut:
    """A window over slices of time.

    Args:
        first: The window, over plain columns.
        frame: Its events.
        schema: What of their payload it needs.
        answer: What is asked of its results.
        count: How many slices.
    """
    if isinstance(first.window, Hopping):
        return _cut_grid(first, first.window, frame, schema, answer, count)
    return _cut_snapshots(first, frame, schema, answer, count)


def _cut_grid(
    first: WindowAggregate, window: Hopping, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int
) -> Cut:
    low, high = _window_numbers(window, to_ticks(F.col("start")), to_ticks(F.col("end")))
    if window.until is None and window.membership == "overlap":
        frame = checked(
            frame,
            to_ticks(F.col("end")) != MAX_TIME,
            error_text(
                "TimeError",
                "An event that never ends has endlessly many hopping windows.",
                "end",
                shown("start", F.col("start")),
                "Bound them: .hopping(…, until=…).",
            ),
        )
    numbers = frame.select(low.alias("low"), high.alias("high"), *lowered_columns(schema)).where("high > low")
    slices = slices_of([numbers], count)
    names = carried_schema(schema).names
    rows = in_slices(numbers, slices, (F.col("low") < F.col("finish")) & (F.col("high") > F.col("begin"))).select(
        to_timestamp(F.greatest("low", "begin")).alias("start"),
        to_timestamp(F.least("high", "finish")).alias("end"),
        *names,
        "begin",
    )
    # Number k is the tick k there, and one window of one tick.
    plan = replace(first, input=Feed(schema, first.group, None), window=Hopping(1, 1, align=0))
    begins, ends = window.lifetime

    def finished(done: DataFrame) -> DataFrame:
        point = to_ticks(F.col("start")) * lifetimes.span(window.hop) + lifetimes.span(window.align % window.hop)
        start, end = point + lifetimes.span(begins), point + lifetimes.span(ends)
        return lifetimes.moved(done, lifetimes.Changed(start, end, verb="hopping", latest=MAX_TIME - TICK))

    together = ["begin", *_lowered_keys(schema, first.group)]
    return Cut(rows, Task(plan, (schema,), answer), together, ["start", "end", *names], finished)


def _window_numbers(window: Hopping, start: Column, end: Column) -> tuple[Column, Column]:
    """The numbers ``low … high - 1`` of an event's windows, as `gpu_ops.operators.windows` counts them."""
    offset = window.align % window.hop

    def number(ticks: Column) -> Column:
        whole = ticks - F.pmod(ticks, lifetimes.span(window.hop))
        return F.call_function("div", whole, lifetimes.span(window.hop)) + 1

    if window.membership == "start":
        low, high = number(start - lifetimes.span(offset + 1)), number(start + lifetimes.span(window.size - offset - 1))
    else:
        end = end if window.until is None else F.least(end, lifetimes.span(window.until))
        low, high = number(start - lifetimes.span(window.size + offset)), number(end - lifetimes.span(offset + 1))
    return low, high if window.until is None else F.when(start < lifetimes.span(window.until), high).otherwise(low)


def _cut_snapshots(first: WindowAggregate, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int) -> Cut:
    events = frame.select(
        to_ticks(F.col("start")).alias("low"), to_ticks(F.col("end")).alias("high"), *lowered_columns(schema)
    )
    slices = slices_of([events], count)
    passing = pa.schema([*schema, _NUMBER, pa.field(_REAL, pa.bool_()), pa.field(_NEXT, pa.int64())])
    carried = carried_fields(passing)
    number, real, after = (carried[name][0].name for name in (_SLICE, _REAL, _NEXT))
    keys, names = _lowered_keys(schema, first.group), carried_schema(passing).names

    meets = (F.col("low") < F.col("finish")) & (F.col("high") >= F.col("begin"))
    listed = in_slices(events, slices, meets).select(
        to_timestamp(F.greatest(F.col("low"), F.col("begin") - TICK)).alias("start"),
        to_timestamp(F.least("high", "finish")).alias("end"),
        *carried_schema(schema).names,
        F.col("begin").alias(number),
        F.lit(True).alias(real),
        F.lit(None).cast("long").alias(after),
    )
    # When the last snapshot of a slice begins and ends, where its slice does not see the end.
    times = events.select(*keys, F.explode(F.array("low", "high")).alias("time"))
    within = in_slices(times, slices, (F.col("time") >= F.col("begin")) & (F.col("time") < F.col("finish")))
    changes = within.groupBy(*keys, "begin", "finish").agg(F.min("time").alias("first"), F.max("time").alias("last"))
    later = F.lead("first").over(Window.partitionBy(*one_of(keys)).orderBy("begin"))
    markers = changes.withColumn("later", later).where(F.col("later").isNotNull())
    given = {
        **{name: column(name) for name in keys},
        number: F.col("begin"),
        after: F.col("later"),
    }
    rows = listed.union(
        markers.select(
            to_timestamp(F.col("last")).alias("start"),
            to_timestamp(F.col("finish")).alias("end"),
            *filled(carried_schema(passing), given),
        )
    )
    feed = Feed(passing, (_SLICE, *first.group), None)
    aggregates = (
        *(_without_markers(each) for each in first.aggregates),
        Aggregate("count", nw.col(_REAL), name=_COUNT),
        Aggregate("max", nw.col(_NEXT), name=_NEXT),
    )
    back = pa.schema([*answer, _NUMBER, pa.field(_COUNT, pa.int64()), pa.field(_NEXT, pa.int64())])
    task = Task(replace(first, input=feed, aggregates=aggregates), (passing,), back)

    def finished(done: DataFrame) -> DataFrame:
        began, events, ends = (column(carried_fields(back)[name][0].name) for name in (_SLICE, _COUNT, _NEXT))
        own = done.where((to_ticks(F.col("start")) >= began) & (events > 0))
        end = F.when(ends.isNull(), F.col("end")).otherwise(to_timestamp(ends))
        return own.select("start", end.alias("end"), *carried_schema(answer).names)

    return Cut(rows, task, [number, *keys], ["start", "end", *names], finished)


def _without_markers(aggregate: Aggregate) -> Aggregate:
    """The aggregate where markers are among the events: all their values are null, but they are rows."""
    if aggregate.expression is None and aggregate.filter is None:
        real = nw.col(_REAL)
        return replace(aggregate, expression=real) if aggregate.kind == "count" else replace(aggregate, filter=real)
    return aggregate


def _lowered_keys(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    carried = carried_fields(schema)
    return [field.name for name in names for field in carried[name]]


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
    carried, wanted = carried_fields(back), carried_fields(answer)
    given = {
        part.name: column(from_.name)
        for name, source in columns.items()
        if name in wanted
        for part, from_ in zip(wanted[name], carried[source], strict=True)
    }
    return done.select("start", "end", *filled(carried_schema(answer), given))


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
    never = replace(always, frame=gaps.select("start", "end", *raised_columns(keyed.schema)))
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
    on = ((_SLICE, _SLICE), *node.on)
    sides = left, right
    feeds = [Feed(each.node.schema.append(_NUMBER), (), None) for each in sides]
    payloads = tuple(each.schema.append(_NUMBER) for each in sides)
    frames = [each.frame.withColumn(_SLICE, F.lit(None).cast("long")) for each in sides]
    slots = shared_slots(payloads, [tuple(pair[at] for pair in on) for at in (0, 1)])
    carried = carried_fields(payloads[0])
    number, *keys = (slots.places[0][field.name] for name, _ in on for field in carried[name])
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
    back = pa.schema([*read, _NUMBER])
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
        own = done.where(to_ticks(F.col("start")) >= column(carried_fields(back)[_SLICE][0].name))
        return beside_nulls(own, back, answer, columns)

    return both.cut(listed.union(markers), finished)
