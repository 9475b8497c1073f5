"""`output when … then set`: beside the interpreter, in any cut, on each device and over a checkpoint."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine, rows_of
from tests.support.epl_scripts import NAME, SCHEMA, Advance, Scenario, Send, Step, played, same_traces, scripts
from tests.support.examples import examples

_CREATED = "create variable int n = 0; create variable long c = 1;"
_SETTING = ["on B set n = w", "on A(v = 2) set n = v", "on B set c = w"]
_READING = [
    "select v from A output when count_insert > 1 then set n = count_insert_total",
    "select v from A output when n > 0 then set n = 0",
    "select v from A output when n > 1 then set n = n - 1, c = c + count_insert",
    "select v from A output when count_insert >= c then set c = c + 1",
    "select irstream v from A#length(2) output when count_insert_total > c then set c = count_insert_total + 1",
    "select sum(v) as q from A#time(1 sec) output when count_remove > 0 and c > 0 then set c = count_remove_total",
    "select k, sum(v) as q from A#time(1 sec) group by k output last when count_insert > c then set c = c + 1",
    "select k, count(*) as q from A group by k output all when n > 0 then set n = 0",
]


@st.composite
def _texts(draw: st.DrawFn) -> str:
    setting = draw(st.lists(st.sampled_from(_SETTING), max_size=2))
    both = draw(st.permutations([f"@name('{NAME}') {draw(st.sampled_from(_READING))}", *setting]))
    return _CREATED + ";".join(both)


def _jumping(script: tuple[Step, ...]) -> tuple[Step, ...]:
    """The same without walks of the clock: each tick of these is a step of its own."""
    return tuple(Advance(step.now) if isinstance(step, Advance) else step for step in script)


@pytest.mark.slow
@given(st.sampled_from(["cpu", "array"]), _texts(), scripts(10).map(_jumping))
@examples(20, dear=True)
def test_outputs_and_variables_are_those_of_the_interpreter(device: str, text: str, script: tuple[Step, ...]) -> None:
    scenario = Scenario(text, script, in_any_order=True)
    engine, interpreter = RuntimeEngine(SCHEMA, device=device), Interpreter(SCHEMA)
    try:
        found = played(scenario, engine)
    except TextError as refused:
        assert "outputs that set" in str(refused)  # noqa: PT017  (most texts are none such)
        return
    wanted = played(scenario, interpreter)
    assert same_traces(found, wanted, scenario)
    assert dict(engine.runtime.variables) == interpreter.variables


@pytest.mark.slow
@given(_texts(), scripts(10).map(_jumping), st.integers(0, 4))
@examples(10, dear=True)
def test_no_cut_and_no_checkpoint_changes_them(
    tmp_path_factory: pytest.TempPathFactory, text: str, script: tuple[Step, ...], kept: int
) -> None:
    path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
    singly, together = epl.Runtime(SCHEMA, start=0), epl.Runtime(SCHEMA, start=0, device="array")
    try:
        for each in (singly, together):
            each.deploy(text)
    except TextError:
        return
    for at, (name, steps) in enumerate(groupby(script, lambda step: isinstance(step, Send) and step.type_name)):
        some = list(steps)
        if at == kept:
            together.checkpoint(path)
            together = epl.Runtime.restore(path)
        if name:
            rows = [step.row for step in some if isinstance(step, Send)]
            one_by_one = [_shown(each) for row in rows for each in singly.send(str(name), row)]
            assert [_shown(each) for each in together.send(str(name), rows)] == one_by_one
        for step in some:
            if isinstance(step, Advance):
                moved = [_shown(each) for each in singly.advance(step.now)]
                assert [_shown(each) for each in together.advance(step.now)] == moved
        assert dict(singly.variables) == dict(together.variables)


def _shown(each: epl.Delivery) -> tuple[str, Any, Any]:
    new, old = (None if rows is None else rows_of(rows) for rows in (each.new, each.old))
    return each.statement, new, old


def test_an_output_of_rows_leaves_the_one_that_a_variable_asked_for() -> None:
    # B(w)    1     2           3     n = w
    # A(k)                a
    # clock                            1 s
    # n       0 (asks for an output at the next advance), 2 (asks again for none)
    #               2     0           3 (the output at the next advance is still to come), 3
    # output              a, 1         a, 1
    text = _CREATED + f"on B set n = w; @name('{NAME}') " + _READING[-1]
    event = Send("A", {"k": "a", "v": 2, "x": 0.0, "ts": 0})
    steps: tuple[Step, ...] = (
        *(Send("B", {"k": "a", "w": w}) for w in (1, 2)),
        event,
        Send("B", {"k": "a", "w": 3}),
        Advance(1_000),
    )
    engine, interpreter = RuntimeEngine(SCHEMA), Interpreter(SCHEMA)
    found = played(Scenario(text, steps, in_any_order=False), engine)
    assert found == played(Scenario(text, steps, in_any_order=False), interpreter)
    output = [([{"k": "a", "q": 1}], None)]
    assert found == [[], [], output, [], output]
    assert dict(engine.runtime.variables) == interpreter.variables == {"n": 3, "c": 1}


def test_a_variable_that_a_condition_does_not_read_asks_for_no_output() -> None:
    # B(w)    1     2      3           c = w, and then n = w
    # clock            1 s
    # n       0     2      0           c is no reason to look at n: each time that nothing waits n asks, and is set back
    text = _CREATED + f"on B set c = w; on B set n = w; @name('{NAME}') " + _READING[-1]
    steps: tuple[Step, ...] = (
        *(Send("B", {"k": "a", "w": w}) for w in (1, 2)),
        Advance(1_000),
        Send("B", {"k": "a", "w": 3}),
    )
    engine, interpreter = RuntimeEngine(SCHEMA), Interpreter(SCHEMA)
    scenario = Scenario(text, steps, in_any_order=False)
    assert played(scenario, engine) == played(scenario, interpreter) == [[], [], [(None, None)], []]
    assert dict(engine.runtime.variables) == interpreter.variables == {"n": 0, "c": 3}


def test_a_variable_says_when_and_is_set_back() -> None:
    # A(v)   1     2  3      4
    # B(w)      1
    # clock               10
    # n      0  1 0                at once
    runtime = epl.Runtime(SCHEMA, start=0)
    runtime.deploy(
        _CREATED + "on B set n = w; @name('s') select v from A output when n > 0 then set n = 0, c = count_insert"
    )
    told = []
    events: list[Any] = [("A", {"v": 1}), ("B", {"w": 1}), ("A", {"v": 2}), ("A", {"v": 3}), 10, ("A", {"v": 4})]
    for each_event in events:
        made = runtime.advance(each_event) if isinstance(each_event, int) else runtime.send(*each_event)
        told.append([_shown(each)[1] for each in made if each.statement == "s"])
    assert told == [[], [], [], [], [[{"v": 1}, {"v": 2}, {"v": 3}]], []]
    assert dict(runtime.variables) == {"n": 0, "c": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select v from A output snapshot when n > 0 then set n = 0", "output snapshot … then set"),
        ("on B set n = n + w; select v from A output when n > 0 then set n = 0", "outputs that set what"),
        ("select v from A output when n > 0 then set m = 0", "There is no variable 'm'"),
        ("select v from A output when n > 0 then set n = 2.5", "is of type int"),
    ],
)
def test_wrong(text: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        epl.Runtime(SCHEMA).deploy(_CREATED + text)
