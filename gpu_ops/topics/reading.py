"""Reading topics: all their partitions by one consumer, in the order of their messages' timestamps.

Partitions are assigned by hand, so none is ever taken away: there is no consumer group that could be rebalanced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from gpu_ops.errors import PlanError, SourceError
from gpu_ops.topics.client import ANSWERS_S, asked, asking, confluent_kafka, confluent_kafka_admin, refused

MESSAGES = 10_000
"""The most messages that are taken from the client at a time, and about the most of a partition that wait."""

Partition = tuple[str | None, int]
"""An input's name (None for a query's only input), and the number of a partition of its topic."""


class Readable(Protocol):
    """The part of `Topic` that reading needs."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def servers(self) -> str:
        """Its brokers."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The user's settings of the client."""

    @property
    def since(self) -> str:
        """Where a fresh query begins to read."""


@dataclass
class PartitionQueue:
    """The messages of a partition that were read and not given out.

    Attributes:
        place: Which partition it is.
        topic: The topic.
        offset: The offset of the next message to give out.
        messages: Those that wait.
        ended: Whether the partition has no more, so that the others need not wait for it.
        latest: The latest timestamp that was given out.
        paused: Whether the client fetches no more of it.
    """

    place: Partition
    topic: Readable
    offset: int
    messages: list[Any] = field(default_factory=list)
    ended: bool = False
    latest: int = -1
    paused: bool = False


class Reader:
    """Reads topics from given offsets on.

    As Kafka Streams does, it gives out the message with the earliest timestamp of all partitions, and waits for a
    partition that has more messages and none here yet. A partition without more messages holds back no other. So the
    order of a past that is read again is nearly the one in which it was written, however partitions come in.

    Args:
        topics: The topic of each input.
        since: The offset of the next message of each partition that was read before.

    Raises:
        SourceError: A topic is not there, brokers do not answer, or messages since an offset are lost.
        PlanError: The topics are of several clusters, or one is read by two inputs.
    """

    def __init__(self, topics: Mapping[str | None, Readable], since: Mapping[Partition, int]) -> None:
        self._topics = topics
        self._one = next(iter(topics.values()))
        for each in topics.values():
            if (each.servers, each.config) != (self._one.servers, self._one.config):
                raise PlanError(
                    f"The topics {self._one.name} and {each.name} are at other servers, or have another config.",
                    remedy="A query follows topics of one cluster.",
                )
        names = [each.name for each in topics.values()]
        if len(set(names)) < len(names):
            raise PlanError("Two inputs follow one topic.", remedy="Take one stream of it twice: one g.events(…).")
        settings = asked(
            *(self._one.servers, self._one.config),
            group_id=self._one.config.get("group.id", "gpu_ops"),
            enable_auto_commit=False,
            auto_offset_reset="error",
            isolation_level="read_committed",
            enable_partition_eof=True,
        )
        with asking("A consumer", self._one.servers):
            self._consumer = confluent_kafka().Consumer({"log_level": 0, **settings})
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        try:
            self._assign(since)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def offsets(self) -> dict[Partition, int]:
        """The offset of the next message to give out, of each partition."""
        return {queue.place: queue.offset for queue in self._queues.values()}

    @property
    def ended(self) -> bool:
        """Whether every message that there is was given out."""
        return all(queue.ended and not queue.messages for queue in self._queues.values())

    def ends(self) -> dict[Partition, int]:
        """The offset behind the last message that there is now, of each partition."""
        with asking("Reading", self._one.servers):
            return {
                queue.place: self._consumer.get_watermark_offsets(self._one_of(at), timeout=ANSWERS_S)[1]
                for at, queue in self._queues.items()
            }

    def _one_of(self, at: tuple[str, int]) -> Any:
        return confluent_kafka().TopicPartition(*at)

    def look_for_partitions(self) -> None:
        """Read partitions too that a topic was given since the reader began, from their first messages on."""
        self._assign({queue.place: queue.offset for queue in self._queues.values()})

    def _assign(self, since: Mapping[Partition, int]) -> None:
        kafka = confluent_kafka()
        added = []
        with asking("Reading", self._one.servers):
            for name, topic in self._topics.items():
                known = any(place[0] == name for place in since)
                for number in partitions_of(self._consumer, topic):
                    if (topic.name, number) in self._queues:
                        continue
                    one = kafka.TopicPartition(topic.name, number)
                    low, high = self._consumer.get_watermark_offsets(one, timeout=ANSWERS_S)
                    begin = high if topic.since == "newest" and not known else low
                    offset = since.get((name, number), begin)
                    if not low <= offset <= high:
                        raise _lost(topic, number, offset, low, high)
                    self._queues[topic.name, number] = PartitionQueue((name, number), topic, offset)
                    added.append(kafka.TopicPartition(topic.name, number, offset))
            if added:
                self._consumer.incremental_assign(added)

    def read(self, wait: float) -> dict[str | None, list[Any]]:
        """The next messages of each input; none if none are due within the time.

        Args:
            wait: How many seconds to wait for a message.

        Raises:
            SourceError: Messages were lost: they expired, or the topic was made anew.
        """
        kafka = confluent_kafka()
        with asking("Reading", self._one.servers):
            found = self._consumer.consume(num_messages=MESSAGES, timeout=wait)
        for message in found:
            error = message.error()
            if error is None:
                queue = self._queues[message.topic(), message.partition()]
                queue.messages.append(message)
                queue.ended = False
            elif error.code() == kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001  (that is its name)
                self._queues[message.topic(), message.partition()].ended = True
            elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                queue = self._queues[message.topic(), message.partition()]
                raise _lost(queue.topic, message.partition(), queue.offset, None, None)
            elif not error.retriable() and error.code() not in _passing(kafka):
                raise refused("Reading", self._one.servers, kafka.KafkaException(error))
        self._pause()
        return due(self._queues.values())

    def _pause(self) -> None:
        """Fetch no more of partitions of which enough waits."""
        kafka = confluent_kafka()
        for (topic, number), queue in self._queues.items():
            enough = len(queue.messages) >= MESSAGES
            if enough != queue.paused:
                change = self._consumer.pause if enough else self._consumer.resume
                change([kafka.TopicPartition(topic, number)])
                queue.paused = enough


def due(queues: Iterable[PartitionQueue]) -> dict[str | None, list[Any]]:
    """Take the messages that no other partition can precede, by input, in the order of their timestamps.

    Within a partition the order stays as it is, whatever timestamps say.
    """
    times = []
    bound = None
    for queue in queues:
        said = np.array([queue.latest, *(message.timestamp()[1] for message in queue.messages)])
        latest = np.maximum.accumulate(said)[1:]
        times.append((queue, latest))
        if not queue.ended:
            last = int(latest[-1]) if len(latest) else -1
            bound = last if bound is None else min(bound, last)
    taken: list[tuple[str | None, Any]] = []
    order = []
    for queue, latest in times:
        count = len(latest) if bound is None else int(np.searchsorted(latest, bound, side="right"))
        if count:
            order.append(latest[:count])
            taken += [(queue.place[0], message) for message in queue.messages[:count]]
            queue.offset, queue.latest = queue.messages[count - 1].offset() + 1, int(latest[count - 1])
            del queue.messages[:count]
    made: dict[str | None, list[Any]] = {}
    if taken:
        for number in np.argsort(np.concatenate(order), kind="stable").tolist():
            name, message = taken[number]
            made.setdefault(name, []).append(message)
    return made


def read_to_end(topic: Readable) -> Iterator[Sequence[Any]]:
    """The messages of a topic up to what is its end now, in the order of `Reader`.

    Raises:
        SourceError: As `Reader`.
    """
    with Reader({None: topic}, {}) as reader:
        ends = reader.ends()
        while not reader.ended and any(reader.offsets[place] < end for place, end in ends.items()):
            messages = reader.read(0.1).get(None, [])
            due = [message for message in messages if message.offset() < ends[None, message.partition()]]
            if due:
                yield due


def partitions_of(client: Any, topic: Readable) -> list[int]:
    """The numbers of a topic's partitions.

    Raises:
        SourceError: The topic is not there.
    """
    found = client.list_topics(topic.name, timeout=ANSWERS_S).topics[topic.name]
    if found.error is not None:
        raise _no_topic(topic, found.error)
    return sorted(found.partitions)


def identity_of(topic: Readable) -> str:
    """The random name that a topic has from when it was made.

    Raises:
        SourceError: The brokers do not say it.
    """
    kafka = confluent_kafka()
    with asking("Describing a topic", topic.servers):
        admin = confluent_kafka_admin().AdminClient({"log_level": 0, **asked(topic.servers, topic.config)})
        asks = admin.describe_topics(kafka.TopicCollection([topic.name]), request_timeout=ANSWERS_S)
        try:
            return str(asks[topic.name].result(ANSWERS_S).topic_id)
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _no_topic(topic, error.args[0]) from error
            raise


def _no_topic(topic: Readable, error: Any) -> SourceError:
    return SourceError(
        f"There is no topic {topic.name} at {topic.servers} ({error.str()}).",
        remedy="See how it is spelt; or make it: kafka-topics.sh --create --topic NAME --partitions 4 …",
    )


def _passing(kafka: Any) -> set[int]:
    """Errors that pass when a broker comes back."""
    error = kafka.KafkaError
    return {error._TRANSPORT, error._ALL_BROKERS_DOWN, error._TIMED_OUT, error._RESOLVE}  # noqa: SLF001


def _lost(topic: Readable, number: int, offset: int, low: int | None, high: int | None) -> SourceError:
    there = "" if low is None else f" (it holds {low} to {high})"
    return SourceError(
        f"The partition {number} of the topic {topic.name} has no message {offset}, which is the next to be "
        f"read{there}: messages have expired, or the topic was made anew.",
        remedy="Start the query afresh, with an empty topic for its results and writer= another name; and have the "
        "topic keep messages for longer.",
    )
