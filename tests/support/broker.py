"""A Kafka broker on this machine: one process that is its own controller, on the loopback, in a folder of its own."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import JAVA, until

JARS = Path(os.environ.get("KAFKA_JARS", Path.home() / ".cache" / "gpu_ops" / "kafka"))
"""Where `make kafka` puts the broker."""

CONNECTOR = list(JARS.glob("spark-kafka-*"))
"""Where it puts Spark's connector, if it has."""

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

_IDENTITY = "version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id={folder}\n"
"""What Kafka's own tool writes into a new folder: that would be another JVM to start."""


@dataclass
class Broker:
    """A broker; `broker` starts and ends one.

    Attributes:
        folder: Holds its settings, its log and its topics.
        port: Where it listens.
        process: It.
    """

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """What a client calls it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        (jars,) = JARS.glob("kafka-broker-*")
        java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else "java"
        command = [java, *JAVA.split(), "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "-cp", f"{jars}/*", "kafka.Kafka", str(self.folder / "settings")],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_ends_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  (it takes no lock)
            )
        until(self._answers, "the broker to answer")

    def _answers(self) -> bool | None:
        from confluent_kafka import KafkaException

        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(KafkaException):
            return 1 in self.admin.list_topics(timeout=1).brokers or None
        return None

    def kill(self) -> None:
        """End it at once, as a loss of power would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @cached_property
    def admin(self) -> Any:
        """A client that makes topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic; its name."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        made = f"{name}-{secrets.token_hex(4)}"
        self.admin.create_topics([NewTopic(made, partitions, 1)])[made].result(30)
        return made

    def write(self, topic: str, values: Sequence[bytes | None], **each: Sequence[Any]) -> None:
        """Write messages: their values, and of `key`, `partition`, `timestamp` and `headers` one for each."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1, "log_level": 0})
        for number, value in enumerate(values):
            producer.produce(topic, value, **{name: given[number] for name, given in each.items()})
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Any]:
        """All messages of a topic that are committed, partition by partition."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
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


def _ends_with_parent() -> None:
    """Have the kernel end this process when the one that starts it ends, however that is."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that works in a folder. A test is skipped where its jars or Java are missing."""
    if not list(JARS.glob("kafka-broker-*")):
        pytest.skip(f"{JARS} has no broker (`make kafka` fetches it)")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("Java is missing")
    port, controller = _free_ports(2)
    (folder / "topics").mkdir(parents=True)
    (folder / "settings").write_text(_SETTINGS.format(port=port, controller=controller, folder=folder / "topics"))
    cluster, disk = (base64.urlsafe_b64encode(b"gpu" + secrets.token_bytes(13)).decode()[:22] for _ in range(2))
    (folder / "topics" / "meta.properties").write_text(_IDENTITY.format(cluster=cluster, folder=disk))
    made = Broker(folder, port)
    try:
        made.start()
        yield made
    finally:
        made.kill()
