"""What a plan costs before any row is read grows with its length, not with the square of it.

Calls of gpu_ops' own functions are counted, not seconds: a walk of all nodes for each node would double its share.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g

OURS = str(Path(g.__file__).parent)
SHORT = 10

Verb = Callable[[g.Stream], g.Stream]


def source() -> g.Stream:
    return g.events(pa.table({"at": [0, 1, 2], "v": [1, 2, 3]}), start="at", unit="s", name="s")


OTHER = source()
VERBS: dict[str, Verb] = {
    "union": lambda s: s.union(source()),
    "union with one": lambda s: s.union(OTHER),
    "join": lambda s: s.join(OTHER, on="v"),
    "anti join": lambda s: s.join(OTHER, on="v", how="anti"),
    "as-of join": lambda s: s.asof_join(OTHER, on="v"),
    "clip": lambda s: s.clip_by(OTHER, on="v"),
    "filter": lambda s: s.filter(g.col("v") > 0),
    "with_columns": lambda s: s.with_columns(v=g.col("v") + 0),
    "select": lambda s: s.select("v"),
    "group": lambda s: s.by("v"),
    "shift": lambda s: s.shift("1s"),
    "set_duration": lambda s: s.set_duration("1s"),
    "tumbling": lambda s: s.tumbling("1s").agg(v=g.max("v")),
    "snapshot": lambda s: s.snapshot().agg(v=g.max("v")),
    "last": lambda s: s.last(2).agg(v=g.max("v")),
    "distinct": lambda s: s.distinct("v"),
    "stitch": lambda s: s.stitch(),
}
NOT_STARTED = {"union", "union with one", "join", "anti join", "as-of join", "clip"}
"""Their inputs would need names of their own."""


def calls(work: Callable[[], Any]) -> tuple[int, Any]:
    """How many of gpu_ops' own functions, and generators' turns, a piece of work calls; and what it returns."""
    count = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        del arg
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(OURS)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        made = work()
    finally:
        sys.setprofile(before)
    return count, made


def chain(verb: Verb, length: int) -> g.Stream:
    stream = source()
    for _ in range(length):
        stream = verb(stream)
    return stream


def costs(name: str, length: int) -> dict[str, int]:
    built, stream = calls(lambda: chain(VERBS[name], length))
    found = {"building": built, "explain": calls(lambda: stream.explain(device="cpu"))[0]}
    found["collect"] = calls(lambda: stream.collect(device="cpu"))[0]
    if name not in NOT_STARTED:
        found["start"] = calls(lambda: stream.start(device="cpu"))[0]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_twice_as_long_a_plan_costs_twice_as_much(name: str) -> None:
    costs(name, 1)  # what is looked up once for all
    short, long = costs(name, SHORT), costs(name, 2 * SHORT)
    assert {what: round(long[what] / short[what], 1) for what in short if long[what] > 2.1 * short[what]} == {}


def test_a_walk_comes_to_each_node_once_inputs_first() -> None:
    one = OTHER.shift("1s")
    nodes = list(one.union(one.filter(g.col("v") > 0), OTHER)._node.walk())
    assert [type(node).__name__ for node in nodes] == ["Source", "Lifetime", "Filter", "Union"]


def test_the_text_of_a_long_plan_grows_with_its_length() -> None:
    def shown(steps: int) -> str:
        stream = source()
        for _ in range(steps):
            stream = stream.shift("1s")
        return stream.explain(device="cpu")

    sizes = [len(shown(steps)) for steps in (100, 200, 300)]
    assert abs((sizes[2] - sizes[1]) - (sizes[1] - sizes[0])) < 500
    few = shown(10)
    assert "level" not in few
    assert few.count("└─ ") == 10
    assert shown(100).count("(level ") == 100 - 29


def test_a_thread_with_a_small_stack_takes_fewer_steps() -> None:
    def asked(steps: int) -> int:
        stream = source()
        for _ in range(steps):
            stream = stream.tumbling("1s").agg(v=g.max("v"))
        return int(stream.collect(device="cpu").num_rows)

    before = threading.stack_size(512 << 10)
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(asked, 90).result() == 3
            with pytest.raises(g.PlanError, match="at most 100 are possible here"):
                pool.submit(asked, 200).result()
    finally:
        threading.stack_size(before)
