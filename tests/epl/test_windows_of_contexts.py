"""Named windows of contexts: each instance has one, beside lists that are changed event by event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl import Runtime
from gpu_ops.errors import TextError
from tests.support.examples import by_default

PROPERTIES = {"k": "string", "v": "int"}
TYPES = dict.fromkeys(("Come", "Go", "Change", "Ask", "Begin", "End"), PROPERTIES)
BY_KEY = "create context C partition by k from Come, k from Go, k from Change, k from Ask;"
BY_EVENT = "create context C initiated by Begin as b terminated by End(k = b.k);"
OVER = """
    @name('window') context C create window W#{view} as Come;
    context C insert into W select * from Come{of};
    @name('gone') context C on Go{of} as e delete from W as w where w.v = e.v;
    @name('changed') context C on Change{of} as e update W as w set v = w.v + 1 where w.v <= e.v;
    @name('asked') context C on Ask{of} as e select count(*) as n, sum(w.v) as s from W as w where w.v >= e.v;
    @name('total') context C select irstream sum(v) as s from W;
    @name('least') context C select (select min(v) from W) as m from Ask{of}
"""
EVENT = st.tuples(st.sampled_from(["Come", "Come", "Go", "Change", "Ask"]), st.sampled_from("ab"), st.integers(0, 3))
BOUND = st.tuples(st.sampled_from(["Begin", "End"]), st.sampled_from("ab"), st.just(0))


def _text(start: str, view: str) -> str:
    return start + OVER.format(view=view, of="(k = context.b.k)" if start is BY_EVENT else "")


def _told(runtime: Runtime) -> list[Any]:
    found: list[Any] = []
    for each in runtime.statements:
        each.listen(
            lambda new, old, of: found.append((of.name, *(None if x is None else x.to_pylist() for x in (new, old))))
        )
    return found


def _kept(rows: list[int], view: str) -> tuple[list[int], list[int]]:
    """(the values that stay, those that leave)."""
    if view == "length(2)":
        return rows[-2:], rows[:-2]
    if view == "unique(v)":
        stay = [v for at, v in enumerate(rows) if v not in rows[at + 1 :]]
        return stay, [v for at, v in enumerate(rows) if v in rows[at + 1 :]]
    return rows, []


def _expected(events: list[tuple[str, str, int]], view: str) -> dict[str, list[Any]]:
    windows: dict[str, list[int]] = {}
    told: dict[str, list[Any]] = {name: [] for name in ("gone", "asked", "least", "window", "total")}
    for kind, k, v in events:
        before, came, left = list(windows.get(k, [])), list[int](), list[int]()
        rows = list(before)
        if kind == "Come":
            rows, left = _kept([*rows, v], view)
            came = [v]
        elif kind == "Go":
            left = [each for each in rows if each == v]
            rows = [each for each in rows if each != v]
            told["gone"] += [[{"k": k, "v": each} for each in left]] if left else []
        elif kind == "Ask":
            some = [each for each in rows if each >= v]
            told["asked"].append([{"n": len(some), "s": sum(some) if some else None}])
            told["least"].append([{"m": min(rows, default=None)}])
        windows[k] = rows
        if came or left:
            told["window"].append((sorted(came), sorted(left)))
            told["total"].append((sum(rows) if rows else None, sum(before) if before else None))
    return told


@pytest.mark.slow
@by_default(8)
@given(st.lists(EVENT, max_size=12), st.sampled_from(["keepall", "length(2)", "unique(v)"]), st.data())
def test_beside_lists(events: list[tuple[str, str, int]], view: str, data: st.DataObject) -> None:
    events = [each for each in events if each[0] != "Change"]
    runtime = Runtime(TYPES, device=data.draw(st.sampled_from(["cpu", "array"])))
    runtime.deploy(_text(BY_KEY, view))
    told = _told(runtime)
    at = 0
    while at < len(events):
        until = at + 1
        while until < len(events) and events[until][0] == events[at][0] and data.draw(st.booleans()):
            until += 1
        runtime.send(events[at][0], [{"k": k, "v": v} for _, k, v in events[at:until]])
        at = until
    wanted = _expected(events, view)
    for name in ("gone", "asked", "least"):
        assert [new for of, new, _ in told if of == name] == wanted[name]
    values = [sorted(row["v"] for row in rows or []) for of, *both in told if of == "window" for rows in both]
    assert [*zip(values[::2], values[1::2], strict=True)] == wanted["window"]
    assert [(new[0]["s"], old[0]["s"]) for of, new, old in told if of == "total"] == wanted["total"]


@pytest.mark.slow
@by_default(5)
@given(
    st.lists(EVENT | st.tuples(st.sampled_from(["Begin", "End"]), st.sampled_from("ab"), st.just(0)), max_size=14),
    st.data(),
)
def test_a_cut_changes_nothing(events: list[tuple[str, str, int]], data: st.DataObject) -> None:
    view = data.draw(st.sampled_from(["keepall", "length(2)", "unique(v)", "time(10 sec)", "length_batch(2)"]))
    singly, together = (Runtime(TYPES) for _ in range(2))
    found = []
    for runtime in (singly, together):
        runtime.deploy(_text(BY_EVENT, view))
        found.append(_told(runtime))
    for kind, k, v in events:
        singly.send(kind, {"k": k, "v": v})
    at = 0
    while at < len(events):
        until = at + 1
        while until < len(events) and events[until][0] == events[at][0]:
            until += 1
        together.send(events[at][0], [{"k": k, "v": v} for _, k, v in events[at:until]])
        at = until
    assert sorted(map(repr, found[0])) == sorted(map(repr, found[1]))
    names = ("window", "total")
    assert [singly.rows(name).to_pylist() for name in names] == [together.rows(name).to_pylist() for name in names]


def test_a_window_is_over_with_its_instance(tmp_path: Path) -> None:
    # Begin a   Come a 1   Begin b   Come b 5   End a   Begin a   Come a 2   Ask a   Ask b
    # [ ]       [1]      [ ]       [5]              [ ]       [2]      1, 2    1, 5
    runtime = Runtime(TYPES)
    runtime.deploy(_text(BY_EVENT, "keepall"))
    for kind, k, v in [("Begin", "a", 0), ("Come", "a", 1), ("Begin", "b", 0), ("Come", "b", 5)]:
        runtime.send(kind, {"k": k, "v": v})
    runtime.checkpoint(tmp_path / "kept")
    for each in (runtime, Runtime.restore(tmp_path / "kept")):
        told = _told(each)
        each.send("End", {"k": "a"})
        assert told == []
        assert each.rows("window").to_pylist() == [{"k": "b", "v": 5}]
        for kind, k, v in [("Begin", "a", 0), ("Come", "a", 2), ("Ask", "a", 0), ("Ask", "b", 0)]:
            each.send(kind, {"k": k, "v": v})
        assert [new for of, new, _ in told if of == "asked"] == [[{"n": 1, "s": 2}], [{"n": 1, "s": 5}]]
        assert each.rows("total").to_pylist() == [{"s": 5}, {"s": 2}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select * from W", "W' is a named window of the context 'C'"),
        ("insert into W select * from Come", "W' is a named window of the context 'C'"),
        ("on Ask delete from W", "W' is a named window of the context 'C'"),
        ("select (select count(*) from W) as n from Ask", "W' is a named window of the context 'C'"),
        ("context C select * from pattern [every W]", "patterns of events of named windows within contexts"),
        ("create window V#keepall as Come; context C on Ask delete from V", "changes within contexts of named windows"),
        ("context D create window V#keepall as Come", "There is no context 'D'"),
    ],
)
def test_wrong(text: str, said: str) -> None:
    runtime = Runtime(TYPES)
    runtime.deploy(_text(BY_KEY, "keepall"))
    with pytest.raises(TextError, match=said):
        runtime.deploy(text)
