"""Data windows cut in time: each slice is shown as much before it and after it as its rows' stays need.

A row is at home in one slice, which gives what the window says of it; of the other rows that a slice is shown it gives
nothing. How far a window's rows reach, its kind says. That is found here:

- So many rows: sums within the slices, and sums of these, say how many rows of the key come before each start. So it is
  known at which start the row is that comes so many before a slice, or so many after it: it is shown all between these.
  Where the window moves at each so many-th row, *markers* stand for those before, but for multiples of that.
- Silence: the first and the last start of a key in each slice say whether its first row goes on with what was before.
  If it does, it is at home in that slice, and so are those behind it up to the first silence.
- A grid: the seams move to its next points. Where the first start decides these, a *marker* says it: a start one
  stretch before the slice, which is out of the window when the slice's first stretch enters it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce, singledispatch
from typing import Any

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import TICK
from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.grids import at_begins
from gpu_ops.engines.spark.slice_policy import AFTER, slices_of
from gpu_ops.engines.spark.slicing import NUMBER, SLICE, Cut, filled, in_slices, lowered_keys, one_of
from gpu_ops.engines.spark.type_codecs import carried_schema, lowered_columns
from gpu_ops.engines.spark.types import column, to_ticks, to_timestamp
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.nodes import Feed, Filter
from gpu_ops.plan.window_kinds import GapHalo, GridHalo, LiveHalo, NoHalo, RowHalo

_HOME = "__gpu_ops_home"


def cut_data_window(first: DataWindow, frame: DataFrame, schema: pa.Schema, answer: pa.Schema, count: int) -> Cut:
    """A data window over slices of time.

    Args:
        first: The window; `gpu_ops.engines.spark.slice_policy.uncut` has nothing against it.
        frame: Its events.
        schema: What of their payload it needs.
        answer: What is asked of its results.
        count: How many slices.
    """
    given, start, end = first.halo, to_ticks(F.col("start")), to_ticks(F.col("end"))
    assert not isinstance(given, str)  # noqa: S101  (nothing is against it)
    events = frame.select(start.alias("low"), end.alias("high"), *lowered_columns(schema))
    times = events if given.reads_ends else events.select("low", F.col("low").alias("high"))
    keys = lowered_keys(schema, first.group)
    rows, markers = _shown(given, events, slices_of([times], count), keys)
    extra = [NUMBER, pa.field(_HOME, pa.bool_())]
    passing = pa.schema([*schema, *extra])
    carried = carried_schema(passing)
    number, home = carried.names[-2:]
    listed = _lasting(rows, "low", "high").select(
        "start", "end", *carried.names[:-2], F.col("begin").alias(number), F.col("home").alias(home)
    )
    if markers is not None:
        told = {name: column(other) for name, other in zip(keys, _renamed(keys), strict=True)}
        told |= {number: F.col("begin"), home: F.lit(False)}
        before = _lasting(markers.withColumn("after", F.col("marker") + lifetimes.span(TICK)), "marker", "after")
        listed = listed.union(before.select("start", "end", *filled(carried, told)))
    feed = Feed(pa.schema([*first.input.schema, *extra]), (SLICE, *first.key), first.input.duration)
    task = Task(Filter(replace(first, input=feed), nw.col(_HOME)), (passing,), answer)
    passed = ["start", *(["end"] if feed.length is None else []), *carried.names]
    return Cut(listed, task, [number, *keys], passed, lambda done: done)


def _lasting(frame: DataFrame, start: str, end: str) -> DataFrame:
    return frame.withColumns({"start": to_timestamp(F.col(start)), "end": to_timestamp(F.col(end))})


@singledispatch
def _shown(given: Any, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame | None]:
    """The rows that each slice is shown, and its markers.

    Args:
        given: How far rows reach.
        events: With ``low`` and ``high``.
        slices: The slices.
        keys: The columns of the key, as lowered.

    Returns:
        Events with the ``begin`` of a slice that is shown them, and whether it is their ``home``; and, where there are
        any, for markers this ``begin``, the keys under names of their own, and a time, ``marker``.
    """
    raise TypeError(given)


def _own() -> Column:
    """The events that start in a slice."""
    return (F.col("low") >= F.col("begin")) & (F.col("low") < F.col("finish"))


def _at_home(rows: DataFrame) -> DataFrame:
    return rows.withColumn("home", F.lit(True))


@_shown.register
def _(given: NoHalo, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, None]:
    return _at_home(in_slices(events, slices, _own())), None


@_shown.register
def _(given: LiveHalo, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, None]:
    alive = (F.col("low") < F.col("finish")) & (F.col("high") > F.col("begin"))
    return in_slices(events, slices, alive).withColumn("home", _own()), None


@_shown.register
def _(given: RowHalo, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, None]:
    return _shown_around(given, events, slices, keys).withColumn("home", _own()), None


@_shown.register
def _(given: GapHalo, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, None]:
    return _at_home(_beside(events, _after_silence(events, slices, keys, given.gap), keys, _own())), None


@_shown.register
def _(given: GridHalo, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame | None]:
    if given.calendar is not None:
        return _at_home(in_slices(events, at_begins(slices, given.calendar), _own())), None
    if given.align is not None:
        return _at_home(in_slices(events, _on_grid(slices, F.lit(given.align), given.span), _own())), None
    shown = _on_grids(events, slices, keys, given.span)
    time = F.col("begin") - lifetimes.span(given.span)
    markers = shown.where(F.col("begin") > F.col("origin")).withColumn("marker", time)
    return _at_home(_beside(events, shown, keys, _own())), markers


# Which rows a slice is shown


def _renamed(keys: Sequence[str]) -> list[str]:
    return [f"of_{name}" for name in keys]


def _beside(events: DataFrame, shown: DataFrame, keys: Sequence[str], where: Column) -> DataFrame:
    """Events beside what is known of their keys and slices, for which a condition holds."""
    same = (column(name).eqNullSafe(column(other)) for name, other in zip(keys, _renamed(keys), strict=True))
    return in_slices(events, shown, reduce(Column.__and__, same, where))


def _placed(events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The keys and starts of events, each with its slice."""
    names = [column(name).alias(other) for name, other in zip(keys, _renamed(keys), strict=True)]
    return in_slices(events.select(*names, "low"), slices, _own())


def _shown_around(given: RowHalo, events: DataFrame, slices: DataFrame, keys: Sequence[str]) -> DataFrame:
    shown, between = _around(events, slices, keys, given), F.col("low").between(F.col("since"), F.col("until"))
    if given.every == 1:
        return _beside(events, shown, keys, between)
    # For each key a row that is listed in each of its slices, as many times as rows are missing there.
    one = events.select(*keys).distinct() if keys else events.sparkSession.range(1, numPartitions=1).select()
    marked = events.withColumn("marks", F.lit(False)).unionByName(
        one.withColumn("marks", F.lit(True)),
        allowMissingColumns=True,
    )
    missing = F.when(F.col("marks"), F.pmod("before", F.lit(given.every)).cast("int")).otherwise(1)
    listed = _beside(marked, shown, keys, F.col("marks") | between)
    time = F.when(F.col("marks"), F.col("since") - lifetimes.span(TICK))
    return listed.select("*", F.explode(F.array_repeat(F.lit(0), missing))).withColumns(
        {"low": F.coalesce(time, "low"), "high": F.coalesce(time + lifetimes.span(TICK), "high")}
    )


def _around(events: DataFrame, slices: DataFrame, keys: Sequence[str], given: RowHalo) -> DataFrame:
    """For each key and slice from which start to which it is shown rows, and how many there are ``before`` those."""
    names = _renamed(keys)
    rows = F.lit(1).cast("long") if given.starts else F.count(F.lit(1))
    starts = _placed(events, slices, keys).groupBy(*names, "begin", "finish", "low").agg(rows.alias("rows"))
    here = Window.partitionBy(*map(column, names), "begin").orderBy("low")
    starts = starts.withColumn("upto", F.sum("rows").over(here))
    sizes = starts.groupBy(*names, "begin", "finish").agg(F.sum("rows").alias("size"))
    of_key = Window.partitionBy(*one_of(names))
    earlier = of_key.orderBy("begin").rowsBetween(Window.unboundedPreceding, -1)
    sizes = sizes.withColumns(
        {"earlier": F.coalesce(F.sum("size").over(earlier), F.lit(0)), "all": F.sum("size").over(of_key)}
    )
    # The numbers of the first row and the last one that are shown, and which start is theirs.
    low = F.greatest(F.col("earlier") - given.count, F.lit(0))
    high = F.least(F.col("earlier") + F.col("size") + given.count, "all") - 1
    asked = sizes.select(*names, "begin", "finish", low.alias("lowest"), high.alias("highest"))
    known = [column(name).alias(f"{name}_") for name in names]
    numbers = sizes.select(*known, F.col("begin").alias("slice"), "earlier")
    same = (column(name).eqNullSafe(column(f"{name}_")) for name in names)
    placed = starts.select(*names, F.col("begin").alias("at"), "low", "rows", "upto")
    placed = placed.join(F.broadcast(numbers), reduce(Column.__and__, same, F.col("at") == F.col("slice")))
    upto = F.col("earlier") + F.col("upto")
    placed = placed.select(*known, "low", (upto - F.col("rows")).alias("number"), upto.alias("next"))
    same = (column(name).eqNullSafe(column(f"{name}_")) for name in names)
    first, last = ((F.col("number") <= F.col(name)) & (F.col("next") > F.col(name)) for name in ("lowest", "highest"))
    found = placed.join(F.broadcast(asked), reduce(Column.__and__, same, first | last))
    return found.groupBy(*names, "begin", "finish").agg(
        F.min("low").alias("since"), F.max("low").alias("until"), F.min("number").alias("before")
    )


def _after_silence(events: DataFrame, slices: DataFrame, keys: Sequence[str], gap: int) -> DataFrame:
    """For each key the slices in which a start comes after a silence, each from the first such start to the next."""
    names = _renamed(keys)
    placed = _placed(events, slices, keys).distinct()
    here = Window.partitionBy(*map(column, names), "begin").orderBy("low")
    silent = placed.withColumn("silent", F.col("low") - F.lag("low").over(here) >= lifetimes.span(gap))
    opens = F.min(F.when(F.col("silent"), F.col("low")))
    each = silent.groupBy(*names, "begin").agg(
        F.min("low").alias("first"), F.max("low").alias("last"), opens.alias("opens")
    )
    of_key = Window.partitionBy(*one_of(names)).orderBy("begin")
    before = F.lag("last").over(of_key)
    fresh = before.isNull() | (F.col("first") - before >= lifetimes.span(gap))
    seams = each.withColumn("seam", F.when(fresh, F.col("first")).otherwise(F.col("opens")))
    seams = seams.where(F.col("seam").isNotNull())
    finish = F.coalesce(F.lead("seam").over(of_key), F.lit(AFTER))
    return seams.withColumn("finish", finish).select(*names, F.col("seam").alias("begin"), "finish")


def _on_grid(slices: DataFrame, point: Column, span: int, *also: str) -> DataFrame:
    """Slices that begin at points of a grid: at the next ones."""
    begin, finish = (F.col(name) + F.pmod(point - F.col(name), lifetimes.span(span)) for name in ("begin", "finish"))
    return slices.select(*also, begin.alias("begin"), finish.alias("finish")).where("begin < finish")


def _on_grids(events: DataFrame, slices: DataFrame, keys: Sequence[str], span: int) -> DataFrame:
    """For each key the slices that begin at points of its grid, which is counted from its first start, ``origin``."""
    names = _renamed(keys)
    known = [column(name).alias(other) for name, other in zip(keys, names, strict=True)]
    first = F.min("low").alias("origin")
    origins = events.select(*known, "low").groupBy(*names).agg(first).where("origin IS NOT NULL")
    every = origins.join(F.broadcast(slices), F.col("finish") > F.col("origin"))
    return _on_grid(every, F.col("origin"), span, *names, "origin")
