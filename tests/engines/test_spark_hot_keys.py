"""Hot keys that the query finds and cuts in time by itself: the answers of the local engine, in more than one task."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark import hot_keys
from tests.support.on_spark import SLICES, PairQuery, agree, setting, tasks, times, to_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = pa.timestamp("us", "UTC")

pytestmark = pytest.mark.usefixtures("few_tasks")


@pytest.fixture
def hot(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session that cuts hot keys, takes half of the few starts for its sample, and cuts where it would hardly pay."""
    monkeypatch.setattr(hot_keys, "_SAMPLED", 2)
    monkeypatch.setattr(hot_keys, "_PAYS", 0.5)
    with setting(spark, SLICES, "hot"):
        yield spark


def skewed(seed: int, size: int) -> pa.Table:
    """Events of which one key has most, and some have none; many starts are equal, and lifetimes of all lengths."""
    draw = random.Random(seed)
    starts = [draw.randrange(90) for _ in range(size)]
    lengths = [draw.choice([1, 2, 9, 40]) for _ in range(size)]
    return pa.table(
        {
            "s": times(starts),
            "e": times([start + each for start, each in zip(starts, lengths, strict=True)]),
            "k": pa.array([draw.choice(["hot", "hot", "hot", "hot", "a", "b", None]) for _ in range(size)]),
            "x": pa.array([draw.choice([0.1, -0.0, 1e300, float("nan"), None]) for _ in range(size)]),
            "v": pa.array([draw.choice([None, 1, 2, 3]) for _ in range(size)], pa.int64()),
        }
    )


SIDES = skewed(1, 120), skewed(2, 60)

QUERIES: dict[str, PairQuery] = {
    "snapshot": lambda s, _: s.by("k").snapshot().agg(n=g.count(), few=g.count("v"), t=g.sum("x"), m=g.max("v")),
    "sliding": lambda s, _: s.by("k").sliding("7us").agg(n=g.count(), m=g.mean("x"), d=g.variance("v")),
    "points": lambda s, _: s.to_point().by("k").snapshot().agg(n=g.count()),
    "hopping": lambda s, _: s.by("k").hopping("20us", "7us").agg(t=g.sum("v"), m=g.min("x")),
    "hopping by start": lambda s, _: s.by("k").hopping("20us", "7us", membership="start").agg(n=g.count()),
    "join": lambda s, t: s.join(t, on="k", strategy="kernel"),
    "join with a condition": lambda s, t: s.join(t, on="k", condition=g.col("v") >= g.col("v_right")),
    "window above a join": lambda s, t: s.join(t.select("k"), on="k").by("k").snapshot().agg(n=g.count()),
    "not cut: left join": lambda s, t: s.join(t, on="k", how="left"),
    "not cut: the last": lambda s, _: s.by("k").last(3).agg(t=g.sum("v")),
}


def test_answers_are_those_of_the_local_engine(hot: SparkSession) -> None:
    agree(hot, SIDES, QUERIES)


@pytest.mark.parametrize("name", ["snapshot", "hopping", "join"])
def test_a_hot_key_is_more_than_one_task(hot: SparkSession, name: str) -> None:
    with setting(hot, "spark.sql.shuffle.partitions", "8"):
        one = SIDES[0].filter(pa.array([key == "hot" for key in SIDES[0]["k"].to_pylist()]))
        stream = g.events(to_spark(hot, one), start="s", end="e")
        assert tasks(QUERIES[name](stream, stream.filter(g.col("v") == 1)).collect()) > 2
        hot.conf.set(SLICES, "auto")
        assert tasks(QUERIES[name](stream, stream.filter(g.col("v") == 1)).collect()) == 1


def test_explain_says_what_is_cut(hot: SparkSession) -> None:
    stream = g.events(to_spark(hot, SIDES[0]), start="s", end="e")
    said = QUERIES["sliding"](stream, stream).explain()
    assert "hot keys are cut in time, as spark.gpu_ops.slices says so: the key with most has " in said
    assert "broadcasts 1" in said
    for name in ("not cut: left join", "not cut: the last"):
        assert "hot keys" not in QUERIES[name](stream, stream).explain()
    with setting(hot, SLICES, "auto"):
        assert "hot keys" not in QUERIES["sliding"](stream, stream).explain()


@pytest.mark.parametrize("name", ["sliding", "hopping", "join", "window above a join"])
def test_where_it_would_not_pay_the_plan_is_that_of_a_session_that_did_not_ask(
    hot: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """More than twice a core's share pays, so with two cores no key does; nor does one that a task's memory holds."""
    monkeypatch.setattr(hot_keys, "_PAYS", 2)
    left, right = (g.events(to_spark(hot, side), start="s", end="e") for side in SIDES)
    said = QUERIES[name](left, right).explain()
    lines = [line for line in said.splitlines() if "no key is cut in time" not in line]
    with setting(hot, SLICES, "auto"):
        assert QUERIES[name](left, right).explain().splitlines() == lines
    assert "no key is cut in time, as that would not pay: the key with most has " in said
    assert "a task holds 512.0 MiB, and 2 of 2 cores' shares are 100%" in said


def test_where_it_would_not_pay_a_hot_keys_task_works_on_the_cores_of_others(
    hot: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def working(rows: pa.Table) -> int:
        from gpu_ops.core.threads import threads

        return threads()

    monkeypatch.setattr(hot_keys, "_PAYS", 100)
    n = g.window_function(working, returns=pa.int64(), of="k")
    even = SIDES[0].set_column(2, "k", pa.array([at % 8 for at in range(SIDES[0].num_rows)]))
    for side, expected in ((SIDES[0], 2), (even, 1)):
        with setting(hot, "spark.sql.shuffle.partitions", "2"):
            query = g.events(to_spark(hot, side), start="s", end="e").by("k").snapshot().agg(n=n)
            assert ("a task has 2 threads" in query.explain()) == (expected == 2)
            assert {row["n"] for row in query.collect().toArrow().to_pylist()} == {expected}


@pytest.mark.parametrize("key", ["hot", "cold", ""])
def test_spark_begins_with_the_task_of_the_key_with_most_events(
    hot: SparkSession, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Of 64 tasks, that of any other key would be the first one by chance alone."""

    def task(rows: pa.Table) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return context.partitionId()

    monkeypatch.setattr(hot_keys, "_PAYS", 100)
    n = g.window_function(task, returns=pa.int64(), of="k")
    keys = pa.array([key if each == "hot" else each for each in SIDES[0]["k"].to_pylist()], pa.string())
    side = SIDES[0].set_column(2, "k", keys)
    several = setting(hot, "spark.sql.shuffle.partitions", "64")
    with several, setting(hot, "spark.sql.adaptive.coalescePartitions.enabled", "false"):
        query = g.events(to_spark(hot, side), start="s", end="e").by("k").snapshot().agg(n=n)
        assert "the first task has that key" in query.explain()
        found = query.collect().toArrow().to_pylist()
    assert {row["n"] for row in found if row["k"] == key} == {0}
    assert {row["n"] for row in found} > {0}


@pytest.mark.usefixtures("compiled_plans")
@pytest.mark.parametrize("name", ["sliding", "join"])
def test_the_threads_of_a_hot_keys_task_change_no_byte(
    hot: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Enough events that its blocks are cut in time for them; sums of floats as far apart as they go tell the order."""
    monkeypatch.setattr(hot_keys, "_PAYS", 2)
    draw = np.random.default_rng(3)
    count, keys = 100_000, pa.array(["hot", "a", "b"])
    start = np.sort(draw.integers(0, 3 * count, count))
    side = pa.table(
        {
            "s": pa.array(start, TIME),
            "e": pa.array(start + draw.integers(1, 9, count), TIME),
            "k": keys.take(pa.array(np.searchsorted([0.8, 0.9], draw.random(count)))),
            "x": draw.choice([0.1, -1e300, 1e300, 5e-324, -7.0], count),
            "v": draw.integers(0, 9, count),
        }
    )
    parquet.write_table(side, tmp_path / "side.parquet")
    left = g.events(hot.read.parquet(str(tmp_path / "side.parquet")), start="s", end="e")
    right = left.filter(g.col("v") == 1)

    def answer() -> pa.Table:
        QUERIES[name](left, right).write(tmp_path / "answer.parquet", if_exists="replace")
        made = parquet.read_table(tmp_path / "answer.parquet")
        return made.sort_by([(each, "ascending") for each in made.column_names])

    found = answer()
    assert "a task has 2 threads" in QUERIES[name](left, right).explain()
    with setting(hot, SLICES, "auto"):
        assert "threads" not in QUERIES[name](left, right).explain()
        alone = answer()
    assert found.num_rows == alone.num_rows > 20_000
    for column in found.column_names:
        bytes_of = [each[column].combine_chunks().buffers()[-1] for each in (found, alone)]
        assert bytes_of[0].equals(bytes_of[1]), column


@pytest.mark.parametrize("name", ["sliding", "hopping", "join"])
def test_a_key_that_no_tasks_memory_holds_is_cut(hot: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(hot_keys, "_PAYS", 2)
    with setting(hot, "spark.gpu_ops.worker.memory", "1k"):
        streams = (g.events(to_spark(hot, side), start="s", end="e") for side in SIDES)
        assert "hot keys are cut in time" in QUERIES[name](*streams).explain()
        agree(hot, SIDES, {name: QUERIES[name]})


def test_few_events_have_no_hot_key(hot: SparkSession) -> None:
    """A sample may be empty, and then nothing is cut."""
    agree(hot, (SIDES[0].slice(0, 1), SIDES[1].slice(0, 0)), {name: QUERIES[name] for name in ("snapshot", "join")})


def test_a_row_that_is_no_event_is_named_as_the_plan_is_made(hot: SparkSession) -> None:
    """The look at the keys reads all rows, so it meets the row first; with it left out, the rest is answered."""
    rows = hot.range(200).selectExpr("id AS s", "if(id = 77, id - 1, id + 5) AS e", "if(id % 9 < 7, 'hot', 'a') AS k")

    def counted(**settings: Any) -> g.Stream:
        return g.events(rows, start="s", end="e", unit="s", **settings).by("k").sliding("10s").agg(n=g.count())

    with pytest.raises(g.TimeError, match=r"end is before the start .*column 'e', s=77, e=76"):
        counted().collect()
    local = g.events(rows.where("s <> 77").toArrow(), start="s", end="e", unit="s")
    expected = local.by("k").sliding("10s").agg(n=g.count()).collect()
    assert counted(on_invalid="drop").collect().count() == len(expected)
