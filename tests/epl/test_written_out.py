"""Statements that do several things, and those that change events before others see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import PlanError, TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import SCHEMA, Advance, Send, Step, scripts
from tests.support.examples import examples

_TYPES = {"A": {"k": "string", "v": "int"}, "B": {"k": "string", "x": "int"}}


def _shown(sent: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.statement, *(None if rows is None else rows.to_pylist() for rows in (each.new, each.old)))
        for each in sent
    ]


def _a(*rows: tuple[str | None, int | None]) -> list[dict[str, Any]]:
    return [{"k": k, "v": v} for k, v in rows]


def _told(engine: Any, batches: Sequence[Sequence[Step]]) -> dict[str, list[Any]]:
    """What each statement delivers, in order; a batch is a step, or events of one type that follow one another."""
    made: dict[str, list[Any]] = defaultdict(list)
    for batch in batches:
        first = batch[0]
        if isinstance(first, Advance):
            deliveries = engine.advance(first.now)
        else:
            rows = [each.row for each in batch if isinstance(each, Send)]
            deliveries = engine.send(first.type_name, rows if len(rows) > 1 else rows[0])
        for each in deliveries:
            made[each.statement].append((each.new, each.old))
    return made


_WORDS = (
    "@name('split') on A as a insert into X select k, v where v > 1 insert into Y select a.k as k, v as w where x > 0",
    "@name('split') on A(x is not null) insert into X select k, v where v > 1 insert into Y(w) select v output all",
    "@name('split') on A insert into X select k, v where k = 'a' insert into X select k, v + 10 as v where v = 2",
    "@name('u') update istream A set v = v + 1, k = 'b' where v > 1; @name('u2') update istream A set v = v * 2",
    "@name('u') update istream A as a set v = a.ts, ts = a.v where a.k = 'a'",
)
_READERS = (
    "@name('x') select irstream k, sum(v) as s from X#length(2) group by k; @name('y') select * from Y",
    """insert into X select k, v from A; @name('d') update istream X set v = 0 where v > 2;
    @name('x') select irstream k, v from X#time(1 sec); @name('a') select * from A(v > 1)""",
)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.sampled_from(_WORDS), scripts(most=10))
@examples(25, dear=True)
def test_they_do_what_the_interpreter_does(device: str, words: str, script: tuple[Step, ...]) -> None:
    """Event by event, and events that follow one another at once."""
    splits = "split" in words
    schemas = "create schema X(k string, v int); create schema Y(k string, w int);" if splits else ""
    words = words if "a.ts" not in words else words.replace("v = a.ts, ts", "ts = 5, x")
    text = f"{schemas}{words};{_READERS[0] if splits else _READERS[1]}"
    ones = [[step] for step in script]
    batches = [list(some) for _, some in groupby(script, lambda step: getattr(step, "type_name", step))]
    wanted = Interpreter(SCHEMA)
    wanted.deploy(text)
    expected = _told(wanted, ones)
    for cut in (ones, batches):
        engine = RuntimeEngine(SCHEMA, device=device)
        engine.deploy(text)
        assert _told(engine, cut) == expected


# Streams that are split


def test_a_split_stream_goes_on_after_a_restart_and_goes_as_one_statement(tmp_path: Path) -> None:
    """(a 9) is X's, (b 3) is Y's, (c 1) nobody's: the statement itself gives it."""
    text = """
        @name('split') on A as a insert into X select a.k as k where v > 5 insert into Y select k, v*2 as v where v > 2;
        @name('x') select * from X; @name('y') select * from Y
    """
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(text)
    for _ in range(2):
        assert _shown(runtime.send("A", _a(("a", 9), ("b", 3), ("c", 1), ("d", None)))) == [
            ("x", [{"k": "a"}], None),
            ("y", [{"k": "b", "v": 6}], None),
            ("split", [{"k": "c", "v": 1}], None),
            ("split", [{"k": "d", "v": None}], None),
        ]
        runtime.checkpoint(tmp_path / "runtime")
        runtime = epl.Runtime.restore(tmp_path / "runtime")
    assert [each.name for each in runtime.statements] == ["split", "x", "y"]
    assert runtime.active_filters() == 3
    aside = runtime.isolated()
    aside.add("split", "x")
    assert [name for name, *_ in _shown(aside.send("A", _a(("a", 9))))] == ["x"]
    aside.remove("split", "x")
    runtime.undeploy("split")
    assert not runtime.send("A", _a(("a", 9)))
    runtime.deploy(text.split(";", maxsplit=1)[0])
    assert [name for name, *_ in _shown(runtime.send("A", _a(("a", 9))))] == ["x"]


def test_a_wrong_part_leaves_nothing() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    with pytest.raises(TextError, match="'A' has no property 'q'") as caught:
        runtime.deploy("on A insert into X select k where v > 5 insert into Y select q")
    assert caught.value.at == len("on A insert into X select k where v > 5 insert into Y select ")
    assert runtime.statements == ()
    with pytest.raises(PlanError, match="no type of events 'X'"):
        runtime.send("X", {})
    assert runtime.active_filters() == 0


def test_a_pattern_is_split() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("""
        on pattern [every a=A -> b=B(k = a.k)]
            insert into X select a.k as k where b.x > 0 insert into Y select b.x as x;
        @name('x') select * from X; @name('y') select * from Y
    """)
    runtime.send("A", _a(("a", 1)))
    assert _shown(runtime.send("B", {"k": "a", "x": 1})) == [("x", [{"k": "a"}], None)]


def test_events_at_rest_are_split_and_changed() -> None:
    """(a 1) goes to Y, (b 3) becomes (b 4) and goes to X."""
    drawn = pa.table({"seq": [1, 2], "k": ["a", "b"], "v": [1, 3]})
    text = """
        update istream A set v = v + 1 where v > 2;
        on A insert into X select k, v where v > 3 insert into Y select k, v;
    """
    for stream, expected in (("X", [("b", 4)]), ("Y", [("a", 1)])):
        answer = epl.query(f"{text} select k, v from {stream}", A=drawn, order="seq").collect()
        assert [(row["k"], row["v"]) for row in answer.to_pylist()] == expected
    rest = epl.query("on A insert into X select k where v > 2", A=drawn, order="seq").collect()
    assert rest["k"].to_pylist() == ["a"]
    with pytest.raises(PlanError, match="'statement 1' changes events"):
        epl.query("update istream A set v = 0", A=drawn, order="seq")


# Rows that are selected and deleted, and merged elsewhere

_FILLED = "@name('w') create window W#keepall as (k string, v int); insert into W select k, v from A;"


def test_rows_are_selected_and_deleted_at_once() -> None:
    """A(a 1) A(b 2) A(a 3), B(a): both rows of a in an order, and they are gone; then there is nothing."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(
        f"{_FILLED} @name('s') on B as b select and delete w.v as v, b.x as x from W as w where w.k = b.k"
        " order by w.v desc"
    )
    runtime.send("A", _a(("a", 1), ("b", 2), ("a", 3)))
    assert _shown(runtime.send("B", [{"k": "a", "x": 7}, {"k": "a", "x": 8}])) == [
        ("s", [{"v": 3, "x": 7}, {"v": 1, "x": 7}], None),
        ("w", None, _a(("a", 1), ("a", 3))),
    ]
    assert runtime.rows("w").to_pylist() == _a(("b", 2))


def test_aggregates_of_rows_that_are_deleted() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(f"{_FILLED} @name('s') on B select and delete sum(v) as s from W")
    runtime.send("A", _a(("a", 1), ("b", 2)))
    found = [(name, new) for name, new, _ in _shown(runtime.send("B", [{"k": "a"}, {"k": "a"}])) if name == "s"]
    assert found == [("s", [{"s": 3}]), ("s", [{"s": None}])]
    assert not runtime.rows("w").num_rows


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_merge_inserts_into_other_streams(*, one_by_one: bool, tmp_path: Path) -> None:
    """What is deleted goes to Gone as it was, what is new to New, and an event of zero to Zero alone."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(f"""{_FILLED}
        @name('m') on B as b merge W as w where w.k = b.k
            when matched and b.x > 5 then insert into Gone select w.k as k, w.v as v, b.x as x then delete
            when matched then update set v = w.v + b.x
            when not matched and b.x = 0 then insert into Zero select *
            when not matched then insert select b.k as k, b.x as v then insert into New(n) select b.k where b.x < 9;
        @name('gone') select * from Gone; @name('zero') select * from Zero; @name('new') select * from New
    """)
    runtime.send("A", _a(("b", 3), ("b", 1)))
    runtime.checkpoint(tmp_path / "runtime")
    runtime = epl.Runtime.restore(tmp_path / "runtime")
    rows = [{"k": "b", "x": x} for x in (2, 6, 0, 4, 1, 9, 9)]
    found = [
        each for row in ([[row] for row in rows] if one_by_one else [rows]) for each in _shown(runtime.send("B", row))
    ]
    assert [each for each in found if each[0] not in {"w", "m"}] == [
        ("gone", [{"k": "b", "v": 5, "x": 6}], None),
        ("gone", [{"k": "b", "v": 3, "x": 6}], None),
        ("zero", [{"k": "b", "x": 0}], None),
        ("new", [{"n": "b"}], None),
        ("gone", [{"k": "b", "v": 5, "x": 9}], None),
    ]
    assert [each[1:] for each in found if each[0] == "m"][:2] == [
        (_a(("b", 5), ("b", 3)), _a(("b", 3), ("b", 1))),
        (None, _a(("b", 5), ("b", 3))),
    ]
    assert runtime.rows("w").to_pylist() == _a(("b", 9))


def test_a_row_that_is_updated_before_it_is_inserted_elsewhere_is_refused() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    text = f"{_FILLED} on B as b merge W as w where w.k = b.k when matched then update set v = 0 then insert into X "
    with pytest.raises(TextError, match="merges that insert a row elsewhere behind its update"):
        runtime.deploy(f"{text} select w.v as v")
    assert len(runtime.deploy(f"{text} select b.x as v")) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("update istream A set q = 1", "'A' has no property 'q'"),
        ("update istream A set v = 'a'", "v is of type int"),
        ("update istream A set v = 1 where v", "'where' takes a condition"),
        ("update istream Nobody set v = 1", "There is no type of events 'Nobody'"),
        ("@Priority(1) update istream A set v = 1", "@Priority of update istream"),
    ],
)
def test_wrong_texts(text: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        epl.Runtime(_TYPES).deploy(text)


# Events that are changed


def test_an_update_is_delivered_with_what_was(tmp_path: Path) -> None:
    """A(a 3), then A(a 1) A(b 5): those from least on have one more, and those below are left."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("""
        create variable int least = 3; @name('u') update istream A set v = v + 1 where v >= least;
        @name('s') select sum(v) as s from A
    """)
    runtime["u"].deliveries()
    assert _shown(runtime.send("A", _a(("a", 3)))) == [("u", _a(("a", 4)), _a(("a", 3))), ("s", [{"s": 4}], None)]
    with pytest.raises(PlanError, match="has read the variable 'least' once"):
        runtime.variables["least"] = 4
    runtime.checkpoint(tmp_path / "runtime")
    runtime = epl.Runtime.restore(tmp_path / "runtime")
    runtime.send("A", _a(("a", 1), ("b", 5)))
    assert [tuple(row.values()) for row in runtime["u"].deliveries().to_pylist()] == [
        (2, "new", "a", 4),
        (2, "old", "a", 3),
        (4, "new", "b", 6),
        (4, "old", "b", 5),
    ]
    runtime.undeploy("u")
    assert _shown(runtime.send("A", _a(("a", 3)))) == [("s", [{"s": 14}], None)]


def test_rows_of_a_named_window_are_changed_before_they_are_kept() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(f"{_FILLED} update istream W set v = -1 where v is null")
    runtime.send("A", _a(("a", None), ("b", 2)))
    assert runtime.rows("w").to_pylist() == _a(("a", -1), ("b", 2))


def test_an_update_that_fails_changes_nothing_any_more() -> None:
    """A(a 1) becomes 2; the greatest number has no next one: from it on events are as they were sent."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("@name('u') update istream A set v = v + 1; @name('s') select v from A")
    statement = runtime["s"]
    statement.deliveries()
    with pytest.raises(Exception, match="'u' has failed"):
        runtime.send("A", _a(("a", 1), ("b", (1 << 31) - 1), ("c", 5)))
    assert statement.deliveries()["v"].to_pylist() == [2, (1 << 31) - 1, 5]
