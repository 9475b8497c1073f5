"""A running query over the results of another one: what it takes in, from where, and what its errors do."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import PlanError, QueryFailedError, SourceError, SumOverflowError
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import SCHEMA, events, plan_of, plans, source, table, told
from tests.support.rows import rows
from tests.support.ticks import at_us

POINTS = pa.schema([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC")), ("v", pa.int64())])
BIDS = pa.schema([("at", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


def bids() -> g.Stream:
    return g.events(BIDS.empty_table(), start="at", unit="us")


def counts() -> g.Stream:
    return bids().by("k").tumbling("10us", align=at_us(0)).agg(n=g.count(), t=g.sum("v"))


def bid(at: int, k: str = "a", v: int = 1) -> dict[str, Any]:
    return {"at": at, "k": k, "v": v}


def over(live: RunningQuery) -> g.Stream:
    return g.events(live).tumbling("100us", align=at_us(0)).agg(n=g.sum("n"))


@examples(dear=True)
@given(plans, plans, events, st.lists(st.integers(0, 90), min_size=3, max_size=8), st.integers(0, 8), st.booleans())
def test_it_gives_what_the_query_gives_over_all_results_from_then_on(
    first: list[str],
    second: list[str],
    rows_in: list[tuple[Any, ...]],
    ctis: list[int],
    place: int,
    again: bool,  # noqa: FBT001
) -> None:
    every = table(sorted(rows_in, key=lambda each: each[0]))
    ctis = sorted(ctis)
    place = min(place, len(ctis))
    try:
        upper = plan_of(first)(source(SCHEMA.empty_table())).start(device="cpu")
        plan_of(second)(g.events(upper)).start(device="cpu").close()
    except PlanError:
        assume(False)
    late: list[pa.Table] = []
    lower: RunningQuery | None = None
    starts = every["start"].cast(pa.int64()).to_pylist()
    for number, cti in enumerate([*ctis, MAX_TIME]):
        if number == place:
            upper.results()
            lower = plan_of(second)(g.events(upper)).start(device="array")
        if lower is not None and again:
            with TemporaryDirectory() as folder:
                upper.checkpoint(f"{folder}/upper")
                lower.checkpoint(f"{folder}/lower")
                upper = g.restore(f"{folder}/upper", plan_of(first)(source(SCHEMA.empty_table())), device="cpu")
                lower = g.restore(f"{folder}/lower", plan_of(second)(g.events(upper)), device="array")
        before = ctis[number - 1] if number else -1
        upper.push(every.filter(pa.array([before <= start < cti for start in starts], pa.bool_())))
        if cti == MAX_TIME:
            upper.close()
        else:
            upper.advance(at_us(cti))
        if lower is not None:
            late.append(upper.results())
    assert lower is not None
    assert lower.closed
    expected = plan_of(second)(g.events(pa.concat_tables(late), start="start", end="end")).collect(device="cpu")
    assert rows(lower.results()) == rows(expected)


@pytest.mark.parametrize("device", HERE)
def test_both_go_on_from_checkpoints_of_one_moment(tmp_path: Path, device: str) -> None:
    upper = counts().start(device=device)
    lower = over(upper).start(device=device)
    upper.push([bid(1), bid(15)])
    upper.advance(at_us(12))
    upper.checkpoint(tmp_path / "upper")
    lower.checkpoint(tmp_path / "lower")
    upper.push([bid(17)])
    upper.advance(at_us(30))
    again = g.restore(tmp_path / "upper", counts(), device=device)
    below = g.restore(tmp_path / "lower", over(again), device=device)
    again.push([bid(17), bid(120)])
    again.close()
    assert told(below.results()) == [(0, 100, 3), (100, 200, 1)]


@pytest.mark.parametrize("first", ["upper", "lower"])
def test_checkpoints_of_two_moments_are_refused(tmp_path: Path, first: str) -> None:
    # upper     ──1── checkpoint ──2──────────────
    # lower     ──1────────────────2── checkpoint     killed: one of them has what the other has not
    upper = counts().start(device="cpu")
    upper.push([bid(1)])
    upper.advance(at_us(20))
    lower = over(upper).start(device="cpu")
    queries = {"upper": upper, "lower": lower}
    upper.push([bid(25)])
    upper.advance(at_us(40))
    queries.pop(first).checkpoint(tmp_path / first)
    upper.push([bid(45)])
    upper.advance(at_us(60))
    for name, query in queries.items():
        query.checkpoint(tmp_path / name)
    told, given = (1 + (first == "upper"), 1 + (first == "lower"))
    again = g.restore(tmp_path / "upper", counts(), device="cpu")
    with pytest.raises(SourceError, match=f"has taken in {told + 1} of its .* has given {given + 1}: .* two moments"):
        g.restore(tmp_path / "lower", over(again), device="cpu")
    again.push([bid(61)])
    again.close()


def test_a_query_that_goes_back_to_its_checkpoint_hands_nothing_on_twice(tmp_path: Path) -> None:
    store, fails = g.store(tmp_path / "in"), [True]
    with store.writer() as writer:
        for at in range(0, 60, 5):
            writer.append(pa.table({"start": [at], "end": [at + 1], "v": [1]}, POINTS))
            writer.advance(at_us(at))
        writer.advance(at_us(MAX_TIME))

    def total(window: pa.Table) -> int:
        if window["v"].to_pylist() == [1, 1] and fails and taken:
            fails.pop()
            raise MemoryError("once")
        return int(window.num_rows)

    taken: list[pa.Table] = []
    upper = (
        g.events(store.read().slice(0, 0), start="start", end="end")
        .tumbling("10us", align=at_us(0))
        .agg(n=g.window_function(total, returns=pa.int64(), of="v"))
        .start(device="cpu")
    )
    lower = g.events(upper).start(device="cpu", on_results=taken.append)
    upper.follow(store, checkpoint=tmp_path / "c", every=100, timeout=0)
    assert not fails
    assert told(pa.concat_tables(taken)) == [(at, at + 10, 2) for at in range(0, 60, 10)]
    assert lower.closed


def test_a_query_of_two_others_ends_with_the_last() -> None:
    one, two = counts().start(device="cpu"), counts().start(device="cpu")
    both = g.events(one, name="one").join(g.events(two, name="two"), on="k").start(device="cpu")
    one.push([bid(1), bid(2)])
    two.push([bid(3)])
    one.close()
    assert not both.closed
    assert len(both.results()) == 0
    two.close()
    assert both.closed
    assert both.results().select(["k", "n", "n_right"]).to_pylist() == [{"k": "a", "n": 2, "n_right": 1}]


def test_one_that_fails_is_named_once_and_the_other_goes_on() -> None:
    upper = counts().start(device="cpu")
    sums = g.events(upper).tumbling("1ms", align=at_us(0)).agg(t=g.sum("t")).start(device="cpu")
    upper.push([bid(1, v=1 << 62), bid(11, v=1 << 62)])
    with pytest.raises(SumOverflowError):
        upper.advance(at_us(2_000))
    upper.push([bid(2_001)])
    upper.close()
    assert len(upper.results()) == 3
    with pytest.raises(QueryFailedError):
        sums.push([])


def test_what_one_refuses_is_offered_again(tmp_path: Path) -> None:
    upper = counts().start(device="cpu")
    lower = g.events(upper).start(device="cpu")
    taken: list[int] = []

    def moody(results: pa.Table) -> None:
        if not taken:
            taken.append(0)
            raise ValueError("not now")
        taken.append(len(results))

    other = g.events(upper).start(device="cpu", on_results=moody)
    upper.push([bid(1)])
    with pytest.raises(ValueError, match="not now"):
        upper.advance(at_us(20))
    with pytest.raises(PlanError, match="has not taken in"):
        upper.checkpoint(tmp_path / "c")
    upper.close()
    assert taken == [0, 1]
    assert lower.closed
    assert other.closed


def test_closed_ones_are_told_nothing() -> None:
    upper = counts().start(device="cpu")
    lower = over(upper).start(device="cpu")
    lower.close()
    upper.push([bid(1)])
    upper.close()
    assert len(lower.results()) == 0
    with pytest.raises(PlanError, match="closed"):
        over(upper).start(device="cpu")


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    upper = counts().start(device="cpu")
    with pytest.raises(PlanError, match=r"nothing to read.*\.start\(\)"):
        over(upper).collect(device="cpu")
    with pytest.raises(PlanError, match="bounds of its own"):
        g.events(upper, trust=True)
    with pytest.raises(PlanError, match='shape="interval"'):
        g.events(counts().start(device="cpu", shape="edge"))
    with pytest.raises(PlanError, match="follows no store"):
        over(upper).start(device="cpu").follow(g.store(tmp_path / "none"), timeout=0)


def test_threads_push_while_others_look() -> None:
    upper = counts().start(device="cpu", max_waiting=10**6)
    lower = over(upper).start(device="cpu")
    seen: list[pa.Table] = []

    def push(k: str) -> None:
        for _ in range(50):
            upper.push([bid(5, k)])

    def look() -> None:
        for _ in range(50):
            lower.status()
            seen.append(lower.results())

    threads = [threading.Thread(target=push, args=(k,)) for k in "abc"] + [threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    upper.close()
    assert told(pa.concat_tables([*seen, lower.results()])) == [(0, 100, 150)]
