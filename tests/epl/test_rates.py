"""`rate` and `istream()`: what runtimes make of them is what the interpreter makes, event by event."""

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

_BY_CLOCK = st.sampled_from(
    [
        "rate(1) as r from A",
        "rate(2, filter: v > 1) as r, count(*) as n from A",
        "k, rate(1) as r from A where v > 0 group by k",
        "ts, rate(1.5) as r from A(x is not null)",
        "k, ts, rate(1) as r from A group by k having count(*) > 1",
    ]
)
_BY_STAMPS = st.sampled_from(
    [
        "rate(ts) as r from A(v is not null)#length(2)",
        "rate(ts, v) as r, istream() as i from A(v is not null)#time(1 sec)",
        "ts, rate(ts, v) as r from A(v is not null)#length_batch(2)",
        "k, istream() as i, istream() and v > 1 as j from A#length(2) order by v",
        "k, count(*) as n, istream() as i from A#time(1 sec) group by k",
        "v, istream() as i from A#length(2) having istream()",
    ]
)


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    if draw(st.booleans()):
        text = f"select {draw(_BY_CLOCK)}"
    else:
        text = f"select {draw(st.sampled_from(['', 'irstream ', 'rstream ']))}{draw(_BY_STAMPS)}"
    return Scenario(f"@name('{NAME}') {text}", draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(10, dear=True)
def test_rates_are_those_of_the_interpreter(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("select rate(1) from A#length(2)", "rates of seconds over windows"),
        ("select irstream rate(1) from A", "old rows"),
        ("select rate(ts) from A#unique(k)", "rate over such a window"),
        ("select rate(1, group_by: k) from A", "rates by groups of their own"),
        ("select rate(k) from A#length(2)", "rate needs numbers"),
        ("select rate() from A", "rate needs an argument"),
    ],
)
def test_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(TextError, match=says):
        epl.Runtime(SCHEMA).deploy(text)


@pytest.mark.parametrize(
    "text",
    [
        "select k, sum(v) as s from A#time(10 sec) group by k",
        "select k, sum(v) as s from A#time(10 sec) group by k output last every 1 sec",
        "select k, sum(v) as s from A#time(10 sec) group by k output snapshot every 1 sec",
        "select k, count(*) as n from A#time_batch(10 sec, 0) group by k having count(*) > 0",
    ],
)
def test_groups_of_windows_of_time_are_one_walk(text: str) -> None:
    (statement,) = epl.Runtime({"A": {"k": "string", "v": "int"}}).deploy(text)
    assert "in one walk" in statement.explain()
