"""Rows that a running query does not take as they come: invalid ones, late ones, and more than may wait."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import PlanError, WaitingError
from tests.support.examples import examples
from tests.support.live_plans import UTC, told
from tests.support.rows import rows
from tests.support.ticks import at_us

TASKS = pa.schema([("at", pa.int64()), ("until", pa.int64()), ("v", pa.int64())])


def tasks(given_rows: pa.Table, on_invalid: Any, name: str | None = None) -> g.Stream:
    stream = g.events(given_rows, start="at", end="until", unit="us", on_invalid=on_invalid, name=name)
    return stream.advance_time(3, delay="4us", late="divert")


def counted(stream: g.Stream) -> g.Stream:
    return stream.snapshot().agg(n=g.count(), v=g.sum("v"))


lifetimes = st.lists(
    st.tuples(st.none() | st.integers(0, 30), st.none() | st.integers(0, 40), st.integers(0, 9)), max_size=30
)


@examples(dear=True)
@given(lifetimes, st.sampled_from(["drop", "divert"]), st.randoms(use_true_random=False))
def test_invalid_rows_live_are_those_of_a_batch(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[int | None, int | None, int]],
    on_invalid: Literal["drop", "divert"],
    chance: random.Random,
) -> None:
    arrived = pa.Table.from_pylist([dict(zip(TASKS.names, row, strict=True)) for row in made], schema=TASKS)
    batch = counted(tasks(arrived, on_invalid))
    expected = batch.collect(device="cpu")
    query = counted(tasks(TASKS.empty_table(), on_invalid))
    live, found, at = query.start(device="cpu"), list[pa.Table](), 0
    while at < arrived.num_rows:
        size = chance.randrange(1, 8)
        live.push(arrived.slice(at, size))
        at += size
        if chance.random() < 0.3:
            path = tmp_path_factory.mktemp("rows") / "checkpoint"
            live.checkpoint(path)
            live = g.restore(path, query, device="cpu")
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(expected)
    assert live.report() == batch.report()
    assert live.rejected().equals(batch.rejected())
    assert live.status().invalid == batch.report().invalid
    assert live.status().events_in == len(made)


WRONG = [(1, 5, 1), (None, 3, 2), (4, 4, 3), (7, 2, 4), (9, 12, 5), (9, None, 6)]


def test_invalid_rows_of_a_store_and_of_two_inputs(tmp_path: Path) -> None:
    some = pa.Table.from_pylist([dict(zip(TASKS.names, row, strict=True)) for row in WRONG], schema=TASKS)
    batch = tasks(some, "divert", "one").union(tasks(some.slice(0, 3), "divert", "two"))
    batch.collect(device="cpu")
    none = TASKS.empty_table()
    live = tasks(none, "divert", "one").union(tasks(none, "divert", "two")).start(device="cpu")
    stores = {name: g.store(tmp_path / name) for name in ("one", "two")}
    for name, table in (("one", some), ("two", some.slice(0, 3))):
        start = pa.array([0] * len(table)).cast(pa.timestamp("us", "UTC"))
        end = pa.array([1] * len(table)).cast(pa.timestamp("us", "UTC"))
        with stores[name].writer() as writer:
            for row in range(len(table)):
                piece = table.slice(row, 1).append_column("start", start[:1]).append_column("end", end[:1])
                writer.append(piece)
            writer.append(
                table.slice(0, 0).append_column("start", start[:0]).append_column("end", end[:0]), at_us(MAX_TIME)
            )
    live.follow(stores, timeout=0)
    assert live.report() == batch.report()
    assert {name: each.to_pylist() for name, each in live.rejected().items()} == {
        name: each.to_pylist() for name, each in batch.rejected().items()
    }
    assert "invalid: 2 null_start" in repr(live.status())


def test_a_refused_batch_counts_nothing() -> None:
    none = TASKS.empty_table()
    live = g.events(none, start="at", end="until", unit="us", on_invalid="divert").start(device="cpu")
    live.push([{"at": 3, "until": 3, "v": 1}])
    live.advance(at_us(5))
    with pytest.raises(g.TimeError):
        live.push([{"at": None, "until": 3, "v": 1}, {"at": 1, "until": 3, "v": 1}])
    assert live.report().invalid == {"zero_length": 1}
    assert live.rejected()["row"].to_pylist() == [0]
    assert live.status().events_in == 1


# Late rows


def test_rows_that_late_drops_are_counted_and_not_kept(tmp_path: Path) -> None:
    policies: list[tuple[Literal["drop", "adjust", "divert"], int]] = [("drop", 0), ("adjust", 2), ("divert", 2)]
    for late, kept in policies:
        stream = g.events(TASKS.empty_table(), start="at", end="until", unit="us").advance_time(1, late=late)
        live = stream.start(device="cpu")
        live.push([{"at": at, "until": at + 1, "v": at} for at in (9, 2, 3)])
        assert sum(live.status().late.values()) == 2
        live.checkpoint(tmp_path / late)
        rows_late = live.late()
        assert (0 if rows_late is None else rows_late.num_rows) == kept
        assert live.late() is None
        assert sum(g.restore(tmp_path / late, stream).status().late.values()) == 2


# Rows that wait


def named(name: str) -> g.Stream:
    return g.events(TASKS.empty_table(), start="at", end="until", unit="us", name=name)


def some(first: int, count: int) -> dict[str, Any]:
    return {"at": range(first, first + count), "until": range(first + 5, first + count + 5), "v": range(count)}


def test_rows_that_wait_for_an_idle_input_are_bounded() -> None:
    live = named("left").join(named("right"), on="v").start(device="cpu", max_waiting=100)
    live.advance(at_us(0), input="right")
    for first in range(0, 100, 10):
        live.push(some(first, 10), input="left")
        live.advance(at_us(first + 10), input="left")
    assert live.status().waiting == 100
    assert "100 waiting" in repr(live.status())
    before = live.status()
    with pytest.raises(WaitingError, match=r"100 rows wait, and 10 more.* input 'right': 1970-01-01T00:00:00Z"):
        live.push(some(100, 10), input="left")
    assert live.status() == before
    # The idle one may say something, though not for ever without a CTI, and then the other goes on.
    live.push(some(0, 3), input="right")
    for first in range(3, 103, 10):
        live.push({**some(first, 10), "v": [-1] * 10}, input="right")
    with pytest.raises(WaitingError, match="input 'right'"):
        live.push(some(103, 10), input="right")
    live.advance(at_us(50), input="right")
    assert live.status().waiting == 50 + 53
    live.advance(at_us(200), input="right")
    live.push(some(100, 10), input="left")
    live.close()
    assert live.results().num_rows == 3
    assert live.status().waiting == 0


def test_rows_that_wait_for_their_own_cti_are_bounded_too(tmp_path: Path) -> None:
    query = named("tasks").snapshot().agg(n=g.count())
    live = query.start(device="cpu", max_waiting=15)
    live.push(some(0, 10))
    live.push(some(10, 10))  # one batch may go over it
    with pytest.raises(WaitingError, match="wait for is that of the input 'tasks': none yet"):
        live.push(some(20, 10))
    live.checkpoint(tmp_path / "c")
    again = g.restore(tmp_path / "c", query, device="cpu", max_waiting=15)
    with pytest.raises(WaitingError):
        again.push(some(20, 10))
    again.advance(at_us(20))
    again.push(some(20, 10))
    # Rows that bring CTIs themselves are never refused.
    making = named("tasks").advance_time(1000).snapshot().agg(n=g.count()).start(device="cpu", max_waiting=15)
    for first in range(0, 100, 10):
        making.push(some(first, 10))
    assert making.status().waiting == 100
    with pytest.raises(PlanError, match="at least 1"):
        query.start(max_waiting=0)


def test_following_pauses_where_another_store_is_behind(tmp_path: Path) -> None:
    stores = {name: g.store(tmp_path / name) for name in ("left", "right")}

    def batch(first: int) -> pa.Table:
        times = {"start": range(first, first + 10), "end": range(first + 5, first + 15)}
        return pa.table({name: pa.array(each, pa.int64()).cast(UTC) for name, each in times.items()} | {"v": range(10)})

    for first in range(0, 200, 10):
        stores["left"].append(batch(first), at_us(first + 10))
    stores["right"].append(batch(0), at_us(10))
    left, right = (g.events(store, name=name) for name, store in stores.items())
    live = left.join(right, on="v").start(device="cpu", max_waiting=30)
    most = list[int]()
    live.follow(stores, timeout=0, on_step=lambda each: most.append(each.status().waiting))
    # Of the left one no more than the batch that goes past the right one's CTI.
    assert max(most) <= 20
    assert live.status().events_in <= 40
    assert told(live.results()) != []
