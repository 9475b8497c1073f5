"""A micro-batch store as a Spark data source, to read and to write.

Spark makes these objects on the driver and pickles them for the workers, so they hold options and no store.
"""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.time import LIFETIME, MAX_TIME, MIN_TIME, instant
from gpu_ops.engines.spark.between_tasks import spare_the_next
from gpu_ops.engines.spark.types import arrow_type, plain_type, spark_schema
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.microbatches.batch_files import Staged
from gpu_ops.microbatches.files import regrouped
from gpu_ops.microbatches.folders import BusyError
from gpu_ops.microbatches.stores import Store, store
from gpu_ops.microbatches.writer import MERGED_ROWS, Writer

NAME = "gpu_ops"
"""What the format is called."""

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_BATCH_ROWS = 1 << 16
"""How many rows go to Spark at a time."""

_PATIENCE = 30.0
"""How many seconds a finished job waits for another writer."""


@own_errors
def register(spark: SparkSession) -> None:
    """Let a session read and write stores: ``spark.read.format("gpu_ops")``, ``frame.write.format("gpu_ops")``.

    It also enables filter pushdown for sources written in Python (``spark.sql.python.filterPushdown.enabled``). Without
    it Spark refuses a source that supports pushdown.

    Args:
        spark: A classic session.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, tempfile
        >>> from gpu_ops.engines.spark import register
        >>> register(spark)
        >>> store = g.store(tempfile.mkdtemp())
        >>> store.append(g.events(pa.table({"at": [0, 60], "price": [3, 9]}), start="at", unit="s").collect())
        1
        >>> bids = spark.read.format("gpu_ops").load(store.path)
        >>> bids.filter("start >= TIMESTAMP '1970-01-01 00:01:00Z'").select("price").collect()
        [Row(price=9)]
        >>> bids.write.format("gpu_ops").mode("append").save(f"{store.path} copy")
        >>> len(g.store(f"{store.path} copy"))
        2
    """
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(StoreDataSource)


class StoreDataSource(DataSource):
    """The format ``gpu_ops``.

    Options for reading: ``start`` and ``end``, instants as ISO 8601 with a zone; only events alive between them are
    read. Options for writing: ``cti``, the CTI after the job; ``compression``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The store's columns, as the types that Spark has for them."""
        return spark_schema(_store(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the store."""
        return StoreReader(_everywhere(self.options), tuple(schema.names), self._instant("start"), self._instant("end"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001  (Spark's signature)
        """What writes to the store."""
        if overwrite:
            raise PlanError(
                "A store is appended to and never overwritten.", remedy='Say .mode("append"), or give another path.'
            )
        columns = pa.schema([pa.field(each.name, arrow_type(each.name, each.dataType)) for each in schema])
        writer = StoreWriter(_everywhere(self.options), columns, self._instant("cti"))
        # On the driver, once: a task that runs on after the job was given up finds no folder.
        _store(self.options).staging(writer.job)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """A store is no source of a streaming query."""
        raise PlanError(
            "A store is read by batches, and not as a stream.",
            remedy=f'Say spark.read.format("{NAME}"), with start= and end= for a part of it; or follow it without '
            "Spark, with a running query: stream.start().follow(store).",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """A store is no sink of a streaming query."""
        raise PlanError(
            "A store is written by batches, and not as a stream.",
            remedy=f'Say writeStream.foreachBatch, and in it frame.write.format("{NAME}").mode("append").save(path).',
        )

    def _instant(self, option: str) -> int | None:
        given = self.options.get(option)
        return None if given is None else instant(given, name=option)


def _store(options: Mapping[str, str]) -> Store:
    """The store; all that Spark asks of a source begins with it."""
    spare_the_next(NAME)
    if not options.get("path"):
        raise PlanError("A store has a path.", remedy=f'Say spark.read.format("{NAME}").load(path).')
    return store(options["path"], compression=options.get("compression", "zstd"))  # type: ignore[arg-type]


def _everywhere(options: Mapping[str, str]) -> dict[str, str]:
    """Options for workers, with the driver's local path made absolute: workers run in folders of their own."""
    path, given = _store(options).path, options["path"]
    local = "://" not in given or given.startswith("file://")
    return {**options, "path": str(Path(path).absolute())} if local else dict(options)


# Reading


@dataclass
class BatchRange(InputPartition):
    """A partition: the batches after one, up to another."""

    since: int
    until: int


@dataclass
class StoreReader(DataSourceReader):
    """Reads a store's files; small neighbours are one partition.

    Attributes:
        options: The data source's.
        columns: The columns' names.
        start: Events that end at or before this tick are left out.
        end: Events that start at or after this tick are left out.
        low: Files whose latest end is at or before this tick are not read.
        high: Files whose earliest start is at or after this tick are not read.
    """

    options: dict[str, str]
    columns: tuple[str, ...]
    start: int | None
    end: int | None
    low: int = MIN_TIME
    high: int = MAX_TIME

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  (Spark's name)
        """Take bounds of times from a query's filters, and let Spark filter each row all the same."""
        for each in filters:
            low, high = _bounds(each)
            self.low, self.high = max(self.low, low), min(self.high, high)
        yield from filters

    def partitions(self) -> list[InputPartition]:
        """The files that may hold an event of the query."""
        found: list[BatchRange] = []
        rows = 0
        for file in _store(self.options).log().files:
            if not (file.overlaps(self.low, self.high) and file.overlaps(self.start, self.end)):
                continue
            if found and found[-1].until == file.first - 1 and rows + file.rows <= MERGED_ROWS:
                found[-1].until = file.last
                rows += file.rows
            else:
                found.append(BatchRange(file.first - 1, file.last))
                rows = file.rows
        return list(found)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """A partition's events; Spark passes None if there is no partition."""
        if not isinstance(partition, BatchRange):
            return
        since, until = partition.since, partition.until
        tables = _store(self.options).tables(self.columns, since=since, until=until, start=self.start, end=self.end)
        for table in tables:
            columns = pa.schema([pa.field(each.name, plain_type(each.type)) for each in table.schema])
            yield from table.cast(columns).to_batches(_BATCH_ROWS)


def _bounds(asked: Filter) -> tuple[int, int]:
    """The ``low`` and ``high`` of a filter. An event ends at least one tick after it starts."""
    attribute, value = getattr(asked, "attribute", None), getattr(asked, "value", None)
    if attribute not in {("start",), ("end",)} or not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return MIN_TIME, MAX_TIME
    at, of_end = instant(value), attribute == ("end",)
    from_it, up_to_it = at - of_end, at + (not of_end)
    low = {GreaterThan: at, GreaterThanOrEqual: from_it, EqualTo: from_it}
    high = {LessThan: at, LessThanOrEqual: up_to_it, EqualTo: up_to_it}
    return low.get(type(asked), MIN_TIME), high.get(type(asked), MAX_TIME)


# Writing


@dataclass
class WrittenBatches(WriterCommitMessage):
    """What a task made."""

    files: list[Staged]


@dataclass
class StoreWriter(DataSourceArrowWriter):
    """Each task writes files that no reader sees. When all are done, the driver adds them to the store in one step.

    Attributes:
        options: The data source's.
        columns: The columns of what is written.
        cti: The CTI after it, in ticks.
        job: The name of the folder that the tasks write to.
    """

    options: dict[str, str]
    columns: pa.Schema
    cti: int | None
    job: str = field(default_factory=lambda: secrets.token_hex(8))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatches:
        """Write a task's rows, in files about as large as merged ones."""
        target = _store(self.options)
        tables = regrouped(iterator, self.columns, MERGED_ROWS)
        return WrittenBatches([target.stage(self._as_stored(table, target), self.job) for table in tables])

    def _as_stored(self, table: pa.Table, target: Store) -> pa.Table:
        """The table with the store's types in place of Spark's wider ones (INT for uint16)."""
        if not target.sequence:
            return table
        there = {each.name: each.type for each in target.schema if each.name not in LIFETIME}
        for number, each in enumerate(table.schema):
            wanted = there.get(each.name, each.type)
            if wanted == each.type or plain_type(wanted) != each.type:
                continue
            try:
                column = table[number].cast(wanted)
            except pa.ArrowInvalid as error:
                raise ColumnError(
                    f"A value does not fit into the store's {wanted}: {error}",
                    column=each.name,
                    remedy="Drop the row, or write to another store.",
                ) from error
            table = table.set_column(number, pa.field(each.name, wanted), column)
        return table

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add the tasks' files to the store; on the driver."""
        target = _store(self.options)
        staged = [file for message in messages if isinstance(message, WrittenBatches) for file in message.files]
        if not staged and not target.sequence:
            staged = [target.stage(self.columns.empty_table(), self.job)]
        with _writer(target) as writer:
            writer.adopt(staged, self.cti)
        target.unstage(self.job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the tasks' files; on the driver."""
        _store(self.options).unstage(self.job)


def _writer(target: Store) -> Writer:
    """The store's writer, once another writer is done."""
    given_up = time.monotonic() + _PATIENCE
    while True:
        try:
            return target.writer()
        except BusyError:
            if time.monotonic() > given_up:
                raise
            time.sleep(0.1)
