"""Changes of lifetime as Spark expressions over ``start`` and ``end``: exact, and such as the RAPIDS plugin plans.

Spans are added to LONG ticks, which know no session zone; each rule is that of ``gpu_ops/operators/lifetimes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.engines.spark.checks import checked, error_text, shown
from gpu_ops.engines.spark.types import column, to_ticks, to_timestamp
from gpu_ops.errors import PlanError
from gpu_ops.plan.expressions import LIFETIME
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
from gpu_ops.time import MAX_TIME, MIN_TIME, TICK, format_span

_PIECE = "__piece"

_LONGEST = 1 << 60
"""Spans below this (36,000 years) can be added to any time and to each other within an int64."""


@dataclass(frozen=True)
class Changed:
    """New lifetimes, as expressions of ticks.

    Attributes:
        start: New starts.
        end: New ends.
        keep: Which events stay; None for all.
        verb: What moved the times, if that can bring them out of the years 1 to 9999.
    """

    start: Column
    end: Column
    keep: Column | None = None
    verb: str | None = None


def change(frame: DataFrame, what: Any, duration: int | None) -> DataFrame:
    """A frame with its lifetimes changed.

    Args:
        frame: With ``start`` and ``end`` (TIMESTAMP) and a payload.
        what: A change of lifetime without expressions.
        duration: How long every lifetime lasts, where the plan knows.
    """
    changed = _changed(what, to_ticks(F.col("start")), to_ticks(F.col("end")), duration)
    return apply(frame, to_timestamp(changed.start), to_timestamp(changed.end), changed.keep, changed.verb)


def apply(frame: DataFrame, start: Column, end: Column, keep: Column | None, verb: str | None) -> DataFrame:
    """A frame with new lifetimes, checked where a verb can move them out of the years 1 to 9999.

    Args:
        frame: With ``start`` and ``end`` (TIMESTAMP) and a payload.
        start: TIMESTAMP.
        end: TIMESTAMP.
        keep: Which events stay, over the new ``start`` and ``end``.
        verb: As in `Changed`.
    """
    moved = frame.withColumns({"start": start, "end": end})
    if verb is None:
        return moved if keep is None else moved.where(keep)
    new_start, new_end = F.col("start"), F.col("end")
    first, last = (to_timestamp(F.lit(time)) for time in (MIN_TIME, MAX_TIME))
    return checked(
        moved,
        (new_start >= first) & (new_start <= last) & (new_end <= last),
        error_text(
            "TimeError",
            f"{verb} moves a time out of the years 1 to 9999.",
            "start, end",
            F.concat(shown("start", new_start), F.lit(", "), shown("end", new_end)),
            "Bound the times first, or move them less.",
        ),
        keep,
    )


def _span(value: int) -> Column:
    if abs(value) >= _LONGEST:
        raise PlanError(
            f"A span of {format_span(value)} is longer than all of time.", remedy="Times are of the years 1 to 9999."
        )
    return F.lit(value).cast("long")


def _unless_open(end: Column, moved: Column) -> Column:
    # A finite end that lands on the maximum would read as "never ends": one tick past it, so that it is refused.
    return F.when(end == MAX_TIME, F.lit(MAX_TIME)).when(moved == MAX_TIME, F.lit(MAX_TIME + 1)).otherwise(moved)


def _floor(ticks: Column, hop: int, align: int) -> Column:
    return ticks - F.pmod(ticks - _span(align % hop), _span(hop))


def _ceil(ticks: Column, hop: int, align: int) -> Column:
    return ticks + F.pmod(_span(align % hop) - ticks, _span(hop))


@singledispatch
def _changed(what: Any, start: Column, end: Column, duration: int | None) -> Changed:
    raise TypeError(f"no rule for {what}")


@_changed.register
def _(what: SetDuration, start: Column, end: Column, duration: int | None) -> Changed:
    return Changed(start, start + _span(what.duration), verb="set_duration")


@_changed.register
def _(what: ToPoint, start: Column, end: Column, duration: int | None) -> Changed:
    return Changed(start, start + _span(TICK))


@_changed.register
def _(what: Shift, start: Column, end: Column, duration: int | None) -> Changed:
    moved = end + _span(what.by)
    return Changed(start + _span(what.by), moved if duration else _unless_open(end, moved), verb="shift")


@_changed.register
def _(what: Extend, start: Column, end: Column, duration: int | None) -> Changed:
    moved = end + _span(what.by)
    return Changed(start, moved if duration else _unless_open(end, moved), _lives(), "extend")


@_changed.register
def _(what: ClipDuration, start: Column, end: Column, duration: int | None) -> Changed:
    return Changed(start, F.least(end, start + _span(min(what.limit, MAX_TIME - MIN_TIME))))


@_changed.register
def _(what: PointAtEnd, start: Column, end: Column, duration: int | None) -> Changed:
    # One that never ends would begin at the maximum.
    return Changed(end, end + _span(TICK), to_ticks(F.col("start")) != MAX_TIME)


@_changed.register
def _(what: HopLifetime, start: Column, end: Column, duration: int | None) -> Changed:
    first = _ceil(start, what.hop, what.align)
    if what.hop > what.size:
        # Only an event less than a size before its grid point is in a window at all.
        gone = _ceil(start + _span(what.size), what.hop, what.align) == first
        return Changed(first, F.when(gone, first).otherwise(first + _span(what.size)), _lives(), "hop_lifetime")
    return Changed(first, _ceil(start + _span(what.size), what.hop, what.align), verb="hop_lifetime")


@_changed.register
def _(what: Quantize, start: Column, end: Column, duration: int | None) -> Changed:
    least = F.greatest(end + _span(what.hop - 1), start + _span(what.size))
    # The end lies on the grid of window ends, at least one window after the start (Trill).
    last = _floor(least, what.hop, what.align + what.size)
    return Changed(_floor(start, what.progress or what.hop, what.align), _unless_open(end, last), verb="quantize")


def _lives() -> Column:
    return F.col("end") > F.col("start")


def chop(frame: DataFrame, node: Chop) -> DataFrame:
    """Each event cut at the grid: one row for each piece."""
    period = _span(node.period)
    bounded = checked(
        frame,
        to_ticks(F.col("end")) != MAX_TIME,
        error_text(
            "TimeError",
            "chop would cut an event that never ends into endlessly many.",
            "end",
            shown("start", F.col("start")),
            "Bound it first: .clip_duration(…) or .alter_lifetime(end=…).",
        ),
    )
    start, end = to_ticks(F.col("start")), to_ticks(F.col("end"))
    first = _floor(start, node.period, node.align)
    last = _floor(end - _span(TICK), node.period, node.align)
    payload = [column(name) for name in frame.columns if name not in LIFETIME]
    pieces = bounded.select("start", "end", *payload, F.explode(F.sequence(first, last, period)).alias(_PIECE))
    piece = F.col(_PIECE)
    return pieces.select(
        to_timestamp(F.greatest(start, piece)).alias("start"),
        to_timestamp(F.least(end, piece + period)).alias("end"),
        *payload,
    )
