"""A Kafka broker on this machine: one process that is its own controller, on the loopback, in a folder of its own.

The live demo starts one, and so do the tests. ``make kafka`` fetches it, and Spark's connector.
"""

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
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpu_ops.errors import SourceError
from gpu_ops.topics.client import confluent_kafka, confluent_kafka_admin

JARS = Path(os.environ.get("KAFKA_JARS", Path.home() / ".cache" / "gpu_ops" / "kafka"))
"""Where `make kafka` puts the broker."""

CONNECTOR = sorted(JARS.glob("spark-kafka-*"))
"""Where it puts Spark's connector, if it has."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for seconds: the optimizing compiler and parallel collectors cost more than they save."""

_STARTS_S = 60.0
"""How many seconds a broker may take until it answers."""

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
        """Start it, and wait until it answers.

        Raises:
            SourceError: It ends, or does not answer in a minute; the message has what it said last.
        """
        *_, jars = sorted(JARS.glob("kafka-broker-*"))
        command = [_java(), *SHORT_LIVED.split(), "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  (our own arguments)
                [*command, "-cp", f"{jars}/*", "kafka.Kafka", str(self.folder / "settings")],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_ends_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  (it takes no lock)
            )
        given_up = time.monotonic() + _STARTS_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > given_up:
                said = (self.folder / "log").read_text(errors="replace").splitlines()[-20:]
                self.kill()
                raise SourceError(
                    "The Kafka broker does not start:\n{}".format("\n".join(said)),
                    remedy=f"See {self.folder / 'log'}.",
                )

    def _answers(self) -> bool:
        with contextlib.suppress(confluent_kafka().KafkaException):
            return 1 in self.admin.list_topics(timeout=0.5).brokers
        return False

    def kill(self) -> None:
        """End it at once, as a loss of power would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @cached_property
    def admin(self) -> Any:
        """A client that makes topics."""
        return confluent_kafka_admin().AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic; its name, which has a random end."""
        made = f"{name}-{secrets.token_hex(4)}"
        self.admin.create_topics([confluent_kafka_admin().NewTopic(made, partitions, 1)])[made].result(30)
        return made

    def write(self, topic: str, values: Sequence[bytes | None], **each: Sequence[Any]) -> None:
        """Write messages, and wait until it has them.

        Args:
            topic: The topic's name.
            values: The messages' values.
            each: Of ``key``, ``partition``, ``timestamp`` and ``headers`` one for each message.

        Raises:
            SourceError: It does not take them in half a minute.
        """
        producer = confluent_kafka().Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0})
        for number, value in enumerate(values):
            producer.produce(topic, value, **{name: given[number] for name, given in each.items()})
        if producer.flush(30):
            raise SourceError(f"The broker at {self.servers} takes no messages.", remedy="See that it runs.")


def check_here() -> None:
    """Refuse a machine on which no broker can start.

    Raises:
        SourceError: The broker, Java or Kafka's client is missing.
    """
    confluent_kafka()
    if not list(JARS.glob("kafka-broker-*")):
        raise SourceError(f"{JARS} has no Kafka broker.", remedy="Fetch it: make kafka.")
    if shutil.which(_java()) is None:
        raise SourceError(
            "Java is missing, and a Kafka broker needs it.",
            remedy="Install a JRE of version 17 or newer, or say where it is: JAVA_HOME=/path.",
        )


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that works in a folder, and ends with the block.

    Args:
        folder: The folder, which is made.

    Raises:
        SourceError: As `check_here`; or it does not start.
    """
    check_here()
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


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _ends_with_parent() -> None:
    """Have the kernel end this process when the one that starts it ends, however that is."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]
