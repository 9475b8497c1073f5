"""Joins that one stream alone triggers, within contexts, beside the interpreter: an instance has its own windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, played, same_traces, scripts
from tests.support.examples import examples

_CONTEXTS = {
    "partition by k from A, k from B": "",
    "initiated by B as l terminated after 1 sec": "context.l.k as lk, ",
    "start A(v > 1) end B(w = 0)": "",
    "start B as l end after 1 sec": "context.l.w as lw, ",
}
_ITEMS = [
    ("a.ts as t, b.w as w", ""),
    ("a.k as k, a.v as v, b.w as w", ""),
    ("sum(b.w) as s, count(*) as n", ""),
    ("a.v as v, sum(b.w) as s", ""),
    ("a.k as k, sum(b.w) as s", " group by a.k"),
]
_WINDOWS = st.sampled_from(["#keepall", "#length(2)", "#time(1 sec)", "#lastevent", "#unique(k)"])
_OUTPUTS = ["", "", "", " output when terminated", " output last when terminated", " output every 1 sec"]


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    context = draw(st.sampled_from([*_CONTEXTS]))
    items, grouping = draw(st.sampled_from(_ITEMS))
    kind = draw(st.sampled_from([", ", " inner join ", " left outer join "]))
    match = f"{' where' if kind == ', ' else ' on'} a.k = b.k{draw(st.sampled_from(['', ' and a.v > 0']))}"
    selector = draw(st.sampled_from(["", "irstream "]))
    own = draw(st.sampled_from(["", _CONTEXTS[context]]))
    streams = f"A as a unidirectional{kind}B{draw(_WINDOWS)} as b"
    query = f"select {selector}{own}{items} from {streams}{match}{grouping}{draw(st.sampled_from(_OUTPUTS))}"
    text = f"create context C {context}; @name('{NAME}') context C {query}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(30, dear=True)
def test_deliveries_are_those_of_the_interpreter(device: str, scenario: Scenario) -> None:
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError as refused:
        # Of groups and of one row for all.
        assert "rates" in str(refused) or "when terminated" in str(refused)  # noqa: PT017
        return
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def test_each_instance_joins_what_came_to_it() -> None:
    """B comes to a twice and to b once; an A of either key meets those of its own."""
    engine = RuntimeEngine({"A": {"k": "string"}, "B": {"k": "string", "w": "int"}})
    engine.deploy("create context C partition by k from A, k from B")
    engine.deploy("@name('s') context C select sum(b.w) as s, count(*) as n from A as a unidirectional, B#keepall as b")
    for k, w in [("a", 1), ("b", 2), ("a", 4)]:
        assert not engine.send("B", {"k": k, "w": w})
    found = [engine.send("A", {"k": k})[0].new for k in ("a", "b", "a")]
    assert found == [[{"s": 5, "n": 2}], [{"s": 2, "n": 1}], [{"s": 5, "n": 2}]]
