"""Short scripts that say what Esper delivers: batches, jumps of the clock, windows side by side, where and having."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_recorded import difference


def wrong(script: Mapping[str, Any]) -> str | None:
    """What is wrong with what a runtime makes of a script, event by event and by batches."""
    return difference(script, RuntimeEngine) or difference(script, RuntimeEngine, together=True)


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
    assert wrong(vector) is None
    vector["expected"][1]["old"] = [{"s": 2}]
    assert "step 1, s: [([{'s': 5}], [{'s': 1}])], not [([{'s': 5}], [{'s': 2}])]" in str(wrong(vector))
    assert "step 1, s: [([{'s': 5}], [{'s': 1}])], not []" in str(wrong(vector | {"expected": vector["expected"][:1]}))


def test_whole_numbers_are_no_floats() -> None:
    assert wrong(line("select avg(v) as s from T", ("a", 1), _0=([{"s": 1.0}], None))) is None
    assert wrong(line("select avg(v) as s from T", ("a", 1), _0=([{"s": 1}], None))) is not None


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
    assert wrong(vector) is None


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
    assert wrong(vector) is None


def test_events_that_leave_as_they_come_are_new_and_old() -> None:
    vector = line(
        "select irstream k, count(*) as n from T#sort(1, v)",
        ("a", 1),
        ("b", 2),
        _0=([{"k": "a", "n": 1}], None),
        _1=([{"k": "b", "n": 1}], [{"k": "b", "n": 1}]),
    )
    assert wrong(vector) is None


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
    assert wrong(vector) is None


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
    assert wrong(vector) is None


def test_what_is_in_any_and_in_all_of_several_windows() -> None:
    sent = [("a", 1), 3, ("a", 2), 10, 13]
    union = {"_0": ([{"v": 1}], None), "_2": ([{"v": 2}], None), "_3": (None, [{"v": 1}])}
    assert wrong(line("select irstream v from T#unique(k)#time(10 msec) retain-union", *sent, **union)) is None
    both = {"_0": ([{"v": 1}], None), "_2": ([{"v": 2}], [{"v": 1}]), "_4": (None, [{"v": 2}])}
    assert wrong(line("select irstream v from T#unique(k)#time(10 msec)", *sent, **both)) is None
    last = {"_0": ([{"v": 1}], None), "_2": ([{"v": 2}], [{"v": 1}])}
    assert wrong(line("select irstream v from T#unique(k)#length(2)", *sent, **last)) is None
    first = {"_0": ([{"v": 1}], None)}
    assert wrong(line("select irstream v from T#firstunique(k)#firstlength(2)", *sent, **first)) is None


def test_an_average_of_a_count_is_over_what_the_count_has_been() -> None:
    """Of a: 1, 2, then 1 as the first row leaves, which is taken off: (1 + 2 - 1) / 1. Empty, it begins anew."""
    vector = line(
        "select k, count(*) as n, avg(count(*)) as m from T#length(2) group by k order by k",
        ("a", 1),
        ("a", 2),
        ("b", 3),
        ("b", 4),
        ("a", 5),
        _0=([{"k": "a", "n": 1, "m": 1.0}], None),
        _1=([{"k": "a", "n": 2, "m": 1.5}], None),
        _2=([{"k": "a", "n": 1, "m": 2.0}, {"k": "b", "n": 1, "m": 1.0}], None),
        _3=([{"k": "a", "n": 0, "m": None}, {"k": "b", "n": 2, "m": 1.5}], None),
        _4=([{"k": "a", "n": 1, "m": 1.0}, {"k": "b", "n": 1, "m": 2.0}], None),
    )
    assert wrong(vector) is None


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
    assert wrong(vector) is None


def test_rates_by_time_and_by_stamp() -> None:
    vector = line("select rate(0.01) as r from T", ("a", 1), 4, ("a", 1), 10, ("a", 1))
    vector["expected"] = [
        {"after_step": at, "statement": "s", "new": [{"r": r}], "old": None}
        for at, r in ((0, None), (2, None), (4, 200.0))
    ]
    assert wrong(vector) is None
    vector = line("select rate(v) as r from T#length(2)", ("a", 0), ("a", 100), ("a", 400))
    vector["expected"] = [
        {"after_step": at, "statement": "s", "new": [{"r": r}], "old": None}
        for at, r in ((0, None), (1, None), (2, 5.0))
    ]
    assert wrong(vector) is None


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
    assert wrong(vector) is None


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
    assert wrong(vector) is None


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
    assert wrong(forced) is None
    text = "select v from T#time_length_batch(10 msec, 3, 'START_EAGER')"
    eager = line(text, 10, 20, _0=(None, None), _1=(None, None))
    assert wrong(eager) is None


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
        assert wrong({**vector, "epl": vector["epl"].replace("WINDOW", window)}) is None
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
    assert wrong(silent) is None


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
    assert wrong(vector) is None


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
        {"after_step": 2, "statement": "t", "new": [{"w": 2}], "old": None},
        {"after_step": 3, "statement": "s", "new": [{"v": 3}], "old": None},
        {"after_step": 3, "statement": "t", "new": [{"w": 3}], "old": [{"w": 2}]},
        {"after_step": 3, "statement": "u", "new": [{"w": 2}], "old": None},
        {"after_step": 5, "statement": "s", "new": [{"v": 4}], "old": None},
        *({"after_step": step, "active_filters": count} for step, count in enumerate(counts)),
    ]
    assert wrong(vector) is None
    vector["expected"][-1]["active_filters"] = 3
    assert "2 active filters, not 3" in str(wrong(vector))


def test_the_last_event_is_kept_where_a_statement_says_so() -> None:
    vector = line("@IterableUnbound select v from T", ("a", 1), ("a", 2), _0=([{"v": 1}], None), _1=([{"v": 2}], None))
    vector["expected"].append({"after_step": 1, "statement": "s", "iterator": [{"v": 2}]})
    assert wrong(vector) is None


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
    assert wrong(vector) is None
    properties = line("select v from T#expr_batch(v > 2)", ("a", 1), ("a", 3), _1=([{"v": 1}, {"v": 3}], None))
    assert wrong(properties) is None


def test_an_output_of_which_a_limit_leaves_nothing_is_empty() -> None:
    #   events   a,1 a,2 |    a,3 |     the second output has one row, and the offset leaves it out
    #   outputs       1000      2000
    text = "select v from T output every 1 sec limit 2 offset 1"
    vector = line(text, ("a", 1), ("a", 2), 1000, ("a", 3), 2000, _2=([{"v": 2}], None), _4=(None, None))
    assert wrong(vector) is None
    # So many events are an output only if they leave rows.
    assert wrong(line("select v from T output every 1 events limit 1 offset 1", ("a", 1))) is None


@pytest.mark.parametrize("selected", ["v", "v, sum(v) as s", "v, count(*) as s"])
def test_a_snapshot_of_events_without_a_window_is_empty(selected: str) -> None:
    vector = line(f"select {selected} from T output snapshot every 1 sec", ("a", 1), 1000, 2000)
    vector["expected"] = [{"after_step": step, "statement": "s", "new": None, "old": None} for step in (1, 2)]
    assert wrong(vector) is None


def test_a_snapshot_without_a_window_has_the_values_of_all_that_came() -> None:
    snapshot = "output snapshot every 1 sec"
    assert wrong(line(f"select sum(v) as s from T {snapshot}", ("a", 1), 1000, _1=([{"s": 1}], None))) is None
    of_groups = line(f"select k, sum(v) as s from T group by k {snapshot}", ("a", 1), ("a", 2), 1000)
    of_groups["expected"] = [{"after_step": 2, "statement": "s", "new": [{"k": "a", "s": 3}], "old": None}]
    assert wrong(of_groups) is None


def test_the_last_row_that_left_an_instance_is_the_one_that_left_last() -> None:
    #   v=0 |-----------------|     until its stamp, 900
    #   v=1    |-----|              until its stamp, 300: it has left first
    context = "create context C start T(k = 'start') end T(k = 'end'); @name('s') context C"
    window, output = "T(k = 'a')#timetolive(v)", "output last every 2 events"
    vector = line("", ("start", 0), ("a", 900), ("a", 300), 900, _2=([{"v": 300}], None), _3=(None, [{"v": 900}]))
    vector["epl"] = f"{context} select irstream v from {window} {output}"
    vector["schema"]["T"]["v"] = "long"
    assert wrong(vector) is None
