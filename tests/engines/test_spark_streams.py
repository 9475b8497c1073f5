"""Live queries on Spark: what is refused, what `explain` says, and one query from its first epoch to its end.

Epochs are files of a folder, one each. `test_spark_streams_exactly_once.py` kills, races and cuts otherwise.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.spark.streams import query as starting
from tests.support.epochs import admitted, put, read, run, same, table
from tests.support.on_spark import setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def counted(stream: g.Stream) -> g.Stream:
    return stream.by("item").tumbling("1min").agg(n=g.count(), best=g.max("price"))


def best(stream: g.Stream, **policy: Any) -> g.Stream:
    settings: dict[str, Any] = {"every": "10s", "delay": "30s", "late": "drop"} | policy
    return counted(stream.advance_time(**settings))


#         0         30        60        90        120       150
# epoch 0 a-----b---|
# epoch 1           |  a------|--b---      its CTI is 15: nothing is late
# epoch 2       x   |         |    a------|--- b        its CTI is 62, the row at 20 is late
EPOCHS = [
    [(0, 10, "a", 3), (25, 29, "b", 5), (45, 46, "a", 9)],
    [(50, 60, "a", 4), (92, 99, "b", 1)],
    [(20, 30, "a", 7), (100, 130, "a", 2), (150, 151, "b", 8)],
]


def stream(spark: SparkSession, folder: Path, **options: Any) -> g.Stream:
    return g.events(read(spark, folder), start="at", end="till", unit="s", **options)


def test_a_query_from_its_first_epoch_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    """It stops and goes on between epochs, and is refused in any other way than its own."""
    for number, epoch in enumerate(EPOCHS[:2]):
        put(tmp_path / "in", number, epoch)
    query = best(stream(spark, tmp_path / "in"))
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    run(query, **where, partitions=2)
    put(tmp_path / "in", 2, EPOCHS[2])
    run(query, **where)
    before = g.epochs(tmp_path / "out")
    assert before.last == 2

    others: dict[str, dict[str, Any]] = {
        "3 are asked for": {"shards": 3, "partitions": 1},
        "another sink": {"into": tmp_path / "other"},
        "other sinks: results: a folder; now results: a function": {"into": lambda *_: None},
        "files that no live query wrote": {"into": tmp_path, "checkpoint": tmp_path / "another checkpoint"},
        "not the sink of this query": {"checkpoint": tmp_path / "another checkpoint"},
    }
    for refused, why in others.items():
        with pytest.raises(g.SourceError, match=refused):
            query.start_on_spark(**where | why)
    with pytest.raises(g.SourceError, match=r"another plan(.|\n)*late=divert"):
        best(stream(spark, tmp_path / "in"), late="divert").start_on_spark(**where)

    query.end_on_spark(**where)
    query.end_on_spark(**where)  # it has ended: nothing is left to do
    with pytest.raises(g.SourceError, match="has ended"):
        query.start_on_spark(**where)
    taken, _ = admitted(EPOCHS, every=10, delay=30, late="drop")
    expected = counted(g.events(table(taken), start="at", end="till", unit="s")).collect()
    results = g.epochs(tmp_path / "out")
    same(results.read(), expected)
    same(g.events(results, start="start", end="end").collect(), expected)
    same(pa.concat_tables([results.read(2), results.read(since=2)]), expected)
    assert {each.parent for each in results.files()} == {tmp_path / "out"}
    assert len(list((tmp_path / "checkpoint" / "epochs").glob("*.manifest"))) == 2  # the last two epochs


def test_a_worker_that_is_killed_in_the_middle_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """It is killed as it computes the second result of a task; the same call goes on, and each result is there once."""
    for number, epoch in enumerate(EPOCHS):
        put(tmp_path / "in", number, epoch)

    def most(rows: Any) -> int:
        seen, killed = (Path(folder, name) for name in ("seen", "killed"))
        if seen.exists() and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        seen.touch()
        return max(int(price) for price in rows["price"].to_pylist())

    def asked(source: g.Stream) -> g.Stream:
        return source.by("item").tumbling("1min").agg(best=g.window_function(most, returns=pa.int64(), of="price"))

    folder = str(tmp_path)
    query = asked(stream(spark, tmp_path / "in").advance_time("10s", delay="30s", late="drop"))
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "the checkpoint"}
    with pytest.raises(Exception, match=r"worker exited unexpectedly|SIGKILL|crashed"):
        run(query, **where, partitions=1)
    assert (tmp_path / "killed").exists()
    run(query, **where)
    query.end_on_spark(**where)
    taken, _ = admitted(EPOCHS, every=10, delay=30, late="drop")
    same(g.epochs(tmp_path / "out").read(), asked(g.events(table(taken), start="at", end="till", unit="s")).collect())


def test_a_state_is_mapped_where_it_was_restored_before(spark: SparkSession, tmp_path: Path) -> None:
    """Each start restores it; some beside a large file that is damaged or gone, of which the executor has a copy.

    What the driver tells of the state it reads from the checkpoint, and so it tells of the damage.
    """
    count, keys = 60_000, "abcd"
    many = [(0, 1_000 + number % 9_000, keys[number % 4], number % 100) for number in range(count)]
    few = [[(100 * number, 20_000, "a", 1), (100 * number + 7, 20_000, "b", 2)] for number in range(1, 7)]
    epochs = [many, *few]
    put(tmp_path / "in", 0, many)
    stream_of = stream(spark, tmp_path / "in").advance_time("10s", late="drop")
    query = stream_of.by("item").snapshot().agg(n=g.count(), total=g.sum("price"))
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    for number, epoch in enumerate(epochs[:4]):
        put(tmp_path / "in", number, epoch)
        run(query, **where, partitions=1)
    states = (tmp_path / "checkpoint" / "epochs").glob("*.state")
    (large,) = (each for each in states if each.stat().st_size >= 1 << 20)
    context: Any = spark.sparkContext
    (copy,) = Path(context.getConf().get("spark.local.dir")).glob(f"*/gpu_ops-states/*{large.name}")
    assert copy.read_bytes() == large.read_bytes()
    assert list(copy.parent.glob(f"*{large.stem}*.sound"))

    content, alive = large.read_bytes(), query.state_on_spark(checkpoint=where["checkpoint"]).alive
    assert alive > 10_000
    at = len(content) // 2
    large.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    put(tmp_path / "in", 4, epochs[4])
    run(query, **where)
    with pytest.raises(g.SourceError, match=f"{large.name} is damaged: it is not what was written"):
        query.state_on_spark(checkpoint=where["checkpoint"])
    large.unlink()
    put(tmp_path / "in", 5, epochs[5])
    run(query, **where)
    copy.unlink()
    put(tmp_path / "in", 6, epochs[6])
    with pytest.raises(g.SourceError, match=f"{large.name} is missing"):
        run(query, **where)
    large.write_bytes(content)
    run(query, **where)
    query.end_on_spark(**where)
    everything = g.events(table([row for epoch in epochs for row in epoch]), start="at", end="till", unit="s")
    expected = everything.by("item").snapshot().agg(n=g.count(), total=g.sum("price")).collect()
    same(g.epochs(tmp_path / "out").read(), expected)


def test_a_filter_of_the_frame_reaches_its_files_and_one_of_the_query_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A row that the query's own filter drops moves the clock: at 150 it makes what began before 120 final."""
    for number, epoch in enumerate([*EPOCHS[:2], [(150, 151, "b", 8)], []]):
        put(tmp_path / "in", number, epoch)
    few = counted(stream(spark, tmp_path / "in").advance_time("10s", delay="30s").filter(g.col("price") < 5))
    said = few.explain()
    assert "filters of the query run in tasks, since rows that they drop move the clock" in said
    assert "filters of the query" not in best(stream(spark, tmp_path / "in")).explain()
    frame = read(spark, tmp_path / "in").where("price < 5")
    before = best(g.events(frame, start="at", end="till", unit="s"))
    found = {}
    for name, query in (("query", few), ("frame", before)):
        where: dict[str, Any] = {"into": tmp_path / name, "checkpoint": tmp_path / f"{name} checkpoint"}
        running: Any = query.start_on_spark(**where, trigger={"availableNow": True}, partitions=1)
        running.awaitTermination()
        assert ("LessThan(price,5)" in running._jsq.explainInternal(False)) is (name == "frame")
        found[name] = g.epochs(tmp_path / name).read()["start"].to_pylist()
    assert len(found["query"]) > len(found["frame"])


def test_no_answer_comes_from_all_rows_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    query = best(stream(spark, tmp_path / "in"))
    for verb in (query.collect, query.to_reader, lambda: query.write(tmp_path / "out.parquet")):
        with pytest.raises(g.PlanError, match=r"never ends.*start_on_spark"):
            verb()
    with pytest.raises(g.PlanError, match=r"\.start_on_spark"):
        query.start()


def test_what_does_not_run_in_epochs_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    events = stream(spark, tmp_path / "in")
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(g.PlanError, match=r"every=3 counts rows in their order"):
        events.advance_time(3)
    with pytest.raises(g.PlanError, match=r"reorder= is about rows in their order"):
        events.advance_time("3s", reorder="1s")
    last = g.arrivals(events, order="price").last(2).deliveries(n=g.count())
    for partitions, said in (
        (None, r"in one partition alone: The window last 2 .*partitions=1"),
        (2, "2 partitions are"),
    ):
        with pytest.raises(g.PlanError, match=said):
            last.start_on_spark(**where, partitions=partitions)
    frame = spark.createDataFrame([(0, "a", 2)], "at long, item string, price long")
    batch = g.events(frame, start="at", unit="s")
    with pytest.raises(g.PlanError, match="kind= is about rows in their order of arrival"):
        g.events(frame, start="at", unit="s", kind="item")
    with pytest.raises(g.ColumnError, match="must be text, and this is int64"):
        stream(spark, tmp_path / "in", kind="price")
    with pytest.raises(g.PlanError, match="batch DataFrame is read beside a stream"):
        events.join(batch.select("item", other="price"), on="item").start_on_spark(**where)
    with pytest.raises(g.PlanError, match="reads no streaming DataFrame"):
        batch.start_on_spark(**where)
    with pytest.raises(g.PlanError, match=r"needs all events in one: Window tumbling"):
        events.tumbling("1min").agg(n=g.count()).start_on_spark(**where, partitions=4)
    others: dict[str, dict[str, Any]] = {
        "not into 5": {"into": 5},
        "keep is 0": {"keep": 0},
        "not on a file system of this machine": {"checkpoint": "s3a://bucket/checkpoint"},
        "partitions is 0": {"partitions": 0},
        r"trigger is 'now'": {"trigger": "now"},
        "no such trigger": {"trigger": {"sometimes": True}},
        "checkpoint is 5, and no path": {"checkpoint": 5},
        "trigger is {}": {"trigger": {}},
        "name is 5": {"name": 5},
    }
    for wrong, why in others.items():
        with pytest.raises(g.PlanError, match=wrong):
            best(events).start_on_spark(**where | why)


def test_explain(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    one, other = (stream(spark, tmp_path / "in", name=name) for name in ("bids", "asks"))
    fast = one.advance_time("10s")
    followed = other.advance_time(late="drop", advance_with=fast)
    pairs = fast.join(followed.select("item", ask="price"), on="item")
    said = pairs.explain()
    assert "Source bids streaming Spark DataFrame" in said
    assert "CTIs: from the latest start of earlier epochs (every=10s late=raise)" in said
    assert "CTIs: those of the stream that it follows" in said
    assert said.splitlines()[-3] == "partitions by item"
    alone = one.tumbling("1min").agg(n=g.count()).explain()
    assert "one partition: Window tumbling size=1min agg n=count() needs all events in one order" in alone
    assert "CTIs: none until the query ends" in alone
    kinds = stream(spark, tmp_path / "in", kind="item")
    assert "CTIs: from its rows of earlier epochs" in kinds.explain()
    assert "of earlier epochs; and from the latest start of earlier epochs" in kinds.advance_time("10s").explain()
    assert "partitions by start, as no event needs another" in one.filter(g.col("price") > 1).explain()


@pytest.mark.defects
def test_spark_writes_its_checkpoint_without_a_process_for_each_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class for that is chosen while a query starts and opens its sources, and the session is then as before."""
    put(tmp_path / "in", 0, EPOCHS[0])
    query = best(stream(spark, tmp_path / "in"))
    run(query, into=tmp_path / "out", checkpoint=tmp_path / "checkpoint", partitions=2)
    assert spark.conf.get(starting.MANAGER, "not set") == "not set"
    with monkeypatch.context() as patched:
        patched.setattr(starting, "BY_FILE_SYSTEM", "no.such.Class")
        with pytest.raises(Exception, match=r"no\.such\.Class"):
            query.start_on_spark(into=tmp_path / "out", checkpoint=tmp_path / "checkpoint")
    assert spark.conf.get(starting.MANAGER, "not set") == "not set"
    put(tmp_path / "in", 1, EPOCHS[1])
    own = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    with setting(spark, starting.MANAGER, own), monkeypatch.context() as patched:
        patched.setattr(starting, "BY_FILE_SYSTEM", "no.such.Class")  # the session's own choice is taken
        run(query, into=tmp_path / "out", checkpoint=tmp_path / "checkpoint")
    assert g.epochs(tmp_path / "out").last == 1
