"""Statements in contexts: when instances start and end, and what is within them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_on_runtime import rows_of

_TYPES = {
    "Login": {"user": "string", "n": "int"},
    "Logout": {"user": "string"},
    "Click": {"user": "string", "v": "int"},
}
_SESSIONS = "create context Session initiated by Login as l terminated by Logout(user = l.user);"


def _runtime(text: str, device: str = "cpu") -> epl.Runtime:
    runtime = epl.Runtime(_TYPES, start=0, device=device)
    runtime.deploy(text)
    return runtime


def _new(deliveries: Any) -> list[Any]:
    """The new rows of each delivery."""
    return [rows_of(each.new) for each in deliveries]


def _click(runtime: epl.Runtime, user: str, v: int) -> list[Any]:
    return _new(runtime.send("Click", {"user": user, "v": v}))


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_key_has_an_instance(device: str) -> None:
    """a: 1 . 3      b: . 2 .      each user has a sum of its own; instances are numbered as they start."""
    runtime = _runtime(
        """
        create context ByUser partition by user from Click;
        context ByUser select context.id as id, context.key1 as user, sum(v) as s from Click;
        """,
        device,
    )
    assert _click(runtime, "a", 1) == [[{"id": 0, "user": "a", "s": 1}]]
    assert _click(runtime, "b", 2) == [[{"id": 1, "user": "b", "s": 2}]]
    assert _click(runtime, "a", 3) == [[{"id": 0, "user": "a", "s": 4}]]
    assert rows_of(runtime.rows("statement 1")) == [{"id": 0, "user": "a", "s": 4}, {"id": 1, "user": "b", "s": 2}]


def test_keys_are_joined_by_commas_or_by_and() -> None:
    runtime = _runtime(
        """
        create context ByUser partition by user and v from Click;
        context ByUser select context.key1 as user, context.key2 as v, count(*) as n from Click;
        """
    )
    assert _click(runtime, "a", 1) == [[{"user": "a", "v": 1, "n": 1}]]
    assert _click(runtime, "a", 2) == [[{"user": "a", "v": 2, "n": 1}]]
    assert _click(runtime, "a", 1) == [[{"user": "a", "v": 1, "n": 2}]]


@pytest.mark.parametrize("end", ["after 10 sec", "pattern [every timer:interval(10 sec)]"], ids=["span", "pattern"])
def test_one_behind_the_other(end: str) -> None:
    """An instance starts at once, and the next one where it ends.

    seconds   0          10          20          30          40
    clicks       1    2     3              4           5
    instance     0    0     1              2           3     1 begins at 13 s, 2 at 25 s, as the clock jumps there
    """
    runtime = _runtime(
        f"""
        create context Spans start @now end {end};
        context Spans select context.id as id, sum(v) as s from Click;
        """
    )
    runtime.advance(3_000)
    found = []
    for number, now in enumerate([3_000, 8_000, 13_000, 25_000, 35_000]):
        runtime.advance(now)
        found += _click(runtime, "a", number + 1)
    assert found == [[{"id": id_, "s": s}] for id_, s in [(0, 1), (0, 3), (1, 3), (2, 4), (3, 5)]]


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_sessions_from_login_to_logout(device: str) -> None:
    """Login a, click, login a again, click (two sessions see it), logout a (both end), click (none sees it)."""
    runtime = _runtime(
        _SESSIONS
        + """
        @name('each') context Session select context.id as id, sum(v) as s from Click(user = context.l.user);
        @name('end') context Session select context.l.n as n, count(*) as c, sum(v) as s
        from Click(user = context.l.user) output snapshot when terminated;
        """,
        device,
    )
    runtime.send("Login", {"user": "a", "n": 7})
    assert _click(runtime, "a", 1) == [[{"id": 0, "s": 1}]]
    assert _click(runtime, "b", 9) == []
    runtime.send("Login", {"user": "a", "n": 8})
    assert _click(runtime, "a", 2) == [[{"id": 0, "s": 3}, {"id": 1, "s": 2}]]
    runtime.send("Login", {"user": "c", "n": 9})
    assert rows_of(runtime.rows("each")) == [{"id": 0, "s": 3}, {"id": 1, "s": 2}, {"id": 2, "s": None}]
    ended = _new(runtime.send("Logout", {"user": "a"}))
    assert ended == [[{"n": 7, "c": 2, "s": 3}, {"n": 8, "c": 1, "s": 2}]]
    assert _click(runtime, "a", 5) == []
    assert _new(runtime.send("Logout", {"user": "c"})) == [[{"n": 9, "c": 0, "s": None}]]


def test_one_at_a_time_by_the_clock() -> None:
    """From the first login on for 2 s; what comes at its end is not in it, and a login meanwhile starts nothing."""
    runtime = _runtime(
        """
        create context C start Login as l end after 2 sec;
        context C select context.startTime as t, context.endTime as u, v from Click;
        """
    )
    runtime.advance(500)
    runtime.send("Login", {"user": "a", "n": 0})
    assert _click(runtime, "x", 1) == [[{"t": 500, "u": 2500, "v": 1}]]
    runtime.advance(2_499)
    runtime.send("Login", {"user": "a", "n": 0})
    assert _click(runtime, "x", 2) == [[{"t": 500, "u": 2500, "v": 2}]]
    runtime.advance(2_500)
    assert _click(runtime, "x", 3) == []


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("select irstream v from Click#time(9 sec)", [(None, [{"v": 1}, {"v": 2}])]),
        ("select irstream sum(v) as s from Click#time(9 sec)", [([{"s": None}], [{"s": 3}])]),
        ("select v from Click#time(9 sec) output snapshot when terminated", [(None, None)]),
        ("select sum(v) as s from Click#time(9 sec) output snapshot when terminated", [([{"s": None}], None)]),
        ("select rstream v from Click#time(9 sec) output all when terminated", [([{"v": 1}, {"v": 2}], None)]),
        (
            "select sum(v) as s from Click#time(9 sec) output when terminated",
            [([{"s": 1}, {"s": 3}, {"s": None}], None)],
        ),
        ("select sum(v) as s from Click(v > 2) output all when terminated", [([{"s": None}], None)]),
        ("select sum(v) as s from Click output every 3 events and when terminated", [([{"s": 1}, {"s": 3}], None)]),
        ("select sum(v) as s from Click output every 2 events and when terminated", [([{"s": 3}], None)]),
        ("select rstream v from Click#time(10 sec)", []),
        ("select sum(v) as s from Click#time(10 sec) output snapshot when terminated", [([{"s": 3}], None)]),
    ],
)
def test_one_move_of_the_clock_does_what_fell_due_first(device: str, statement: str, wanted: list[Any]) -> None:
    """A window takes out all that is due by the clock when its first row falls due: at 9 s, or behind the end.

    0 s       3 s            9 s        10 s   12 s       20 s: the clock jumps here from 8 s
    login     click v=2      v=1 due    end    v=2 due
    click v=1
    """
    runtime = _runtime(
        f"create context C initiated by Login as l terminated after 10 sec; context C {statement}", device
    )
    runtime.send("Login", {"user": "a", "n": 0})
    runtime.send("Click", {"user": "a", "v": 1})
    runtime.advance(3_000)
    runtime.send("Click", {"user": "a", "v": 2})
    runtime.advance(8_000)
    assert [(rows_of(each.new), rows_of(each.old)) for each in runtime.advance(20_000)] == wanted
    assert not runtime.advance(30_000)


def test_windows_of_each_instance() -> None:
    """The last two of each user; a session's last clicks are gone with it, and nothing says so."""
    runtime = _runtime(
        _SESSIONS
        + """
        context Session select irstream v, prior(1, v) as p
        from Click(user = context.l.user)#time(10 sec)#length(1);
        """
    )
    runtime.send("Login", [{"user": "a", "n": 0}, {"user": "b", "n": 0}])
    assert _click(runtime, "a", 1) == [[{"v": 1, "p": None}]]
    assert _click(runtime, "b", 2) == [[{"v": 2, "p": None}]]
    (delivery,) = runtime.send("Click", {"user": "a", "v": 3})
    assert (rows_of(delivery.new), rows_of(delivery.old)) == ([{"v": 3, "p": 1}], [{"v": 1, "p": None}])
    assert not runtime.send("Logout", {"user": "a"})
    (delivery,) = runtime.advance(10_000)
    assert (rows_of(delivery.new), rows_of(delivery.old)) == (None, [{"v": 2, "p": None}])


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_a_window_is_as_large_as_the_context_says(device: str) -> None:
    """User a has windows of one click and of one second, b of two."""
    runtime = _runtime(
        _SESSIONS
        + """
        @name('length') context Session select irstream v from Click(user = context.l.user)#length(context.l.n);
        @name('batch') context Session select v from Click(user = context.l.user)#length_batch(context.l.n);
        @name('time') context Session select rstream v from Click(user = context.l.user)#time(context.l.n sec);
        """,
        device,
    )
    runtime.send("Login", [{"user": "a", "n": 1}, {"user": "b", "n": 2}])
    given = [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("b", 5)]
    made = [each for user, v in given for each in runtime.send("Click", {"user": user, "v": v})]
    made += [*runtime.advance(1_000), *runtime.advance(2_000)]
    shown = {name: [each for each in made if each.statement == name] for name in ("length", "batch", "time")}
    assert [rows_of(each.old) for each in shown["length"]] == [None, [{"v": 1}], None, None, [{"v": 3}]]
    assert _new(shown["batch"]) == [[{"v": 1}], [{"v": 2}], [{"v": 3}, {"v": 4}]]
    assert _new(shown["time"]) == [[{"v": 1}, {"v": 2}], [{"v": 3}, {"v": 4}, {"v": 5}]]


def test_the_content_is_the_last_event_of_each_instance() -> None:
    """Without a window, a statement that says so shows its last row, with what the aggregates are by then."""
    runtime = _runtime(
        _SESSIONS + "@name('s') @IterableUnbound context Session select context.l.n as n, v, sum(v) as s from Click"
    )
    runtime.send("Login", {"user": "a", "n": 1})
    assert rows_of(runtime.rows("s")) == []
    _click(runtime, "x", 3)
    runtime.send("Login", {"user": "b", "n": 2})
    assert rows_of(runtime.rows("s")) == [{"n": 1, "v": 3, "s": 3}]
    _click(runtime, "x", 4)
    assert rows_of(runtime.rows("s")) == [{"n": 1, "v": 4, "s": 7}, {"n": 2, "v": 4, "s": 4}]


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_rows_of_an_instance_are_output_together(device: str) -> None:
    """Two at a time of each session, and what is left where it ends, if there is any.

    a: login 1 2 3 logout       b: login 2 3 logout      clicks are of all sessions
    """
    runtime = _runtime(
        _SESSIONS
        + "context Session select context.l.n as n, v from Click "
        + "output when count_insert > 1 and when terminated and count_insert > 0",
        device,
    )
    runtime.send("Login", {"user": "a", "n": 1})
    assert _click(runtime, "x", 1) == []
    runtime.send("Login", {"user": "b", "n": 2})
    made = runtime.send("Click", [{"user": "x", "v": v} for v in (2, 3)])
    assert _new(made) == [[{"n": 1, "v": 1}, {"n": 1, "v": 2}], [{"n": 2, "v": 2}, {"n": 2, "v": 3}]]
    assert _new(runtime.send("Logout", {"user": "a"})) == [[{"n": 1, "v": 3}]]
    assert not runtime.send("Logout", {"user": "b"})


def test_a_crontab_in_a_time_zone() -> None:
    """Nine o'clock in New York is one o'clock in the afternoon in UTC, in summer; 1970-07-01 is 181 days later."""
    runtime = _runtime(
        "create context C start (0, 9, *, *, *, *, 'America/New_York') end after 1 hour; "
        "context C select context.startTime as t, v from Click;"
    )
    runtime.advance(181 * 86_400_000)
    runtime.advance(181 * 86_400_000 + 13 * 3_600_000 - 1)
    assert _click(runtime, "x", 1) == []
    runtime.advance(181 * 86_400_000 + 13 * 3_600_000)
    assert _click(runtime, "x", 2) == [[{"t": 181 * 86_400_000 + 13 * 3_600_000, "v": 2}]]


def test_each_instance_has_its_own_limit() -> None:
    runtime = _runtime(_SESSIONS + "context Session select context.l.n as n, v from Click#length_batch(2) limit 1")
    runtime.send("Login", [{"user": "a", "n": 1}, {"user": "b", "n": 2}])
    made = runtime.send("Click", [{"user": "a", "v": v} for v in (5, 6)])
    assert _new(made) == [[{"n": 1, "v": 5}, {"n": 2, "v": 5}]]


def test_categories_and_nested_contexts() -> None:
    """A click may be of several categories; within each, users have instances of their own."""
    runtime = _runtime(
        """
        create context C
        context Size group v < 10 as small, group v > 5 as large from Click,
        context User partition by user from Click;
        context C select context.Size.label as size, context.User.key1 as user, count(*) as c from Click;
        """
    )
    assert _click(runtime, "a", 7) == [[{"size": "small", "user": "a", "c": 1}, {"size": "large", "user": "a", "c": 1}]]
    assert _click(runtime, "b", 70) == [[{"size": "large", "user": "b", "c": 1}]]
    assert _click(runtime, "a", 70) == [[{"size": "large", "user": "a", "c": 2}]]


def test_a_hash_shares_events_out() -> None:
    """Java's hash codes of a, b and c are 97, 98 and 99: a and c are in one of two buckets, which has one sum."""
    text = """
        create context C coalesce by hash_code(user) from Click granularity 2%s;
        @name('s') context C select context.id as id, sum(v) as s from Click;
    """
    lazy, early = _runtime(text % ""), _runtime(text % " preallocate")
    rows = [("b", 1), ("a", 2), ("c", 4)]
    wanted = [[[{"id": 0, "s": 1}]], [[{"id": 1, "s": 2}]], [[{"id": 1, "s": 6}]]]
    assert [_click(lazy, *row) for row in rows] == wanted
    assert rows_of(early.rows("s")) == [{"id": 0, "s": None}, {"id": 1, "s": None}]
    assert [_click(early, *row) for row in rows] == wanted


def test_a_later_statement_joins_the_instances_that_are_there() -> None:
    """It sees the sessions that began before it; when the last statement has gone, the context begins anew."""
    runtime = _runtime(_SESSIONS + "@name('one') context Session select context.id as id, v from Click;")
    runtime.send("Login", [{"user": "a", "n": 0}, {"user": "b", "n": 0}])
    runtime.send("Logout", {"user": "a"})
    runtime.deploy("@name('two') context Session select context.id as id, count(*) as c from Click;")
    assert _click(runtime, "x", 3) == [[{"id": 1, "v": 3}], [{"id": 1, "c": 1}]]
    runtime.undeploy("one")
    runtime.undeploy("two")
    runtime.deploy("context Session select context.id as id, v from Click;")
    assert _click(runtime, "x", 3) == []
    runtime.send("Login", {"user": "c", "n": 0})
    assert _click(runtime, "x", 4) == [[{"id": 0, "v": 4}]]


def test_instances_go_on_behind_a_checkpoint(tmp_path: Path) -> None:
    """A runtime that is restored on another device knows the sessions, and numbers the next one behind them."""
    runtime = _runtime(_SESSIONS + "context Session select context.id as id, sum(v) as s from Click#length(2);")
    runtime.send("Login", {"user": "a", "n": 0})
    _click(runtime, "x", 1)
    runtime.checkpoint(tmp_path / "kept")
    again = epl.Runtime.restore(tmp_path / "kept", device="array")
    for each in (runtime, again):
        each.send("Login", {"user": "b", "n": 0})
        assert _click(each, "x", 2) == [[{"id": 0, "s": 3}, {"id": 1, "s": 2}]]
        each.send("Logout", {"user": "a"})
        assert _click(each, "x", 3) == [[{"id": 1, "s": 5}]]


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_patterns_start_and_end_instances(device: str) -> None:
    """From a logout behind a login of the user on; the logout itself is within only if the text says so."""
    context = (
        "create context C initiated by pattern [every a=Login -> b=Logout(user = a.user)]%s "
        "terminated by pattern [Login(user = b.user, n = 0)];"
    )
    statement = "context C select context.a.n as n, context.b.user as who, user from Logout;"
    plain, inclusive = (_runtime(context % word + statement, device) for word in ("", "@Inclusive"))
    for each in (plain, inclusive):
        each.send("Login", {"user": "a", "n": 7})
    row = {"n": 7, "who": "a", "user": "a"}
    assert _new(plain.send("Logout", {"user": "a"})) == []
    assert _new(inclusive.send("Logout", {"user": "a"})) == [[row]]
    for each in (plain, inclusive):
        assert _new(each.send("Logout", {"user": "b"})) == [[{**row, "user": "b"}]]
        each.send("Login", {"user": "a", "n": 0})
        assert _new(each.send("Logout", {"user": "b"})) == []


def test_over_data_at_rest() -> None:
    """The same over tables: 2 s from each login."""
    clicks = pa.table({"seq": [1, 3, 5], "at": [0, 1_500, 9_000], "user": ["a", "b", "c"], "v": [1, 2, 4]})
    logins = pa.table({"seq": [2], "at": [1_000], "user": ["a"]})
    text = """
        create context C initiated by Login as l terminated after 2 sec;
        context C select context.l.user as user, sum(v) as s from Click output last when terminated;
    """
    answer = epl.query(text, Click=clicks, Login=logins, order="seq", time="at").collect()
    assert answer.select(["turn", "user", "s"]).to_pylist() == [{"turn": 6, "user": "a", "s": 2}]


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        (
            "create context C start @now end Logout; context C select v from Click",
            "contexts that start @now and end by events",
        ),
        (
            "create context C context K partition by user from Click, context D start pattern [a=Login -> b=Logout]",
            "patterns that start one instance at a time, or one within another",
        ),
        (
            "create context C partition by user from Login terminated by pattern [Logout -> Logout]",
            "ends of instances by patterns of several events",
        ),
        ("create context C coalesce by mod(user) from Click granularity 4", "the hash function mod"),
        (
            _SESSIONS + "context Session select v from Click#time_batch(context.l.n sec)",
            "a property of a context",
        ),
        (
            _SESSIONS + "context Session create variable int x; context Session select x from Click output every 2 sec",
            "variables of contexts in aggregates, groups, joins, sub-queries, windows and rates",
        ),
    ],
)
def test_what_there_is_not_is_refused_by_name(text: str, construct: str) -> None:
    with pytest.raises(TextError) as caught:
        _runtime(text)
    assert caught.value.construct == construct


def test_a_context_has_filters_of_its_own() -> None:
    """While no instance is there, what starts one; else what ends it. Keys have theirs at all times."""
    runtime = epl.Runtime({name: {"k": "long"} for name in ("L", "M", "W")})
    runtime.deploy("create context S start L as l end M(k = l.k)")
    assert runtime.active_filters() == 0
    runtime.deploy("@name('in S') context S select count(*) from W")
    counts = [runtime.active_filters()]
    for name, key in (("L", 1), ("M", 2), ("M", 1)):
        runtime.send(name, {"k": key})
        counts.append(runtime.active_filters())
    #         none  there  there  none
    assert counts == [1, 2, 2, 1]
    runtime.undeploy("in S")
    assert runtime.active_filters() == 0
    runtime.deploy("create context P partition by k from W, k from M; context P select count(*) from W")
    assert runtime.active_filters() == 2
    runtime.send("W", [{"k": 1}, {"k": 2}])
    assert runtime.active_filters() == 2 + 2


def test_an_inner_context_has_filters_in_each_instance_around() -> None:
    runtime = epl.Runtime({name: {"k": "long"} for name in ("L", "M", "W")})
    runtime.deploy(
        """create context N context P partition by k from W, context S start L as l end M;
        context N select count(*) from W"""
    )
    assert runtime.active_filters() == 1
    runtime.send("W", [{"k": 1}, {"k": 2}])
    assert runtime.active_filters() == 1 + 2
    runtime.send("L", {"k": 0})
    assert runtime.active_filters() == 1 + 2 + 2
