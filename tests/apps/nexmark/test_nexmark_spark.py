"""The Spark data source makes the rows that are made here, however many partitions make them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpu_ops.apps import nexmark
from gpu_ops.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    from gpu_ops.apps.nexmark.spark import register

    register(spark)
    return spark


@pytest.mark.services
def test_nothing_of_it_is_loaded_unasked() -> None:
    script = """
import sys
import gpu_ops
assert not any(name.startswith("gpu_ops.apps.nexmark") for name in sys.modules)
import gpu_ops.apps.nexmark.queries
assert "pyspark" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("kind", nexmark.KINDS)
def test_the_rows_are_the_same_in_any_number_of_partitions(registered: SparkSession, kind: nexmark.Kind) -> None:
    expected = nexmark.generate(1234, rate=321, seed=9, start="2026-01-01T00:00Z")
    options = {"kind": kind, "events": 1234, "rate": 321, "seed": 9, "start": "2026-01-01T00:00Z"}
    for partitions in (None, 7):
        reader = registered.read.format("nexmark").options(**options)
        frame = (reader if partitions is None else reader.option("partitions", partitions)).load()
        assert frame.rdd.getNumPartitions() == (partitions or 1)
        assert frame.toArrow().equals(getattr(expected, kind).combine_chunks())


@pytest.mark.parametrize("number", [1, 2, 3, 50, 999])
def test_partitions_are_the_whole(number: int) -> None:
    pytest.importorskip("pyspark")
    import pyarrow as pa

    from gpu_ops.apps.nexmark.spark import NexmarkReader

    generator = nexmark.Generator(500, seed=4)
    reader = NexmarkReader(generator, "bids", number)
    parts = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert pa.Table.from_batches(parts).combine_chunks().equals(generator.table("bids").combine_chunks())
    assert list(reader.read(None)) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r'needs a kind.*\.option\("kind", "bids"\).*persons, auctions, bids'),
        ({"kind": "cats", "events": "1"}, "has no kind 'cats'"),
        ({"kind": "bids"}, "needs the number of events"),
        ({"kind": "bids", "events": "many"}, r"The option events is 'many', not a whole number\. Write only digits"),
        ({"kind": "bids", "events": "-1"}, "events is -1.*whole number from 0"),
        ({"kind": "bids", "events": "1", "partitions": "0"}, "partitions is 0.*at least 1"),
        ({"kind": "bids", "events": "1", "speed": "9"}, "has no option 'speed'.*rate, seed"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    pytest.importorskip("pyspark")
    from gpu_ops.apps.nexmark.spark import NexmarkDataSource

    def opened() -> None:
        source = NexmarkDataSource(options)
        source.reader(source.schema())

    with pytest.raises(PlanError, match=said):
        opened()
