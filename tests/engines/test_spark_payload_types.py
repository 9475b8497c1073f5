"""Payload of every type through Spark, and where the RAPIDS planner puts it: the cells of `docs/types.md`, tried.

Planned is not run: only a GPU shows that a plan works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import compute as pc
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark.type_codecs import codec, passage
from gpu_ops.engines.spark.types import plain_type, spark_type
from gpu_ops.errors import ColumnError
from tests.support.payload_table import ROWS, Row
from tests.support.planner import planned, refused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

SPARK = [row for row in ROWS if row.scan]
"""The rows that Spark has a type for."""
READ = [row for row in ROWS if row.parquet != "refused"]
ORDERED = [row for row in SPARK if row.ordered == "yes"]
LASTED = (g.col("end") - g.col("start")).dt.total_microseconds()
"""What Narwhals cannot say to Spark, so that a Python stage computes it."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("types") / "events.parquet"
    times = pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC"))
    parquet.write_table(pa.table({"at": times} | {row.name: row.values for row in READ}), file)
    return str(file)


@pytest.fixture
def frame(spark: SparkSession, path: str) -> DataFrame:
    read = spark.read.parquet(path)
    return read.select("at", *(row.name if row.parquet == "itself" else _span(row.name) for row in SPARK))


def _span(name: str) -> Column:
    """Arrow writes spans as plain integers."""
    from pyspark.sql import functions

    return functions.expr(f"interval '0.000001' second * {name}").alias(name)


@pytest.fixture
def stream(frame: DataFrame) -> g.Stream:
    return g.events(frame, start="at")


def names(rows: Sequence[Row]) -> list[str]:
    return [row.name for row in rows]


def expected(row: Row) -> pa.Array:
    """The values, as wide as Spark has them."""
    return row.values.cast(plain_type(row.dtype))


def answer(stream: g.Stream) -> pa.Table:
    table = stream.to_reader().read_all()
    return table.take(pc.sort_indices(table["start"]))


def same(found: pa.ChunkedArray, values: pa.Array) -> bool:
    return bool(found.combine_chunks().cast(values.type).equals(values))


# What Spark has


def test_types_that_spark_has_and_reads(spark: SparkSession, path: str) -> None:
    read = dict(spark.read.parquet(path).dtypes)
    for row in READ:
        assert read[row.name].upper() == (row.spark if row.parquet == "itself" else row.parquet), row.name
    for row in SPARK:
        assert spark_type(row.dtype).simpleString().upper() == row.spark, row.name


@pytest.mark.parametrize("row", [row for row in ROWS if row not in READ], ids=lambda row: row.name)
def test_what_spark_does_not_read(spark: SparkSession, tmp_path: Path, row: Row) -> None:
    from pyspark.errors import AnalysisException

    file = tmp_path / "events.parquet"
    parquet.write_table(pa.table({"x": row.values}), file)
    with pytest.raises(AnalysisException, match="PARQUET_TYPE_ILLEGAL"):
        _ = spark.read.parquet(str(file)).schema


@pytest.mark.parametrize("row", [row for row in ROWS if row.spark == "none"], ids=lambda row: row.name)
def test_what_is_no_type_of_spark(row: Row) -> None:
    if isinstance(row.dtype, pa.BaseExtensionType):
        with pytest.raises(ColumnError, match="Spark has no type"):
            plain_type(row.dtype)
    else:  # Spark's is coarser, and what would be lost is an error.
        with pytest.raises(pa.ArrowInvalid, match="would lose data"):
            row.values.cast(plain_type(row.dtype))


# There and back


def test_payload_passes_and_comes_back_as_it_was(stream: g.Stream) -> None:
    table = answer(stream.shift("1h").select(*names(SPARK)).with_columns(lasted=LASTED))
    assert table["lasted"].to_pylist() == [1] * 4
    for row in SPARK:
        assert same(table[row.name], expected(row)), row.name


def test_extremes_of_every_type(stream: g.Stream) -> None:
    least = {f"least_{row.name}": g.min(row.name) for row in ORDERED}
    most = {f"most_{row.name}": g.max(row.name) for row in ORDERED}
    table = answer(stream.tumbling("1h").agg(**least, **most))
    for row in ORDERED:
        assert same(table[f"least_{row.name}"], expected(row).slice(0, 1)), row.name
        assert same(table[f"most_{row.name}"], expected(row).slice(2, 1)), row.name


def test_keys_of_every_type(stream: g.Stream) -> None:
    table = answer(stream.by(*names(ORDERED)).snapshot().agg(n=g.count()))
    assert table["n"].to_pylist() == [1] * 4
    for row in ORDERED:
        assert same(table[row.name], expected(row)), row.name


def test_columns_without_nulls_stay_so(spark: SparkSession) -> None:
    made = spark.createDataFrame([(0, 1, None)], "at long not null, never int not null, maybe int")
    schema = g.events(made, start="at", unit="s").select("never", "maybe").schema
    assert [field.nullable for field in schema] == [False, True]


# How it passes Python


@pytest.mark.parametrize("row", SPARK, ids=lambda row: row.name)
def test_what_passes_in_place_of_a_column(row: Row) -> None:
    types = [spark_type(dtype).simpleString().upper() for dtype in codec(row.dtype).types]
    assert types == ([row.spark] if row.passes == "itself" else row.passes.split(", "))
    assert (codec(row.dtype).refusal is None) == (row.python == "GPU")
    own = plain_type(row.dtype) == row.dtype and row.passes == "itself"
    assert (passage(pa.field("x", row.dtype)) is None) == own


def test_explain_says_how_columns_pass(stream: g.Stream) -> None:
    text = stream.with_columns(lasted=LASTED).explain()
    passing = next(line for line in text.splitlines() if "through Python" in line)
    for row in SPARK:
        declared = stream.schema.field(row.name).type
        assert (f"'{row.name}' ({declared}) as " in passing) == (row.passes != "itself"), row.name
        assert (f"not wholly planned for the GPU: column {row.name!r}" in text) == (row.python == "CPU"), row.name
    window = stream.by("decimal_decimal128_18_4").snapshot().agg(most=g.max("guid_binary_16")).explain()
    assert "'decimal_decimal128_18_4' (decimal128(18, 4)) as its unscaled BIGINT" in window
    assert "'most' (binary) as STRING of hexadecimal digits" in window


# Where the RAPIDS planner puts it


def on(place: str, cell: str) -> list[Row]:
    return [row for row in SPARK if getattr(row, cell) == place]


def scanned(frame: DataFrame, columns: list[str]) -> DataFrame:
    return frame.where("at is not null").select("at", *columns)


def united(frame: DataFrame, columns: list[str]) -> DataFrame:
    return frame.select(*columns).union(frame.select(*columns))


def shuffled(frame: DataFrame, columns: list[str]) -> DataFrame:
    return frame.select(*columns).repartition(3, *columns)


def computed(frame: DataFrame, columns: list[str]) -> DataFrame:
    made: DataFrame = g.events(frame.select("at", *columns), start="at").with_columns(lasted=LASTED).collect()
    return made


STAGES = {
    "scan": (scanned, "FileSourceScanExec"),
    "union": (united, "UnionExec"),
    "shuffle": (shuffled, "ShuffleExchangeExec"),
    "python": (computed, "MapInArrowExec"),
}


@pytest.mark.rapids
@pytest.mark.parametrize("cell", STAGES)
def test_what_is_planned_for_the_gpu(frame: DataFrame, cell: str) -> None:
    stage, node = STAGES[cell]
    planned(stage(frame, names(on("GPU", cell))), node)


@pytest.mark.rapids
@pytest.mark.parametrize(
    ("cell", "row"),
    [pytest.param(cell, row, id=f"{cell}-{row.name}") for cell in STAGES for row in on("CPU", cell)],
)
def test_what_is_not(frame: DataFrame, cell: str, row: Row) -> None:
    stage, _ = STAGES[cell]
    assert refused(stage(frame, [row.name]))


@pytest.mark.rapids
def test_windows_over_every_type_that_passes_are_on_the_gpu(stream: g.Stream) -> None:
    passing = [row for row in ORDERED if row.python == "GPU"]
    extremes = {f"most_{row.name}": g.max(row.name) for row in passing}
    planned(stream.by(*names(passing)).snapshot().agg(**extremes).collect(), "MapInArrowExec", "HashPartitioning")
