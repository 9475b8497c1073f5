"""Statements in contexts give what a literal interpreter gives, which has a copy of the statement for each instance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from gpu_ops.operators.runtime import released
from tests.support.epl_context_scripts import in_contexts, over_jumps
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine, rows_of
from tests.support.epl_recorded import same
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, Send, done, played, same_traces
from tests.support.examples import by_default, examples


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_held_of_ended_instances() -> Iterator[None]:
    """What is held of an instance is released as soon as it has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released, "FEW", 1)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(in_contexts())
@by_default(75, derandomize=True)
def test_a_runtime_delivers_what_the_interpreter_delivers(device: str, scenario: Scenario) -> None:
    engine = RuntimeEngine(SCHEMA, device=device)
    try:
        found = played(scenario, engine)
    except TextError:
        return
    interpreter = Interpreter(SCHEMA)
    wanted = played(scenario, interpreter)
    assert same_traces(found, wanted, scenario)
    if "batch" not in scenario.text and " output " not in scenario.text:
        assert same(engine.rows(NAME), interpreter.rows(NAME), in_any_order=True)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(over_jumps())
@examples(dear=True)
def test_one_move_of_the_clock_does_what_fell_due_first(device: str, scenario: Scenario) -> None:
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError:
        return
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@pytest.mark.slow
@given(in_contexts(), st.data())
@examples(20, dear=True)
def test_no_cut_and_no_checkpoint_changes_what_is_delivered(
    tmp_path_factory: pytest.TempPathFactory, scenario: Scenario, data: st.DataObject
) -> None:
    """Neighbouring events are one batch; before some of the batches the runtime is restored, on another device."""
    singly, together = RuntimeEngine(SCHEMA), RuntimeEngine(SCHEMA)
    try:
        wanted = played(scenario, singly)
    except TextError:
        return
    together.deploy(scenario.text)
    path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
    at = 0
    for is_event, steps in groupby(scenario.steps, lambda step: isinstance(step, Send) and step.type_name):
        if data.draw(st.sampled_from([False, False, False, True])):
            together.runtime.checkpoint(path)
            together.runtime = epl.Runtime.restore(path, device=data.draw(st.sampled_from(["cpu", "array"])))
        some = list(steps)
        each = [pair for rows in wanted[at : at + len(some)] for pair in rows]
        at += len(some)
        if is_event:
            sent = together.send(str(is_event), [step.row for step in some if isinstance(step, Send)])
            found = [(delivery.new, delivery.old) for delivery in sent if delivery.statement == NAME]
        else:
            found = [pair for step in some for pair in done(step, together)]
        assert found == each
    assert same(*(rows_of(engine.runtime.rows(NAME)) for engine in (together, singly)), in_any_order=True)
