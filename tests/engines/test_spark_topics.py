"""Topics of Kafka through Spark: as inputs and as sinks of live queries, which are killed at any step."""

from __future__ import annotations

import io
import json
import logging
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.apps.broker import CONNECTOR, Broker
from gpu_ops.engines.spark.streams.log import EpochLog
from gpu_ops.topics.writing import TopicWriter
from tests.support.epoch_driver import best, dying, results_of, rows_of
from tests.support.epochs import COLUMNS, SCHEMA, run, same, table
from tests.support.messages import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.services,
    pytest.mark.usefixtures("few_tasks"),
    pytest.mark.skipif(not CONNECTOR, reason="there is no connector (`make kafka` fetches it)"),
]

Rows = Sequence[tuple[int, int, str, int]]


def drawn(seed: int, count: int = 60) -> Rows:
    made = random.Random(seed)
    starts = sorted(made.randrange(900) for _ in range(count))
    return [(at, at + made.randrange(1, 90), made.choice("abcd"), made.randrange(100)) for at in starts]


def written(kafka: Broker, rows: Rows, partitions: int = 2) -> str:
    """A topic of rows, in JSON."""
    name = kafka.topic("rows", partitions)
    values = [json.dumps(dict(zip(SCHEMA.names, row, strict=True))).encode() for row in rows]
    kafka.write(name, values, partition=[number % partitions for number in range(len(rows))])
    return name


def events(source: Any, **more: Any) -> g.Stream:
    return g.events(source, start="at", end="till", unit="s", **more)


def test_topics_of_several_formats_are_inputs(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """One is in JSON with keys and timestamps, the other one in Avro; results go into a topic of Arrow."""
    import fastavro

    ask = {"type": "record", "name": "Ask", "fields": [{"name": "at", "type": "long"}, {"name": "ask", "type": "long"}]}
    bids, asks = kafka.topic("bids", 3), kafka.topic("asks", 1)
    numbers = range(50)
    values = [json.dumps({"at": each, "price": each * 7 % 11}).encode() for each in numbers]
    keys = [b"a" if each % 3 else None for each in numbers]
    kafka.write(bids, values, key=keys, timestamp=[1000 + each for each in numbers])
    for number in range(0, 50, 5):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, ask, {"at": number, "ask": number % 4})
        kafka.write(asks, [buffer.getvalue()])
    beside: dict[str, Any] = {"key": "item", "timestamp": "said", "headers": "more", "partition": "p", "offset": "o"}
    schema = pa.schema([("at", pa.int64()), ("price", pa.int64())])
    one = g.kafka(bids, servers=kafka.servers, value="json", schema=schema, **beside)
    other = g.kafka(asks, servers=kafka.servers, value="avro", schema=ask)

    def joined(reader: Any) -> g.Stream:
        first = g.events(one, start="at", unit="s", name="bids", spark=reader)
        second = g.events(other, start="at", unit="s", name="asks", spark=reader)
        lasting = second.alter_lifetime(duration="5s")
        return first.advance_time("1s", delay="1h").join(lasting, condition=g.col("price") >= g.col("ask"))

    into = g.kafka(kafka.topic("pairs"), servers=kafka.servers, value="arrow")
    query = joined(spark.readStream.option("maxOffsetsPerTrigger", 40))
    assert f"Source bids <Topic {bids} at {kafka.servers}: json> on Spark" in query.explain()
    where: dict[str, Any] = {"into": into, "checkpoint": tmp_path / "checkpoint"}
    run(query, **where)
    query.end_on_spark(**where)
    expected = joined(None).collect()
    at = expected.column_names.index("said")  # Spark's times are in microseconds
    expected = expected.set_column(at, "said", expected["said"].cast(pa.timestamp("us", "UTC")))
    found = g.kafka(into.name, servers=kafka.servers, value="arrow", schema=expected.schema)
    same(g.events(found, start="start", end="end").collect(), expected)
    last = EpochLog(tmp_path / "checkpoint").last()
    assert last is not None
    assert last > 1


BROKEN = [b'{"at": 1, "till": 2, "item": "a", "price": 1}', b"{", None, b'{"at": 3, "till": 4, "price": "x"}']


def test_faulty_messages_are_named_or_counted(
    spark: SparkSession, kafka: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = kafka.topic("broken")
    kafka.write(name, BROKEN)
    strict = events(rows_of(kafka.servers, name), spark=spark)
    with pytest.raises(g.SourceError, match=rf"{name}\[0\]@1 breaks the rule undecodable.*\(3 of 4 messages"):
        run(strict, into=tmp_path / "none", checkpoint=tmp_path / "strict")
    lenient = events(rows_of(kafka.servers, name, on_invalid="drop"), spark=spark)
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "lenient"}
    with caplog.at_level(logging.WARNING, "gpu_ops"):
        run(lenient, **where)
    manifest = EpochLog(tmp_path / "lenient").committed(0)
    assert manifest is not None
    assert manifest.faults == {"undecodable": 1, "no_value": 1, "other_schema": 1}
    assert f"other_schema 1, first {name}[0]@3, column 'price'" in caplog.text
    lenient.end_on_spark(**where)
    assert g.epochs(tmp_path / "out").read()["item"].to_pylist() == ["a"]


def test_ctis_in_messages(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """`kind=` over a topic: its CTIs count from the next epoch on, and make all before them final."""
    name = kafka.topic("kinds", 1)
    rows = [(0, "a", "insert"), (50, "b", "Insert"), (90, None, "cti"), (7, "a", "insert"), (95, "b", "insert")]
    values = [json.dumps(dict(zip(("at", "item", "kind"), row, strict=True))).encode() for row in rows]
    kafka.write(name, values)
    schema = pa.schema([("at", pa.int64()), ("item", pa.string()), ("kind", pa.string())])
    topic = g.kafka(name, servers=kafka.servers, value="json", schema=schema)
    reader = spark.readStream.option("maxOffsetsPerTrigger", 3)
    bids = g.events(topic, start="at", unit="s", kind="kind", spark=reader)
    query = bids.advance_time(late="drop").by("item").tumbling("1min").agg(n=g.count())
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    run(query, **where, partitions=2)
    manifest = EpochLog(tmp_path / "checkpoint").committed(1)
    assert manifest is not None
    assert manifest.fates == {"dropped": 1}
    assert sorted(g.epochs(tmp_path / "out").read()["item"].to_pylist()) == ["a", "b"]
    query.end_on_spark(**where)
    assert sorted(g.epochs(tmp_path / "out").read()["item"].to_pylist()) == ["a", "b", "b"]


def test_wrong_arguments_are_refused(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    topic = rows_of(kafka.servers, kafka.topic("rows"))
    others: dict[str, dict[str, Any]] = {
        "no session of Spark": {"spark": "local"},
        "is for a topic of Kafka": {"source": table([]), "spark": spark},
        "knows? nothing of each other": {"source": rows_of(kafka.servers, "b", repeats="drop"), "spark": spark},
        "no setting ssl.ca.location": {
            "source": rows_of(kafka.servers, "b", config={"ssl.ca.location": "ca"}),
            "spark": spark,
        },
        "is about rows in their order": {"shape": "edge", "edge": "item", "spark": spark},
    }
    for refused, why in others.items():
        with pytest.raises(g.PlanError, match=refused):
            events(**{"source": topic} | why)
    query = best(events(topic, spark=spark))
    for into, late, refused in (
        (topic, None, "would be read and written"),
        (results_of(kafka.servers, "a", writer="w"), results_of(kafka.servers, "b", writer="w"), "have one writer="),
    ):
        with pytest.raises(g.PlanError, match=refused):
            query.start_on_spark(into=into, late_into=late, checkpoint=tmp_path / "checkpoint")


def test_messages_that_a_user_decodes(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """A DataFrame of Spark's connector is one like others; an event whose time is still in its value is told so."""
    from pyspark.sql import functions as F  # noqa: N812  (its usual name)

    rows = drawn(1, 30)
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": written(kafka, rows)}
    raw = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    with pytest.raises(g.ColumnError, match=r"values are not decoded.*spark=spark.*from_json"):
        events(raw)
    assert "value" in g.events(raw, start="timestamp").schema.names
    decoded = raw.select(F.from_json(F.col("value").cast("string"), COLUMNS).alias("v")).select("v.*")
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    query = best(events(decoded))
    run(query, **where, partitions=2)
    query.end_on_spark(**where)
    same(g.epochs(tmp_path / "out").read(), best(events(table(rows))).collect())


def test_a_broker_that_is_killed_under_a_query(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """While an epoch runs, and its results are not written yet; it comes back, and nobody else does anything."""
    rows = drawn(4, 60)
    into = results_of(kafka.servers, kafka.topic("results", 2))
    source = rows_of(kafka.servers, written(kafka, rows))
    query = best(events(source, spark=spark.readStream.option("maxOffsetsPerTrigger", 20)))
    where: dict[str, Any] = {"into": into, "checkpoint": tmp_path / "checkpoint"}
    log, began, back = EpochLog(tmp_path / "checkpoint"), threading.Event(), threading.Event()
    commit = EpochLog.commit

    def wait(self: EpochLog, manifest: Any) -> None:
        if manifest.epoch == 1:
            began.set()
            assert back.wait(60)
        commit(self, manifest)

    with mock.patch.object(EpochLog, "commit", wait):
        running = query.start_on_spark(**where, partitions=2)
        assert began.wait(100)
        kafka.kill()
        back.set()
        kafka.start()  # in this thread: the broker ends when it does
        running.processAllAvailable()
    running.stop()
    assert (log.last() or 0) > 1
    query.end_on_spark(**where)
    same(g.events(into, start="start", end="end").collect(), best(events(table(rows))).collect())


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_killed_at_many_steps(spark: SparkSession, kafka: Broker, tmp_path: Path, delivery: Any) -> None:
    """First when the first results are written into the topic, and nobody knows; then at each fifth step."""
    rows = drawn(3, 40)
    source, name = rows_of(kafka.servers, written(kafka, rows)), kafka.topic("results", 2)
    query = best(events(source, spark=spark.readStream.option("maxOffsetsPerTrigger", 16)))
    into = results_of(kafka.servers, name, delivery=delivery, repeats="drop")
    where: dict[str, Any] = {"into": into, "checkpoint": tmp_path / "checkpoint"}
    deaths = 0

    def die() -> None:
        raise KilledError

    def until_done(call: Callable[[], None]) -> None:
        nonlocal deaths
        for step in range(1, 60, 5):
            try:
                with dying(step, die):
                    call()
                break
            except Exception as error:  # (Spark wraps it, or it comes from what is published at the start)
                if "KilledError" not in f"{error!r} {error}":
                    raise
                deaths += 1

    deliver = TopicWriter.deliver

    def deliver_and_die(*args: Any) -> None:
        deliver(*args)
        die()

    with mock.patch.object(TopicWriter, "deliver", deliver_and_die), pytest.raises(Exception, match="KilledError"):
        run(query, **where, partitions=2)
    until_done(lambda: run(query, **where, partitions=2))
    until_done(lambda: query.end_on_spark(**where))
    assert deaths > 3
    expected = best(events(table(rows))).collect()
    same(g.events(into, start="start", end="end").collect(), expected)
    if delivery == "at_least_once":
        assert len(committed(kafka, name)) > expected.num_rows
    # Of another query, or beyond an older copy of the checkpoint.
    with pytest.raises(g.SourceError, match="another sink"):
        query.end_on_spark(into=results_of(kafka.servers, kafka.topic("other")), checkpoint=tmp_path / "checkpoint")
    if delivery == "exactly_once":
        with pytest.raises(g.SourceError, match="is not the sink of this query"):
            query.start_on_spark(into=into, checkpoint=tmp_path / "another checkpoint")


def _killed(spark: SparkSession, kafka: Broker, folder: Path, steps: Sequence[int], seed: int, delivery: Any) -> None:
    """Drivers whose processes end at given steps, one after the other; the last one works here."""
    rows = drawn(seed, 80)
    name = kafka.topic("results", 2)
    said = {"servers": kafka.servers, "source": written(kafka, rows), "into": name, "rows": 30, "delivery": delivery}
    folder.mkdir()
    (folder / "topics").write_text(json.dumps(said))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    for step in steps:
        command = [sys.executable, "-m", "tests.support.epoch_driver", str(folder), str(step)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (9, 0), done.stderr[-3000:]
        if not done.returncode:  # it was done before that step
            break
    into = results_of(kafka.servers, name, delivery=delivery, repeats="drop")
    query = best(events(rows_of(kafka.servers, said["source"]), spark=spark))
    where: dict[str, Any] = {"into": into, "checkpoint": folder / "checkpoint"}
    if done.returncode:
        run(query, **where)
        query.end_on_spark(**where)
    same(g.events(into, start="start", end="end").collect(), best(events(table(rows))).collect())


def test_a_driver_that_is_killed_four_times(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Its process ends without clearing up: in a first epoch, and then in the middle of what it has begun to write.

    The live demo's is killed once more, from outside.
    """
    _killed(spark, kafka, tmp_path / "killed", (5, 12, 9, 14), 5, "at_least_once")


@pytest.mark.deep
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_driver_that_is_killed_often(spark: SparkSession, kafka: Broker, tmp_path: Path, delivery: str) -> None:
    made = random.Random(delivery)
    for seed in range(5):
        _killed(spark, kafka, tmp_path / str(seed), [made.randrange(1, 24) for _ in range(5)], seed, delivery)
