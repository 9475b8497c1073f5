"""Live queries on Spark give what `collect()` gives of all rows: for any cut into epochs, after kills and in races."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.spark.streams import log, query
from tests.support.epoch_driver import dying
from tests.support.epochs import Epoch, admitted, put, put_table, read, run, same, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.usefixtures("few_tasks")]


def drawn(seed: int, count: int = 4, rows: int = 12, jitter: int = 45) -> list[Epoch]:
    """Epochs whose rows are up to so many seconds out of order."""
    made = random.Random(seed)
    epochs: list[Epoch] = []
    for number in range(count):
        starts = [max(0, 40 * number + made.randrange(-jitter, 40)) for _ in range(rows)]
        epochs.append([(at, at + made.randrange(1, 90), made.choice("abcd"), made.randrange(100)) for at in starts])
    return epochs


def events(rows: Epoch) -> g.Stream:
    return g.events(table(rows), start="at", end="till", unit="s")


QUERIES = {
    "window": lambda s: s.by("item").sliding("1min").agg(n=g.count(), mean=g.mean("price")),
    "no key": lambda s: s.snapshot().agg(n=g.count(), best=g.max("price")),
    "rows": lambda s: s.by("item").last(2).agg(total=g.sum("price")),
    "no state": lambda s: s.filter(g.col("price") > 20).with_columns(twice=g.col("price") * 2),
    "with itself": lambda s: s.clip_by(s, on="item").by("item").tumbling("1min").agg(n=g.count()),
}


@pytest.mark.parametrize(
    ("name", "late", "partitions"),
    [
        ("window", "drop", [2]),
        ("window", "adjust", [6, 4, 1, 3]),
        ("no key", "drop", [None]),
        ("rows", "adjust", [3]),
        ("no state", "drop", [2]),
        ("with itself", "drop", [2]),
    ],
)
def test_any_cut_into_epochs(
    spark: SparkSession, tmp_path: Path, name: str, late: Any, partitions: list[int | None]
) -> None:
    """In one start, or in several that have partitions of other numbers."""
    epochs = drawn(len(name) + len(late))
    (tmp_path / "in").mkdir()
    stream = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s")
    made = QUERIES[name](stream.advance_time("5s", delay="20s", late=late))
    where: dict[str, Any] = {
        "into": tmp_path / "out",
        "checkpoint": tmp_path / "checkpoint",
        "late_into": tmp_path / "late",
    }
    each = len(epochs) // len(partitions)
    for start, number in enumerate(partitions):
        for epoch in range(start * each, (start + 1) * each):
            put(tmp_path / "in", epoch, epochs[epoch])
        run(made, **where, partitions=number)
    made.end_on_spark(**where)
    taken, missed = admitted(epochs, every=5, delay=20, late=late)
    assert missed
    same(g.epochs(tmp_path / "out").read(), QUERIES[name](events(taken)).collect())
    aside = g.epochs(tmp_path / "late").read()
    assert aside.num_rows == (len(missed) if late == "adjust" else 0)


def test_two_inputs_and_late_rows_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """One input follows the other; the late rows of the first are a part of the answer."""
    bids, asks = drawn(5), drawn(6, rows=5, jitter=0)
    for number, (one, other) in enumerate(zip(bids, asks, strict=True)):
        put(tmp_path / "bids", number, one)
        put(tmp_path / "asks", number, other)

    def joined(one: g.Stream, other: g.Stream) -> g.Stream:
        return one.join(other.select("item", ask="price"), on="item", how="left")

    first, second = (
        g.events(read(spark, tmp_path / name), start="at", end="till", unit="s", name=name) for name in ("bids", "asks")
    )
    leads = first.advance_time("5s", delay="20s", late="divert")
    follows = second.advance_time(late="drop", advance_with=leads)
    where: dict[str, Any] = {"into": g.store(tmp_path / "pairs"), "checkpoint": tmp_path / "checkpoint"}
    pairs = joined(leads, follows)
    run(pairs, **where, partitions=2)
    pairs.end_on_spark(**where)
    taken, missed = admitted(bids, every=5, delay=20, late="drop")
    # The second input has no CTIs of its own: its rows are late by those of the first.
    same(g.store(tmp_path / "pairs").read(), joined(events(taken), events(_by_the_other(bids, asks))).collect())
    assert g.store(tmp_path / "pairs").sequence == 5

    called: list[tuple[int, pa.Table]] = []
    late = leads.late()
    where = {"into": lambda rows, epoch: called.append((epoch, rows)), "checkpoint": tmp_path / "late checkpoint"}
    run(late, **where, partitions=2)
    late.end_on_spark(**where)
    assert [epoch for epoch, _ in called] == [0, 1, 2, 3, 4]
    same(
        pa.concat_tables([rows for _, rows in called]).select(["start", "end", "item", "price"]),
        events(missed).collect(),
    )


def _by_the_other(bids: Sequence[Epoch], asks: Sequence[Epoch]) -> Epoch:
    """The rows of asks that are not late by the CTIs of bids."""
    kept: list[tuple[int, int, str, int]] = []
    for number, epoch in enumerate(asks):
        cti = _cti(bids[:number])
        kept += [row for row in epoch if cti is None or row[0] >= cti]
    return kept


def _cti(epochs: Sequence[Epoch]) -> int | None:
    cti: int | None = None
    for epoch in epochs:
        latest = max(row[0] for row in epoch)
        if cti is None or latest - cti >= 5:
            cti = latest - 20 if cti is None else max(cti, latest - 20)
    return cti


class KilledError(Exception):
    """Stands for a kill."""


def test_killed_at_every_step(spark: SparkSession, tmp_path: Path) -> None:
    """The driver ends at the first crossing of a seam, then at the second of what remains, and so on."""
    epochs = drawn(9, count=3)
    for number, epoch in enumerate(epochs):
        put(tmp_path / "in", number, epoch)
    stream = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s")
    made = stream.advance_time("10s", delay="30s", late="drop").by("item").tumbling("1min").agg(n=g.count())
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}

    def die() -> None:
        raise KilledError

    deaths = 0
    for step in range(1, 40):
        try:
            with dying(step, die):
                run(made, **where, partitions=2)
            break
        except Exception as error:  # (Spark wraps it, or it comes from what is published at the start)
            if "KilledError" not in f"{error!r} {error}":
                raise
            deaths += 1
    assert deaths > 8
    made.end_on_spark(**where)
    taken, _ = admitted(epochs, every=10, delay=30, late="drop")
    same(g.epochs(tmp_path / "out").read(), events(taken).by("item").tumbling("1min").agg(n=g.count()).collect())
    results = g.epochs(tmp_path / "out")
    assert sorted(tmp_path.glob("out/*.parquet")) == sorted(results.files())
    assert not list(tmp_path.glob("out/_epochs/unpublished/*"))


def test_of_two_drivers_one_wins(spark: SparkSession, tmp_path: Path) -> None:
    """The second one runs the whole epoch while the first one's tasks are done and not committed."""
    epochs = drawn(11, count=2)
    for number, epoch in enumerate(epochs):
        put(tmp_path / "in", number, epoch)
    stream = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s")
    made = stream.advance_time("10s", delay="30s", late="drop").by("item").tumbling("1min").agg(n=g.count())
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    inner = query.StreamDriver._reports
    others: list[int] = []

    def reports(self: query.StreamDriver, frame: Any, begun: log.Begun, before: Any) -> list[Any]:
        mine = inner(self, frame, begun, before)
        if begun.epoch == 1 and not others:
            others.append(begun.epoch)
            self.take(frame, begun.epoch, begun.offsets)  # the other driver, as quick as can be
        return mine

    with (
        mock.patch.object(query.StreamDriver, "_reports", reports),
        pytest.raises(g.SourceError, match="Another driver has committed epoch 1"),
    ):
        run(made, **where, partitions=2)
    run(made, **where)
    made.end_on_spark(**where)
    taken, _ = admitted(epochs, every=10, delay=30, late="drop")
    same(g.epochs(tmp_path / "out").read(), events(taken).by("item").tumbling("1min").agg(n=g.count()).collect())


def test_a_store_into_a_store(spark: SparkSession, tmp_path: Path) -> None:
    """The store's CTIs are the query's; its batches are merged while the driver is killed at a seam of each epoch."""
    epochs = drawn(21, count=3, jitter=0)
    source, results = g.store(tmp_path / "bids"), g.store(tmp_path / "counts")
    where: dict[str, Any] = {"into": results, "checkpoint": tmp_path / "checkpoint"}

    def die() -> None:
        raise KilledError

    def query() -> g.Stream:
        return g.events(source, spark=spark).by("item").tumbling("1min").agg(n=g.count(), best=g.max("price"))

    for epoch, cti, step in zip(epochs, ("00:40", "01:20", "02:00"), (1, 11, 13), strict=True):
        source.append(events(epoch).collect(), f"1970-01-01T00:{cti}Z")
        with dying(step, die), pytest.raises(Exception, match="KilledError"):
            run(query(), **where, partitions=2)
        source.compact()
    run(query(), **where)
    before = results.cti
    assert before is not None
    assert before >= 60_000_000  # the CTI of the second batch, since the third epoch has it
    query().end_on_spark(**where)
    rows = [row for epoch in epochs for row in epoch]
    same(results.read(), events(rows).by("item").tumbling("1min").agg(n=g.count(), best=g.max("price")).collect())
    limited = g.events(source, spark=spark.readStream.option("maxBatchesPerTrigger", 1))
    with pytest.raises(g.PlanError, match="for which Spark asks a source written in Python once"):
        run(limited, into=tmp_path / "other", checkpoint=tmp_path / "other checkpoint")


def test_ctis_in_a_column(spark: SparkSession, tmp_path: Path) -> None:
    """They count from the next epoch on, for each input by itself; rows of an unknown kind are dropped."""
    one = pa.table({"at": [0, 50, 90, 7], "item": ["a", "b", None, "a"], "kind": ["insert", "Insert", "CTI", "row"]})
    two = pa.table({"at": [89, 95, 120], "item": ["a", "b", "c"], "kind": ["insert", "insert", "cti"]})
    for number, rows in enumerate((one, two)):
        put_table(tmp_path / "in", number, rows)
    stream = spark.readStream.schema("at long, item string, kind string").option("maxFilesPerTrigger", 1)
    bids = g.events(stream.parquet(str(tmp_path / "in")), start="at", unit="s", kind="kind", on_invalid="drop")
    put(tmp_path / "asks", 0, [(1, 2, "a", 3)])
    asks = g.events(read(spark, tmp_path / "asks"), start="at", end="till", unit="s", name="asks")
    query = bids.advance_time(late="drop").union(asks.select("item")).by("item").tumbling("1min").agg(n=g.count())
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    run(query, **where, partitions=2)
    log_of_it = log.EpochLog(tmp_path / "checkpoint")
    last = log_of_it.last()
    assert last is not None
    manifest = log_of_it.committed(last)
    assert manifest is not None
    assert [each.said for each in manifest.inputs] == [120_000_000, None]
    assert [each.cti for each in manifest.inputs] == [90_000_000, None]
    assert manifest.fates == {"dropped": 1}
    query.end_on_spark(**where)
    assert sorted((row["item"], row["n"]) for row in g.epochs(where["into"]).read().to_pylist()) == [
        ("a", 2),
        ("b", 1),
        ("b", 1),
    ]


def test_a_late_row_that_is_an_error_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", 0, [(100, 110, "a", 1)])
    put(tmp_path / "in", 1, [(5, 10, "a", 1)])
    stream = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s").advance_time("1s")
    made = stream.by("item").tumbling("1min").agg(n=g.count())
    with pytest.raises(g.TimeError, match="starts before the CTI 1970-01-01T00:01:40Z"):
        run(made, into=tmp_path / "out", checkpoint=tmp_path / "checkpoint", partitions=2)
    assert g.epochs(tmp_path / "out").last == 0


def test_sparks_log_without_ours_and_ours_without_sparks(spark: SparkSession, tmp_path: Path) -> None:
    import shutil

    put(tmp_path / "in", 0, [(100, 110, "a", 1)])
    stream = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s")
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "partitions": 1}
    run(stream, **where)
    shutil.rmtree(tmp_path / "checkpoint" / "spark")
    with pytest.raises(g.SourceError, match="Epoch 0 was begun with other inputs"):
        run(stream, **where)


def test_going_back(spark: SparkSession, tmp_path: Path) -> None:
    """An ended query goes back to its first epoch, and reads what came later again; more has come in the meantime."""
    epochs = drawn(15, count=4)
    for number, epoch in enumerate(epochs[:3]):
        put(tmp_path / "the input", number, epoch)
    stream = g.events(read(spark, tmp_path / "the input"), start="at", end="till", unit="s")
    made = stream.advance_time("10s", delay="90s").by("item").tumbling("1min").agg(n=g.count())
    where: dict[str, Any] = {"into": tmp_path / "the results", "checkpoint": tmp_path / "the checkpoint", "keep": 9}
    run(made, **where, partitions=2)
    made.end_on_spark(**where)
    made.go_back_on_spark(0, **where)
    assert g.epochs(where["into"]).last == 0
    put(tmp_path / "the input", 3, epochs[3])
    run(made, **where)
    made.end_on_spark(**where)
    rows = [row for epoch in epochs for row in epoch]
    same(g.epochs(where["into"]).read(), events(rows).by("item").tumbling("1min").agg(n=g.count()).collect())


@pytest.mark.spark
def test_a_driver_that_is_killed_and_tasks_that_fail(tmp_path: Path) -> None:
    """The process ends twice in the middle of an epoch, without clearing up; a task fails once, and is tried again."""
    epochs = drawn(13, count=3)
    for number, epoch in enumerate(epochs):
        put(tmp_path / "in", number, epoch)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    for step, code in ((6, 9), (15, 9), (0, 0)):
        command = [sys.executable, "-m", "tests.support.epoch_driver", str(tmp_path), str(step)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr[-3000:]
    assert (tmp_path / "failed once").exists()
    taken, _ = admitted(epochs, every=10, delay=30, late="drop")
    expected = events(taken).by("item").tumbling("1min").agg(best=g.max("price")).collect()
    same(g.epochs(tmp_path / "out").read(), expected)
