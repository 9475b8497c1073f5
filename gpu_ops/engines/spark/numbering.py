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
from gpu_ops.engines.spark.slice_policy import AMONG, slices_of
from gpu_ops.engines.spark.slicing import in_slices, one_of, within
from gpu_ops.engines.spark.types import column, to_ticks
from gpu_ops.plan.ledger import TurnNumbers

STREAM = "stream"
"""The column with the number of an event's stream (INT)."""

_ORDER = "__gpu_ops_order"
_MOST = 1024
"""How many slices there are at most: an event is compared with each of them here."""


def order_columns(ledger: TurnNumbers, at: int, frame: DataFrame) -> tuple[DataFrame, list[Column]]:
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
        rows: The events: ``low``, ``place`` (LONG), `STREAM`, whether it ``opens`` a time, and what they had.
        slices: The slices of time. Each knows when the clock moves first behind it (``next_time``, ``next_place``), how
            many ``turns`` there are, and when the ``last`` event comes.
    """

    ledger: TurnNumbers
    rows: DataFrame
    slices: DataFrame

    @property
    def clock(self) -> Column:
        """What the clock shows when an event comes (LONG)."""
        return F.col("low") if self.ledger.moves else span(self.ledger.since)

    @property
    def ticks(self) -> DataFrame:
        """All moves of the clock: ``time`` (what it shows then) and ``place`` (LONG)."""
        found = self.slices.agg(F.max("turns").alias("turns"), F.max("last").alias("last"))
        ends = [F.struct(span(self.ledger.since).alias("time"), span(0).alias("place"))]
        if self.ledger.until is not None:
            ends.append(self._until)
        listed = found.select(F.explode(F.array(*ends)).alias("tick")).select("tick.time", "tick.place")
        known = listed.where(F.col("time").isNotNull())
        return self._moves.union(known) if self.ledger.moves else known

    @property
    def _moves(self) -> DataFrame:
        """The moves of the clock to the times of events."""
        opens = self.rows.where("opens")
        return opens.select(F.col("low").alias("time"), (F.col("place") - span(TURN)).alias("place"))

    @property
    def _until(self) -> Column:
        """The tick behind all events, over ``turns`` and ``last``; its time is null if there is none."""
        last = F.col("last") if self.ledger.moves else F.lit(None).cast("long")
        later = F.coalesce(last, span(self.ledger.since)) < span(int(self.ledger.until or 0))
        place = (F.coalesce(F.col("turns"), span(0)) + span(1)) * span(TURN)
        return F.struct(F.when(later, span(int(self.ledger.until or 0))).alias("time"), place.alias("place"))

    def first_ticks(self, rows: DataFrame, spans: Collection[int], also: Sequence[str]) -> DataFrame:
        """The first ticks that show so much, or more, after what the clock showed at some events; it moves with them.

        Args:
            rows: Some of the events.
            spans: Spans, in ticks.
            also: Columns of these events.

        Returns:
            ``time`` and ``place`` of a tick for each event and span, and these columns; equal rows are one.
        """
        later = F.array(*(F.col("low") + span(each) for each in sorted(spans)))
        asked = rows.select(F.explode(later).alias("due"), *also)
        nobody = [F.lit(None).cast(each.dataType).alias(each.name) for each in asked.schema if each.name in also]
        moves = self._moves.select(F.col("time").alias("due"), *nobody, "time", "place")
        none = [F.lit(None).cast("long").alias(name) for name in ("time", "place")]
        both = in_slices(moves.union(asked.select("due", *also, *none)), self.slices, within("due"))
        # Both grow with time: the least of those at or past a time are of one tick.
        here = Window.partitionBy("begin").orderBy(F.col("due").desc())
        firsts = {name: F.coalesce(F.min(name).over(here), f"next_{name}") for name in ("time", "place")}
        asks = F.col("time").isNull().alias("asks")
        found = both.select("due", "turns", "last", *also, asks, *(each.alias(name) for name, each in firsts.items()))
        if self.ledger.until is not None:
            until = self._until
            reached = F.col("time").isNull() & (until["time"] >= F.col("due"))
            filled = {name: F.when(reached, until[name]).otherwise(F.col(name)) for name in firsts}
            found = found.select("asks", *also, *(each.alias(name) for name, each in filled.items()))
        return found.where(F.col("asks") & F.col("time").isNotNull()).select(*also, *firsts).distinct()


def numbered(ledger: TurnNumbers, parts: Sequence[DataFrame], count: int) -> NumberedEvents:
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
    slices = slices_of([events], min(count, _MOST), ("low",)).drop(AMONG)
    keys = ["low", *([_ORDER] if ledger.order is not None else []), STREAM]
    in_turn, at_time = (Window.partitionBy("begin").orderBy(*names) for names in (keys, ["low"]))
    same = {name: F.lag(name).over(in_turn) == F.col(name) for name in keys}
    counted = in_slices(events, slices, within()).withColumns(
        {
            "rank": F.row_number().over(in_turn).cast("long"),
            "moved": F.dense_rank().over(at_time).cast("long") if ledger.moves else span(0),
            "opens": ~F.coalesce(same["low"], F.lit(False)),
            "tied": F.coalesce(reduce(Column.__and__, same.values()), F.lit(False)),
        }
    )
    counted = checked(counted, ~F.col("tied"), _tied(ledger))
    offsets = _offsets(ledger, counted)
    turn = F.col("offset") + F.col("rank") + F.col("moved")
    given = [name for name in events.columns if name != _ORDER]
    # Rows are partitioned by slice and in its order, so a merge moves none of them. (The planner of the RAPIDS plugin
    # fails at a broadcast that is used twice.)
    joined = counted.join(offsets.select("begin", "offset").hint("merge"), "begin")
    rows = joined.select(*map(column, given), "opens", (turn * span(TURN)).alias("place"))
    return NumberedEvents(ledger, rows, offsets)


def _offsets(ledger: TurnNumbers, counted: DataFrame) -> DataFrame:
    """For each slice how many turns there are before it (``offset``), and what `NumberedEvents.slices` has."""
    each = counted.groupBy("begin", "finish").agg(
        F.max("rank").alias("events"),
        F.max("moved").alias("moves"),
        F.min("low").alias("first"),
        F.max("low").alias("last"),
    )
    every = Window.partitionBy(*one_of(()))
    in_order = every.orderBy("begin")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    # The clock does not move to what it shows already.
    shows = (F.min("first").over(every) == span(ledger.since)) if ledger.moves else F.lit(False)
    counts = F.col("events") + F.col("moves")
    told = each.select(
        "begin",
        "finish",
        "first",
        (F.coalesce(F.sum(counts).over(before), span(0)) - shows.cast("long")).alias("offset"),
        (F.sum(counts).over(every) - shows.cast("long")).alias("turns"),
        F.max("last").over(every).alias("last"),
    )
    next_place = (F.lead("offset").over(in_order) + span(1)) * span(TURN)
    return told.select("*", F.lead("first").over(in_order).alias("next_time"), next_place.alias("next_place"))


def _tied(ledger: TurnNumbers) -> Column:
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
