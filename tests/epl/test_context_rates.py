"""Groups that are output every so many events of an instance, and at its end: beside lists, event by event."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl import Runtime
from tests.support.examples import examples

TYPES = {"A": {"k": "string", "v": "int"}, "Begin": {"i": "int"}, "End": {"i": "int"}}
TEXT = """
    create context C initiated by Begin as b terminated by End(i = b.i);
    context C select context.b.i as i, k, sum(v) as s from A group by k output {which} every 2 events {ends} order by k
"""
A = st.tuples(st.just("A"), st.sampled_from("abc"), st.integers(0, 9))
EVENT = A | A | A | st.tuples(st.sampled_from(["Begin", "End"]), st.integers(1, 2), st.just(0))


class _Life:
    """An instance: the sums, and what waits since the last output."""

    def __init__(self, i: int) -> None:
        self.i, self.sums, self.waiting = i, dict[str, int](), list[tuple[str, int]]()

    def row(self, k: str, s: int) -> dict[str, Any]:
        return {"i": self.i, "k": k, "s": s}

    def output(self, which: str) -> list[dict[str, Any]] | None:
        rows = {"all": [*self.sums.items()], "last": [*dict(self.waiting).items()], "": self.waiting}[which]
        self.waiting = []
        return [self.row(*each) for each in sorted(rows, key=lambda row: row[0])] or None


def _expected(events: list[Any], which: str, *, ends: bool) -> list[Any]:
    lives: list[_Life] = []
    told: list[Any] = []
    for kind, key, v in events:
        if kind == "Begin":
            lives.append(_Life(key))
        elif kind == "End":
            gone = [each for each in lives if each.i == key]
            lives = [each for each in lives if each.i != key]
            told += [each.output(which) for each in gone] if ends else []
        else:
            for each in lives:
                each.sums[key] = each.sums.get(key, 0) + v
                each.waiting.append((key, each.sums[key]))
                if len(each.waiting) == 2:
                    told.append(each.output(which))
    return told


def _note(told: list[Any], new: Any, old: Any, statement: Any) -> None:
    del old, statement
    told.append(None if new is None else new.to_pylist())


@examples(dear=True)
@given(
    st.lists(EVENT, max_size=14), st.sampled_from(["all", "last", ""]), st.booleans(), st.sampled_from(["cpu", "array"])
)
def test_beside_lists(events: list[Any], which: str, ends: bool, device: str) -> None:  # noqa: FBT001
    # One instance at a time: what several deliver at one turn is one delivery, or one of each.
    alive, some = False, list[Any]()
    for each in events:
        if each[0] == "A" or (each[0] == "Begin") != alive:
            alive = alive if each[0] == "A" else not alive
            some.append(each if each[0] == "A" else (each[0], 1, 0))
    text = TEXT.format(which=which, ends="and when terminated" if ends else "")
    for together in (False, True):
        runtime = Runtime(TYPES, device=device)
        told: list[Any] = []
        runtime.deploy(text)[-1].listen(partial(_note, told))
        at = 0
        while at < len(some):
            until = at + 1
            while together and until < len(some) and some[until][0] == some[at][0]:
                until += 1
            rows = [{"k": k, "v": v} if kind == "A" else {"i": k} for kind, k, v in some[at:until]]
            runtime.send(some[at][0], rows)
            at = until
        assert told == _expected(some, which, ends=ends)


@pytest.mark.parametrize("device", ["cpu", "array"])
def test_instances_side_by_side(device: str) -> None:
    # Begin 1   a 1   b 2      Begin 2   a 3   a 4      c 5   End 1      End 2
    # 1:              a 1, b 2                 a 8, b 2       a 8, b 2, c 5
    # 2:                                       a 7                       a 7, c 5
    runtime = Runtime(TYPES, device=device)
    told: list[Any] = []
    text = TEXT.format(which="all", ends="and when terminated")
    runtime.deploy(text)[-1].subscribe(lambda i, k, s: told.append((i, k, s)))
    runtime.send("Begin", {"i": 1})
    runtime.send("A", [{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    runtime.send("Begin", {"i": 2})
    runtime.send("A", [{"k": "a", "v": 3}, {"k": "a", "v": 4}, {"k": "c", "v": 5}])
    assert told[:2] == [(1, "a", 1), (1, "b", 2)]
    assert sorted(told[2:]) == [(1, "a", 8), (1, "b", 2), (2, "a", 7)]
    del told[:]
    runtime.send("End", [{"i": 1}, {"i": 2}])
    assert sorted(told) == [(1, "a", 8), (1, "b", 2), (1, "c", 5), (2, "a", 7), (2, "c", 5)]
