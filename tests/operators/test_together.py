"""Data windows taken together, beside a brute force that keeps what is in as one list and looks at all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import DataWindowed, Stream
from gpu_ops.errors import PlanError, TimeError
from tests.support import data_window_reference as brute
from tests.support import reference
from tests.support.data_windows import ASKED, EVENTS, KEYS, NUMBER, SPAN, points, pushed, source, told
from tests.support.examples import examples
from tests.support.reference import NEVER, Aggregate, Event, _group, order
from tests.support.rows import check, rows
from tests.support.ticks import at_us, us

Content = list[Event]
"""What is in, or gathers, in the order of its coming; events are told apart by who they are."""


@dataclass(frozen=True)
class Part:
    """A window, in the API's words and in the brute force's.

    Attributes:
        name: What is shown.
        ask: The window in the API.
        alone: When each event is in if there is nothing else.
        drops: Of what is in with the newest event last, those that go.
        end: When an event goes by itself.
        batch: Whether what gathers is a batch, now that the newest event has come.
        span: Of batches of time, how long one lasts.
        timer: Of batches that a timer completes, for how long it is set.
    """

    name: str
    ask: Callable[[Stream], DataWindowed]
    alone: brute.Window
    drops: Callable[[Content, Event], Content] = lambda content, first: []
    end: Callable[[Event], int] = lambda event: NEVER
    batch: Callable[[Content], bool] | None = None
    span: int = 0
    timer: int = 0

    def __repr__(self) -> str:
        return self.name


def _same(content: Content, columns: tuple[str, ...]) -> Content:
    newest = _group(content[-1].payload, columns)
    return [event for event in content if _group(event.payload, columns) == newest]


def last(n: int) -> Part:
    return Part(f"last({n})", lambda s: s.last(n), brute.last(n), lambda content, _: content[:-n])


def unique(*columns: str) -> Part:
    return Part(
        f"unique{columns}",
        lambda s: s.unique(*columns),
        brute.unique(*columns),
        lambda content, _: _same(content, columns)[:-1],
    )


def first(n: int) -> Part:
    return Part(f"first({n})", lambda s: s.first(n), brute.first(n), lambda content, _: content[n:])


def first_unique(*columns: str) -> Part:
    return Part(
        f"first_unique{columns}",
        lambda s: s.first_unique(*columns),
        brute.first_unique(*columns),
        lambda content, _: _same(content, columns)[1:],
    )


def first_span(span: int, since: int | None) -> Part:
    def drops(content: Content, opening: Event) -> Content:
        begin = opening.start if since is None else since
        return [] if begin <= content[-1].start < begin + span else content[-1:]

    return Part(
        f"first_span({span}, {since})",
        lambda s: s.first_span(us(span), since=at_us(since)),
        brute.first_span(span, since),
        drops,
    )


def last_span(span: int) -> Part:
    return Part(
        f"last_span({span})",
        lambda s: s.last_span(us(span)),
        lambda members: [((event.start, at), (event.start + span, -1)) for at, event in enumerate(members)],
        end=lambda event: event.start + span,
    )


def until_v() -> Part:
    def end(event: Event) -> int:
        return event.start + (2 if event.payload["v"] is None else event.payload["v"] * 3)

    v = g.when(~g.col("v").is_null()).then(g.col("v") * 3).otherwise(2).cast(g.Duration("us"))
    return Part(
        "until",
        lambda s: s.until(g.col("start") + v),
        lambda members: [
            ((event.start, at), (end(event), -1)) if end(event) > event.start else None
            for at, event in enumerate(members)
        ],
        lambda content, _: [] if end(content[-1]) > content[-1].start else content[-1:],
        end,
    )


def best(n: int, by: str, unique: tuple[str, ...], *, highest: bool) -> Part:
    def drops(content: Content, opening: Event) -> Content:
        del opening
        if content[-1].payload[by] is None:
            return content[-1:]
        gone = _same(content, unique)[:-1] if unique else []
        left = [event for event in content if all(event is not each for each in gone)]
        if len(left) > n:
            values = [order(event.payload[by]) for event in left]
            gone = [*gone, left[values.index(min(values) if highest else max(values))]]
        return gone

    return Part(
        f"best({n}, {by}, {unique}, {highest})",
        lambda s: (s.highest if highest else s.lowest)(n, by, unique=unique),
        brute.best(n, by, highest=highest, unique=unique),
        drops,
    )


def best_of_sum(n: int) -> Part:
    """By an expression, which needs a column of its own."""
    made = best(n, "v", (), highest=True)
    return Part(f"highest({n}, v * 2)", lambda s: s.highest(n, g.col("v") * 2), made.alone, made.drops)


def batches(n: int) -> Part:
    return Part(
        f"batches({n})",
        lambda s: s.batches(n),
        brute.last(n, n, partial=False),
        batch=lambda content: len(content) == n,
    )


def time_batches(span: int) -> Part:
    return Part(
        f"time_batches({span})",
        lambda s: s.time_batches(us(span), align=at_us(3)),
        brute.time_batches(span, 3),
        batch=lambda content: False,
        span=span,
    )


def time_length_batches(span: int, n: int) -> Part:
    return Part(
        f"time_length_batches({span}, {n})",
        lambda s: s.time_length_batches(us(span), n),
        brute.time_length_batches(span, n),
        batch=lambda content: len(content) == n,
        timer=span,
    )


PLAIN = st.one_of(
    st.builds(last, NUMBER),
    st.builds(unique, st.sampled_from(["v", "x"])),
    st.just(unique("v", "x")),
    st.builds(first, NUMBER),
    st.builds(first_unique, st.sampled_from(["v", "x"])),
    st.builds(first_span, SPAN, st.none() | st.integers(0, 20)),
    st.builds(last_span, SPAN),
    st.just(until_v()),
    st.builds(
        best,
        NUMBER,
        st.sampled_from(["v", "x"]),
        st.sampled_from([(), ("v",), ("x",)]),
        highest=st.booleans(),
    ),
    st.builds(best_of_sum, NUMBER),
    st.just(Part("keep_all", lambda s: s.keep_all(), brute.first(1000))),
)
BATCHES = st.one_of(
    st.builds(batches, NUMBER), st.builds(time_batches, SPAN), st.builds(time_length_batches, SPAN, NUMBER)
)
INTERSECTED: st.SearchStrategy[list[Part]] = st.tuples(
    st.lists(PLAIN, min_size=1, max_size=3), st.none() | BATCHES
).flatmap(
    lambda made: st.permutations(
        [*made[0], *([] if made[1] is None else [made[1]]), *([last(4)] if len(made[0]) < 2 else [])]
    )
)
UNITED = st.lists(PLAIN | BATCHES, min_size=2, max_size=3).filter(
    lambda parts: sum(part.timer > 0 for part in parts) < 2
)


class Intersection:
    """All windows hold the same events: those that none has dropped."""

    def __init__(self, parts: list[Part], members: Content) -> None:
        self.parts, self.members = parts, members
        self.batch = next((part for part in parts if part.batch is not None), None)
        self.content: Content = []
        self.out: Content = []
        self.enter: dict[int, brute.Moment] = {}
        self.leave: dict[int, brute.Moment] = {}
        self.deadline: int | None = None

    def at(self, event: Event) -> int:
        return next(at for at, each in enumerate(self.members) if each is event)

    def go(self, gone: Content, moment: brute.Moment) -> None:
        for event in gone:
            self.content = [each for each in self.content if each is not event]
            if self.at(event) in self.enter:
                self.leave.setdefault(self.at(event), moment)

    def complete(self, moment: brute.Moment) -> None:
        if self.batch is not None and self.batch.timer:
            self.deadline = moment[0] + self.batch.timer if self.content or self.out else None
        self.leave |= {self.at(event): moment for event in self.out}
        self.enter |= {self.at(event): moment for event in self.content}
        self.content, self.out = [], self.content

    def times(self) -> list[int]:
        """When time may do something."""
        found = [end for event in self.content for part in self.parts if (end := part.end(event)) != NEVER]
        if self.batch is not None and self.batch.span:
            span = self.batch.span
            ends = [(event.start - 3) // span * span + span + 3 for event in self.content]
            found += ends + [(event.start - 3) // span * span + 2 * span + 3 for event in self.out]
        return found + ([] if self.deadline is None else [self.deadline])

    def wait(self, until: int) -> None:
        while (time := min(self.times(), default=NEVER)) <= until and time != NEVER:
            self.go(
                [event for event in self.content if any(part.end(event) <= time for part in self.parts)], (time, -1)
            )
            by_grid = self.batch is not None and self.batch.span > 0 and (time - 3) % self.batch.span == 0
            if by_grid or self.deadline == time:
                self.complete((time, -1))

    def arrive(self, event: Event) -> None:
        moment = (event.start, self.at(event))
        self.content = [*self.content, event]
        gone = [each for part in self.parts for each in part.drops(self.content, self.members[0])]
        if self.batch is None and all(event is not each for each in gone):
            self.enter[self.at(event)] = moment
        self.go(gone, moment)
        if self.batch is None or self.batch.batch is None or all(event is not each for each in self.content):
            return
        if self.batch.batch(self.content):
            self.complete(moment)
        elif self.batch.timer and self.deadline is None:
            self.deadline = event.start + self.batch.timer


def intersected(parts: list[Part]) -> brute.Window:
    def stays(members: Content) -> list[brute.Stay]:
        made = Intersection(parts, members)
        for event in members:
            made.wait(event.start)
            made.arrive(event)
        made.wait(NEVER)
        return [(made.enter[at], made.leave.get(at)) if at in made.enter else None for at in range(len(members))]

    return stays


def united(parts: list[Part]) -> brute.Window:
    """Each as it is alone: in from the first enter to the last leave; what gathers for a batch is held by it."""

    def stays(members: Content) -> list[brute.Stay]:
        found: list[brute.Stay] = []
        alone = [part.alone(members) for part in parts]
        for at in range(len(members)):
            mine = [(part, stay[at]) for part, stay in zip(parts, alone, strict=True)]
            enters = [stay[0] for _, stay in mine if stay is not None]
            leaves = [stay[1] for _, stay in mine if stay is not None]
            gathers = any(stay is None and part.batch is not None for part, stay in mine)
            if not enters:
                found.append(None)
                continue
            known = [leave for leave in leaves if leave is not None]
            found.append((min(enters), max(known) if len(known) == len(leaves) and not gathers else None))
        return found

    return stays


def asked(verb: str, parts: list[Part], on: Stream) -> DataWindowed:
    head, *others = [part.ask(on) for part in parts]
    return head.intersect(*others) if verb == "intersect" else head.unite(*others)


def drawn(verb: str, data: st.DataObject) -> tuple[list[Part], brute.Window]:
    parts = list(data.draw(INTERSECTED if verb == "intersect" else UNITED))
    return parts, (intersected if verb == "intersect" else united)(parts)


VERBS = pytest.mark.parametrize("verb", ["intersect", "unite"])


@VERBS
@examples(dear=True)
@given(data=st.data())
def test_windows_together_hold_what_the_brute_force_says(device_name: Any, verb: str, data: st.DataObject) -> None:
    (parts, stays), events, key = drawn(verb, data), data.draw(EVENTS), data.draw(KEYS)
    window = asked(verb, parts, source(data.draw(st.permutations(events))).by(*key))
    check(window.rows(), device_name, brute.rows(events, stays, key))
    check(window.changes(), device_name, brute.changes(events, stays, key))
    counted = {"n": Aggregate("count"), "s": Aggregate("sum", "v"), "m": Aggregate("max", "x")}
    held = brute.rows(events, stays, key)
    check(window.agg(n=g.count(), s=g.sum("v"), m=g.max("x")), device_name, reference.snapshot(held, counted, key))
    each = window.each(n=g.count(), s=g.sum("v"), m=g.max("x"))
    check(each, device_name, brute.each(events, stays, counted, key))


@VERBS
@examples(dear=True)
@given(data=st.data())
def test_live_is_batch_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory, device_name: Any, verb: str, data: st.DataObject
) -> None:
    (parts, _), events, key = drawn(verb, data), data.draw(EVENTS), data.draw(KEYS)
    chance = data.draw(st.randoms(use_true_random=False))
    query = ASKED[data.draw(st.sampled_from([*ASKED]))](asked(verb, parts, source(events).by(*key)))
    expected = rows(query.collect(device=device_name))
    tmp = tmp_path_factory.mktemp("live") if data.draw(st.booleans()) else None
    assert rows(pushed(query, device_name, events, chance, tmp)) == expected


def drops(window: DataWindowed) -> list[tuple[int, str, int]]:
    """(when, what, which v) of all that comes and goes."""
    return sorted((start, status, v) for start, _, v, *_, status in told(window.changes().collect(device="cpu")))


def test_what_one_window_drops_takes_no_place_in_another() -> None:
    # v is 1 2 1 3: the second 1 puts out the first of unique, so that of the last 3 nothing else goes, and 3 finds room
    s = points([(0, 1), (1, 2), (2, 1), (3, 3)])
    window = s.last(3).intersect(s.unique("v"))
    assert drops(window) == [(0, "new", 1), (1, "new", 2), (2, "dead", 1), (2, "new", 1), (3, "new", 3)]


def test_all_windows_see_an_event_before_any_drops_another() -> None:
    # At 2 the last 2 drop 1, and unique drops the other 2: only the new one is left
    s = points([(0, 1), (1, 2), (2, 2)])
    window = s.last(2).intersect(s.unique("v"))
    assert drops(window) == [(0, "new", 1), (1, "new", 2), (2, "dead", 1), (2, "dead", 2), (2, "new", 2)]


def test_an_event_that_one_window_does_not_take_takes_no_place_in_another() -> None:
    s = points([(0, 1), (1, 1), (2, 2), (3, 3)])
    assert drops(s.first_unique("v").intersect(s.first(2))) == [(0, "new", 1), (2, "new", 2)]


def test_a_batch_is_of_what_the_other_windows_leave_and_begins_anew() -> None:
    # 4 4 4 is one event of unique, so the second batch is 4 5 6; then 4 may come again
    s = points(list(enumerate([1, 2, 3, 4, 4, 4, 5, 6, 4])))
    window = s.unique("v").intersect(s.batches(3))
    assert drops(window) == [
        *((2, "new", v) for v in (1, 2, 3)),
        *((7, "dead", v) for v in (1, 2, 3)),
        *((7, "new", v) for v in (4, 5, 6)),
    ]


def test_a_union_holds_what_any_window_holds() -> None:
    s = points([(0, 1), (1, 2), (2, 1), (3, 2)])
    # last(1): each for a tick; unique: 1 until 2, 2 until 3; so nothing goes before unique drops it
    assert drops(s.last(1).unite(s.unique("v"))) == drops(s.unique("v"))
    assert drops(s.last(1).unite(s.first(1))) == [
        (0, "new", 1),
        (1, "new", 2),
        (2, "dead", 2),
        (2, "new", 1),
        (3, "dead", 1),
        (3, "new", 2),
    ]


def test_more_than_two_and_one_after_the_other_are_the_same() -> None:
    s = points([(0, 1), (1, 2), (2, 1), (3, 2), (9, 7)])
    at_once = s.last(3).intersect(s.lowest(2, g.col("v") * 2, order=g.col("v") * -1), s.last_span("5us"))
    by_two = s.last(3).intersect(s.lowest(2, g.col("v") * 2, order=g.col("v") * -1)).intersect(s.last_span("5us"))
    assert drops(at_once) == drops(by_two)
    assert at_once.rows().schema.names == ["v"]
    assert "DataWindow all of (last 3; lowest 2 by __1__by; last span 5us) order=__1__order_0" in str(
        at_once.rows().explain()
    )


def test_a_key_said_twice_is_one_stream() -> None:
    s = points([(0, 1), (1, 2)])
    assert drops(s.by("v").last(1).intersect(s.by("v").keep_all())) == [(0, "new", 1), (1, "new", 2)]


def test_groups_of_which_nothing_is_left_are_forgotten() -> None:
    s = points([(0, 0)]).by("v")
    live = s.last(2).intersect(s.last_span("5us")).changes().start(device="cpu")
    for step in range(0, 20_000, 2_000):
        live.push(pa.table({"at": list(range(step, step + 2_000)), "v": list(range(step, step + 2_000))}))
        live.advance(at_us(step + 2_000))
    groups = next(table for name, table in live.state().items() if name.endswith("groups"))
    assert len(groups) < 10_000


S = points([(0, 1)])


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: S.last(2).intersect(), "needs a second window"),
        (lambda: S.last(2).intersect(cast("DataWindowed", S)), "a Stream"),
        (lambda: S.last(2).intersect(points([(0, 1)]).last(2)), "over different streams"),
        (lambda: S.last(2).intersect(S.by("v").last(2)), "over different streams"),
        (lambda: S.last(2).unite(S.session("5us")), "session gap"),
        (lambda: S.last(2).unite(S.sample(5)), "sample 5"),
        (lambda: S.last(2, every=3).intersect(S.unique("v")), "last 2 every=3"),
        (lambda: S.unique("v").intersect(S.last(2, partial=False)), "last 2 partial=False"),
        (lambda: S.last(2).intersect(S.keep_while(g.window.count < 3)), "while"),
        (lambda: S.batches(2).intersect(S.time_batches("5us")), "make batches"),
        (lambda: S.time_length_batches("5us", 2).unite(S.time_length_batches("5us", 3)), "make batches"),
        (lambda: S.last(2).intersect(S.last(3).unite(S.unique("v"))), "itself a union"),
        (lambda: S.last(2, order="v").intersect(S.first(3, order=g.col("v") * 2)), "order="),
    ],
)
def test_what_cannot_be_taken_together_is_refused(ask: Callable[[], DataWindowed], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        ask()


def test_times_are_looked_at() -> None:
    s = g.events(pa.table({"at": [0], "till": pa.array([None], pa.timestamp("us", "UTC"))}), start="at", unit="s")
    with pytest.raises(TimeError, match="null end"):
        s.last(1).intersect(s.until(g.col("till"))).rows().collect(device="cpu")
    with pytest.raises(TimeError, match="last_span"):
        s.last(1).intersect(s.last_span("3650000d")).rows().collect(device="cpu")
