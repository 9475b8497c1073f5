"""Outer joins beside inner ones, and whole events that a row does not have, beside the interpreter."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RowsDelivered, RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, done, played, same_traces, scripts
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


_DELIVERED = [
    "count(*)",
    "count(a.v)",
    "sum(a.v)",
    "avg(a.v + b.w)",
    "count(b.w, a.v > 0)",
    "sum(a.v, b.w > 0)",
]
_KEYS = ["", "", "a.k", "b.k", "a.v", "b.w"]


@st.composite
def _drifting(draw: st.DrawFn) -> Scenario:
    """Counts that drift away from the rows that stand, over two streams or three, in any groups."""
    items = ", ".join(draw(st.lists(st.sampled_from(_DELIVERED), min_size=1, max_size=3, unique=True)))
    key = draw(st.sampled_from(_KEYS))
    shown = f"{key} as x, " if key else ""
    grouping = f" group by {key}" if key and draw(st.booleans()) else ""
    shown += "a.ts as ts, " if grouping and draw(st.booleans()) else ""
    one, two, three = (draw(_HELD) for _ in range(3))
    match = draw(st.sampled_from(["a.k = b.k", "a.k = b.k and a.v > b.w", "a.v < b.w"]))
    streams = f"A{one} as a {draw(_OUTER)} outer join B{two} as b on {match}"
    if draw(st.booleans()):
        streams += f" {draw(_OUTER)} outer join A(v > 0){three} as c on c.k = a.k"
    where = draw(st.sampled_from(["", "", " where a.v > 0", " where b.w is null or b.w > 1"]))
    having = draw(st.sampled_from(["", "", " having count(*) > 1"]))
    output = draw(st.sampled_from(["", "", " output every 2 events", " output last every 2 events"]))
    selector = draw(st.sampled_from(["", "irstream "]))
    text = f"@name('{NAME}') select {selector}{shown}{items} from {streams}{where}{grouping}{having}{output}"
    return Scenario(text, draw(scripts(24)), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_drifting())
@examples(40, dear=True)
def test_counts_of_what_is_delivered(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@given(_drifting())
@examples(40, dear=True)
def test_counts_of_what_is_delivered_go_on_from_a_checkpoint(scenario: Scenario) -> None:
    engine, half = RuntimeEngine(SCHEMA), len(scenario.steps) // 2
    engine.deploy(scenario.text)
    found = [done(step, engine) for step in scenario.steps[:half]]
    with TemporaryDirectory() as folder:
        engine.runtime.checkpoint(f"{folder}/it")
        engine.runtime = epl.Runtime.restore(f"{folder}/it")
    found += [done(step, engine) for step in scenario.steps[half:]]
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def test_no_count_goes_below_nothing() -> None:
    """A 1 comes alone: a row. B 1 comes: a row of both, and that of A alone stays counted. A leaves with one row."""
    for size in (1, 4):
        engine = RuntimeEngine({"A": {"k": "int"}, "B": {"k": "int"}})
        engine.deploy(
            "insert into Both select k, 1 as a from A; insert into Both select k, 0 as a from B;"
            "@name('s') select count(*) as n, sum(a.k) as s from Both(a = 1)#length(1) as a "
            "left outer join Both(a = 0)#keepall as b on a.k = b.k"
        )
        deliveries: list[RowsDelivered] = []
        for name, keys in (("A", [1]), ("B", [1]), ("A", [2, 3, 3, 3])):
            for at in range(0, len(keys), size):
                deliveries += engine.send(name, [{"k": k} for k in keys[at : at + size]])
        found = [row for each in deliveries if each.statement == "s" for row in each.new or ()]
        assert found == [
            {"n": 1, "s": 1},
            {"n": 2, "s": 2},
            {"n": 2, "s": 3},
            {"n": 2, "s": 4},
            {"n": 2, "s": 4},
            {"n": 2, "s": 4},
        ]


def test_an_event_that_is_not_there_is_null() -> None:
    """B 1 alone, then A 1: the second row has both."""
    engine = RuntimeEngine({"A": {"k": "int"}, "B": {"k": "int"}})
    engine.deploy("select *, a.k as k from A#keepall as a right outer join B#keepall as b on a.k = b.k")
    (alone,) = engine.send("B", {"k": 1})
    assert alone.new == [{"a": None, "b": {"k": 1}, "k": None}]
    (both,) = engine.send("A", {"k": 1})
    assert both.new == [{"a": {"k": 1}, "b": {"k": 1}, "k": 1}]
