"""A table of Delta or Iceberg as a sink of a live query on Spark: an epoch is one commit of it, which names both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops.core.arguments import word
from gpu_ops.core.json_kinds import TEXT, Object
from gpu_ops.core.own_errors import own_errors
from gpu_ops.engines.spark.streams.log import create_once, read_json
from gpu_ops.engines.spark.streams.sink_files import (
    Published,
    another_sink,
    columns_in,
    later_note,
    lost,
    make_sink,
    note,
    noted,
    remove_notes,
    remove_older,
)
from gpu_ops.engines.spark.types import column, spark_schema
from gpu_ops.errors import ColumnError, PlanError, SourceError, shown, unknown_column
from gpu_ops.microbatches.epochs import SCHEMA

TableFormat = Literal["delta", "iceberg"]

_TABLE = Object({"name": TEXT, "format": TEXT})
_QUERY, _EPOCH = "gpu_ops-query", "gpu_ops-epoch"
_SETTINGS = {
    "delta": "spark.jars.packages=io.delta:delta-spark_4.1_2.13:4.1.0, "
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0 and a catalog: "
    "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog, for the table lake.db.top",
}


@dataclass(frozen=True, slots=True)
class SparkTable:
    """A table of Delta Lake or Apache Iceberg that a live query on Spark writes, exactly once.

    It is made, with the columns of the results, if it is not there. Rows that others have written there stay.

    Attributes:
        name: Its name in Spark SQL, such as ``lake.db.top``; or a path, as Delta has it in SQL: ``delta.`/lake/top```.
        format: "delta" or "iceberg"; the session needs its jar and its settings (``docs/spark.md``).
        partition_by: The columns by whose values a table that is made is partitioned. For other partitions (the days of
            ``start``) make the table yourself.

    Raises:
        PlanError: The name or the columns are no texts, or the format is unknown.

    Examples:
        >>> SparkTable("lake.db.top", "iceberg", partition_by=["item"])
        SparkTable(name='lake.db.top', format='iceberg', partition_by=('item',))
    """

    name: str
    format: TableFormat
    partition_by: Sequence[str] = ()

    @own_errors
    def __post_init__(self) -> None:
        named: object = self.name
        if not isinstance(named, str) or not named.strip():
            raise PlanError(f"name is {shown(named)}.", remedy='Give a table\'s name in SQL: "lake.db.top".')
        word(self.format, get_args(TableFormat), name="format")
        columns = self.partition_by
        if isinstance(columns, str) or not all(isinstance(each, str) for each in columns):
            raise PlanError(f"partition_by is {shown(columns)}.", remedy='Give a list of columns: ["item"].')
        object.__setattr__(self, "partition_by", tuple(columns))


@dataclass(frozen=True)
class TableSink:
    """A table: an epoch is a commit, which Spark's tasks write, and which has the query and the epoch in its metadata.

    When a query starts, the table says which epoch of the query it has; from then on the driver knows. Delta itself
    leaves out an epoch that it has (``txnAppId``, ``txnVersion``), whoever writes it.
    """

    folder: Path
    table: SparkTable
    session: SparkSession
    kind = "table"

    @property
    def place(self) -> str:  # noqa: D102
        return self.table.name

    def claim(self, query: str, schema: pa.Schema, *, fresh: bool) -> None:  # noqa: D102
        make_sink(self.folder, self.folder / SCHEMA, schema)
        owner, said = self.folder / "table.json", {"name": self.table.name, "format": self.table.format}
        if read_json(owner, _TABLE) is None and not fresh:
            raise another_sink(self._name)
        create_once(owner, said)
        if read_json(owner, _TABLE) != said:
            raise another_sink(self._name)
        with self._errors():
            there = self._columns()
            if there is None and not fresh:
                raise SourceError(
                    f"{self._name} is gone, and has the results of this query.", remedy="Put the table back."
                )
            if there is None:
                self._create(schema)
            elif sorted(there) != sorted(schema.names):
                raise ColumnError(
                    f"{self._name} has the columns {', '.join(there)}; the results have {', '.join(schema.names)}.",
                    remedy="Name another table, or select the columns that it has.",
                )
            last = self._last(query)
        if last is not None:
            note(self.folder, last)

    def publish(self, given: Published) -> None:  # noqa: D102
        later = later_note(self.folder, given.epoch)
        if later is not None:
            raise SourceError(
                f"{self._name} has epoch {later} of this query, and the checkpoint is at epoch {given.epoch}.",
                remedy="Another driver runs it, or the checkpoint is an older copy: put back the newest.",
            )
        if given.files and not noted(self.folder, given.epoch):
            with self._errors():
                self._append(given)
            note(self.folder, given.epoch)

    def clean(self, epoch: int) -> None:  # noqa: D102
        remove_older(self.folder, epoch)
        remove_notes(self.folder, epoch)

    lasts = "rows of a table stay, and others may have read them"

    def take_back(self, epoch: int) -> None:
        """Never called."""

    @property
    def _name(self) -> str:
        return f"The table {self.table.name}"

    def _columns(self) -> list[str] | None:
        """Its columns; None if it is not there."""
        try:
            return self.session.table(self.table.name).columns
        except AnalysisException as error:
            if any(each in (error.getCondition() or "") for each in ("NOT_FOUND", "NOT_EXIST", "MISSING")):
                return None
            raise

    def _create(self, schema: pa.Schema) -> None:
        for each in self.table.partition_by:
            if each not in schema.names:
                raise unknown_column(each, schema.names, what="result")
        empty = self.session.createDataFrame([], spark_schema(schema))
        made = empty.writeTo(self.table.name).using(self.table.format)
        if self.table.partition_by:
            made = made.partitionedBy(*map(column, self.table.partition_by))
        made.create()

    def _append(self, given: Published) -> None:
        writer = self._rows(given).writeTo(self.table.name)
        said = {_QUERY: self._application(given.query), _EPOCH: str(given.epoch)}
        if self.table.format == "delta":
            said = {"txnAppId": said[_QUERY], "txnVersion": said[_EPOCH], "userMetadata": " ".join(said.values())}
        else:
            said = {f"snapshot-property.{name}": value for name, value in said.items()}
        writer.options(**said).append()

    def _rows(self, given: Published) -> DataFrame:
        paths = [self.folder / each.name for each in given.files]
        for each in paths:
            if not each.exists():
                raise lost(each)
        reader = self.session.read.schema(spark_schema(columns_in(self.folder / SCHEMA)))
        return reader.option("__globPaths__", "false").parquet(*(f"file:{each}" for each in paths))

    def _application(self, query: str) -> str:
        return f"gpu_ops {query} {self.folder.name}"

    def _last(self, query: str) -> int | None:
        """The last epoch of a query that is in the table; None if there is none."""
        by = self._application(query)
        if self.table.format == "delta":
            history = self.session.sql(f"DESCRIBE HISTORY {self.table.name}")
            own = history.where(F.col("userMetadata").startswith(f"{by} "))
            epoch = F.substring_index("userMetadata", " ", -1)
        else:
            self.session.catalog.refreshTable(self.table.name)
            snapshots = self.session.table(f"{self.table.name}.snapshots")
            own = snapshots.where(F.col("summary")[_QUERY] == by)
            epoch = F.col("summary")[_EPOCH]
        (row,) = own.select(F.max(epoch.cast("long"))).collect()
        found: int | None = row[0]
        return found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Spark's errors as ours, which say what a session needs for such a table."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            first = str(error).strip().splitlines()[0]
            raise SourceError(
                f"Spark refuses the {self.table.format} table {self.table.name}: {first}",
                remedy=f"A session needs {_SETTINGS[self.table.format]}.",
            ) from error
