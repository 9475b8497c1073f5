"""Esper's views in a text, as data windows on turns, beside the brute force of each."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import PLACE, TURN
from gpu_ops.epl import parse
from gpu_ops.epl.planning.windows import StreamWindows, windowed
from gpu_ops.epl.queries import Query, StreamTerm
from gpu_ops.plan.nodes import Node
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.placed_error import PlacedError
from tests.support import clock_reference as brute
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.on_turns import (
    PAYLOAD,
    Row,
    Script,
    Tick,
    feeds,
    in_any_cut,
    in_one_step,
    members,
    scripts,
)

MS = 1000

SCOPE = StreamScope([BoundStream("", "T", PAYLOAD)])


def term_of(text: str) -> StreamTerm:
    (statement,) = parse(f"select * from T{text}")
    assert isinstance(statement.body, Query)
    return statement.body.stream


def windows_of(text: str, arrivals: Node, ticks: Node, deployed: int = 0) -> StreamWindows:
    term = term_of(text)
    return windowed(arrivals, ticks, term.views, term.retain, SCOPE, deployed=deployed)


def members_of(text: str, arrivals: Node, ticks: Node) -> Node:
    return windows_of(text, arrivals, ticks).memberships


class Content(brute.Window):
    """A window of rows: what goes of the content, and whether the row that comes is refused, not shown.

    Args:
        drops: From all rows and the numbers of those that are in, with the newest last.
        first: Whether a row that goes at once was never in.
    """

    def __init__(self, drops: Callable[[brute.Rows, list[int]], list[int]], *, first: bool = False) -> None:
        super().__init__()
        self._drops, self._first = drops, first
        self._rows: brute.Rows = {}
        self._content: list[int] = []

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self._rows[at] = clock, row
        self._content.append(at)
        gone = self._drops(self._rows, self._content)
        self._content = [each for each in self._content if each not in gone]
        if at not in gone or not self._first:
            self.enters(at, at)
        for each in gone:
            if each != at or not self._first:
                self.leaves(each, at)

    def tick(self, at: int, clock: int) -> None:
        pass


class Full(brute.Batches):
    """Batches that a condition on what gathers completes."""

    def __init__(self, is_full: Callable[[brute.Rows, list[int]], bool], *, with_last: bool = True) -> None:
        super().__init__(runs=False)
        self._is_full, self._with_last = is_full, with_last
        self._rows: brute.Rows = {}

    def arrive(self, at: int, clock: int, row: Row) -> None:
        self._rows[at] = clock, row
        self.gathers.append(at)
        if self._is_full(self._rows, self.gathers):
            kept = [] if self._with_last else [self.gathers.pop()]
            self._post(at, clock, None)
            self.gathers = kept

    def following(self, clock: int) -> int:
        return MAX_TIME


def _same(name: str, rows: brute.Rows, content: list[int]) -> list[int]:
    return [each for each in content if getattr(rows[each][1], name) == getattr(rows[content[-1]][1], name)]


def _order(value: int | None) -> tuple[bool, int]:
    return (value is not None, value or 0)


def _past(count: int, rows: brute.Rows, content: list[int], unique: str | None = None) -> list[int]:
    """Esper's sort by v, then t descending: of more than so many rows the last one, of equal ones the oldest."""
    gone = _same(unique, rows, content)[:-1] if unique else []
    left = [each for each in content if each not in gone]
    if len(left) > count:
        last = max(left, key=lambda each: (_order(rows[each][1].v), -(rows[each][1].t or 0), -each))
        gone.append(last)
    return gone


def _sum(rows: brute.Rows, content: list[int]) -> int:
    return sum(rows[each][1].t or 0 for each in content)


def _until_few(most: int, rows: brute.Rows, content: list[int]) -> list[int]:
    """Esper's expr(sum(t) < most): the oldest leave."""
    gone = 0
    while gone < len(content) and not _sum(rows, content[gone:]) < most:
        gone += 1
    return content[:gone]


def _unlike(rows: brute.Rows, content: list[int]) -> list[int]:
    """The oldest leave until it has the key of the newest."""
    gone = 0
    while rows[content[gone]][1].k != rows[content[-1]][1].k:
        gone += 1
    return content[:gone]


def _many(rows: brute.Rows, content: list[int]) -> list[int]:
    """The oldest leave until less than three are in, or at most one of those has v."""
    gone = 0
    while len(content) - gone >= 3 and sum(rows[each][1].v is not None for each in content[gone:]) > 1:
        gone += 1
    return content[:gone]


def _recent(span: int, rows: brute.Rows, content: list[int]) -> list[int]:
    """Esper's expr by timestamps."""
    return [each for each in content if not rows[each][0] // MS > rows[content[-1]][0] // MS - span]


def by(name: str) -> Callable[[Row], object]:
    return lambda row: (getattr(row, name),)


NO_KEY: Callable[[Row], object] = lambda row: None  # noqa: E731  (it is a value here)


def _unique(rows: brute.Rows) -> brute.Part:
    return brute.Part(rows, lambda rows, content: _same("v", rows, content)[:-1])


def _last(count: int) -> Callable[[brute.Rows], brute.Part]:
    return lambda rows: brute.Part(rows, lambda rows, content: content[:-count])


def _first(count: int) -> Callable[[brute.Rows], brute.Part]:
    return lambda rows: brute.Part(rows, lambda rows, content: content[count:], first=True)


def _sorted(count: int) -> Callable[[brute.Rows], brute.Part]:
    return lambda rows: brute.Part(rows, partial(_past, count))


def _for(span: int) -> Callable[[brute.Rows], brute.Part]:
    return lambda rows: brute.Part(rows, due=lambda clock, row: clock + span)


def _together(span: int) -> Callable[[brute.Rows], brute.Part]:
    return lambda rows: brute.Part(rows, gap=span)


VIEWS: dict[str, tuple[Callable[[], brute.Window], Callable[[Row], object]]] = {
    "#keepall": (lambda: Content(lambda rows, content: []), NO_KEY),
    "#length(3)": (lambda: Content(lambda rows, content: content[:-3]), NO_KEY),
    ".win:length(1+2)": (lambda: Content(lambda rows, content: content[:-3]), NO_KEY),
    "#lastevent": (lambda: Content(lambda rows, content: content[:-1]), NO_KEY),
    ".std:lastevent()": (lambda: Content(lambda rows, content: content[:-1]), NO_KEY),
    "#firstlength(2)": (lambda: Content(lambda rows, content: content[2:], first=True), NO_KEY),
    "#firstevent": (lambda: Content(lambda rows, content: content[1:], first=True), NO_KEY),
    "#unique(v)": (lambda: Content(lambda rows, content: _same("v", rows, content)[:-1]), NO_KEY),
    ".std:firstunique(v)": (lambda: Content(lambda rows, content: _same("v", rows, content)[1:], first=True), NO_KEY),
    "#sort(3, v, t desc)": (lambda: Content(partial(_past, 3)), NO_KEY),
    ".ext:sort(1, v asc, t desc)": (lambda: Content(partial(_past, 1)), NO_KEY),
    "#rank(k, 2, v, t desc)": (lambda: Content(partial(_past, 2, unique="k")), NO_KEY),
    "#expr(sum(t) < 60)": (lambda: Content(partial(_until_few, 60)), NO_KEY),
    "#expr(current_count <= 2 and true)": (lambda: Content(lambda rows, content: content[:-2]), NO_KEY),
    "#expr(oldest_timestamp > newest_timestamp - 2)": (lambda: Content(partial(_recent, 2)), NO_KEY),
    "#expr(newest_event.k = oldest_event.k)": (lambda: Content(_unlike), NO_KEY),
    "#expr(count(*) < 3 or count(v) between 1 and 0)": (lambda: Content(_many), NO_KEY),
    "#expr(true)": (lambda: Content(lambda rows, content: []), NO_KEY),
    "#expr(false)": (lambda: Content(lambda rows, content: list(content)), NO_KEY),
    "#length_batch(3)": (lambda: Full(lambda rows, gathers: len(gathers) == 3), NO_KEY),
    "#expr_batch(sum(t) >= 50)": (
        lambda: Full(lambda rows, some: sum(rows[each][1].t or 0 for each in some) >= 50),
        NO_KEY,
    ),
    "#expr_batch(current_count > 2, false)": (lambda: Full(lambda rows, some: len(some) > 2, with_last=False), NO_KEY),
    "#expr_batch(last(t) > first(t))": (
        lambda: Full(lambda rows, some: (rows[some[-1]][1].t or 0) > (rows[some[0]][1].t or 0)),
        NO_KEY,
    ),
    "#time(7 msec)": (lambda: brute.UntilDue(lambda clock, row: clock + 7 * MS), NO_KEY),
    ".win:time(0.007)": (lambda: brute.UntilDue(lambda clock, row: clock + 7 * MS), NO_KEY),
    "#timetolive(t)": (lambda: brute.UntilDue(lambda clock, row: (row.t or 0) * MS), NO_KEY),
    ".ext:time_order(t, 5 msec)": (lambda: brute.UntilDue(lambda clock, row: (row.t or 0) * MS + 5 * MS), NO_KEY),
    "#firsttime(20 milliseconds)": (lambda: brute.FirstClock(20 * MS, 0), NO_KEY),
    "#time_accum(4 msec)": (lambda: brute.Accumulated(lambda clock: clock + 4 * MS), NO_KEY),
    "#time_batch(5 msec)": (lambda: brute.GridBatches(5 * MS, None, None, runs=False), NO_KEY),
    ".win:time_batch(5 msec, 3L)": (lambda: brute.GridBatches(5 * MS, 3 * MS, None, runs=False), NO_KEY),
    "#time_batch(5 msec, 'FORCE_UPDATE')": (lambda: brute.GridBatches(5 * MS, None, None, runs=True), NO_KEY),
    "#time_batch(5 msec, 'START_EAGER')": (lambda: brute.GridBatches(5 * MS, 0, None, runs=False), NO_KEY),
    "#time_batch(5 msec, 2, 'start_eager, force_update')": (
        lambda: brute.GridBatches(5 * MS, 2 * MS, 0, runs=True),
        NO_KEY,
    ),
    "#time_length_batch(6 msec, 3)": (lambda: brute.LengthBatches(6 * MS, 3, None, runs=False), NO_KEY),
    "#time_length_batch(6 msec, 3, 'FORCE_UPDATE')": (lambda: brute.LengthBatches(6 * MS, 3, None, runs=True), NO_KEY),
    "#time_length_batch(6 msec, 3, 'START_EAGER')": (lambda: brute.LengthBatches(6 * MS, 3, 0, runs=True), NO_KEY),
    ".win:ext_timed(t, 9 msec)": (lambda: brute.StampSpan(9), NO_KEY),
    "#ext_timed_batch(t, 9 msec)": (lambda: brute.StampBatches(9, None), NO_KEY),
    "#ext_timed_batch(t, 9 msec, 4)": (lambda: brute.StampBatches(9, 4), NO_KEY),
    "#groupwin(k)#length(2)": (lambda: Content(lambda rows, content: content[:-2]), by("k")),
    ".std:groupwin(k).win:time_batch(5 msec)": (lambda: brute.GridBatches(5 * MS, None, None, runs=False), by("k")),
    ".std:groupby(v)#firsttime(20 msec)": (lambda: brute.FirstClock(20 * MS, None), by("v")),
    "#groupwin(k)#sort(1, v, t desc)": (lambda: Content(partial(_past, 1)), by("k")),
    "#unique(v)#time(7 msec)": (lambda: brute.Both([_unique, _for(7 * MS)], None), NO_KEY),
    "#unique(v)#time(7 msec) retain-union": (lambda: brute.Either([_unique, _for(7 * MS)]), NO_KEY),
    "#length(2)#sort(1, v, t desc) retain-intersection": (lambda: brute.Both([_last(2), _sorted(1)], None), NO_KEY),
    "#firstlength(2)#time(7 msec)": (lambda: brute.Both([_first(2), _for(7 * MS)], None), NO_KEY),
    "#sort(2, v, t desc)#time_accum(4 msec)": (lambda: brute.Both([_sorted(2), _together(4 * MS)], None), NO_KEY),
    "#groupwin(k)#unique(v)#time(7 msec)": (lambda: brute.Both([_unique, _for(7 * MS)], None), by("k")),
    "#length_batch(3)#unique(v)": (lambda: brute.Both([_unique], Full(lambda rows, some: len(some) == 3)), NO_KEY),
    "#unique(v)#time_batch(5 msec)": (
        lambda: brute.Both([_unique], brute.GridBatches(5 * MS, None, None, runs=False)),
        NO_KEY,
    ),
    "#time_batch(5 msec, 2, 'FORCE_UPDATE, START_EAGER')#length(2)": (
        lambda: brute.Both([_last(2)], brute.GridBatches(5 * MS, 2 * MS, 0, runs=True)),
        NO_KEY,
    ),
    "#unique(v)#time_length_batch(6 msec, 3, 'FORCE_UPDATE, START_EAGER')#time(9 msec)": (
        lambda: brute.Both([_unique, _for(9 * MS)], brute.LengthBatches(6 * MS, 3, 0, runs=True)),
        NO_KEY,
    ),
}


def of_milliseconds(script: Script) -> Script:
    """The same script with ticks of milliseconds."""
    return [Tick(turn.by * MS) if isinstance(turn, Tick) else turn for turn in script]


ROWS = st.builds(Row, st.sampled_from(["a", "b"]), st.none() | st.integers(-2, 3), st.integers(0, 40))


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("text", VIEWS)
@examples(kinds=True)
@given(script=scripts(ROWS), chance=st.randoms(use_true_random=False))
def test_a_view_keeps_what_its_reference_keeps(device: str, text: str, script: Script, chance: random.Random) -> None:
    window, key = VIEWS[text]
    script = of_milliseconds(script)
    windows = brute.run(window, script, key)
    plan = partial(members_of, text)
    assert members(in_one_step(plan, script, device)) == brute.members(windows)
    assert members(in_any_cut(plan, script, device, chance)) == brute.members(windows)
    made = windows_of(text, *feeds())
    if made.in_batches:
        found = in_any_cut(lambda *leaves: windows_of(text, *leaves).content, script, device, chance)
        assert members(found) == brute.gathering(windows, script, key)
    if made.posts is not None:

        def posts(arrivals: Node, ticks: Node) -> Node:
            made = windows_of(text, arrivals, ticks).posts
            assert made is not None
            return made

        wanted = sorted({at for each in windows.values() for at in each.posts})
        assert sorted(row["start"] // TURN for row in in_any_cut(posts, script, device, chance)) == wanted


WRONG = {
    "#lenght(3)": ("There is no view 'lenght'.", 0, "Did you mean 'length'?"),
    "#length": ("length takes 1 argument, and there are 0.", 0, "Write: #length(5)."),
    "#length(0)": ("The length of a window is a whole number of at least 1, not 0.", 8, ""),
    "#length(v)": ("'v' is no constant.", 8, "Write a number or a text."),
    "#time(0 sec)": ("A span of time is longer than 0 second.", 6, "Give a span of at least a millisecond."),
    "#time('x')": ("A span of time is a number of seconds or a period such as 10 sec, not 'x'.", 6, ""),
    "#time(0.5 month)": ("A month has no parts of one length.", 6, "Write days."),
    "#time_batch(1, 'EAGER')": (
        "time_batch has no flag 'EAGER'.",
        15,
        'Write "FORCE_UPDATE, START_EAGER" or one of them.',
    ),
    "#size": ("gpu_ops has no view size here.", 0, ""),
    "#length(2)#groupwin(k)": ("groupwin stands before the windows that it groups.", 10, "Write it first."),
    "#groupwin(k)": ("groupwin groups the windows behind it.", 0, "Write one: #groupwin(key)#length(2)."),
    "#length_batch(2)#time_batch(2)": ("Two windows make batches.", 16, "Leave one of them out."),
    "#ext_timed(k, 1)": ("ext_timed needs milliseconds, and k is string.", 11, "Give a long."),
    "#rank(k, v)": ("rank takes 3 to 1000 arguments, and there are 2.", 0, "Write: #rank(key, 5, price desc)."),
    "#expr(expired_count > 1)": (
        "gpu_ops has no expired_count in conditions on windows.",
        6,
        "Count with current_count.",
    ),
    "#expr(current_count < 2)#length(2)": ("gpu_ops has no expr together with other windows.", 0, ""),
    "#foo:length(3)": ("There is no namespace 'foo' of views.", 0, "Write: win, std, ext or none."),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_view_is_said_at_its_place(text: str) -> None:
    problem, at, remedy = WRONG[text]
    with pytest.raises(PlacedError) as caught:
        windows_of(text, *feeds())
    found = caught.value
    assert (found.problem, found.start, found.remedy) == (problem, len("select * from T") + at, remedy)


def test_a_sorted_window_tells_its_order() -> None:
    made = windows_of("#sort(3, v, t desc)", *feeds())
    assert made.order == (("v", False), ("t", True))
    assert {PLACE, "v", "t"} <= set(made.memberships.schema.names)
