"""Random event patterns beside the reference, in any cut, on each device, and over checkpoints."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.plan import pattern_matches
from tests.support.examples import by_default, examples
from tests.support.pattern_reference import Part, PatternReference
from tests.support.patterns import TYPES, chains, distinct_matches, patterns, scripts
from tests.support.roads import large_roads

NOTES = [(), ("DiscardPartialsOnMatch",), ("SuppressOverlappingMatches",)]
Turns = list[list[dict[str, Any]]]


def expected(part: Part, script: list[tuple[str, Any]], notes: tuple[str, ...]) -> Turns:
    """The matches of each turn that has some."""
    said = {"discards": NOTES[1][0] in notes, "suppresses": NOTES[2][0] in notes}
    running = PatternReference(part, 0, **said)
    running._turn()
    found = [running.send(name, dict(step)) if name else running.advance(step) for name, step in script]
    return [[dict(each) for each in turn] for turn in found if turn]


def cut(script: list[tuple[str, Any]], cuts: list[bool]) -> list[tuple[str, list[Any]]]:
    """The steps, of which some neighbours of one type are one batch."""
    pieces: list[tuple[str, list[Any]]] = []
    for at, (name, step) in enumerate(script):
        if pieces and pieces[-1][0] == name != "" and not cuts[at % len(cuts)]:
            pieces[-1][1].append(step)
        else:
            pieces.append((name, [step]))
    return pieces


def delivered(
    text: str, script: list[tuple[str, Any]], notes: tuple[str, ...], cuts: list[bool], device: str, path: Path | None
) -> Turns:
    """What a runtime delivers; tags that a match does not have are left out."""
    runtime = epl.Runtime({name: {"k": "string", "v": "int"} for name in TYPES}, start=0, device=device)
    runtime.deploy(f"@name('s') select * from pattern {' '.join(f'@{each}' for each in notes)} [{text}]")
    told: Turns = []

    def hear() -> None:
        runtime["s"].listen(lambda new, _old, _statement: told.append(_rows(new)))

    hear()
    for name, steps in cut(script, cuts):
        if name:
            runtime.send(name, steps)
        else:
            runtime.advance(steps[0])
        if path is not None:
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path, device=device)
            hear()
    return told


def _rows(table: Any) -> list[dict[str, Any]]:
    rows = table.to_pylist() if table.num_columns else [{}] * len(table)
    return [{tag: value for tag, value in row.items() if value is not None} for row in rows]


@pytest.mark.slow
@by_default(300, deep=20_000)
@given(patterns(), scripts(), st.sampled_from(NOTES), st.lists(st.booleans(), min_size=1, max_size=5))
def test_patterns_beside_the_reference(
    pattern: tuple[str, Part], script: list[tuple[str, Any]], notes: tuple[str, ...], cuts: list[bool]
) -> None:
    text, part = pattern
    assert delivered(text, script, notes, cuts, "cpu", None) == expected(part, script, notes), text


@pytest.mark.slow
@examples(dear=True)
@given(patterns(), scripts(), st.sampled_from(NOTES), st.sampled_from(["cpu", "array"]))
def test_patterns_go_on_from_checkpoints(
    pattern: tuple[str, Part], script: list[tuple[str, Any]], notes: tuple[str, ...], device: str
) -> None:
    text, part = pattern
    with TemporaryDirectory() as folder:
        found = delivered(text, script, notes, [True], device, Path(folder) / "checkpoint")
    assert found == expected(part, script, notes), text


@pytest.mark.slow
@by_default(300, deep=20_000)
@given(chains(), scripts(), st.lists(st.booleans(), min_size=1, max_size=5), st.sampled_from(["cpu", "array"]))
def test_open_starts_find_what_the_machine_and_the_reference_find(
    pattern: tuple[str, Part], script: list[tuple[str, Any]], cuts: list[bool], device: str
) -> None:
    text, part = pattern
    wanted = expected(part, script, ())
    assert delivered(text, script, (), cuts, device, None) == wanted, text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern_matches, "chain_of", lambda *_: "it is told to")
        assert delivered(text, script, (), cuts, device, None) == wanted, text


@pytest.mark.slow
@examples(dear=True)
@given(
    distinct_matches(), scripts(40), st.lists(st.booleans(), min_size=1, max_size=5), st.sampled_from(["cpu", "array"])
)
def test_distinct_matches_on_the_roads_of_many(
    pattern: tuple[str, Part], script: list[tuple[str, Any]], cuts: list[bool], device: str
) -> None:
    """Each step drops keys that are forgotten, and one chain has all keys."""
    text, part = pattern
    wanted = expected(part, script, ())
    with large_roads(), TemporaryDirectory() as folder:
        assert delivered(text, script, (), cuts, device, None) == wanted, text
        assert delivered(text, script, (), cuts, device, Path(folder) / "checkpoint") == wanted, text


def _filters(text: str, script: list[tuple[str, Any]]) -> list[int]:
    """How many filters are active behind each step."""
    runtime = epl.Runtime({name: {"k": "string", "v": "int"} for name in TYPES}, start=0)
    runtime.deploy(f"select * from pattern [{text}]")
    counts = [runtime.active_filters()]
    for name, step in script:
        runtime.send(name, [step]) if name else runtime.advance(step)
        counts.append(runtime.active_filters())
    return counts


@examples(dear=True)
@given(chains(), scripts())
def test_open_starts_have_as_many_filters_as_the_machine(
    pattern: tuple[str, Part], script: list[tuple[str, Any]]
) -> None:
    text, _ = pattern
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern_matches, "chain_of", lambda *_: "it is told to")
        wanted = _filters(text, script)
    assert _filters(text, script) == wanted, text


@pytest.mark.slow
@examples(dear=True)
@given(chains(), scripts(), st.lists(st.booleans(), min_size=1, max_size=5), st.sampled_from(["cpu", "array"]))
def test_open_starts_go_on_from_checkpoints(
    pattern: tuple[str, Part], script: list[tuple[str, Any]], cuts: list[bool], device: str
) -> None:
    text, part = pattern
    with TemporaryDirectory() as folder:
        found = delivered(text, script, (), cuts, device, Path(folder) / "checkpoint")
    assert found == expected(part, script, ()), text


def _way(text: str) -> str:
    """How a pattern runs, as explain says it."""
    runtime = epl.Runtime({name: {"k": "string", "v": "int"} for name in TYPES})
    runtime.deploy(f"@name('s') select * from pattern [{text}]")
    (said,) = [each.node.describe() for each in runtime["s"].nodes if isinstance(each.node, pattern_matches.Pattern)]
    return said.rpartition(", by ")[2].removeprefix("the ").replace(" on the host", "")


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("every a=A -> b=B(k = a.k, v > a.v) where timer:within(1 sec)", "open starts"),
        ("every a=A -> (timer:interval(1 sec) and not B(k = a.k))", "open starts"),
        ("a=A -> b=B(k = a.k)", "machine: it does not begin with every event of a stream"),
        ("every a=A -> b=B -> c=C", "machine: it is not one event after another"),
        (
            "every a=A -> (b=B and c=C)",
            "machine: a start waits for several events or times, or for none",
        ),
        ("every a=A -> (b=B and not B(v > 1))", "machine: a start waits for two things of one stream"),
        ("every a=A -> b=B@consume", "machine: events are consumed"),
        ("every a=A -> timer:interval(0)", "machine: a time is over at once"),
        ("every a=A -> (b=B or c=C)", "machine: a start waits for or(b=#1, c=#2)"),
    ],
)
def test_the_plan_says_how_a_pattern_runs(text: str, way: str) -> None:
    assert _way(text) == way
