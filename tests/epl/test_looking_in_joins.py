"""`prior` and `prev` in joins: what runtimes make of them is what the interpreter makes, event by event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, played, same_traces, scripts
from tests.support.examples import examples

_WINDOWS = st.sampled_from(["#keepall", "#length(2)", "#time(1 sec)", "#length_batch(2)", "#lastevent", "#unique(k)"])
_ITEMS = st.sampled_from(
    [
        "a.ts as ts, prior(1, a.v) as p, w",
        "prior(1, v) as p, prior(2, b.w) as q",
        "v - prior(0, w) as d",
        "prev(1, a.v) as p, prevcount(w) as c",
        "prevtail(1, b.w) as t, prevwindow(a.v) as l",
    ]
)
_REST = st.sampled_from(
    [
        "",
        " where prev(1, a.v) > 0",
        " where prior(1, v) is not null",
        " order by prior(1, b.w)",
        " output every 2 events",
    ]
)


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    between = draw(st.sampled_from(["inner join", "left outer join", "full outer join"]))
    selector = draw(st.sampled_from(["", "irstream "]))
    a, b = draw(_WINDOWS), draw(_WINDOWS)
    items, rest = draw(_ITEMS), draw(_REST)
    if "prev" in items and "output" in rest:
        rest = ""
    text = f"@name('{NAME}') select {selector}{items} from A{a} as a {between} B{b} as b on a.k = b.k{rest}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(10, dear=True)
def test_what_came_before_is_what_the_interpreter_says(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@pytest.mark.parametrize("asked", ["prior(1, k)", "prior(1, a.v + b.w)", "prior(1, 5)"])
def test_a_call_about_no_stream_is_an_error(asked: str) -> None:
    with pytest.raises(TextError, match="is about no stream"):
        epl.Runtime(SCHEMA).deploy(f"select {asked} as p from A#keepall as a, B#keepall as b where a.k = b.k")


@pytest.mark.parametrize(
    "text",
    [
        "select v, prev(1, a.v) as p from A#keepall as a, B#keepall as b output every 2 events",
        "select prev(1, v) as p from A#groupwin(k)#length(2) as a, B#keepall as b",
        "select prev(1, v) as p from A as a unidirectional, B#keepall as b",
    ],
)
def test_what_prev_does_not_go_with_is_refused(text: str) -> None:
    with pytest.raises(TextError, match="prev"):
        epl.Runtime(SCHEMA).deploy(text)
