"""Named windows: what inserts, the clock and events of other statements do to their rows."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import PlanError, TextError
from tests.support import named_window_reference as reference
from tests.support.examples import examples

_TYPES = {
    "A": {"k": "string", "v": "int", "t": "long"},
    "D": {"k": "string", "m": "int", "t": "long"},
    "U": {"k": "string", "x": "int", "t": "long"},
}
_COLUMNS = {"A": ("k", "v"), "D": ("k", "m"), "U": ("k", "x")}


@st.composite
def _scripts(draw: st.DrawFn, *, batches: bool = False) -> Any:
    view = draw(st.sampled_from(reference.BATCHES if batches else reference.VIEWS))
    changes = draw(st.lists(st.sampled_from(sorted(reference.CHANGES)), max_size=3, unique=True))
    count, now, events = draw(st.integers(1, 14)), 0, []
    for _ in range(count):
        kind = draw(st.sampled_from("AAADU"))
        now += draw(st.integers(1, 3))
        values = draw(st.sampled_from("ab")), draw(st.integers(0, 9))
        events.append((kind, now, dict(zip(_COLUMNS[kind], values, strict=True))))
    cuts = draw(st.lists(st.integers(0, count), max_size=3))
    return view, changes, events, sorted({0, *cuts, count}), draw(st.booleans())


def _text(view: str, changes: list[str]) -> str:
    parts = [f"@name('w') create window W#{view} as (k string, v int)", "insert into W select k, v from A"]
    parts += [f"@name('{name}') {reference.CHANGES[name][1]}" for name in changes]
    # What an event asks comes behind what it changes.
    return ";".join([*parts, "@name('q') on U as u select u.x as x, w.k as k, w.v as v from W as w"])


def _key(row: dict[str, Any]) -> Any:
    return sorted(row.items())


def _sorted(delivered: Any) -> Any:
    return [tuple(sorted(rows, key=_key) for rows in each) for each in delivered]


def _found(runtime: epl.Runtime, name: str) -> list[Any]:
    """What a statement delivered in each turn."""
    rows = runtime[name].deliveries().to_pylist()
    made = []
    for _, turn in groupby(rows, key=lambda row: row["turn"]):
        some = list(turn)
        made.append(
            tuple(
                [{x: y for x, y in row.items() if x not in {"turn", "row"}} for row in some if row["row"] == kind]
                for kind in ("new", "old")
            )
        )
    return made


def _check(script: Any, device: str, path: Path) -> None:
    view, changes, events, cuts, restarts = script
    expected, content = reference.answers(view, changes, events)
    runtime = epl.Runtime(_TYPES, start=0, device=device)
    runtime.deploy(_text(view, changes))
    for each in runtime.statements:
        each.deliveries()
    for low, high in pairwise(cuts):
        sent: dict[str, list[Any]] = {}
        for kind, now, event in events[low:high]:
            sent.setdefault(kind, []).append({**event, "t": now})
        runtime.replay(sent, time="t")
        if restarts:
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path, device=device)
    for name, delivered in expected.items():
        assert _sorted(_found(runtime, name)) == _sorted(delivered), name
    assert sorted(runtime.rows("w").to_pylist(), key=_key) == sorted(content, key=_key)


_ROUNDS = [("A", "a", 0), ("A", "b", 0), ("U", "a", 0), ("U", "a", 0), ("U", "b", 0)]


def test_events_of_all_keys_are_delivered_in_their_order(tmp_path: Path) -> None:
    """Two events of a, then one of b: the first of each are taken together, and delivered in the order of turns."""
    events = [(kind, at + 1, dict(zip(_COLUMNS[kind], (k, v), strict=True))) for at, (kind, k, v) in enumerate(_ROUNDS)]
    _check(("keepall", ["merges", "deletes_below"], events, [0, 5], False), "cpu", tmp_path / "runtime")
    _check(("keepall", ["merges"], events, [0, 5], False), "cpu", tmp_path / "runtime")


@pytest.mark.parametrize("view", reference.VIEWS)
def test_two_statements_change_a_row_at_one_event(view: str, tmp_path: Path) -> None:
    """A(a 3) at 1, U(a 5) at 2: the row that the first statement brings in is new, and old when the second is done."""
    events = [("A", 1, {"k": "a", "v": 3}), ("U", 2, {"k": "a", "x": 5}), ("A", 3, {"k": "a", "v": 4})]
    for cuts in ([0, 3], [0, 1, 2, 3]):
        _check((view, ["deletes", "merges", "updates"], events, cuts, False), "cpu", tmp_path / "runtime")


@examples(dear=True)
@given(_scripts())
def test_any_script_does_what_its_words_say(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """Inserts, deletes, updates, merges and moves of the clock, in any cut, with restarts between."""
    _check(script, "cpu", tmp_path_factory.mktemp("named") / "runtime")


@examples(dear=True)
@given(_scripts(batches=True))
def test_batches_that_wait_are_changed(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """Events find the rows that wait for their batch."""
    _check(script, "cpu", tmp_path_factory.mktemp("named") / "runtime")


@examples(dear=True)
@given(_scripts())
def test_any_script_on_arrays(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """The same where columns are arrays."""
    _check(script, "array", tmp_path_factory.mktemp("named") / "runtime")


# What single statements do


def _runtime(text: str) -> epl.Runtime:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(text)
    return runtime


_FILLED = "@name('w') create window W#keepall as (k string, v int); insert into W select k, v from A;"


def _insert(runtime: epl.Runtime, *rows: tuple[str, int]) -> Any:
    return runtime.send("A", [{"k": k, "v": v, "t": 0} for k, v in rows])


def _all(deliveries: Any) -> list[Any]:
    return [
        (each.statement, *(None if x is None else x.to_pylist() for x in (each.new, each.old))) for each in deliveries
    ]


def test_a_statement_that_comes_later_has_the_rows_that_are_in() -> None:
    """a1 a2 | sum deployed | a4: the sum is 7, and what was there before is not delivered."""
    runtime = _runtime(_FILLED)
    _insert(runtime, ("a", 1), ("a", 2))
    runtime.deploy("@name('sum') select sum(v) as s from W; @name('each') select v from W")
    made = [each for each in _all(_insert(runtime, ("a", 4))) if each[0] in {"sum", "each"}]
    assert made == [("sum", [{"s": 7}], None), ("each", [{"v": 4}], None)]


def test_a_silent_delete_is_not_told_to_listeners_of_the_window() -> None:
    """a1, then it is taken out: whoever counts rows is told, the window's own listeners are not."""
    runtime = _runtime(
        _FILLED
        + """
        @name('d') @hint('silent_delete') on D as d delete from W as w where w.k = d.k;
        @name('n') select count(*) as n from W;
        """
    )
    _insert(runtime, ("a", 1))
    made = _all(runtime.send("D", {"k": "a", "m": 0, "t": 0}))
    assert made == [("d", [{"k": "a", "v": 1}], None), ("n", [{"n": 0}], None)]


def test_an_event_that_asks_sees_what_earlier_statements_did_at_it() -> None:
    """An event that asks before the delete finds the row, one behind it does not."""
    runtime = _runtime(
        _FILLED
        + """
        @name('before') on D as d select w.v as v from W as w;
        on D as d delete from W as w where w.k = d.k;
        @name('behind') on D as d select w.v as v from W as w;
        """
    )
    _insert(runtime, ("a", 1), ("b", 2))
    made = [each for each in _all(runtime.send("D", {"k": "a", "m": 0, "t": 0})) if each[0] in {"before", "behind"}]
    assert made == [("before", [{"v": 1}, {"v": 2}], None), ("behind", [{"v": 2}], None)]


def test_aggregates_of_no_rows_are_asked_for_too() -> None:
    """a1 | D of z: aggregates alone have a row, of nothing; beside properties, or in groups, there is none."""
    runtime = _runtime(
        _FILLED
        + """
        @name('all') on D as d select sum(w.v) as s, count(*) as n, window(w.v) as vs from W as w where w.k = d.k;
        @name('each') on D as d select d.k as k, sum(w.v) as s from W as w where w.k = d.k;
        @name('groups') on D as d select sum(w.v) as s from W as w where w.k = d.k group by w.k;
        @name('some') on D as d select count(*) as n from W as w where w.k = d.k having count(*) > 0;
        """
    )
    _insert(runtime, ("a", 1))
    assert _all(runtime.send("D", {"k": "z", "m": 0, "t": 0})) == [("all", [{"s": None, "n": 0, "vs": None}], None)]
    made = _all(runtime.send("D", [{"k": k, "m": 0, "t": 0} for k in "za"]))
    assert [each for each in made if each[0] == "all"] == [
        ("all", [{"s": None, "n": 0, "vs": None}], None),
        ("all", [{"s": 1, "n": 1, "vs": [1]}], None),
    ]


def test_a_pattern_takes_rows_out() -> None:
    """D, then U: the rows of the D's key go."""
    runtime = _runtime(_FILLED + "@name('p') on pattern [every d=D -> U] as p delete from W as w where w.k = p.d.k")
    _insert(runtime, ("a", 1), ("b", 2))
    runtime.send("D", {"k": "a", "m": 0, "t": 0})
    runtime.send("U", {"k": "z", "x": 0, "t": 0})
    assert runtime.rows("w").to_pylist() == [{"k": "b", "v": 2}]


def test_joins_and_sub_queries_read_it() -> None:
    """An event beside the row of its key, and the sum of all rows, before and after a delete."""
    runtime = _runtime(
        _FILLED
        + """
        on D as d delete from W as w where w.k = d.k;
        @name('join') select U.x as x, w.v as v from U unidirectional, W as w where w.k = U.k;
        @name('sub') select x, (select sum(v) from W) as s, exists (select * from W as w where w.k = U.k) as e from U;
        """
    )
    _insert(runtime, ("a", 1), ("b", 2))
    assert _all(runtime.send("U", {"k": "a", "x": 7, "t": 0})) == [
        ("join", [{"x": 7, "v": 1}], None),
        ("sub", [{"x": 7, "s": 3, "e": True}], None),
    ]
    runtime.send("D", {"k": "a", "m": 0, "t": 0})
    assert _all(runtime.send("U", {"k": "a", "x": 8, "t": 0})) == [("sub", [{"x": 8, "s": 2, "e": False}], None)]


def test_assignments_see_each_other_and_the_row_as_it_was() -> None:
    """The value 5 becomes 6, and k is 'b' as the new v is greater than the one before."""
    text = "on U as u update W as w set v = w.v + u.x, k = case when w.v > initial.v then 'b' else 'c' end"
    runtime = _runtime(_FILLED + text)
    _insert(runtime, ("a", 5))
    runtime.send("U", {"k": "z", "x": 1, "t": 0})
    assert runtime.rows("w").to_pylist() == [{"k": "b", "v": 6}]


def test_a_window_goes_when_nobody_is_about_it() -> None:
    """It is not undeployed while another statement inserts into it."""
    runtime = _runtime(_FILLED)
    with pytest.raises(PlanError, match="'statement 2' is about the named window 'W'"):
        runtime.undeploy("w")
    runtime.undeploy("statement 2")
    runtime.undeploy("w")
    runtime.deploy("create window W#length(2) as (v int)")


def test_unique_indexes_are_there_where_rows_cannot_share_a_key() -> None:
    """The window, or the primary key of the table, sees to it."""
    runtime = _runtime("""
        create window V#unique(k) as A; create table T (k string primary key, v int);
        create unique index I on V(k hash, v btree); create unique index J on T(k)
    """)
    assert [each.plan.creates for each in runtime.statements] == ["V", "T"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("create window A#keepall as (k string)", "There is a type of events 'A' already"),
        ("create window V#keepall as Nothing", "There is no type of events 'Nothing'"),
        ("on D delete from Nothing", "no triggers"),
        ("on D select v from A#keepall", "A is no named window and no table"),
        ("on D as d delete from W as w where w.nothing = d.k", "has no property 'nothing'"),
        ("on D as d update W as w set nothing = 1", "'W' has no column 'nothing'"),
        ("on D as d update W as w set v = 'a'", "W.v is of type int"),
        ("on D as d merge W as w when not matched then update set v = 1", "Where no row matches there is none"),
        ("on D as d merge W as w when not matched then insert select d.m as nothing", "has no column 'nothing'"),
        ("select * from W#length(2)", "windows over named windows"),
        ("on D as d delete from W as w where w.v = (select max(v) from W)", "sub-queries of named windows"),
        ("create index I on W(nothing)", "'W' has no column 'nothing'"),
        ("create unique index I on W(k)", "unique indexes of columns that several rows may share"),
        ("create window V#unique(k) as A; create unique index I on V(v)", "unique indexes of columns"),
        ("on W delete from W", "events of a named window that change it"),
        ("create window V#time_batch(1 sec, 'FORCE_UPDATE') as (v int)", "FORCE_UPDATE"),
    ],
)
def test_what_there_is_not_is_refused(text: str, problem: str) -> None:
    """The error says what is wrong, and nothing is deployed."""
    runtime = _runtime(_FILLED)
    with pytest.raises(TextError, match=problem):
        runtime.deploy(text)
    assert len(runtime.statements) == 2


def test_queries_on_demand() -> None:
    """Select, update, delete and insert, once: listeners are told of what changes, and turns go on."""
    runtime = _runtime(_FILLED + "@name('sum') select sum(v) as s from W; create table T (k string primary key, n int)")
    _insert(runtime, ("a", 1), ("b", 2), ("a", 4))
    runtime["sum"].deliveries()
    assert runtime.query("select k, sum(v) as s from W where v < 9 group by k order by k").to_pylist() == [
        {"k": "a", "s": 5},
        {"k": "b", "s": 2},
    ]
    assert runtime.query("update W set v = v * 10 where k = 'a'").to_pylist() == [
        {"k": "a", "v": 10},
        {"k": "a", "v": 40},
    ]
    assert runtime.query("delete from W where v = 10").to_pylist() == [{"k": "a", "v": 10}]
    assert runtime.query("insert into W(k, v) select 'c', 7").to_pylist() == [{"k": "c", "v": 7}]
    assert runtime.query("insert into T select 'c' as k, 7 as n").to_pylist() == [{"k": "c", "n": 7}]
    assert [row["s"] for row in runtime["sum"].deliveries().to_pylist()] == [52, 42, 49]
    assert runtime.query("select W.v as v, T.n as n from W, T where W.k = T.k").to_pylist() == [{"v": 7, "n": 7}]
    assert [each.name for each in runtime.statements] == ["w", "statement 2", "sum", "statement 4"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("select * from A", r"A is no named window and no table\. \[line 1, column 15\]"),
        ("delete from W where nothing = 1", r"'nothing'.*\[line 1, column 21\]"),
        ("delete from Nothing", "no triggers"),
        ("insert into W values ('a', 1)", "values"),
        ("select * from W output every 1 sec", "outputs"),
    ],
)
def test_queries_on_demand_are_refused_at_their_place(text: str, problem: str) -> None:
    """The place is that in the text of the query."""
    with pytest.raises(TextError, match=problem):
        _runtime(_FILLED).query(text)


@pytest.mark.parametrize("together", [False, True])
def test_events_of_one_named_window_change_another(together: bool) -> None:  # noqa: FBT001
    runtime = epl.Runtime({"B": {"k": "string", "v": "int"}}, start=0)
    runtime.deploy("""
        create window V#keepall as B; insert into V select * from B(v > 0);
        create window W#length(1) as B; insert into W select * from B(v < 0);
        @name('gone') on W as w delete from V where V.k = w.k;
        @name('kept') select k, v from V
    """)
    told: list[Any] = []
    runtime["gone"].subscribe(lambda k, v: told.append((k, v)))
    rows = [{"k": k, "v": v} for k, v in [("a", 1), ("b", 2), ("a", -1), ("a", 3), ("b", -2), ("c", -3)]]
    for each in [rows] if together else rows:
        runtime.send("B", each)
    assert told == [("a", 1), ("b", 2)]
    assert runtime.rows("kept").to_pylist() == [{"k": "a", "v": 3}]


@pytest.mark.parametrize(
    "clauses",
    [
        "when matched and w.v > 3 and w.k like 'x%' then delete",
        "when matched then delete where w.v > 3 and w.k like 'x%'",
        "when matched and b.v > 3 and w.k like 'x%' then delete",
        "where w.k = b.k when matched and w.v > 3 and w.k like 'x%' then delete",
    ],
)
def test_a_merge_deletes_only_what_its_conditions_say(clauses: str) -> None:
    """No walk has `like`: rows are taken out all at once where a statement says that of all that it finds."""
    runtime = epl.Runtime({"A": {"k": "string", "v": "int"}, "B": {"k": "string", "v": "int"}}, start=0)
    runtime.deploy(f"""
        create window W#keepall as A; insert into W select * from A;
        on B as b merge W as w {clauses};
        @name('w') select * from W
    """)
    rows = [{"k": k, "v": v} for k, v in [("x", 1), ("x", 5), ("y", 5)]]
    runtime.send("A", rows)
    runtime.send("B", {"k": "x", "v": 1})
    left = [row for row in rows if "b.v" in clauses or row != {"k": "x", "v": 5}]
    assert runtime.rows("w").to_pylist() == left


@pytest.mark.parametrize("window", ["#keepall", "#unique(k)", "#length(9)", "#time(9 sec)"])
@pytest.mark.parametrize("change", ["delete from W", "update W set v = 9", "select W.v as v from W"])
def test_two_keys_of_an_event_are_one_column_of_a_row(window: str, change: str) -> None:
    runtime = epl.Runtime({"A": {"k": "string", "v": "int"}, "D": {"a": "string", "b": "string"}})
    runtime.deploy(f"""
        create window W{window} as A; insert into W select * from A;
        @name('s') on D as d {change} where W.k = d.a and W.k = d.b
    """)
    runtime["s"].deliveries()
    runtime.send("A", [{"k": "x", "v": 1}, {"k": "y", "v": 2}])
    runtime.send("D", [{"a": "x", "b": "y"}, {"a": "y", "b": "y"}])
    new = [row["turn"] for row in runtime["s"].deliveries().to_pylist() if row["row"] == "new"]
    assert new == [6]
    left = {row["v"] for row in runtime.query("select v from W").to_pylist()}
    assert left == ({1} if "delete" in change else {1, 9} if "update" in change else {1, 2})
