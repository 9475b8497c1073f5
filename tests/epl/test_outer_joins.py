"""Outer joins beside inner ones, and whole events that a row does not have, beside the interpreter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, played, same_traces, scripts
from tests.support.examples import examples

_WINDOWS = st.sampled_from(["#keepall", "#length(2)", "#time(1 sec)", "#lastevent"])
_OUTER = st.sampled_from(["left", "right", "full"])
_ITEMS = st.sampled_from(["*", "a.ts as t, b.w as w, c.ts as u", "a as a, c as c, istream() as i"])


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    a, b, c = (draw(_WINDOWS) for _ in range(3))
    joined = [f"inner join B{b} as b on a.k = b.k", f"{draw(_OUTER)} outer join A(v > 0){c} as c on c.k = a.k"]
    if draw(st.booleans()):
        joined.reverse()
    selector = draw(st.sampled_from(["", "irstream "]))
    output = draw(st.sampled_from(["", "", " output every 2 events"]))
    text = f"@name('{NAME}') select {selector}{draw(_ITEMS)} from A{a} as a {' '.join(joined)}{output}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(10, dear=True)
def test_rows_are_those_of_the_interpreter(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


_SUMS = "count(b.w) as n, sum(b.w) as s, max(b.w) as m, avg(b.w + b.w) as g"
_GROUPED = [
    (f"{_SUMS}", ""),
    (f"a.v as v, {_SUMS}", ""),
    (f"a.k as k, {_SUMS}", " group by a.k"),
    (f"b.k as k, {_SUMS}", " group by b.k"),
    (f"a.k as k, a.v as v, {_SUMS}", " group by a.k, a.v"),
    (f"a.k as k, a.v as v, {_SUMS}", " group by a.k"),
]
_HELD = st.sampled_from(["#keepall", "#length(2)", "#time(1 sec)", "#lastevent", "#unique(k)", "#length_batch(2)"])


@st.composite
def _aggregating(draw: st.DrawFn) -> Scenario:
    items, grouping = draw(st.sampled_from(_GROUPED))
    streams = [f"A{draw(_HELD)} as a", f"B{draw(_HELD)} as b"]
    between = " left outer join "
    if draw(st.booleans()):
        streams.reverse()
        between = " right outer join "
    match = "a.k = b.k" if grouping else draw(st.sampled_from(["a.k = b.k", "a.k = b.k and a.v > b.w", "a.v < b.w"]))
    where = draw(st.sampled_from(["", "", " where a.v > 0", " where b.w is null or b.w > 1"]))
    selector = draw(st.sampled_from(["", "irstream "]))
    having = draw(st.sampled_from(["", "", " having count(b.w) > 0"]))
    rest = f" on {match}{where}{grouping}{having}"
    text = f"@name('{NAME}') select {selector}{items} from {between.join(streams)}{rest}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_aggregating())
@examples(40, dear=True)
def test_aggregates_of_what_may_be_missing(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def test_an_event_that_is_not_there_is_null() -> None:
    """B 1 alone, then A 1: the second row has both."""
    engine = RuntimeEngine({"A": {"k": "int"}, "B": {"k": "int"}})
    engine.deploy("select *, a.k as k from A#keepall as a right outer join B#keepall as b on a.k = b.k")
    (alone,) = engine.send("B", {"k": 1})
    assert alone.new == [{"a": None, "b": {"k": 1}, "k": None}]
    (both,) = engine.send("A", {"k": 1})
    assert both.new == [{"a": {"k": 1}, "b": {"k": 1}, "k": 1}]
