"""Esper's time_length_batch: when each batch is posted, where its timer may be late because the clock jumps.

Which events make a batch is `Stream.time_length_batches`'s. A timer that is late goes on from where the clock stands:
what comes after it is asked by itself, with the clock running since then. So it is with months, which differ in length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Any

from tests.conformance.epl import Period
from tests.conformance.esper_feed import MILLISECOND, Feed, instant, later
from tests.conformance.esper_script import Arrival, Moment
from tests.conformance.esper_stays import Content
from tests.support.ticks import at_us

_TURNS = 2
"""How many times the timer is set by a batch: so that it leaves, and once more."""


def by_timer(feed: Feed, span: Period, size: int, since: int | None, *, runs: bool) -> Content:
    """A window of batches of so many rows or of a span.

    Args:
        feed: The arrivals.
        span: From when a batch is complete to when the next one is at the latest.
        size: How many rows a batch has at most.
        since: When the timer is first set; by the first event if None.
        runs: Whether it goes on with no events.
    """
    groups: dict[tuple[Any, ...], list[Arrival]] = defaultdict(list)
    for arrival, group in zip(feed.arrivals, feed.groups, strict=True):
        groups[group].append(arrival)
    stays: dict[int, tuple[Moment | None, Moment | None]] = {}
    posts: set[Moment] = set()
    for arrivals in groups.values() or [[]]:
        timer = _Timer(feed, span, size, runs=runs)
        timer.run(arrivals, since)
        stays |= {row: (enter, timer.leave.get(row)) for row, enter in timer.enter.items()}
        posts |= timer.posts
    return replace(feed.content(stays, others="wait"), posts=frozenset(posts))


class _Timer:
    """The batches of one group."""

    def __init__(self, feed: Feed, span: Period, size: int, *, runs: bool) -> None:
        self._feed, self._span, self._size, self._runs = feed, span, size, runs
        self._clock = feed.script.clock
        self._out: list[int] = []
        self.enter: dict[int, Moment] = {}
        self.leave: dict[int, Moment] = {}
        self.posts: set[Moment] = set()

    def run(self, arrivals: Sequence[Arrival], since: int | None) -> None:
        """Post what there is, for as long as the clock goes."""
        rest, goes_on = list(arrivals), True
        while goes_on and (rest or since is not None):
            goes_on, turns, at = self._part(rest, since)
            rest = [each for each in rest if each.row not in self.enter]
            soon = bool(rest) and at is not None and rest[0].at[1] < later(at, self._span)
            since = at if self._runs or turns == _TURNS or (turns and soon) else None

    def _part(self, arrivals: Sequence[Arrival], since: int | None) -> tuple[bool, int, int | None]:
        """What happens until the timer is late, or is set to a span that is not as long.

        Returns:
            Whether more may happen, how many times the timer will be set yet, and when it was set.
        """
        begins = since if since is not None else arrivals[0].at[1]
        span = later(begins, self._span) - begins
        last, turns = since, _TURNS
        for complete, rows, is_full in [*self._batches(arrivals, span, since), (None, [], False)]:
            while last is not None and (complete is None or last + span < complete):
                tick = self._clock.reaches(last + span)
                if tick is None:
                    return False, 0, None
                turns = 1 if self._out else 0
                self._post([], tick.at)
                if tick.time != last + span or self._span.months:
                    return True, turns, tick.time
                last = tick.time if turns or self._runs else None
            if complete is None:
                return False, 0, None
            if is_full:
                self._post(rows, next(each.at for each in arrivals if each.row == rows[-1]))
            else:
                tick = self._clock.reaches(complete)
                if tick is None:
                    return False, 0, None
                self._post(rows, tick.at)
                if tick.time != complete:
                    return True, _TURNS, tick.time
            last = complete
            if self._span.months:
                return True, _TURNS, last
        return False, 0, None

    def _post(self, rows: list[int], at: Moment) -> None:
        """The timer is due, or there are enough rows."""
        self.leave |= dict.fromkeys(self._out, at)
        self.enter |= dict.fromkeys(rows, at)
        self._out = rows
        if self._runs:
            self.posts.add(at)

    def _batches(
        self, arrivals: Sequence[Arrival], span: int, since: int | None
    ) -> Iterator[tuple[int, list[int], bool]]:
        """When each batch is complete if the clock walks, its rows, and whether it has as many as there may be."""
        feed = Feed(arrivals, self._feed.script, (), self._feed.ask)
        window = feed.on_clock().time_length_batches(
            timedelta(milliseconds=span),
            self._size,
            since=None if since is None else at_us(instant(since)),
            idle="run" if self._runs else "stop",
        )
        clock = {each.row: each.at[1] for each in arrivals}
        complete = sorted((enter // MILLISECOND, row) for row, (enter, _) in feed.changes(window).items())
        for time, found in groupby(complete, key=lambda pair: pair[0]):
            rows = [row for _, row in found]
            if len(rows) % self._size or clock[rows[-1]] != time:
                # The timer's comes first, and holds what came before.
                late = [row for row in rows if clock[row] < time]
                yield time, late, False
                rows = rows[len(late) :]
            for at in range(0, len(rows), self._size):
                yield time, rows[at : at + self._size], True
