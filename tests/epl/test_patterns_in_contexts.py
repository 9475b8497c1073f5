"""A pattern in a context is one for each instance: it begins as that starts, and is over at its end.

The brute force has a runtime of its own for each instance, without a context, to which its events are sent alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from gpu_ops.operators.runtime import released
from tests.support.epl_on_runtime import rows_of
from tests.support.examples import examples

_TYPES = {"A": {"k": "string", "v": "int"}, "Begin": {"n": "int"}, "End": {"n": "int"}}
_PATTERNS = [
    "every a=A",
    "a=A(v > 1)",
    "every a=A -> b=A(v > a.v)",
    "every a=A -> (b=A(v = a.v) and not A(v = 0))",
    "every a=A(v < 2) -> timer:interval(3 sec)",
    "timer:interval(0) -> a=A",
    "every timer:interval(2 sec) -> a=A",
    "every (timer:interval(4 sec) and not a=A)",
    "every (a=A(v = 0) or b=A(v = 3))",
    "[2] a=A until timer:interval(3 sec)",
    "every a=A -> b=A where timer:within(2 sec)",
    "every-distinct(a.v, 3 sec) a=A",
]
_SHOWN = {"a": "a.v as a", "b": "b.v as b"}

Step = tuple[str, dict[str, Any]] | int


def _text(pattern: str) -> str:
    tags = [tag for tag in _SHOWN if f"{tag}=" in pattern]
    if pattern.startswith("["):
        return f"select a[0].v as a, a[1].v as b from pattern [{pattern}]"
    return f"select {', '.join([*(_SHOWN[tag] for tag in tags), '1 as one'])} from pattern [{pattern}]"


@st.composite
def _scripts(draw: st.DrawFn) -> list[Step]:
    clock, steps = 0, list[Step]()
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["A", "A", "A", "A", "Begin", "End", "clock", "clock"]))
        if kind == "clock":
            clock += draw(st.sampled_from([500, 1000, 2000, 7000]))
            steps.append(clock)
        elif kind == "A":
            steps.append(("A", {"k": draw(st.sampled_from(["x", "y", None])), "v": draw(st.integers(0, 3))}))
        else:
            steps.append((kind, {"n": draw(st.integers(0, 1))}))
    return steps


class _Instance:
    """One instance: a runtime that begins with it."""

    def __init__(self, pattern: str, clock: int, number: int = 0, ends: int | None = None) -> None:
        self.runtime = epl.Runtime(_TYPES, start=clock)
        self.runtime.deploy(_text(pattern))
        self.number, self.ends = number, ends
        self.began = rows_of_all(self.runtime.advance(clock))

    def sent(self, step: Step) -> list[Any]:
        made = self.runtime.advance(step) if isinstance(step, int) else self.runtime.send(*step)
        return rows_of_all(made)


def rows_of_all(deliveries: Any) -> list[Any]:
    return [row for each in deliveries for row in rows_of(each.new) or []]


def _within(pattern: str, steps: Sequence[Step], *, keyed: bool, lasts: int | None) -> list[list[Any]]:
    """What each step delivers: the rows of all instances together."""
    instances: dict[Any, _Instance] = {}
    clock, found, count = 0, [], 0
    for step in steps:
        rows: list[Any] = []
        if isinstance(step, int):
            # What falls due before its end an instance gives still.
            rows = [row for each in instances.values() for row in each.sent(min(step, each.ends or step))]
            instances = {at: each for at, each in instances.items() if each.ends is None or each.ends > step}
            clock = step
        elif keyed and step[0] == "A":
            key = step[1]["k"]
            if key not in instances:
                instances[key] = _Instance(pattern, clock)
                rows += instances[key].began
            rows += instances[key].sent(step)
        elif step[0] == "Begin" and not keyed:
            instances[count] = _Instance(pattern, clock, step[1]["n"], None if lasts is None else clock + lasts)
            rows = instances[count].began
            count += 1
        elif step[0] == "End" and not keyed and lasts is None:
            number = step[1]["n"]
            instances = {at: each for at, each in instances.items() if each.number != number}
        elif step[0] == "A":
            rows = [row for each in instances.values() for row in each.sent(step)]
        found.append(rows)
    return found


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return sorted(map(repr, one)) == sorted(map(repr, other))


_CONTEXTS = {
    "keyed": "create context C partition by k from A;",
    "initiated": "create context C initiated by Begin as b terminated by End(n = b.n);",
    "lasting": "create context C initiated by Begin as b terminated after 5 sec;",
}


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("kind", list(_CONTEXTS))
@given(st.sampled_from(_PATTERNS), _scripts())
@examples(dear=True)
def test_each_instance_has_a_pattern(kind: str, device: str, pattern: str, steps: list[Step]) -> None:
    runtime = epl.Runtime(_TYPES, start=0, device=device)
    runtime.deploy(f"{_CONTEXTS[kind]} context C {_text(pattern)}")
    wanted = _within(pattern, steps, keyed=kind == "keyed", lasts=5_000 if kind == "lasting" else None)
    for number, (step, rows) in enumerate(zip(steps, wanted, strict=True)):
        made = runtime.advance(step) if isinstance(step, int) else runtime.send(*step)
        assert _same(rows_of_all(made), rows), (number, step, steps)


@given(st.sampled_from(_PATTERNS), st.sampled_from(list(_CONTEXTS)), _scripts(), st.data())
@examples(dear=True)
def test_no_cut_no_checkpoint_and_no_release_changes_matches(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, kind: str, steps: list[Step], data: st.DataObject
) -> None:
    text = f"{_CONTEXTS[kind]} context C {_text(pattern)}"
    singly, together = (epl.Runtime(_TYPES, start=0) for _ in range(2))
    for each in (singly, together):
        each.deploy(text)
    path = tmp_path_factory.mktemp("kept") / "runtime.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released, "FEW", 1)
        for is_event, some in groupby(steps, lambda step: not isinstance(step, int) and step[0]):
            if data.draw(st.booleans()):
                together.checkpoint(path)
                together = epl.Runtime.restore(path)
            wanted, found = list[Any](), list[Any]()
            if is_event:
                rows = [step[1] for step in some if not isinstance(step, int)]
                wanted += [row for each in rows for row in rows_of_all(singly.send(str(is_event), each))]
                found += rows_of_all(together.send(str(is_event), rows))
            else:
                for step in some:
                    assert isinstance(step, int)
                    wanted += rows_of_all(singly.advance(step))
                    found += rows_of_all(together.advance(step))
            assert _same(found, wanted)


def test_properties_of_the_context_are_in_filters_and_spans() -> None:
    """Begin 1 at 0; at 1000 its timer; A(v=1) fits its number, A(v=2) does not; the instance has one filter."""
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy(
        """
        create context C initiated by Begin as b terminated by End(n = b.n);
        @name('filter') context C select a.v as v, context.b.n as n from pattern [every a=A(v = context.b.n)];
        @name('timer') context C select context.b.n as n from pattern [timer:interval(context.b.n)];
        """
    )
    assert runtime.active_filters() == 1
    runtime.send("Begin", {"n": 1})
    assert runtime.active_filters() == 3  # what begins, what ends, and the atom of A
    assert rows_of_all(runtime.send("A", [{"k": "x", "v": 1}, {"k": "x", "v": 2}])) == [{"v": 1, "n": 1}]
    assert rows_of_all(runtime.advance(1_000)) == [{"n": 1}]
    runtime.send("End", {"n": 1})
    assert runtime.active_filters() == 1


def test_the_events_before_the_last_one_of_a_pattern_are_refused_where_they_are_within() -> None:
    runtime = epl.Runtime(_TYPES, start=0)
    runtime.deploy("create context C initiated by pattern [every a=A -> b=Begin]@Inclusive terminated after 1 sec")
    with pytest.raises(TextError, match="the events of a pattern before the one that starts an instance"):
        runtime.deploy("context C select * from pattern [every a=A -> b=Begin]")
    runtime.deploy("@name('begun') context C select n from Begin")
    runtime.send("A", {"k": "x", "v": 1})
    assert rows_of_all(runtime.send("Begin", {"n": 3})) == [{"n": 3}]
