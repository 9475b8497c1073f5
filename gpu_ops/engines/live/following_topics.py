"""Following topics: a running query reads Kafka's topics and writes its results into topics or stores, exactly once.

How a topic is cut into batches depends on when it is read, so a restored query cannot compute again what it wrote.
Instead, the results of an epoch (some batches) are in its checkpoint, which is written first; then the sinks get them,
a topic in a transaction that names the epoch. A restored query asks each sink for its last epoch: either it has the
results of the checkpoint, or it gets them now.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.core.arguments import callback
from gpu_ops.core.own_errors import theirs
from gpu_ops.core.time import MAX_TIME, MIN_TIME, Duration, ticks
from gpu_ops.engines.live.calls import Calls
from gpu_ops.engines.live.following import Followable, for_each_input
from gpu_ops.engines.live.pace import Pace, stopping
from gpu_ops.engines.live.places import SINKS, Following, IfOtherStore, Mark, Outlet, begin
from gpu_ops.engines.live.topic_outlets import check_topics, of_another_run
from gpu_ops.errors import GpuOpsError, PlanError, SourceError
from gpu_ops.ingest.rules import check_choice
from gpu_ops.microbatches.identity import new_name
from gpu_ops.microbatches.stores import Store
from gpu_ops.topics.reading import Partition, Reader, identity_of
from gpu_ops.topics.repeats import Repeats, Result
from gpu_ops.topics.topic import MessageRows, Topic
from gpu_ops.topics.writing import Marker, Offsets, TopicWriter

_WAIT_S = 0.1
"""How long a reader waits for a message before it looks whether something else is due."""

_LOOK_S = 60.0
"""How often it looks for new partitions; and after so long without messages it notes that all is delivered."""


class Topical(Followable, Protocol):
    """The part of `RunningQuery` that following topics needs."""

    @property
    def has_untaken(self) -> bool:
        """Whether results or late rows wait to be taken."""

    def pushed(self, *, input: str | None = None) -> int:  # noqa: A002  (the word for it)
        """How many rows of an input were pushed."""

    def skip(self, counts: Any, *, input: str | None = None) -> None:  # noqa: A002
        """As in `RunningQuery`."""


class EpochSink(Protocol):
    """Where results go, an epoch at a time."""

    @property
    def name(self) -> str:
        """Its name among the positions."""

    def mark(self) -> Mark:
        """The mark of the place, for a checkpoint."""

    def deliver(self, epoch: int, table: pa.Table, cti: int, offsets: Offsets) -> None:
        """Write the results of an epoch."""


@dataclass
class _StoreEpochs:
    """A store that results go into. It compares what it holds already.

    Attributes:
        outlet: The place in the store.
    """

    outlet: Outlet

    @property
    def name(self) -> str:
        """Its name among the positions."""
        return self.outlet.name

    def mark(self) -> Mark:
        """As in `EpochSink`."""
        return self.outlet.mark()

    def deliver(self, epoch: int, table: pa.Table, cti: int, offsets: Offsets) -> None:
        """As in `EpochSink`. A batch without rows says a CTI, which late rows have none of."""
        if self.name == "into":
            self.outlet.put(table, None if cti == MIN_TIME else cti)
        elif table.num_rows:
            self.outlet.put(table, None)


@dataclass
class _TopicEpochs:
    """A topic that results go into.

    Attributes:
        name: Its name among the positions.
        writer: Its writer.
        run: The run's name.
        epoch: The epoch of the last checkpoint.
        token: The random name of that checkpoint.
    """

    name: str
    writer: TopicWriter
    run: str
    epoch: int
    token: str

    def mark(self) -> Mark:
        """As in `EpochSink`. The checkpoint's random name stands in the place of a store's identity."""
        return Mark(self.token, self.epoch)

    def deliver(self, epoch: int, table: pa.Table, cti: int, offsets: Offsets) -> None:
        """As in `EpochSink`."""
        self.writer.deliver(Marker(self.run, epoch, self.token), table, offsets)

    def has(self, delivered: int, policy: IfOtherStore) -> bool:
        """Whether the topic holds the results of the last checkpoint's epoch.

        Args:
            delivered: The last epoch whose results were known to be delivered when the checkpoint was written.
            policy: Whether to take over a topic that another run has written.

        Raises:
            SourceError: The topic has a later epoch than the checkpoint, another run's, or lacks earlier ones.
        """
        found = self.writer.marker()
        if not self.writer.once:
            newest = found is None or found.run != self.run or found.epoch < self.epoch
            if policy == "raise" and not newest and found != Marker(self.run, self.epoch, self.token):
                raise self._older(found)
            return delivered == self.epoch
        if found is not None and found.run != self.run:
            if policy == "raise":
                raise of_another_run(self.writer.topic)
            found = None
        if found == Marker(self.run, self.epoch, self.token):
            return True
        if found is None and self.epoch in (delivered, 1):
            # Nothing was written yet; or so long ago that the broker has forgotten the offsets of the writer's group.
            return delivered == self.epoch
        if found is not None and found.epoch == self.epoch - 1 and delivered < self.epoch:
            return False
        raise self._older(found)

    def _older(self, found: Marker | None) -> SourceError:
        """The error for a topic that has gone on beyond the checkpoint, or is not as far."""
        said = "no epoch of this run" if found is None else f"epoch {found.epoch} of this run"
        if found is not None and found.epoch == self.epoch:
            said += ", by another checkpoint"
        what = "The last transaction" if self.writer.once else "The last that was begun"
        return SourceError(
            f"{what} in the topic {self.writer.topic.name} has {said}, and the checkpoint is of epoch {self.epoch}.",
            remedy="Restore the newest checkpoint, or an older one that another process has not written over (keep=). "
            'Or start the query afresh, with another writer= or if_other_store="adopt": all its results come again.',
        )

    def refuse_others(self, policy: IfOtherStore) -> None:
        """Refuse a topic that another run has written, before its writer would be fenced.

        Raises:
            SourceError: It is another run's.
        """
        found = self.writer.glance() if self.writer.once and policy == "raise" else None
        if found is not None and found.run != self.run:
            raise of_another_run(self.writer.topic)


@dataclass
class _TopicPlace:
    """The place where a follower reads a partition.

    Attributes:
        name: Its name among the positions.
        topic: The topic's identity.
        sequence: The offset of the next message.
    """

    name: str
    topic: str
    sequence: int

    def mark(self) -> Mark:
        """The mark of the place, for a checkpoint."""
        return Mark(self.topic, self.sequence)


def follow_topics(
    live: Topical,
    calls: Calls,
    source: Topic | Mapping[str, Topic],
    into: Store | Topic | None,
    late_into: Store | Topic | None,
    checkpoint: Path | None,
    every: int | Duration,
    timeout: Duration | None,
    on_step: Callable[[Any], None] | None,
    keep: int,
    stop_on: Iterable[int],
    if_other_store: IfOtherStore,
) -> None:
    """`RunningQuery.follow` for topics."""
    callback(on_step, name="on_step", takes="the running query")
    check_choice("if_other_store", if_other_store, IfOtherStore)
    patience = None if timeout is None else ticks(timeout, name="timeout") / 1_000_000
    pace = Pace(every)
    topics = _by_input(live, source)
    targets = {name: each for name, each in zip(SINKS, (into, late_into), strict=True) if each is not None}
    _check_targets(live, topics, targets)
    with stopping(tuple(stop_on)) as stopped, ExitStack() as stack:
        sinks = _sinks(live, targets, if_other_store, stack)
        identities = {name: identity_of(topic) for name, topic in topics.items()}
        _check_identities(live.following, topics, identities, if_other_store)
        since = _since(live.positions)
        _check_inputs(topics, since)
        reader = stack.enter_context(Reader(topics, since))
        repeats = {
            name: Repeats(_results(live.positions, name)) for name, each in topics.items() if each.repeats == "drop"
        }
        run = _FollowedTopics(live, calls, topics, identities, sinks, reader, checkpoint, keep, pace, repeats)
        run.go_on(if_other_store)
        run.follow(patience, stopped, on_step)
        number = stopped()
    if number is not None:
        raise SystemExit(128 + number)


@dataclass
class _FollowedTopics:
    """A query while it follows topics.

    Attributes:
        live: The query.
        calls: Its calls.
        topics: The topic of each input; the name of a query's only input is None.
        identities: Their identities.
        sinks: Where results go.
        reader: Reads the topics.
        checkpoint: The file for its checkpoints, if any.
        keep: How many checkpoints are kept.
        pace: When the next epoch ends.
        repeats: Finds repeated results, for the inputs that drop them.
        epoch: The last epoch that has ended.
        offsets: The offset of the next message to take in, of each partition.
        delivered: The last one whose results were delivered.
        noted: The last one of which a checkpoint says so.
    """

    live: Topical
    calls: Calls
    topics: Mapping[str | None, Topic]
    identities: Mapping[str | None, str]
    sinks: list[EpochSink]
    reader: Reader
    checkpoint: Path | None
    keep: int
    pace: Pace
    repeats: Mapping[str | None, Repeats]
    epoch: int = field(init=False)
    offsets: dict[Partition, int] = field(init=False)
    delivered: int = field(init=False)
    noted: int = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = dict(self.reader.offsets)
        self.epoch = self.live.positions.get("epoch", 0)
        self.delivered = self.noted = self.live.positions.get("delivered", self.epoch)

    def go_on(self, policy: IfOtherStore) -> None:
        """Deliver the results in the checkpoint to the sinks that lack them, and write a checkpoint without them."""
        missing: list[EpochSink] = []
        for sink in self.sinks:
            if isinstance(sink, _TopicEpochs):
                sink.refuse_others(policy)
                sink.writer.open()
                if not sink.has(self.delivered, policy):
                    missing.append(sink)
            elif self.delivered < self.epoch:
                missing.append(sink)
        if self.delivered < self.epoch:
            self._deliver(missing)
        self.save(again=True)
        for sink in self.sinks:
            if isinstance(sink, _StoreEpochs):
                sink.outlet.claim(self.live.following.follower or "")

    def follow(
        self, patience: float | None, stopped: Callable[[], int | None], on_step: Callable[[Any], None] | None
    ) -> None:
        """Read and write until nothing comes for so long, a signal comes, or all inputs have ended."""
        heard = looked = time.monotonic()
        if self.live.has_untaken:  # an earlier call was interrupted in the middle of an epoch, which goes on
            self.pace.step()
        while stopped() is None and not self.live.closed:
            found = self.reader.read(_WAIT_S)
            now = time.monotonic()
            for name, messages in found.items():
                self.take(name, messages)
            if found:
                heard = now
                self.note()
                self.pace.step()
                if on_step is not None:
                    theirs(on_step, self.live)
            # Results of a topic that has come to rest do not wait for more of it.
            if self.pace.due() or (self.pace.counts and self.pace.waiting and self.reader.ended):
                self.commit()
            if now - looked >= _LOOK_S:
                looked = now
                self.reader.look_for_partitions()
                self.offsets = {**self.reader.offsets, **self.offsets}
                if now - heard >= _LOOK_S and self.noted < self.epoch:
                    self.save(again=True)
            if patience is not None and self.reader.ended and now - heard >= patience:
                break
        if self.pace.waiting:
            self.commit()
        if self.noted < self.epoch:
            self.save(again=True)

    def take(self, name: str | None, messages: list[Any]) -> None:
        """Push the rows of some messages."""
        first, last = messages[0], messages[-1]
        self.calls.at(f"messages {first.partition()}@{first.offset()} to {last.partition()}@{last.offset()}")
        fresh: list[Any] = messages
        if name in self.repeats:
            fresh, repeated = self.repeats[name].dropped(messages)
            if repeated.rows:
                self.live.skip(repeated, input=name)
        rows = self.topics[name].rows(fresh)
        if rows.skipped.rows:
            self.live.skip(rows.skipped, input=name)
        if rows.table.num_rows:
            self._push(rows, name)
        if all(cti == MAX_TIME for cti in self.live.input_ctis().values()):
            self.live.close()
        self.offsets |= {(name, message.partition()): message.offset() + 1 for message in messages}
        self.calls.at(None)

    def _push(self, rows: MessageRows, name: str | None) -> None:
        before = self.live.pushed(input=name)
        try:
            self.live.push(rows.table, input=name)
        except GpuOpsError as error:
            if error.row is not None and before <= error.row < before + rows.table.num_rows:
                error.add_note(f"The row is of the message {rows.places.of(error.row - before)}.")
            raise

    def commit(self) -> None:
        """End an epoch: write the checkpoint with its results, then deliver them."""
        self.epoch += 1
        for sink in self.sinks:
            if isinstance(sink, _TopicEpochs):
                sink.epoch, sink.token = self.epoch, secrets.token_hex(8)
        self.save()
        self._deliver(self.sinks)

    def _deliver(self, sinks: Iterable[EpochSink]) -> None:
        """Take the results out of the query, and write them to some sinks.

        An error fails the query: they are in its checkpoint, and no longer in it.
        """
        self.calls.at(f"epoch {self.epoch}")
        self.calls.changes += 1
        named = {sink.name for sink in self.sinks}
        tables = {}
        if "into" in named:
            tables["into"] = self.live.results()
        # Taken in any case: while the query follows, nobody else takes late rows, and they would pile up.
        late = self.live.late()
        if late is None:
            schema = self.live.late_schema()
            late = None if schema is None else schema.empty_table()
        if late is not None:
            tables["late_into"] = late
        for sink in sinks:
            if sink.name in tables:
                sink.deliver(self.epoch, tables[sink.name], self.live.cti, self._offsets(sink))
        self.delivered = self.epoch
        self.calls.at(None)

    def _offsets(self, sink: EpochSink) -> dict[tuple[str, int], int]:
        """How far the topics are read, for those who watch the writer's group: if they are on the sink's brokers."""
        if not isinstance(sink, _TopicEpochs):
            return {}
        servers = sink.writer.topic.servers
        return {
            (self.topics[name].name, number): offset
            for (name, number), offset in self.offsets.items()
            if self.topics[name].servers == servers
        }

    def note(self) -> None:
        """Copy the places to `RunningQuery.positions`: an error behind it leaves a query that may follow again."""
        live = self.live
        places = [_TopicPlace(_position(at), self.identities[at[0]], offset) for at, offset in self.offsets.items()]
        live.following.places = [*places, *self.sinks]
        cti = max(live.cti, live.positions.get("cti", MIN_TIME))
        live.positions = {"cti": cti, "epoch": self.epoch, "delivered": self.delivered}
        live.positions |= {place.name: place.mark().sequence for place in live.following.places}
        for name, repeats in self.repeats.items():
            live.positions |= {_position((name, at), f"run {run}"): far for (at, run), far in repeats.places.items()}

    def save(self, *, again: bool = False) -> None:
        """Write a checkpoint.

        Args:
            again: Whether nothing was taken in since the last one, which it replaces.
        """
        live, following = self.live, self.live.following
        self.note()
        if self.checkpoint is not None:
            same = again and following.kept_at == self.checkpoint
            live.keep_at(self.checkpoint, self.keep, again=same)
            following.kept_at = self.checkpoint
        self.noted = self.delivered
        self.pace.begin()


def of_topics(source: object) -> bool:
    """Whether a query is to follow topics, or a topic and something else, which is refused."""
    return isinstance(source, Topic) or (
        isinstance(source, Mapping) and any(isinstance(each, Topic) for each in source.values())
    )


def _by_input(live: Followable, source: Topic | Mapping[str, Topic]) -> dict[str | None, Topic]:
    """The topic of each input; the name of a query's only input is None."""
    if isinstance(source, Topic):
        return {None: source}
    if not all(isinstance(each, Topic) for each in source.values()):
        raise PlanError(
            "A query follows topics or stores, and not both at once.",
            remedy="Copy the store into a topic first, or the topic into a store: g.events(topic).start().follow(…).",
        )
    return for_each_input(live, source, "topic")


def _check_targets(live: Topical, topics: Mapping[str | None, Topic], targets: Mapping[str, Store | Topic]) -> None:
    """Refuse sinks that results do not fit, or that are read too."""
    written = [(each.servers, each.name) for each in targets.values() if isinstance(each, Topic)]
    for topic in topics.values():
        if (topic.servers, topic.name) in written:
            raise PlanError(f"The topic {topic.name} would be read and written.", remedy="Give another one as into=.")
    check_topics(live, targets)


def _sinks(
    live: Topical, targets: Mapping[str, Store | Topic], policy: IfOtherStore, stack: ExitStack
) -> list[EpochSink]:
    following = live.following
    stores = {
        name: (each, stack.enter_context(each.writer())) for name, each in targets.items() if isinstance(each, Store)
    }
    positions = {name: at for name, at in live.positions.items() if name not in targets or name in stores}
    # Of a query that has followed in this process, or is restored.
    marks = {**following.marks, **{place.name: place.mark() for place in following.places}}
    for name in SINKS:
        if name in live.positions and name not in targets:
            raise SourceError(
                f"The query has written to {name}=, and now it is not given.",
                remedy=f"Give it again as {name}=, or start the query afresh.",
            )
    _, outlets = begin(following, positions, {}, stores, policy)
    following.follower = following.follower or new_name()
    sinks: list[EpochSink] = [_StoreEpochs(outlet) for outlet in outlets.values()]
    for name, each in targets.items():
        if isinstance(each, Topic):
            mark = marks.get(name, Mark(None, 0))
            writer = stack.enter_context(TopicWriter(each))
            sinks.append(_TopicEpochs(name, writer, following.follower, mark.sequence, mark.store or ""))
    return sinks


def _position(place: Partition, kind: str = "topic") -> str:
    """A partition's name among the positions; with the kind ``run NAME``, that of what a run has written there."""
    name, number = place
    return f"{kind} {number}" if name is None else f"{kind} {number} {name}"


def _results(positions: Mapping[str, int], name: str | None) -> dict[Result, int]:
    """How far runs had come in an input's topic, among the positions."""
    made: dict[Result, int] = {}
    for said, far in positions.items():
        if said.startswith("run "):
            _, run, number, *rest = said.split(" ", 3)
            if name == (rest[0] if rest else None):
                made[int(number), run] = far
    return made


def _since(positions: Mapping[str, int]) -> dict[Partition, int]:
    """The offsets among the positions."""
    made: dict[Partition, int] = {}
    for said, offset in positions.items():
        kind, _, rest = said.partition(" ")
        if kind == "topic":
            number, several, name = rest.partition(" ")
            made[name if several else None, int(number)] = offset
    return made


def _check_inputs(topics: Mapping[str | None, Topic], since: Mapping[Partition, int]) -> None:
    read = {name for name, _ in since}
    if read and read != set(topics):
        raise SourceError(
            "The query has read topics for other inputs than it is to read now.",
            remedy="Give the topics in the same way: one topic, or a mapping with the same names.",
        )


def _check_identities(
    following: Following,
    topics: Mapping[str | None, Topic],
    identities: Mapping[str | None, str],
    policy: IfOtherStore,
) -> None:
    """Refuse a topic that is not the one in the checkpoint."""
    for said, mark in following.marks.items():
        for place in _since({said: 0}):
            topic = topics.get(place[0])
            if topic is not None and mark.store != identities[place[0]] and policy == "raise":
                raise SourceError(
                    f"The topic {topic.name} at {topic.servers} is another one than that of the checkpoint: it was "
                    "made anew, or is at other brokers.",
                    remedy="Give that topic. If this one is a copy with the same messages at the same offsets, say "
                    'if_other_store="adopt" (gpu_ops run --adopt).',
                )
