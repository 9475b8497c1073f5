"""Changes of lifetime as Spark expressions over ``start`` and ``end``: exact, and planned by the RAPIDS plugin.

Spans are added to LONG ticks, which have no session zone. The rules are those of ``gpu_ops/operators/lifetimes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.time import LIFETIME, MAX_TIME, MIN_TIME, TICK, format_span
from gpu_ops.engines.spark.checks import checked, error_text, shown
from gpu_ops.engines.spark.types import column, lifetime, to_ticks, to_timestamp
from gpu_ops.errors import PlanError
from gpu_ops.plan.lifetimes import (
    Chop,
    ClipDuration,
    Extend,
    HopLifetime,
    PointAtEnd,
    Quantize,
    SetDuration,
    Shift,
    ToPoint,
)
from gpu_ops.plan.unnest import Repeat, Unnest

_PIECE = "__piece"

_LONGEST = 1 << 60
"""Spans below this (36,000 years) can be added to any time and to each other within an int64."""


@dataclass(frozen=True)
class Changed:
    """New lifetimes, as expressions over the ticks of the old.

    Attributes:
        start: New starts.
        end: New ends.
        before: Which events have a new lifetime at all; None for all.
        lives: Which events have a lifetime left, over the new columns; None for all.
        verb: The verb, if it can move times out of the years 1 to 9999.
        latest: The latest end: the open one, or the tick before it if all ends are finite.
    """

    start: Column
    end: Column
    before: Column | None = None
    lives: Column | None = None
    verb: str | None = None
    latest: int = MAX_TIME


def change(frame: DataFrame, what: Any) -> DataFrame:
    """A frame with its lifetimes changed.

    Args:
        frame: With ``start`` and ``end`` (TIMESTAMP) and a payload.
        what: A change of lifetime without expressions.
    """
    return moved(frame, _changed(what, to_ticks(F.col("start")), to_ticks(F.col("end"))))


def moved(frame: DataFrame, changed: Changed) -> DataFrame:
    """A frame with new lifetimes, checked if a verb can move them out of the years 1 to 9999."""
    kept = frame if changed.before is None else frame.where(changed.before)
    made = kept.withColumns({"start": to_timestamp(changed.start), "end": to_timestamp(changed.end)})
    if changed.verb is None:
        return made
    start, end = F.col("start"), F.col("end")
    first, last = (to_timestamp(F.lit(time)) for time in (MIN_TIME, changed.latest))
    return checked(
        made,
        (start >= first) & (start <= last) & (end <= last),
        error_text(
            "TimeError",
            f"{changed.verb} moves a time out of the years 1 to 9999.",
            "start, end",
            F.concat(shown("start", start), F.lit(", "), shown("end", end)),
            "Bound the times first, or move them less.",
        ),
        changed.lives,
    )


def never_open(frame: DataFrame, problem: str, remedy: str) -> DataFrame:
    """The events of a frame, or an error where one never ends."""
    message = error_text("TimeError", problem, "end", shown("start", F.col("start")), remedy)
    return checked(frame, to_ticks(F.col("end")) != MAX_TIME, message)


def span(value: int) -> Column:
    """A span of ticks as a LONG.

    Raises:
        PlanError: It is longer than all of time, so that sums with it might not fit.
    """
    if abs(value) >= _LONGEST:
        raise PlanError(
            f"A span of {format_span(value)} is longer than all of time.", remedy="Times are of the years 1 to 9999."
        )
    return F.lit(value).cast("long")


def _unless_open(end: Column, later: Column) -> Column:
    # A finite end on the maximum would mean "never ends". It becomes one tick later, which is refused.
    return F.when(end == MAX_TIME, F.lit(MAX_TIME)).when(later == MAX_TIME, F.lit(MAX_TIME + 1)).otherwise(later)


def _floor(ticks: Column, hop: int, align: int) -> Column:
    return ticks - F.pmod(ticks - span(align % hop), span(hop))


def _ceil(ticks: Column, hop: int, align: int) -> Column:
    return ticks + F.pmod(span(align % hop) - ticks, span(hop))


def lives() -> Column:
    """Whether a new lifetime is not empty."""
    return F.col("end") > F.col("start")


_FINITE = MAX_TIME - TICK
"""The latest end that a duration leads to: the maximum itself would mean an open end."""


@singledispatch
def _changed(what: Any, start: Column, end: Column) -> Changed:
    raise TypeError(f"no rule for {what}")


@_changed.register
def _(what: SetDuration, start: Column, end: Column) -> Changed:
    return Changed(start, start + span(what.duration), verb="set_duration", latest=_FINITE)


@_changed.register
def _(what: ToPoint, start: Column, end: Column) -> Changed:
    return Changed(start, start + span(TICK), verb="to_point", latest=_FINITE)


@_changed.register
def _(what: Shift, start: Column, end: Column) -> Changed:
    return Changed(start + span(what.by), _unless_open(end, end + span(what.by)), verb="shift")


@_changed.register
def _(what: Extend, start: Column, end: Column) -> Changed:
    return Changed(start, _unless_open(end, end + span(what.by)), lives=lives(), verb="extend")


@_changed.register
def _(what: ClipDuration, start: Column, end: Column) -> Changed:
    return Changed(start, F.least(end, start + span(min(what.limit, MAX_TIME - MIN_TIME))))


@_changed.register
def _(what: PointAtEnd, start: Column, end: Column) -> Changed:
    return Changed(end, end + span(TICK), before=end != MAX_TIME, verb="point_at_end", latest=_FINITE)


@_changed.register
def _(what: HopLifetime, start: Column, end: Column) -> Changed:
    first = _ceil(start, what.hop, what.align)
    last = _ceil(start + span(what.size), what.hop, what.align)
    if what.hop > what.size:
        # Only an event less than a size before its grid point is in a window at all.
        there = last > first
        return Changed(first, first + span(what.size), before=there, verb="hop_lifetime", latest=_FINITE)
    return Changed(first, last, verb="hop_lifetime")


@_changed.register
def _(what: Quantize, start: Column, end: Column) -> Changed:
    least = F.greatest(end + span(what.hop - 1), start + span(what.size))
    # The end lies on the grid of window ends, at least one window after the start (Trill).
    last = _floor(least, what.hop, what.align + what.size)
    return Changed(_floor(start, what.progress or what.hop, what.align), _unless_open(end, last), verb="quantize")


def unnest(frame: DataFrame, node: Unnest) -> DataFrame:
    """A row for each struct of a column of lists, its fields as columns."""
    kept = [column(name) for name in ("start", "end", *node.input.schema.names) if name != node.column]
    rows = frame.select(*kept, F.explode(column(node.column)).alias(node.column))
    return rows.select(*kept, *(column(node.column).getField(name).alias(name) for name in node.rows.names))


def repeat(frame: DataFrame, node: Repeat) -> DataFrame:
    """Each row as many times as a column says."""
    times = column(node.column)
    kept = [column(name) for name in ("start", "end", *node.schema.names)]
    rows = frame.filter(times > 0).select(*kept, F.explode(F.sequence(F.lit(1).cast("long"), times.cast("long"))))
    return rows.select(*kept)


def chop(frame: DataFrame, node: Chop) -> DataFrame:
    """Each event cut at the grid: one row for each piece."""
    period = span(node.period)
    bounded = never_open(
        frame,
        "chop would cut an event that never ends into endlessly many.",
        "Bound it first: .clip_duration(…) or .alter_lifetime(end=…).",
    )
    start, end = to_ticks(F.col("start")), to_ticks(F.col("end"))
    first = _floor(start, node.period, node.align)
    last = _floor(end - span(TICK), node.period, node.align)
    payload = [column(name) for name in frame.columns if name not in LIFETIME]
    pieces = bounded.select("start", "end", *payload, F.explode(F.sequence(first, last, period)).alias(_PIECE))
    piece = F.col(_PIECE)
    return pieces.select(*lifetime(F.greatest(start, piece), F.least(end, piece + period)), *payload)
