"""What a running window remembers of an order and of distinct values: enough for every step."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.state_parts import StatePart, joined
from gpu_ops.devices import choose
from gpu_ops.operators.aggregates import holistic
from gpu_ops.operators.windows.order_statistics import OrderStatistics
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import events, source, table, told
from tests.support.rows import rows
from tests.support.ticks import at_us

STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5) | st.integers(-(1 << 63), (1 << 63) - 1)), max_size=12),
        st.floats(0, 1),
    ),
    max_size=10,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu", "array"])
@examples(12, dear=True)
@given(steps=STEPS, chance=st.randoms(use_true_random=False))
def test_ranks_are_those_of_what_is_there(
    name: str, steps: list[tuple[list[tuple[int, int]], float]], chance: random.Random
) -> None:
    device = choose(name)
    orders, there, coming = OrderStatistics(device), Counter[tuple[int, int]](), Counter[tuple[int, int]]()

    def arrays(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
        codes, values = zip(*pairs, strict=True) if pairs else ((), ())
        return device.columns.array(np.array(codes, np.int32)), device.columns.array(np.array(values, np.int64))

    for fresh, part in steps:
        there += coming
        every = list(there.elements())
        gone = chance.sample(every, int(part * len(every)))
        orders.go(*arrays(gone))
        there -= Counter(gone)
        if chance.random() < 0.2:
            kept = orders.saved()
            if kept and chance.random() < 0.5:
                table = joined([part.wanted() for part in kept])
                kept = [StatePart.of(table.take(pa.array(chance.sample(range(len(table)), len(table)))))]
            orders = OrderStatistics(device)
            orders.restore(kept, 4)
        queries = []
        for group in (0, 1, 3):
            values = sorted(value for code, value in there.elements() if code == group)
            low = chance.randrange(0, len(values) + 1)
            queries.append((group, low, chance.randrange(low, len(values) + 1), values))
        groups, low_ranks, high_ranks = (
            device.columns.array(np.array(each)) for each in list(zip(*queries, strict=True))[:3]
        )
        assert device.columns.host(orders.counts(groups)).tolist() == [len(values) for *_, values in queries]
        query, codes = orders.between(groups.astype(np.int32), low_ranks, high_ranks)
        found = list(zip(device.columns.host(query).tolist(), device.columns.host(codes).tolist(), strict=True))
        assert found == [(at, v) for at, (_, low, high, values) in enumerate(queries) for v in values[low:high]]
        orders.come(*arrays(fresh))
        coming = Counter(fresh)


ASKED: dict[str, dict[str, Any]] = {
    "median": {"a": g.median("v"), "b": g.median("x", where=g.col("v") > 0)},
    "quantiles": {
        "a": g.quantile("x", 0.9),
        "b": g.quantile("x", 0.1, interpolation="lower"),
        "c": g.quantile("v", 0.5, interpolation="higher"),
        "d": g.quantile("v", 0.3, interpolation="discrete"),
        "e": g.quantile("v", 1.0, interpolation="midpoint"),
    },
    "extremes and quantiles": {"a": g.min("v"), "b": g.median("v"), "c": g.max("x"), "d": g.sum("x"), "e": g.count()},
    "looked at again": {
        "a": g.mode("v"),
        "b": g.first("x"),
        "c": g.max("t"),
        "d": g.collect_list("v"),
        "e": g.arg_max("t", by="v"),
        "f": g.median("v"),
    },
    "distinct": {"a": g.count_distinct("v"), "b": g.count_distinct("t"), "c": g.sum("x", distinct=True)},
    "distinct under a condition": {
        "a": g.count_distinct("x", where=g.col("v") > -3),
        "b": g.mean("v", distinct=True, where=g.col("x") > 0),
        "c": g.variance("v", distinct=True),
        "d": g.count("v"),
        "e": g.count_distinct("x"),
    },
}
SHAPES: dict[str, Callable[[g.Stream], g.Windowed]] = {
    "snapshot": lambda s: s.by("k").snapshot(),
    "sliding": lambda s: s.by("k", "t").sliding("12us"),
    "hopping": lambda s: s.clip_duration("30us").by("k").hopping("10us", "4us"),
    "gaps": lambda s: s.clip_duration("30us").tumbling("4us", align=at_us(1), until=at_us(70)),
    "last": lambda s: s.by("k").last(3),
    "last starts": lambda s: s.by("k").count_window(2),
    "batches": lambda s: s.last(4, every=2, partial=False),
    "highest": lambda s: s.by("k").highest(2, "v"),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("asked", ASKED)
@examples(5, kinds=True)
@given(events, st.sampled_from(HERE), st.randoms(use_true_random=False))
def test_live_is_batch_in_any_cut(
    shape: str, asked: str, tmp_path_factory: Any, events: list[Any], device: str, chance: random.Random
) -> None:
    arrived = in_some_order(table(events), chance)
    query = SHAPES[shape](source(arrived)).agg(**ASKED[asked])
    found = in_any_cut(query, arrived, device, chance, tmp_path_factory.mktemp("any"))
    assert rows(found) == rows(query.collect(device=device))


def test_what_is_alive_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    kth = holistic._kth

    def seen(block: Any, ranks: Any, *rest: Any) -> Any:
        looked.append(len(ranks))
        return kth(block, ranks, *rest)

    monkeypatch.setattr(holistic, "_kth", seen)
    live = source(table([])).by("k").sliding("1000000us").agg(m=g.median("v"), n=g.count()).start()
    for at in range(100):
        many = [(10 * at + i, 10 * at + i + 1, "ab"[i % 2], (7 * i + at) % 11, None, None) for i in range(10)]
        live.push(table(many))
        live.advance(at_us(10 * at + 9))
    assert live.status().alive == 1000
    # The events of a step, and around a rank as many of what is alive, with one more.
    assert max(looked) <= 3 * 10 + 2


FINAL = [g.max("v"), g.min("v"), g.median("v"), g.sum("v"), g.last("v"), g.max("t"), g.mode("v"), g.collect_list("v")]


@pytest.mark.parametrize("asked", FINAL, ids=lambda each: each.kind.name)
def test_of_the_last_rows_a_result_is_final_with_the_next_row(asked: Any, device_name: str) -> None:
    # events:    1=5  4=9     6=3        CTI 6, then 8
    # last 3:    [5   [5,9    [5,9,3
    live = source(table([])).by("k").last(3).agg(r=asked, n=g.count()).start(device=device_name)
    live.push(table([(1, 2, "a", 5, None, None), (4, 5, "a", 9, None, None)]))
    live.advance(at_us(6))
    assert [row[:2] for row in told(live.results().select(["start", "end", "n"]))] == [(1, 4)]
    assert live.status().cti_out == 4
    live.push(table([(6, 7, "a", 3, None, None)]))
    live.advance(at_us(8))
    assert told(live.results().select(["start", "end", "n"])) == [(4, 6, 2)]
    live.close()
    assert told(live.results().select(["start", "n"]))[0][-1] == 3


def test_values_that_nothing_has_any_more_are_forgotten(tmp_path: Path) -> None:
    query = source(table([])).sliding("10us").agg(n=g.count_distinct("v"), m=g.median("v"))
    live = query.start()
    for at in range(0, 30_000, 1000):
        live.push(table([(i, i + 1, None, i, None, None) for i in range(at, at + 1000)]))
        live.advance(at_us(at + 999))
    assert max(each.num_rows for each in live.state().values()) < 9000
    live.results()
    live.checkpoint(tmp_path / "c")
    again = g.restore(tmp_path / "c", query)
    again.push(table([(30_005, 30_006, None, 29_999, None, None)]))
    again.advance(at_us(30_006))
    assert [row[2:] for row in told(again.results())][-1] == (4, 29_998.0)


@pytest.mark.slow
def test_values_of_what_may_never_end_are_remembered(device_name: str) -> None:
    # The first five rows stay for long, and by then thousands of values have come and gone elsewhere.
    given = [(at, at + 1, "a", at % 2, None, None) for at in range(5)]
    given += [(at, at + 1, "b", at, None, None) for at in range(5, 20_000)]
    given += [(at, at + 1, "a", at - 20_000, None, None) for at in range(20_000, 20_009)]
    query = source(table(given)).by("k").last(5).agg(n=g.count_distinct("v"), s=g.sum("v", distinct=True))
    live, found = query.start(device=device_name), []
    cuts = [*range(0, 20_000, 1000), *range(20_000, len(given) + 1)]
    for low, high in pairwise(cuts):
        live.push(table(given[low:high]))
        live.advance(at_us(given[high - 1][0]))
        found.append(live.results())
    live.close()
    assert rows(pa.concat_tables([*found, live.results()])) == rows(query.collect(device=device_name))


def test_no_number_and_zeros(device_name: str) -> None:
    given = [(0, 9, None, 1, math.nan, None), (1, 9, None, 1, -math.nan, None), (2, 9, None, 1, -0.0, None)]
    given += [(3, 9, None, 1, 0.0, None)]
    query = source(table(given)).snapshot().agg(n=g.count_distinct("x"), q=g.quantile("x", 0.25, interpolation="lower"))
    live = query.start(device=device_name)
    found = []
    for at, event in enumerate(given):
        live.push(table([event]))
        live.advance(at_us(at))
        found.append(live.results())
    live.close()
    assert rows(pa.concat_tables([*found, live.results()])) == rows(query.collect(device=device_name))
