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


_STAYING = (
    "#groupwin(k)#length(2)",
    "#keepall",
    "#groupwin(k)#unique(v)",
    "#firstunique(k, v)",
    "#groupwin(k, v)#lastevent",
)
_ENDING = ("#length(2)", "#time(1 sec)", "#unique(v)", "#groupwin(v)#length(2)", "#time_batch(1 sec)", "#sort(2, v)")
_EVER = st.sampled_from(
    [
        "minever(v)",
        "maxever(x)",
        "firstever(v)",
        "lastever(v)",
        "countever(*)",
        "leaving()",
        "maxbyever(v).ts",
        "nth(v, 1)",
        "nth(x, 0, filter: v > 0)",
        "countever(v, group_by: v)",
        "sum(v)",
    ]
)


@st.composite
def _remembering(draw: st.DrawFn) -> Scenario:
    keys = draw(st.sampled_from(["k", "k", "rollup(k)"]))
    shown = draw(st.lists(_EVER, min_size=1, max_size=3, unique=True))
    if "rollup" in keys:  # A rollup shows its keys, and aggregates of its own groups alone.
        shown = [each for each in shown if "group_by" not in each] or ["countever(*)"]
    items = ", ".join(shown)
    selector, ts = draw(st.sampled_from(["", "irstream "])), draw(st.sampled_from(["", "ts, "]))
    where = draw(st.sampled_from(["", "", " where v > 0"]))
    ts, where = ("", where) if "rollup" in keys else (ts, where)
    rest = draw(st.sampled_from(["", " output last every 2 events", " having count(*) > 1"]))
    window = draw(st.sampled_from([*_STAYING, *_ENDING, *_ENDING]))
    text = f"@name('{NAME}') select {selector}k, {ts}{items} from A{window}{where} group by {keys}{rest}"
    return Scenario(text, draw(scripts(24)), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_remembering())
@examples(40, dear=True)
def test_groups_remember_all_rows_until_they_end(device: str, scenario: Scenario) -> None:
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError as refused:
        # An emptied group forgets between its last change and the output.
        assert "output last of aggregates of all that ever came or left" in str(refused)  # noqa: PT017
        assert "output last" in scenario.text
        return
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


_OWN = ["sum(v, group_by: k)", "minever(v, group_by: k)", "count(*, group_by: ())", "max(v, group_by: (k, v))"]


@st.composite
def _of_other_groups(draw: st.DrawFn) -> Scenario:
    keys = draw(st.sampled_from(["rollup(k, v)", "cube(k, v)", "grouping sets((k, v), v, ())", "k, rollup(v)"]))
    own = draw(st.lists(st.sampled_from(_OWN), min_size=1, max_size=2, unique=True))
    window = draw(st.sampled_from(["", "#keepall", "#length(2)", "#time(1 sec)", "#unique(k)", "#time_batch(1 sec)"]))
    rest = draw(st.sampled_from(["", " having count(*) > 1", " output every 2 events"]))
    selector = draw(st.sampled_from(["", "irstream ", "rstream "]))
    text = f"@name('{NAME}') select {selector}k, v, {', '.join(own)}, count(*) from A{window} group by {keys}{rest}"
    return Scenario(text, draw(scripts(24)), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_of_other_groups())
@examples(40, dear=True)
def test_aggregates_of_other_groups_are_of_the_row_s_event_on_each_level(device: str, scenario: Scenario) -> None:
    """A level leaves out a key of its row, but not of the event, which is the last one that touched its group."""
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@st.composite
def _remembering_joins(draw: st.DrawFn) -> Scenario:
    own = ["firstever(a.v)", "lastever(b.w)", "countever(*)", "maxever(b.w)", "leaving()", "nth(a.v, 0)", "nth(b.w, 1)"]
    items = ", ".join(draw(st.lists(st.sampled_from(own), min_size=1, max_size=3, unique=True)))
    grouping = draw(st.sampled_from(["", " group by a.k"]))
    one, other = (draw(st.sampled_from(["#length(2)", "#time(1 sec)", "#lastevent", "#keepall"])) for _ in range(2))
    selector = draw(st.sampled_from(["", "irstream "]))
    key = "a.k as k, " if grouping else ""
    text = f"@name('{NAME}') select {selector}{key}{items} from A{one} as a, B{other} as b where a.k = b.k{grouping}"
    return Scenario(text, draw(scripts(24)), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_remembering_joins())
@examples(40, dear=True)
def test_groups_of_joins_remember_all_rows_until_they_end(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def test_a_group_is_forgotten_as_the_next_row_enters_any_other() -> None:
    """Row a 5 leaves as b 7 comes: a knows its 5 until c 1 comes; then a begins anew. Batches make no difference."""
    rows = [("a", 5), ("b", 7), ("c", 1), ("a", 2)]
    wanted = [("a", 5), ("a", 5), ("b", 7), ("b", 7), ("c", 1), ("a", 2), ("c", 1)]
    for size in (1, 2, 4):
        engine = RuntimeEngine({"A": {"k": "string", "v": "int"}})
        engine.deploy(f"@name('{NAME}') select k, maxever(v) as m from A#length(1) group by k order by k")
        found = []
        for at in range(0, len(rows), size):
            for each in engine.send("A", [{"k": k, "v": v} for k, v in rows[at : at + size]]):
                found += [(row["k"], row["m"]) for row in each.new or ()]
        assert found == wanted


def test_groups_that_may_end_are_refused_within_contexts() -> None:
    text = "create context C partition by v from A; context C select k, maxever(v) from A#length(2) group by k"
    with pytest.raises(TextError, match="of groups in windows within contexts"):
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


@pytest.mark.parametrize("key", ["()", "v"])
def test_all_groups_beside_aggregates_of_other_groups_are_refused(key: str) -> None:
    """A group without a row since the last output has none that says of which other group they would be."""
    runtime = epl.Runtime(SCHEMA)
    text = f"select k, count(*, group_by: {key}) as m from A group by k{', v' if key == 'v' else ''} output"
    with pytest.raises(TextError, match="output all of groups beside aggregates of other groups"):
        runtime.deploy(f"{text} all every 1 sec")
    runtime.deploy(f"{text} snapshot every 1 sec")
    runtime.deploy("select k, count(*, group_by: k) as m from A group by k output all every 1 sec")
