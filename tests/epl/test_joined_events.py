"""Aggregates of events in joins: each event once, in the order in which they met others; and what is output of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_recorded import same

_TYPES = {"A": {"k": "string", "v": "int"}, "B": {"k": "string", "w": "int"}}

_SCRIPT = """
select first(v) as f, first(v, 1) as g, last(v) as l, last(v, 1) as m, window(v) as vs, window(w) as ws
    from A#length(3) as a, B#length(2) as b;
select window(a, filter: v > 1) as s, sorted(w) as so, maxby(v).k as m, firstever(v) as fe, lastever(w) as le
    from A#length(3) as a, B#lastevent as b;
select a.k as k, window(v) as vs, last(w) as l
    from A#length(3) as a, B#length(3) as b where a.k = b.k group by a.k;
select irstream a.k as k, v, sum(w) as s
    from A#time(3 sec) as a, B#length(4) as b where a.k = b.k group by a.k output all every 2 sec;
select a.k as k, v, sum(w) as s
    from A#length(3) as a, B#length(4) as b where a.k = b.k group by a.k output first every 2 events;
select irstream a.k as k, sum(w) as s
    from A#time(3 sec) as a, B#lastevent as b group by a.k output last every 1 sec;
select irstream k, v, sum(v) as s from A#time(3 sec) group by k output all every 1 sec
"""


def test_each_event_is_there_once() -> None:
    """Of a join of A and B.

    turn    A    B      rows               window(v)  window(w)
       1    1           -
       2         7      1-7                [1]        [7]
       3         8      1-7 1-8            [1]        [7, 8]
       4    2           1-7 1-8 2-7 2-8    [1, 2]     [7, 8]
    """
    engine = RuntimeEngine(_TYPES)
    engine.deploy("@name('s') select window(v) as vs, window(w) as ws, last(v) as l from A#keepall, B#keepall")
    events: list[tuple[str, dict[str, Any]]] = [
        ("A", {"k": "x", "v": 1}),
        ("B", {"k": "x", "w": 7}),
        ("B", {"k": "x", "w": 8}),
        ("A", {"k": "x", "v": 2}),
    ]
    told = [each for name, row in events for each in engine.send(name, row)]
    assert [each.new for each in told] == [
        [{"vs": [1], "ws": [7], "l": 1}],
        [{"vs": [1], "ws": [7, 8], "l": 1}],
        [{"vs": [1, 2], "ws": [7, 8], "l": 2}],
    ]


@pytest.mark.parametrize("text", _SCRIPT.split(";"))
@pytest.mark.parametrize("device", ["cpu", "array"])
def test_as_the_interpreter(text: str, device: str) -> None:
    for seed in range(2 if device == "cpu" else 1):
        rng = random.Random(f"{text} {seed}")
        runtime, interpreter = RuntimeEngine(_TYPES, 0, device), Interpreter(_TYPES, 0)
        for engine in (runtime, interpreter):
            engine.deploy(f"@name('s') {text}")
        now = 0
        for _ in range(12):
            some, wanted = [], []
            if rng.random() < 0.3:
                now += rng.choice([500, 1000, 2000, 4000])
                some, wanted = [*runtime.advance(now)], [*interpreter.advance(now)]
            else:
                name, value = rng.choice([("A", "v"), ("B", "w")])
                rows = [{"k": rng.choice("xy"), value: rng.randint(0, 4)} for _ in range(rng.randint(1, 4))]
                some = [*runtime.send(name, rows)]
                wanted = [each for row in rows for each in interpreter.send(name, row)]
            assert len(some) == len(wanted)
            for mine, theirs in zip(some, wanted, strict=True):
                assert same(mine.new, theirs.new, in_any_order=True), (mine, theirs)
                assert same(mine.old, theirs.old, in_any_order=True), (mine, theirs)
