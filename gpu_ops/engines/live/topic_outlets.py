"""Topics that results go into: what is checked before, and the place of a follower of stores that writes one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gpu_ops.engines.live.places import Following, IfOtherStore, Mark
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.microbatches.contents import content_crc
from gpu_ops.microbatches.stores import Store
from gpu_ops.topics.reading import identity_of
from gpu_ops.topics.topic import Topic
from gpu_ops.topics.writing import Marker, TopicWriter


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


@dataclass
class TopicOutlet:
    """The place where a follower of stores writes a topic: a batch with rows is a transaction that names it.

    The batches of results depend on the query and the stores alone. So those that the topic holds behind the place are
    not written again, and the last of them is compared.

    Attributes:
        name: The place's name among `RunningQuery.positions`.
        identity: The topic's identity.
        writer: Its writer.
        run: The run's name.
        sequence: How many batches with rows were written.
        last: The last transaction of the run that was committed; None if there is none.
    """

    name: str
    identity: str
    writer: TopicWriter
    run: str
    sequence: int
    last: Marker | None

    @property
    def _there(self) -> int:
        return 0 if self.last is None else self.last.epoch

    def mark(self) -> Mark:
        """The mark of the place, for a checkpoint."""
        return Mark(self.identity, self.sequence)

    def put(self, table: pa.Table, cti: int | None) -> None:
        """Write a batch, unless the topic holds it. A topic has no CTIs, so what has no rows leaves nothing there.

        Raises:
            SourceError: The topic holds another batch in its place; or as `TopicWriter.deliver`.
        """
        if not table.num_rows:
            return
        marker = Marker(self.run, self.sequence + 1, f"{content_crc(table):08x}")
        if marker.epoch > self._there:
            self.writer.deliver(marker, table, {})
        elif marker.epoch == self._there and marker != self.last:
            raise SourceError(
                f"Batch {marker.epoch} in the topic {self.writer.topic.name} is not what the query gives again.",
                remedy="The query, one of its functions or a store is another one: put it back as it was; or start the "
                "query afresh with another writer=.",
            )
        self.sequence = marker.epoch

    def claim(self, follower: str) -> None:
        """Nothing: its transactions name the run."""

    def finish(self) -> None:
        """Refuse a topic that holds more batches than the query gave.

        Raises:
            SourceError: It does.
        """
        if self.sequence < self._there:
            raise SourceError(
                f"The topic {self.writer.topic.name} holds {self._there} batches of this run, and the query gives "
                f"{self.sequence}.",
                remedy="Give the whole store, and the query as it was.",
            )


def topic_outlets(
    following: Following,
    positions: Mapping[str, int],
    targets: Mapping[str, Topic],
    policy: IfOtherStore,
    stack: ExitStack,
) -> dict[str, TopicOutlet]:
    """The places of a follower of stores in the topics that it writes; they are fenced.

    Args:
        following: What the query knows of its places.
        positions: The query's positions.
        targets: The topics by their names among the positions.
        policy: Whether to refuse a topic that is another one, or that another run has written.
        stack: Closes the writers.

    Raises:
        PlanError: A topic is written at least once.
        SourceError: A topic is not the one that the query knows, or lacks batches that it has written.
    """
    return {name: _outlet(name, each, following, positions.get(name), policy, stack) for name, each in targets.items()}


def _outlet(
    name: str, topic: Topic, following: Following, position: int | None, policy: IfOtherStore, stack: ExitStack
) -> TopicOutlet:
    if topic.delivery != "exactly_once":
        raise PlanError(
            f"The results of a query that follows a store go into the topic {topic.name} exactly once.",
            remedy='Leave delivery="at_least_once" out.',
        )
    identity, known = identity_of(topic), following.marks.get(name)
    if known is not None and known.store != identity and policy == "raise":
        raise SourceError(
            f"The topic {topic.name} at {topic.servers} is another one than that of the checkpoint: it was made anew, "
            "or is at other brokers.",
            remedy='Give that topic; or say if_other_store="adopt", and results go on in this one.',
        )
    writer, run = stack.enter_context(TopicWriter(topic)), following.follower or ""
    found = writer.glance()
    if found is not None and found.run != run and policy == "raise":
        raise of_another_run(topic)
    writer.open()
    found = writer.marker()
    last = found if found is not None and found.run == run else None
    sequence = position or 0
    if policy == "raise" and sequence > (0 if last is None else last.epoch):
        said = "none" if last is None else f"{last.epoch} batches"
        raise SourceError(
            f"The checkpoint was made after batch {sequence} of results, and the topic {topic.name} says that it has "
            f"{said} of this run.",
            remedy="It is an older copy, or its brokers have forgotten the writer's offsets: if its results are whole, "
            'say if_other_store="adopt".',
        )
    return TopicOutlet(name, identity, writer, run, sequence, last)
