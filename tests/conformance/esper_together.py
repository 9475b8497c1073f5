"""The content of a statement's windows: of one, or of what several hold together (intersection, retain-union)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.core.time import MAX_TIME
from tests.conformance.epl import Expression, Literal, Statement, View
from tests.conformance.esper_feed import MILLISECOND, Feed, Grid, instant, later, milliseconds, number, period
from tests.conformance.esper_script import Arrival, Moment, Script, instants
from tests.conformance.esper_stays import Ask, Content, Stay, combined
from tests.conformance.esper_windows import WINDOWS
from tests.conformance.unsupported import UnsupportedError
from tests.support.ticks import at_us, us


def content(statement: Statement, arrivals: Sequence[Arrival], script: Script, ask: Ask) -> Content:
    """The window of a statement, computed by `gpu_ops`.

    Raises:
        UnsupportedError: It has a window that the API has no word for.
    """
    views = list(statement.views)
    keys: tuple[Expression, ...] = ()
    if views and views[0].name == "groupwin":
        keys = views.pop(0).arguments
    if not views:
        return Content([Stay(each, each.at, None, (each.row,), ()) for each in arrivals], windowed=False)
    for view in views:
        if view.name not in WINDOWS:
            raise UnsupportedError(f"EPL: no view #{view.name} yet")
    feed = Feed(arrivals, script, keys, ask)
    if len(views) == 1:
        return WINDOWS[views[0].name](feed, views[0])
    names = sorted(view.name for view in views)
    if set(names) <= set(TOGETHER):
        return _together(feed, views, statement.retain)
    if (statement.retain != "union" and not set(names) <= _ALONE) or any(name.endswith("batch") for name in names):
        raise UnsupportedError(f"EPL: no {statement.retain or 'intersection'} of {' and '.join(names)} yet")
    return combined([WINDOWS[view.name](feed, view) for view in views], arrivals, ask, statement.retain)


def _together(feed: Feed, views: Sequence[View], retain: str) -> Content:
    columns: dict[str, Any] = {}
    makers = [TOGETHER[view.name](feed, view, f"view {at} ", columns) for at, view in enumerate(views)]
    stream = feed.on_order(columns)
    first, *more = (make(stream) for make in makers)
    window = first.unite(*more) if retain == "union" else first.intersect(*more)
    batch = next((view for view in views if view.name in _BATCHES), None)
    if batch is None or retain == "union":
        refuses = any(view.name.startswith("first") for view in views)
        return feed.by_order(window, "are refused" if refuses else "pass through", {})
    # What another window drops before its batch is complete is in no stream: that window alone tells when.
    dropped: dict[int, Moment] = {}
    for view in views:
        if view is not batch:
            stays = {stay.arrival.row: stay for stay in WINDOWS[view.name](feed, view).stays}
            for each in feed.arrivals:
                leave = stays[each.row].leave if each.row in stays else each.at
                if leave is not None:
                    dropped[each.row] = min(leave, dropped.get(each.row, leave))
    return feed.by_order(window, "wait", dropped, _grid(feed, batch))


Maker = Callable[[Stream], Any]
"""From events to one of several windows over them."""


def _by_columns(verb: str) -> Callable[[Feed, View, str, dict[str, Any]], Maker]:
    def maker(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
        keys = {f"{prefix}unique {at}": feed.each(key) for at, key in enumerate(view.arguments)}
        columns |= keys
        return lambda stream: getattr(stream, verb)(*keys)

    return maker


def _lowest(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    columns[f"{prefix}rank"] = feed.ranked(view.arguments[1:])
    return lambda stream: stream.lowest(number(view), f"{prefix}rank")


def _for_a_span(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    stamps = feed.each(view.arguments[0]) if view.name != "time" else [each.at[1] for each in feed.arrivals]
    spans = view.arguments[1:] if view.name != "time" else view.arguments
    length = milliseconds(spans[0]) if spans else 0
    columns[f"{prefix}ends"] = instants([(stamp + length) * MILLISECOND for stamp in stamps])
    return lambda stream: stream.until(g.col(f"{prefix}ends"))


def _of_rows(verb: str) -> Callable[[Feed, View, str, dict[str, Any]], Maker]:
    def maker(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
        return lambda stream: getattr(stream, verb)(number(view) if view.arguments else 1)

    return maker


def _until_it_leaves(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    """A window that does not ask what else is in it: when each event leaves is known without the others."""
    steps = {each.at: time for each, time in zip(feed.arrivals, feed.ordered, strict=True)}
    ends: list[int | None] = [None] * len(feed.arrivals)
    for stay in WINDOWS[view.name](feed, view).stays:
        if stay.leave is not None:
            ends[stay.arrival.row] = steps.get(stay.leave, stay.leave[1] * MILLISECOND)
    columns[f"{prefix}ends"] = instants([MAX_TIME if end is None else end for end in ends])
    return lambda stream: stream.until(g.col(f"{prefix}ends"))


def _first_span(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    begins = feed.script.deployed
    span = timedelta(milliseconds=later(begins, period(view.arguments[0])) - begins)
    return lambda stream: stream.first_span(us(span), since=at_us(instant(begins)))


def _best_of_each(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    at = next(at for at, argument in enumerate(view.arguments) if isinstance(argument, Literal))
    keys = {f"{prefix}unique {each}": feed.each(key) for each, key in enumerate(view.arguments[:at])}
    columns |= keys | {f"{prefix}rank": feed.ranked(view.arguments[at + 1 :])}
    return lambda stream: stream.lowest(number(view, at), f"{prefix}rank", unique=list(keys))


def _grid(feed: Feed, view: View) -> Grid | None:
    """When batches of a span end."""
    if view.name != "time_batch":
        return None
    given = number(view, 1) if len(view.arguments) > 1 else None
    return Grid(feed.arrivals[0].at[1] if given is None and feed.arrivals else given or 0, period(view.arguments[0]))


def _of_spans(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    grid = _grid(feed, view)
    assert grid is not None
    if feed.keys or grid.period.months:
        raise UnsupportedError("EPL: no such batches of several windows together")
    return lambda stream: stream.time_batches(timedelta(milliseconds=grid.period.milliseconds), align=at_us(grid.start))


def _of_spans_or_rows(feed: Feed, view: View, prefix: str, columns: dict[str, Any]) -> Maker:
    if len(view.arguments) > 2:
        raise UnsupportedError("EPL: no flags of a time_length_batch that is taken together with others")
    span = timedelta(milliseconds=milliseconds(view.arguments[0]))
    return lambda stream: stream.time_length_batches(us(span), number(view, 1))


_BATCHES = {"length_batch", "time_batch", "time_length_batch"}

TOGETHER: Mapping[str, Callable[[Feed, View, str, dict[str, Any]], Maker]] = {
    "keepall": lambda feed, view, prefix, columns: lambda stream: stream.keep_all(),
    "length": _of_rows("last"),
    "lastevent": _of_rows("last"),
    "firstlength": _of_rows("first"),
    "firstevent": _of_rows("first"),
    "length_batch": _of_rows("batches"),
    "unique": _by_columns("unique"),
    "firstunique": _by_columns("first_unique"),
    "sort": _lowest,
    "rank": _best_of_each,
    "firsttime": _first_span,
    "time_batch": _of_spans,
    "time_length_batch": _of_spans_or_rows,
    "ext_timed": _until_it_leaves,
    "time_accum": _until_it_leaves,
    "time": _for_a_span,
    "time_order": _for_a_span,
    "timetolive": _for_a_span,
}
"""Windows that are there beside others: they put their columns beside those of the others, all on one axis."""

_ALONE = {"keepall", "lastevent", "unique", "time", "firsttime", "ext_timed", "time_order", "timetolive"}
"""Windows that do not ask what else is in them: if another window drops an event, nothing else stays longer."""
