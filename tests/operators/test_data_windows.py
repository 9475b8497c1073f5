"""Data windows: what the brute force says, on every device, and live in any cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import DataWindowed, Stream
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import choose
from gpu_ops.engines.local import engine as local
from gpu_ops.errors import PlanError, TimeError
from tests.support import data_window_reference as brute
from tests.support import reference
from tests.support.data_windows import ASKED, EVENTS, KEYS, NUMBER, SCHEMA, SPAN, points, pushed, source, told
from tests.support.examples import examples
from tests.support.reference import NEVER, Aggregate, Event
from tests.support.rows import check, rows, stream, to_table
from tests.support.threads import with_threads
from tests.support.ticks import at_us, us


@dataclass(frozen=True)
class Case:
    """A window in the API's words and in the brute force's, and the order that it asks for."""

    name: str
    ask: Callable[[Stream], DataWindowed]
    stays: brute.Window
    order: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.name


def _case(name: str, arguments: str, ask: Callable[[Stream], DataWindowed], stays: brute.Window) -> Case:
    return Case(f"{name}({arguments})", ask, stays)


ALIGN = st.integers(-9, 9)

WINDOWS: dict[str, st.SearchStrategy[Case]] = {
    "last": st.builds(
        lambda n, every, partial, order: Case(
            f"last({n}, {every}, {partial}, {order})",
            lambda s: s.last(n, every=every, partial=partial, order=order),
            brute.last(n, every, partial=partial),
            () if order is None else (order,),
        ),
        NUMBER,
        NUMBER,
        st.booleans(),
        st.sampled_from([None, "v", "x"]),
    ),
    "batches": st.builds(
        lambda n: _case("batches", f"{n}", lambda s: s.batches(n), brute.last(n, n, partial=False)), NUMBER
    ),
    "session": st.builds(
        lambda gap, cap, grid, align, running: _case(
            "session",
            f"{gap}, {cap}, {grid}, {align}, {running}",
            lambda s: s.session(us(gap), cap=us(cap), grid_cap=us(grid), align=at_us(align), running=running),
            brute.session(gap, cap, grid, align, running=running),
        ),
        SPAN,
        st.none() | SPAN,
        st.none() | SPAN,
        ALIGN,
        st.booleans(),
    ),
    "last_span": st.builds(
        lambda d: _case(
            "last_span",
            f"{d}",
            lambda s: s.last_span(us(d)),
            lambda members: [((e.start, at), (e.start + d, -1)) for at, e in enumerate(members)],
        ),
        SPAN,
    ),
    "time_batches": st.builds(
        lambda span, align: _case(
            "time_batches",
            f"{span}, {align}",
            lambda s: s.time_batches(us(span), **({} if align is None else {"align": at_us(align)})),
            brute.time_batches(span, align),
        ),
        SPAN,
        st.none() | ALIGN,
    ),
    "time_length_batches": st.builds(
        lambda span, n, since, idle: _case(
            "time_length_batches",
            f"{span}, {n}, {since}, {idle}",
            lambda s: s.time_length_batches(us(span), n, since=at_us(since), idle=idle),
            brute.time_length_batches(span, n, since, runs=idle == "run"),
        ),
        SPAN,
        NUMBER,
        st.none() | st.integers(-9, 20),
        st.sampled_from(["stop", "run"]),
    ),
    "first": st.builds(lambda n: _case("first", f"{n}", lambda s: s.first(n), brute.first(n)), NUMBER),
    "first_span": st.builds(
        lambda span, since: _case(
            "first_span",
            f"{span}, {since}",
            lambda s: s.first_span(us(span), since=at_us(since)),
            brute.first_span(span, since),
        ),
        SPAN,
        st.none() | st.integers(0, 20),
    ),
    "keep_all": st.just(_case("keep_all", "", lambda s: s.keep_all(), brute.first(1000))),
    "unique": st.sampled_from(
        [
            _case("unique", "v", lambda s: s.unique("v"), brute.unique("v")),
            _case("unique", "v, x", lambda s: s.unique("v", "x"), brute.unique("v", "x")),
            _case("first_unique", "x", lambda s: s.first_unique("x"), brute.first_unique("x")),
        ]
    ),
    "until": st.just(
        _case(
            "until",
            "start + v",
            lambda s: s.until(
                g.col("start") + g.when(~g.col("v").is_null()).then(g.col("v")).otherwise(2).cast(g.Duration("us"))
            ),
            lambda members: [
                ((e.start, at), (e.start + v, -1))
                if (v := 2 if e.payload["v"] is None else e.payload["v"]) > 0
                else None
                for at, e in enumerate(members)
            ],
        )
    ),
    "best": st.builds(
        lambda n, by, highest, unique: _case(
            "highest" if highest else "lowest",
            f"{n}, {by}, {unique}",
            lambda s: (s.highest if highest else s.lowest)(n, by, unique=unique),
            brute.best(n, by, highest=highest, unique=unique),
        ),
        NUMBER,
        st.sampled_from(["v", "x"]),
        st.booleans(),
        st.sampled_from([(), ("v",), ("x",)]),
    ),
}
ANY = st.one_of(*WINDOWS.values())


@pytest.mark.parametrize("kind", WINDOWS)
@examples(12, kinds=True)
@given(data=st.data())
def test_a_window_holds_what_the_brute_force_says(device_name: Any, kind: str, data: st.DataObject) -> None:
    case, events, key = data.draw(WINDOWS[kind]), data.draw(EVENTS), data.draw(KEYS)
    window = case.ask(source(data.draw(st.permutations(events))).by(*key))
    check(window.rows(), device_name, brute.rows(events, case.stays, key, case.order))
    changes = brute.changes(events, case.stays, key, case.order)
    check(window.changes(), device_name, changes)
    for status, asked in (("new", window.insert_stream()), ("dead", window.remove_stream())):
        mine = [event for event in changes if event.payload["status"] == status]
        bare = reference.select(mine, lambda event: {n: v for n, v in event.payload.items() if n != "status"})
        check(asked, device_name, bare)
    counted = {"n": Aggregate("count"), "s": Aggregate("sum", "v")}
    held = brute.rows(events, case.stays, key, case.order)
    check(window.agg(n=g.count(), s=g.sum("v")), device_name, reference.snapshot(held, counted, key))


@pytest.mark.parametrize("kind", WINDOWS)
@examples(12)
@given(data=st.data())
def test_each_row_sees_what_is_in_when_it_enters(device_name: Any, kind: str, data: st.DataObject) -> None:
    case, events, key = data.draw(WINDOWS[kind]), data.draw(EVENTS), data.draw(KEYS)
    asked = case.ask(source(events).by(*key)).each(n=g.count(), s=g.sum("v"), m=g.max("x"))
    counted = {"n": Aggregate("count"), "s": Aggregate("sum", "v"), "m": Aggregate("max", "x")}
    check(asked, device_name, brute.each(events, case.stays, counted, key, case.order))


@examples(25)
@given(events=EVENTS, n=NUMBER, key=KEYS)
def test_a_count_window_gives_a_point_for_each_distinct_start(
    device_name: Any, events: list[Event], n: int, key: tuple[str, ...]
) -> None:
    found = []
    for values, members in reference.groups(events, key):
        starts = sorted({event.start for event in members})
        for begin, end in zip(starts, starts[n - 1 :], strict=False):
            inside = [event for event in members if begin <= event.start <= end]
            found.append(Event(end + 1, end + 2, {**values, "n": len(inside)}))
    check(source(events).by(*key).count_window(n).agg(n=g.count()), device_name, found)
    held = brute.rows(events, brute.last_starts(n), key)
    check(source(events).by(*key).count_window(n).rows(), device_name, held)


PRESENT = {"k": "c", "v": 9, "x": 0.25}
"""What stands for null."""


@pytest.mark.parametrize("kind", WINDOWS)
@examples(10, kinds=True)
@given(data=st.data())
def test_it_does_not_matter_how_many_events_are_worked_on_at_a_time(kind: str, data: st.DataObject) -> None:
    text, device = data.draw(st.booleans()), choose(data.draw(st.sampled_from(["cpu", "array"])))
    case, events, asked = data.draw(WINDOWS[kind]), data.draw(EVENTS), data.draw(st.sampled_from([*ASKED]))
    filled = (PRESENT | {n: v for n, v in each.payload.items() if v is not None} for each in events)
    table = to_table([each._replace(payload=one) for each, one in zip(events, filled, strict=True)], SCHEMA)
    if not text:  # numbers alone are moved in another way
        table = table.set_column(table.schema.get_field_index("k"), "k", pc.binary_length(table["k"]))
    query = g.events(table, start="start", end="end")
    query = query.by("v") if data.draw(st.booleans()) else query
    size, threads, held = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)), case.ask(query)
    for asks in (ASKED[asked](held) if text else held.agg(n=g.count()), held.rows().by("v").last(2).agg(m=g.mean("x"))):
        with with_threads(threads):
            whole, cut = (
                pa.concat_tables(local.tables(asks._node, replace(device, block_rows=each))) for each in (None, size)
            )
        assert rows(cut) == rows(whole)


def test_a_small_group_before_one_of_two_blocks_is_not_cut() -> None:
    events = pa.table({"at": [0, 0, 1, 2, 3, 4, 5], "v": [9, 0, 9, 9, 9, 9, 9]})
    asked = g.events(events, start="at", unit="us").by("v").lowest(1, "v").agg(n=g.count())
    whole, cut = (
        pa.concat_tables(local.tables(asked._node, replace(choose("cpu"), block_rows=size))) for size in (None, 3)
    )
    assert rows(cut) == rows(whole)


@pytest.mark.parametrize("size", [None, 1, 2, 3])
def test_each_sees_all_windows_of_its_key_however_many_events_are_worked_on_at_a_time(size: int | None) -> None:
    # v  1 ── 2 ── 1      one window for each v; the event that enters sees what is in all of them
    ticks = pa.table({"at": [0, 1, 2, 0], "k": ["a", "a", "a", "b"], "v": [1, 2, 1, 1]})
    each = g.events(ticks, start="at", unit="us").by("k").unique("v").each(n=g.count())
    made = pa.concat_tables(local.tables(each._node, replace(choose("cpu"), block_rows=size)))
    assert made.sort_by([("k", "ascending"), ("start", "ascending")])["n"].to_pylist() == [1, 2, 2, 1]


@pytest.mark.parametrize("kind", [*WINDOWS, "count_window", "sample"])
@examples(12, kinds=True)
@given(data=st.data())
def test_live_is_batch_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory, device_name: Any, kind: str, data: st.DataObject
) -> None:
    events, key, chance = data.draw(EVENTS), data.draw(KEYS), data.draw(st.randoms(use_true_random=False))
    if kind in WINDOWS:
        ask = data.draw(WINDOWS[kind]).ask
    else:
        n = data.draw(NUMBER)
        ask = (lambda s: s.count_window(n)) if kind == "count_window" else (lambda s: s.sample(n, seed=n))
    query = ASKED[data.draw(st.sampled_from([*ASKED]))](ask(source(events).by(*key)))
    expected = rows(query.collect(device=device_name))
    tmp = tmp_path_factory.mktemp("live") if data.draw(st.booleans()) else None
    assert rows(pushed(query, device_name, events, chance, tmp)) == expected


def test_sums_over_a_window_do_not_wait_for_who_is_in_to_leave() -> None:
    # 1, 2 and 3 are in from 0, 10 and 20 on; when the CTI is 21, what is in from 20 on may yet end there or later
    live = points([(0, 1)]).last(2).agg(s=g.sum("v")).start(device="cpu")
    live.push(pa.table({"at": [0, 10, 20], "v": [1, 2, 3]}))
    live.advance(at_us(21))
    assert told(live.results()) == [(0, 10, 1), (10, 20, 3)]
    assert live.status().cti_out == 20
    live.close()
    assert told(live.results()) == [(20, MAX_TIME, 5)]


def test_a_batch_that_time_let_in_may_leave_with_rows_of_that_very_time() -> None:
    # 4 and 5 are a batch at 5; at 7 the clock lets the other 5 in, and two rows put it out before anything has passed
    query = points([(0, 1)]).time_length_batches("2us", 2).agg(n=g.count())
    live = query.start(device="cpu")
    live.push(pa.table({"at": [4, 5, 5], "v": [1, 2, 3]}))
    live.advance(at_us(7))
    live.push(pa.table({"at": [7, 7], "v": [4, 5]}))
    live.close()
    assert sorted(told(live.results())) == [(5, 7, 2), (7, 9, 2)]


def test_a_session_is_given_once_it_is_over() -> None:
    live = points([(0, 1)]).session("5us").agg(n=g.count()).start(device="cpu")
    live.push(pa.table({"at": [0, 3], "v": [1, 2]}))
    live.advance(at_us(7))
    assert (told(live.results()), live.status().cti_out) == ([], 0)
    live.advance(at_us(8))  # at 8 the next one would begin
    assert told(live.results()) == [(0, 8, 2)]
    assert live.status().cti_out == 8


def test_a_grid_cap_is_trills() -> None:
    # It opens at 3, so it is cut at 20; the next opens as that one is cut, and is cut at 30; the last after a gap.
    starts = [(at, 1) for at in (3, 9, 15, 21, 27, 31, 60)]
    found = told(points(starts).session("8us", grid_cap="10us", align=at_us(0)).agg(n=g.count()).collect(device="cpu"))
    assert sorted(found) == [(3, 20, 3), (21, 30, 2), (31, 39, 1), (60, 68, 1)]


def test_aggregates_go_by_the_times_that_events_have_themselves(device_name: str) -> None:
    # 3 at 0, 1 at 2 and 2 at 4 enter together, and are in their own order all the same
    asked = {"f": g.first("v"), "l": g.last("v"), "all": g.collect_list("v"), "second": g.nth("v", 1)}
    own = g.window_function(
        lambda t, *_: t["end"].cast(pa.int64()).to_pylist(),
        returns=pa.list_(pa.int64()),
        of="v",
        time_sensitive=True,
    )
    expected = (3, 2, [3, 1, 2], 1)
    for window in (points([(0, 3), (2, 1), (4, 2)]).session("5us"), points([(0, 3), (2, 1), (4, 2)]).batches(3)):
        (row,) = told(window.agg(**asked, ends=own, spread=g.max("v") - g.first("v")).collect(device=device_name))
        assert row[2:] == (*expected, [1, 3, 5], 0)
        assert [row[3:] for row in told(window.each(**asked).collect(device=device_name))] == [expected] * 3
        (top,) = told(
            window.apply(lambda t: [{"all": str(t["v"].to_pylist())}], schema=ALL).collect(device=device_name)
        )
        assert top[2:] == ("[3, 1, 2]",)


ALL = pa.schema([("all", pa.string())])


def test_a_row_that_leaves_nothing_has_a_row_all_the_same(device_name: str) -> None:
    held = points([(0, 1), (1, 2), (2, 3), (3, 0)]).keep_while(g.window.newest("v") > 2)
    asked = {"n": g.count(), "s": g.sum("v"), "all": g.collect_list("v"), "few": g.count(where=g.col("v") > 2)}
    each = held.each(**asked).collect(device=device_name)
    nothing: tuple[Any, ...] = (0, None, [], 0)
    assert sorted(told(each), key=str) == [
        (0, 1, 1, *nothing),
        (1, 2, 2, *nothing),
        (2, 3, 3, 1, 3, [3], 1),
        (3, 4, 0, *nothing),
    ]


def test_all_results_of_a_count_window_are_points_at_its_end(device_name: str) -> None:
    windows = points([(0, 5), (3, 7), (3, 6)]).count_window(2)
    assert told(windows.top(1, by="v").collect(device=device_name)) == [(4, 5, 1, 7)]
    rows_of = windows.apply(lambda t: [{"all": str(t.num_rows)}], schema=ALL)
    assert told(rows_of.collect(device=device_name)) == [(4, 5, "3")]


def test_rows_of_one_start_enter_one_after_the_other_as_asked() -> None:
    same = points([(5, 1), (5, 3), (5, 2)])
    by_payload = same.last(1).changes().collect(device="cpu")
    assert sorted(told(by_payload)) == [
        (5, 6, v, s) for v, s in ((1, "dead"), (1, "new"), (2, "dead"), (2, "new"), (3, "new"))
    ]
    assert told(same.last(1, order=g.col("v") * -1).rows().collect(device="cpu")) == [(5, MAX_TIME, 1)]
    assert sorted(told(same.last(2).each(s=g.sum("v")).collect(device="cpu"))) == [
        (5, 6, 1, 1),
        (5, 6, 2, 3),
        (5, 6, 3, 5),
    ]


def test_rows_of_one_start_go_by_what_is_asked_and_then_by_all_columns(device_name: str) -> None:
    columns = {"at": [0] * 5, "a": [2, 1, None, 1, 1], "b": [1, 9, 5, 3, 3], "nested": [[9], [1], [1], [1], [2]]}
    same = g.events(pa.table(columns), start="at", unit="s")
    for order, expected in (
        (None, [(None, 5), (1, 3), (1, 3), (1, 9), (2, 1)]),
        ("b", [(2, 1), (1, 3), (1, 3), (None, 5), (1, 9)]),
    ):
        for n in range(1, 6):
            first, last = (
                window.rows().collect(device=device_name).select(["a", "b"]).to_pylist()
                for window in (same.first(n, order=order), same.last(n, order=order))
            )
            assert sorted((row["b"], row["a"] or 0) for row in first) == sorted((b, a or 0) for a, b in expected[:n])
            assert sorted((row["b"], row["a"] or 0) for row in last) == sorted((b, a or 0) for a, b in expected[-n:])


BAD_PLANS: dict[str, Callable[[Any], Any]] = {
    "no rows": lambda s: s.last(0),
    "half a row": lambda s: s.last(1.5),
    "a window that never moves": lambda s: s.last(2, every=0),
    "partial that is no choice": lambda s: s.last(2, partial=1),
    "no distinct starts": lambda s: s.count_window(-1),
    "no gap": lambda s: s.session(0),
    "a negative cap": lambda s: s.session("5us", cap="-1s"),
    "a negative span": lambda s: s.last_span("-1s"),
    "no span": lambda s: s.time_batches("soon"),
    "no place to begin": lambda s: s.time_batches("5us", align="noon"),
    "no events": lambda s: s.time_length_batches("5us", 0),
    "no way to be idle": lambda s: s.time_length_batches("5us", 2, idle="walk"),
    "an unknown column": lambda s: s.unique("z"),
    "no column": lambda s: s.unique(),
    "an unknown order": lambda s: s.last(2, order="z"),
    "a best of an unknown column": lambda s: s.highest(2, "z"),
    "unique in an unknown column": lambda s: s.lowest(2, "v", unique="z"),
    "a seed that is no number": lambda s: s.sample(2, seed="x"),
    "until a number": lambda s: s.until(g.col("v")),
    "an order from other rows": lambda s: s.last(2, order=g.col("v").shift(1)),
    "no aggregate": lambda s: s.last(2).each(n=g.col("v")),
    "an aggregate with a column's name": lambda s: s.last(2).each(v=g.sum("v")),
    "what depends on how long a window lasts": lambda s: s.last(2).each(n=1 + g.integral("v")),
    "a function told of how long it lasts": lambda s: s.last(2).each(
        n=g.window_function(len, returns=pa.int64(), of="v", time_sensitive=True)
    ),
    "a status twice": lambda s: s.with_columns(status=g.lit("x")).last(2).changes(),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_what_cannot_be_meant_is_refused_when_the_plan_is_made(name: str) -> None:
    with pytest.raises(PlanError):
        BAD_PLANS[name](points([(0, 1)]))


def test_a_time_past_the_last_one_is_an_error(device_name: str) -> None:
    late = stream([Event(NEVER - 5, NEVER, {"v": 1})])
    for window in (late.session("6us"), late.session("5us"), late.time_batches("4us")):
        with pytest.raises(TimeError, match="years 1 to 9999"):
            window.rows().collect(device=device_name)


def test_explain_says_what_it_waits_for() -> None:
    told_so = points([(0, 1)]).by("v").last(3, order="v").agg(n=g.count()).explain(device="cpu")
    assert "DataWindow last 3 order=v" in told_so
    assert "the enter of the oldest event that may yet leave after T" in told_so


def test_rows_kept_in_several_pieces_are_settled_group_by_group() -> None:
    # a, b and c wait in one piece, the later b in another; the last step brings no row
    live = points([(0, 1)]).unique("v").rows().start(device="cpu")
    for at, values in enumerate([[1, 2, 3], [2]]):
        live.push(pa.table({"at": [at] * len(values), "v": values}))
        live.advance(at_us(at + 1))
    live.close()
    assert sorted(told(live.results())) == [(0, 1, 2), (0, MAX_TIME, 1), (0, MAX_TIME, 3), (1, MAX_TIME, 2)]
