"""Levels of groups (`grouping`, `grouping_id`), and groups that never end, whose aggregates remember all rows."""

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

_ROLLUPS = st.sampled_from(["rollup(k, v)", "cube(k, v)", "grouping sets((k, v), v, ())", "k, rollup(v)"])
_WINDOWS = st.sampled_from(["", "#length(2)", "#time(1 sec)", "#length_batch(2)"])
_HAVING = st.sampled_from(["", "", " having grouping(v) = 0", " having grouping_id(k, v) < 2 and count(*) > 0"])
_OUTPUT = st.sampled_from(["", "", " output every 1 sec", " output last every 2 events"])


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    selector = draw(st.sampled_from(["", "irstream "]))
    text = (
        f"@name('{NAME}') select {selector}k, v, sum(x) as s, grouping(k) as one, grouping_id(v, k) as both "
        f"from A{draw(_WINDOWS)} as a group by {draw(_ROLLUPS)}{draw(_HAVING)}{draw(_OUTPUT)}"
    )
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(8, derandomize=True)
def test_levels_are_those_of_the_interpreter(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


_STAYING = st.sampled_from(
    ["#groupwin(k)#length(2)", "#keepall", "#groupwin(k)#unique(v)", "#firstunique(k, v)", "#groupwin(k, v)#lastevent"]
)
_EVER = st.sampled_from(
    [
        "minever(v)",
        "maxever(x)",
        "firstever(v)",
        "lastever(v)",
        "countever(*)",
        "leaving()",
        "maxbyever(v).ts",
        "sum(v)",
    ]
)


@st.composite
def _remembering(draw: st.DrawFn) -> Scenario:
    items = ", ".join(draw(st.lists(_EVER, min_size=1, max_size=3, unique=True)))
    selector, ts = draw(st.sampled_from(["", "irstream "])), draw(st.sampled_from(["", "ts, "]))
    rest = draw(st.sampled_from(["", " output last every 2 events", " having count(*) > 1"]))
    text = f"@name('{NAME}') select {selector}k, {ts}{items} from A{draw(_STAYING)} group by k{rest}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_remembering())
@examples(8, derandomize=True)
def test_groups_that_never_end_remember_all_rows(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@pytest.mark.parametrize(
    "text",
    [
        "select k, maxever(v) from A#length(2) group by k",
        "select k, maxever(v) from A#unique(v) group by k",
        "select k, maxever(v) from A#groupwin(v)#length(2) group by k",
        "select k, maxever(v) from A#groupwin(k)#length(2) where v > 1 group by k",
        "select k, maxever(v) from A#groupwin(k)#time(1 sec) group by k",
    ],
)
def test_groups_that_may_end_are_refused(text: str) -> None:
    with pytest.raises(TextError, match="maxever of groups in windows"):
        epl.Runtime(SCHEMA).deploy(text)


@st.composite
def _by_expressions(draw: st.DrawFn) -> Scenario:
    keys = ["v + 1", "case when v > 1 then 1 else 0 end", "rollup(k, coalesce(v, 0))", "cube(v * 2, k)"]
    having = draw(st.sampled_from(["", " having count(*) > 1", " having v is not null"]))
    text = f"@name('{NAME}') select v, sum(ts) as s, max(x) as m from A group by {draw(st.sampled_from(keys))}{having}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_by_expressions())
@examples(8, derandomize=True)
def test_what_a_key_is_computed_of_is_that_of_the_last_event(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@pytest.mark.parametrize("text", ["select {} from A#length(2)", "select irstream {} from A", "select {} from A"])
def test_what_a_key_is_computed_of_is_refused_where_rows_leave(text: str) -> None:
    end = "" if "irstream" in text or "#" in text else " output every 2 events"
    with pytest.raises(TextError, match="v beside the keys of groups in windows"):
        epl.Runtime(SCHEMA).deploy(f"{text.format('v, count(*)')} group by v + 1{end}")


def test_a_key_may_be_said_with_its_stream() -> None:
    engine = RuntimeEngine({"A": {"k": "string", "v": "int"}})
    engine.deploy("select a.k as k, grouping(a.k) as g, grouping_id(v, a.k) as id from A as a group by rollup(k, v)")
    (delivery,) = engine.send("A", {"k": "one", "v": 1})
    assert delivery.new == [
        {"k": "one", "g": 0, "id": 0},
        {"k": "one", "g": 0, "id": 2},
        {"k": None, "g": 1, "id": 3},
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("select k, grouping(k) from A group by k", "grouping needs levels of groups"),
        ("select grouping(v + 1) from A group by rollup(k, v)", "is no key"),
        ("select grouping(k, v) from A group by rollup(k, v)", "grouping takes keys"),
        ("select grouping_id() from A group by rollup(k, v)", "grouping_id takes keys"),
    ],
)
def test_wrong_uses_are_told(text: str, says: str) -> None:
    with pytest.raises(TextError, match=says):
        epl.Runtime(SCHEMA).deploy(text)
