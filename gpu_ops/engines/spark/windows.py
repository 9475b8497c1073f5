"""Windows cut in time: each slice is shown what its windows hold, and a result belongs to the slice in which it starts.

- Windows of a grid are whole in their slice. Lifetimes become the numbers of their windows first, and these are cut.
- When windows of the calendar begin, a table of the zone says, which Spark has not; and some aggregates ask when theirs
  begins. Then it is time that is cut, where windows begin: a worker moves the seams there. A slice is shown what any of
  its windows holds, up to the end of the last one; what it gives for windows of its neighbours is dropped.
- A snapshot begins where some event starts or ends. All that is alive from one tick before a slice is shown there, so
  that what begins with the slice is told from what has begun before. Where its last snapshot ends, a later event may
  say: a *marker* brings along the first time after the slice at which any event of the key starts or ends.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.checks import checked, error_text, shown
from gpu_ops.engines.spark.data_windows import cut_data_window
from gpu_ops.engines.spark.grids import at_begins
from gpu_ops.engines.spark.slice_policy import asks_for_bounds, slices_of
from gpu_ops.engines.spark.slicing import NUMBER, SLICE, Cut, filled, in_slices, one_of
from gpu_ops.engines.spark.type_codecs import encoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import column, to_ticks, to_timestamp
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.aggregates import Aggregate, aggregate
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.window_kinds import GridKind, Hopping
from gpu_ops.plan.windows import WindowAggregate

_REAL, _NEXT, _COUNT, _FINISH = (f"__gpu_ops_{name}" for name in ("real", "next", "count", "finish"))


@singledispatch
def cut_window(first: Node, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int) -> Cut:
    """A window over slices of time.

    Args:
        first: The window, over plain columns.
        frame: Its events.
        schema: What of their payload it needs.
        answer: What is asked of its results.
        count: How many slices.
    """
    raise TypeError(f"no rule for {first}")


cut_window.register(cut_data_window)


@cut_window.register
def _(first: WindowAggregate, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int) -> Cut:
    grid = first.window.grid
    if grid is None:
        return _cut_snapshots(first, frame, schema, answer, count)
    if grid.until is None and grid.membership == "overlap":
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
    if grid.regular is not None and not asks_for_bounds(first):
        return _cut_numbers(first, grid.regular, frame, schema, answer, count)
    return _cut_at_begins(first, grid, frame, schema, answer, count)


def _cut_numbers(
    first: WindowAggregate, window: Hopping, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int
) -> Cut:
    low, high = _window_numbers(window, to_ticks(F.col("start")), to_ticks(F.col("end")))
    numbers = frame.select(low.alias("low"), high.alias("high"), *encoded_columns(schema)).where("high > low")
    slices = slices_of([numbers], count)
    names = encoded_schema(schema).names
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

    together = ["begin", *encoded_names(schema, first.group)]
    return Cut(rows, Task(plan, (schema,), answer), together, ["start", "end", *names], finished)


def _window_numbers(window: Hopping, start: Column, end: Column) -> tuple[Column, Column]:
    """The numbers ``low … high - 1`` of an event's windows, as `gpu_ops.operators.windows.windows` counts them."""
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


def _cut_at_begins(
    first: WindowAggregate, window: GridKind, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int
) -> Cut:
    events = _ticks(frame, schema)
    slices = at_begins(slices_of([events], count), window)
    finish = pa.field(_FINISH, pa.int64())
    passing = pa.schema([*schema, NUMBER, finish])
    number, until = encoded_names(passing, (SLICE, _FINISH))
    # Of a long event the part in the slice is enough; of one that starts behind the last begin, a tick.
    start = F.greatest("low", "begin")
    end = F.greatest(F.least("high", "finish"), start + lifetimes.span(TICK))
    rows = in_slices(events, slices, (F.col("low") < F.col("reach")) & (F.col("high") > F.col("begin"))).select(
        to_timestamp(start).alias("start"),
        to_timestamp(end).alias("end"),
        *encoded_schema(schema).names,
        F.col("begin").alias(number),
        F.col("finish").alias(until),
    )
    feed = Feed(passing, (SLICE, _FINISH, *first.group), None)
    back = pa.schema([*answer, NUMBER, finish])
    plan = replace(first, input=feed, window=window.giving("window"))

    def finished(done: DataFrame) -> DataFrame:
        begin, after = map(column, encoded_names(back, (SLICE, _FINISH)))
        starts = to_ticks(F.col("start"))
        own = done.where((starts >= begin) & (starts < after)).select("start", "end", *encoded_schema(answer).names)
        if window.output == "window":
            return own
        end = to_ticks(F.col("end"))
        return lifetimes.moved(own, lifetimes.Changed(end, end + lifetimes.span(TICK), latest=MAX_TIME - TICK))

    together = [number, *encoded_names(schema, first.group)]
    return Cut(rows, Task(plan, (passing,), back), together, ["start", "end", *encoded_schema(passing).names], finished)


def _ticks(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Events as lowered, with their lifetimes as ``low`` and ``high``."""
    return frame.select(
        to_ticks(F.col("start")).alias("low"), to_ticks(F.col("end")).alias("high"), *encoded_columns(schema)
    )


def _cut_snapshots(first: WindowAggregate, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int) -> Cut:
    events = _ticks(frame, schema)
    slices = slices_of([events], count)
    passing = pa.schema([*schema, NUMBER, pa.field(_REAL, pa.bool_()), pa.field(_NEXT, pa.int64())])
    number, real, after = encoded_names(passing, (SLICE, _REAL, _NEXT))
    keys, names = encoded_names(schema, first.group), encoded_schema(passing).names

    meets = (F.col("low") < F.col("finish")) & (F.col("high") >= F.col("begin"))
    listed = in_slices(events, slices, meets).select(
        to_timestamp(F.greatest(F.col("low"), F.col("begin") - TICK)).alias("start"),
        to_timestamp(F.least("high", "finish")).alias("end"),
        *encoded_schema(schema).names,
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
            *filled(encoded_schema(passing), given),
        )
    )
    feed = Feed(passing, (SLICE, *first.group), None)
    aggregates = (
        *(_without_markers(each) for each in first.aggregates),
        replace(aggregate("count", _REAL), name=_COUNT),
        replace(aggregate("max", _NEXT), name=_NEXT),
    )
    back = pa.schema([*answer, NUMBER, pa.field(_COUNT, pa.int64()), pa.field(_NEXT, pa.int64())])
    task = Task(replace(first, input=feed, aggregates=aggregates), (passing,), back)

    def finished(done: DataFrame) -> DataFrame:
        began, events, ends = map(column, encoded_names(back, (SLICE, _COUNT, _NEXT)))
        own = done.where((to_ticks(F.col("start")) >= began) & (events > 0))
        end = F.when(ends.isNull(), F.col("end")).otherwise(to_timestamp(ends))
        return own.select("start", end.alias("end"), *encoded_schema(answer).names)

    return Cut(rows, task, [number, *keys], ["start", "end", *names], finished)


def _without_markers(given: Aggregate) -> Aggregate:
    """The aggregate where markers are among the events: all their values are null, but they are rows."""
    if given.expression is None and given.filter is None:
        return replace(given, filter=nw.col(_REAL))
    return given
