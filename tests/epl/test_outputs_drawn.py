"""Outputs that scripts of many steps found wrong, drawn as timelines: as they are in the interpreter."""

from __future__ import annotations

import pytest

from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import (
    NAME,
    SCHEMA,
    Advance,
    Scenario,
    Send,
    Step,
    played,
    same_traces,
)


def _a(key: str, v: int) -> Send:
    return Send("A", {"k": key, "v": v, "x": 0.0, "ts": 0})


def _b(w: int) -> Send:
    return Send("B", {"k": "a", "w": w})


def _new(text: str, steps: tuple[Step, ...], device: str) -> list[list[object]]:
    """The new rows at each step, as the runtime and the interpreter have them."""
    scenario = Scenario(f"@name('{NAME}') select {text}", steps, in_any_order=False)
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)
    return [[new for new, _ in each] for each in found]


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(
    ("selection", "order", "first"),
    [
        ("all", "", [1, 2, 4, 8]),
        ("last", "", [8]),
        ("", "", [4, 8]),
        ("all", " order by v", [4, 8]),
    ],
)
def test_the_first_output_after_a_second_has_what_came_before_it(
    selection: str, order: str, first: list[int], device: str
) -> None:
    # A(v)    1  2      4  8     16  32
    # clock         1 s
    # output               first     second
    steps = (_a("a", 1), _a("b", 2), Advance(1_000), _a("a", 4), _a("b", 8), _a("a", 16), _a("b", 32))
    text = f"v from A output after 1 sec {selection} every 2 events{order}"
    found = _new(text, steps, device)
    assert found[:4] == [[]] * 4
    assert found[4] == [[{"v": v} for v in first]]
    assert found[6] == [[{"v": v} for v in ([32] if selection == "last" else [16, 32])]]


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("selector", ["", "irstream "])
def test_a_snapshot_between_events_of_a_unidirectional_stream_has_those_of_the_last_one(
    selector: str, device: str
) -> None:
    # B(w)    3                 3           the last two of them
    # A(v)       2                 2        each joins the Bs with more
    # clock         1 s   2 s         3 s
    # n             1     1           2     of the last A alone
    join = "A as a unidirectional left outer join B#length(2) as b on a.v < b.w where a.v > 0"
    steps = (_b(3), _a("a", 2), Advance(1_000), Advance(2_000), _b(3), _a("a", 2), Advance(3_000))
    found = _new(f"{selector}sum(b.w) as s, count(*) as n from {join} output snapshot every 1 sec", steps, device)
    one, two = [[{"s": 3, "n": 1}]], [[{"s": 6, "n": 2}]]
    assert found == [[], [], one, one, [], [], two]
