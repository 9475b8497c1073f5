"""Esper's queries as the runner reads them, its scripts as events in time, and what it says of deliveries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gpu_ops import Stream
from tests.conformance.epl import Call, Literal, Member, Name, Operation, Ordered, Period, Star, View
from tests.conformance.epl_parser import parse
from tests.conformance.epl_values import value
from tests.conformance.esper import difference
from tests.conformance.esper_feed import ranks
from tests.conformance.esper_script import Clock, Script, Tick, column
from tests.conformance.esper_stays import EventScope
from tests.conformance.unsupported import UnsupportedError

# Reading


def test_a_statement_with_all_of_its_clauses() -> None:
    (statement,) = parse(
        "@name('s0') select irstream distinct t.k as key, sum(v, filter: v > 1) total, count(*) "
        "from Tick(k = 'a', v is not null)#groupwin(k)#time(1 min 5 sec) as t "
        "where v between 1 and 3 group by k having count(*) >= 2 order by k desc, total limit 3 offset 1"
    )
    total = Call("sum", (Name("v"),), (("filter", (Operation(">", (Name("v"), Literal(1))),)),))
    assert statement.name == "s0"
    assert statement.selector == "irstream"
    assert statement.distinct
    assert [(item.name, item.expression) for item in statement.items] == [
        ("key", Name("k")),
        ("total", total),
        ("count(*)", Call("count", (Star(),))),
    ]
    assert statement.event_type == "Tick"
    assert statement.filters[1] == Operation("is not", (Name("v"), Literal(None)))
    assert statement.views == (View("groupwin", (Name("k"),)), View("time", (Period(0, 65_000),)))
    assert statement.where == Operation("between", (Name("v"), Literal(1), Literal(3)))
    assert statement.levels == ((Name("k"),),)
    assert statement.order == (Ordered(Name("k"), descending=True), Ordered(Name("total"), descending=False))
    assert statement.limit == (3, 1)


def test_names_that_begin_like_words_of_the_language() -> None:
    (statement,) = parse("SELECT orders, first(fromage).isle FROM Selection.win:length(2)")
    assert [item.expression for item in statement.items] == [
        Name("orders"),
        Member(Call("first", (Name("fromage"),)), "isle"),
    ]
    assert statement.views == (View("length", (Literal(2),)),)


@pytest.mark.parametrize(
    ("groups", "levels"),
    [
        ("rollup(a, b)", ["ab", "a", ""]),
        ("a, rollup(b, c)", ["abc", "ab", "a"]),
        ("cube(a, b)", ["ab", "a", "b", ""]),
        ("grouping sets((a, b), c, ())", ["ab", "c", ""]),
    ],
)
def test_rollups_are_levels(groups: str, levels: list[str]) -> None:
    (statement,) = parse(f"select count(*) from T group by {groups}")
    assert statement.levels is not None
    assert ["".join(key.name for key in level if isinstance(key, Name)) for level in statement.levels] == levels


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("select * from pattern [every T]", "patterns"),
        ("select * from T output last every 2 events", "output rates"),
        ("select * from T as a, U as b", "joins"),
        ("select * from T where exists (select * from U)", "subqueries"),
        ("create window W#keepall as T", "named windows"),
        ("select * from T match_recognize (pattern (A))", "match_recognize"),
        ("context C select * from T", "contexts"),
        ("select * from T group all", "no word for"),
        ("@drop select * from T", "annotation 'drop'"),
        ("select * from T#time(3 moons)", "unit 'moons'"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(text: str, construct: str) -> None:
    with pytest.raises(UnsupportedError, match=construct):
        parse(text)


def test_constructs_in_strings_are_none() -> None:
    assert len(parse("select 'output all (select' as a from T; select \"join\" as b from T")) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("7 / 2", 3.5),
        ("-7 % 3", -1),
        ("1 / 0", float("inf")),
        ("x || 'c'", "abc"),
        ("x like 'a%' and not x like '_'", True),
        ("x regexp 'a.'", True),
        ("n > 1 or v in (1, 2)", True),
        ("n > 1 and v in (1, 2)", None),
        ("n is null", True),
        ("v not in [2:5)", False),
        ("v between 3 and 1", True),
        ("case v when 2 then 'two' else 'more' end", "two"),
        ("coalesce(n, v)", 2),
        ("Math.max(v, 3)", 3),
        ("java.lang.Math.round(v + 0.5)", 3),
        ("v > any (1, n)", True),
        ("v > all (1, n)", None),
        ("x like 'a!_' escape '!'", False),
        ("v & 3 | 4", 6),
        ("{v, n}", [2, None]),
        ("cast(v, string) || cast(x as string)", "2ab"),
        ("x.toUpperCase().substring(1)", "B"),
        ("n.getDayOfWeek()", None),
        ("v.getDayOfWeek()", 5),
    ],
)
def test_values_of_expressions(text: str, expected: Any) -> None:
    (statement,) = parse(f"select {text} as r from T")
    assert value(statement.items[0].expression, EventScope({"x": "ab", "v": 2, "n": None})) == expected


# Time


def test_a_clock_that_jumps_and_one_that_walks() -> None:
    # 0 ──jump──> 10 ──walk──> 20 ──walk in fours──> 30
    ticks = [Tick(0, (-1, 0)), Tick(10, (0, 10)), Tick(20, (3, 20), walks=True), Tick(30, (4, 30), True, 4)]
    clock = Clock(ticks)
    assert [tick.at if (tick := clock.reaches(time)) else None for time in (0, 1, 10, 11, 20, 21, 29, 31)] == [
        (-1, 0),
        (0, 10),
        (0, 10),
        (3, 11),
        (3, 20),
        (4, 24),
        (4, 30),
        None,
    ]


def test_arrivals_are_numbered_and_typed() -> None:
    script = [{"send": "T", "event": {"v": 1}}, {"advance_to_ms": 5}, {"send": "U", "event": {}}]
    script += [{"send": "T", "event": {"v": {"$num": "Infinity"}}}]
    line = {"deploy_at_ms": 2, "schema": {"T": {"v": "double", "k": "string"}}, "script": script}
    arrivals = list(Script(line).arrivals("T"))
    assert [(each.row, each.at) for each in arrivals] == [(0, (0, 2)), (1, (3, 5))]
    assert [each.event for each in arrivals] == [{"v": 1.0, "k": None}, {"v": float("inf"), "k": None}]
    assert isinstance(arrivals[0].event["v"], float)


def test_columns_and_ranks() -> None:
    assert column([1, None, 2.5]).type == pa.float64()
    assert column(["a", None]).type == pa.string()
    assert column([True, None]).type == pa.bool_()
    assert column([[1], [2], [1]]).to_pylist() == [0, 1, 0]
    assert ranks([("b", 1), ("a", 1), ("b", 2), (None, 9)], [False, True]) == [3, 1, 2, 0]


# Deliveries


def ask(query: Stream) -> pa.Table:
    return query.collect(device="cpu")


def line(epl: str, *sent: Any, **said: Any) -> dict[str, Any]:
    """A vector: numbers are times, pairs are events; what is said is expected after the step of that number."""
    steps: list[dict[str, Any]] = [
        {"send": "T", "event": dict(zip("kv", one, strict=True))} if isinstance(one, tuple) else {"advance_to_ms": one}
        for one in sent
    ]
    expected = [
        {"after_step": int(step[1:]), "statement": "s", "new": new, "old": old} for step, (new, old) in said.items()
    ]
    return {
        "epl": f"@name('s') {epl}",
        "listen": ["s"],
        "deploy_at_ms": 0,
        "schema": {"T": {"k": "string", "v": "int"}},
        "script": steps,
        "expected": expected,
        "any_order": False,
    }


def test_row_for_all_shows_what_was_before() -> None:
    vector = line(
        "select irstream sum(v) as s from T#length(1)",
        ("a", 1),
        ("b", 5),
        _0=([{"s": 1}], [{"s": None}]),
        _1=([{"s": 5}], [{"s": 1}]),
    )
    assert difference(vector, ask) is None
    vector["expected"][1]["old"] = [{"s": 2}]
    assert "step 1: new [{'s': 5}], old [{'s': 1}]; expected" in str(difference(vector, ask))
    assert "not expected step 1" in str(difference(vector | {"expected": vector["expected"][:1]}, ask))


def test_whole_numbers_are_no_floats() -> None:
    assert difference(line("select avg(v) as s from T", ("a", 1), _0=([{"s": 1.0}], None)), ask) is None
    assert difference(line("select avg(v) as s from T", ("a", 1), _0=([{"s": 1}], None)), ask) is not None


def test_a_jump_over_the_ends_of_several_batches_is_one_batch() -> None:
    # grid 1 … 11 … 21 … 31 … 41: the jump to 25 posts what came at 3, and 31 is the next end.
    vector = line(
        "select irstream v from T#time_batch(10 msec)",
        1,
        ("a", 1),
        3,
        ("a", 2),
        25,
        30,
        31,
        41,
        _4=([{"v": 1}, {"v": 2}], None),
        _6=(None, [{"v": 1}, {"v": 2}]),
    )
    assert difference(vector, ask) is None


def test_batches_by_rows_or_time_end_in_the_step_of_their_last_row() -> None:
    vector = line(
        "select irstream v from T#time_length_batch(10 msec, 2)",
        ("a", 1),
        ("a", 2),
        ("a", 3),
        10,
        20,
        _1=([{"v": 1}, {"v": 2}], None),
        _3=([{"v": 3}], [{"v": 1}, {"v": 2}]),
        _4=(None, [{"v": 3}]),
    )
    assert difference(vector, ask) is None


def test_events_that_leave_as_they_come_are_new_and_old() -> None:
    vector = line(
        "select irstream k, count(*) as n from T#sort(1, v)",
        ("a", 1),
        ("b", 2),
        _0=([{"k": "a", "n": 1}], None),
        _1=([{"k": "b", "n": 1}], [{"k": "b", "n": 1}]),
    )
    assert difference(vector, ask) is None


def test_where_before_and_having_behind_the_aggregates() -> None:
    vector = line(
        "select k, sum(v) as s from T#keepall where v > 1 group by k having sum(v) > 4 order by k",
        ("a", 9),
        ("b", 1),
        ("b", 3),
        ("b", 2),
        _0=([{"k": "a", "s": 9}], None),
        _3=([{"k": "b", "s": 5}], None),
    )
    assert difference(vector, ask) is None


def test_earlier_events() -> None:
    vector = line(
        "select prev(1, v) as p, prior(2, v) as q, prevcount(v) as n, prevwindow(v) as w from T#length(2)",
        ("a", 1),
        ("a", 2),
        ("a", 3),
        _0=([{"p": None, "q": None, "n": 1, "w": [1]}], None),
        _1=([{"p": 1, "q": None, "n": 2, "w": [2, 1]}], None),
        _2=([{"p": 2, "q": 1, "n": 2, "w": [3, 2]}], None),
    )
    assert difference(vector, ask) is None


def test_what_is_in_any_and_in_all_of_several_windows() -> None:
    sent = [("a", 1), 3, ("a", 2), 10, 13]
    union = {"_0": ([{"v": 1}], None), "_2": ([{"v": 2}], None), "_3": (None, [{"v": 1}])}
    assert (
        difference(line("select irstream v from T#unique(k)#time(10 msec) retain-union", *sent, **union), ask) is None
    )
    both = {"_0": ([{"v": 1}], None), "_2": ([{"v": 2}], [{"v": 1}]), "_4": (None, [{"v": 2}])}
    assert difference(line("select irstream v from T#unique(k)#time(10 msec)", *sent, **both), ask) is None
    last = {"_0": ([{"v": 1}], None), "_2": ([{"v": 2}], [{"v": 1}])}
    assert difference(line("select irstream v from T#unique(k)#length(2)", *sent, **last), ask) is None
    first = {"_0": ([{"v": 1}], None)}
    assert difference(line("select irstream v from T#firstunique(k)#firstlength(2)", *sent, **first), ask) is None


def test_views_of_statistics_are_aggregates() -> None:
    vector = line(
        "select irstream k, total, average from T#groupwin(k)#length(1)#uni(v)",
        ("a", 1),
        ("b", 5),
        ("a", 3),
        _0=([{"k": "a", "total": 1.0, "average": 1.0}], [{"k": "a", "total": 0.0, "average": {"$num": "NaN"}}]),
        _1=([{"k": "b", "total": 5.0, "average": 5.0}], [{"k": "b", "total": 0.0, "average": {"$num": "NaN"}}]),
        _2=([{"k": "a", "total": 3.0, "average": 3.0}], [{"k": "a", "total": 1.0, "average": 1.0}]),
    )
    assert difference(vector, ask) is None


def test_rates_by_time_and_by_stamp() -> None:
    vector = line("select rate(0.01) as r from T", ("a", 1), 4, ("a", 1), 10, ("a", 1))
    vector["expected"] = [
        {"after_step": at, "statement": "s", "new": [{"r": r}], "old": None}
        for at, r in ((0, None), (2, None), (4, 200.0))
    ]
    assert difference(vector, ask) is None
    vector = line("select rate(v) as r from T#length(2)", ("a", 0), ("a", 100), ("a", 400))
    vector["expected"] = [
        {"after_step": at, "statement": "s", "new": [{"r": r}], "old": None}
        for at, r in ((0, None), (1, None), (2, 5.0))
    ]
    assert difference(vector, ask) is None


def test_windows_by_a_condition() -> None:
    vector = line(
        "select irstream v from T#expr(sum(v) < 6)",
        ("a", 1),
        ("a", 5),
        ("a", 9),
        _0=([{"v": 1}], None),
        _1=([{"v": 5}], [{"v": 1}]),
        _2=([{"v": 9}], [{"v": 5}, {"v": 9}]),
    )
    assert difference(vector, ask) is None


def test_a_timer_that_is_late_goes_on_from_where_the_clock_stands() -> None:
    # Due at 10, the clock jumps to 15: the next batch is over at 25, not at 20.
    vector = line(
        "select irstream v from T#time_length_batch(10 msec, 3)",
        ("a", 1),
        15,
        ("a", 2),
        24,
        25,
        45,
        _1=([{"v": 1}], None),
        _4=([{"v": 2}], [{"v": 1}]),
        _5=(None, [{"v": 2}]),
    )
    assert difference(vector, ask) is None


def test_a_timer_that_is_forced_posts_nothing_too() -> None:
    forced = line(
        "select irstream v from T#time_length_batch(10 msec, 3, 'force_update')",
        5,
        ("a", 1),
        15,
        25,
        37,
        ("a", 2),
        47,
        _2=([{"v": 1}], None),
        _3=(None, [{"v": 1}]),
        _4=(None, None),
        _6=([{"v": 2}], None),
    )
    assert difference(forced, ask) is None
    text = "select v from T#time_length_batch(10 msec, 3, 'START_EAGER')"
    eager = line(text, 10, 20, _0=(None, None), _1=(None, None))
    assert difference(eager, ask) is None


def test_batches_of_months() -> None:
    # From 1970-01-01T00:00:00.005: the next two months begin 31 and 31 + 28 days later.
    february, march = (days * 86_400_000 + 5 for days in (31, 59))
    vector = line(
        "select irstream v from T#WINDOW",
        5,
        ("a", 1),
        february - 1,
        february,
        ("a", 2),
        march - 1,
        march,
        _3=([{"v": 1}], None),
        _6=([{"v": 2}], [{"v": 1}]),
    )
    for window in ("time_batch(1 month)", "time_length_batch(1 month, 9)"):
        assert difference({**vector, "epl": vector["epl"].replace("WINDOW", window)}, ask) is None
    silent = line(
        "select irstream v from T#time_accum(1 month)",
        5,
        ("a", 1),
        february - 1,
        ("a", 2),
        2 * february,
        _1=([{"v": 1}], None),
        _3=([{"v": 2}], None),
        _4=(None, [{"v": 1}, {"v": 2}]),
    )
    assert difference(silent, ask) is None


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("unique(k)#time_batch(10 msec)", {"_3": ([{"v": 2}, {"v": 3}], None), "_4": (None, [{"v": 2}, {"v": 3}])}),
        (
            "time_length_batch(10 msec, 2)#unique(k)",
            {"_2": ([{"v": 2}, {"v": 3}], None), "_3": (None, [{"v": 2}, {"v": 3}])},
        ),
        (
            "length_batch(2)#lastevent retain-union",
            {"_0": ([{"v": 1}], None), "_1": ([{"v": 2}], None), "_2": ([{"v": 3}], None)},
        ),
    ],
)
def test_windows_that_make_batches_beside_others(window: str, expected: dict[str, Any]) -> None:
    vector = line(f"select irstream v from T#{window}", ("a", 1), ("a", 2), ("b", 3), 10, 20, **expected)
    assert difference(vector, ask) is None


def test_what_comes_and_goes_and_what_is_inserted() -> None:
    vector = line("select v from T", ("a", 1), ("a", 2), ("a", 3), ("a", 4))
    later = "@name('t') insert rstream into U (w) select irstream v from T#length(1); @name('u') select w from U"
    vector["script"].insert(1, {"deploy": later})
    vector["script"].insert(4, {"undeploy": ["t"]})
    vector["listen"] = ["s", "t", "u"]
    counts = [1, 3, 3, 3, 2, 2]
    vector["expected"] = [
        {"after_step": 0, "statement": "s", "new": [{"v": 1}], "old": None},
        {"after_step": 2, "statement": "s", "new": [{"v": 2}], "old": None},
        {"after_step": 2, "statement": "t", "new": [{"v": 2}], "old": None},
        {"after_step": 3, "statement": "s", "new": [{"v": 3}], "old": None},
        {"after_step": 3, "statement": "t", "new": [{"v": 3}], "old": [{"v": 2}]},
        {"after_step": 3, "statement": "u", "new": [{"w": 2}], "old": None},
        {"after_step": 5, "statement": "s", "new": [{"v": 4}], "old": None},
        *({"after_step": step, "active_filters": count} for step, count in enumerate(counts)),
    ]
    assert difference(vector, ask) is None
    vector["expected"][-1]["active_filters"] = 3
    assert "filters: 2" in str(difference(vector, ask))


def test_the_last_event_is_kept_where_a_statement_says_so() -> None:
    vector = line("@IterableUnbound select v from T", ("a", 1), ("a", 2), _0=([{"v": 1}], None), _1=([{"v": 2}], None))
    vector["expected"].append({"after_step": 1, "statement": "s", "iterator": [{"v": 2}]})
    assert difference(vector, ask) is None


def test_aggregates_of_aggregates() -> None:
    # What is added is the count as an event comes, 1, 2, 3; what is taken off is the count when one has gone.
    vector = line(
        "select avg(count(*)) as a, sum(count(*)) as s from T#length(2)",
        ("a", 1),
        ("a", 2),
        ("a", 3),
        _0=([{"a": 1.0, "s": 1}], None),
        _1=([{"a": 1.5, "s": 3}], None),
        _2=([{"a": 2.0, "s": 4}], None),
    )
    assert difference(vector, ask) is None


def test_conditions_on_a_window_may_aggregate() -> None:
    vector = line(
        "select rstream v from T#expr(avg(v) < 4 and count(v) < 3)",
        ("a", 1),
        ("a", 3),
        ("a", 2),
        ("a", 9),
        _2=([{"v": 1}], None),
        _3=([{"v": 3}, {"v": 2}, {"v": 9}], None),
    )
    assert difference(vector, ask) is None
    properties = line("select v from T#expr_batch(v > 2)", ("a", 1), ("a", 3), _1=([{"v": 1}, {"v": 3}], None))
    assert difference(properties, ask) is None


@pytest.mark.parametrize(
    ("epl", "word"),
    [
        ("select * from T#expr(median(v) < 6)", "a window's median"),
        ("select * from T#sort(2, v)#expr(v < 2)", "intersection of expr and sort"),
        ("select * from T#unique(k)#time_length_batch(1, 2, 'FORCE_UPDATE')", "flags"),
        ("select * from T#session(1)", "view #session"),
        ("select * from T#unheard(1)", "view #unheard"),
        ("select guess(v) as g from T", "function guess"),
        ("select max(count(*)) as g from T", "aggregates of aggregates"),
        ("select w from T", "property 'w'"),
        ("select * from T#expr(expired_count < 2)", "window's expired_count"),
    ],
)
def test_what_has_no_translation(epl: str, word: str) -> None:
    with pytest.raises(UnsupportedError, match=word):
        difference(line(epl, ("a", 1)), ask)
