"""Joins on buckets of time, which Spark does itself: they give what the local engine gives, from few rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

import narwhals as nw
import pyarrow as pa
import pytest
from pyarrow import compute

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.engines.spark.bucketed import choose, listings, supported, unplanned
from gpu_ops.engines.spark.compiling import Compiler
from gpu_ops.errors import PlanError
from gpu_ops.plan.joins import How, Join
from gpu_ops.plan.nodes import Feed
from tests.support.bucketed import in_buckets, joined
from tests.support.on_spark import KEYS, NESTED, PARTITIONS, setting, times, to_spark
from tests.support.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Query = Callable[[g.Stream, g.Stream], g.Stream]
Asked = tuple[Query, int | None]
"""A query, and the bucket that it is given."""


@contextmanager
def quickly(spark: SparkSession) -> Iterator[None]:
    """One task a shuffle, and no compiling: there are few rows and many plans."""
    with (
        setting(spark, PARTITIONS, "1"),
        setting(spark, "spark.sql.codegen.wholeStage", "false"),
        setting(spark, "spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ):
        yield


def agree(
    spark: SparkSession,
    tables: tuple[pa.Table, pa.Table],
    queries: Mapping[str, Asked],
    but_for: AbstractSet[str] = frozenset(),
) -> dict[str, pa.Table]:
    """The answers, which joins on buckets and the local engine agree on, bit by bit; a job for all alike.

    Columns that are left out may have a type of their own in each.
    """
    from pyspark.sql import functions

    far = [g.events(to_spark(spark, table), start="s", end="e") for table in tables]
    near = [g.events(table, start="s", end="e") for table in tables]
    alike: dict[object, list[tuple[str, DataFrame]]] = defaultdict(list)
    expected = {}
    for name, (query, bucket) in queries.items():
        stream = query(far[0], far[1])
        frame = in_buckets(stream, bucket)
        assert frame.columns == ["start", "end", *stream.schema.names]
        frame = frame.drop(*but_for)
        alike[tuple(frame.dtypes)].append((name, frame))
        expected[name] = query(near[0], near[1]).collect(device="cpu")
        expected[name] = expected[name].select([each for each in expected[name].column_names if each not in but_for])
    for asked in alike.values():
        named = [frame.withColumn("query", functions.lit(name)) for name, frame in asked]
        found = reduce(type(named[0]).unionAll, named).toArrow()
        for name, _ in asked:
            mine = found.filter(compute.equal(found["query"], name)).drop_columns(["query"])
            schema = pa.schema([*list(mine.schema)[:2], *list(expected[name].schema)[2:]])
            assert rows(mine.cast(schema)) == rows(expected[name]), name
    return expected


def drawn(seed: int, size: int, base: int) -> pa.Table:
    """Few keys, some null, one of them hot; points and lifetimes of all lengths, some for ever, some events twice."""
    draw = random.Random(seed)
    lengths = [1, 1, 2, 7, 20, 33, 200, 3_000, 10**6, 10**15, None]
    events = []
    for _ in range(size):
        start, length = base + draw.randrange(draw.choice([30, 400, 5_000])), draw.choice(lengths)
        end = MAX_TIME if length is None else min(start + length, MAX_TIME)
        key, x = draw.choice([*"aaaabc", None]), draw.choice([0.0, -0.0, 1.5, float("nan"), None])
        events += [(start, end, key, x, draw.choice([None, 1, 2, 3]))] * draw.choice([1, 1, 1, 2])
    starts, ends, keys, xs, vs = zip(*events, strict=True)
    return pa.table(
        {"s": times(starts), "e": times(ends), "k": pa.array(keys), "x": pa.array(xs), "v": pa.array(vs, pa.int64())}
    )


SIDES = drawn(1, 60, -2_000), drawn(2, 50, -2_000)
MORE = g.col("v") >= g.col("v_right")


def by(how: How, on: str | list[str] | None) -> Query:
    return lambda a, b: a.join(b, on=on, how=how)


QUERIES: dict[str, Asked] = {
    "inner by k": (by("inner", "k"), None),
    "inner by k, x": (by("inner", ["k", "x"]), 300),
    "inner by k if": (lambda a, b: a.join(b, on="k", condition=MORE), None),
    "left by k, x": (by("left", ["k", "x"]), 5),
    "left": (by("left", None), 1),
    "right by k, x": (by("right", ["k", "x"]), 10**9),
    "full by k": (by("full", "k"), None),
    "full": (by("full", None), 40),
    "full of two names": (lambda a, b: a.join(b.select("x", w="v", l="k"), on={"v": "w"}, how="full"), None),
    "semi by k": (by("semi", "k"), None),
    "semi": (by("semi", None), None),
    "anti by k": (by("anti", "k"), 70),
    "anti": (by("anti", None), None),
    "itself": (lambda a, _: a.join(a, on="k", how="left"), None),
    "points": (lambda a, b: a.to_point().join(b, on="k", how="full"), None),
}


def test_every_join_gives_what_it_gives_locally(spark: SparkSession) -> None:
    with quickly(spark):
        found = agree(spark, SIDES, QUERIES)
    assert all(table.num_rows for table in found.values())


def test_in_several_tasks_and_of_nothing(spark: SparkSession) -> None:
    none = SIDES[0].slice(0, 0)
    with quickly(spark):
        with setting(spark, PARTITIONS, "3"):
            agree(spark, SIDES, {"full": (by("full", ["k", "x"]), None)})
        for tables in ((none, SIDES[1]), (SIDES[0], none)):
            agree(spark, tables, {"full": (by("full", "k"), None)})


def test_at_the_ends_of_time(spark: SparkSession) -> None:
    first, last = MIN_TIME, MAX_TIME
    left = pa.table({"s": times([first, first, last - 1]), "e": times([last, first + 1, last])})
    right = pa.table({"s": times([first, last - 2]), "e": times([first + 2, last])})
    named = [table.append_column("v", pa.array(range(len(table)))) for table in (left, right)]
    with quickly(spark):
        agree(spark, (named[0], named[1]), {how: (by(how, None), None) for how in ("full", "semi", "anti")})


def test_equal_keys_meet_whatever_their_type(spark: SparkSession) -> None:
    lives = {"s": times([0, 1, 2, 3, 4, 5]), "e": times([3, 9, 9, 9, 5, 9])}
    table = pa.table(lives | {"v": pa.array(range(6), pa.int64())} | KEYS)

    def on(name: str) -> Query:
        how: How = "full" if "float" in name else "inner"
        return lambda a, b: a.select(name, "v").join(b.select(name, w="v"), on=name, how=how)

    with quickly(spark):
        agree(spark, (table, table), {name: (on(name), None) for name in KEYS}, but_for=set(KEYS))


def test_payload_of_every_type(spark: SparkSession) -> None:
    table = pa.table(
        {"s": times([0, 1, 2, 3, 4, 5]), "e": times([9] * 6), "i": pa.array([1, 1, 2, 2, None, 3])}
        | {name: column for name, column in (KEYS | NESTED).items() if name != "null"}
    )
    other = table.set_column(2, "i", pa.array([2, 1, 3, None, 3, 4]))
    agree(spark, (table, other), {"full": (by("full", "i"), None)})


# How many rows


SECOND = 1_000_000
LENGTHS: dict[str, Callable[[random.Random], int | None]] = {
    "alike": lambda draw: draw.randrange(SECOND // 2, SECOND),
    "mostly short": lambda draw: draw.choice([*[draw.randrange(1, SECOND)] * 50, 10**15, None]),
    "of all lengths": lambda draw: draw.choice([1 << draw.randrange(58), None]),
}


def test_few_rows_whatever_the_lifetimes(spark: SparkSession) -> None:
    from pyspark.sql import functions

    draw, size = random.Random(3), 400
    counts: list[DataFrame] = []
    for kind, length in LENGTHS.items():
        starts = [draw.randrange(100 * SECOND) for _ in range(size)]
        lengths = [length(draw) for _ in starts]
        ends = [MAX_TIME if n is None else min(start + n, MAX_TIME) for start, n in zip(starts, lengths, strict=True)]
        table = pa.table({"s": times(starts), "e": times(ends), "k": pa.array([1] * size)})
        stream = g.events(to_spark(spark, table), start="s", end="e")
        node = joined(stream.join(stream, on="k"))
        frame = Compiler(node, "cpu").frame(node.left)
        for bucket in (None, 1):
            name = functions.lit(f"{kind}, {bucket}").alias("name")
            counts += [
                each.agg(functions.count("*").alias("rows"), name) for each in listings(node, frame, frame, bucket)
            ]
    with quickly(spark):
        found = reduce(type(counts[0]).unionAll, counts).collect()
    most = {
        name: max(row["rows"] for row in found if row["name"] == name) / size for name in {row["name"] for row in found}
    }
    assert most["alike, None"] < 2
    assert most["alike, 1"] < 2  # levels that nobody has cost nothing
    assert most["mostly short, None"] < 4
    assert most["mostly short, 1"] < 6
    assert most["of all lengths, None"] < 3
    assert most["of all lengths, 1"] < 10


# Which strategy


KEYED = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("d", pa.decimal128(38, 2)), ("raw", pa.binary())])


def node_of(
    how: How, on: str | None, condition: nw.Expr | None = None, names: tuple[str, ...] = ("k", "v", "d")
) -> Join:
    side = Feed(pa.schema([KEYED.field(name) for name in names]), (), None)
    return Join(side, side, () if on is None else ((on, on),), how, condition)


CHOICES: dict[str, tuple[Join, bool, str, str]] = {
    "on CPUs": (node_of("inner", "k"), False, "kernel", "CPU time"),
    "on CPUs without a key": (node_of("inner", None), False, "kernel", "CPU time"),
    "on GPUs": (node_of("full", "k"), True, "sql", "all of it is planned"),
    "on GPUs if": (node_of("inner", "k", g.col("v") > 1), True, "sql", "all of it is planned"),
    "what Spark says otherwise": (node_of("inner", None, g.col("v").floor() > 1), True, "kernel", "is a LONG"),
    "the rest of a condition": (node_of("semi", None, g.col("v") > 1), False, "kernel", "a semi join asks for"),
    "a key that is binary": (node_of("inner", "raw", names=("raw", "v")), True, "kernel", "joins on no binary"),
    "binary beside gaps": (node_of("left", "k", names=("k", "raw")), True, "kernel", "no binary in a union"),
    "binary beside none": (node_of("anti", "k", names=("k", "raw")), True, "sql", "all of it is planned"),
    "a division": (node_of("inner", "k", g.col("v") / 2 > 1), True, "kernel", "no rule for the division"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_the_strategy_where_nobody_says(name: str) -> None:
    node, plugin, expected, why = CHOICES[name]
    strategy, reason = choose(node, plugin=plugin)
    assert strategy == expected
    assert why in reason


def test_a_stream_may_say_which(spark: SparkSession) -> None:
    chance = random.Random(11)
    rows_of = [[(s, s + chance.randrange(1, 90), chance.randrange(3)) for s in range(0, 900, 9)] for _ in range(2)]
    frames = [spark.createDataFrame(each, "a long, b long, k int") for each in rows_of]
    left, right = (g.events(frame, start="a", end="b", unit="us").with_columns(v=g.col("k") * 2) for frame in frames)
    local = [pa.Table.from_pylist([dict(zip("abk", row, strict=True)) for row in each]) for each in rows_of]
    here, there = (g.events(each, start="a", end="b", unit="us").with_columns(v=g.col("k") * 2) for each in local)
    by_sql = left.join(right, on="k", how="anti", strategy="sql")
    assert "strategy sql, as asked" in by_sql.explain()
    assert "mapInArrow" not in by_sql.explain()
    by_kernel = left.join(right, on="k", how="anti", strategy="kernel")
    assert "strategy kernel, as asked" in by_kernel.explain()
    above = left.join(right, on="k", strategy="sql").by("k").snapshot().agg(n=g.count())
    assert "strategy sql, as asked" in above.explain()  # not by workers, though a window above it would take it in
    assert "strategy kernel, it takes a fraction" in left.join(right, on="k").explain()
    expected = rows(here.join(there, on="k", how="anti").select(k=g.col("k").cast(g.Int32)).collect())
    for each in (by_sql, by_kernel):
        assert rows(each.select("k").collect().toArrow()) == expected
    with pytest.raises(PlanError, match="a semi join asks for its rest"):
        left.join(right, on="k", how="semi", condition=g.col("v") > 1, strategy="sql").collect()
    with pytest.raises(PlanError, match=r"strategy .* is unknown"):
        left.join(right, on="k", strategy="fast")  # type: ignore[arg-type]


def test_what_is_not_read_is_no_reason() -> None:
    node = node_of("left", "k", names=("k", "v", "raw"))
    assert unplanned(node) == "column 'raw': the RAPIDS plugin takes no binary in a union"
    assert unplanned(node, ["k", "v", "raw", "v_right"]) is None
    assert supported(node) is None
