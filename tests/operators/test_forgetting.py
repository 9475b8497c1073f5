"""Groups of data windows that are over: they are forgotten where no later event could tell, and only there."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import DataWindowed
from gpu_ops.operators.state import rows as state
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import events, source, table
from tests.support.rows import rows
from tests.support.ticks import at_us

FORGET: dict[str, Callable[[g.Stream], DataWindowed]] = {
    "last span": lambda s: s.last_span("4us"),
    "session": lambda s: s.session("3us"),
    "session with a cap": lambda s: s.session("3us", cap="7us"),
    "time batches on a grid": lambda s: s.time_batches("4us", align=at_us(0)),
    "time batches of days": lambda s: s.time_batches("1d", align=None, zone="UTC"),
    "first span of all": lambda s: s.first_span("20us", since=at_us(5)),
    "time length batches": lambda s: s.time_length_batches("3us", 2),
    "while": lambda s: s.keep_while(g.window.newest("v") > 0),
    "together": lambda s: s.last(2).intersect(s.last_span("5us")),
}
REMEMBER: dict[str, Callable[[g.Stream], DataWindowed]] = {
    "last": lambda s: s.last(2),
    "batches": lambda s: s.batches(2),
    "only every third": lambda s: s.last(1, every=3),
    "count window": lambda s: s.count_window(2),
    "first": lambda s: s.first(1),
    "first unique": lambda s: s.first_unique("t"),
    "first span": lambda s: s.first_span("9us"),
    "unique": lambda s: s.unique("t"),
    "highest": lambda s: s.highest(1, "v"),
    "time batches": lambda s: s.time_batches("4us"),
    "session on a grid": lambda s: s.session("3us", grid_cap="5us"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORGET | REMEMBER)
@examples(10, kinds=True)
@given(events, st.sampled_from(HERE), st.sampled_from(["changes", "each", "agg"]), st.randoms(use_true_random=False))
def test_whoever_comes_later_cannot_tell(
    kind: str, tmp_path_factory: Any, events: list[Any], device: str, gives: str, chance: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_CROWD", 1)
        arrived = in_some_order(table(events), chance)
        window = (FORGET | REMEMBER)[kind](source(arrived).by("k", "t"))
        asks: dict[str, Callable[[], g.Stream]] = {
            "changes": window.changes,
            "each": lambda: window.each(n=g.count(), m=g.median("v")),
            "agg": lambda: window.agg(n=g.count(), m=g.median("v"), d=g.count_distinct("x"), b=g.max("t")),
        }
        query = asks[gives]()
        found = in_any_cut(query, arrived, device, chance, tmp_path_factory.mktemp("any"))
        assert rows(found) == rows(query.collect(device=device))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORGET)
def test_groups_of_which_nothing_is_left_are_forgotten(kind: str) -> None:
    live = FORGET[kind](source(table([])).by("k")).changes().start(device="cpu")
    day = 86_400_000_000 if kind == "time batches of days" else 1
    for step in range(0, 30_000, 2_000):
        live.push(table([(day * at, day * at + 1, str(at), 0, None, None) for at in range(step, step + 2_000)]))
        live.advance(at_us(day * (step + 2_000)))
        live.results()
    (groups,) = (each for name, each in live.state().items() if name.endswith("groups"))
    assert len(groups) < 10_000


@pytest.mark.parametrize("kind", REMEMBER)
def test_what_counts_from_the_first_event_on_remembers_its_groups(kind: str) -> None:
    live = REMEMBER[kind](source(table([])).by("k")).changes().start(device="cpu")
    for step in range(0, 10_000, 2_000):
        live.push(table([(at, at + 1, str(at), 0, None, None) for at in range(step, step + 2_000)]))
        live.advance(at_us(step + 2_000))
    (groups,) = (each for name, each in live.state().items() if name.endswith("groups"))
    assert len(groups) == 10_000
    assert isinstance(groups, pa.Table)
