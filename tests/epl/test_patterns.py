"""Event patterns in statements: what a runtime delivers, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpu_ops import epl
from gpu_ops.errors import IntegerOverflowError, TextError

TYPES = {"A": {"id": "string", "v": "int"}, "B": {"id": "string", "v": "int"}, "C": {"id": "string", "v": "int"}}


def delivered(text: str, script: str, *, device: str = "cpu", together: bool = False, path: Path | None = None) -> Any:
    """What a statement delivers.

    Args:
        text: The statement; what it selects is shown by the values of its columns.
        script: Steps such as ``A:x1`` (an event with id x and v 1), and ``5s`` (the clock shows 5 seconds).
        device: Where it computes.
        together: Whether neighbouring events of a type are one batch.
        path: If given, the runtime is written there and restored between any two steps.
    """
    runtime = epl.Runtime(TYPES, start=0, device=device)
    (statement,) = runtime.deploy(f"@name('s') {text}")
    statement.deliveries()
    found: list[list[Any]] = []
    for step in _steps(script.split(), together=together):
        if isinstance(step, int):
            runtime.advance(step)
        else:
            runtime.send(*step)
        rows = runtime["s"].deliveries().to_pylist()
        for turn in dict.fromkeys(row["turn"] for row in rows):
            mine = [row for row in rows if row["turn"] == turn]
            found.append([tuple(value for name, value in row.items() if name not in {"turn", "row"}) for row in mine])
        if path is not None:
            runtime.checkpoint(path)
            runtime = epl.Runtime.restore(path, device=device)
            runtime["s"].deliveries()
    return found


def _steps(words: Sequence[str], *, together: bool) -> list[Any]:
    steps: list[Any] = []
    for word in words:
        if word.endswith("s") and word[0].isdigit():
            steps.append(int(float(word[:-1]) * 1000))
            continue
        name, event = word.split(":")
        row = {"id": event[0], "v": int(event[1:] or 0)}
        if together and steps and not isinstance(steps[-1], int) and steps[-1][0] == name:
            steps[-1][1].append(row)
        else:
            steps.append((name, [row]))
    return steps


CASES: dict[tuple[str, str], list[Any]] = {
    # The streams have one condition in common, which one of them does not ask of all its events.
    ("a.v, b.v from pattern [every a=A(v > 0) -> (b=B(v > 0) and not A)]", "A:x0 B:x1 A:x2 B:x3"): [[(2, 3)]],
    # Each open A takes the first larger B with its id.
    ("a.v, b.v from pattern [every a=A -> b=B(id=a.id, v>a.v)]", "A:x1 A:x5 A:y2 B:x3 B:y1 B:x9 B:y4"): [
        [(1, 3)],
        [(5, 9)],
        [(2, 4)],
    ],
    # No B within two seconds of an A; at two seconds it is too late.
    ("a.id from pattern [every a=A -> (timer:interval(2 sec) and not B(id=a.id))]", "A:x A:y 1s B:y 1.999s 2s"): [
        [("x",)]
    ],
    ("b.id from pattern [a=A -> (every b=B) where timer:within(2 sec)]", "A:x B:a 1.999s B:b 2s B:c"): [
        [("a",)],
        [("b",)],
    ],
    # every starts anew with each match, and what is below it goes on.
    ("b.v from pattern [every (every b=B)]", "B:x1 B:x2 B:x3"): [[(1,)], [(2,)] * 2, [(3,)] * 4],
    ("a.v, b.v from pattern [every a=A and b=B]", "A:x1 A:x2 B:x7 A:x3"): [[(1, 7), (2, 7)], [(3, 7)]],
    ("a.v, b.v from pattern [a=A or b=B]", "C:x B:x1 A:x2"): [[(None, 1)]],
    # What a tag says is null as long as no event has come for it, nor any of its type.
    ("a.v, b.v from pattern [a=C and b=A(a.v is null or v = a.v)]", "A:x1 C:x2"): [[(2, 1)]],
    ("a[0].v, a[1].v, b.v from pattern [every (a=A until b=B)]", "A:x1 A:x2 A:x3 B:x4 B:x5"): [
        [(1, 2, 4)],
        [(None, None, 5)],
    ],
    ("a[0].v, a[1].v from pattern [every [2] a=A]", "A:x1 A:x2 A:x3 A:x4"): [[(1, 2)], [(3, 4)]],
    # At most two A wait for a B.
    ("a.v, b.v from pattern [every a=A -[2]> b=B]", "A:x1 A:x2 A:x3 B:x9 A:x4 B:x8"): [[(1, 9), (2, 9)], [(4, 8)]],
    # One of each id, until it is forgotten.
    ("a.v from pattern [every-distinct(a.id, 5 sec) a=A]", "A:x1 A:x2 A:y3 4.9s A:x4 5s A:x5"): [
        [(1,)],
        [(3,)],
        [(5,)],
    ],
    ("a.v from pattern [(every a=A) while (a.v < 3)]", "A:x1 A:x2 A:x3 A:x1"): [[(1,)], [(2,)]],
    ("a.v from pattern [(every a=A) where timer:withinmax(9 sec, 2)]", "A:x1 A:x2 A:x3"): [[(1,)], [(2,)]],
    # The greatest level takes the event.
    ("a.v, b.v from pattern [every a=A or every b=A(v>2)@consume]", "A:x1 A:x3"): [[(1, None)], [(None, 3)]],
    # What shares an event with a match is dropped: the second start would have matched too.
    ("a.v, b.v from pattern @DiscardPartialsOnMatch [every a=A -> b=A -> B]", "A:x1 A:x2 A:x3 B:x1 B:x1"): [
        [(1, 2), (2, 3)]
    ],
    ("a.v, b.v from pattern @SuppressOverlappingMatches [every a=A -> b=B]", "A:x1 A:x2 B:x1"): [[(1, 1)]],
    ("count(*) from pattern [every timer:interval(1 sec)]", "0.5s 1s 3.5s 4.4s 4.5s"): [[(1,)], [(2,)], [(3,)]],
    ("count(*) from pattern [every timer:schedule(iso: 'R2/1970-01-01T00:00:01Z/PT2S')]", "1s 2s 3s 5s 7s"): [
        [(1,)],
        [(2,)],
    ],
    ("a.v from pattern [a=A -> every timer:at(*, *, *, *, *, a.v)]", "A:x7 6s 7s 66s 67s"): [[(7,)], [(7,)]],
    ("a.v from pattern [every a=A(v > 1)]#length(1)", "A:x1 A:x2 A:x3"): [[(2,)], [(3,)]],
    ("irstream a.v from pattern [every a=A]#lastevent", "A:x1 A:x2"): [[(1,)], [(2,), (1,)]],
}


@pytest.mark.parametrize(("text", "script"), CASES, ids=[text for text, _ in CASES])
def test_what_patterns_match(text: str, script: str) -> None:
    assert delivered(f"select {text}", script) == CASES[text, script]


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(("text", "script"), CASES, ids=[text for text, _ in CASES])
def test_no_cut_and_no_device_changes_matches(text: str, script: str, device: str) -> None:
    assert delivered(f"select {text}", script, device=device, together=True) == CASES[text, script]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "script"), CASES, ids=[text for text, _ in CASES])
def test_a_pattern_goes_on_from_a_checkpoint(text: str, script: str, tmp_path: Path) -> None:
    assert delivered(f"select {text}", script, path=tmp_path / "checkpoint") == CASES[text, script]


def test_what_an_atom_does_not_see() -> None:
    # An atom does not see the event with which it starts: the same event is not both.
    assert delivered("select a.v, b.v from pattern [a=A -> b=A]", "A:x1 A:x2") == [[(1, 2)]]
    # All atoms that an event fulfils are found before one is told; one with a condition is told first.
    assert delivered("select a.v from pattern [every (a=A and not A(v=2))]", "A:x1 A:x2 A:x3") == [[(1,)], [(3,)]]


def test_matches_are_events_of_another_stream() -> None:
    runtime = epl.Runtime(TYPES, start=0)
    _, statement = runtime.deploy("""
        insert into Pair select * from pattern [every a=A -> b=B(id=a.id)];
        select a.id, sum(b.v) as total from Pair group by a.id
    """)
    statement.deliveries()
    runtime.send("A", [{"id": "x", "v": 1}, {"id": "x", "v": 2}, {"id": "y", "v": 3}])
    runtime.send("B", [{"id": "x", "v": 5}, {"id": "y", "v": 6}])
    assert statement.deliveries()["total"].to_pylist() == [5, 10, 6]


def test_active_filters_are_the_atoms_that_wait() -> None:
    runtime = epl.Runtime(TYPES)
    runtime.deploy("select * from pattern [every a=A -> b=A(id = a.id)]")
    found = [runtime.active_filters()]
    for name in "xxy":
        runtime.send("A", {"id": name, "v": 1})
        found.append(runtime.active_filters())
    # The second x ends what waited for it, and another one waits.
    assert found == [1, 2, 2, 3]


def test_many_events_at_once_and_one_by_one() -> None:
    """The tables grow, and what is not needed any more is dropped."""
    text = "select a.v, b.v as w from pattern [every a=A -> (b=B(id=a.id, v>a.v) where timer:within(3 sec))]"
    found = []
    for together in (False, True):
        runtime = epl.Runtime(TYPES, start=0)
        (statement,) = runtime.deploy(text)
        rows = [{"id": "abcdefgh"[at * 7 % 8], "v": at * 31 % 97} for at in range(6000)]
        statement.deliveries()
        if together:
            runtime.send("A", rows[:3000], at=[at // 10 for at in range(3000)])
            runtime.send("B", rows[3000:])
        else:
            for at in range(0, 3000, 500):
                runtime.send("A", rows[at : at + 500], at=[each // 10 for each in range(at, at + 500)])
            for at in range(3000, 6000, 300):
                runtime.send("B", rows[at : at + 300])
        found.append([(row["v"] if "v" in row else row["a.v"], row["w"]) for row in statement.deliveries().to_pylist()])
    assert found[0] == found[1]
    assert len(found[0]) > 1000


WRONG = {
    "a=A -> b=B(k = a.id)": "There is no property and no tag 'k' here",
    "a=A -> b=B(v = c.v)": "There is no property and no tag 'c' here",
    "a=A -> b=B(id = a.name)": "The tag 'a' has no property 'name'",
    "[2] a=A -> b=B(id = a.id)": "'a' is a list of events",
    "a=A -> a=B": "The tag 'a' is that of events of another type",
    "[2:3] a=A": "A repeat with a range of times needs an end",
    "[2] ([2] a=A)": "gpu_ops has no repeats of repeats with tags",
    "a=A -> b=B(id || a.id = 'xy')": "gpu_ops has no conditions over several events that combine them so",
    "a=A where my:guard(1)": "gpu_ops has no guard 'my:guard'",
    "my:observer(1)": "gpu_ops has no observer 'my:observer'",
    "a=A@consume('x')": "@consume takes a whole number",
    "a=A where timer:within('x')": "A span of time is a number of seconds",
    "timer:schedule(iso: 'x')": "'x' is no date of ISO 8601",
    "timer:schedule(iso: 'R/P1M')": "gpu_ops has no schedules by months or years",
}


@pytest.mark.parametrize("pattern", WRONG)
def test_what_there_is_not_is_named(pattern: str) -> None:
    with pytest.raises(TextError) as error:
        epl.Runtime(TYPES).deploy(f"select * from pattern [{pattern}]")
    assert WRONG[pattern] in str(error.value)


def test_a_number_that_does_not_fit_is_an_error() -> None:
    runtime = epl.Runtime(TYPES)
    runtime.deploy("select a.v from pattern [every a=A -> b=B(v + a.v > 0)]")
    runtime.send("A", {"id": "x", "v": (1 << 31) - 1})
    with pytest.raises(IntegerOverflowError, match="does not fit"):
        runtime.send("B", {"id": "x", "v": 1})
