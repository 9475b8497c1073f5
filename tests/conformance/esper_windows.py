"""Esper's data windows in the public API: when each event of a script is in its window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance import epl
from tests.conformance.epl import Expression, Period, View
from tests.conformance.epl_values import value
from tests.conformance.esper_conditions import CLOCK, condition
from tests.conformance.esper_feed import MILLISECOND, Feed, Grid, instant, later, milliseconds, number, period
from tests.conformance.esper_stays import Content, EventScope
from tests.conformance.esper_timers import by_timer
from tests.conformance.unsupported import UnsupportedError
from tests.support.ticks import at_us, us

_ALL_MONTHS = 28
"""So many days has every month."""


# Windows of rows


def _unique(feed: Feed, view: View, verb: str) -> Content:
    keys = {f"unique {at}": feed.each(key) for at, key in enumerate(view.arguments)}
    return replace(feed.by_steps(getattr(feed.on_steps(**keys), verb)(*keys)), is_hashed=True)


def _sort(feed: Feed, view: View) -> Content:
    rank = feed.ranked(view.arguments[1:])
    places = [(place, -row) for row, place in enumerate(rank)]
    return feed.by_steps(feed.on_steps(rank=rank).lowest(number(view), "rank"), places, others="pass through")


def _rank(feed: Feed, view: View) -> Content:
    at = next(at for at, argument in enumerate(view.arguments) if isinstance(argument, epl.Literal))
    keys = {f"unique {each}": feed.each(key) for each, key in enumerate(view.arguments[:at])}
    rank = feed.ranked(view.arguments[at + 1 :])
    places = [(place, -row) for row, place in enumerate(rank)]
    window = feed.on_steps(rank=rank, **keys).lowest(number(view, at), "rank", unique=list(keys))
    return feed.by_steps(window, places, others="pass through")


def _by_condition(feed: Feed, view: View) -> Content:
    """Each expression of single events that the condition speaks of is a column."""
    columns: dict[Expression, str] = {}
    if view.arguments[0] == epl.Literal(value=True):
        stream = feed.on_steps()
        return (
            feed.by_steps(stream.keep_all()) if view.name == "expr" else feed.by_steps(stream.batches(1), others="wait")
        )
    alone = "oldest" if view.name == "expr" else "newest"
    made = condition(view.arguments[0], lambda each: columns.setdefault(each, f"part {len(columns)}"), alone)
    values = {
        name: [each.at[1] for each in feed.arrivals] if expression == CLOCK else feed.each(expression)
        for expression, name in columns.items()
    }
    stream = feed.on_steps(**values)
    if view.name == "expr":
        return feed.by_steps(stream.keep_while(made), others="pass through")
    included = len(view.arguments) == 1 or view.arguments[1] == epl.Literal(value=True)
    return feed.by_steps(stream.batches_until(made, include_trigger=included), others="wait")


# Windows of time


def _spanned(stream: Stream, span: Expression) -> Any:
    """Each event for a span of time, which calendar months may be."""
    match span:
        case Period(months, length) if months:
            return stream.until(g.col("start").dt.offset_by(f"{months}mo") + g.lit(timedelta(milliseconds=length)))
    return stream.last_span(timedelta(milliseconds=milliseconds(span)))


def _first_time(feed: Feed, view: View) -> Content:
    begins = feed.script.deployed
    span = timedelta(milliseconds=later(begins, period(view.arguments[0])) - begins)
    return feed.by_time(feed.on_clock().first_span(us(span), since=at_us(instant(begins))))


def _ext_timed(feed: Feed, view: View) -> Content:
    stamp, span = view.arguments
    stream, clocks = feed.stamps(stamp)
    return feed.by_time(_spanned(stream, span), clocks)


def _until(feed: Feed, view: View) -> Content:
    """time_order keeps events in the order of their stamps, timetolive as they came."""
    stamp, *span = view.arguments
    stamps = feed.each(stamp)
    until = [time * MILLISECOND for time in stamps]
    stream = feed.on_clock(until=until).with_columns(until=_moment(g.col("until")))
    if view.name == "timetolive":
        return feed.by_time(stream.until(g.col("until")), others="pass through")
    match span[0]:
        case Period(months, length) if months:
            end = g.col("until").dt.offset_by(f"{months}mo") + g.lit(timedelta(milliseconds=length))
        case _:
            end = g.col("until") + g.lit(timedelta(milliseconds=milliseconds(span[0])))
    places = [(time, row) for row, time in enumerate(stamps)]
    return feed.by_time(stream.until(end), places=places, others="pass through")


def _moment(microseconds: Any) -> Any:
    """Microseconds since 1970 as timestamps."""
    return microseconds.cast(g.Datetime("us", "UTC"))


def _batches(stream: Stream, grid: Grid, *, first: bool) -> Any:
    """Batches of a span: of a calendar's months, or as long always."""
    given = grid.period
    if not given.months:
        return stream.time_batches(
            timedelta(milliseconds=given.milliseconds), align="first" if first else at_us(grid.start)
        )
    if given.milliseconds or grid.start.day > _ALL_MONTHS:
        raise UnsupportedError("EPL: no batches from a day that not all months have")
    return stream.time_batches(f"{given.months}mo", align=at_us(grid.start), zone="UTC")


def _time_batch(feed: Feed, view: View) -> Content:
    span, flags = period(view.arguments[0]), _flags(view)
    given = [value(argument, EventScope({})) for argument in view.arguments[1:]]
    starts = [time for time in given if isinstance(time, int)]
    firsts = feed.firsts()
    if "START_EAGER" in flags and not feed.keys:  # a group's window is there from its first event on
        firsts = [feed.script.deployed] * len(firsts)
        starts = starts or [feed.script.deployed]
    grids = [Grid(starts[0] if starts else first, span) for first in firsts]
    if not grids:
        made = Content([], in_batches=True)
    elif span.months and len(set(grids)) > 1:
        raise UnsupportedError("EPL: no months of groups that begin at different times")
    else:
        made = feed.by_spans(_batches(feed.on_clock(), grids[0], first=not starts), grids)
    if "FORCE_UPDATE" not in flags:
        return made
    alone = [Grid(starts[0], span)] if "START_EAGER" in flags and starts and not feed.keys else []
    first_of = dict(zip(grids, firsts, strict=True)) or dict.fromkeys(alone, feed.script.deployed)
    return replace(made, posts=frozenset(at for grid, first in first_of.items() for at in feed.ends(first, grid)))


def _ext_timed_batch(feed: Feed, view: View) -> Content:
    span = period(view.arguments[1])
    stream, clocks = feed.stamps(view.arguments[0])
    firsts: dict[tuple[Any, ...], int] = {}
    stamps = feed.each(view.arguments[0])
    origins = [firsts.setdefault(group, stamp) for group, stamp in zip(feed.groups, stamps, strict=True)]
    if len(view.arguments) > 2:
        origins = [number(view, 2)] * len(origins)
    grids = [Grid(origin, span) for origin in origins]
    if not grids:
        return Content([], in_batches=True)
    if span.months and len(set(grids)) > 1:
        raise UnsupportedError("EPL: no months of groups that begin at different times")
    return feed.by_spans(_batches(stream, grids[0], first=len(view.arguments) == 2), grids, clocks)


def _time_accum(feed: Feed, view: View) -> Content:
    """A session of calendar months is all of the time that any of its events is not so long ago."""
    span = period(view.arguments[0])
    if not span.months:
        return feed.by_time(feed.on_clock().session(timedelta(milliseconds=span.milliseconds), running=True))
    keys = [*feed.keys, "one"]
    stream = feed.on_clock(one=[0] * len(feed.arrivals))
    ends = g.col("start").dt.offset_by(f"{span.months}mo") + g.lit(timedelta(milliseconds=span.milliseconds))
    sessions = stream.alter_lifetime(end=ends).distinct(*keys)
    until = sessions.select(*keys, until=g.col("end"))
    return feed.by_time(stream.join(until, on=keys).until(g.col("until")))


def _time_length_batch(feed: Feed, view: View) -> Content:
    span, size, flags = period(view.arguments[0]), number(view, 1), _flags(view)
    since = feed.script.deployed if "START_EAGER" in flags and not feed.keys else None
    return by_timer(feed, span, size, since, runs=bool(flags))


def _flags(view: View) -> set[str]:
    texts = [argument.value for argument in view.arguments if isinstance(argument, epl.Literal)]
    return {flag.strip().upper() for text in texts if isinstance(text, str) for flag in text.split(",")}


WINDOWS: Mapping[str, Callable[[Feed, View], Content]] = {
    "keepall": lambda feed, _: feed.by_steps(feed.on_steps().keep_all()),
    "length": lambda feed, view: feed.by_steps(feed.on_steps().last(number(view))),
    "lastevent": lambda feed, _: feed.by_steps(feed.on_steps().last(1)),
    "firstlength": lambda feed, view: feed.by_steps(feed.on_steps().first(number(view))),
    "firstevent": lambda feed, _: feed.by_steps(feed.on_steps().first(1)),
    "unique": lambda feed, view: _unique(feed, view, "unique"),
    "firstunique": lambda feed, view: _unique(feed, view, "first_unique"),
    "sort": _sort,
    "expr": _by_condition,
    "expr_batch": _by_condition,
    "rank": _rank,
    "time": lambda feed, view: feed.by_time(_spanned(feed.on_clock(), view.arguments[0])),
    "time_accum": _time_accum,
    "firsttime": _first_time,
    "ext_timed": _ext_timed,
    "time_order": _until,
    "timetolive": _until,
    "length_batch": lambda feed, view: feed.by_steps(feed.on_steps().batches(number(view)), others="wait"),
    "time_batch": _time_batch,
    "ext_timed_batch": _ext_timed_batch,
    "time_length_batch": _time_length_batch,
}
