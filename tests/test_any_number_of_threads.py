"""One thread or several: the same bytes, row by row, of queries that run in many blocks and parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import Stream
from tests.support.threads import in_blocks, told
from tests.support.ticks import at_us

ROWS, BLOCK, PART = 700, 50, 8


def bids(seed: int, order: str, keys: int) -> Stream:
    """Intervals, with keys of several types and a value that is null now and then."""
    random = np.random.default_rng(seed)
    start = random.integers(0, 4 * ROWS, ROWS)
    start = np.sort(start) if order == "in time" else start
    key = random.integers(0, keys, ROWS)
    if order == "by key":
        at = np.lexsort((start, key))
        start, key = start[at], key[at]
    value = random.integers(0, 50, ROWS)
    table = pa.table(
        {
            "start": start,
            "end": start + random.integers(1, 60, ROWS),
            "k": pa.array(key.astype(np.int32)),
            "word": pa.array([f"key {each % 7}" for each in key]),
            "far": key * 10**12,
            "v": pa.array(value, mask=value == 7),
            "huge": np.where(value > 40, 1 << 62, 0),
            "real": random.normal(size=ROWS),
        }
    )
    return g.events(table, start="start", end="end", unit="us")


ERROR = "the first block's error of several"

QUERIES: dict[str, Callable[[Stream, Stream], Stream]] = {
    "sliding": lambda a, b: a.by("k").sliding("90us").agg(n=g.count(), mean=g.mean("v"), real=g.sum("real")),
    "snapshots without a key": lambda a, b: a.snapshot().agg(n=g.count(), most=g.max("v")),
    "order statistics": lambda a, b: a.by("k").sliding("90us").agg(middle=g.median("v"), kinds=g.count_distinct("v")),
    "dense grid": lambda a, b: a.by("k").hopping("60us", "20us", align=at_us(0)).agg(n=g.count(), total=g.sum("v")),
    "dense grid by start": lambda a, b: a.tumbling("50us", membership="start").agg(n=g.count(), mean=g.mean("v")),
    "dense grid until": lambda a, b: a.by("k").hopping("90us", "30us", until=at_us(3 * ROWS)).agg(n=g.count()),
    "sparse grid": lambda a, b: a.by("far").hopping("9us", "3us").agg(n=g.count(), real=g.mean("real")),
    "texts as keys": lambda a, b: a.by("word", "k").sliding("90us").agg(n=g.count(), first=g.first("word")),
    "last": lambda a, b: a.to_point().by("k").last(9).agg(mean=g.mean("v")).clip_duration("50us"),
    "session": lambda a, b: a.to_point().by("k").session("40us").agg(n=g.count(), real=g.sum("real")),
    "each": lambda a, b: a.to_point().by("k").last(5, order="v").each(most=g.max("v")),
    "rows of rows": lambda a, b: a.to_point().by("k").last(9).rows().by("k").last(3).rows(),
    "windows of windows": lambda a, b: (
        a.by("k").sliding("90us").agg(n=g.count()).by("k").hopping("80us", "40us").agg(n=g.sum("n"), m=g.max("n"))
    ),
    "join": lambda a, b: a.join(b, on="k"),
    "join with a condition": lambda a, b: a.join(b, on="k", how="full", condition=g.col("v") < g.col("v_right")),
    "join without a key": lambda a, b: a.join(b.filter(g.col("v") > 45), how="left").select("v", "v_right"),
    "anti": lambda a, b: a.join(b, on="word", how="anti"),
    "as of": lambda a, b: a.to_point().asof_join(b.to_point(), on="k"),
    "clip": lambda a, b: a.clip_by(b, on="k"),
    "stitch": lambda a, b: a.by("k").stitch(),
    "union and distinct": lambda a, b: a.union(b).select("word", "k").distinct(),
    ERROR: lambda a, b: a.by("k").sliding("90us").agg(total=g.sum("huge")),
}


@pytest.mark.parametrize(("order", "keys"), [("in time", 40), ("in no order", 40), ("by key", 40), ("in time", 1)])
@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_has_the_same_bytes_on_any_number_of_threads(query: str, order: str, keys: int) -> None:
    def collect() -> Any:
        return QUERIES[query](bids(1, order, keys), bids(2, order, keys)).collect(device="cpu")

    with in_blocks(BLOCK):
        alone = told(collect, threads=1, part=PART)
        assert alone.startswith("SumOverflowError" if query == ERROR else "start: timestamp")
        for threads in (2, 7):
            assert told(collect, threads=threads, part=PART) == alone
