"""Writing results into a topic: an epoch at a time, each in one transaction that says which it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from gpu_ops.errors import SourceError
from gpu_ops.topics.client import ANSWERS_S, asked, asking, confluent_kafka, refused
from gpu_ops.topics.reading import partitions_of
from gpu_ops.topics.repeats import result_headers
from gpu_ops.topics.topic import Topic

_LOG = logging.getLogger("gpu_ops")

PATIENCE_S = 300.0
"""How many seconds an epoch is tried again while brokers are away."""

_PAUSE_S = 0.5

_HANGS_S = 15.0
"""How many seconds a request of a transaction may take before its producer is given up for another one."""

Offsets = Mapping[tuple[str, int], int]
"""For each topic and number of a partition the offset of the next message to read."""


class Marker(NamedTuple):
    """What a transaction says of itself: the broker keeps that of the last one which was committed.

    Attributes:
        run: The name of the run.
        epoch: The number of the epoch: of a follower from 1, on Spark from 0.
        token: The random name of the epoch's checkpoint; on Spark, where an epoch is committed once, it is always the
            same.
    """

    run: str
    epoch: int
    token: str


class TopicWriter:
    """Writes results of one run into a topic.

    A transaction holds the results of an epoch, its marker, and the source's offsets. The marker is a committed offset
    of the writer's consumer group for the topic's first partition: the epoch's number, with run and token as metadata.
    Without transactions it is committed before the results are sent: the topic has nothing of a later epoch.

    Args:
        topic: The topic.

    Raises:
        SourceError: The topic is not there, or brokers do not answer.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._producer: Any = None
        self._failed: list[Any] = []
        with asking("Writing", topic.servers):
            self._consumer = self._group("read_committed")
            self._partitions = partitions_of(self._consumer, topic)

    def _group(self, isolation: str) -> Any:
        """A consumer of the writer's group; it reads nothing but the group's offsets."""
        topic = self.topic
        own = {"group_id": topic.writer, "enable_auto_commit": False, "isolation_level": isolation}
        return confluent_kafka().Consumer({"log_level": 0, **asked(topic.servers, topic.config, **own)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop_producer()
        self._consumer.close()

    @property
    def once(self) -> bool:
        """Whether each result stands in the topic once."""
        return self.topic.delivery == "exactly_once"

    # What was committed

    def glance(self) -> Marker | None:
        """As `marker`, while another follower may be in the middle of a transaction, which `marker` waits for."""
        consumer = self._group("read_uncommitted")
        try:
            return self._last(consumer)
        finally:
            consumer.close()

    def marker(self) -> Marker | None:
        """The marker of the last transaction that was committed under the writer's name; None before the first.

        Without transactions it is that of the last epoch that was begun.

        Raises:
            SourceError: Brokers do not answer.
        """
        return self._last(self._consumer)

    def _last(self, consumer: Any) -> Marker | None:
        one = confluent_kafka().TopicPartition(self.topic.name, 0)
        with asking("Asking for the last transaction", self.topic.servers):
            (found,) = self._of_coordinator(lambda: consumer.committed([one], timeout=ANSWERS_S))
        run, _, token = str(found.metadata or "").partition(" ")
        return Marker(run, found.offset, token) if found.offset >= 0 else None

    @staticmethod
    def _of_coordinator(ask: Callable[[], Any]) -> Any:
        """Ask the coordinator of the group, which a broker that has just started looks for first."""
        kafka = confluent_kafka()
        known = kafka.KafkaError
        begins = {known.NOT_COORDINATOR, known.COORDINATOR_NOT_AVAILABLE, known.COORDINATOR_LOAD_IN_PROGRESS}
        given_up = time.monotonic() + ANSWERS_S
        while True:
            try:
                return ask()
            except kafka.KafkaException as error:
                if error.args[0].code() not in begins or time.monotonic() > given_up:
                    raise
            time.sleep(_PAUSE_S)

    def open(self) -> None:
        """Become the topic's one writer of this name: a transaction that another has begun is undone, and it is fenced.

        Raises:
            SourceError: Brokers do not answer, or refuse.
        """
        kafka = confluent_kafka()
        self._drop_producer()
        own: dict[str, Any] = {"enable_idempotence": True, "partitioner": "murmur2_random", "linger_ms": 20}
        if self.once:
            own |= {"transactional_id": self.topic.writer, "transaction_timeout_ms": int(PATIENCE_S * 1000)}
        with asking("Writing", self.topic.servers):
            settings = asked(self.topic.servers, self.topic.config, **own)
            self._producer = kafka.Producer({"log_level": 0, **settings})
            if self.once:
                self._patiently(lambda: self._producer.init_transactions(ANSWERS_S))

    def _drop_producer(self) -> None:
        """Forget what was not sent: nobody has been promised it."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    # What is written

    def deliver(self, marker: Marker, table: pa.Table, offsets: Offsets) -> None:
        """Write the results of an epoch, whole or not at all; if that is what is asked of the topic, once.

        While brokers are away it is tried again, for five minutes.

        Args:
            marker: The epoch's.
            table: The results.
            offsets: How far the sources were read.

        Raises:
            SourceError: Another follower has taken the writer's name; or brokers refuse, or stay away.
            ColumnError: A result does not fit the topic's schema.
        """
        kafka = confluent_kafka()
        values, counts = self.topic.encode(table)
        messages = list(zip(values, *self._beside(table, len(values)), strict=True))
        rows = (np.cumsum([0, *counts])[:-1]).tolist()
        given_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.once:
                    self._transaction(marker, messages, offsets)
                else:
                    self._begin(marker)
                    self._send(messages, [result_headers(marker.run, marker.epoch, row) for row in rows])
                    self._flushed()
            except kafka.KafkaException as error:
                if _is_fenced(error):
                    raise self._fenced() from error
                if not _passes(error) or time.monotonic() > given_up:
                    raise refused(f"Writing to the topic {self.topic.name}", self.topic.servers, error) from error
                _LOG.warning("Epoch %d is written to %r again: %s", marker.epoch, self.topic.name, error)
            else:
                return
            time.sleep(_PAUSE_S)
            self.open()
            if self.once and self._was_committed(marker):
                return

    def _was_committed(self, marker: Marker) -> bool:
        """Whether the transaction that ended with an error was committed nevertheless."""
        found = self.marker()
        if found is not None and (found.run != marker.run or found.epoch > marker.epoch):
            raise self._fenced()
        return found == marker

    def _fenced(self) -> SourceError:
        return SourceError(
            f"Another follower writes to the topic {self.topic.name} as {self.topic.writer!r} now: this one is fenced.",
            remedy="Let one of them go on: a run has one follower. Another run needs a name of its own: writer=.",
        )

    def _transaction(self, marker: Marker, messages: Sequence[Any], offsets: Offsets) -> None:
        kafka = confluent_kafka()
        producer = self._producer
        producer.begin_transaction()
        self._send(messages, None)
        places = [kafka.TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        said = self._said(marker)
        group = self._consumer.consumer_group_metadata()
        self._in_time(lambda: producer.send_offsets_to_transaction([*places, said], group, ANSWERS_S))
        self._in_time(lambda: producer.commit_transaction(ANSWERS_S))

    def _begin(self, marker: Marker) -> None:
        """Commit the marker of an epoch whose results are about to be sent without a transaction."""
        said = self._said(marker)
        self._of_coordinator(lambda: self._consumer.commit(offsets=[said], asynchronous=False))

    def _said(self, marker: Marker) -> Any:
        made = confluent_kafka().TopicPartition
        return made(self.topic.name, 0, marker.epoch, f"{marker.run} {marker.token}")

    def _in_time(self, ask: Callable[[], None]) -> None:
        """Ask something that should end within `ANSWERS_S`, and may never do so if a broker has been away meanwhile.

        librdkafka's producer then waits on; another one, which takes over its transaction, does not.
        """
        kafka = confluent_kafka()
        ended: list[BaseException | None] = []

        def work() -> None:
            try:
                ask()
            except BaseException as error:  # noqa: BLE001  (the thread that waits raises it)
                ended.append(error)
            else:
                ended.append(None)

        thread = threading.Thread(target=work, name="gpu_ops transaction", daemon=True)
        thread.start()
        thread.join(_HANGS_S)
        if not ended:
            self._producer = None
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))  # noqa: SLF001
        if ended[0] is not None:
            raise ended[0]

    def _send(self, messages: Sequence[Any], headers: Sequence[Any] | None) -> None:
        producer, name = self._producer, self.topic.name
        self._failed = []
        for number, (value, key, timestamp) in enumerate(messages):
            more: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp}
            if headers is not None:
                more |= {"headers": headers[number], "on_delivery": self._note}
                if key is None:  # what is written again goes where it went before
                    more["partition"] = self._partitions[number % len(self._partitions)]
            while True:
                try:
                    producer.produce(name, value, key, **more)
                    break
                except BufferError:  # the client's queue is full: what is in it is being sent
                    producer.poll(0.1)

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _flushed(self) -> None:
        """Wait until brokers have taken everything."""
        kafka = confluent_kafka()
        left = self._producer.flush(PATIENCE_S)
        if self._failed:
            raise kafka.KafkaException(self._failed[0])
        if left:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))  # noqa: SLF001

    def _beside(self, table: pa.Table, messages: int) -> tuple[Sequence[bytes | None], Sequence[int | None]]:
        """The keys and timestamps of messages."""
        key, stamp = self.topic.beside.get("key"), self.topic.beside.get("timestamp")
        nothing: Sequence[None] = [None] * messages
        keys: Sequence[bytes | None] = nothing
        stamps: Sequence[int | None] = nothing
        if key is not None:
            column = table[key]
            keys = (
                column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())
            ).to_pylist()
        if stamp is not None:
            stamps = table[stamp].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
        return keys, stamps

    def _patiently(self, ask: Callable[[], None]) -> None:
        """Ask brokers again while they are away."""
        kafka = confluent_kafka()
        given_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                ask()
            except kafka.KafkaException as error:
                if _is_fenced(error) or not _passes(error) or time.monotonic() > given_up:
                    raise
            else:
                return
            time.sleep(_PAUSE_S)


def _is_fenced(error: Any) -> bool:
    known = confluent_kafka().KafkaError
    return error.args[0].code() in {known._FENCED, known.PRODUCER_FENCED, known.INVALID_PRODUCER_EPOCH}  # noqa: SLF001


def _passes(error: Any) -> bool:
    """Whether an error may not come again."""
    known, said = confluent_kafka().KafkaError, error.args[0]
    if said.code() in {known.MSG_SIZE_TOO_LARGE, known.TOPIC_AUTHORIZATION_FAILED, known.UNKNOWN_TOPIC_OR_PART}:
        return False
    away = {known._TIMED_OUT, known._TRANSPORT, known._ALL_BROKERS_DOWN, known._MSG_TIMED_OUT}  # noqa: SLF001
    return bool(said.retriable() or said.txn_requires_abort() or said.code() in away)
