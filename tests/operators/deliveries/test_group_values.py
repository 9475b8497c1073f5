"""Groups of which no row is left are forgotten, and come again under another number."""

from __future__ import annotations

import random
from collections import deque

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.operators.state import rows as state
from tests.support.devices import HERE
from tests.support.examples import examples

Row = tuple[int, int, int | None]
"""A key, how many rows of it are in the window, and the sum or the greatest of their values."""


def by_hand(events: list[tuple[int, int]], size: int, kind: str) -> list[Row]:
    """What each arrival delivers: its own group, and that of the row that leaves."""
    window, made = deque[tuple[int, int]](), list[Row]()
    for key, value in events:
        window.append((key, value))
        gone = [window.popleft()[0]] if len(window) > size else []
        for touched in dict.fromkeys([key, *gone]):
            here = [other for each, other in window if each == touched]
            made.append((touched, len(here), (sum if kind == "sum" else max)(here) if here else None))
    return made


@pytest.mark.parametrize("kind", ["sum", "max"])
@examples(20)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5)), max_size=60), st.sampled_from(HERE), st.randoms())
def test_values_of_groups_that_are_forgotten(
    kind: str, events: list[tuple[int, int]], device: str, chance: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_CROWD", 1)
        runtime = epl.Runtime({"E": {"k": "long", "v": "long"}}, device=device)
        (statement,) = runtime.deploy(f"select k, count(*) as n, {kind}(v) as m from E#length(3) group by k")
        statement.deliveries()
        rest = events
        while rest:
            size = chance.choice([1, 3, len(rest)])
            runtime.send("E", pa.table({name: [row[at] for row in rest[:size]] for at, name in enumerate("kv")}))
            rest = rest[size:]
        found = [(row["k"], row["n"], row["m"]) for row in statement.deliveries().to_pylist()]
    assert found == by_hand(events, 3, kind)
