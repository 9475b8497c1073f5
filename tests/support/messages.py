"""Messages as Kafka's client gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_ops.apps.broker import Broker


@dataclass(frozen=True)
class Message:
    """A message that no broker has seen."""

    said: bytes | None
    at: int = 0
    where: int = 0
    when: int = 0
    named: bytes | None = None
    more: list[tuple[str, bytes]] = field(default_factory=list)

    def value(self) -> bytes | None:
        return self.said

    def offset(self) -> int:
        return self.at

    def partition(self) -> int:
        return self.where

    def timestamp(self) -> tuple[int, int]:
        return 1, self.when

    def key(self) -> bytes | None:
        return self.named

    def headers(self) -> list[tuple[str, bytes]]:
        return self.more


def committed(broker: Broker, topic: str) -> list[Any]:
    """All messages of a topic that are committed, partition by partition."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found: list[Any] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(1000, 1.0):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))
