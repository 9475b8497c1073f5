"""Statements over long scripts, in which the clock jumps over several outputs and batches, beside the interpreter."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import SCHEMA, Scenario, joins, played, same_traces, scenarios, scripts
from tests.support.examples import by_default

_LONG = scripts(most=150, least=100)
_OPEN = re.compile(r"#time_length_batch.* output |(irstream|rstream) .* group by .* output first ")
"""What docs/epl.md says is other than in Esper: `#time_length_batch` at rates, old rows of `first` of groups."""


@pytest.mark.slow
@given(
    (scenarios(script=_LONG) | scenarios(script=_LONG) | joins(_LONG)).filter(lambda each: not _OPEN.search(each.text)),
    st.sampled_from(["cpu", "array"]),
)
@by_default(6, deep=2_000, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_runtime_delivers_what_the_interpreter_delivers(scenario: Scenario, device: str) -> None:
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError:
        return
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)
