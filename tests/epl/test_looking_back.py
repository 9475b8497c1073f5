"""Values of other rows: `prior`, `prev` and aggregates that choose events give what the interpreter gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl.runtime import Runtime
from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine, rows_of
from tests.support.epl_recorded import same
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, Windows, played, same_traces, scripts, windows
from tests.support.examples import examples

_ANYWHERE = (
    "prior(0, v)",
    "prior(1, v)",
    "prior(2, k)",
    "prior(1, v * 2 + 1)",
    "prior(v, 3)",
    "prior(1, v) + prior(2, v)",
)
_IN_WINDOWS = (
    "prev(0, k)",
    "prev(1, v)",
    "prev(v)",
    "prev(2, ts)",
    "prevtail(v)",
    "prevtail(1, k)",
    "prevcount(v)",
    "prevwindow(v)",
    "prevwindow(x * 2)",
    "prev(v, k)",
    "prevtail(v - 1, ts)",
)
_CHOSEN = (
    "first(v)",
    "last(v)",
    "first(k, 1)",
    "last(x, 1)",
    "window(v)",
    "first(*)",
    "last(s.*)",
    "window(*)",
    "window(v, filter: v > 0)",
    "maxby(v)",
    "minby(v).ts",
    "maxby(k, v).ts",
    "maxbyever(v, ts)",
    "sorted(v)",
    "sorted(k desc, v)",
    "sorted(x, v desc)",
)
_WHERE = st.sampled_from(["", "", " where v > 0", " where k = 'a' or v < 2"])
_PREVIOUS_WHERE = st.sampled_from(
    [" where prev(1, v) < v", " where prevcount(v) > 1 or v > 2", " where prevtail(0, ts) < ts"]
)
_PRIOR_WHERE = st.sampled_from(["", " where prior(1, v) = v", " where v >= prior(1, v)"])
_GROUPED = st.sampled_from(["length(2)", "length_batch(2)", "time_batch(1 sec)", "time(1 sec)", "sort(2, v desc)"]).map(
    lambda view: Windows(f"#groupwin(k)#{view}", has_order=False, has_previous=True)
)
_SELECTOR = st.sampled_from(["", "irstream ", "rstream "])


@st.composite
def _looking(draw: st.DrawFn) -> Scenario:
    """A statement that looks at other rows, grouped or not."""
    window = draw(windows | _GROUPED)
    columns = [*_ANYWHERE, *(_IN_WINDOWS if window.has_previous else ())]
    items = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4, unique=True))
    where = draw(_WHERE | (_PREVIOUS_WHERE if any("prev" in item for item in items) else _PRIOR_WHERE))
    where = _without_posts(window.text, where)
    order = draw(st.sampled_from(["", "", " order by prior(1, v), ts", " having prior(1, v) is not null"]))
    text = f"@name('{NAME}') select {draw(_SELECTOR)}ts, {_listed(items)} from A{window.text} as s{where}{order}"
    return Scenario(text.replace(f"{window.text} as s", _named(window.text)), draw(scripts()), not window.has_order)


@st.composite
def _choosing(draw: st.DrawFn) -> Scenario:
    """A statement with aggregates that choose events."""
    window = draw(windows)
    items = draw(st.lists(st.sampled_from(_CHOSEN), min_size=1, max_size=3, unique=True))
    shown, grouping = draw(
        st.sampled_from([("", ""), ("ts, ", ""), ("k, ", " group by k"), ("k, ts, ", " group by k")])
    )
    text = f"@name('{NAME}') select {draw(_SELECTOR)}{shown}{_listed(items)} from A{_named(window.text)}"
    text += _without_posts(window.text, draw(_WHERE)) + grouping
    return Scenario(text, draw(scripts()), in_any_order=bool(grouping) or not window.has_order)


def _without_posts(window: str, where: str) -> str:
    """No condition where a window posts without rows: what a batch of rows that it drops posts is not asked here."""
    return "" if "FORCE_UPDATE" in window else where


def _listed(items: list[str]) -> str:
    return ", ".join(f"{item} as c{at}" for at, item in enumerate(items))


def _named(window: str) -> str:
    """A stream's windows with its name, which stands before the word for unions."""
    return f"{window.removesuffix(' retain-union')} as s{' retain-union' * window.endswith(' retain-union')}"


def _alike(scenario: Scenario, device: str) -> None:
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError:
        return
    wanted = played(scenario, Interpreter(SCHEMA))
    assert same_traces(found, wanted, scenario), (found, wanted)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_looking())
@examples(40, dear=True)
def test_rows_see_what_the_interpreter_sees(device: str, scenario: Scenario) -> None:
    _alike(scenario, device)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_choosing())
@examples(40, dear=True)
def test_the_same_events_are_chosen(device: str, scenario: Scenario) -> None:
    _alike(scenario, device)


@given(_looking() | _choosing())
@examples(30, dear=True)
def test_content_is_what_the_interpreter_has(scenario: Scenario) -> None:
    """Iterators; in batches `prev` sees nothing of rows that wait, since they have not been posted."""
    if "batch" in scenario.text:
        return
    engines = RuntimeEngine(SCHEMA), Interpreter(SCHEMA)
    try:
        for engine in engines:
            played(scenario, engine)
    except TextError:
        return
    found, wanted = (engine.rows(NAME) for engine in engines)
    assert same(list(found), list(wanted or []), in_any_order=True), (found, wanted)


# By hand


def _runtime(text: str) -> Runtime:
    runtime = Runtime({"T": {"k": "string", "v": "int"}})
    runtime.deploy(f"@name('s') {text}")
    return runtime


def _told(runtime: Runtime, *values: Any) -> list[Any]:
    given = runtime.send("T", [{"k": "a", "v": value} for value in values])
    return [(rows_of(each.new), rows_of(each.old)) for each in given]


def test_prior_goes_back_over_arrivals_and_prev_over_the_window() -> None:
    """5 | 7 | 9 through a window of two: before 9 came 7 and 5, and 7 alone is still in it. What leaves keeps prior."""
    runtime = _runtime(
        "select irstream v, prior(2, v) as before, prev(2, v) as held, prevwindow(v) as all from T#length(2)"
    )
    assert _told(runtime, 5, 7, 9)[-1] == (
        [{"v": 9, "before": 5, "held": None, "all": [9, 7]}],
        [{"v": 5, "before": None, "held": None, "all": None}],
    )


def test_nulls_have_their_places() -> None:
    runtime = _runtime("select prev(1, v) as p, window(v) as w, first(v) as f, last(v) as l from T#length(3)")
    assert _told(runtime, None, 2, None)[-1][0] == [{"p": 2, "w": [None, 2, None], "f": None, "l": None}]


def test_rows_that_where_drops_are_in_the_window() -> None:
    runtime = _runtime("select v, prev(1, v) as p, sum(v) as total from T#length(2) where v > 1")
    assert _told(runtime, 1, 2, 3) == [
        ([{"v": 2, "p": 1, "total": 2}], None),
        ([{"v": 3, "p": 2, "total": 5}], None),
    ]


def test_a_batch_sees_itself() -> None:
    runtime = _runtime("select v, prev(1, v) as p, prior(1, v) as q, prevtail(v) as t from T#length_batch(2)")
    (_, (second, _)) = _told(runtime, 1, 2, 3, 4)
    assert second == [{"v": 3, "p": None, "q": 2, "t": 3}, {"v": 4, "p": 3, "q": 3, "t": 3}]


def test_whole_events_are_structs() -> None:
    runtime = _runtime("select maxby(v) as best, maxby(v).k as k, s as own from T#keepall as s")
    ((rows, _),) = _told(runtime, 4)
    assert rows == [{"best": {"k": "a", "v": 4}, "k": "a", "own": {"k": "a", "v": 4}}]


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ("prev(1, v) as p from T", "prev needs a window"),
        ("prior(-1, v) as p from T", "no constant|from 0 on"),
        ("prior(1, w) as p from T", "no property 'w'"),
        ("prior(1, v, k) as p from T", "an index and an expression"),
        ("maxby() as p from T", "needs what it sorts by"),
    ],
)
def test_wrong_calls_say_what_to_write(items: str, problem: str) -> None:
    with pytest.raises(TextError, match=problem):
        _runtime(f"select {items}")
