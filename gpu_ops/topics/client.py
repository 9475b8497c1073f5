"""Kafka's client and Avro's reader, which an extra brings; and what their errors become."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpu_ops.errors import GpuOpsError, SourceError

ANSWERS_S = 30.0
"""How many seconds a broker may take to answer a request."""


def confluent_kafka() -> Any:
    """The module of Kafka's client.

    Raises:
        SourceError: It is not installed.
    """
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise _missing("confluent-kafka") from error


def confluent_kafka_admin() -> Any:
    """The module that asks brokers about topics; as `confluent_kafka`."""
    try:
        return importlib.import_module("confluent_kafka.admin")
    except ImportError as error:
        raise _missing("confluent-kafka") from error


def fastavro() -> Any:
    """The module that reads and writes Avro; as `confluent_kafka`."""
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        raise _missing("fastavro") from error


def _missing(package: str) -> SourceError:
    return SourceError(
        f"{package} is not installed, and Kafka's topics need it.", remedy="Install it: pip install 'gpu_ops[kafka]'."
    )


@contextmanager
def asking(what: str, servers: str) -> Iterator[None]:
    """Turn an error of Kafka's client within the block into one of ours.

    Args:
        what: What is asked, as the beginning of the error.
        servers: The brokers that are asked.

    Raises:
        SourceError: The client raised an error.
    """
    kafka = confluent_kafka()
    try:
        yield
    except GpuOpsError:
        raise
    except kafka.KafkaException as error:
        raise refused(what, servers, error) from error


def refused(what: str, servers: str, error: Exception) -> SourceError:
    """The error of ours for an error of Kafka's client."""
    cause = error.args[0] if error.args else error
    said = cause.str() if hasattr(cause, "str") else str(cause)
    return SourceError(
        f"{what} failed at the Kafka brokers {servers}: {said}.",
        remedy="See that they run, that this machine reaches them, and that the settings in config= let it in.",
    )


def asked(servers: str, config: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """The settings of a client: the user's, and those that make delivery exactly once, which stand above them.

    Args:
        servers: The brokers.
        config: The user's settings.
        own: Ours, with ``_`` for the dots in their names.
    """
    ours = {name.replace("_", "."): value for name, value in own.items()}
    return {**config, "bootstrap.servers": servers, **ours}
