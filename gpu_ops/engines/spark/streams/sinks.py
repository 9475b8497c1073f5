"""Where the results of a live query on Spark go, once their epoch is committed. Publishing twice is as once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from gpu_ops.core.json_kinds import TEXT, Many, Object, Whole
from gpu_ops.core.own_errors import theirs
from gpu_ops.core.time import MIN_TIME, utc
from gpu_ops.engines.spark.streams.log import age, create_once, read_json
from gpu_ops.engines.spark.streams.sink_files import (
    Published,
    another_sink,
    columns_in,
    lost,
    make_sink,
    note,
    noted,
    read_files,
    remove_notes,
    remove_older,
    sink_of_another,
)
from gpu_ops.engines.spark.streams.tables import SparkTable, TableSink
from gpu_ops.errors import PlanError, SourceError, shown
from gpu_ops.microbatches.contents import content_crc
from gpu_ops.microbatches.epochs import ASIDE, SCHEMA, manifest_name
from gpu_ops.microbatches.files import sync_folder
from gpu_ops.microbatches.folders import open_folder, writing
from gpu_ops.microbatches.stores import Store
from gpu_ops.microbatches.writer import conform
from gpu_ops.topics.reading import identity_of
from gpu_ops.topics.topic import Topic
from gpu_ops.topics.writing import Marker, TopicWriter

_FILES = Object({"query": TEXT, "files": Many(Object({"name": TEXT, "size": Whole(), "rows": Whole()}))})
_OWNER = Object({"query": TEXT})
_TOPIC = Object({"identity": TEXT})

Function = Callable[[pa.Table, int], object]


class Sink(Protocol):
    """Where results go."""

    @property
    def kind(self) -> str:
        """What it is, in a word."""

    @property
    def place(self) -> str:
        """Where it is: two sinks of one place would be one."""

    @property
    def folder(self) -> Path:
        """The folder into which tasks write."""

    def claim(self, query: str, schema: pa.Schema, *, fresh: bool) -> None:
        """Make it the sink of a query.

        Args:
            query: The query.
            schema: The columns.
            fresh: Whether no epoch of the query is committed.

        Raises:
            SourceError: It is the sink of another query; or it is of none, and has to be of this one.
        """

    def publish(self, given: Published) -> None:
        """Give it the rows of an epoch. It may have them already; then they are compared."""

    def clean(self, epoch: int) -> None:
        """Remove what tasks have left behind for epochs up to one that is published."""

    @property
    def lasts(self) -> str | None:
        """Why what it was given cannot be taken back; None if it can."""

    def take_back(self, epoch: int) -> None:
        """Take back what it was given after an epoch. Twice is as once."""


def sink(into: Any, aside: Path, name: str, session: SparkSession) -> Sink:
    """The sink that a user means.

    Args:
        into: A folder, a micro-batch store, a topic, a table of Spark, or a function.
        aside: The checkpoint's folder, for what has no folder of its own.
        name: What it is for: "results" or "late".
        session: The query's session.

    Raises:
        PlanError: It is none of these.
    """
    given: object = into
    if isinstance(given, Store):
        return StoreSink(aside / "results" / name, given)
    if isinstance(given, Topic):
        return TopicSink(aside / "results" / name, given)
    if isinstance(given, SparkTable):
        return TableSink(aside / "results" / name, given, session)
    if isinstance(given, str | Path):
        return FolderSink(local_path(given, "a sink"))
    if callable(given):
        return FunctionSink(aside / "results" / name, given)
    raise PlanError(
        f"Results go into a folder, a g.store(…), a g.kafka(…), a SparkTable(…) or a function, not into {shown(into)}.",
        remedy='Say into="totals", for instance: a folder of Parquet files, which g.epochs("totals") reads.',
    )


def local_path(path: str | Path, what: str) -> Path:
    """A folder that the driver and all workers see under one path.

    Raises:
        PlanError: It is a URL of another file system.
    """
    said = str(path)
    if "://" in said and not said.startswith("file://"):
        raise PlanError(
            f"{said} is not on a file system of this machine, and {what} of a live query is a folder that the driver "
            "and all workers see as files.",
            remedy="Give a local or a mounted folder.",
        )
    return Path(said.removeprefix("file://")).absolute()


@dataclass(frozen=True)
class FolderSink:
    """A folder of Parquet files, with a manifest for each epoch. `gpu_ops.epochs` reads it.

    Tasks write aside; a committed epoch's files are renamed into the folder, then its manifest is made.
    """

    path: Path
    kind = "folder"

    @property
    def place(self) -> str:  # noqa: D102
        return str(self.path)

    @property
    def folder(self) -> Path:  # noqa: D102
        return self.path / ASIDE / "unpublished"

    def claim(self, query: str, schema: pa.Schema, *, fresh: bool) -> None:  # noqa: D102
        owner = self.path / ASIDE / "sink.json"
        there = read_json(owner, _OWNER)
        if there is None and not fresh:
            raise another_sink(str(self.path))
        if there is None and self.path.is_dir() and any(each.name != ASIDE for each in self.path.iterdir()):
            raise SourceError(f"{self.path} has files that no live query wrote.", remedy="Give an empty folder.")
        make_sink(self.folder, self.path / ASIDE / SCHEMA, schema)
        create_once(owner, {"query": query})
        if read_json(owner, _OWNER)["query"] != query:
            raise sink_of_another(str(self.path))

    def publish(self, given: Published) -> None:  # noqa: D102
        manifest = self.path / ASIDE / manifest_name(given.epoch)
        said = {"query": given.query, "files": [vars(each) for each in given.files]}
        there = read_json(manifest, _FILES)
        if given.epoch and not (self.path / ASIDE / manifest_name(given.epoch - 1)).exists():
            raise another_sink(str(self.path))
        if there is None:
            with writing(open_folder(self.path, None)):
                for each in given.files:
                    with suppress(FileNotFoundError):  # it has its name already: an earlier attempt was killed here
                        (self.folder / each.name).rename(self.path / each.name)
                    if not (self.path / each.name).exists():
                        raise lost(self.path / each.name)
                sync_folder(self.path)
            create_once(manifest, said)
            there = read_json(manifest, _FILES)
        if there != said:
            raise SourceError(
                f"{manifest} names other files than the query's own manifest.",
                remedy="The folder is that of another query, or an older copy: put back the right one.",
            )

    def clean(self, epoch: int) -> None:  # noqa: D102
        remove_older(self.folder, epoch)

    lasts = None

    def take_back(self, epoch: int) -> None:  # noqa: D102
        aside = open_folder(self.path / ASIDE, None)
        with writing(aside):
            for number in sorted((int(each.stem) for each in (self.path / ASIDE).glob("[0-9]*.json")), reverse=True):
                if number > epoch:  # the last one first: readers find whole epochs, from the first one on
                    aside.remove([manifest_name(number)])
                    aside.sync()
            for folder in (self.path, self.folder):
                later = [
                    each for each in folder.iterdir() if (written := age(each.name)) is not None and written > epoch
                ]
                for each in later:
                    each.unlink(missing_ok=True)
                sync_folder(folder)


@dataclass(frozen=True)
class TopicSink:
    """A topic of Kafka: an epoch is a transaction that names it, or is written at least once, with headers.

    The driver writes.
    """

    folder: Path
    topic: Topic
    kind = "topic"

    @property
    def place(self) -> str:  # noqa: D102
        return str(self.folder)  # of two that write one topic, writer= tells them apart

    def claim(self, query: str, schema: pa.Schema, *, fresh: bool) -> None:  # noqa: D102
        self.topic.check_sink(schema)
        make_sink(self.folder, self.folder / SCHEMA, schema)
        owner, identity = self.folder / "topic.json", identity_of(self.topic)
        there = read_json(owner, _TOPIC)
        if there is None and not fresh:
            raise another_sink(self._name)
        with TopicWriter(self.topic) as writer:
            self._check(query, None, writer.glance())
        create_once(owner, {"identity": identity})
        if read_json(owner, _TOPIC)["identity"] != identity:
            raise another_sink(self._name)

    def publish(self, given: Published) -> None:  # noqa: D102
        if given.files and not noted(self.folder, given.epoch):
            table = read_files(self.folder, given.files, columns_in(self.folder / SCHEMA))
            with TopicWriter(self.topic) as writer:
                writer.open()
                found = writer.marker()
                self._check(given.query, given.epoch, found)
                if found is None or found.epoch < given.epoch or not writer.once:
                    writer.deliver(Marker(given.query, given.epoch, "spark"), table, {})
            note(self.folder, given.epoch)

    def _check(self, query: str, epoch: int | None, found: Marker | None) -> None:
        """Refuse a topic that another query has written, or this one beyond its checkpoint."""
        if found is not None and found.run != query:
            if self.topic.delivery == "exactly_once":
                raise sink_of_another(self._name)
        elif found is not None and epoch is not None and found.epoch > epoch:
            raise SourceError(
                f"{self._name} has epoch {found.epoch} of this query, and the checkpoint is at epoch {epoch}.",
                remedy="Another driver runs it, or the checkpoint is an older copy: put back the newest.",
            )

    @property
    def _name(self) -> str:
        return f"The topic {self.topic.name}, written as {self.topic.writer!r},"

    def clean(self, epoch: int) -> None:  # noqa: D102
        remove_older(self.folder, epoch)
        remove_notes(self.folder, epoch)

    lasts = "messages of a topic stay, and others may have read them"

    def take_back(self, epoch: int) -> None:
        """Never called."""


@dataclass(frozen=True)
class FunctionSink:
    """A function of the user's. It gets each committed epoch at least once, with its number."""

    folder: Path
    function: Function
    kind = "function"

    @property
    def place(self) -> str:  # noqa: D102
        return str(self.folder)

    def claim(self, query: str, schema: pa.Schema, *, fresh: bool) -> None:  # noqa: D102
        make_sink(self.folder, self.folder / SCHEMA, schema)

    def publish(self, given: Published) -> None:  # noqa: D102
        if not noted(self.folder, given.epoch):
            schema = columns_in(self.folder / SCHEMA)
            theirs(self.function, read_files(self.folder, given.files, schema), given.epoch)
            note(self.folder, given.epoch)

    def clean(self, epoch: int) -> None:  # noqa: D102
        remove_older(self.folder, epoch)
        remove_notes(self.folder, epoch)

    lasts = "what a function has done with its results stays done"

    def take_back(self, epoch: int) -> None:
        """Never called."""


@dataclass(frozen=True)
class StoreSink:
    """A micro-batch store: an epoch is one batch of it, whose CTI is that of the results."""

    folder: Path
    store: Store
    kind = "store"

    @property
    def place(self) -> str:  # noqa: D102
        return str(self.store.path)

    def claim(self, query: str, schema: pa.Schema, *, fresh: bool) -> None:  # noqa: D102
        make_sink(self.folder, self.folder / SCHEMA, schema)
        with self.store.writer() as writer:
            owner = writer.identity.follower
            if owner is None and not fresh:
                raise another_sink(self.store.path)
            if owner not in (None, query) or (owner is None and writer.sequence):
                raise sink_of_another(self.store.path)
            writer.claim(query, 0)

    def publish(self, given: Published) -> None:  # noqa: D102
        number = given.epoch + 1
        schema = columns_in(self.folder / SCHEMA)
        with self.store.writer() as writer:
            if writer.sequence == number - 1:
                cti = None if given.cti == MIN_TIME else utc(given.cti)
                writer.append(read_files(self.folder, given.files, schema), cti)
                return
            there = next(iter(self.store.batches(since=number - 1)), None)
            if there is None or there.sequence != number:
                raise SourceError(
                    f"{self.store.path} has {writer.sequence} batches, and epoch {given.epoch} is batch {number}.",
                    remedy="It has lost batches, or others write there: put back the right one.",
                )
            if there.expired or not any((self.folder / each.name).exists() for each in given.files):
                return
            table = conform(read_files(self.folder, given.files, schema), writer.schema, None)
            if content_crc(table) != content_crc(there.events):
                raise SourceError(
                    f"Batch {number} of {self.store.path} is not what epoch {given.epoch} gives.",
                    remedy="Others write there, or it is another copy: put back the right one.",
                )

    def clean(self, epoch: int) -> None:  # noqa: D102
        remove_older(self.folder, epoch)

    lasts = "a store's batches stay, since others may have followed it, and would not see that they are others now"

    def take_back(self, epoch: int) -> None:
        """Never called."""
