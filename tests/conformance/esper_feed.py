"""The arrivals of a script as streams of the public API, and what its windows answer as stays."""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.epl import Expression, Ordered, Period, View
from tests.conformance.epl_values import value
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


def period(span: Expression) -> Period:
    """A span; a plain number is of seconds."""
    if isinstance(span, Period):
        return span
    seconds = value(span, EventScope({}))
    if not isinstance(seconds, int | float):
        raise UnsupportedError("EPL: no such span")
    return Period(0, round(seconds * 1000))


def milliseconds(span: Expression) -> int:
    """A span that is as long always; a plain number is of seconds."""
    given = period(span)
    if given.months:
        raise UnsupportedError("EPL: no calendar months of this window")
    return given.milliseconds


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


@dataclass(frozen=True)
class Grid:
    """Instants that are as far apart as a period is long."""

    align: int
    period: Period

    @property
    def start(self) -> datetime:
        """The one that it is counted from."""
        return instant(self.align)

    def after(self, now: int) -> int:
        """The first one after an instant."""
        if not self.period.months:
            return now + self.period.milliseconds - (now - self.align) % self.period.milliseconds
        turn = 0
        while (end := later(self.align, Period(self.period.months * turn, 0))) <= now:
            turn += 1
        return end


def instant(time: int) -> datetime:
    """Milliseconds since 1970 as a time."""
    return _EPOCH + timedelta(milliseconds=time)


def later(time: int, period: Period) -> int:
    """A period after an instant; on the last day of a month that is too short for its day."""
    begins = instant(time)
    years, month = divmod(begins.month - 1 + period.months, 12)
    day = min(begins.day, calendar.monthrange(begins.year + years, month + 1)[1])
    ends = begins.replace(begins.year + years, month + 1, day)
    return (ends - _EPOCH) // timedelta(milliseconds=1) + period.milliseconds


class Feed:
    """The arrivals as streams on each axis, and the windows' answers as stays."""

    def __init__(self, arrivals: Sequence[Arrival], script: Script, keys: Sequence[Expression], ask: Ask) -> None:
        self.arrivals = arrivals
        self.script = script
        self.ask = ask
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
        found = self.changes(window)
        return self.content(
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
        for row, (enter, leave) in self.changes(window).items():
            at = self.arrivals[row].at
            if leave is None:
                stays[row] = (at, None)
            elif leave <= enter:
                stays[row] = (at, at)
            else:
                tick = self._clock(row, clocks).reaches(leave // MILLISECOND)
                stays[row] = (at, None if tick is None else tick.at)
        return self.content(stays, places, others=others)

    def by_order(self, window: Any, others: Others, dropped: Mapping[int, Moment], grid: Grid | None = None) -> Content:
        """A window on steps and time: a whole millisecond is time's, all others are arrivals'."""
        arrivals = dict(zip(self.ordered, (each.at for each in self.arrivals), strict=True))

        def moment(time: int | None) -> Moment | None:
            if time is None or time in arrivals:
                return None if time is None else arrivals[time]
            tick = self.script.clock.reaches(time // MILLISECOND)
            return None if tick is None else tick.at

        found = {row: (moment(enter), moment(leave)) for row, (enter, leave) in self.changes(window).items()}
        if grid is not None:
            # The clock may jump over the ends of several batches, and the next one counts then.
            for row, (enter, leave) in found.items():
                if enter is not None and leave is not None:
                    after = self.script.clock.reaches(grid.after(enter[1]))
                    found[row] = (enter, None if after is None else max(leave, after.at))
        found = {row: stay for row, stay in found.items() if stay[0] is not None}
        unposted = {row: (None, moment) for row, moment in dropped.items() if row not in found}
        return replace(self.content(found | unposted, others=others), is_hashed=True)

    def by_spans(self, window: Any, grid: Grid | Sequence[Grid], clocks: Sequence[Clock] | None = None) -> Content:
        """A window of batches of a span: the clock may jump over the ends of several, and the next one counts then."""
        stays: dict[int, tuple[Moment | None, Moment | None]] = {}
        for row, (enter, leave) in self.changes(window).items():
            clock = self._clock(row, clocks)
            posted = clock.reaches(enter // MILLISECOND)
            if posted is None:
                continue
            assert leave is not None
            own = grid if isinstance(grid, Grid) else grid[row]
            left = clock.reaches(max(leave // MILLISECOND, own.after(posted.time)))
            stays[row] = (posted.at, None if left is None else left.at)
        return self.content(stays, others="wait")

    def ends(self, first: int, grid: Grid) -> Iterator[Moment]:
        """When each span of a grid ends, from an instant on; the clock may jump over the ends of several."""
        now = first
        while (tick := self.script.clock.reaches(grid.after(now))) is not None:
            yield tick.at
            now = tick.time

    def firsts(self) -> list[int]:
        """When the first event came of the group of each arrival."""
        found: dict[tuple[Any, ...], int] = {}
        return [found.setdefault(group, each.at[1]) for group, each in zip(self.groups, self.arrivals, strict=True)]

    def _clock(self, row: int, clocks: Sequence[Clock] | None) -> Clock:
        return self.script.clock if clocks is None else clocks[row]

    def changes(self, window: Any) -> dict[int, tuple[int, int | None]]:
        """When each row enters and leaves, on the window's axis; rows that never enter are not there."""
        changes = self.ask(window.changes())
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

    def content(
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
