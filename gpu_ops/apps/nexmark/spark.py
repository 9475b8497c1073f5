"""The auction as a Spark data source: each partition generates a range of event numbers.

Spark makes these objects on the driver and pickles them to the workers, so they hold numbers and no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from gpu_ops.apps.nexmark.generator import BASE_TIME, DEFAULT_RATE, KINDS, SCHEMAS, Generator, Kind
from gpu_ops.core.arguments import whole
from gpu_ops.engines.spark.between_tasks import spare_the_next
from gpu_ops.engines.spark.types import spark_type
from gpu_ops.errors import PlanError

NAME = "nexmark"
"""The name of the format."""

_PARTITION_EVENTS = 1 << 20

_OPTIONS = ("kind", "events", "rate", "seed", "start", "partitions")


def register(spark: SparkSession) -> None:
    """Register the format, so that a session can generate the auction: ``spark.read.format("nexmark")``.

    Args:
        spark: A classic session.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark.spark import register
        >>> register(spark)
        >>> bids = spark.read.format("nexmark").options(kind="bids", events=1000, seed=7, partitions=3).load()
        >>> bids.toArrow().equals(nexmark.generate(events=1000, seed=7).bids.combine_chunks())
        True
    """
    spark.dataSource.register(NexmarkDataSource)


class NexmarkDataSource(DataSource):
    """The format ``nexmark``.

    Required options: ``kind`` (``persons``, ``auctions`` or ``bids``) and ``events``. Others: ``rate``, ``seed`` and
    ``start`` as in `gpu_ops.apps.nexmark.generate`; ``partitions``, by default one for every million events.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the requested kind of events."""
        spare_the_next(NAME)
        return StructType([StructField(each.name, spark_type(each.type)) for each in SCHEMAS[_kind(self.options)]])

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader that generates the events."""
        spare_the_next(NAME)
        options = self.options
        unknown = sorted({name.lower() for name in options} - set(_OPTIONS))
        if unknown:
            raise PlanError(
                f"The format {NAME} has no option {unknown[0]!r}.", remedy=f"It has: {', '.join(_OPTIONS)}."
            )
        if "events" not in options:
            raise PlanError(f"The format {NAME} needs the number of events.", remedy='Add .option("events", 1000000).')
        generator = Generator(
            _number(options, "events", 0),
            _number(options, "rate", DEFAULT_RATE),
            _number(options, "seed", 0),
            options.get("start", BASE_TIME),
        )
        partitions = _number(options, "partitions", -(-generator.events // _PARTITION_EVENTS) or 1)
        whole(partitions, name="partitions")
        return NexmarkReader(generator, _kind(options), partitions)


@dataclass
class EventRange(InputPartition):
    """A partition: a range of event numbers."""

    first: int
    last: int


@dataclass
class NexmarkReader(DataSourceReader):
    """Generates events of one kind, in ranges of their numbers.

    Attributes:
        generator: The generator.
        kind: The kind of events.
        number: The number of partitions.
    """

    generator: Generator
    kind: Kind
    number: int

    def partitions(self) -> list[InputPartition]:
        """Ranges of about equal length."""
        bounds = [self.generator.events * at // self.number for at in range(self.number + 1)]
        return [EventRange(first, last) for first, last in pairwise(bounds)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """A partition's events; Spark passes None if there is no partition."""
        spare_the_next(NAME)
        if isinstance(partition, EventRange):
            yield from self.generator.batches(self.kind, partition.first, partition.last)


def _kind(options: Mapping[str, str]) -> Kind:
    kind = options.get("kind")
    if kind not in KINDS:
        raise PlanError(
            f"The format {NAME} has no kind {kind!r}." if kind else f"The format {NAME} needs a kind.",
            remedy=f'Add .option("kind", "bids"), for instance; the kinds are {", ".join(KINDS)}.',
        )
    return kind


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    given = options.get(name)
    if given is None:
        return default
    try:
        return int(given)
    except ValueError:
        raise PlanError(f"The option {name} is {given!r}, not a whole number.", remedy="Write only digits.") from None
