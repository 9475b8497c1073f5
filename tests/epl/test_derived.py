"""Views that derive statistics: what runtimes make of them is what the interpreter makes, event by event."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, played, same_traces, scripts
from tests.support.examples import examples

_VIEWS = st.sampled_from(
    ["uni(v)", "uni(x, k)", "weighted_avg(x, v)", "correl(v, x)", "linest(v, x)", "linest(x, v, ts, k)"]
)
_BEFORE = st.sampled_from(
    ["", "#keepall", "#length(2)", "#time(1 sec)", "#length_batch(2)", "#time_batch(1 sec)", "#unique(k)#unique(v)"]
)
_STAYING = st.sampled_from(["", "#length(2)", "#unique(v)", "#lastevent"])
_GROUPED = _STAYING.map(lambda windows: f"#groupwin(k){windows}")
_SIZED = st.tuples(
    st.sampled_from(["", "#keepall", "#time(1 sec)", "#firstlength(2)"]), st.sampled_from(["size", "size(k, v + 1)"])
)
_VIEWED = st.tuples(_BEFORE | _BEFORE | _GROUPED, _VIEWS) | _SIZED


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    windows, view = draw(_VIEWED)
    selector = draw(st.sampled_from(["", "irstream ", "rstream "]))
    where = draw(st.sampled_from(["", "", " where datapoints > 1"])) if "uni" in view else ""
    output = "" if where else draw(st.sampled_from(["", "", " output every 2 events", " output last every 1 sec"]))
    text = f"@name('{NAME}') select {selector}* from A(v is not null){windows}#{view}{where}{output}"
    return Scenario(text, draw(scripts()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(10, dear=True)
def test_statistics_are_those_of_the_interpreter(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def test_what_was_before_the_first_event_is_the_first_old_row() -> None:
    """1 2 | 3 pushes 1 out: two statistics replace each other."""
    runtime = epl.Runtime({"A": {"v": "int"}})
    (statement,) = runtime.deploy("select irstream datapoints, total from A#length(2)#uni(v) where datapoints < 2")
    assert statement.deliveries().num_rows == 0
    for v in (1, 2, 3):
        runtime.send("A", {"v": v})
    assert statement.deliveries().select(["row", "datapoints", "total"]).to_pylist() == [
        {"row": "new", "datapoints": 1, "total": 1.0},
        {"row": "old", "datapoints": 0, "total": 0.0},
        {"row": "old", "datapoints": 1, "total": 1.0},
    ]
    assert runtime.rows(statement.name).to_pylist() == []


def test_content_is_one_row_before_any_event_too() -> None:
    runtime = epl.Runtime({"A": {"v": "int"}})
    (statement,) = runtime.deploy("select average, v from A#time(1 sec)#weighted_avg(v, v, v)")
    (row,) = runtime.rows(statement.name).to_pylist()
    assert math.isnan(row["average"])
    assert row["v"] is None
    runtime.send("A", {"v": 2})
    assert runtime.rows(statement.name).to_pylist() == [{"average": 2.0, "v": 2}]
    runtime.advance(1000)
    (row,) = runtime.rows(statement.name).to_pylist()
    assert math.isnan(row["average"])
    assert row["v"] == 2


def test_a_wildcard_takes_all_properties_of_the_last_event() -> None:
    runtime = epl.Runtime({"A": {"v": "int", "total": "string"}})
    (statement,) = runtime.deploy("select datapoints, total, v from A#uni(v, *)")
    (delivery,) = runtime.send("A", [{"v": 3, "total": "of the statistics"}])
    assert delivery.new is not None
    assert delivery.new.to_pylist() == [{"datapoints": 1, "total": 3.0, "v": 3}]
    assert statement.schema.names == ["datapoints", "total", "v"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("select * from A#length(2)#size", "size behind length"),
        ("select * from A#groupwin(v)#time(1 sec)#uni(v)", "uni behind groups of time"),
        ("select count(*) from A#uni(v)", "groups or aggregates over the view uni"),
        ("select * from A#correl(v)", "correl takes two expressions"),
        ("select * from A#uni(s)", "uni needs numbers"),
        ("select * from A#size#length(2)", "no view size here"),
    ],
)
def test_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(TextError, match=says):
        epl.Runtime({"A": {"v": "int", "s": "string"}}).deploy(text)
