"""What a live query on Spark knew after an epoch, and its results as of that epoch; tasks run here."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.spark.streams.past import EpochState
from tests.support.epochs import SECOND, Epoch, read, same, table
from tests.support.epochs_here import drive, finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY, DELAY = 10, 90


def drawn(seed: int, count: int, first: int = 0) -> list[Epoch]:
    """Pieces of an input, whose rows are up to half a minute out of order: by a delay of 90 s none is late."""
    made = random.Random(seed)
    pieces: list[Epoch] = []
    for number in range(first, first + count):
        starts = [max(0, 40 * number + made.randrange(-30, 40)) for _ in range(8)]
        pieces.append([(at, at + made.randrange(1, 200), made.choice("abcd"), made.randrange(100)) for at in starts])
    return pieces


def counted(stream: g.Stream) -> g.Stream:
    return stream.by("item").snapshot().agg(n=g.count(), total=g.sum("price"))


def stream(spark: SparkSession, tmp_path: Path) -> g.Stream:
    (tmp_path / "in").mkdir(exist_ok=True)
    events = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s", name="prices")
    return events.advance_time(f"{EVERY}s", delay=f"{DELAY}s", late="drop")


def cti_of(pieces: list[Epoch], epoch: int) -> int | None:
    """The CTI of an epoch: of the latest start of all before it, once it is far enough ahead."""
    cti: int | None = None
    for piece in pieces[:epoch]:
        latest = max(row[0] for row in piece)
        if cti is None or latest - cti >= EVERY:
            cti = max(latest - DELAY, latest - DELAY if cti is None else cti)
    return cti


def check(state: EpochState, pieces: list[Epoch]) -> None:
    """Its state is that of all rows up to it: those that may still begin wait, the others are there until they end."""
    epoch = state.epoch
    cti = cti_of(pieces, epoch)
    assert state.input_ctis == {"prices": None if cti is None else cti * SECOND}
    taken = [row for piece in pieces[: epoch + 1] for row in piece]
    waiting = [row for row in taken if cti is None or row[0] > cti]
    alive = [row for row in taken if row not in waiting and cti is not None and row[1] > cti]
    assert (state.alive, state.waiting) == (len(waiting) + len(alive), len(waiting))
    assert not state.closed
    assert _ends(state) == sorted(row[1] for row in [*waiting, *alive])


def _ends(state: EpochState) -> list[int]:
    """The ends of all rows that it has, wherever they wait, in seconds."""
    found: list[int] = []
    for rows in state.tables.values():
        assert rows.column_names[0] == "shard"
        for name in {"end", "high"} & set(rows.column_names):
            found += [end // SECOND for end in rows[name].cast(pa.int64()).to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("shards", [1, 3])
def test_each_kept_epoch_tells_what_was_known_then(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    """Each epoch is a start of its own; then the query goes back, and other rows come."""
    pieces = drawn(1, 6)
    query, checkpoint = counted(stream(spark, tmp_path)), tmp_path / "checkpoint"
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": checkpoint, "keep": 4}
    results = []
    for until in range(1, len(pieces) + 1):
        drive(query, pieces[:until], **where, partitions=shards)
        results.append(g.epochs(where["into"]).read())
        check(query.state_on_spark(checkpoint=checkpoint), pieces)
    for epoch in (2, 3, 4, 5):
        state = query.state_on_spark(checkpoint=checkpoint, epoch=epoch)
        assert (state.epoch, state.kept) == (epoch, (2, 3, 4, 5))
        check(state, pieces)
        same(g.epochs(where["into"]).read(epoch), results[epoch])

    query.go_back_on_spark(3, **where)
    assert query.state_on_spark(checkpoint=checkpoint).kept == (2, 3)
    with pytest.raises(g.SourceError, match=r"has no epoch 4: it has 2, 3\."):
        query.state_on_spark(checkpoint=checkpoint, epoch=4)
    with pytest.raises(g.PlanError, match="has no epoch 4: it has epochs 0 to 3"):
        g.epochs(where["into"]).read(4)
    others = [*pieces[:4], *drawn(2, 2, first=4)]
    drive(query, others, **where)
    for epoch in (2, 3, 4, 5):
        check(query.state_on_spark(checkpoint=checkpoint, epoch=epoch), others)
    for epoch in range(4):
        same(g.epochs(where["into"]).read(epoch), results[epoch])

    finish(query, **where)
    last = query.state_on_spark(checkpoint=checkpoint)
    assert (last.epoch, last.closed, last.alive, last.waiting) == (6, True, 0, 0)
    everything = [row for piece in others for row in piece]
    expected = counted(g.events(table(everything), start="at", end="till", unit="s")).collect()
    same(g.epochs(where["into"]).read(6), expected)


def test_results_as_of_an_epoch_in_a_store(spark: SparkSession, tmp_path: Path) -> None:
    pieces = drawn(3, 4)
    query, store = counted(stream(spark, tmp_path)), g.store(tmp_path / "store")
    where: dict[str, Any] = {"into": store, "checkpoint": tmp_path / "checkpoint"}
    results = []
    for until in range(1, len(pieces) + 1):
        drive(query, pieces[:until], **where, partitions=2)
        results.append(store.read())
    store.compact()
    for epoch, each in enumerate(results):
        same(store.read(until=epoch + 1), each)
        same(store.read(since=epoch, until=epoch + 1), each.slice(0 if not epoch else len(results[epoch - 1])))
    with pytest.raises(g.PlanError, match="has no batch 5 yet: the last one is 4"):
        store.read(until=5)


def test_what_is_not_there_is_refused_with_what_is(spark: SparkSession, tmp_path: Path) -> None:
    pieces = drawn(4, 3)
    query, checkpoint = counted(stream(spark, tmp_path)), tmp_path / "checkpoint"
    with pytest.raises(g.SourceError, match="is no checkpoint of a live query"):
        query.state_on_spark(checkpoint=checkpoint)
    drive(query, [], into=tmp_path / "out", checkpoint=checkpoint, partitions=1)
    with pytest.raises(g.SourceError, match="has no committed epoch yet"):
        query.state_on_spark(checkpoint=checkpoint)
    with pytest.raises(g.SourceError, match="has no epoch 0: it has none"):
        query.state_on_spark(checkpoint=checkpoint, epoch=0)
    drive(query, pieces, into=tmp_path / "out", checkpoint=checkpoint)
    assert repr(query.state_on_spark(checkpoint=checkpoint)).startswith("<EpochState 2: ")
    refused = {0: r"keeps epoch 0 no longer: it has 1, 2\..*keep=", 3: r"has no epoch 3: it has 1, 2\."}
    for epoch, why in refused.items():
        with pytest.raises(g.SourceError, match=why):
            query.state_on_spark(checkpoint=checkpoint, epoch=epoch)
    with pytest.raises(g.PlanError, match="epoch is -1"):
        query.state_on_spark(checkpoint=checkpoint, epoch=-1)
    with pytest.raises(g.SourceError, match="another plan"):
        stream(spark, tmp_path).by("item").snapshot().agg(n=g.count()).state_on_spark(checkpoint=checkpoint)
    with pytest.raises(g.PlanError, match="reads no streaming DataFrame"):
        counted(g.events(table(pieces[0]), start="at", end="till", unit="s")).state_on_spark(checkpoint=checkpoint)
    for state in (checkpoint / "epochs").glob("000000000003-*.state"):
        state.write_bytes(state.read_bytes()[:-1] + b"x")
    with pytest.raises(g.SourceError, match="is damaged: it is not what was written"):
        query.state_on_spark(checkpoint=checkpoint)
