"""Blocks: a group that is larger than a block is cut in time, and what is alive at the cut is in both blocks.

A block of two events, of one group:

    a ├───────────────────────┤      block 1: a and b, up to the start of b
    b      ├────┤                    block 2: a, b and c, from there to the start of c
    c            ├──────┤            block 3: a, c and d, from there to the start of d
    d                 ├───────┤      block 4: a, c and d, from there on
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.devices import Device, choose
from gpu_ops.engines.local import engine as local
from tests.support.examples import examples
from tests.support.rows import rows
from tests.support.threads import with_threads
from tests.support.ticks import us

AGGREGATES: dict[str, Callable[[], dict[str, Any]]] = {
    "sums": lambda: {"n": g.count(), "whole": g.sum("v"), "mean": g.mean("x"), "spread": g.variance("x")},
    "extremes": lambda: {"most": g.max("v"), "least": g.min("x"), "first": g.first("v"), "last": g.last("x")},
    "orders": lambda: {"middle": g.median("v"), "kinds": g.count_distinct("v"), "all": g.collect_list("v")},
    "some": lambda: {"big": g.sum("v", where=g.col("x") > 0), "once": g.sum("v", distinct=True)},
}

WINDOWS: dict[str, Callable[[Stream], Any]] = {
    "snapshot": lambda s: s.snapshot(),
    "sliding": lambda s: s.sliding(us(7)),
    "hopping": lambda s: s.hopping(us(7), every=us(3)),
    "hopping with gaps": lambda s: s.hopping(us(2), every=us(5)),
    "hopping by start": lambda s: s.hopping(us(4), every=us(2), membership="start"),
    "tumbling": lambda s: s.tumbling(us(5)),
}


def in_blocks(stream: Stream, device: Device, size: int | None, threads: int = 1) -> Any:
    """The rows of an answer that is computed in blocks of about some number of events."""
    with with_threads(threads):
        return rows(pa.concat_tables(local.tables(stream._node, replace(device, block_rows=size))))


KEYS = ["aaab", "abcdefghij", "aaaaaaaaaabcdefg", "aaaaabbbbbc"]
"""Groups of about one size, of two sizes, and one or two large ones beside many small ones."""


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Up to 50 events that begin close together: some are long, some begin at one time, some never end."""
    count = draw(st.integers(3, 50))
    start = draw(st.lists(st.integers(0, 25), min_size=count, max_size=count))
    length = draw(st.lists(st.sampled_from([1, 1, 2, 5, 9, 40]), min_size=count, max_size=count))
    values = draw(st.lists(st.none() | st.integers(-4, 4), min_size=count, max_size=count))
    floats = draw(st.lists(st.sampled_from([None, 0.1, -2.5, 1e300, -1e300, 3.0]), min_size=count, max_size=count))
    ends = [begin + more for begin, more in zip(start, length, strict=True)]
    keys = draw(
        st.sampled_from(KEYS).flatmap(lambda keys: st.lists(st.sampled_from(keys), min_size=count, max_size=count))
    )
    return pa.table(
        {
            "start": pa.array(start, pa.int64()),
            "end": pa.array(ends, pa.int64()),
            "k": keys,
            "v": pa.array(values, pa.int64()),
            "x": pa.array(floats, pa.float64()),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("aggregates", AGGREGATES)
@pytest.mark.parametrize("window", WINDOWS)
@examples(6, kinds=True)
@given(table=tables(), size=st.integers(1, 9), key=st.sampled_from([[], ["k"]]), threads=st.integers(1, 2))
def test_a_window_gives_the_same_in_blocks_of_any_size(
    device: Device, window: str, aggregates: str, table: pa.Table, size: int, key: list[str], threads: int
) -> None:
    stream = g.events(table, start="start", end="end", unit="us")
    asked = WINDOWS[window](stream.by(*key) if key else stream).agg(**AGGREGATES[aggregates]())
    assert in_blocks(asked, device, size, threads) == in_blocks(asked, device, None)


MANY = 20_000
"""More events than a kernel for few of them takes."""

LARGE: dict[str, Callable[[Stream], Stream]] = {
    "sliding": lambda s: s.sliding("1s").agg(n=g.count(), m=g.mean("x"), most=g.max("v")),
    "hopping": lambda s: s.hopping("2s", every="700ms").agg(m=g.median("v"), last=g.last("x")),
    "last": lambda s: s.last(100).agg(m=g.mean("x"), first=g.first("v")),
    "last, each": lambda s: s.last(100).each(m=g.mean("x"), kinds=g.count_distinct("v")),
    "last_span, each": lambda s: s.last_span("300ms").each(n=g.count(), most=g.max("x")),
    "every tenth": lambda s: s.last(20, every=10).changes(),
    "session": lambda s: s.session("40ms").agg(n=g.count(), all=g.sum("v")),
    "time_batches": lambda s: s.time_batches("250ms").agg(n=g.count(), m=g.mean("x")),
    "removed": lambda s: s.session("30ms").remove_stream(),
}


@pytest.mark.parametrize("keys", [0, 1, 3])
@pytest.mark.parametrize("query", LARGE)
def test_many_events_give_the_same_in_blocks(query: str, keys: int) -> None:
    chance = random.Random(f"{query} {keys}")
    table = pa.table(
        {
            # Now and then a pause; now and then several events at once.
            "start": list(accumulate(chance.choice([0, 5_000, 9_000, 11_000, 60_000]) for _ in range(MANY))),
            # Half of the events have one key, and more than a block has.
            "k": [chance.randrange(keys) * chance.randrange(2) if keys else 0 for _ in range(MANY)],
            "v": [chance.randrange(-50, 50) for _ in range(MANY)],
            "x": [chance.choice([0.1, -2.5, 1e16, None]) for _ in range(MANY)],
        }
    )
    stream = g.events(table, start="start", unit="us")
    asked, device = LARGE[query](stream.by("k") if keys else stream), choose("cpu")
    assert in_blocks(asked, device, 1000, 2) == in_blocks(asked, device, None)


def test_a_block_of_several_groups_is_not_cut_in_time() -> None:
    # In blocks of about two events: the event of a and the four of b are more than twice as many, and two groups.
    table = pa.table({"start": [0, 1, 2, 3, 4], "end": [9, 9, 9, 9, 9], "k": ["a", "b", "b", "b", "b"]})
    asked = g.events(table, start="start", end="end", unit="us").by("k").snapshot().agg(n=g.count())
    device = choose("cpu")
    assert in_blocks(asked, device, 2) == in_blocks(asked, device, None)
