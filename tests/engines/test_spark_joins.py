"""Several streams on Spark: what they give here, and how little moves for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark import invalid_rows
from gpu_ops.errors import ColumnError, PlanError, SumOverflowError
from tests.support.on_spark import (
    HOWS,
    KEYS,
    MORE,
    NESTED,
    PARTITIONS,
    SIDES,
    PairQuery,
    agree,
    answer,
    joined,
    setting,
    times,
    to_spark,
)
from tests.support.rows import rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


VERBS: dict[str, PairQuery] = {
    **{f"{how} by k": joined(how, "k") for how in HOWS},
    **{f"{how} by k if": joined(how, "k", MORE) for how in HOWS},
    **{f"{how} by k, x": joined(how, ["k", "x"]) for how in HOWS},
    **{f"{how} if": joined(how, condition=MORE) for how in HOWS},
    "full of two names": lambda a, b: a.join(b.select("x", w="v", l="k"), on={"v": "w"}, how="full"),
    "clip_by k": lambda a, b: a.clip_by(b, on="k"),
    "clip_by": lambda a, b: a.clip_by(b),
    "clip_by itself": lambda a, _: a.clip_by(a, on="k"),
    "asof k": lambda a, b: a.asof_join(b, on="k"),
    "asof k, inner": lambda a, b: a.asof_join(b, on="k", how="inner", tolerance="9us"),
    "asof": lambda a, b: a.asof_join(b, tolerance="1us"),
    "asof, forward": lambda a, b: a.asof_join(b, direction="forward", tolerance="9us"),
    "asof k, nearest": lambda a, b: a.asof_join(b, on="k", direction="nearest"),
    "itself": lambda a, _: a.join(a, on="k"),
    "itself by another name": lambda a, _: a.join(a.with_columns(v=g.col("v") + 1), on="v", how="full"),
    "points": lambda a, b: a.to_point().join(b, on="k", how="left"),
    "two of points": lambda a, b: a.to_point().join(b.set_duration("3us"), on="k", how="anti"),
    "union": lambda a, b: a.union(b, a.shift("5us")),
    "union of integers": lambda a, b: a.with_columns(v=g.col("v").cast(g.Int16)).union(b.select("v", "k", "x")),
    "distinct": lambda a, b: a.union(b).distinct("k"),
}  # fmt: skip


def test_two_streams_give_what_they_give_locally(spark: SparkSession) -> None:
    # Over slices of time: test_spark_slices, test_spark_seams.
    with setting(spark, PARTITIONS, "1"), setting(spark, "spark.gpu_ops.slices", "1"):
        found = agree(spark, SIDES, VERBS)
    assert all(table.num_rows for table in found.values())


def test_in_any_number_of_tasks(spark: SparkSession) -> None:
    some = (
        "full by k, x",
        "semi by k if",
        "anti by k",
        "clip_by k",
        "asof k",
        "asof, forward",
        "asof k, nearest",
        "itself by another name",
        "points",
    )
    with setting(spark, PARTITIONS, "5"):
        agree(spark, SIDES, {name: VERBS[name] for name in some})


ABOVE: dict[str, PairQuery] = {
    "a window by the key": lambda a, b: a.join(b, on="k", how="full").by("k").snapshot().agg(n=g.count()),
    "a window by no key": lambda a, b: a.join(b, on="k").snapshot().agg(n=g.count()),
    "a window by another key": lambda a, b: a.join(b, on="k").by("v").snapshot().agg(n=g.count("v_right")),
    "a stitch": lambda a, b: a.asof_join(b, on="k").select("k").stitch(),
    "a window beside what it is of": lambda a, _: (
        a.by("k").snapshot().agg(n=g.count()).join(a, on="k", condition=g.col("n") > 2).select("k", "n")
    ),
    "two joins": lambda a, b: a.join(b, on="k").join(b.select("k", w="v"), on="k", how="anti").select("v", "v_right"),
    "unions": lambda a, b: a.union(b).by("k").sliding("9us").agg(n=g.sum("v")),
    "a union beside a part": lambda a, b: a.union(b).join(b, on="k", how="semi").select("v"),
    "times alone": lambda a, b: a.join(b, how="semi").snapshot().agg(n=g.count()),
    "a change of lifetime": lambda a, b: (
        a.join(b, on="k").select("v", since=g.col("start")).set_duration("5us").filter(g.col("v") > 1)
    ),
}  # fmt: skip


def test_what_stands_above_and_below(spark: SparkSession) -> None:
    with setting(spark, PARTITIONS, "2"):
        agree(spark, SIDES, ABOVE)


def test_nothing_meets_nothing(spark: SparkSession) -> None:
    some = {name: VERBS[name] for name in ("inner by k", "full by k", "anti by k", "clip_by k", "asof k", "union")}
    with setting(spark, PARTITIONS, "1"):
        agree(spark, (SIDES[0].slice(0, 0), SIDES[1]), some)
        agree(spark, (SIDES[0], SIDES[1].slice(0, 0)), some)


def test_equal_keys_meet_whatever_their_type(spark: SparkSession) -> None:
    table = pa.table({"s": times([0, 1, 2, 3, 4, 5]), "e": times([9] * 6), "v": pa.array(range(6), pa.int64())} | KEYS)

    def by(name: str) -> PairQuery:
        other = g.col("v") != g.col("w")
        return lambda left, right: (
            left.select(name, "v")
            .join(right.select(name, w="v"), on=name, how="full", condition=other)
            .select("v", "w", gone=g.col(name).is_null())
        )

    with setting(spark, PARTITIONS, "2"):
        found = agree(spark, (table, table), {name: by(name) for name in KEYS})
    # 0.0 met -0.0, and one NaN the other.
    pairs = {(row["v"], row["w"]) for row in found["float64"].to_pylist()}
    assert {(3, 4), (4, 3), (0, 1), (1, 0)} <= pairs
    assert {(2, None), (None, 2)} <= pairs


def test_payload_of_every_type(spark: SparkSession) -> None:
    table = pa.table(
        {"s": times([0, 1, 2, 3, 4, 5]), "e": times([9] * 6), "i": pa.array([1, 1, 2, 2, None, 3])}
        | {name: column for name, column in (KEYS | NESTED).items() if name != "null"}
    )
    other = table.set_column(2, "i", pa.array([2, 1, 3, None, 3, 4]))
    agree(
        spark,
        (table, other),
        {
            "join": lambda a, b: a.join(b, on="i", how="full"),
            "asof": lambda a, b: a.asof_join(b, on="i"),
            "clip": lambda a, b: a.clip_by(b, on="i"),
            "union": lambda a, b: a.union(b),
        },
    )


def test_one_frame_as_two_streams(spark: SparkSession) -> None:
    frame = to_spark(spark, SIDES[0])
    one, two = (g.events(frame, start="s", end="e") for _ in range(2))
    near = g.events(SIDES[0], start="s", end="e")
    query: PairQuery = lambda a, b: a.join(b, on="k", how="left")  # noqa: E731
    expected = rows(query(near, near).collect(device="cpu"))
    assert rows(answer(query(one, two))) == expected
    assert rows(query(one, two).collect(device="array").toArrow()) == expected


# How little moves


def stored(spark: SparkSession, folder: Path, name: str, table: pa.Table) -> g.Stream:
    parquet.write_table(table, folder / f"{name}.parquet")
    return g.events(spark.read.parquet(str(folder / f"{name}.parquet")), start="s", end="e")


def executed(stream: g.Stream) -> str:
    return str(stream.collect()._jdf.queryExecution().executedPlan())


def test_only_what_is_read_moves_and_equal_types_share_a_column(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (stored(spark, tmp_path, name, table) for name, table in zip("lr", SIDES, strict=True))
    plan = executed(left.join(right, on="k", condition=MORE).select("k", "x"))
    assert plan.count("Exchange ") == plan.count("MapInArrow ") == 1
    # The key of both, v of both, x of the left: no event has more. The side is a bit of the end.
    assert "MapInArrow gpu_ops(start, end_right, 0_k, 1_x, 2_v)" in _bare(plan)
    plan = executed(left.to_point().clip_by(right, on="k").select("k"))
    assert "MapInArrow gpu_ops(start, right, 0_k)" in _bare(plan)
    with setting(spark, "spark.gpu_ops.slices", "1"):
        plan = executed(left.join(right, how="semi").snapshot().agg(n=g.count()))
    assert "MapInArrow gpu_ops(start, end_right)" in _bare(plan)


def test_windows_share_the_shuffle_of_a_join(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (stored(spark, tmp_path, name, table) for name, table in zip("lr", SIDES, strict=True))
    plan = executed(ABOVE["a window by the key"](left, right))
    assert plan.count("Exchange ") == plan.count("MapInArrow ") == 1
    assert "CASE WHEN isnull(0_k)" not in _bare(plan)  # without a key they are one group of the window
    plan = executed(VERBS["clip_by itself"](left, right))
    assert plan.count("FileScan ") == plan.count("Exchange ") == 1
    assert "hashpartitioning(0_k, CASE WHEN isnull(0_k) THEN start END" in _bare(plan)
    plan = executed(ABOVE["a window by another key"](left, right))
    assert plan.count("Exchange ") == 2


def test_nothing_is_left_to_do_where_all_columns_come_back_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (stored(spark, tmp_path, name, table) for name, table in zip("lr", SIDES, strict=True))
    plan = _bare(executed(left.select("k", a=g.col("v")).join(right.select("k", b=g.col("v")), on="k")))
    assert plan.startswith("MapInArrow ")
    assert "[start, end, k, a, b]" in plan.splitlines()[0]


def _bare(plan: str) -> str:
    return re.sub(r"#\d+L?", "", plan)


# What it says


def test_explain(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    text = left.join(right, on="k", how="left").explain()
    assert "one DataFrame of both sides' rows, one repartition by k, then one mapInArrow" in text
    assert "events without a key: left out first (right)" in text
    assert "events without a key: in any task (left)" in text
    assert "events move between tasks 1 times" in text
    with setting(spark, "spark.gpu_ops.slices", "1"):
        assert "one task, as there is no key: repartition(1)" in left.clip_by(right).explain()
    assert "Spark: union, without a shuffle\n│   planned for the GPU" in left.union(right).explain()
    shared = ABOVE["a window by the key"](left, right).explain()
    assert "events move between tasks 1 times" in shared
    raw = left.with_columns(b=g.col("start") - g.col("end"))
    assert "through the union: 'b' (duration[us]) as BIGINT microseconds" in raw.union(raw).explain()


def test_an_error_in_a_worker_is_ours(spark: SparkSession) -> None:
    large = pa.table({"s": times([0, 1]), "e": times([9, 9]), "k": ["a", "a"], "v": pa.array([1 << 62, 1 << 62])})
    stream = g.events(to_spark(spark, large), start="s", end="e")
    with pytest.raises(SumOverflowError):
        answer(stream.join(stream.select("k"), on="k").by("k").snapshot().agg(t=g.sum("v")))


def test_streams_that_do_not_go_together(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    with pytest.raises(PlanError, match="on Spark and the other one is local"):
        left.join(g.events(SIDES[1], start="s", end="e"), on="k")
    with pytest.raises(PlanError, match="several sources"):
        invalid_rows(left.union(right))
    with pytest.raises(ColumnError, match="differ only in case"):
        left.join(right.select("k", V="v"), on="k").collect()
    other = spark.newSession()
    there = g.events(to_spark(other, SIDES[1]), start="s", end="e")
    assert left.join(there, on="k").collect().columns[0] == "start"
    other.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(PlanError, match="two Spark sessions"):
        left.join(there, on="k").collect()


def test_building_a_query_starts_no_job(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    context = spark.sparkContext
    context.setJobGroup("joining", "nothing should run")
    try:
        for query in (VERBS["full by k"], VERBS["asof"], VERBS["union"]):
            query(left, right).collect()
            query(left, right).explain()
        assert not context.statusTracker().getJobIdsForGroup("joining")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
