"""Clipping, as-of joins and joins with a condition give over slices of time what the local engine gives."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.plan.joins import How
from tests.support.on_spark import (
    CUT,
    KEYS,
    MORE,
    NESTED,
    PARTITIONS,
    SIDES,
    SLICES,
    STATISTICS,
    agree,
    cut,
    drawn,
    joined,
    setting,
    tasks,
    times,
    to_spark,
)
from tests.support.planner import (
    PAYLOAD,
    planned,
)

Query = Callable[[g.Stream, g.Stream], g.Stream]


def again(table: pa.Table) -> pa.Table:
    """The events, and some of them twice or three times."""
    return pa.concat_tables([table, table.slice(0, len(table) // 3), table.slice(2, 4)])


TWICE = again(drawn(5, 40)), again(drawn(6, 30))


def test_the_next_and_the_last_start(spark: SparkSession) -> None:
    found = cut(
        spark,
        TWICE,
        {
            "clip_by": lambda a, b: a.clip_by(b),
            "clip_by k, of itself": lambda a, _: a.clip_by(a, on="k"),
            "clip_by k, x, of points": lambda a, b: a.clip_by(b.to_point(), on=["k", "x"]),
            "asof": lambda a, b: a.asof_join(b, tolerance="3us"),
            "asof by k, inner": lambda a, b: a.to_point().asof_join(b, on="k", how="inner"),
            "asof by two names": lambda a, b: a.asof_join(b.select(v="x", l="k"), on={"k": "l"}, tolerance="9us"),
            "asof, few columns": lambda a, b: a.asof_join(b, on=["k", "x"]).select("v_right"),
        },
    )
    assert all(table.num_rows for table in found.values())


def test_the_last_of_several_at_a_seam(spark: SparkSession) -> None:
    # Every time is a seam. The keys' right events start together, and long before they are asked for:
    #
    #        0    5    10   15   20   25
    #   p    R R R          r    L  L
    #   q    R R                      L
    #   of the right ones at 0 the one that ends last counts, then the greatest v; null is the least.
    left = pa.table({"s": times([20, 21, 25]), "e": times([24, 30, MAX_TIME]), "k": ["p", "p", "q"], "n": [1, 2, 3]})
    right = pa.table(
        {
            "s": times([0, 0, 0, 15, 0, 0, 5]),
            "e": times([9, 11, 11, 16, 7, 7, 6]),
            "k": ["p", "p", "p", "other", "q", "q", "q"],
            "v": pa.array([9.0, 1.0, 2.0, 5.0, None, -0.0, 0.0]),
        }
    )
    right = pa.concat_tables([right, right.slice(0, 6)])
    queries: dict[str, Query] = {
        "asof": lambda a, b: a.asof_join(b, on="k"),
        "asof without a key": lambda a, b: a.asof_join(b.select("v")),
        "clip": lambda a, b: b.clip_by(a.select("k"), on="k"),
    }
    found = cut(spark, (left, right), queries, slices="200")
    assert found["asof"].sort_by("n")["v"].to_pylist() == [2.0, 2.0, 0.0]
    assert found["asof without a key"]["v"].to_pylist() == [5.0] * 3


HOWS: list[How] = ["left", "right", "full", "semi", "anti"]


def test_conditions(spark: SparkSession) -> None:
    two: Query = lambda a, b: a.join(  # noqa: E731
        b.select("x", w="v", l="k"),
        on={"v": "w"},
        how="full",
        condition=g.col("l").is_null() | (g.col("k") > g.col("l")),
    )
    found = cut(
        spark,
        TWICE,
        {f"{how} if": joined(how, condition=MORE) for how in HOWS}
        | {"full by k if": joined("full", "k", (g.col("x") >= g.col("x_right")) | (g.col("k") == "a"))}
        | {
            "by two names": two,
            "of points": lambda a, b: a.join(b.to_point(), how="full", condition=MORE),
            "if ever": lambda a, b: a.join(b, on="k", how="anti", condition=g.lit(value=False)).select("x"),
            "only times": lambda a, b: a.join(b, how="semi", condition=MORE).snapshot().agg(n=g.count()),
        },
        slices="5",
    )
    assert all(table.num_rows for table in found.values())


def test_more_slices_than_times(spark: SparkSession) -> None:
    cut(spark, SIDES, {how: joined(how, None, MORE) for how in ("full", "semi")}, slices="200")


def test_events_that_differ_in_what_is_equal_elsewhere(spark: SparkSession) -> None:
    """Null and nothing, and the two zeros, are told apart by a condition."""
    same = {"s": times([0] * 6), "e": times([30] * 6)}
    left = pa.table(
        same
        | {
            "x": pa.array([0.0, -0.0, 1.0, 1.0, 1.0, None]),
            "v": pa.array([1, 1, 0, None, 1, 1], pa.int64()),
            "t": pa.array(["a", "a", "a", "a", "", None]),
        }
    )
    right = pa.table({"s": times([5, 20]), "e": times([10, 25]), "w": [1, 2]})
    conditions = {
        "zero": (1.0 / g.col("x") < 0) & (g.col("w") > 0),
        "null": (g.col("v") == 0) & (g.col("w") == 1),
        "text": (g.col("t") == "") & (g.col("w") == 2),
    }
    queries = {
        f"{how} {name}": joined(how, condition=condition)
        for name, condition in conditions.items()
        for how in ("anti", "semi")
        if (how, name) != ("semi", "text")
    }
    found = cut(spark, (left, right), queries)
    assert [found[f"anti {name}"].num_rows for name in conditions] == [8, 7, 7]


def test_conditions_on_every_type(spark: SparkSession) -> None:
    table = pa.table(
        {"s": times([0, 1, 2, 3, 4, 5]), "e": times([9, 9, 40, 9, MAX_TIME, 9]), "i": pa.array([1, 1, 2, 2, None, 3])}
        | {name: column for name, column in (KEYS | NESTED).items() if name != "null"}
    )
    table = again(pa.concat_tables([table, table.set_column(0, "s", times([7, 8, 3, 3, 9, 6])).slice(0, 4)]))
    names = [name for name in KEYS if name != "null"]
    every = g.any_horizontal(*(g.col(name) == g.col(f"{name}_right") for name in names), ignore_nulls=True)
    cut(
        spark, (table, table), {"full": joined("full", condition=every), "anti": joined("anti", "i", every)}, slices="4"
    )


def test_keys_that_python_writes_otherwise(spark: SparkSession) -> None:
    """Spark hashes a wide decimal by its text, and Arrow writes small ones as 1E-10."""
    keys = pa.array([Decimal(n).scaleb(-10) for n in range(9)], pa.decimal128(38, 10))
    right = pa.table({"s": times(range(9)), "e": times(range(9, 18)), "k": keys, "v": pa.array(range(9))})
    left = right.set_column(0, "s", times(range(40, 49))).set_column(1, "e", times([50] * 9))
    queries: dict[str, Query] = {
        "asof": lambda a, b: a.asof_join(b, on="k"),
        "clip": lambda a, b: b.clip_by(a, on="k"),
        "left": joined("left", "k", g.col("k") != g.col("v_right")),
    }
    found = cut(spark, (left, right), queries, slices="9")
    assert found["asof"].sort_by("v")["v_right"].to_pylist() == list(range(9))


def test_nothing_meets_nothing(spark: SparkSession) -> None:
    queries: dict[str, Query] = {
        "clip": lambda a, b: a.clip_by(b),
        "asof": lambda a, b: a.asof_join(b, on="k"),
        "full": joined("full", condition=MORE),
    }
    cut(spark, (SIDES[0].slice(0, 0), SIDES[1]), queries)
    cut(spark, (SIDES[0], SIDES[1].slice(0, 0)), queries)


def test_more_than_memory_holds(spark: SparkSession) -> None:
    queries: dict[str, Query] = {
        "anti": joined("anti", "k", MORE),
        "asof": lambda a, b: a.asof_join(b, on="k"),
    }
    with setting(spark, "spark.gpu_ops.worker.memory", "1k"):
        cut(spark, (drawn(7, 200), drawn(8, 100)), queries, slices="3")


def test_more_than_one_task_does_the_work_and_one_can(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    queries: dict[str, Query] = {
        "clip": lambda a, b: a.clip_by(b),
        "asof": lambda a, b: a.asof_join(b),
        "semi": joined("semi", condition=MORE),
    }
    for query in queries.values():
        assert tasks(query(left, right).collect()) > 1
    with setting(spark, SLICES, "1"), setting(spark, PARTITIONS, "2"):
        agree(spark, SIDES, queries)


# Whether, and what it says


def test_explain(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    because = "cut in time, as there is no key: events in at most 16 slices, repartition by slice, then mapInArrow"

    def said(stream_: g.Stream, moves: int, *lines: str) -> None:
        text = stream_.explain()
        assert f"events move between tasks {moves} times" in text
        assert all(line in text for line in lines)

    said(left.clip_by(right), 1, because)
    said(left.asof_join(right), 2, because, "the last right event before each slice: from one more such pass")
    pieces = "pieces of events: one more repartition, by event, and mapInArrow, which joins those that touch"
    said(left.join(right, how="anti", condition=MORE), 2, because, pieces)
    said(left.join(right, how="full", condition=MORE), 5, because, pieces)
    assert pieces not in left.join(right, condition=MORE).explain()
    keyed = left.clip_by(right, on="k")
    assert "cut in time" not in keyed.explain()
    with setting(spark, STATISTICS, "true"):
        said(keyed, 1, "cut in time, as there are 3 keys for 4 tasks", "repartition by slice, k")


def test_a_condition_on_lists_is_not_cut(spark: SparkSession) -> None:
    table = SIDES[0].append_column("tags", pa.array([[at % 3] for at in range(len(SIDES[0]))], pa.list_(pa.int64())))
    left, right = (g.events(to_spark(spark, each), start="s", end="e") for each in (table, SIDES[1]))
    lists = g.col("tags").list.contains(1)
    text = left.join(right, how="anti", condition=lists).explain()
    assert "not cut in time: the condition reads 'tags', and events cannot be told apart by list<" in text
    # It is the left events alone that have them.
    assert "not cut in time" not in left.join(right, how="right", condition=lists).explain()
    queries: dict[str, Any] = {how: joined(how, condition=lists) for how in ("anti", "right")}
    cut(spark, (table, SIDES[1]), queries)


# What the RAPIDS planner says

EVERY = (
    (g.col("double") > g.col("double_right"))
    & (g.col("wide") != g.col("wide_right"))
    & (g.col("date") < g.col("date_right"))
    & (g.col("time") < g.col("time_right"))
    & (g.col("place").struct.field("x") > 1)
    & (g.col("bool") | g.col("bool_right"))
)
PLANS: dict[str, Query] = {
    "clip_by": lambda a, b: a.clip_by(b, on=["price", "text"]),
    "asof": lambda a, b: a.asof_join(b, tolerance="3s"),
    "asof by keys": lambda a, b: a.asof_join(b, on=["price", "date", "double"]),
    "full": lambda a, b: a.join(b, on=["price", "text"], how="full", condition=EVERY),
    "semi": lambda a, b: a.join(b, how="semi", condition=g.col("double") > g.col("double_right")),
}


@pytest.mark.rapids
@pytest.mark.parametrize("name", PLANS)
def test_cut_plans_are_planned(spark: SparkSession, stream: g.Stream, name: str) -> None:
    whole = stream.select(*PAYLOAD)
    with setting(spark, SLICES, "9"):
        planned(PLANS[name](whole, whole).collect(), *CUT)
