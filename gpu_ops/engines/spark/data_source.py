"""A micro-batch store as a Spark data source, to read and to write.

Spark makes these objects on the driver and pickles them for the workers, so they hold options and no store.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.time import LIFETIME, instant
from gpu_ops.engines.spark.store_reading import LIMIT, NAME, StoreReader, StoreStreamReader, everywhere, opened
from gpu_ops.engines.spark.types import arrow_type, plain_type, spark_schema
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.microbatches.batch_files import Staged
from gpu_ops.microbatches.files import regrouped
from gpu_ops.microbatches.folders import BusyError
from gpu_ops.microbatches.stores import Store
from gpu_ops.microbatches.writer import MERGED_ROWS, Writer

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

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
    read. Options for reading as a stream: ``kind``, a column that says of each row whether it is an event ("insert") or
    a CTI ("cti"), without which CTIs are left out; ``since``, the batch after which it begins;
    ``maxBatchesPerTrigger``, how many batches an epoch has at most. Options for writing: ``cti``, the CTI after the
    job; ``compression``.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The store's columns, as the types that Spark has for them."""
        schema = opened(self.options).schema
        kind = self.options.get("kind")
        if kind in schema.names:
            raise PlanError(f"The store has a column {kind!r} of its own.", remedy='Say .option("kind", another name).')
        return spark_schema(schema if kind is None else schema.append(pa.field(kind, pa.string())))

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the store."""
        if "kind" in self.options:
            raise PlanError(
                "A store's CTIs are rows among others in a stream alone.",
                remedy=f'Leave out the option "kind", or say spark.readStream.format("{NAME}").',
            )
        return StoreReader(everywhere(self.options), tuple(schema.names), self._instant("start"), self._instant("end"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001  (Spark's signature)
        """What writes to the store."""
        if overwrite:
            raise PlanError(
                "A store is appended to and never overwritten.", remedy='Say .mode("append"), or give another path.'
            )
        columns = pa.schema([pa.field(each.name, arrow_type(each.name, each.dataType)) for each in schema])
        writer = StoreWriter(everywhere(self.options), columns, self._instant("cti"))
        # On the driver, once: a task that runs on after the job was given up finds no folder.
        opened(self.options).staging(writer.job)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """What reads the store's batches as they come."""
        if "start" in self.options or "end" in self.options:
            raise PlanError(
                "The options start and end are about what a store holds now, and a stream is read to no end.",
                remedy='Filter the events: stream.filter(g.col("end") > …). The option "since" begins after a batch.',
            )
        since, most = self._number("since", 0), self._number(LIMIT, 1)
        columns = tuple(schema.names)
        return StoreStreamReader(everywhere(self.options), columns, self.options.get("kind"), since or 0, most)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """A store is no sink of a streaming query."""
        raise PlanError(
            "A store is written by batches, and not as a stream.",
            remedy=f'Say writeStream.foreachBatch, and in it frame.write.format("{NAME}").mode("append").save(path).',
        )

    def _number(self, option: str, least: int) -> int | None:
        given = self.options.get(option)
        if given is None:
            return None
        if not (given.isascii() and given.isdecimal() and int(given) >= least):
            raise PlanError(f"{option} is {given!r}.", remedy=f"Give the number of a batch, from {least} on.")
        return int(given)

    def _instant(self, option: str) -> int | None:
        given = self.options.get(option)
        return None if given is None else instant(given, name=option)


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
        target = opened(self.options)
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
        target = opened(self.options)
        staged = [file for message in messages if isinstance(message, WrittenBatches) for file in message.files]
        if not staged and not target.sequence:
            staged = [target.stage(self.columns.empty_table(), self.job)]
        with _writer(target) as writer:
            writer.adopt(staged, self.cti)
        target.unstage(self.job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the tasks' files; on the driver."""
        opened(self.options).unstage(self.job)


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
