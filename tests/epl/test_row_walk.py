"""Statements that change rows, beside a literal reading of their words: random ones, over windows and tables."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import IntegerOverflowError
from tests.support import row_change_reference as reference
from tests.support.examples import by_default, examples
from tests.support.row_change_reference import Branch, Changing, changing

_PROPERTIES = {"k": "string", "m": "int", "s": "string", "t": "long"}
_TYPES = dict.fromkeys("ADU", _PROPERTIES)
_VIEWS = ("keepall", "length(3)", "time(5 msec)", "unique(k)", "")


@st.composite
def _scripts(draw: st.DrawFn) -> Any:
    view = draw(st.sampled_from(_VIEWS))
    statements = draw(st.lists(changing(table=not view, keys=view != "unique(k)"), min_size=1, max_size=3))
    count, now, events = draw(st.integers(1, 16)), 0, []
    texts, numbers = st.sampled_from(["x", "xy", "z", None]), st.sampled_from([0, 1, 2, 3, 4, 9, None])
    for _ in range(count):
        kind = draw(st.sampled_from("AADU" if view else "DU"))
        now += draw(st.integers(1, 3))
        events.append((kind, now, {"k": draw(st.sampled_from("ab")), "m": draw(numbers), "s": draw(texts)}))
    cuts = draw(st.lists(st.integers(0, count), max_size=3))
    return view, statements, events, sorted({0, *cuts, count}), draw(st.booleans())


def _text(view: str, statements: list[Changing]) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in reference.COLUMNS.items())
    parts = [f"@name('w') create table W ({columns.replace('k string', 'k string primary key')})"]
    if view:
        parts = [f"@name('w') create window W#{view} as ({columns})"]
        parts.append("insert into W select k, m as v, m * 0.5 as d, s from A")
    return ";".join([*parts, *(f"@name('c{at}') {each.text}" for at, each in enumerate(statements))])


def _key(row: dict[str, Any]) -> Any:
    return sorted((name, value is not None, str(value)) for name, value in row.items())


def _delivered(runtime: epl.Runtime, name: str) -> list[Any]:
    """What a statement delivered at each turn, as (new rows, old rows)."""
    made = []
    for _, turn in groupby(runtime[name].deliveries().to_pylist(), key=lambda row: row["turn"]):
        some = list(turn)
        plain = [({x: y for x, y in row.items() if x not in {"turn", "row"}}, row["row"]) for row in some]
        made.append(tuple(sorted((row for row, what in plain if what == kind), key=_key) for kind in ("new", "old")))
    return made


def _check(script: Any, device: str, path: Path) -> None:
    view, statements, events, cuts, restarts = script
    expected, content = reference.answers(view, statements, events)
    runtime = epl.Runtime(_TYPES, start=0, device=device)
    runtime.deploy(_text(view, statements))
    for each in runtime.statements:
        if each.name in expected:
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
        asked = [tuple(sorted(rows, key=_key) for rows in each) for each in delivered]
        assert _delivered(runtime, name) == asked, name
    assert sorted(runtime.rows("w").to_pylist(), key=_key) == sorted(content, key=_key)


_UP = Changing("update", "U", ("w.k = e.k",), (Branch("update", "", (("v", "w.v + e.m"), ("s", "'z'"))),))
_OUT = Changing("delete", "D", ("w.v >= e.m",), (Branch("delete"),))


def _event(kind: str, now: int, k: str, m: int | None, s: str | None = "x") -> Any:
    return kind, now, {"k": k, "m": m, "s": s}


def test_a_row_that_is_changed_in_time_stays_where_no_row_comes_in_the_batch(tmp_path: Path) -> None:
    """A(a 1) at 1 would leave at 6; U at 2 and 4 bring it in anew, so that U at 7 finds it."""
    events = [_event("A", 1, "a", 1), *(_event("U", now, "a", 2) for now in (2, 4, 7)), _event("D", 9, "b", 99)]
    _check(("time(5 msec)", [_UP], events, [0, 1, 4, 5], False), "cpu", tmp_path / "runtime")


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("view", _VIEWS[:-1])
def test_a_row_changes_several_times_in_a_batch(view: str, device: str, tmp_path: Path) -> None:
    """A(a 1) at 1, U(a 2) at 2 and 3: 1, 3, 5; D(4) at 4 takes it out, U at 5 finds none."""
    events = [
        _event("A", 1, "a", 1),
        _event("U", 2, "a", 2),
        _event("U", 3, "a", 2),
        _event("D", 4, "b", 4),
        _event("U", 5, "a", 2),
    ]
    for cuts in ([0, 5], [0, 1, 2, 3, 4, 5]):
        _check((view, [_UP, _OUT], events, cuts, False), device, tmp_path / "runtime")


def test_rows_leave_by_time_between_the_events_that_change_them(tmp_path: Path) -> None:
    """A(a 1) at 1 would go at 6; U(a 2) at 5 makes a new row, which goes at 10: U at 8 finds it, U at 11 does not."""
    events = [_event("A", 1, "a", 1), *(_event("U", now, "a", 2) for now in (5, 8, 14)), _event("A", 15, "b", 1)]
    for cuts in ([0, 5], [0, 1, 2, 3, 4, 5]):
        _check(("time(5 msec)", [_UP], events, cuts, True), "cpu", tmp_path / "runtime")


def test_more_rows_are_made_than_there_is_room_for_at_first(tmp_path: Path) -> None:
    """Twelve rows, all of which each of twelve events replaces."""
    everywhere = Changing("update", "U", (), (Branch("update", "", (("v", "w.v + 1"),)),))
    events = [_event("A", at + 1, "a", at) for at in range(12)] + [_event("U", 20 + at, "a", 0) for at in range(12)]
    _check(("keepall", [everywhere], events, [0, 24], False), "cpu", tmp_path / "runtime")


def test_a_whole_number_that_does_not_fit_fails_the_window() -> None:
    """2147483647 + 1 is no int."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(_text("keepall", [_UP]))
    runtime.send("A", {"k": "a", "m": 2147483647, "s": "x", "t": 0})
    with pytest.raises(IntegerOverflowError, match="does not fit its type"):
        runtime.send("U", {"k": "a", "m": 1, "s": "x", "t": 0})


def test_explain_says_which_way_a_statement_goes_and_why() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(_text("keepall", [_UP, Changing("delete", "D", ("w.s like 'x%'",), (Branch("delete"),))]))
    assert "in one walk over the events" in runtime["c0"].explain()
    assert "no walk" in runtime["c1"].explain()
    assert "str.starts_with" in runtime["c1"].explain()
    runtime.deploy("create window V#sort(3, v) as (v int); @name('v') on D as e delete from V as w where w.v < e.m")
    assert "no walk: rows of V leave in another way" in runtime["v"].explain()


def test_queries_on_demand_do_what_each_of_them_says() -> None:
    """1 + 1, times 3, taken out: three queries, of which none is a statement when the next one comes."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(_text("keepall", []))
    runtime.send("A", {"k": "a", "m": 1, "s": "x", "t": 0})
    runtime.query("update W set v = v + 1")
    runtime.query("update W set v = v * 3")
    assert runtime.rows("w")["v"].to_pylist() == [6]
    runtime.query("delete from W where v = 6")
    assert not len(runtime.rows("w"))


@by_default(100)
@given(_scripts())
def test_any_statements_do_what_their_words_say(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """Windows and tables, deletes, updates and merges, in any cut, with restarts between."""
    _check(script, "cpu", tmp_path_factory.mktemp("walk") / "runtime")


@examples(dear=True)
@given(_scripts())
def test_any_statements_on_arrays(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """The same where columns are arrays."""
    _check(script, "array", tmp_path_factory.mktemp("walk") / "runtime")
