"""Topics that results go into: what is checked before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from gpu_ops.errors import PlanError, SourceError
from gpu_ops.microbatches.stores import Store
from gpu_ops.topics.topic import Topic


class GivesResults(Protocol):
    """The part of `RunningQuery` that says what it gives."""

    @property
    def given_schema(self) -> pa.Schema:
        """The columns of results."""

    def late_schema(self) -> pa.Schema | None:
        """The columns of late rows; None if inputs differ in them."""


def check_topics(live: GivesResults, targets: Mapping[str, Store | Topic]) -> None:
    """Refuse topics that results do not fit, and two that are one writer.

    Args:
        live: The query.
        targets: Its sinks: ``into`` and ``late_into``.

    Raises:
        PlanError: They are one writer, or a topic cannot be written.
        ColumnError: A column does not fit.
    """
    topics = {name: each for name, each in targets.items() if isinstance(each, Topic)}
    if len({each.writer for each in topics.values()}) < len(topics):
        raise PlanError("Both sinks have one writer=, and would fence each other.", remedy="Leave writer= out of one.")
    for name, topic in topics.items():
        schema = live.given_schema if name == "into" else live.late_schema()
        if schema is not None:
            topic.check_sink(schema)


def of_another_run(topic: Topic) -> SourceError:
    """The error for a topic that another run has written."""
    return SourceError(
        f"The topic {topic.name} holds results of another run, written as {topic.writer!r}.",
        remedy="Restore that run's checkpoint, give another topic, or give this run a name of its own: "
        'g.kafka(…, writer="…"). If that run is over and its results may stay: if_other_store="adopt".',
    )
