"""Variables of contexts: a value for each instance, beside a dictionary that is changed event by event."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl import Runtime, query
from gpu_ops.errors import PlanError, TextError
from tests.support.examples import examples
from tests.support.roads import large_roads

TYPES = {"Add": {"k": "string", "v": "int"}, "Ask": {"k": "string"}, "Begin": {"k": "string"}, "End": {"k": "string"}}
KEYED = """
    create context ByKey partition by k from Add, k from Ask;
    @name('var') context ByKey create variable int seen = 10;
    @name('early') context ByKey select seen from Ask;
    @name('set') context ByKey on Add(v > 0) as a set seen = seen + a.v;
    @name('late') context ByKey select k, seen from Ask where seen > 10;
    @name('adds') context ByKey select k, seen from Add
"""
EVENT = st.tuples(st.sampled_from(["Add", "Ask"]), st.sampled_from("ab"), st.integers(0, 3))


def _told(runtime: Runtime) -> list[Any]:
    found: list[Any] = []
    for each in runtime.statements:
        each.listen(
            lambda new, old, of: found.append((of.name, *(None if x is None else x.to_pylist() for x in (new, old))))
        )
    return found


def _expected(events: list[tuple[str, str, int]]) -> list[Any]:
    seen: dict[str, int] = {}
    told: list[Any] = []
    for kind, k, v in events:
        before = seen.get(k, 10)
        if kind == "Ask":
            told.append(("early", [{"seen": before}], None))
            told += [("late", [{"k": k, "seen": before}], None)] if before > 10 else []
            continue
        if v > 0:
            seen[k] = before + v
            told.append(("var", [{"seen": seen[k]}], [{"seen": before}]))
            told.append(("set", [{"seen": seen[k]}], None))
        told.append(("adds", [{"k": k, "seen": seen.get(k, 10)}], None))
    return told


@examples(dear=True)
@given(st.lists(EVENT, max_size=12), st.data())
def test_of_keys(events: list[tuple[str, str, int]], data: st.DataObject) -> None:
    device = data.draw(st.sampled_from(["cpu", "array"]))
    runtime = Runtime(TYPES, device=device)
    runtime.deploy(KEYED)
    told = _told(runtime)
    at = 0
    while at < len(events):
        until = at + 1
        while until < len(events) and events[until][0] == events[at][0] and data.draw(st.booleans()):
            until += 1
        rows = [{"k": k, "v": v} if kind == "Add" else {"k": k} for kind, k, v in events[at:until]]
        runtime.send(events[at][0], rows)
        at = until
    assert sorted(told, key=repr) == sorted(_expected(events), key=repr)
    assert [each for each in told if each[0] == "adds"] == [each for each in _expected(events) if each[0] == "adds"]


LIVES = """
    create context Life as initiated by Begin as b terminated by End(k = b.k);
    @name('var') context Life create variable int seen = 0;
    @name('set') context Life on Add(k = context.b.k) as a set seen = a.v;
    @name('ask') context Life select context.b.k as k, seen from Ask
"""


@pytest.mark.parametrize("roads", [nullcontext, large_roads])
def test_a_value_is_over_with_its_instance(tmp_path: Path, roads: Callable[[], AbstractContextManager[None]]) -> None:
    """With many instances that have ended, what is held of them is released at once."""
    # Begin a   Add a 5   Begin a   Add a 7   Ask          End a   Begin a   Ask
    # one: 0    one: 5    two: 0    both: 7   7 and 7      none    one: 0    0
    with roads():
        runtime = Runtime(TYPES)
        runtime.deploy(LIVES)
        for kind, row in [
            ("Begin", {"k": "a"}),
            ("Add", {"k": "a", "v": 5}),
            ("Begin", {"k": "a"}),
            ("Begin", {"k": "b"}),
        ]:
            runtime.send(kind, row)
        assert runtime.rows("var").to_pylist() == [{"seen": 5}, {"seen": 0}, {"seen": 0}]
        runtime.checkpoint(tmp_path / "kept")
        for each in (runtime, Runtime.restore(tmp_path / "kept")):
            told = _told(each)
            each.send("Add", {"k": "a", "v": 7})
            each.send("Ask", {"k": "x"})
            asked = [{"k": "a", "seen": 7}, {"k": "a", "seen": 7}, {"k": "b", "seen": 0}]
            assert told[-1] == ("ask", asked, None)
            assert told[0] == ("var", [{"seen": 7}, {"seen": 7}], [{"seen": 5}, {"seen": 0}])
            each.send("End", {"k": "a"})
            each.send("Begin", {"k": "a"})
            each.send("Ask", {"k": "x"})
            assert told[-1] == ("ask", [{"k": "b", "seen": 0}, {"k": "a", "seen": 0}], None)
            assert each.rows("set").to_pylist() == [{"seen": 0}, {"seen": 0}]


def test_a_statement_that_comes_later_sees_what_was_set() -> None:
    runtime = Runtime(TYPES)
    runtime.deploy(KEYED)
    runtime.send("Add", [{"k": "a", "v": 2}, {"k": "b", "v": 3}])
    (late,) = runtime.deploy("@name('later') context ByKey select k, seen from Ask")
    told: list[Any] = []
    late.subscribe(lambda k, seen: told.append({"k": k, "seen": seen}))
    runtime.send("Ask", [{"k": "a"}, {"k": "b"}, {"k": "a"}])
    assert told == [{"k": "a", "seen": 12}, {"k": "b", "seen": 13}, {"k": "a", "seen": 12}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select seen from Ask", "'seen' is a variable of the context 'ByKey'"),
        ("context ByKey select sum(v + seen) as s from Add", "variables of contexts in aggregates"),
        ("create variable int seen = 1", "There is a variable 'seen' already"),
        ("create variable int all = 1; context ByKey on Add set seen = 1, all = 2", "that are set beside others"),
    ],
)
def test_wrong(text: str, said: str) -> None:
    runtime = Runtime(TYPES)
    runtime.deploy(KEYED)
    with pytest.raises(TextError, match=said):
        runtime.deploy(text)


def test_over_data_at_rest_they_are_the_same() -> None:
    text = """
        create context ByKey partition by k from Add, k from Ask;
        context ByKey create variable int seen = 10;
        context ByKey on Add as a set seen = seen + a.v;
        context ByKey select k, seen from Ask
    """
    add = pa.table({"k": ["a", "b", "a"], "v": pa.array([1, 5, 2], pa.int32()), "seq": [1, 3, 4]})
    answer = query(text, Add=add, Ask=pa.table({"k": ["a", "b", "a"], "seq": [2, 5, 6]}), order="seq").collect()
    assert answer.select(["k", "seen"]).to_pylist() == [
        {"k": "a", "seen": 11},
        {"k": "b", "seen": 15},
        {"k": "a", "seen": 13},
    ]


def test_it_goes_with_its_statement() -> None:
    runtime = Runtime(TYPES)
    runtime.deploy(KEYED)
    with pytest.raises(PlanError, match="is about the variable 'seen'"):
        runtime.undeploy("var")
    for name in ("early", "set", "late", "adds", "var"):
        runtime.undeploy(name)
    assert runtime.deploy("create variable int seen = 1; select seen from Ask")
