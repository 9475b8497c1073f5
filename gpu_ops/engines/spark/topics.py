"""Kafka's topics as streams of Spark: its connector reads messages, and tasks decode them as `gpu_ops.kafka` says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamReader

from gpu_ops.engines.spark.sending import Sent, concise
from gpu_ops.engines.spark.session import stream_reader
from gpu_ops.engines.spark.source import FAULT, open_spark
from gpu_ops.engines.spark.type_codecs import decoded_columns, encoded_arrays, encoded_schema
from gpu_ops.engines.spark.types import column, spark_schema
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.plan.nodes import SparkSource
from gpu_ops.topics.topic import Topic

_OTHER_NAMES: Mapping[str, str] = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.password": "ssl.key.password of ssl.keystore.location",
}
"""librdkafka's names of settings that Java's client has under others."""


def open_topic(topic: Topic, spark: Any, **options: Any) -> SparkSource:
    """A topic as a source of events, which Spark reads as a stream; nothing runs.

    Args:
        topic: The topic.
        spark: A session, or its ``readStream`` with options of Spark's connector (``maxOffsetsPerTrigger``).
        options: As of `open_spark`.

    Raises:
        PlanError: The topic has no schema, or it has a setting or an option that is not there on Spark.
        SourceError: The session has no connector for Kafka.
    """
    reader = stream_reader(spark, 'option("maxOffsetsPerTrigger", 10000)')
    if topic.repeats == "drop":
        raise PlanError(
            f"Spark reads the topic {topic.name} by tasks that know nothing of each other's messages: none finds what "
            "is repeated.",
            remedy='Leave repeats="drop" out, or follow the topic without Spark.',
        )
    frame = _decoded_frame(topic, reader)
    counted = FAULT if topic.on_invalid == "drop" else None
    return replace(open_spark(frame, **options, faults=counted), topic=topic)


def _decoded_frame(topic: Topic, reader: DataStreamReader) -> DataFrame:
    """The rows of a topic, and a row with the counts of what was dropped for each batch that has some."""
    columns = topic.columns
    messages = _messages(topic, reader).select(*_read(topic))
    encoded = encoded_schema(columns)
    counts = [pa.field(FAULT, pa.string())] if topic.on_invalid == "drop" else []
    task = Sent(partial(_decode, replace(topic, servers="", config={})))
    rows = messages.mapInArrow(task, spark_schema(pa.schema([*encoded, *counts])))
    return rows.select(*decoded_columns(columns), *(column(each.name) for each in counts))


def _messages(topic: Topic, reader: DataStreamReader) -> DataFrame:
    for name, value in topic.config.items():
        if name in _OTHER_NAMES:
            raise PlanError(
                f"Spark's connector has Java's client of Kafka, which has no setting {name}.",
                remedy=f"Say {_OTHER_NAMES[name]}, as its manual has it: config= has Java's names on Spark.",
            )
        reader = reader.option(f"kafka.{name}", str(value))
    settings = {
        "kafka.bootstrap.servers": topic.servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic.name,
        "startingOffsets": {"oldest": "earliest", "newest": "latest"}[topic.since],
        "includeHeaders": str("headers" in topic.beside).lower(),
    }
    try:
        return reader.format("kafka").options(**settings).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "data source" not in str(error).lower():
            raise
        from pyspark import __version__ as version

        raise SourceError(
            "The Spark session has no connector for Kafka.",
            remedy=f"Start it with spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{version}.",
        ) from error


def _read(topic: Topic) -> list[str]:
    """The connector's columns that messages are made of."""
    beside = [name for name in ("key", "timestamp", "headers") if name in topic.beside]
    return ["value", "partition", "offset", *beside, *(["timestampType"] if "timestamp" in beside else [])]


@dataclass(frozen=True, slots=True)
class SparkMessage:
    """A message as a row of Spark's connector, with the methods of Kafka's client.

    Attributes:
        row: The row.
    """

    row: Mapping[str, Any]

    def value(self) -> bytes | None:
        """Its value."""
        found: bytes | None = self.row["value"]
        return found

    def key(self) -> bytes | None:
        """Its key."""
        found: bytes | None = self.row["key"]
        return found

    def partition(self) -> int:
        """The number of its partition."""
        return int(self.row["partition"])

    def offset(self) -> int:
        """Its place there."""
        return int(self.row["offset"])

    def timestamp(self) -> tuple[int, int]:
        """What its timestamp is, 0 for none, and the timestamp in milliseconds."""
        return self.row["timestampType"] + 1, self.row["timestamp"]

    def headers(self) -> list[tuple[str, bytes]]:
        """Its headers."""
        return [(each["key"], each["value"]) for each in self.row["headers"] or []]


def _decode(topic: Topic, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of messages; of each batch of which some are dropped another row, with their counts."""
    with concise():
        for batch in batches:
            found = topic.rows([SparkMessage(row) for row in _plain(batch).to_pylist()])
            arrays = encoded_arrays(topic.columns, [each.combine_chunks() for each in found.table.columns])
            made = pa.table(arrays, encoded_schema(topic.columns))
            if topic.on_invalid == "drop":
                made = made.append_column(FAULT, pa.nulls(made.num_rows, pa.string()))
            if found.skipped.rows:
                said = pa.table({FAULT: [json.dumps(found.skipped.facts())]})
                made = pa.concat_tables([made, said], promote_options="default")
            yield from made.to_batches()


def _plain(batch: pa.RecordBatch) -> pa.Table:
    """Rows of messages, with their timestamps in milliseconds."""
    table = pa.Table.from_batches([batch])
    if "timestamp" not in table.column_names:
        return table
    at = table.column_names.index("timestamp")
    times = table["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return table.set_column(at, "timestamp", times)
