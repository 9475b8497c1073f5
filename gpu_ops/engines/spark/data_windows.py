"""Data windows cut in time: each slice is shown as much before it and after it as the memberships of its rows need.

A row is at *home* in one slice, which gives what the window says of it. A slice gives nothing of the other rows that it
is shown. The window's kind says how far it looks, and here that is found among the events:

- A number of rows: counts within the slices, and sums of these, number the rows of each key. So it is known at which
  start the first row is that a slice needs, and the last one. The slice is shown all rows between the two. Without a
  key some starts near the slices' ends do: a slice may be shown more than it needs.
  Where the window moves at each n-th row, *markers* stand for the rows before: as many as make up the remainder by n.
- Silence: the first and the last start of a key in each slice say whether its first row goes on with what was before.
  If it does, it is at home in that slice, and so are those behind it up to the first silence.
- A grid: the seams move to its next points. If the key's first start decides these, a *marker* tells it: a row that
  starts one stretch before the slice, and is out of the window when the slice's first stretch enters it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import narwhals as nw
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import LIFETIME, TICK
from gpu_ops.engines.spark import lifetimes
from gpu_ops.engines.spark.grids import at_begins
from gpu_ops.engines.spark.sides import FragmentInput
from gpu_ops.engines.spark.slice_policy import AFTER, AMONG, in_one_task, slices_of
from gpu_ops.engines.spark.slicing import NUMBER, SLICE, Cut, SliceRows, alive, in_slices, one_of, within
from gpu_ops.engines.spark.type_codecs import encoded_names, encoded_schema
from gpu_ops.engines.spark.types import all_of, column, to_ticks
from gpu_ops.engines.spark.worker import Task
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.nodes import Feed, Filter, Node, Project
from gpu_ops.plan.window_kinds import GapHalo, GridHalo, LiveHalo, NoHalo, RowHalo
from gpu_ops.plan.windows import WindowAggregate

_HOME = pa.field("__gpu_ops_home", pa.bool_())
_FINISH = pa.field("__gpu_ops_finish", pa.int64())
_LEAST_BINS, _MOST_MARKED = 64, 1024
"""How many bins a slice's starts are shared out among at least, and rows before and after up to which that is done."""


def cut_data_window(first: DataWindow, given: FragmentInput, answer: pa.Schema, count: int) -> Cut:
    """A data window over slices of time.

    Args:
        first: The window; `gpu_ops.engines.spark.slice_policy.uncut` has nothing against it.
        given: Its events.
        answer: The wanted columns of its results.
        count: How many slices.
    """
    listing = SliceRows(given.schema, (_HOME,))
    rows = _listed(first, given, listing, _shown_of(first, given, count), {})
    feed = Feed(pa.schema([*first.input.schema, NUMBER, _HOME]), (SLICE, *first.key), first.input.duration)
    task = Task(Filter(replace(first, input=feed), nw.col(_HOME.name)), (listing.schema,), answer)
    return Cut(rows, task, listing.partition(first.group))


def aggregated_alone(node: WindowAggregate) -> DataWindow | None:
    """The data window below aggregates, if a slice of it has all that these need: one pass does for both.

    It does where rows stay no longer than the window looks. With silences and grids no row is then in while one of
    another slice is. A slice of a window of so many rows is shown all rows that are in at its beginning, and the next
    changes behind it.

    Args:
        node: The aggregates, over plain columns, which a projection may compute.
    """
    below = node.input
    if isinstance(below, Project):
        reads = {
            name for each in below.expressions for name in column_names(each, [*LIFETIME, *below.input.schema.names])
        }
        below = below.input if reads.isdisjoint(LIFETIME) else below
    if not isinstance(below, DataWindow) or below.output != "alive" or below.within or below.key != node.group:
        return None
    bounded = isinstance(below.halo, RowHalo | GapHalo | GridHalo) and below.window.stays_in_halo
    return below if node.window.grid is None and bounded else None


def cut_aggregates(first: Node, below: Node, given: FragmentInput, answer: pa.Schema, count: int) -> Cut:
    """Aggregates over the data window that `aggregated_alone` gives, over slices of time, in one pass.

    Args:
        first: The aggregates, over plain columns.
        below: The data window.
        given: Its events.
        answer: The wanted columns of the aggregates' results.
        count: How many slices.
    """
    assert isinstance(first, WindowAggregate)  # noqa: S101  (as `aggregated_alone` says)
    assert isinstance(below, DataWindow)  # noqa: S101  (likewise)
    listing, back = SliceRows(given.schema, (_HOME, _FINISH)), SliceRows(answer, (_FINISH,))
    shown = _shown_of(below, given, count)
    bounded = isinstance(below.halo, RowHalo)
    if bounded:  # rows of other slices are in too, but no markers
        event = ~F.col("marker") if "marker" in shown.rows.columns else F.lit(True)
        shown = replace(shown, rows=shown.rows.withColumn("home", event))
    rows = _listed(below, given, listing, shown, {_FINISH.name: F.col("finish")})
    schema = pa.schema([*below.input.schema, NUMBER, _HOME, _FINISH])
    feed = Feed(schema, (SLICE, _FINISH.name, *below.key), below.input.duration)
    own: Node = Filter(replace(below, input=feed), nw.col(_HOME.name))
    if isinstance(first.input, Project):
        own = replace(first.input, input=own, keep=True)
    plan = replace(first, input=own)

    def finished(done: DataFrame) -> DataFrame:
        begin, finish = back.columns(SLICE, _FINISH.name)
        start = to_ticks(F.col("start"))
        mine = done.where((start >= begin) & (start < finish)) if bounded else done
        return mine.select("start", "end", *encoded_schema(answer).names)

    return Cut(rows, Task(plan, (listing.schema,), back.schema), listing.partition(below.group), finished)


def _shown_of(first: DataWindow, given: FragmentInput, count: int) -> _Shown:
    """What slices of a data window are shown."""
    halo = first.halo
    assert not isinstance(halo, str)  # noqa: S101  (nothing is against it)
    events = given.ticks
    slices = slices_of([events], count, ["low", "high"] if halo.reads_ends else ["low"])
    return _shown(halo, _SlicedEvents(events, slices, encoded_names(given.schema, first.group)))


def _listed(
    first: DataWindow, given: FragmentInput, listing: SliceRows, shown: _Shown, also: Mapping[str, Column]
) -> DataFrame:
    """What slices are shown as rows that go to the workers, with more columns of our own."""
    rows = listing.rows(shown.rows, F.col("low"), F.col("high"), {_HOME.name: F.col("home"), **also})
    if shown.markers is None:
        return rows
    start = F.col("marker")
    not_home = {_HOME.name: F.lit(False), **also}
    return rows.union(listing.rows(shown.markers, start, start + lifetimes.span(TICK), not_home))


@dataclass(frozen=True)
class _SlicedEvents:
    """The events of a data window, beside slices.

    Attributes:
        rows: Events with ``low`` and ``high``.
        slices: The slices.
        keys: The encoded columns of the key.
    """

    rows: DataFrame
    slices: DataFrame
    keys: Sequence[str]

    @property
    def names(self) -> list[str]:
        """What the keys are called in frames that stand beside the events."""
        return [f"of_{name}" for name in self.keys]

    @property
    def starts(self) -> DataFrame:
        """Keys, under `names`, and starts, ``low``."""
        return self.rows.select(*_renamed(self.keys, self.names), "low")

    def in_own(self) -> DataFrame:
        """Keys and starts, each in its slice; those of a key and a slice are in one task."""
        own = in_slices(self.starts, self.slices, within(), searchable=bool(self.among))
        return own.repartition(*map(column, self.names), "begin")

    @property
    def among(self) -> list[str]:
        """The column by which slices are searched, if they are; those of keys are found by their key."""
        return [name for name in self.slices.columns if name == AMONG and not self.keys]

    def beside(self, known: DataFrame, where: Column) -> DataFrame:
        """Events beside rows of the same key for which a condition holds.

        Args:
            known: The keys, under `names`, the ``begin`` of a slice, and what else the condition reads.
            where: The condition.
        """
        return in_slices(self.rows, known, all_of([where, *_same(self.keys, self.names)]))


def _same(names: Iterable[str], others: Iterable[str]) -> list[Column]:
    """Whether columns are equal to others, nulls to nulls."""
    return [column(name).eqNullSafe(column(other)) for name, other in zip(names, others, strict=True)]


def _renamed(names: Iterable[str], others: Iterable[str]) -> list[Column]:
    return [column(name).alias(other) for name, other in zip(names, others, strict=True)]


@dataclass(frozen=True)
class _Shown:
    """What slices are shown.

    Attributes:
        rows: Events, each with the ``begin`` of the slice and whether it is at ``home`` there.
        markers: Keys, each with the ``begin`` of the slice and the ``marker``'s start; None where none are needed.
    """

    rows: DataFrame
    markers: DataFrame | None = None


def _all_at_home(rows: DataFrame, markers: DataFrame | None = None) -> _Shown:
    return _Shown(rows.withColumn("home", F.lit(True)), markers)


@singledispatch
def _shown(halo: Any, events: _SlicedEvents) -> _Shown:
    """What slices are shown.

    Args:
        halo: How far the window looks.
        events: Its events.
    """
    raise TypeError(halo)


@_shown.register
def _(halo: NoHalo, events: _SlicedEvents) -> _Shown:
    return _all_at_home(in_slices(events.rows, events.slices, within()))


@_shown.register
def _(halo: LiveHalo, events: _SlicedEvents) -> _Shown:
    return _Shown(in_slices(events.rows, events.slices, alive()).withColumn("home", within()))


@_shown.register
def _(halo: RowHalo, events: _SlicedEvents) -> _Shown:
    bounds, between = _first_and_last_shown(events, halo), F.col("low").between(F.col("since"), F.col("until"))
    rows = events.beside(bounds, between) if halo.every == 1 else _with_remainders(events, bounds, between, halo)
    return _Shown(rows.withColumn("home", within()))


@_shown.register
def _(halo: GapHalo, events: _SlicedEvents) -> _Shown:
    return _all_at_home(events.beside(_after_silence(events, halo.gap), within()))


@_shown.register
def _(halo: GridHalo, events: _SlicedEvents) -> _Shown:
    if halo.calendar is not None:
        return _all_at_home(in_slices(events.rows, at_begins(events.slices, halo.calendar), within()))
    if halo.align is not None:
        slices = _on_grid(events.slices, F.lit(halo.align), halo.span, *events.among)
        return _all_at_home(in_slices(events.rows, slices, within()))
    slices = _on_own_grids(events, halo.span)
    before = F.col("begin") - lifetimes.span(halo.span)
    later = slices.where(F.col("begin") > F.col("origin"))
    markers = later.select(*_renamed(events.names, events.keys), "begin", "finish", before.alias("marker"))
    return _all_at_home(events.beside(slices, within()), markers)


# Around: a number of rows before and after


def _first_and_last_shown(events: _SlicedEvents, halo: RowHalo) -> DataFrame:
    """For each key and slice the first and the last start that it is shown, ``since`` and ``until``.

    And how many rows of the key come ``before`` those: rows are numbered from 0, by their starts.
    """
    names, others = events.names, [f"{name}_" for name in events.names]
    few = not names and halo.every == 1 and halo.count <= _MOST_MARKED
    starts = _marked_starts(events, halo) if few else _counted_starts(events, halo)
    slices = _counted_slices(starts, names, events.among)
    first = F.greatest(F.col("earlier") - halo.count, F.lit(0))
    last = F.least(F.col("earlier") + F.col("size") + halo.count, "all") - 1
    asked = slices.select(*names, "begin", "finish", *events.among, first.alias("first"), last.alias("last"))
    is_first, is_last = ((F.col("number") <= F.col(name)) & (F.col("next") > F.col(name)) for name in ("first", "last"))
    numbered = _numbered_starts(starts, slices, names, others)
    found = numbered.join(F.broadcast(asked), all_of([is_first | is_last, *_same(names, others)]))
    bounds = found.groupBy(*names, "begin", "finish", *events.among).agg(
        F.min("low").alias("since"), F.max("low").alias("until"), F.min("number").alias("before")
    )
    return in_one_task(bounds, names)


def _marked_starts(events: _SlicedEvents, halo: RowHalo) -> DataFrame:
    """As `_counted_starts`, of a few starts near the slices' ends: behind so many of them are as many rows, or more.

    The starts of a slice are shared out among bins by their hashes; of each bin the first and the last one are taken.
    So the first and the last start of all are among them, and those that are missing are further from both ends.
    No event moves between tasks for it. A slice may be shown some events more than it needs.
    """
    bins = F.pmod(F.xxhash64("low"), F.lit(max(_LEAST_BINS, 4 * halo.count)))
    listed = in_slices(events.starts, events.slices, within(), searchable=bool(events.among))
    ends = listed.groupBy("begin", "finish", *events.among, bins.alias("bin"))
    found = ends.agg(F.min("low").alias("first"), F.max("low").alias("last"))
    each = F.explode(F.array_distinct(F.array("first", "last"))).alias("low")
    starts = in_one_task(found).select("begin", "finish", *events.among, each, F.lit(1).cast("long").alias("rows"))
    here = Window.partitionBy("begin").orderBy("low")
    return starts.withColumn("upto", F.sum("rows").over(here))


def _counted_starts(events: _SlicedEvents, halo: RowHalo) -> DataFrame:
    """For each key and slice its starts: how many ``rows`` start then, and how many ``upto`` then in the slice."""
    rows = F.lit(1).cast("long") if halo.starts else F.count(F.lit(1))
    starts = events.in_own().groupBy(*events.names, "begin", "finish", *events.among, "low").agg(rows.alias("rows"))
    here = Window.partitionBy(*map(column, events.names), "begin").orderBy("low")
    return starts.withColumn("upto", F.sum("rows").over(here))


def _counted_slices(starts: DataFrame, names: Sequence[str], among: Sequence[str]) -> DataFrame:
    """For each key and slice how many rows it has (``size``), how many ``earlier`` slices have, and ``all`` slices."""
    sizes = starts.groupBy(*names, "begin", "finish", *among).agg(F.sum("rows").alias("size"))
    of_key = Window.partitionBy(*one_of(names))
    earlier = F.sum("size").over(of_key.orderBy("begin").rowsBetween(Window.unboundedPreceding, -1))
    return sizes.withColumns({"earlier": F.coalesce(earlier, F.lit(0)), "all": F.sum("size").over(of_key)})


def _numbered_starts(starts: DataFrame, slices: DataFrame, names: Sequence[str], others: Sequence[str]) -> DataFrame:
    """For each key, under other names, its starts: the ``number`` of the first row then, and of the ``next`` one."""
    slices = slices.select(*_renamed(names, others), F.col("begin").alias("slice"), "earlier")
    starts = starts.select(*names, F.col("begin").alias("at"), "low", "rows", "upto")
    own = all_of([F.col("at") == F.col("slice"), *_same(names, others)])
    after = F.col("earlier") + F.col("upto")
    placed = starts.join(F.broadcast(slices), own)
    return placed.select(*_renamed(names, others), "low", (after - F.col("rows")).alias("number"), after.alias("next"))


def _with_remainders(events: _SlicedEvents, bounds: DataFrame, between: Column, halo: RowHalo) -> DataFrame:
    """The rows that each slice is shown, and markers for the rows before, but for multiples of ``halo.every``.

    For each key there is one marker. It is listed in each slice as many times as rows are missing there.
    """
    rows, keys = events.rows, events.keys
    one = rows.select(*keys).distinct() if keys else rows.sparkSession.range(1, numPartitions=1).select()
    marked = rows.withColumn("marker", F.lit(False)).unionByName(
        one.withColumn("marker", F.lit(True)), allowMissingColumns=True
    )
    is_marker = F.col("marker")
    listed = replace(events, rows=marked).beside(bounds, is_marker | between)
    times = F.when(is_marker, F.pmod("before", F.lit(halo.every)).cast("int")).otherwise(1)
    start = F.when(is_marker, F.col("since") - lifetimes.span(TICK))
    return listed.select("*", F.explode(F.array_repeat(F.lit(0), times))).withColumns(
        {"low": F.coalesce(start, "low"), "high": F.coalesce(start + lifetimes.span(TICK), "high")}
    )


# Silence, and grids


def _after_silence(events: _SlicedEvents, gap: int) -> DataFrame:
    """For each key the slices in which a start comes after a silence, each from the first such start to the next."""
    names = events.names
    here = Window.partitionBy(*map(column, names), "begin").orderBy("low")
    silent = F.col("low") - F.lag("low").over(here) >= lifetimes.span(gap)
    starts = events.in_own().distinct().withColumn("silent", silent)
    each = starts.groupBy(*names, "begin", *events.among).agg(
        F.min("low").alias("first"),
        F.max("low").alias("last"),
        F.min(F.when(F.col("silent"), F.col("low"))).alias("opens"),
    )
    of_key = Window.partitionBy(*one_of(names)).orderBy("begin")
    before = F.lag("last").over(of_key)
    fresh = before.isNull() | (F.col("first") - before >= lifetimes.span(gap))
    seams = each.withColumn("seam", F.when(fresh, F.col("first")).otherwise(F.col("opens")))
    seams = seams.where(F.col("seam").isNotNull())
    finish = F.coalesce(F.lead("seam").over(of_key), F.lit(AFTER))
    return seams.withColumn("finish", finish).select(*names, F.col("seam").alias("begin"), "finish", *events.among)


def _on_grid(slices: DataFrame, point: Column, span: int, *also: str) -> DataFrame:
    """Slices that begin at points of a grid: at the next ones."""
    begin, finish = (F.col(name) + F.pmod(point - F.col(name), lifetimes.span(span)) for name in ("begin", "finish"))
    return slices.select(*also, begin.alias("begin"), finish.alias("finish")).where("begin < finish")


def _on_own_grids(events: _SlicedEvents, span: int) -> DataFrame:
    """For each key the slices that begin at points of its grid, which is counted from its first start, ``origin``."""
    origins = events.starts.groupBy(*events.names).agg(F.min("low").alias("origin")).where("origin IS NOT NULL")
    every = origins.join(F.broadcast(events.slices), F.col("finish") > F.col("origin"))
    return _on_grid(every, F.col("origin"), span, *events.names, "origin")
