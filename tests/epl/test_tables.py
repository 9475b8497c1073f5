"""Tables: what queries keep in them, what events change, and what expressions read."""

from __future__ import annotations

from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import PlanError, TextError
from tests.support import table_reference as reference
from tests.support.examples import examples

_TYPES = {
    "A": {"k": "string", "v": "int", "t": "long"},
    "D": {"k": "string", "m": "int", "t": "long"},
    "U": {"x": "int", "t": "long"},
}


@st.composite
def _scripts(draw: st.DrawFn) -> Any:
    values = {"A": ("k", "v"), "D": ("k", "m"), "U": ("x",)}
    events = []
    for kind in draw(st.lists(st.sampled_from("AAADU"), min_size=1, max_size=12)):
        row = {"k": draw(st.sampled_from("ab")), "v": draw(st.integers(0, 9)), "m": draw(st.integers(0, 3))}
        row["x"] = row["m"]
        events.append((kind, {name: row[name] for name in values[kind]}))
    cuts = draw(st.lists(st.integers(0, len(events)), max_size=3))
    return events, sorted({0, *cuts, len(events)}), draw(st.booleans()), draw(st.booleans())


def _found(runtime: epl.Runtime, name: str) -> list[Any]:
    """What a statement delivered in each turn."""
    rows = runtime[name].deliveries().to_pylist()
    turns = (list(turn) for _, turn in groupby(rows, key=lambda row: row["turn"]))
    return [[{x: y for x, y in row.items() if x not in {"turn", "row"}} for row in turn] for turn in turns]


def _key(row: dict[str, Any]) -> str:
    return str(sorted(row.items(), key=lambda item: item[0]))


def _check(script: Any, device: str, path: Path) -> None:
    events, cuts, merges, restarts = script
    expected, table = reference.answers(events, merges=merges)
    runtime = epl.Runtime(_TYPES, start=0, device=device)
    runtime.deploy(reference.TEXT + (reference.MERGE if merges else ""))
    for each in runtime.statements:
        each.deliveries()
    for low, high in pairwise(cuts):
        sent: dict[str, list[Any]] = {}
        for at, (kind, event) in enumerate(events[low:high], start=low):
            sent.setdefault(kind, []).append({**event, "t": at + 1})
        runtime.replay(sent, time="t")
        if restarts:
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path, device=device)
    for name, delivered in expected.items():
        found = [sorted(each, key=_key) for each in _found(runtime, name)]
        assert found == [sorted(each, key=_key) for each in delivered], name
    assert sorted(runtime.rows("t").to_pylist(), key=_key) == sorted(table.values(), key=_key)


@examples(dear=True)
@given(_scripts())
def test_any_script_does_what_its_words_say(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """Queries into a table, merges and reads before and behind them, in any cut, with restarts between."""
    _check(script, "cpu", tmp_path_factory.mktemp("tables") / "runtime")


@examples(dear=True)
@given(_scripts())
def test_any_script_on_arrays(tmp_path_factory: pytest.TempPathFactory, script: Any) -> None:
    """The same where columns are arrays."""
    _check(script, "array", tmp_path_factory.mktemp("tables") / "runtime")


def test_events_as_columns() -> None:
    """A1 A2 A3 into a window of two: the table has the last two as an array, and T is the whole row."""
    runtime = epl.Runtime({"A": {"v": "int"}, "U": {"x": "int"}}, start=0)
    runtime.deploy(
        """
        create table T (w window(*) @type(A), total sum(int));
        into table T select window(*) as w, sum(v) as total from A#length(2);
        @name('q') select T.total as total, T as whole from U;
        """
    )
    runtime.send("A", [{"v": 1}, {"v": 2}, {"v": 3}])
    (found,) = [each for each in runtime.send("U", {"x": 0}) if each.statement == "q"]
    whole = {"w": [{"v": 2}, {"v": 3}], "total": 5}
    assert found.new is not None
    assert found.new.to_pylist() == [{"total": 5, "whole": whole}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("create table V (c countMinSketch())", "sketches of frequencies"),
        ("create table V (w window(*))", "does not say of which type"),
        ("create table V (a int, a int)", "Two columns are called 'a'"),
        ("create table V (total sum(int) primary key)", "A primary key is a plain column"),
        ("into table Nothing select sum(v) as total from A", "There is no table 'Nothing'"),
        ("into table T select sum(v) as nothing from A group by k", "has no column 'nothing'"),
        ("into table T select sum(v) as total from A", "groups by 0"),
        ("select T.total as total from A", "has 1 keys, and there are 0"),
        ("select T['a'].nothing as total from A", "has no column 'nothing'"),
        ("insert into T select k from A", "inserts into tables with aggregates"),
        ("on D delete from T", "deletes of rows with aggregates"),
        ("on D update T set total = 1", "T.total is an aggregate"),
    ],
)
def test_what_there_is_not_is_refused(text: str, problem: str) -> None:
    """The error says what is wrong, and nothing is deployed."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("create table T (k string primary key, total sum(int))")
    with pytest.raises(TextError, match=problem):
        runtime.deploy(text)
    assert len(runtime.statements) == 1


@pytest.mark.parametrize("together", [False, True])
def test_events_are_inserted(together: bool) -> None:  # noqa: FBT001
    # A a 1   D a   A b 2   U 5    D a    D b
    # [a 1]   1     [b 2]   [b 7]  [a 1]  7
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("""
        create table Last (k string primary key, v int);
        insert into Last select k, v from A;
        on U as u update Last set v = v + u.x where k = 'b';
        @name('seen') select k, Last[k].v as v from D
    """)
    events: list[tuple[str, str, int, int]] = [
        ("A", "a", 1, 1),
        ("D", "a", 0, 2),
        ("A", "b", 2, 3),
        ("U", "", 5, 4),
        ("D", "a", 0, 5),
        ("D", "b", 0, 6),
    ]
    runtime["seen"].deliveries()
    sent: dict[str, list[Any]] = {}
    for kind, k, v, at in events:
        rows: dict[str, dict[str, Any]] = {"A": {"k": k, "v": v}, "D": {"k": k, "m": v}, "U": {"x": v}}
        row = rows[kind]
        sent.setdefault(kind, []).append({**row, "t": at})
        if not together:
            runtime.replay({kind: [{**row, "t": at}]}, time="t")
    if together:
        runtime.replay(sent, time="t")
    assert [row["v"] for row in runtime["seen"].deliveries().to_pylist()] == [1, 1, 7]


def test_a_key_is_there_once() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("create table Last (k string primary key, v int); insert into Last select k, v from A")
    runtime.send("A", {"k": "a", "v": 1})
    with pytest.raises(PlanError, match=r"has a row with the key \('a',\) already"):
        runtime.send("A", {"k": "a", "v": 2})
