"""Esper's data windows in the public API: when each event of a script is in its window."""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance import epl
from tests.conformance.epl import Expression, Ordered, Period, View
from tests.conformance.epl_values import value
from tests.conformance.esper_conditions import CLOCK, condition
from tests.conformance.esper_script import Arrival, Clock, Moment, Script, Tick, column, instants
from tests.conformance.esper_stays import Ask, Content, EventScope, Stay
from tests.conformance.unsupported import UnsupportedError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = 1000


def number(view: View, at: int = 0) -> int:
    """A parameter that is a whole number."""
    given = value(view.arguments[at], EventScope({})) if at < len(view.arguments) else None
    if not isinstance(given, int):
        raise UnsupportedError(f"EPL: no such parameter of #{view.name}")
    return given


def milliseconds(span: Expression) -> int:
    """A span that is as long always; a plain number is of seconds."""
    match span:
        case Period(0, length):
            return length
        case Period():
            raise UnsupportedError("EPL: no batches of calendar months yet")
    seconds = value(span, EventScope({}))
    if not isinstance(seconds, int | float):
        raise UnsupportedError("EPL: no such span")
    return round(seconds * 1000)


def ranks(rows: Sequence[Sequence[Any]], descending: Sequence[bool]) -> list[int]:
    """The place of each row among the distinct ones; null is first."""
    numbers = []
    for values, backwards in zip(zip(*rows, strict=True), descending, strict=True):
        ordered = sorted({(each is not None, each) for each in values}, key=lambda pair: (pair[0], pair[1] or 0))
        ordered = ordered[::-1] if backwards else ordered
        places = {pair: at for at, pair in enumerate(ordered)}
        numbers.append([places[each is not None, each] for each in values])
    combined = list(zip(*numbers, strict=True))
    places_of = {row: at for at, row in enumerate(sorted(set(combined)))}
    return [places_of[row] for row in combined]


Others = Literal["are refused", "pass through", "wait"]
"""What becomes of events that are never in a window: nothing; they are posted as new and old; their batch is open."""


class Feed:
    """The arrivals as streams on each axis, and the windows' answers as stays."""

    def __init__(self, arrivals: Sequence[Arrival], script: Script, keys: Sequence[Expression], ask: Ask) -> None:
        self.arrivals = arrivals
        self.script = script
        self._ask = ask
        self.keys = {f"key {at}": self.each(key) for at, key in enumerate(keys)}
        named = [column(values).to_pylist() for values in self.keys.values()]
        self.groups = list(zip(*named, strict=True)) if named else [()] * len(arrivals)

    def each(self, expression: Expression) -> list[Any]:
        """The value of an expression for each arrival."""
        return [value(expression, EventScope(each.event, each.at[1])) for each in self.arrivals]

    def ranked(self, keys: Sequence[Expression]) -> list[int]:
        """The place of each arrival in an order by keys."""
        rows = [[value(key, EventScope(each.event)) for key in keys] for each in self.arrivals]
        return ranks(rows, [isinstance(key, Ordered) and key.descending for key in keys]) if rows else []

    # Axes

    def on_steps(self, **columns: Sequence[Any]) -> Stream:
        """Events at the number of their step: what counts rows knows no other time."""
        return self._stream([each.at[0] for each in self.arrivals], columns)

    def on_clock(self, **columns: Sequence[Any]) -> Stream:
        """Events at the engine's time."""
        return self._stream([each.at[1] * MILLISECOND for each in self.arrivals], columns)

    def on_order(self, columns: Mapping[str, Sequence[Any]]) -> Stream:
        """Events at the engine's time and, within its millisecond, in their order, behind what time alone does then."""
        return self._stream(self.ordered, columns)

    @cached_property
    def ordered(self) -> list[int]:
        """The time of each arrival on that axis."""
        within: dict[int, int] = defaultdict(int)
        times = []
        for each in self.arrivals:
            within[each.at[1]] += 1
            times.append(each.at[1] * MILLISECOND + within[each.at[1]])
        return times

    def stamps(self, expression: Expression) -> tuple[Stream, list[Clock]]:
        """Events at a time of their own, as it is when the latest one so far counts; and the clock that this is."""
        latest: dict[tuple[Any, ...], list[Tick]] = defaultdict(list)
        times = []
        for arrival, group, stamp in zip(self.arrivals, self.groups, self.each(expression), strict=True):
            ticks = latest[group]
            ticks.append(Tick(max(stamp, ticks[-1].time if ticks else stamp), arrival.at))
            times.append(ticks[-1].time)
        clocks = {group: Clock(ticks) for group, ticks in latest.items()}
        return self._stream([time * MILLISECOND for time in times], {}), [clocks[group] for group in self.groups]

    def _stream(self, times: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> Stream:
        given = {**self.keys, **columns}
        made = {name: values if isinstance(values, pa.Array) else column(values) for name, values in given.items()}
        rows = pa.array([each.row for each in self.arrivals], pa.int64())
        table = pa.table({"start": instants(times), "row": rows, **made})
        return g.events(table, start="start").by(*self.keys)

    # Answers

    def by_steps(
        self, window: Any, places: Sequence[tuple[Any, ...]] | None = None, *, others: Others = "are refused"
    ) -> Content:
        """A window on steps."""
        moments = {each.at[0]: each.at for each in self.arrivals}
        found = self._changes(window)
        return self._content(
            {row: (moments[enter], None if leave is None else moments[leave]) for row, (enter, leave) in found.items()},
            places,
            others=others,
        )

    def by_time(
        self,
        window: Any,
        clocks: Sequence[Clock] | None = None,
        places: Sequence[tuple[Any, ...]] | None = None,
        *,
        others: Others = "are refused",
    ) -> Content:
        """A window into which events come at once, and which they leave when the clock says so."""
        stays: dict[int, tuple[Moment | None, Moment | None]] = {}
        for row, (enter, leave) in self._changes(window).items():
            at = self.arrivals[row].at
            if leave is None:
                stays[row] = (at, None)
            elif leave <= enter:
                stays[row] = (at, at)
            else:
                tick = self._clock(row, clocks).reaches(leave // MILLISECOND)
                stays[row] = (at, None if tick is None else tick.at)
        return self._content(stays, places, others=others)

    def by_order(self, window: Any, others: Others, dropped: Mapping[int, Moment]) -> Content:
        """A window on steps and time: a whole millisecond is time's, all others are arrivals'."""
        arrivals = dict(zip(self.ordered, (each.at for each in self.arrivals), strict=True))

        def moment(time: int | None) -> Moment | None:
            if time is None or time in arrivals:
                return None if time is None else arrivals[time]
            tick = self.script.clock.reaches(time // MILLISECOND)
            return None if tick is None else tick.at

        found = {row: (moment(enter), moment(leave)) for row, (enter, leave) in self._changes(window).items()}
        unposted = {row: (None, moment) for row, moment in dropped.items() if row not in found}
        return replace(self._content(found | unposted, others=others), is_hashed=True)

    def by_spans(self, window: Any, span: int, clocks: Sequence[Clock] | None = None) -> Content:
        """A window of batches of a span: the clock may jump over the ends of several, and the next one counts then."""
        stays: dict[int, tuple[Moment | None, Moment | None]] = {}
        for row, (enter, leave) in self._changes(window).items():
            clock = self._clock(row, clocks)
            posted = clock.reaches(enter // MILLISECOND)
            if posted is None:
                continue
            assert leave is not None
            end = leave // MILLISECOND
            end += span * max(0, (posted.time - end) // span + 1)
            left = clock.reaches(end)
            stays[row] = (posted.at, None if left is None else left.at)
        return self._content(stays, others="wait")

    def by_spans_or_rows(self, window: Any, size: int) -> Content:
        """Likewise, where a batch is complete with so many rows as well: in the step of its last row."""
        found = self._changes(window)
        posts: dict[tuple[Any, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row, (enter, _) in sorted(found.items()):
            posts[self.groups[row]][enter].append(row)
        posted: dict[int, Moment] = {}
        for times in posts.values():
            for enter, rows in times.items():
                for batch in (rows[at : at + size] for at in range(0, len(rows), size)):
                    last = self.arrivals[batch[-1]].at
                    full = len(batch) == size and last[1] * MILLISECOND == enter
                    tick = self.script.clock.reaches(enter // MILLISECOND)
                    if not full and tick is not None and tick.time != enter // MILLISECOND:
                        # Esper's timer then goes on from where the clock stands, and so do all later batches.
                        raise UnsupportedError("EPL: no clock that jumps over the end of a time_length_batch")
                    if full or tick is not None:
                        posted |= dict.fromkeys(batch, last if tick is None or full else tick.at)
        stays: dict[int, tuple[Moment | None, Moment | None]] = {}
        for row, post in posted.items():
            ends = [at for other, at in posted.items() if self.groups[other] == self.groups[row] and at > post]
            leave = found[row][1]
            tick = None if leave is None else self.script.clock.reaches(leave // MILLISECOND)
            ends += [tick.at] if tick is not None and tick.at > post else []
            stays[row] = (post, min(ends, default=None))
        return self._content(stays, others="wait")

    def ends(self, first: int, align: int, span: int) -> Iterator[Moment]:
        """When each span of a grid ends, from an instant on; the clock may jump over the ends of several."""
        now = first
        while (tick := self.script.clock.reaches(now + span - (now - align) % span)) is not None:
            yield tick.at
            now = tick.time

    def _clock(self, row: int, clocks: Sequence[Clock] | None) -> Clock:
        return self.script.clock if clocks is None else clocks[row]

    def _changes(self, window: Any) -> dict[int, tuple[int, int | None]]:
        """When each row enters and leaves, on the window's axis; rows that never enter are not there."""
        changes = self._ask(window.changes())
        entered: dict[int, int] = {}
        left: dict[int, int] = {}
        for row, status, start in zip(
            changes["row"].to_pylist(),
            changes["status"].to_pylist(),
            changes["start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist(),
            strict=True,
        ):
            times = entered if status == "new" else left
            assert row not in times, f"row {row} is {status} twice"
            times[row] = start
        assert set(left) <= set(entered), "a row leaves that never came"
        return {row: (enter, left.get(row)) for row, enter in entered.items()}

    def _content(
        self,
        moments: Mapping[int, tuple[Moment | None, Moment | None]],
        places: Sequence[tuple[Any, ...]] | None = None,
        *,
        others: Others = "are refused",
    ) -> Content:
        stays = []
        for each, group in zip(self.arrivals, self.groups, strict=True):
            if each.row in moments or others != "are refused":
                enter, leave = moments.get(each.row, (each.at, each.at) if others == "pass through" else (None, None))
                stays.append(Stay(each, enter, leave, places[each.row] if places else (each.row,), group))
        return Content(stays, in_batches=others == "wait", is_ordered=places is not None, is_hashed=bool(self.keys))


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
    made = condition(view.arguments[0], lambda expression: columns.setdefault(expression, f"part {len(columns)}"))
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


def _instant(time: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time)


def _spanned(stream: Stream, span: Expression) -> Any:
    """Each event for a span of time, which calendar months may be."""
    match span:
        case Period(months, length) if months:
            return stream.until(g.col("start").dt.offset_by(f"{months}mo") + g.lit(timedelta(milliseconds=length)))
    return stream.last_span(timedelta(milliseconds=milliseconds(span)))


def _first_time(feed: Feed, view: View) -> Content:
    begins = _instant(feed.script.deployed)
    match view.arguments[0]:
        case Period(months, length) if months:
            years, month = divmod(begins.month - 1 + months, 12)
            day = min(begins.day, calendar.monthrange(begins.year + years, month + 1)[1])
            ends = begins.replace(begins.year + years, month + 1, day) + timedelta(milliseconds=length)
        case span:
            ends = begins + timedelta(milliseconds=milliseconds(span))
    return feed.by_time(feed.on_clock().first_span(ends - begins, since=begins))


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


def _time_batch(feed: Feed, view: View) -> Content:
    span, flags = milliseconds(view.arguments[0]), _flags(view)
    given = [value(argument, EventScope({})) for argument in view.arguments[1:]]
    starts = [time for time in given if isinstance(time, int)]
    if "START_EAGER" in flags:
        starts.append(feed.script.deployed)
    align = _instant(starts[0]) if starts else "first"
    made = feed.by_spans(feed.on_clock().time_batches(timedelta(milliseconds=span), align=align), span)
    if "FORCE_UPDATE" not in flags:
        return made
    first = feed.script.deployed if "START_EAGER" in flags else feed.arrivals[0].at[1] if feed.arrivals else None
    if first is None:
        return made
    return replace(made, posts=frozenset(feed.ends(first, starts[0] if starts else first, span)))


def _ext_timed_batch(feed: Feed, view: View) -> Content:
    span = milliseconds(view.arguments[1])
    stream, clocks = feed.stamps(view.arguments[0])
    align = _instant(number(view, 2)) if len(view.arguments) > 2 else "first"
    return feed.by_spans(stream.time_batches(timedelta(milliseconds=span), align=align), span, clocks)


def _time_length_batch(feed: Feed, view: View) -> Content:
    flags = _flags(view)
    if flags:
        raise UnsupportedError(f"EPL: no {min(flags)} of time_length_batch yet")
    span, size = timedelta(milliseconds=milliseconds(view.arguments[0])), number(view, 1)
    return feed.by_spans_or_rows(feed.on_clock().time_length_batches(span, size), size)


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
    "time_accum": lambda feed, view: feed.by_time(
        feed.on_clock().session(timedelta(milliseconds=milliseconds(view.arguments[0])), running=True)
    ),
    "firsttime": _first_time,
    "ext_timed": _ext_timed,
    "time_order": _until,
    "timetolive": _until,
    "length_batch": lambda feed, view: feed.by_steps(feed.on_steps().batches(number(view)), others="wait"),
    "time_batch": _time_batch,
    "ext_timed_batch": _ext_timed_batch,
    "time_length_batch": _time_length_batch,
}
