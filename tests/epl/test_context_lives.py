"""Contexts of one instance at a time that patterns of several events start and end.

The brute force has one runtime at a time: with the pattern of the start while no instance is there, and with that of
the end while one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.epl_on_runtime import rows_of
from tests.support.examples import examples

_TYPES = {"A": {"v": "int"}, "B": {"v": "int"}, "Seen": {"v": "int"}}
_STARTS = [
    "a=A -> b=B(v = a.v)",
    "every a=A -> b=B",
    "a=A(v = 1) -> timer:interval(1 sec)",
    "a=A and b=B",
    "every timer:interval(2 sec) -> a=A",
    "a=A or b=B",
]
_ENDS = [
    "c=A -> d=B(v = c.v)",
    "every c=B -> d=A",
    "c=B -> timer:interval(1 sec)",
    "c=A(v = 0) or d=B(v = 1)",
    "timer:interval(3 sec) and not c=B(v = 0)",
]

Step = tuple[str, int] | int


@st.composite
def _scripts(draw: st.DrawFn) -> list[Step]:
    clock, steps = 0, list[Step]()
    for _ in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(["A", "B", "A", "B", "Seen", "Seen", "clock"]))
        if kind == "clock":
            clock += draw(st.sampled_from([500, 1000, 2500]))
            steps.append(clock)
        else:
            steps.append((kind, draw(st.integers(0, 1))))
    return steps


def _waiting(pattern: str, clock: int) -> epl.Runtime:
    runtime = epl.Runtime(_TYPES, start=clock)
    runtime.deploy(f"select 1 as one from pattern [{pattern}]")
    return runtime


def _done(runtime: epl.Runtime, step: Step) -> Any:
    return runtime.advance(step) if isinstance(step, int) else runtime.send(step[0], {"v": step[1]})


def _counts(start: str, end: str, steps: Sequence[Step]) -> list[int | None]:
    """For each step how many events of Seen the instance has had; None where none is there, or none came."""
    found, clock = list[int | None](), 0
    waiting, seen = _waiting(start, clock), None
    for step in steps:
        clock = step if isinstance(step, int) else clock
        found.append(None)
        if _done(waiting, step):
            seen = 0 if seen is None else None
            waiting = _waiting(start if seen is None else end, clock)
        elif seen is not None and not isinstance(step, int) and step[0] == "Seen":
            seen += 1
            found[-1] = seen
    return found


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.sampled_from(_STARTS), st.sampled_from(_ENDS), _scripts())
@examples(dear=True)
def test_each_waits_anew_for_the_other(device: str, start: str, end: str, steps: list[Step]) -> None:
    runtime = epl.Runtime(_TYPES, device=device, start=0)
    runtime.deploy(
        f"create context C start pattern [{start}] end pattern [{end}]; context C select count(*) as n from Seen"
    )
    for number, (step, count) in enumerate(zip(steps, _counts(start, end, steps), strict=True)):
        rows = [row for each in _done(runtime, step) for row in rows_of(each.new) or []]
        assert rows == ([] if count is None else [{"n": count}]), (number, steps)


def test_an_end_names_the_events_of_the_start_and_statements_those_of_both() -> None:
    """A(1) starts; B(2) is no end of it, B(1) is, a second later: one event was seen."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(
        """
        create context C start pattern [a=A -> timer:interval(1 sec)] as begun
            end pattern [b=B(v = begun.a.v) -> timer:interval(1 sec)] as over;
        context C select context.begun.a.v as a, context.over.b.v as b, count(*) as n from Seen
        output snapshot when terminated
        """
    )
    assert runtime.active_filters() == 1  # the atom of A
    runtime.send("A", {"v": 1})
    runtime.advance(1_000)
    assert runtime.active_filters() == 2  # the atom of B, and the statement
    runtime.send("Seen", {"v": 0})
    runtime.send("B", [{"v": 2}, {"v": 1}])
    (ended,) = runtime.advance(2_000)
    assert rows_of(ended.new) == [{"a": 1, "b": 1, "n": 1}]
    assert runtime.active_filters() == 1


def test_an_event_starts_one_and_a_pattern_ends_it() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(
        "create context C start A as a end pattern [b=B(v = a.v) -> A];"
        "context C select count(*) as n, context.a.v as v from A"
    )
    given_rows = [("A", 1), ("B", 0), ("A", 0), ("B", 1), ("A", 5), ("A", 6)]
    made = [[rows_of(each.new) for each in _done(runtime, step)] for step in given_rows]
    first, second, last = [{"n": 1, "v": 1}], [{"n": 2, "v": 1}], [{"n": 1, "v": 6}]
    assert made == [[first], [], [second], [], [], [last]]


def _ends(starts: Sequence[Step], end: str) -> list[list[Any]]:
    """For each step the counts of Seen of the instances, each of which ends as a pattern of its own is complete."""
    clock, found = 0, list[list[Any]]()
    instances: list[tuple[epl.Runtime, list[int]]] = []
    for step in starts:
        clock = step if isinstance(step, int) else clock
        instances = [each for each in instances if not _done(each[0], step)]
        rows = []
        if not isinstance(step, int) and step[0] == "Seen":
            for _, counted in instances:
                counted[0] += 1
                rows.append({"n": counted[0]})
        if not isinstance(step, int) and step[0] == "A":
            instances.append((_waiting(end, clock), [0]))
        found.append(rows)
    return found


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.sampled_from(_ENDS), _scripts())
@examples(dear=True)
def test_each_of_several_ends_by_a_pattern_of_its_own(device: str, end: str, steps: list[Step]) -> None:
    runtime = epl.Runtime(_TYPES, device=device, start=0)
    runtime.deploy(
        f"create context C initiated by A as a terminated by pattern [{end}]; context C select count(*) as n from Seen"
    )
    for number, (step, wanted) in enumerate(zip(steps, _ends(steps, end), strict=True)):
        rows = [row for each in _done(runtime, step) for row in rows_of(each.new) or []]
        assert rows == wanted, (number, steps)


def test_the_end_of_one_names_the_events_that_started_it() -> None:
    """A(0), A(1); B(1), A ends the second, which was seen once: the first one lasts."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(
        """
        create context C initiated by pattern [every a=A(v < 2)] as begun
            terminated by pattern [b=B(v = begun.a.v) -> A(v = 2)] as over;
        context C select context.begun.a.v as a, context.over.b.v as b, count(*) as n from Seen
        output snapshot when terminated
        """
    )
    runtime.send("A", [{"v": 0}, {"v": 1}])
    assert runtime.active_filters() == 5  # the atom of A; of each one the atom of B, and the statement
    runtime.send("Seen", {"v": 0})
    runtime.send("B", {"v": 1})
    (ended,) = runtime.send("A", {"v": 2})
    assert rows_of(ended.new) == [{"a": 1, "b": 1, "n": 1}]


def test_a_start_and_an_end_have_tags_of_their_own() -> None:
    with pytest.raises(TextError, match="both call an event 'a'"):
        epl.Runtime(_TYPES).deploy("create context C start pattern [a=A -> B] end pattern [a=A -> B]")
