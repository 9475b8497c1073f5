"""Windows and joins that Spark cuts in time give what the local engine gives, in more than one task."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import PlanError, TimeError
from tests.support.on_spark import (
    CUT,
    PARTITIONS,
    SIDES,
    SLICES,
    STATISTICS,
    PairQuery,
    answer,
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
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def aggregated(windows: Any) -> g.Stream:
    """Aggregates of every kind of part: counts, exact sums, extremes, filters."""
    made: g.Stream = windows.agg(
        n=g.count(),
        some=g.count("v"),
        few=g.count(where=g.col("v") > 2),
        total=g.sum("x"),
        whole=g.sum("v"),
        m=g.mean("x"),
        least=g.min("x"),
        most=g.max("k"),
        d=g.variance("v"),
    )
    return made


WINDOWS: dict[str, PairQuery] = {
    "snapshot": lambda s, _: aggregated(s.snapshot()),
    "hopping": lambda s, _: aggregated(s.hopping("20us", "7us", until=at_us(50))),
    "hopping with gaps": lambda s, _: aggregated(s.hopping("3us", "11us", until=at_us(90), align=at_us(1))),
    "Trill's": lambda s, _: aggregated(s.hopping("20us", "7us", membership="start")),
    "Trill's, until": lambda _, s: aggregated(
        s.hopping("8us", "7us", membership="start", until=at_us(30), output="hop")
    ),
    "tumbling, as points": lambda _, s: aggregated(s.tumbling("10us", until=at_us(64), output="point")),
}
ABOVE: dict[str, PairQuery] = {
    "a key above": lambda a, _: a.snapshot().agg(n=g.count()).by("n").snapshot().agg(m=g.count()).select(n="m"),
    "a stitch below": lambda a, _: a.select("k").stitch().snapshot().agg(n=g.count()),
    "a window above a join": lambda a, b: a.join(b).hopping("9us", "4us", until=at_us(70)).agg(n=g.count()),
    "only what is read": lambda a, _: a.snapshot().agg(n=g.count(), t=g.sum("v")).select("n"),
}


def test_windows_without_a_key(spark: SparkSession) -> None:
    found = cut(spark, (drawn(3, 60), drawn(4, 25)), WINDOWS)
    assert all(table.num_rows for table in found.values())


def test_what_stands_above_and_below(spark: SparkSession) -> None:
    cut(spark, SIDES, ABOVE)


def test_windows_with_few_keys(spark: SparkSession) -> None:
    cut(
        spark,
        SIDES,
        {
            "snapshot": lambda a, _: aggregated(a.by("k").snapshot()),
            "hopping": lambda a, _: aggregated(a.by("k").hopping("20us", "7us", until=at_us(50))),
            "by floats": lambda a, _: a.by("x").snapshot().agg(n=g.count()),
        },
    )


def test_joins(spark: SparkSession) -> None:
    found = cut(
        spark,
        SIDES,
        {how: joined(how) for how in ("full", "semi")}
        | {f"{how} by k": joined(how, "k") for how in ("full", "semi", "anti")}
        | {
            "right of two names": lambda a, b: a.join(b.select("x", w="v", l="k"), on={"v": "w"}, how="right"),
            "inner if": joined("inner", condition=g.col("v") >= g.col("v_right")),
            "itself, of points": lambda a, _: a.to_point().join(a.to_point(), how="left"),
        },
    )
    assert all(table.num_rows for table in found.values() if table is not found["full"])


FEW: dict[str, Callable[[g.Stream], g.Stream]] = {
    "none": lambda s: s.filter(g.col("v") > 3),
    "one": lambda s: s.filter(g.col("v") == 2, g.col("k") == "b", g.col("x") == 1.5),
    "at once": lambda s: s.alter_lifetime(start=g.col("start").dt.truncate("1d"), duration="1s"),
}


def of_few(few: Callable[[g.Stream], g.Stream]) -> dict[str, PairQuery]:
    """Queries over few events, and of few with others."""
    return {
        "snapshot": lambda a, _: few(a).snapshot().agg(n=g.count()),
        "hopping": lambda a, _: few(a).hopping("2s", "1s", until="1970-01-02T00:00Z").agg(n=g.count()),
        "full": lambda a, b: few(a).select("k").join(b.select("v"), how="full"),
    }


def test_few_events(spark: SparkSession) -> None:
    queries = {f"{kind} of {name}": query for name, few in FEW.items() for kind, query in of_few(few).items()}
    del queries["hopping of one"], queries["full of at once"]
    found = cut(spark, SIDES, queries)
    assert [found[f"snapshot of {name}"].num_rows for name in FEW] == [0, 1, 1]


def test_more_slices_than_times(spark: SparkSession) -> None:
    cut(spark, SIDES, {"snapshot": WINDOWS["snapshot"], "full": joined("full")}, slices="200")


def test_no_part_of_a_sum_is_asked_for(spark: SparkSession) -> None:
    # At any time the sum fits; of the events that start before a seam, or end after it, it need not.
    great = 1 << 62
    starts = [at for at in range(0, 60, 3) for _ in range(2)]
    table = pa.table(
        {
            "s": times([0, 0, *starts]),
            "e": times([70, 80, *(start + 40 for start in starts)]),
            "v": pa.array([great, -great, *(value for _ in range(20) for value in (great, -great))]),
        }
    )
    table = table.take(pa.array(random.Random(5).sample(range(len(table)), len(table))))
    sums: dict[str, PairQuery] = {
        "snapshot": lambda a, _: a.snapshot().agg(t=g.sum("v")),
        "hopping": lambda a, _: a.hopping("5us", "2us").agg(t=g.sum("v")),
    }
    cut(spark, (table, table), sums)


def test_more_than_one_task_does_the_work(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    assert tasks(left.snapshot().agg(n=g.count()).collect()) > 1
    assert tasks(left.join(right).collect()) > 1
    with setting(spark, SLICES, "1"):
        assert tasks(left.snapshot().agg(n=g.count()).collect()) == 1


def test_slices_have_about_as_many_times_each(spark: SparkSession) -> None:
    """However far off some of them are: a year of events within a second, and one long before."""
    from pyspark.sql import functions

    from gpu_ops.engines.spark.slice_policy import slices_of

    events = spark.range(20_000).select(
        functions.when(functions.col("id") == 0, functions.lit(-(10**15))).otherwise(functions.col("id")).alias("low"),
        functions.lit(MAX_TIME).alias("high"),
    )
    slices = [tuple(row) for row in slices_of([events], 8).orderBy("begin").collect()]
    assert len(slices) == 8
    assert slices[0][0] < -(10**15)
    assert slices[-1][1] > MAX_TIME
    assert [end for _, end in slices[:-1]] == [begin for begin, _ in slices[1:]]
    widths = [end - begin for begin, end in slices[1:-1]]
    assert 1500 < min(widths) <= max(widths) < 3500
    assert slices == [tuple(row) for row in slices_of([events.repartition(3)], 8).orderBy("begin").collect()]


def test_events_that_have_too_many_windows(spark: SparkSession) -> None:
    endless = g.events(to_spark(spark, SIDES[0]), start="s", end="e")
    with pytest.raises(TimeError, match="endlessly many"):
        answer(endless.tumbling("5us").agg(n=g.count()))
    last = pa.table({"s": times([MAX_TIME - 3]), "e": times([MAX_TIME - 1])})
    with pytest.raises(TimeError, match="hopping moves a time out of the years"):
        answer(g.events(to_spark(spark, last), start="s", end="e").hopping("10us", "5us").agg(n=g.count()))


# Whether, and what it says


def test_explain(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    text = left.snapshot().agg(n=g.count()).explain()
    assert "cut in time, as there is no key: events in at most 16 slices, repartition by slice, then mapInArrow" in text
    assert "events move between tasks 1 times" in text
    assert "events move between tasks 3 times" in left.join(right, how="full").explain()
    keyed = left.by("k").snapshot().agg(n=g.count())
    assert "cut in time" not in keyed.explain()
    with setting(spark, SLICES, "9"):
        assert "cut in time, as spark.gpu_ops.slices says so: events in at most 9 slices, repartition by slice, k" in (
            keyed.explain()
        )
    with setting(spark, SLICES, "1"):
        text = left.snapshot().agg(n=g.count()).explain()
        assert "one task, as there is no key: repartition(1)" in text
        assert "not cut in time: spark.gpu_ops.slices is 1" in text
    for wrong in ("0", "many", "-3", "100000"):
        with setting(spark, SLICES, wrong), pytest.raises(PlanError, match="or a number of slices"):
            keyed.explain()


def test_what_shares_a_shuffle_is_not_cut_and_what_is_cut_does_not(spark: SparkSession) -> None:
    left = g.events(to_spark(spark, SIDES[0]), start="s", end="e")
    chained = left.by("k").snapshot().agg(n=g.count()).by("k").clip_duration("30us").tumbling("10us").agg(m=g.max("n"))
    assert "events move between tasks 1 times" in chained.explain()
    with setting(spark, SLICES, "9"):
        assert "events move between tasks 2 times" in chained.explain()


def test_statistics(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    with setting(spark, STATISTICS, "true"):
        assert "cut in time, as there are 3 keys for 4 tasks" in left.by("k").snapshot().agg(n=g.count()).explain()
        assert "cut in time" not in left.by("k", "v").snapshot().agg(n=g.count()).explain()
        assert "cut in time, as there are 3 keys for 4 tasks" in left.join(right, on="k", how="left").explain()
        with setting(spark, PARTITIONS, "12"):
            hot = left.with_columns(n=g.when(g.col("v") > 1).then(0).otherwise(g.col("start").dt.microsecond()))
            said = hot.by("n").snapshot().agg(m=g.count()).explain()
            assert re.search(r"cut in time, as one of \d+ keys has \d\d % of the events", said)


def test_building_a_query_starts_no_job(spark: SparkSession) -> None:
    left, right = (g.events(to_spark(spark, table), start="s", end="e") for table in SIDES)
    context = spark.sparkContext
    context.setJobGroup("slicing", "nothing should run")
    try:
        for stream_ in (left.snapshot().agg(n=g.count()), left.join(right, how="full")):
            stream_.collect()
            stream_.explain()
        assert not context.statusTracker().getJobIdsForGroup("slicing")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_adaptive_execution(spark: SparkSession) -> None:
    with ExitStack() as settings:
        for name, value in {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.autoBroadcastJoinThreshold": "10MB",
        }.items():
            settings.enter_context(setting(spark, name, value))
        cut(spark, SIDES, {"snapshot": WINDOWS["snapshot"], "left": joined("left")})


# What the RAPIDS planner says

PLANS: dict[str, PairQuery] = {
    "snapshot": lambda a, _: a.snapshot().agg(n=g.count(), t=g.sum("double"), most=g.max("text"), p=g.sum("wide")),
    "hopping": lambda a, _: a.by("text").hopping("10s", "3s", until="2020-01-02T00:00Z").agg(t=g.mean("price")),
    "full": lambda a, b: a.select(*PAYLOAD).join(b.select(*PAYLOAD), on=["text", "price"], how="full"),
    "semi": lambda a, b: a.select("long", "place").join(b.select("long"), how="semi"),
}


@pytest.mark.rapids
@pytest.mark.parametrize("name", PLANS)
def test_cut_plans_are_planned(spark: SparkSession, stream: g.Stream, name: str) -> None:
    with setting(spark, SLICES, "9"):
        planned(PLANS[name](stream, stream).collect(), *CUT)
