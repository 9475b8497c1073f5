"""Batches of time beside outputs by the clock: of what one turn finds due, each falls due at its own time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Advance, Scenario, Send, Step, done, played, same_traces
from tests.support.examples import examples


def _event(stamp: int, key: str = "a") -> Send:
    return Send("A", {"k": key, "v": 2, "x": 0.0, "ts": stamp})


# Clock (s)   0    1    2    3    4  4.3  5    6  6.2
# A           1                      2
# turns       |         |    |       |            |
# batches               {1}       {}           {2}
# outputs          due       due  due     due
#
# The turn at 6.2 finds the output of 5 and the batch of 6 due. They are done in this order: the output has no row.
_STEPS: list[Step] = [_event(1), Advance(2000), Advance(3000), Advance(4300), _event(2), Advance(6200), Advance(6400)]


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(
    ("select", "at_3000", "at_6200"),
    [
        ("count(*) as n from A#time_batch(2 sec)", [{"n": 1}], [{"n": 0}]),
        ("maxby(v).ts as t from A#time_batch(2 sec)", [{"t": 1}], [{"t": None}]),
        ("count(*) as n from A#time_length_batch(2 sec, 9)", [{"n": 1}], [{"n": 0}]),
    ],
)
def test_an_output_does_not_see_the_batch_that_falls_due_behind_it(
    device: str, select: str, at_3000: list[object], at_6200: list[object]
) -> None:
    scenario = Scenario(f"@name('{NAME}') select {select} output every 1 sec", tuple(_STEPS), in_any_order=True)
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert [new for new, _ in found[2]] == [at_3000]
    assert [new for new, _ in found[5]] == [at_6200]
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


# Clock (s)   0  0.3   1.3   2.5    3.1  3.3   4.4
# A                                 1
# batches                {}    {}         {1}
# outputs                            due          due
#
# The first batch has no row, and the output every 1.5 s begins with it at 1.3.
_EAGER: list[Step] = [*map(Advance, (300, 1300, 2500)), _event(1), *map(Advance, (3100, 3300, 4400))]


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("items", ["v", "sum(v) as s", "k, sum(v) as s", "k, sum(v) as s|group by k"])
def test_an_output_rate_begins_with_a_batch_without_rows(device: str, items: str) -> None:
    items, _, group = items.partition("|")
    text = f"select {items} from A#time_batch(1 sec, 'START_EAGER,FORCE_UPDATE') {group} output every 1500 msec"
    scenario = Scenario(f"@name('{NAME}') {text}", tuple(_EAGER), in_any_order=False)
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert [bool(each) for each in found] == [False, False, False, False, True, False, True]
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


# A (ts)      1    2    3    4
# v           7    8    8    7
# batches               {2, 3}
#                            {1, 4}
#
# The event 1 enters behind 2 and 3, though it came before.
@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("ends", [[4], [1, 3, 4]])
@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("first(ts)", [2, 2]),
        ("last(ts)", [3, 4]),
        ("first(ts, 2)", [None, 1]),
        ("last(ts, 1)", [2, 1]),
        ("window(ts)", [[2, 3], [2, 3, 1, 4]]),
        ("nth(ts, 2)", [None, 3]),
        ("firstever(ts)", [2, 2]),
        ("maxby(x).ts", [2, 2]),
    ],
)
def test_batches_of_several_groups_are_in_the_order_in_which_they_enter(
    tmp_path: Path, device: str, ends: list[int], item: str, found: list[object]
) -> None:
    text = f"@name('{NAME}') select {item} as z from A#groupwin(v)#length_batch(2)"
    events = [Send("A", {"k": "a", "v": v, "x": 0.0, "ts": at}) for at, v in enumerate([7, 8, 8, 7], 1)]
    scenario = Scenario(text, tuple(events), in_any_order=False)
    traces = [played(scenario, each) for each in (RuntimeEngine(SCHEMA), Interpreter(SCHEMA))]
    assert same_traces(traces[0], traces[1], scenario)
    runtime = epl.Runtime(SCHEMA, device=device)
    runtime.deploy(text)
    runtime[NAME].deliveries()
    rows, delivered = [dict(each.row) for each in events], list[object]()
    for begin, end in zip([0, *ends], ends, strict=False):
        runtime.send("A", rows[begin:end])
        delivered += runtime[NAME].deliveries()["z"].to_pylist()
        runtime.checkpoint(tmp_path / "c")
        runtime = epl.Runtime.restore(tmp_path / "c", device=device)
        runtime[NAME].deliveries()
    assert delivered == found


_BATCHES = [
    "#time_batch(2 sec)",
    "#time_batch(2 sec, 500)",
    "#time_batch(1500 msec, 'FORCE_UPDATE')",
    "#time_batch(1 sec, 'START_EAGER')",
    "#time_batch(1 sec, 'START_EAGER,FORCE_UPDATE')",
    "#time_length_batch(2 sec, 2)",
    "#time_length_batch(1 sec, 3, 'FORCE_UPDATE')",
    "#time_batch(2 sec)#time(3 sec)",
    "#groupwin(k)#time_batch(2 sec)",
]
_ITEMS = [
    "count(*) as n, sum(v) as s",
    "maxby(v).ts as t, count(*) as n",
    "k, v",
    "k, count(*) as n|group by k",
    "k, v, count(*) as n|group by k",
    "k, v, count(*) as n|group by rollup(k, v)",
    "v, count(*) as n",
]
_OUTPUTS = ["every 1 sec", "last every 1 sec", "all every 1500 msec", "first every 1 sec"]
_OUTPUTS += ["every 2 events", "last every 1 sec", "after 1 sec every 1 sec"]


@st.composite
def _coarse(draw: st.DrawFn) -> tuple[Step, ...]:
    """Few events, and turns that find several times due."""
    now, steps = 0, list[Step]()
    values = st.sampled_from([0, 1, 2, None])
    for each in draw(
        st.lists(st.none() | st.sampled_from([250, 1000, 1300, 2000, 2500, 3700]), min_size=3, max_size=14)
    ):
        if each is None:
            steps.append(Send("A", {"k": draw(st.sampled_from("ab")), "v": draw(values), "x": None, "ts": len(steps)}))
        else:
            now += each
            steps.append(Advance(now))
    return tuple(steps)


@st.composite
def _scenarios(draw: st.DrawFn) -> Scenario:
    window, output = draw(st.sampled_from(_BATCHES)), draw(st.sampled_from(_OUTPUTS))
    if "groupwin" in window and output.startswith("last"):
        output = "every 1 sec"  # docs/epl.md: which row of several groups is the last one is other than in Esper
    items, _, grouping = draw(st.sampled_from(_ITEMS)).partition("|")
    selector = draw(st.sampled_from(["", "irstream ", "rstream "]))
    text = f"select {selector}{items} from A{window} {grouping} output {output}"
    return Scenario(f"@name('{NAME}') {text}", draw(_coarse()), in_any_order=True)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(_scenarios())
@examples(30, dear=True)
def test_outputs_over_batches_are_those_of_the_interpreter(device: str, scenario: Scenario) -> None:
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@given(_scenarios(), st.data())
@examples(20, dear=True)
def test_a_checkpoint_between_what_falls_due_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, scenario: Scenario, data: st.DataObject
) -> None:
    path: Path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
    engine, stop = RuntimeEngine(SCHEMA), data.draw(st.integers(0, len(scenario.steps) - 1))
    engine.deploy(scenario.text)
    found = []
    for at, step in enumerate(scenario.steps):
        if at == stop:
            engine.runtime.checkpoint(path)
            engine.runtime = epl.Runtime.restore(path)
        found.append(done(step, engine))
    assert same_traces(found, played(scenario, RuntimeEngine(SCHEMA)), scenario)


@pytest.mark.parametrize("output", ["every 1 sec", "snapshot every 1 sec"])
def test_a_join_over_batches(output: str) -> None:
    """A join makes its rows after all that falls due at a turn."""
    text = f"select count(*) as n from A#time_batch(2 sec) as a, B#keepall as b where a.k = b.k output {output}"
    steps: list[Step] = [Send("B", {"k": "a", "w": 1}), *_STEPS]
    scenario = Scenario(f"@name('{NAME}') {text}", tuple(steps), in_any_order=True)
    assert same_traces(played(scenario, RuntimeEngine(SCHEMA)), played(scenario, Interpreter(SCHEMA)), scenario)
