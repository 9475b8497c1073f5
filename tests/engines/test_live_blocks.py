"""Running queries in blocks of a few events, on several threads: the answer of a batch, for any cut; and interrupts.

A large group is cut in time within a step as within a batch. Half of the events have one key.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core import threads
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import QueryFailedError
from gpu_ops.operators.row_windows import incremental
from tests.support import live_plans
from tests.support.cuts import gone_on, in_any_cut, in_some_order, remembered
from tests.support.examples import examples
from tests.support.live_plans import Query, source, table, told
from tests.support.rows import rows
from tests.support.threads import in_blocks, with_threads
from tests.support.ticks import at_us

HOT = live_plans.events.map(lambda events: [(*e[:2], "a" if at % 2 else e[2], *e[3:]) for at, e in enumerate(events)])

pytestmark = pytest.mark.slow

KEYS: dict[str, Query] = {"no key": lambda s: s, "a hot key": lambda s: s.by("k"), "integers": lambda s: s.by("v")}

QUERIES: dict[str, Query] = {
    "sliding": lambda s: s.sliding("12us").agg(n=g.count(), x=g.sum("x"), most=g.max("v")),
    "snapshot": lambda s: s.snapshot().agg(m=g.mode("v"), all=g.collect_list("x"), n=g.count()),
    "hopping": lambda s: s.clip_duration("30us").hopping("10us", "4us").agg(m=g.mean("x"), n=g.nth("v", -1)),
    "session": lambda s: s.session("4us").agg(n=g.count(), x=g.sum("x")),
    "session with a cap": lambda s: s.session("4us", cap="11us").rows(),
    "session on a grid": lambda s: s.session("4us", grid_cap="9us").rows(),
    "session, changes": lambda s: s.session("5us").changes(),
    "session, each": lambda s: s.session("5us").each(n=g.count(), y=g.sum("x")),
    "running session, each": lambda s: s.session("5us", running=True).each(n=g.count(), y=g.sum("x")),
    "last": lambda s: s.last(3).agg(m=g.mean("x"), n=g.count()),
    "last, each": lambda s: s.last(3).each(m=g.mean("x"), kinds=g.count_distinct("v")),
    "batches": lambda s: s.time_batches("9us").agg(n=g.count()),
    "join": lambda s: s.join(s.filter(g.col("v") > 0), on="k", how="left"),
    "as of": lambda s: s.asof_join(s.filter(g.col("v") > 0), on="k"),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("query", QUERIES)
@examples(4, kinds=True)
@given(events=HOT, seed=st.integers(0, 1 << 30), size=st.integers(1, 4), count=st.sampled_from([1, 2, 7]))
def test_a_running_query_in_blocks_gives_what_a_batch_gives(
    tmp_path_factory: pytest.TempPathFactory,
    query: str,
    key: str,
    events: list[tuple[Any, ...]],
    seed: int,
    size: int,
    count: int,
) -> None:
    asked = QUERIES[query](KEYS[key](source(table(events))))
    given_events = in_some_order(table(events), random.Random(seed))
    expected = rows(asked.collect(device="cpu"))
    folder = tmp_path_factory.mktemp("cut")

    def found(threads_: int) -> pa.Table:
        # However few rows a session has, a step does not read them before it ends.
        few = mock.patch.multiple(incremental, MANY=0, FEW=0)
        with in_blocks(size), with_threads(threads_, part=size), few:
            return in_any_cut(asked, given_events, "cpu", random.Random(seed), folder)

    alone = found(1)
    assert rows(alone) == expected
    assert repr(told(found(count))) == repr(told(alone))


@contextmanager
def interrupted(at: int) -> Iterator[None]:
    """The ``at``-th part that runs in parallel is interrupted."""
    worked, left = threads._worked, [at]

    def work(function: Callable[[Any], Any], item: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return worked(function, item)

    with mock.patch.object(threads, "_worked", work):
        yield


@pytest.mark.parametrize("query", QUERIES)
@examples(6, kinds=True)
@given(events=HOT, seed=st.integers(0, 1 << 30), at=st.integers(1, 25))
def test_an_interrupt_in_a_part_leaves_a_step_undone_or_the_query_failed(
    tmp_path_factory: pytest.TempPathFactory, query: str, events: list[tuple[Any, ...]], seed: int, at: int
) -> None:
    asked = QUERIES[query](source(table(events)).by("k"))
    chance, given_events, path = random.Random(seed), table(events), tmp_path_factory.mktemp("interrupted") / "c"
    given_events = given_events.sort_by("start")
    starts = given_events["start"].cast(pa.int64()).to_pylist()
    cut = chance.randrange(len(starts)) if starts else 0
    calls: list[Callable[[RunningQuery], None]] = [
        lambda live: live.push(given_events.slice(0, cut)),
        lambda live: live.advance(at_us(min(starts[cut:], default=0))),
        lambda live: live.push(given_events.slice(cut)),
        lambda live: live.advance(at_us(chance.randrange(30, 90))),
        lambda live: live.close(),
    ]
    with in_blocks(2), with_threads(2, part=1):
        live = asked.start(device="cpu")
        for call in calls[:2]:
            call(live)
        live = gone_on(live, asked, path, "cpu")
        number = 2
        while number < len(calls):
            before = remembered(live)
            try:
                with interrupted(at):
                    calls[number](live)
            except KeyboardInterrupt:
                break
            number += 1
        if number < len(calls):
            if live.status().failed is None:
                assert remembered(live) == before
            else:
                with pytest.raises(QueryFailedError):
                    live.checkpoint(path.with_name("later"))
                live, number = g.restore(path, asked, device="cpu"), 2
        for call in calls[number:]:
            call(live)
        assert rows(live.results()) == rows(asked.collect(device="cpu"))
