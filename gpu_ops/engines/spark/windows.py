"""Windows cut in time: each slice is shown what its windows hold, and a result belongs to the slice in which it starts.

- Windows of a regular grid are whole in their slice: lifetimes become the numbers of their windows, and these are cut.
- A table of the zone says where windows of the calendar begin, and Spark has none; and some aggregates ask where
  their window begins. Then time is cut, where windows begin: a worker moves the seams there. A slice is shown what any
  of its windows holds, up to the end of the last one. What it gives for windows of its neighbours is dropped.
- A snapshot begins where some event starts or ends. A slice is shown all that is alive from one tick before it: so what
  begins with the slice is told from what has begun before. Its last snapshot may end in a later slice: a *marker* says
  when, the next time at which any event of the key starts or ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.data_windows import cut_data_window
from gpu_ops.engines.spark.grids import at_begins
from gpu_ops.engines.spark.lifetimes import never_open
from gpu_ops.engines.spark.sides import FragmentInput
from gpu_ops.engines.spark.slice_policy import asks_for_bounds, in_one_task, slices_of
from gpu_ops.engines.spark.slicing import SLICE, Cut, SliceRows, alive, in_slices, one_of, within
from gpu_ops.engines.spark.type_codecs import encoded_columns, encoded_names, encoded_schema
from gpu_ops.engines.spark.types import lifetime, to_ticks, to_timestamp
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.aggregates import Aggregate, aggregate
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.plan.window_kinds import GridKind, Hopping
from gpu_ops.plan.windows import WindowAggregate

_FINISH = pa.field("__gpu_ops_finish", pa.int64())
_IS_EVENT = pa.field("__gpu_ops_real", pa.bool_())
"""True for events, null for markers."""
_COUNT = pa.field("__gpu_ops_count", pa.int64())
_NEXT = pa.field("__gpu_ops_next", pa.int64())


@singledispatch
def cut_window(first: Node, given: FragmentInput, answer: pa.Schema, count: int) -> Cut:
    """A window over slices of time.

    Args:
        first: The window, over plain columns.
        given: Its events.
        answer: The wanted columns of its results.
        count: How many slices.
    """
    raise TypeError(f"no rule for {first}")


cut_window.register(cut_data_window)


@cut_window.register
def _(first: WindowAggregate, given: FragmentInput, answer: pa.Schema, count: int) -> Cut:
    grid = first.window.grid
    if grid is None:
        return _cut_snapshots(first, given, answer, count)
    if grid.regular is not None and not asks_for_bounds(first):
        numbers = numbers_of(grid, grid.regular, given)
        shown = in_slices(numbers, slices_of([numbers], count), alive())
        return by_number(first, grid.regular, given, answer, shown)
    return _cut_at_begins(first, grid, _bounded(grid, given), answer, count)


def numbers_of(grid: GridKind, window: Hopping, given: FragmentInput) -> DataFrame:
    """Events from the ``low`` to the ``high`` number of their windows on a regular grid, and their encoded payload."""
    given = _bounded(grid, given)
    low, high = _window_numbers(window, to_ticks(F.col("start")), to_ticks(F.col("end")))
    return given.frame.select(low.alias("low"), high.alias("high"), *encoded_columns(given.schema)).where("high > low")


def _bounded(grid: GridKind, given: FragmentInput) -> FragmentInput:
    """The events, or an error where one has endlessly many windows."""
    if grid.until is None and grid.membership == "overlap":
        frame = never_open(
            given.frame,
            "An event that never ends has endlessly many hopping windows.",
            "Bound them: .hopping(…, until=…).",
        )
        return replace(given, frame=frame)
    return given


def by_number(
    first: WindowAggregate, window: Hopping, given: FragmentInput, answer: pa.Schema, shown: DataFrame
) -> Cut:
    """Windows of a regular grid, from `numbers_of` listed in slices."""
    times = lifetime(F.greatest("low", "begin"), F.least("high", "finish"))
    rows = shown.select(*times, *encoded_schema(given.schema).names, "begin")
    # Number k is the tick k there, and one window of one tick.
    plan = replace(first, input=Feed(given.schema, first.group, None), window=Hopping(1, 1, align=0))
    begins, ends = window.lifetime

    def finished(done: DataFrame) -> DataFrame:
        point = to_ticks(F.col("start")) * lifetimes.span(window.hop) + lifetimes.span(window.align % window.hop)
        start, end = point + lifetimes.span(begins), point + lifetimes.span(ends)
        return lifetimes.moved(done, lifetimes.Changed(start, end, verb="hopping", latest=MAX_TIME - TICK))

    partition = ["begin", *encoded_names(given.schema, first.group)]
    return Cut(rows, Task(plan, (given.schema,), answer), partition, finished)


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
    first: WindowAggregate, window: GridKind, given: FragmentInput, answer: pa.Schema, count: int
) -> Cut:
    events = given.ticks
    slices = at_begins(slices_of([events], count), window)
    shown = in_slices(events, slices, (F.col("low") < F.col("reach")) & (F.col("high") > F.col("begin")))
    # Of a long event the part in the slice is enough; of one that starts behind the last begin, a tick.
    start = F.greatest("low", "begin")
    end = F.greatest(F.least("high", "finish"), start + lifetimes.span(TICK))
    listing, back = SliceRows(given.schema, (_FINISH,)), SliceRows(answer, (_FINISH,))
    rows = listing.rows(shown, start, end, {_FINISH.name: F.col("finish")})
    feed = Feed(listing.schema, (SLICE, _FINISH.name, *first.group), None)
    plan = replace(first, input=feed, window=window.giving("window"))

    def finished(done: DataFrame) -> DataFrame:
        begin, after = back.columns(SLICE, _FINISH.name)
        starts = to_ticks(F.col("start"))
        own = done.where((starts >= begin) & (starts < after)).select("start", "end", *encoded_schema(answer).names)
        if window.output == "window":
            return own
        end = to_ticks(F.col("end"))
        return lifetimes.moved(own, lifetimes.Changed(end, end + lifetimes.span(TICK), latest=MAX_TIME - TICK))

    return Cut(rows, Task(plan, (listing.schema,), back.schema), listing.partition(first.group), finished)


def _cut_snapshots(first: WindowAggregate, given: FragmentInput, answer: pa.Schema, count: int) -> Cut:
    ticks = given.ticks
    slices = slices_of([ticks], count)
    listing, back = SliceRows(given.schema, (_IS_EVENT, _NEXT)), SliceRows(answer, (_COUNT, _NEXT))
    near = in_slices(ticks, slices, (F.col("low") < F.col("finish")) & (F.col("high") >= F.col("begin")))
    start, end = F.greatest(F.col("low"), F.col("begin") - TICK), F.least("high", "finish")
    events = listing.rows(near, start, end, {_IS_EVENT.name: F.lit(True)})
    told = _last_changes(ticks, slices, encoded_names(given.schema, first.group))
    markers = listing.rows(told, F.col("last"), F.col("finish"), {_NEXT.name: F.col("next")})
    aggregates = (
        *map(_of_events_alone, first.aggregates),
        replace(aggregate("count", _IS_EVENT.name), name=_COUNT.name),
        replace(aggregate("max", _NEXT.name), name=_NEXT.name),
    )
    feed = Feed(listing.schema, (SLICE, *first.group), None)
    task = Task(replace(first, input=feed, aggregates=aggregates), (listing.schema,), back.schema)

    def finished(done: DataFrame) -> DataFrame:
        begin, events, later = back.columns(SLICE, _COUNT.name, _NEXT.name)
        own = done.where((to_ticks(F.col("start")) >= begin) & (events > 0))
        end = F.when(later.isNull(), F.col("end")).otherwise(to_timestamp(later))
        return own.select("start", end.alias("end"), *encoded_schema(answer).names)

    return Cut(events.union(markers), task, listing.partition(first.group), finished)


def _last_changes(events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> DataFrame:
    """For each key and slice its ``last`` snapshot's start, and its end, the ``next`` time in a later slice.

    Snapshots start and end where events start or end. Slices after which nothing of the key does are left out.
    """
    times = events.select(*keys, F.explode(F.array("low", "high")).alias("time"))
    in_slice = in_slices(times, slices, within("time")).groupBy(*keys, "begin", "finish")
    changes = in_slice.agg(F.min("time").alias("first"), F.max("time").alias("last"))
    later = F.lead("first").over(Window.partitionBy(*one_of(keys)).orderBy("begin"))
    return in_one_task(changes, keys).withColumn("next", later).where(F.col("next").isNotNull())


def _of_events_alone(given: Aggregate) -> Aggregate:
    """The aggregate without the markers among the events: all their values are null, but they are rows."""
    if given.expression is None and given.filter is None:
        return replace(given, filter=nw.col(_IS_EVENT.name))
    return given
