"""A follower's places in its stores: how checkpoints describe them, and how they are verified before it goes on.

A follower reads batches of its sources and writes batches of results. It goes on from a checkpoint only in the stores
that the checkpoint names, and only if the batch before each place is the one that it read or wrote there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import pyarrow as pa

from gpu_ops.core.time import utc
from gpu_ops.errors import SourceError
from gpu_ops.ingest.rules import check_choice
from gpu_ops.microbatches.contents import content_crc
from gpu_ops.microbatches.identity import new_name
from gpu_ops.microbatches.names import Range, within
from gpu_ops.microbatches.reports import StoredBatch
from gpu_ops.microbatches.stores import Store
from gpu_ops.microbatches.writer import Writer, conform

IfOtherStore = Literal["raise", "adopt"]

SINKS = ("into", "late_into")


@dataclass(frozen=True)
class Mark:
    """A place in a store.

    Attributes:
        store: The store's identity; None if it had none.
        sequence: The number of the batch before the place; 0 at the store's beginning.
        rows: How many rows that batch has; None if unknown.
        crc: The CRC of its rows; None if unknown.
    """

    store: str | None
    sequence: int
    rows: int | None = None
    crc: int | None = None


class FollowedPlace(Protocol):
    """A follower's place, in a store or a topic."""

    @property
    def name(self) -> str:
        """Its name among `RunningQuery.positions`."""

    def mark(self) -> Mark:
        """The mark of the place, for a checkpoint."""


@dataclass
class StorePlace:
    """A follower's place in a store.

    Attributes:
        name: The place's name among `RunningQuery.positions`.
        store: The store.
        sequence: The number of the last batch that was read or written.
        kept: The last mark that was made of the place.
        last: The events of the last batch; None if they have expired.
    """

    name: str
    store: Store
    sequence: int
    kept: Mark
    last: pa.Table | None = None

    def mark(self) -> Mark:
        """The mark of the place, for a checkpoint."""
        identity = self.kept.store or self.store.identity
        if self.kept.sequence != self.sequence:
            self.kept = _mark(identity, self.sequence, self.last)
        else:
            self.kept = replace(self.kept, store=identity)
        return self.kept


@dataclass
class Inlet(StorePlace):
    """The place where a follower reads a store.

    Attributes:
        gone: The batches that had expired before it began to read the store.
        waited: Whether it has waited since the last batch: the store may have been recreated meanwhile.
    """

    gone: Sequence[Range] = ()
    waited: bool = False

    def admit(self, batch: StoredBatch) -> None:
        """Refuse a batch that does not follow the last one.

        Raises:
            SourceError: Batches in between have expired, or the store was recreated.
        """
        lost = batch.lost or 0
        if lost > self.sequence and not within(self.sequence + 1, lost, self.gone):
            raise _expired(self.store, self.sequence)
        if self.waited and self.kept.store is not None and self.store.identity != self.kept.store:
            raise SourceError(
                f"{self.store.path} was made anew while it was followed.",
                remedy="Start the query afresh with an empty store for its results.",
            )
        self.waited = False

    def took(self, batch: StoredBatch) -> None:
        """Go on to the next batch."""
        self.sequence, self.last = batch.sequence, None if batch.expired else batch.events


@dataclass
class Outlet(StorePlace):
    """The place where a follower writes a store. Batches that the store already holds are compared instead.

    Attributes:
        writer: The store's writer.
        there: The batches after the place that the store held when the follower began.
        found: The last of them that was read.
    """

    writer: Writer = field(kw_only=True)
    there: Iterator[StoredBatch] = field(kw_only=True)
    found: StoredBatch | None = None

    def put(self, table: pa.Table, cti: int | None) -> None:
        """Write a batch, or compare it with the one that was written before the query was restored.

        Raises:
            SourceError: The two differ.
        """
        if self.sequence < self.writer.sequence:
            self._compare(table, cti)
        else:
            self.writer.append(table, None if cti is None else utc(cti))
        self.sequence += 1
        self.last = table

    def mark(self) -> Mark:
        """The mark of the place, for a checkpoint."""
        if self.kept.sequence != self.sequence and self.last is not None:
            self.last = conform(self.last, self.writer.schema, None)
        return super().mark()

    def claim(self, follower: str) -> None:
        """Record in the store that this follower writes it."""
        identity = self.writer.identity
        if identity.follower != follower:
            self.writer.claim(follower, self.sequence if identity.follower is None else identity.base)

    def finish(self) -> None:
        """Refuse a store that holds more batches than the query gave.

        Raises:
            SourceError: It does.
        """
        if self.sequence < self.writer.sequence:
            raise _foreign(self.store, self.sequence + 1, "the query gives no such batch")

    def _compare(self, table: pa.Table, cti: int | None) -> None:
        number = self.sequence + 1
        while self.found is None or self.found.sequence < number:
            self.found = next(self.there)
        if self.found.expired:
            return
        given = _mark(None, number, conform(table, self.writer.schema, None))
        found = _mark(None, number, self.found.events)
        if found != given:
            raise _foreign(self.store, number, f"it has {_shown(found)}, and the query gives {_shown(given)}")
        if cti is not None and self.found.cti != cti:
            raise _foreign(self.store, number, "its CTI is not the one that the query gives")


@dataclass
class Following:
    """What a running query knows of the stores that it reads and writes; checkpoints hold it.

    Attributes:
        follower: The query's name in the stores that it writes; None until it first follows a store.
        marks: The marks in the checkpoint, by the names among `RunningQuery.positions`.
        gone: For each source, the batches that had expired when the query began to read it.
        places: The places, once the query follows.
        kept_at: The checkpoint that the query was restored from, or last wrote.
    """

    follower: str | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    gone: Mapping[str, Sequence[Range]] = field(default_factory=dict)
    places: Sequence[FollowedPlace] = ()
    kept_at: Path | str | None = None

    def facts(self) -> dict[str, Any]:
        """The facts for a checkpoint."""
        marks = {**self.marks, **{place.name: place.mark() for place in self.places}}
        return {
            "follower": self.follower,
            "stores": {name: asdict(mark) for name, mark in marks.items()},
            "gone": dict(self.gone),
        }

    @classmethod
    def restore(cls, facts: Mapping[str, Any] | None, path: Path | str) -> Self:
        """From the facts of the checkpoint at a path; None in a checkpoint of an older version."""
        if facts is None:
            return cls(kept_at=path)
        marks = {name: Mark(**mark) for name, mark in facts["stores"].items()}
        gone = {name: [(first, last) for first, last in ranges] for name, ranges in facts["gone"].items()}
        return cls(facts["follower"], marks, gone, kept_at=path)


def begin(
    following: Following,
    positions: Mapping[str, int],
    sources: Mapping[str, Store],
    sinks: Mapping[str, tuple[Store, Writer]],
    if_other_store: IfOtherStore,
) -> tuple[dict[str, Inlet], dict[str, Outlet]]:
    """The places where a query goes on, once its stores were verified.

    Args:
        following: What the query knows of its stores.
        positions: The query's positions.
        sources: The stores to read, by their names among the positions.
        sinks: The stores to write and their writers, likewise.
        if_other_store: Whether to refuse a store with another identity, or with another follower's results.

    Raises:
        SourceError: A store is not the one that the query knows, or lacks batches that it needs.
        PlanError: The policy is unknown.
    """
    check_choice("if_other_store", if_other_store, IfOtherStore)
    policy = if_other_store
    _check_names(positions, sources, sinks)
    outlets = {name: _outlet(name, *sink, following, positions.get(name), policy) for name, sink in sinks.items()}
    empty = all(outlet.writer.sequence == 0 for outlet in outlets.values())
    inlets = {name: _inlet(name, store, following, positions.get(name), policy) for name, store in sources.items()}
    for name, inlet in inlets.items():
        if name not in following.gone and inlet.sequence == 0:
            # A first start: expired batches are not missed, unless the sinks hold results of them.
            inlet.gone = inlet.store.log().gone
            if inlet.gone and not empty:
                raise _expired(inlet.store, 0)
    following.follower = following.follower or new_name()
    following.gone = {name: inlet.gone for name, inlet in inlets.items()}
    following.places = [*inlets.values(), *outlets.values()]
    return inlets, outlets


def _check_names(positions: Mapping[str, int], sources: Mapping[str, Store], sinks: Mapping[str, Any]) -> None:
    read = {name for name in positions if name == "store" or name.startswith("store ")}
    if read and read != set(sources):
        raise SourceError(
            f"The query has read {_listed(read)}, and now it is to read {_listed(sources)}.",
            remedy="Give the stores in the same way: one store, or a mapping with the same names.",
        )
    for name in SINKS:
        if name in positions and name not in sinks:
            raise SourceError(
                f"The query has written to a store {name}=, and now there is none.",
                remedy=f"Give it again as {name}=, or start the query afresh.",
            )


def _inlet(name: str, store: Store, following: Following, position: int | None, policy: IfOtherStore) -> Inlet:
    sequence = position or 0
    place, mark = Mark(store.identity, sequence), following.marks.get(name, Mark(None, sequence))
    _check_store(store, store.sequence, place, mark, policy)
    kept = _compared(store, place, mark, next(store.batches(sequence - 1), None) if sequence else None)
    return Inlet(name, store, sequence, kept, gone=following.gone.get(name, ()))


def _outlet(
    name: str, store: Store, writer: Writer, following: Following, position: int | None, policy: IfOtherStore
) -> Outlet:
    identity = writer.identity
    others = identity.follower is not None and identity.follower != following.follower
    if position is None:
        # A first start; or the checkpoint is lost, and the run gives all its results again, from its first batch on.
        position = identity.base if others else writer.sequence
    place, mark = Mark(identity.name, position), following.marks.get(name, Mark(None, position))
    _check_store(store, writer.sequence, place, mark, policy)
    if others and writer.sequence > identity.base and policy == "raise":
        raise SourceError(
            f"{store.path} holds the results of another run, from batch {identity.base + 1} on.",
            remedy="Restore that run's checkpoint, or give an empty store. If the checkpoint is lost, say "
            'if_other_store="adopt" (gpu_ops run --adopt): what the query gives again is compared with what is there.',
        )
    there = store.batches(max(position - 1, 0))
    kept = _compared(store, place, mark, next(there, None) if position else None)
    return Outlet(name, store, position, kept, writer=writer, there=there)


def _check_store(store: Store, there: int, place: Mark, mark: Mark, policy: IfOtherStore) -> None:
    """Refuse a store that ends before the place, or that is not the store in the checkpoint."""
    other = mark.store is not None and place.store != mark.store
    if there < place.sequence:
        raise SourceError(
            f"{store.path} ends with batch {there}, and the checkpoint was made after batch {place.sequence} of it."
            f"{' It is another store: its identity is not the one that the checkpoint names.' * other}",
            remedy="Give the store as it was then, or a later state of it; or restore an older checkpoint; or start "
            "the query afresh with an empty store for its results.",
        )
    if other and policy == "raise":
        raise SourceError(
            f"{store.path} is another store than the one of the checkpoint: its identity is "
            f"{place.store or 'not there'}, and the checkpoint names {mark.store}.",
            remedy="Give that store or a copy of it. If this one was restored from a backup with the same batches, say "
            'if_other_store="adopt" (gpu_ops run --adopt).',
        )


def _compared(store: Store, place: Mark, mark: Mark, found: StoredBatch | None) -> Mark:
    """The mark of a place, after comparing the batch before it with the checkpoint."""
    if found is None or found.expired:
        return place
    there = _mark(place.store, place.sequence, found.events)
    if mark.sequence == place.sequence and mark.crc is not None and (there.rows, there.crc) != (mark.rows, mark.crc):
        raise _foreign(store, place.sequence, f"it has {_shown(there)}, and the checkpoint says {_shown(mark)}")
    return there


def _mark(identity: str | None, sequence: int, events: pa.Table | None) -> Mark:
    known = (None, None) if events is None else (events.num_rows, content_crc(events))
    return Mark(identity, sequence, *known)


def _listed(names: Any) -> str:
    return ", ".join(sorted("the only input" if name == "store" else repr(name[len("store ") :]) for name in names))


def _shown(mark: Mark) -> str:
    return f"{mark.rows:,} rows with the CRC {mark.crc:08x}"


def _foreign(store: Store, number: int, why: str) -> SourceError:
    return SourceError(
        f"Batch {number} of {store.path} is not the one that the query knows: {why}. Somebody else wrote there, or the "
        "query is another.",
        remedy="Put the store back as it was; or start the query afresh with an empty store for its results.",
    )


def _expired(store: Store, since: int) -> SourceError:
    return SourceError(
        f"Batches of {store.path} after number {since}, which the query had come to, have expired.",
        remedy="Start the query afresh from what is left, with an empty store for its results; and keep batches for "
        "longer.",
    )
