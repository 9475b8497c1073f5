"""The order in which events come, on Spark: their places on turns, and the moves of the clock.

Time is cut into slices at the same seams wherever they are asked for. Within a slice window functions count events and
moves of the clock; a table with a row for each slice says how many there are before it. No task sees all events.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import format_time
from gpu_ops.core.turns import TURN
from gpu_ops.core.types import storage
from gpu_ops.engines.spark.checks import checked, error_text, shown
from gpu_ops.engines.spark.lifetimes import span
from gpu_ops.engines.spark.slice_policy import slices_of
from gpu_ops.engines.spark.slicing import in_slices, one_of, within
from gpu_ops.engines.spark.types import column, to_ticks
from gpu_ops.plan.ledger import EventLedger

STREAM = "stream"
"""The column with the number of an event's stream (INT)."""

_ORDER = "__gpu_ops_order"


def order_columns(ledger: EventLedger, at: int, frame: DataFrame) -> tuple[DataFrame, list[Column]]:
    """The events of a stream of a ledger, checked, and what says when they come.

    Args:
        ledger: The ledger.
        at: The number of the stream.
        frame: Its events.

    Returns:
        (the events, their ``low``, their place among those of one time, the number of the stream).
    """
    start, value = to_ticks(F.col("start")), F.lit(None).cast("long")
    if ledger.order is not None:
        given, dtype = column(ledger.order), storage(ledger.streams[at].schema.field(ledger.order).type)
        message = error_text(
            "ColumnError",
            f"An event of {ledger.called[at]} has no place in the order.",
            ledger.order,
            shown("start", F.col("start")),
            "Give each a number.",
        )
        frame = checked(frame, given.isNotNull(), message)
        value = to_ticks(given.cast("timestamp")) if pa.types.is_timestamp(dtype) else given.cast("long")
    return frame, [start.alias("low"), value.alias(_ORDER), F.lit(at).alias(STREAM)]


@dataclass(frozen=True)
class NumberedEvents:
    """The events of all streams of a ledger, at their places.

    Attributes:
        ledger: The ledger.
        slices: The slices of time.
        rows: The events: ``low``, ``place`` (LONG), `STREAM`, and what they had.
    """

    ledger: EventLedger
    slices: DataFrame
    rows: DataFrame

    @property
    def clock(self) -> Column:
        """What the clock shows when an event comes (LONG)."""
        return F.col("low") if self.ledger.moves else span(self.ledger.since)

    @property
    def _ends(self) -> DataFrame:
        """The first tick, and the one behind all events if there is one: ``time`` and ``place`` (LONG)."""
        found = self.rows.agg(F.max("place").alias("place"), F.max("low").alias("low"))
        until, last = self.ledger.until, F.col("low") if self.ledger.moves else F.lit(None).cast("long")
        ticks = [F.struct(span(self.ledger.since).alias("time"), span(0).alias("place"))]
        if until is not None:
            place = F.coalesce(F.col("place"), span(0)) + span(TURN)
            later = F.coalesce(last, span(self.ledger.since)) < span(until)
            ticks.append(F.struct(F.when(later, span(until)).alias("time"), place.alias("place")))
        listed = found.select(F.explode(F.array(*ticks)).alias("tick")).select("tick.time", "tick.place")
        return listed.where(F.col("time").isNotNull())

    @property
    def ticks(self) -> DataFrame:
        """All moves of the clock: ``time`` (what it shows then) and ``place`` (LONG)."""
        if not self.ledger.moves:
            return self._ends
        first = self.rows.groupBy(F.col("low").alias("time")).agg(F.min("place").alias("first"))
        moved = first.where(F.col("time") > span(self.ledger.since))
        return moved.select("time", (F.col("first") - span(TURN)).alias("place")).union(self._ends)

    def first_ticks(self, rows: DataFrame, spans: Collection[int], also: Sequence[str]) -> DataFrame:
        """The first ticks that show so much, or more, after what the clock showed at some events.

        Args:
            rows: Some of the events.
            spans: Spans, in ticks.
            also: Columns of these events.

        Returns:
            ``time`` and ``place`` of a tick for each event and span, and these columns; equal rows are one.
        """
        later = F.array(*(self.clock + span(each) for each in sorted(spans)))
        asked = rows.select(F.explode(later).alias("due"), *also).distinct()
        nobody = [F.lit(None).cast(each.dataType).alias(each.name) for each in asked.schema if each.name in also]
        ticks = self.ticks.select(F.col("time").alias("due"), *nobody, "time", "place")
        none = [F.lit(None).cast("long").alias(name) for name in ("time", "place")]
        both = in_slices(ticks.union(asked.select("due", *also, *none)), F.broadcast(self.slices), within("due"))
        # Both grow with time: the least of those at or past a time are of one tick.
        here = Window.partitionBy("begin").orderBy(F.col("due").desc())
        later_on = Window.partitionBy(*one_of(())).orderBy(F.col("begin").desc())
        later_on = later_on.rowsBetween(Window.unboundedPreceding, -1)
        names = ("time", "place")
        firsts = both.groupBy("begin").agg(*(F.min(name).alias(name) for name in names))
        behind = firsts.select("begin", *(F.min(name).over(later_on).alias(f"{name}_behind") for name in names))
        found = both.select(
            "begin", *also, F.col("time").isNull().alias("asks"), *(F.min(n).over(here).alias(n) for n in names)
        )
        known = found.where("asks").join(behind.hint("merge"), "begin")
        made = known.select(*also, *(F.coalesce(name, f"{name}_behind").alias(name) for name in names))
        return made.where(F.col("place").isNotNull()).distinct()


def numbered(ledger: EventLedger, parts: Sequence[DataFrame], count: int) -> NumberedEvents:
    """Events at their places.

    Args:
        ledger: What says in which order they come.
        parts: For each stream its events with `order_columns` and any others; all have the same.
        count: Into how many slices of time they are cut at most.
    """
    events = reduce(DataFrame.union, parts)
    if ledger.moves:
        early = error_text(
            "TimeError",
            f"An event comes before the clock starts, which is at {format_time(ledger.since)}.",
            None,
            shown("start", F.timestamp_micros("low")),
            "Start the clock earlier: start=….",
        )
        events = checked(events, F.col("low") >= span(ledger.since), early)
    slices = slices_of([events], count, ("low",))
    keys = ["low", *([_ORDER] if ledger.order is not None else []), STREAM]
    in_turn, at_time = (Window.partitionBy("begin").orderBy(*names) for names in (keys, ["low"]))
    counted = in_slices(events, F.broadcast(slices), within()).withColumns(
        {
            "rank": F.row_number().over(in_turn).cast("long"),
            "moved": F.dense_rank().over(at_time).cast("long"),
            "tied": reduce(Column.__and__, (F.lag(name).over(in_turn) == F.col(name) for name in keys)),
        }
    )
    counted = checked(counted, ~F.coalesce("tied", F.lit(False)), _tied(ledger))
    each = counted.groupBy("begin").agg(
        F.max("rank").alias("events"), F.max("moved").alias("moves"), F.min("low").alias("first")
    )
    before = Window.partitionBy(*one_of(())).orderBy("begin").rowsBetween(Window.unboundedPreceding, -1)
    every = Window.partitionBy(*one_of(()))
    events_before, moves_before = (F.coalesce(F.sum(name).over(before), span(0)) for name in ("events", "moves"))
    # The clock does not move to what it shows already.
    shown_first = F.when(F.min("first").over(every) == span(ledger.since), span(1)).otherwise(span(0))
    offset = events_before + (moves_before - shown_first if ledger.moves else span(0))
    offsets = each.select("begin", offset.alias("offset"))
    turn = F.col("offset") + F.col("rank") + (F.col("moved") if ledger.moves else span(0))
    given = [name for name in events.columns if name != _ORDER]
    # Rows are partitioned by slice and in its order, so a merge moves none of them. (The planner of the RAPIDS plugin
    # fails at a broadcast that is used twice.)
    rows = counted.join(offsets.hint("merge"), "begin").select(*map(column, given), (turn * span(TURN)).alias("place"))
    return NumberedEvents(ledger, slices, rows)


def _tied(ledger: EventLedger) -> Column:
    """What an error says of two events that nothing orders."""
    by_time = ledger.order is None and ledger.moves
    rule, remedy = "have one number.", "Number them anew."
    if by_time:
        rule, remedy = "come at one time, and nothing says which is first.", 'Name a column that does: order="seq".'
    values = shown("start", F.timestamp_micros("low"))
    if ledger.order is not None:
        values = F.concat(values, F.lit(", "), shown("order", F.col(_ORDER)))
    said = (
        F.when(
            F.col(STREAM) == at,
            error_text("ColumnError", f"Two events of {name} {rule}", ledger.order, values, remedy),
        )
        for at, name in enumerate(ledger.called)
    )
    return F.coalesce(*said)
