"""Tables on Spark, and answers of Spark that are held to those of the local engine."""

from __future__ import annotations

import datetime
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from pyarrow import compute

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.plan.joins import How
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Query = Callable[[g.Stream], g.Stream]

UTC = pa.timestamp("us", "UTC")

NAN = math.nan
OTHER_NAN = -math.nan


def times(values: Sequence[int | None]) -> pa.Array:
    return pa.array(values, pa.int64()).cast(UTC)


def to_spark(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The same table as a DataFrame of two partitions."""
    from pyspark.sql.types import StructField, StructType

    from gpu_ops.engines.spark.types import spark_type

    fields = [StructField(field.name, spark_type(field.type)) for field in table.schema]
    return spark.createDataFrame(table, StructType(fields))


def answer(stream: g.Stream) -> pa.Table:
    """What a stream over Spark gives, in one job; what it dies of, if that is ours."""
    from gpu_ops.engines.spark.checks import our_errors

    with our_errors():
        table: pa.Table = stream.collect().toArrow()
    return table.cast(pa.schema([("start", UTC), ("end", UTC), *stream.schema]))


def local(table: pa.Table, query: Query, **source: Any) -> pa.Table:
    found: pa.Table = query(g.events(table, **source)).collect(device="cpu")
    return found


def same(spark: SparkSession, table: pa.Table, query: Query, **source: Any) -> pa.Table:
    """The answer, which Spark and the local engine agree on, types and bits."""
    source = {"start": "s", "end": "e"} | source
    expected = local(table, query, **source)
    found = answer(query(g.events(to_spark(spark, table), **source)))
    assert found.schema.types[2:] == expected.schema.types[2:]
    assert rows(found) == rows(expected)
    return expected


DAY = datetime.date(2020, 2, 29)

KEYS: dict[str, pa.Array] = {
    "int8": pa.array([1, -128, None, 127, 1, 1], pa.int8()),
    "int64": pa.array([1 << 62, -(1 << 62), None, 0, 1 << 62, 7], pa.int64()),
    "bool": pa.array([True, False, None, True, True, False]),
    "float64": pa.array([NAN, OTHER_NAN, None, 0.0, -0.0, 5e-324]),
    "float32": pa.array([NAN, 1.5, None, 0.0, -0.0, math.inf], pa.float32()),
    "string": pa.array(["", "é", None, "b", "b", "a\x00"]),
    "decimal": pa.array([Decimal("1.50"), Decimal("-99999999.99"), None, 0, 0, 2], pa.decimal128(10, 2)),
    "wide decimal": pa.array([Decimal(10**27), Decimal("-1E-10"), None, 0, 0, -(10**27)], pa.decimal128(38, 10)),
    "date": pa.array([DAY, datetime.date(1, 1, 1), None, DAY, DAY, datetime.date(9999, 12, 31)]),
    "timestamp": times([MIN_TIME, MAX_TIME, None, 0, 0, -1]),
    "local time": times([MIN_TIME, MAX_TIME, None, 0, 0, -1]).cast(pa.timestamp("us")),
    "binary": pa.array([b"", b"\x00\xff", None, b"\x10", b"\x10", b"\x0a"]),
    "duration": pa.array([-(1 << 62), 1 << 62, None, 0, 0, 1], pa.duration("us")),
}  # fmt: skip

NESTED: dict[str, pa.Array] = {
    "list": pa.array([[1, None], [], None, [1, None], [2], [1]], pa.list_(pa.int64())),
    "struct": pa.array(
        [{"a": 1, "b": b"x"}, {"a": None, "b": None}, None, {"a": 1, "b": b"x"}, {"a": 2, "b": b""}, None],
        pa.struct([("a", pa.int64()), ("b", pa.binary())]),
    ),
    "map": pa.array([[("a", 1)], [], None, [("a", 1)], [("b", None)], None], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(6),
}

PairQuery = Callable[[g.Stream, g.Stream], g.Stream]

PARTITIONS = "spark.sql.shuffle.partitions"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def agree(
    spark: SparkSession, tables: tuple[pa.Table, pa.Table], queries: Mapping[str, PairQuery], **source: Any
) -> dict[str, pa.Table]:
    """The answers, which Spark and the local engine agree on, types and bits; a job for all whose types are alike."""
    from pyspark.sql import functions

    source = {"start": "s", "end": "e"} | source
    far = [g.events(to_spark(spark, table), **source) for table in tables]
    near = [g.events(table, **source) for table in tables]
    alike: dict[object, list[tuple[str, DataFrame]]] = defaultdict(list)
    expected: dict[str, pa.Table] = {}
    for name, query in queries.items():
        stream = query(far[0], far[1])
        frame = stream.collect()
        assert frame.columns == ["start", "end", *stream.schema.names]
        expected[name] = query(near[0], near[1]).collect(device="cpu")
        assert stream.schema.types == expected[name].schema.types[2:], name
        alike[tuple(dtype for _, dtype in frame.dtypes)].append((name, frame))
    for asked in alike.values():
        named = [frame.withColumn("query", functions.lit(name)) for name, frame in asked]
        found = reduce(type(named[0]).unionAll, named).toArrow()
        for name, _ in asked:
            mine = found.filter(compute.equal(found[-1], name)).select(range(found.num_columns - 1))
            schema = pa.schema([*list(mine.schema)[:2], *list(expected[name].schema)[2:]])
            assert rows(mine.rename_columns(schema.names).cast(schema)) == rows(expected[name]), name
    return expected


def all_same(spark: SparkSession, table: pa.Table, queries: Mapping[str, Query]) -> dict[str, pa.Table]:
    """As `same`, for several queries over one table."""
    return agree(spark, (table, table), {name: partial(_of_first, query) for name, query in queries.items()})


def _of_first(query: Query, left: g.Stream, _: g.Stream) -> g.Stream:
    return query(left)


def drawn(seed: int, size: int) -> pa.Table:
    """Events that meet others often: few keys, some of them null, points, intervals, and some that never end."""
    draw = random.Random(seed)
    starts = [draw.randrange(60) for _ in range(size)]
    lengths = [draw.choice([1, 1, 3, 8, 20, None]) for _ in range(size)]
    return pa.table(
        {
            "s": times(starts),
            "e": times([MAX_TIME if n is None else start + n for start, n in zip(starts, lengths, strict=True)]),
            "k": pa.array([draw.choice(["a", "b", "c", None]) for _ in range(size)]),
            "x": pa.array([draw.choice([0.0, -0.0, 1.5, float("nan"), None]) for _ in range(size)]),
            "v": pa.array([draw.choice([None, 1, 2, 3]) for _ in range(size)], pa.int64()),
        }
    )


SIDES = drawn(1, 40), drawn(2, 30)

MORE = g.col("v") >= g.col("v_right")

HOWS: tuple[How, ...] = get_args(How)


def joined(how: How, on: Any = None, condition: Any = None) -> PairQuery:
    return lambda left, right: left.join(right, on=on, how=how, condition=condition)


SLICES = "spark.gpu_ops.slices"
STATISTICS = "spark.gpu_ops.statistics"
"""A seam is always the time at which some event starts or ends; in so small a range of times, most are of several."""


def cut(
    spark: SparkSession, tables: tuple[pa.Table, pa.Table], queries: Mapping[str, PairQuery], slices: str = "6"
) -> dict[str, pa.Table]:
    """The answers over slices, which are those of the local engine, bit by bit."""
    with setting(spark, PARTITIONS, "2"), setting(spark, SLICES, slices):
        return agree(spark, tables, queries)


def tasks(results: DataFrame) -> int:
    """How many tasks gave any row."""
    from pyspark.sql import functions

    return results.select(functions.spark_partition_id().alias("task")).distinct().count()


CUT = ("ShuffleExchangeExec", "HashPartitioning", "MapInArrowExec", "BroadcastNestedLoopJoinExec", "GenerateExec")
