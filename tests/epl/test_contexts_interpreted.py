"""Statements in contexts give what a literal interpreter gives, which has a copy of the statement for each instance."""

from __future__ import annotations

import pytest
from hypothesis import given

from gpu_ops.errors import TextError
from tests.support.epl_context_scripts import in_contexts
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_recorded import same
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, played, same_traces
from tests.support.examples import by_default


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(in_contexts())
@by_default(150, derandomize=True)
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
