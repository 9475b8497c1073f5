"""Queries that follow topics on a broker: killed, fenced, cut off; what the sink holds is what `collect` gives."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.apps.broker import Broker
from gpu_ops.engines.live import following_topics
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.live.topic_outlets import TopicOutlet
from gpu_ops.topics import reading, writing
from gpu_ops.topics.writing import TopicWriter
from tests.support import topic_followers
from tests.support.cluster import until
from tests.support.messages import committed
from tests.support.rows import rows
from tests.support.topic_followers import SCHEMA, bids, query

# One worker has the broker.
pytestmark = [pytest.mark.services, pytest.mark.xdist_group("kafka")]

COUNT = 300


def source_of(kafka: Broker, name: str, **more: Any) -> g.Topic:
    return g.kafka(name, servers=kafka.servers, value="json", schema=SCHEMA, **more)


@pytest.fixture(scope="module")
def source(kafka: Broker) -> g.Topic:
    """Bids in three partitions, each message a millisecond behind the last."""
    values = bids(COUNT)
    name = kafka.topic("bids", 3)
    numbers = range(len(values))
    kafka.write(name, values, partition=[each * 7 % 3 for each in numbers], timestamp=[1000 + each for each in numbers])
    return source_of(kafka, name)


@pytest.fixture(scope="module")
def expected(source: g.Topic) -> list[Any]:
    """What the query gives of all of them."""
    found = rows(query(source).collect(device="cpu"))
    assert len(found) == 3 * COUNT // 30
    return found


@pytest.fixture
def few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch has few messages."""
    monkeypatch.setattr(reading, "MESSAGES", topic_followers.MESSAGES)


def held(kafka: Broker, into: str) -> list[Any]:
    """What a topic holds for those who read what is committed."""
    found = [json.loads(message.value()) for message in committed(kafka, into)]
    assert [message.key() for message in committed(kafka, into)] == [each["item"].encode() for each in found]
    return as_rows(found)


def as_rows(found: list[dict[str, Any]]) -> list[Any]:
    times = pa.timestamp("us", "UTC")
    columns = {name: pa.array([each[name] for each in found], pa.string()).cast(times) for name in ("start", "end")} | {
        "item": pa.array([each["item"] for each in found], pa.string()),
        "n": pa.array([each["n"] for each in found], pa.int64()),
        "total": pa.array([each["total"] for each in found], pa.int64()),
    }
    return rows(pa.table(columns))


def sink_of(kafka: Broker, **more: Any) -> g.Topic:
    return g.kafka(kafka.topic("totals", 2), servers=kafka.servers, value="json", **({"key": "item"} | more))


# Kills


@pytest.mark.parametrize("point", topic_followers.POINTS)
def test_a_follower_that_is_killed_writes_each_result_once(
    point: str, kafka: Broker, source: g.Topic, expected: list[Any], tmp_path: Path
) -> None:
    """Killed in the first epoch, then in the third of those that follow."""
    into = kafka.topic("totals", 2)
    plan: dict[str, Any] = {"source": source.name, "into": into, "servers": kafka.servers}
    for epoch in (1, 3):
        assert topic_followers.run(tmp_path, point, epoch, **plan) == -9
    assert topic_followers.run(tmp_path, None, **plan) == 0
    assert held(kafka, into) == expected


def test_a_reader_makes_at_least_once_to_once(
    kafka: Broker, source: g.Topic, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = kafka.topic("totals", 2)
    plan: dict[str, Any] = {"source": source.name, "into": into, "servers": kafka.servers, "delivery": "at_least_once"}
    assert topic_followers.run(tmp_path, "behind the commit", 3, **plan) == -9
    assert topic_followers.run(tmp_path, None, **plan) == 0
    found = committed(kafka, into)
    assert len(found) > len(expected)
    once = {tuple(message.headers()): json.loads(message.value()) for message in found}
    assert [name for name, _ in found[0].headers()] == ["gpu_ops-run", "gpu_ops-epoch", "gpu_ops-row"]
    assert as_rows(list(once.values())) == expected
    # Our own reader drops them: at rest, and live, where it ends behind each second step.
    schema = pa.schema([(name, pa.timestamp("us", "UTC")) for name in ("start", "end")])
    for name, kind in {"item": pa.string(), "n": pa.int64(), "total": pa.int64()}.items():
        schema = schema.append(pa.field(name, kind))
    read = g.kafka(into, servers=kafka.servers, value="json", schema=schema, repeats="drop")
    again = g.events(read, start="start", end="end")
    assert rows(again.collect()) == expected
    path, steps = tmp_path / "reader", itertools.count(1)
    monkeypatch.setattr(reading, "MESSAGES", 7)

    def interrupt(_: RunningQuery) -> None:
        if next(steps) % 2 == 0:
            raise InterruptedError

    again.start(device="cpu").checkpoint(path)
    done = False
    while not done:
        live = g.restore(path, again, device="cpu")
        with contextlib.suppress(InterruptedError):
            live.follow(read, checkpoint=path, every=1, timeout=0, on_step=interrupt)
            done = True
    live.close()
    assert rows(live.results()) == expected
    assert live.status().invalid["repeated"] == len(found) - len(expected)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_older_checkpoint_of_a_folder_is_refused_by_the_sink(
    delivery: str, kafka: Broker, source: g.Topic, expected: list[Any], tmp_path: Path, few_messages: None
) -> None:
    """Its epochs would have other results now, under the numbers of those that are there."""
    into, folder = sink_of(kafka, delivery=delivery), tmp_path / "checkpoints"
    folder.mkdir()
    query(source).start(device="cpu").follow(source, into=into, checkpoint=folder, every=1, timeout=0, keep=4)
    numbers = sorted(int(each.name.partition(".")[0]) for each in folder.glob("*.manifest"))
    assert len(numbers) == 4
    older = g.restore(folder, query(source), number=numbers[0], device="cpu")
    with pytest.raises(g.SourceError, match=r"The last .*in the topic totals.*checkpoint is of epoch"):
        older.follow(source, into=into, checkpoint=folder, every=1, timeout=0)
    assert held(kafka, into.name) == expected


def test_an_older_checkpoint_compares_the_store_that_has_gone_further(
    kafka: Broker, source: g.Topic, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages come in other epochs than before: what the store holds of these is no longer what the query gives."""
    into, folder = g.store(tmp_path / "store"), tmp_path / "checkpoints"
    folder.mkdir()
    monkeypatch.setattr(reading, "MESSAGES", 60)
    query(source).start(device="cpu").follow(source, into=into, checkpoint=folder, every=1, timeout=0, keep=4)
    numbers = sorted(int(each.name.partition(".")[0]) for each in folder.glob("*.manifest"))
    monkeypatch.setattr(reading, "MESSAGES", 25)
    older = g.restore(folder, query(source), number=numbers[0], device="cpu")
    with pytest.raises(g.SourceError, match=r"Batch \d+ of .* is not the one that the query knows"):
        older.follow(source, into=into, checkpoint=tmp_path / "other", every=1, timeout=0)
    assert rows(into.read()) == expected


def test_partitions_of_a_topic_have_clocks_of_their_own(kafka: Broker, tmp_path: Path, few_messages: None) -> None:
    """What is late is decided within a partition, so neither the order of partitions nor a restart changes it."""
    made = random.Random(7)
    name = kafka.topic("devices", 3)
    values, places = [], []
    for number in range(300):
        place = number % 3  # its clock is 500 s before that of the next, and a fifth of its rows is late
        at = (10 * number + 500 * place - 90 * (made.random() < 0.2)) * 1_000_000
        values.append(json.dumps({"kind": "insert", "at": at, "item": "abc"[number % 2], "price": number}).encode())
        places.append(place)
    kafka.write(name, values, partition=places, timestamp=range(1000, 1300))
    source = source_of(kafka, name, partition="p")

    def asked(**more: Any) -> g.Stream:
        timely = g.events(source, start="at", unit="us", kind="kind").advance_time(1, late="drop", per="p", **more)
        return timely.by("item").tumbling("30s").agg(n=g.count(), total=g.sum("price"))

    expected = rows(asked().collect(device="cpu"))
    path, steps = tmp_path / "checkpoint", itertools.count(1)

    def end(_: RunningQuery) -> None:
        if next(steps) in (2, 5):
            raise InterruptedError

    live, done = asked().start(device="cpu"), False
    while not done:
        with contextlib.suppress(InterruptedError):
            live.follow(source, checkpoint=path, every=1, timeout=0, on_step=end)
            done = True
        live.checkpoint(path)
        live = g.restore(path, asked(), device="cpu")
    live.close()
    found = live.results()
    assert rows(found) == expected
    assert sum(found["n"].to_pylist()) < 300 == sum(found["n"].to_pylist()) + live.status().late["dropped"]
    # A low watermark makes results final, however far other partitions are; they go into a topic once.
    into = sink_of(kafka)
    low = asked(low_watermark="10s", lag="2000s")
    low.start(device="cpu").follow(source, into=into, checkpoint=tmp_path / "low", every=1, timeout=0)
    said = [json.loads(message.value()) for message in committed(kafka, into.name)]
    whole = asked().collect(device="cpu").to_pylist()
    given = {(each["p"], dt.datetime.fromisoformat(each["start"]), each["item"], each["n"]) for each in said}
    assert given
    assert given < {(each["p"], each["start"], each["item"], each["n"]) for each in whole}


def test_a_broker_that_is_killed_comes_back(
    kafka: Broker,
    source: g.Topic,
    expected: list[Any],
    tmp_path: Path,
    few_messages: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two epochs, and while a transaction is open."""
    into = sink_of(kafka)
    steps = itertools.count(1)
    sent = TopicWriter._send
    sends = itertools.count(1)

    def again() -> None:
        kafka.kill()
        kafka.start()

    def send(self: TopicWriter, *args: Any) -> None:
        sent(self, *args)
        if next(sends) == 4:
            again()

    monkeypatch.setattr(TopicWriter, "_send", send)
    monkeypatch.setattr(writing, "_HANGS_S", 4.0)
    live = query(source).start(device="cpu")
    live.follow(
        source,
        into=into,
        checkpoint=tmp_path / "checkpoint",
        every=1,
        timeout=0,
        on_step=lambda _: again() if next(steps) == 2 else None,
    )
    assert held(kafka, into.name) == expected


# Others


def test_a_second_follower_fences_the_first(
    kafka: Broker, source: g.Topic, expected: list[Any], tmp_path: Path, few_messages: None
) -> None:
    """The second begins from a copy of the first one's checkpoint, when that is at its third step."""
    into = sink_of(kafka)
    first, second = tmp_path / "first", tmp_path / "second"
    steps = itertools.count(1)

    def begin_another(_: RunningQuery) -> None:
        if next(steps) == 3:
            shutil.copy(first, second)
            live = g.restore(second, query(source), device="cpu")
            live.follow(source, into=into, checkpoint=second, every=1, timeout=0)
            assert live.closed

    live = query(source).start(device="cpu")
    with pytest.raises(g.SourceError, match="Another follower writes to the topic"):
        live.follow(source, into=into, checkpoint=first, every=1, timeout=0, on_step=begin_another)
    assert held(kafka, into.name) == expected
    # Nor does it go on from its own checkpoint, which another has gone beyond.
    with pytest.raises(g.SourceError, match="and the checkpoint is of epoch 3"):
        g.restore(first, query(source), device="cpu").follow(source, into=into, checkpoint=first, timeout=0)
    with pytest.raises(g.QueryFailedError):
        live.results()


def test_another_run_does_not_write_into_the_topic_of_one(
    kafka: Broker, source: g.Topic, expected: list[Any], tmp_path: Path
) -> None:
    into = sink_of(kafka)
    query(source).start(device="cpu").follow(source, into=into, checkpoint=tmp_path / "one", timeout=0)
    with pytest.raises(g.SourceError, match="holds results of another run, written as 'gpu_ops-totals"):
        query(source).start(device="cpu").follow(source, into=into, timeout=0)
    assert held(kafka, into.name) == expected
    other = g.kafka(into.name, servers=kafka.servers, value="json", key="item", writer=f"other-{into.name}")
    query(source).start(device="cpu").follow(source, into=other, timeout=0)
    query(source).start(device="cpu").follow(source, into=into, timeout=0, if_other_store="adopt")
    assert held(kafka, into.name) == sorted(expected * 3)


def test_the_writers_group_says_how_far_the_source_is_read(
    kafka: Broker, source: g.Topic, tmp_path: Path, few_messages: None
) -> None:
    """For Kafka's own tools, and for whoever looks for a query that lags."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    into = sink_of(kafka, writer="a writer of totals")
    live = query(source).start(device="cpu")
    live.follow(source, into=into, checkpoint=tmp_path / "checkpoint", every=2, timeout=0)
    asks = kafka.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("a writer of totals")])
    found = asks["a writer of totals"].result(30).topic_partitions
    said = {(each.topic, each.partition): each.offset for each in found}
    assert said.pop((into.name, 0)) == live.positions["epoch"] >= 3
    assert said == {(source.name, number): live.positions[f"topic {number}"] for number in range(3)}


# What does not fit


def test_a_damaged_message_ends_the_query_or_is_counted(kafka: Broker, tmp_path: Path) -> None:
    name = kafka.topic("bids")
    values = bids(40)
    kafka.write(name, [*values[:5], b'{"kind": "insert", "at": "soon"}', *values[5:9], b"\xff", None, *values[9:]])
    into, path = sink_of(kafka), tmp_path / "checkpoint"
    raising, dropping = source_of(kafka, name), source_of(kafka, name, on_invalid="drop")
    with pytest.raises(
        g.SourceError, match=rf'{name}\[0\]@5 breaks the rule other_schema: "soon" is no int64'
    ) as caught:
        query(raising).start(device="cpu").follow(raising, into=into, checkpoint=path, timeout=0)
    assert caught.value.column == "at"
    assert held(kafka, into.name) == []
    live = g.restore(path, query(dropping), device="cpu")
    status = live.follow(dropping, into=into, checkpoint=path, timeout=0)
    assert status.invalid == {"other_schema": 1, "undecodable": 1, "no_value": 1}
    assert live.report().first["other_schema"].startswith(f"{name}[0]@5, column 'at': ")
    assert held(kafka, into.name) == rows(query(dropping).collect(device="cpu"))


def test_a_row_without_a_lifetime_names_its_message(kafka: Broker) -> None:
    name = kafka.topic("bids")
    kafka.write(name, [*bids(20)[:7], b'{"kind": "insert", "at": null}'])
    source = source_of(kafka, name)
    with pytest.raises(g.TimeError) as caught:
        query(source).start(device="cpu").follow(source, timeout=0)
    assert caught.value.__notes__ == [f"The row is of the message {name}[0]@7."]


def test_what_is_not_there_is_refused(kafka: Broker, source: g.Topic) -> None:
    def follow(of: g.Topic, **more: Any) -> None:
        query(of).start(device="cpu").follow(of, timeout=0, **more)

    with pytest.raises(g.SourceError, match="There is no topic nothing"):
        follow(source_of(kafka, "nothing"))
    with pytest.raises(g.SourceError, match="There is no topic nothing"):
        follow(source, into=g.kafka("nothing", servers=kafka.servers, value="json"))
    with pytest.raises(g.SourceError, match="There is no topic nothing"):
        g.events(source_of(kafka, "nothing"), start="at", unit="us").collect(device="cpu")
    with pytest.raises(g.ColumnError, match="has no such column, and the results have"):
        follow(source, into=g.kafka(source.name, servers=f"localhost:{kafka.port}", value="json", schema=SCHEMA))
    with pytest.raises(g.PlanError, match="would be read and written"):
        follow(source, into=g.kafka(source.name, servers=kafka.servers, value="json"))


def test_a_topic_that_lost_messages_or_was_made_anew_is_refused(kafka: Broker, tmp_path: Path) -> None:
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    name, path = kafka.topic("bids"), tmp_path / "checkpoint"
    source = source_of(kafka, name)
    values = bids(40)
    kafka.write(name, values[:10])
    query(source).start(device="cpu").follow(source, checkpoint=path, timeout=0)
    kafka.write(name, values[10:])
    for done in kafka.admin.delete_records([TopicPartition(name, 0, 15)]).values():
        done.result(30)
    with pytest.raises(g.SourceError, match=r"has no message 10, .* \(it holds 15 to"):
        g.restore(path, query(source), device="cpu").follow(source, checkpoint=path, timeout=0)
    kafka.admin.delete_topics([name])[name].result(30)

    def made_anew() -> bool | None:
        with contextlib.suppress(KafkaException):  # it is still being removed, or is not there yet
            kafka.admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        return kafka.admin.list_topics(name, timeout=30).topics[name].error is None or None

    until(made_anew, "the topic to be there again")
    with pytest.raises(g.SourceError, match="another one than that of the checkpoint"):
        g.restore(path, query(source), device="cpu").follow(source, checkpoint=path, timeout=0)


# Other sources and sinks


@pytest.mark.parametrize("kept", ["in a file", "in a folder"])
def test_results_go_into_a_store_once(
    kept: str, source: g.Topic, expected: list[Any], tmp_path: Path, few_messages: None
) -> None:
    """It ends behind the checkpoint of its third epoch, and its second life behind the store's next batch."""
    into, path = g.store(tmp_path / "totals"), tmp_path / "checkpoint"
    if kept == "in a folder":
        path.mkdir()
    live = query(source).start(device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        deliver = following_topics._FollowedTopics._deliver
        calls = itertools.count(1)

        def end(self: Any, sinks: Any) -> None:
            number = next(calls)
            if number != 3:
                deliver(self, sinks)
            if number in (3, 6):
                raise KeyboardInterrupt

        patch.setattr(following_topics._FollowedTopics, "_deliver", end)
        with pytest.raises(KeyboardInterrupt):
            live.follow(source, into=into, checkpoint=path, every=1, timeout=0)
        with pytest.raises(KeyboardInterrupt):
            g.restore(path, query(source), device="cpu").follow(source, into=into, checkpoint=path, every=1, timeout=0)
    g.restore(path, query(source), device="cpu").follow(source, into=into, checkpoint=path, every=1, timeout=0)
    assert rows(into.read()) == expected


def test_two_topics_and_late_rows(kafka: Broker, tmp_path: Path) -> None:
    """Of two inputs, in Avro and in Arrow; late rows have a topic too, and a partition that is made later is read."""
    bid = {
        "type": "record",
        "name": "Bid",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "item", "type": "string"},
        ],
    }
    asks = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.string())])
    one = g.kafka(kafka.topic("one"), servers=kafka.servers, value="avro", schema=bid)
    two = g.kafka(kafka.topic("two"), servers=kafka.servers, value="arrow", schema=asks, partition="p")

    def stream(topic: g.Topic, name: str) -> g.Stream:
        made = g.events(topic, start="at", name=name).advance_time(every=1, delay="2s", late="divert")
        return made.select("item")

    def table(times: list[int]) -> pa.Table:
        items = pa.array(["ab"[each % 2] for each in times])
        return pa.table({"at": pa.array([each * 1_000_000 for each in times], asks.field("at").type), "item": items})

    def write(topic: g.Topic, times: list[int], partition: int = 0) -> None:
        values, _ = topic.format.encode(table(times), topic.schema)
        kafka.write(topic.name, values, partition=[partition] * len(values))

    plan = stream(one, "one").union(stream(two, "two")).by("item").tumbling("10s").agg(n=g.count())
    into, late = sink_of(kafka), g.kafka(kafka.topic("late"), servers=kafka.servers, value="arrow")
    path = tmp_path / "checkpoint"
    options: dict[str, Any] = {"into": into, "late_into": late, "checkpoint": path, "timeout": 0}
    write(one, [0, 5, 9, 12, 3])
    write(two, [1, 2, 8, 14])
    plan.start(device="cpu").follow({"one": one, "two": two}, **options)
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    kafka.admin.create_partitions([NewPartitions(two.name, 2)])[two.name].result(30)
    write(one, [40])
    write(two, [20, 41], partition=1)
    live = g.restore(path, plan, device="cpu")
    live.follow({"one": one, "two": two}, **options)
    found = [json.loads(message.value()) for message in committed(kafka, into.name)]
    counted = sorted((each["start"][17:19], each["item"], each["n"]) for each in found)
    assert counted == [("00", "a", 3), ("00", "b", 3), ("10", "a", 2), ("20", "a", 1)]
    assert live.status().late == {"diverted": 1}
    (message,) = committed(kafka, late.name)
    assert pa.ipc.open_stream(message.value()).read_all().num_rows == 1


def test_a_run_goes_on_in_one_process(kafka: Broker, source: g.Topic, expected: list[Any], few_messages: None) -> None:
    """Its own function raises at the first step, and at the fourth if there is one: nothing comes twice or is lost."""
    into = sink_of(kafka)
    steps = itertools.count(1)

    def interrupt(_: RunningQuery) -> None:
        if next(steps) in (1, 4):  # how many there are depends on what the broker sends first
            raise ValueError

    live = query(source).start(device="cpu")
    with pytest.raises(ValueError, match=r"^$"):
        live.follow(source, into=into, every=3, timeout=0, on_step=interrupt)
    with contextlib.suppress(ValueError):
        live.follow(source, into=into, every=3, timeout=0, on_step=interrupt)
    live.follow(source, into=into, every=3, timeout=0, on_step=interrupt)
    assert held(kafka, into.name) == expected


def test_a_run_that_is_interrupted_at_its_end_delivers_what_is_left(
    kafka: Broker, source: g.Topic, expected: list[Any], few_messages: None
) -> None:
    # messages  ├──────────────┤ the last one ends the input: its step is taken, and the epoch has not ended yet
    into = sink_of(kafka)

    def interrupt(live: RunningQuery) -> None:
        if live.closed:
            raise ValueError

    live = query(source).start(device="cpu")
    with pytest.raises(ValueError, match=r"^$"):
        live.follow(source, into=into, every=1000, timeout=0, on_step=interrupt)
    assert held(kafka, into.name) == []
    live.follow(source, into=into, every=1000, timeout=0, on_step=interrupt)
    assert held(kafka, into.name) == expected


def test_time_bounds_an_epoch_and_a_timeout_ends_it(kafka: Broker, source: g.Topic) -> None:
    """Without a sink `results` gives them; a topic that has come to rest ends nothing by itself."""
    name = kafka.topic("bids", 2)
    quiet = source_of(kafka, name)
    kafka.write(name, bids(100)[:80], timestamp=range(1, 81))
    live = query(quiet).start(device="cpu")
    live.follow(quiet, every="50ms", timeout="300ms")
    assert not live.closed
    assert sum(live.results()["n"].to_pylist()) == 60
    kafka.write(name, bids(100)[80:], timestamp=range(81, 1 + len(bids(100))))
    live.follow(quiet, every="50ms", timeout="300ms")
    assert live.closed
    assert sum(live.results()["n"].to_pylist()) == 40


def test_a_query_that_begins_behind_the_newest_misses_the_older(kafka: Broker) -> None:
    name = kafka.topic("bids")
    kafka.write(name, bids(10)[:5])
    newest = source_of(kafka, name, since="newest")
    live = query(newest).start(device="cpu")
    live.follow(newest, timeout=0)
    kafka.write(name, bids(10)[5:])
    live.follow(newest, timeout=0)
    assert sum(live.results()["n"].to_pylist()) == 5


# From a store into a topic


def test_a_store_goes_into_a_topic_once(kafka: Broker, tmp_path: Path) -> None:
    """It ends behind batches that were written and before the checkpoint, and goes on from the one before.

    An older checkpoint goes on too: a batch of results depends on the store alone. Another run is refused.
    """
    store = g.store(tmp_path / "in")
    with store.writer() as writer:
        for first in range(0, 60, 10):
            rows_of = {"at": list(range(first, first + 10)), "item": list("ab" * 5), "price": list(range(10))}
            made = g.events(pa.table(rows_of), start="at", unit="s").collect()
            writer.append(made, f"1970-01-01T00:{(first + 10) // 60:02}:{(first + 10) % 60:02}Z")
        writer.advance("infinity")

    def asked() -> g.Stream:
        return g.events(store).by("item").tumbling("15s").agg(n=g.count())

    into, path, steps = sink_of(kafka), tmp_path / "checkpoint", itertools.count(1)
    delivered = TopicOutlet.put

    def end(self: TopicOutlet, *args: Any) -> None:
        delivered(self, *args)
        last = self.writer.marker()
        if args[0].num_rows and last is not None and last.epoch == self.sequence and next(steps) in (1, 4):
            raise KeyboardInterrupt

    live = asked().start(device="cpu")
    for _ in range(3):
        with mock.patch.object(TopicOutlet, "put", end), contextlib.suppress(KeyboardInterrupt):
            live.follow(store, into=into, checkpoint=path, every=2, keep=3, timeout=0)
            break
        live = g.restore(path, asked(), device="cpu")
    expected = sorted((each["start"], each["item"], each["n"]) for each in asked().collect().to_pylist())

    def found() -> list[Any]:
        said = [json.loads(message.value()) for message in committed(kafka, into.name)]
        return sorted((dt.datetime.fromisoformat(each["start"]), each["item"], each["n"]) for each in said)

    assert found() == expected
    older = g.restore(tmp_path / "checkpoint.2", asked(), device="cpu")
    older.follow(store, into=into, checkpoint=tmp_path / "other", timeout=0)
    assert found() == expected
    with pytest.raises(g.SourceError, match="holds results of another run"):
        asked().start(device="cpu").follow(store, into=into, timeout=0)
    twice = dataclasses.replace(into, delivery="at_least_once")
    with pytest.raises(g.PlanError, match="exactly once"):
        asked().start(device="cpu").follow(store, into=twice, timeout=0)
