"""The Spark engine gives the answers of the local one, lazily, and looks at rows before any filter does."""

from __future__ import annotations

import datetime
import math
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import compute, parquet

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.errors import ColumnError, PlanError, SourceError, SumOverflowError, TimeError
from tests.support.on_spark import DAY, KEYS, NAN, NESTED, UTC, Query, all_same, answer, local, same, times, to_spark
from tests.support.rows import rows
from tests.support.ticks import at_us, us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("few_tasks")


@pytest.fixture(scope="module")
def visits() -> pa.Table:
    """Some events that overlap, in two groups and none, with an open end."""
    starts = [0, 10, 10, 25, -7, 40, 40, 3, 90, 12]
    ends = [30, 20, 45, 26, 5, 80, 41, MAX_TIME, 91, 30]
    return pa.table(
        {
            "s": times(starts),
            "e": times(ends),
            "k": pa.array(["a", "b", "a", None, "b", "a", None, "b", "a", "b"]),
            "v": pa.array([1, 2, None, 4, 5, 6, 7, -8, 9, 10], pa.int64()),
            "x": pa.array([0.1, NAN, 1e300, -1e300, 0.0, -0.0, None, 0.2, 5e-324, math.inf]),
        }
    )


@pytest.fixture(scope="module")
def bounded(visits: pa.Table) -> pa.Table:
    return visits.filter(compute.less(visits["e"].cast(pa.int64()), MAX_TIME))


# Parity, verb by verb

EXPRESSIONS: dict[str, Query] = {
    "filter": lambda s: s.filter(g.col("v") > 4, g.col("k") == "a"),
    "filter by time": lambda s: s.filter(g.col("start").dt.year() == 1970, g.col("start") < g.col("end")),
    "select": lambda s: s.select("k", twice=g.col("v") * 2),
    "with_columns": lambda s: s.with_columns(
        y=g.col("x") + 1.5,
        z=g.col("v").is_null(),
        lasted=g.col("end") - g.col("start"),
        c=g.when(g.col("v") > 4).then(g.col("v")).otherwise(0),
        q=g.col("x") / g.col("v"),
    ),
}


def test_expressions(spark: SparkSession, visits: pa.Table) -> None:
    all_same(spark, visits, EXPRESSIONS)


LIFETIMES: dict[str, Query] = {
    "set_duration": lambda s: s.set_duration("7us"),
    "shift": lambda s: s.shift("1000003us"),
    "shift back": lambda s: s.shift("-1000003us"),
    "extend": lambda s: s.extend("13us"),
    "shrink": lambda s: s.extend("-10us"),
    "clip_duration": lambda s: s.clip_duration("15us"),
    "to_point": lambda s: s.to_point(),
    "extend points": lambda s: s.to_point().extend("5us"),
    "shrink points": lambda s: s.to_point().extend("-1us"),
    "point_at_end": lambda s: s.point_at_end(),
    "hop_lifetime": lambda s: s.hop_lifetime("20us", "7us", align=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
    "hop_lifetime with gaps": lambda s: s.hop_lifetime("7us", "20us"),
    "hop_lifetime, tumbling": lambda s: s.hop_lifetime("10us"),
    "quantize": lambda s: s.quantize("20us", "7us"),
    "quantize, progressive": lambda s: s.quantize("20us", "8us", progress="4us"),
    "chop": lambda s: s.clip_duration("1000us").chop("7us", align=at_us(3)),
    "alter_lifetime to columns": lambda s: s.clip_duration("9us").alter_lifetime(
        start=g.col("start"), end=g.col("end")
    ),
    "alter_lifetime, constant": lambda s: s.clip_duration("9us").alter_lifetime(start=g.col("end"), duration="3us"),
    "alter_lifetime, difference": lambda s: s.clip_duration("9us").alter_lifetime(
        duration=us(g.col("end") - g.col("start"))
    ),
}


def test_changes_of_lifetime(spark: SparkSession, visits: pa.Table) -> None:
    all_same(spark, visits, LIFETIMES)


WINDOWS: dict[str, Query] = {
    "filled": lambda s: (
        s.by("k").tumbling("10us", until=at_us(60), fill={"n": "zero", "v": "last"}).agg(n=g.count(), v=g.sum("v"))
    ),
    "filled over a span": lambda s: (
        s.tumbling("20us", until=at_us(60), fill="null", span=(at_us(-50), at_us(100))).agg(n=g.count())
    ),
    "the calendar": lambda s: (
        s.by("k").tumbling("1mo", zone="Asia/Kathmandu", until=at_us(60)).agg(n=g.count(), x=g.max("x"))
    ),
    "applied": lambda s: s.by("k").apply(
        lambda each: (
            each.tumbling("10us", until=at_us(60), fill="zero").agg(n=g.count()).snapshot().agg(most=g.max("n"))
        )
    ),
    "snapshot": lambda s: s.snapshot().agg(n=g.count(), total=g.sum("v"), most=g.max("k")),
    "sliding": lambda s: s.by("k").sliding("20us").agg(m=g.mean("x"), n=g.count("v")),
    "hopping": lambda s: (
        s.by("k").hopping("20us", "7us", until=at_us(200)).agg(total=g.sum("x"), d=g.standard_deviation("v"))
    ),
    "hopping, Trill's": lambda s: (
        s.by("k").hopping("20us", "7us", membership="start").agg(n=g.count(), least=g.min("x"))
    ),
    "tumbling, as points": lambda s: s.tumbling("10us", until=at_us(100), output="point").agg(n=g.count()),
    "an expression": lambda s: s.by("k").snapshot().agg(t=g.sum(g.col("v") * 2, where=g.col("x") > 0)),
    "key and value alike": lambda s: s.by("v").snapshot().agg(n=g.count("v"), m=g.max("v")),
    "chained": lambda s: (
        s.by("k").snapshot().agg(n=g.count()).by("k").clip_duration("30us").tumbling("10us").agg(m=g.max("n"))
    ),
    "chained through expressions": lambda s: (
        s.by("k").snapshot().agg(n=g.count()).filter(g.col("n") > 1).with_columns(n=g.col("n") * 10)
        .clip_duration("30us").by("k").tumbling("10us").agg(m=g.max("n"), t=g.sum(g.col("n") + 1))
    ),
    "chained to another key": lambda s: s.by("k").snapshot().agg(n=g.count()).by("n").snapshot().agg(m=g.count()),
    "last rows": lambda s: s.by("k").last(3, order="v").agg(t=g.sum("v"), most=g.max("x")),
    "last rows of all": lambda s: s.last(5).agg(n=g.count(), t=g.sum("v")),
    "sessions": lambda s: s.by("k").session("5us", grid_cap="20us").agg(n=g.count(), t=g.sum("v")),
    "count windows": lambda s: s.by("k").count_window(3).agg(n=g.count()),
    "the best": lambda s: s.by("k").highest(2, g.col("v") * 2, unique="x").rows(),
    "changes": lambda s: s.by("k").unique("v").changes(),
    "each row": lambda s: s.by("k").last(3).each(n=g.count(), mean=g.sum("v") / g.count()),
    "stitch": lambda s: s.clip_duration("50us").select("k").chop("10us").stitch(),
    "stitch by some": lambda s: s.clip_duration("50us").chop("10us").stitch(on="k"),
    "repeat": lambda s: s.repeat(g.col("v") % 3),
    "batches with a clock that runs": lambda s: (
        s.by("k").time_length_batches("9us", 3, since=at_us(0), idle="run").changes()
    ),
    "batches of days": lambda s: s.by("k").time_batches("1d", zone="UTC", align=None).changes(),
    "stitch, then a window": lambda s: s.clip_duration("50us").chop("5us").stitch().by("k").snapshot().agg(n=g.count()),
}  # fmt: skip


def test_a_window_gives_what_it_gives_locally(spark: SparkSession, visits: pa.Table) -> None:
    all_same(spark, visits, WINDOWS)


def test_nothing_gives_nothing(spark: SparkSession, visits: pa.Table) -> None:
    some = {name: WINDOWS[name] for name in ("snapshot", "sliding", "hopping", "chained", "stitch")}
    assert not any(table.num_rows for table in all_same(spark, visits.slice(0, 0), some).values())


@pytest.mark.parametrize("name", KEYS)
def test_equal_keys_meet_whatever_their_type(spark: SparkSession, name: str) -> None:
    table = pa.table({"s": times([0, 1, 2, 3, 4, 5]), "e": times([9] * 6), "key": KEYS[name]})
    same(spark, table, lambda s: s.by("key").snapshot().agg(n=g.count(), least=g.min("key"), most=g.max("key")))


def test_several_keys(spark: SparkSession, visits: pa.Table) -> None:
    same(spark, visits, lambda s: s.by("k", "v", "x").snapshot().agg(n=g.count()))


@pytest.mark.parametrize("name", NESTED)
def test_nested_payload_passes_by_and_is_counted(spark: SparkSession, name: str) -> None:
    table = pa.table({"s": times([0, 1, 2, 3, 4, 5]), "e": times([9] * 6), "p": NESTED[name], "k": [1, 1, 2, 2, 1, 1]})
    same(spark, table, lambda s: s.filter(g.col("k") == 1).shift("3us"))
    same(spark, table, lambda s: s.by("k").snapshot().agg(there=g.count("p"), n=g.count()))


def test_sums_of_decimals_and_durations(spark: SparkSession) -> None:
    table = pa.table(
        {
            "s": times([0, 1, 2, 3]),
            "e": times([9, 9, 9, 9]),
            "price": pa.array([Decimal("0.10"), None, Decimal("99999999.99"), 3], pa.decimal128(10, 2)),
            "wide": pa.array([Decimal("1E-18"), None, -5, 10**19], pa.decimal128(38, 18)),
            "lasts": pa.array([1, None, -5, 1 << 60], pa.duration("us")),
        }
    )  # fmt: skip
    same(
        spark, table, lambda s: s.snapshot().agg(a=g.sum("price"), b=g.sum("wide"), c=g.sum("lasts"), d=g.mean("price"))
    )


def test_expressions_that_spark_cannot_say_run_in_python(spark: SparkSession, bounded: pa.Table) -> None:
    def seconds(stream: g.Stream) -> g.Stream:
        return stream.with_columns(u=(g.col("end") - g.col("start")).dt.total_microseconds().cast(g.UInt16))

    same(spark, bounded, seconds)
    same(spark, bounded, lambda s: seconds(s).by("u").snapshot().agg(n=g.count(), t=g.sum("u")))
    explained = seconds(g.events(to_spark(spark, bounded), start="s", end="e")).explain()
    assert "mapInArrow with the local engine, without a shuffle" in explained
    assert "not as an expression of Spark" in explained


OTHERWISE: dict[str, Query] = {
    "floor": lambda s: s.with_columns(a=g.col("x").floor(), b=g.col("x").ceil(), c=g.col("x").round(0)),
    "quotients": lambda s: s.with_columns(a=g.col("v") // 2, b=g.col("x") // g.col("x"), c=g.col("v") // g.col("w")),
    "remainders": lambda s: s.with_columns(a=g.col("v") % 3, b=g.col("x") % 2.5, c=g.col("v") % g.col("w")),
    "in an aggregate": lambda s: s.by("w").snapshot().agg(t=g.sum(g.col("v") // 4)),
}  # fmt: skip


def test_what_spark_computes_otherwise_is_left_to_python(spark: SparkSession) -> None:
    table = pa.table(
        {
            "s": times(range(6)),
            "e": times([9] * 6),
            "v": pa.array([7, -7, None, (1 << 62) + 1, 0, 1], pa.int64()),
            "w": pa.array([0, 2, 1, 1, -2, 0], pa.int64()),
            "x": pa.array([NAN, math.inf, -2.5, 2.5, 0.0, None]),
        }
    )
    all_same(spark, table, OTHERWISE)


def test_names_that_sql_has_other_uses_for(spark: SparkSession) -> None:
    table = pa.table({"s": times([0, 1]), "e": times([5, 6]), "a.b": [1, 2], "`tick`": ["x", "y"], "two words": [3, 4]})
    same(spark, table, lambda s: s.shift("3us").by("a.b", "`tick`").snapshot().agg(n=g.sum("two words")))
    same(spark, table, lambda s: s.filter(g.col("a.b") > 1).select("`tick`", two=g.col("a.b")))
    stream = g.events(to_spark(spark, table), start="s", end="e").select("a.b", "`tick`")
    # Spark logs an error where Narwhals asks it for a field b of a: nobody asks.
    assert "Narwhals does not quote" not in stream.explain()
    assert "Narwhals does not quote the name 'a.b'" in stream.filter(g.col("a.b") > 1).explain()


def test_many_events_under_adaptive_execution(spark: SparkSession) -> None:
    chance = random.Random(7)
    count = 3000
    starts = [chance.randrange(10_000) for _ in range(count)]
    table = pa.table(
        {
            "s": times(starts),
            "e": times([start + chance.randrange(1, 300) for start in starts]),
            "k": [chance.choice([None, *range(40)]) for _ in range(count)],
            "x": [chance.uniform(-1e9, 1e9) for _ in range(count)],
        }
    )
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        same(spark, table, lambda s: s.by("k").snapshot().agg(n=g.count(), t=g.sum("x"), d=g.variance("x")))
        same(spark, table, lambda s: s.by("k").snapshot().agg(n=g.count()).snapshot().agg(m=g.sum("n")))
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")


def test_hand_picked_numbers(spark: SparkSession) -> None:
    table = pa.table({"s": times([0, 10]), "e": times([20, 30]), "v": [1, 2]})
    stream = g.events(to_spark(spark, table), start="s", end="e").snapshot().agg(n=g.count(), t=g.sum("v"))
    found = sorted((row["start"].microsecond, row["n"], row["t"]) for row in stream.collect().collect())
    assert found == [(0, 1, 1), (10, 2, 3), (20, 1, 2)]


# Times


POINTS = pa.array([0, 1, -1, 1_600_000_000], pa.int64())


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_integer_times(spark: SparkSession, unit: str) -> None:
    same(spark, pa.table({"t": POINTS, "v": [1, 2, 3, 4]}), lambda s: s, start="t", end=None, unit=unit)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "half_even"])
def test_integer_times_finer_than_a_tick(spark: SparkSession, rounding: str) -> None:
    fine = [0, 1, -1, 499, 500, 501, 1500, 2500, -500, -1500, (1 << 63) - 1, -(1 << 63)]
    table = pa.table({"t": pa.array(fine, pa.int64()), "v": range(len(fine))})
    same(spark, table, lambda s: s, start="t", end=None, unit="ns", round=rounding)


LOCAL = [
    datetime.datetime(2020, 3, 29, 2, 30),  # noqa: DTZ001
    datetime.datetime(2020, 10, 25, 2, 30),  # noqa: DTZ001
    datetime.datetime(2050, 7, 1, 12),  # noqa: DTZ001
    datetime.datetime(1900, 1, 1),  # noqa: DTZ001
]


@pytest.mark.parametrize("ambiguous", ["earliest", "latest"])
@pytest.mark.parametrize("nonexistent", ["shift_forward", "shift_backward"])
def test_local_times(spark: SparkSession, ambiguous: str, nonexistent: str) -> None:
    table = pa.table({"t": pa.array(LOCAL, pa.timestamp("us")), "v": [1, 2, 3, 4]})
    policy = {"zone": "Europe/Vienna", "ambiguous": ambiguous, "nonexistent": nonexistent}
    same(spark, table, lambda s: s, start="t", end=None, **policy)


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "+05:30"])
def test_dates_are_their_midnight(spark: SparkSession, zone: str | None) -> None:
    table = pa.table({"a": pa.array([DAY]), "b": pa.array([DAY + datetime.timedelta(days=1)]), "v": [1]})
    same(spark, table, lambda s: s, start="a", end="b", zone=zone)


def test_a_null_end_may_mean_never(spark: SparkSession) -> None:
    table = pa.table({"s": times([0, 1]), "e": times([None, 5]), "v": [1, 2]})
    same(spark, table, lambda s: s.snapshot().agg(n=g.count()), null_end="open")


def test_a_frame_of_times_alone_keeps_them(spark: SparkSession) -> None:
    table = pa.table({"s": times([0, 1]), "e": times([4, 5])})
    assert same(spark, table, lambda s: s).column_names == ["start", "end", "s", "e"]
    renamed = table.rename_columns(["start", "end"])
    assert same(spark, renamed, lambda s: s, start="start", end="end").column_names[2:] == ["start_time", "end_time"]


# Rows that are no events

INVALID = {
    "null_start": (None, 9),
    "outside_start": (MIN_TIME - 1, 9),
    "null_end": (0, None),
    "outside_end": (0, MAX_TIME + 1),
    "negative_length": (9, 3),
    "zero_length": (9, 9),
}


def invalid_frame(spark: SparkSession, broken: tuple[int | None, int | None]) -> DataFrame:
    frame = spark.createDataFrame([(0, 5, 1), (*broken, 2)], "s long, e long, v long")
    return frame.selectExpr("timestamp_micros(s) s", "timestamp_micros(e) e", "v")


@pytest.mark.parametrize("rule", INVALID)
def test_an_invalid_row_is_an_error_that_names_it_although_a_filter_would_drop_it(
    spark: SparkSession, rule: str
) -> None:
    stream = g.events(invalid_frame(spark, INVALID[rule]), start="s", end="e").filter(g.col("v") == 1)
    with pytest.raises(TimeError, match=rule) as raised:
        answer(stream)
    error = raised.value
    assert error.column == ("s" if rule.endswith("start") else "e")
    assert error.values is not None
    assert re.fullmatch(r"s=.*, e=.*", error.values)
    assert error.remedy is not None
    assert 'on_invalid="drop"' in error.remedy


def test_validation_is_not_pruned_when_nothing_reads_the_times(spark: SparkSession) -> None:
    frame = g.events(invalid_frame(spark, (9, 9)), start="s", end="e").filter(g.col("v") == 1).collect().select("v")
    with pytest.raises(Exception, match=r"gpu_ops\.errors\.TimeError: The end is the start"):
        frame.collect()
    with pytest.raises(Exception, match=r"gpu_ops\.errors\.TimeError: The end is the start"):
        frame.count()


def optimized(frame: DataFrame) -> str:
    text = frame._jdf.queryExecution().optimizedPlan().toString()
    assert isinstance(text, str)
    return text


def test_the_optimizer_leaves_validation_below_the_filters_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """Where rows are not validated by a look of its own first: `test_spark_pushing.py`."""
    table = pa.table({"s": times([0, 1]), "e": times([4, 5]), "v": [1, 2], "p": ["a", "b"]})
    parquet.write_to_dataset(table, tmp_path / "events", partition_cols=["p"])
    frame = spark.read.parquet(str(tmp_path / "events")).selectExpr("*", "rand() AS r")
    stream = g.events(frame, start="s", end="e")
    plan = optimized(stream.filter(g.col("v") == 1, g.col("p") == "a").collect().select("v"))
    assert plan.index("(v#") < plan.index("raise_error") < plan.index("Relation")
    executed = str(stream.filter(g.col("v") == 1).collect()._jdf.queryExecution().executedPlan())
    assert "PushedFilters: []" in executed
    assert "PartitionFilters: []" in executed


def test_a_row_that_the_source_frame_has_filtered_out_is_not_judged(spark: SparkSession) -> None:
    other = spark.createDataFrame([(1,)], "w long")
    frame = invalid_frame(spark, (9, 9))
    joined = frame.join(other, frame.v == other.w)
    assert answer(g.events(joined, start="s", end="e")).num_rows == 1
    assert answer(g.events(frame.where("v = 1"), start="s", end="e")).num_rows == 1


@pytest.mark.parametrize("rule", INVALID)
def test_invalid_rows_are_dropped_and_found_again_with_the_rule(spark: SparkSession, rule: str) -> None:
    from gpu_ops.engines.spark import invalid_rows

    stream = g.events(invalid_frame(spark, INVALID[rule]), start="s", end="e", on_invalid="divert")
    assert answer(stream)["v"].to_pylist() == [1]
    assert [tuple(row) for row in invalid_rows(stream).select("v", "rule").collect()] == [(2, rule)]
    dropping = g.events(invalid_frame(spark, INVALID[rule]), start="s", end="e", on_invalid="drop")
    assert answer(dropping)["v"].to_pylist() == [1]


def test_points_end_before_the_open_end(spark: SparkSession) -> None:
    from gpu_ops.engines.spark import invalid_rows

    ticks = [MIN_TIME - 1, MIN_TIME, MAX_TIME - 2, MAX_TIME - 1]
    frame = spark.createDataFrame([(tick,) for tick in ticks], "t long")
    stream = g.events(frame, start="t", unit="us", on_invalid="divert")
    assert answer(stream)["t"].to_pylist() == ticks[1:3]
    assert [row["rule"] for row in invalid_rows(stream).collect()] == ["outside_start", "outside_start"]


def test_local_times_that_no_clock_showed_are_found(spark: SparkSession) -> None:
    from gpu_ops.engines.spark import invalid_rows

    table = pa.table({"t": pa.array(LOCAL, pa.timestamp("us")), "v": [1, 2, 3, 4]})
    stream = g.events(to_spark(spark, table), start="t", zone="Europe/Vienna", on_invalid="divert")
    found = sorted(tuple(row) for row in invalid_rows(stream).select("v", "rule").collect())
    assert found == [(1, "nonexistent_start"), (2, "ambiguous_start")]
    with pytest.raises(TimeError, match=r"The clock (skipped|showed)"):
        answer(g.events(to_spark(spark, table), start="t", zone="Europe/Vienna"))


# Errors while it runs

LEAVING: dict[str, tuple[Query, str]] = {
    "shift": (lambda s: s.shift("9000d"), "shift moves a time out of the years 1 to 9999"),
    "extend": (lambda s: s.extend("9000d"), "extend moves a time out of"),
    "shift onto the open end": (lambda s: s.shift("2us"), "shift moves a time out of"),
    "set_duration": (lambda s: s.set_duration("9000d"), "set_duration moves a time out of"),
    "alter_lifetime": (lambda s: s.alter_lifetime(duration="9000d"), "set_duration moves a time out of"),
    "alter_lifetime from": (
        lambda s: s.alter_lifetime(start=g.col("end"), duration="9000d"), "alter_lifetime moves a time out of"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVING)
def test_a_finite_time_that_leaves_the_years_is_an_error_before_later_filters(spark: SparkSession, name: str) -> None:
    query, message = LEAVING[name]
    table = pa.table({"s": times([0, MAX_TIME - 9]), "e": times([5, MAX_TIME - 2]), "v": [1, 2]})
    for source in (table, to_spark(spark, table)):
        with pytest.raises(TimeError, match=message):
            answer(query(g.events(source, start="s", end="e")).filter(g.col("v") == 1))


def test_chop_refuses_what_never_ends(spark: SparkSession, visits: pa.Table) -> None:
    with pytest.raises(TimeError, match=r"chop would cut an event that never ends"):
        answer(g.events(to_spark(spark, visits), start="s", end="e").chop("10us"))


def test_alter_lifetime_refuses_null(spark: SparkSession) -> None:
    table = pa.table({"s": times([0]), "e": times([5]), "until": times([None])})
    with pytest.raises(TimeError, match=r"alter_lifetime gives a null end"):
        answer(g.events(to_spark(spark, table), start="s", end="e").alter_lifetime(end=g.col("until")))


def test_an_error_in_a_worker_is_ours(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"s": times([0, 0]), "e": times([5, 5]), "v": pa.array([(1 << 63) - 1, 1])})
    stream = g.events(to_spark(spark, table), start="s", end="e").snapshot().agg(total=g.sum("v"))
    with pytest.raises(SumOverflowError, match=r"does not fit int64"):
        stream.to_reader().read_all()
    with pytest.raises(SumOverflowError, match=r"does not fit int64"):
        stream.write(tmp_path / "answer.parquet")
    with pytest.raises(Exception, match=r"gpu_ops\.errors\.SumOverflowError: The sum does not fit int64"):
        stream.collect().collect()


# What is refused before anything runs


def test_messages_of_kafka_whose_values_are_not_decoded(spark: SparkSession) -> None:
    """As Spark's connector reads them. Their own columns are columns like others."""
    columns = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
    )
    frame = spark.createDataFrame([], columns)
    with pytest.raises(ColumnError, match=r"values are not decoded.*spark=spark\).*from_json"):
        g.events(frame, start="at")
    assert "value" in g.events(frame, start="timestamp").schema.names
    decoded = frame.selectExpr("from_json(cast(value as string), 'at timestamp, item string') v").select("v.*")
    assert g.events(decoded, start="at").schema.names == ["item"]


def test_columns_that_are_not_there(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("timestamp_micros(id) begin", "id item")
    with pytest.raises(ColumnError, match=r"Did you mean 'begin'\?"):
        g.events(frame, start="begun")
    with pytest.raises(ColumnError, match=r"Did you mean 'item'\?"):
        g.events(frame, start="begin").by("itm")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (["id start"], "kept for the lifetime"),
        (["id END"], "does not tell its name from 'end'"),
        (["id v", "id V"], "does not tell its name from 'v'"),
        (["interval '1' month v"], "cannot be interval"),
        (["parse_json('1') v"], "cannot be variant"),
        (["array(named_struct('a', parse_json('1'))) v"], "cannot be array"),
        (["'a' collate UTF8_LCASE v"], "collate"),
    ],
)
def test_payload_that_events_cannot_carry(spark: SparkSession, columns: list[str], match: str) -> None:
    with pytest.raises(ColumnError, match=match):
        g.events(spark.range(1).selectExpr("timestamp_micros(id) t", *columns), start="t")


@pytest.mark.parametrize(
    ("column", "options", "match"),
    [
        ("id", {}, "a number without a unit"),
        ("cast(id as string)", {}, "is text"),
        ("cast(id as double)", {}, "which is no time"),
        ("cast(timestamp_micros(id) as timestamp_ntz)", {}, "a local time without a zone"),
        ("parse_json('1')", {}, "which is no time"),
    ],
)
def test_columns_that_cannot_be_times(spark: SparkSession, column: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(TimeError, match=match):
        g.events(spark.range(1).selectExpr(f"{column} t", "id v"), start="t", **options)


@pytest.mark.parametrize("option", ["on_invalid", "null_end", "ambiguous", "nonexistent"])
def test_no_policy_is_no_policy(spark: SparkSession, option: str) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(PlanError, match=f"{option}=None is no policy"):
        g.events(spark.range(1).selectExpr("timestamp_micros(id) t"), start="t", **options)


def test_a_device_that_does_not_exist(spark: SparkSession) -> None:
    stream = g.events(spark.range(1).selectExpr("timestamp_micros(id) t"), start="t")
    with pytest.raises(PlanError, match="There is no device 'tpu'"):
        stream.collect(device="tpu")


def test_the_sessions_zone_must_be_utc(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("timestamp_micros(id) t")
    stream = g.events(frame, start="t")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        with pytest.raises(PlanError, match=r"time zone is Europe/Vienna.*timeZone"):
            g.events(frame, start="t")
        with pytest.raises(PlanError, match=r"time zone is Europe/Vienna"):
            stream.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_arrow_batches_must_be_bounded(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "0")
    try:
        with pytest.raises(PlanError, match="RAPIDS plugin divides by it"):
            g.events(spark.range(1).selectExpr("timestamp_micros(id) t"), start="t")
    finally:
        spark.conf.set(name, str(before))


def test_a_connect_session_is_refused_with_its_reason() -> None:
    """By the module of its frames, which a classic session's do not have: what Spark Connect needs is not installed."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(PlanError, match="Spark Connect session, which hides the planner"):
        g.events(frame, start="at")


# Laziness and the shape of plans


def test_building_a_query_starts_no_job(spark: SparkSession, visits: pa.Table) -> None:
    frame = to_spark(spark, visits)
    context = spark.sparkContext
    context.setJobGroup("building", "nothing should run")
    try:
        for number, query in enumerate((*EXPRESSIONS.values(), *LIFETIMES.values(), *WINDOWS.values())):
            stream = query(g.events(frame, start="s", end="e"))
            stream.collect()
            if number % 5 == 0:  # it plans the query a second time
                stream.explain()
        assert not context.statusTracker().getJobIdsForGroup("building")
        frame.count()
        assert context.statusTracker().getJobIdsForGroup("building"), "the tracker sees no jobs at all"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def shape(stream: g.Stream) -> tuple[int, int]:
    """How many shuffles and how many stages of Python a query has."""
    executed = str(stream.collect()._jdf.queryExecution().executedPlan())
    return executed.count("Exchange "), executed.count("MapInArrow ")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sliding", (1, 1)),
        ("hopping", (1, 1)),
        ("chained", (1, 1)),
        ("chained through expressions", (1, 1)),
        ("chained to another key", (2, 2)),
        ("stitch, then a window", (1, 1)),
    ],
)
def test_windows_share_a_shuffle_where_their_keys_allow(
    spark: SparkSession, visits: pa.Table, tmp_path: Path, name: str, expected: tuple[int, int]
) -> None:
    parquet.write_table(visits, tmp_path / "visits.parquet")
    source = g.events(spark.read.parquet(str(tmp_path / "visits.parquet")), start="s", end="e")
    assert shape(WINDOWS[name](source)) == expected


def test_only_what_a_window_needs_moves(spark: SparkSession, visits: pa.Table, tmp_path: Path) -> None:
    parquet.write_table(visits, tmp_path / "visits.parquet")
    source = g.events(spark.read.parquet(str(tmp_path / "visits.parquet")), start="s", end="e")
    executed = str(source.by("k").sliding("5us").agg(n=g.count("x")).collect()._jdf.queryExecution().executedPlan())
    # The end is the start and a constant, and of x it matters only where it is null.
    assert re.search(r"MapInArrow gpu_ops\(start#\d+, 0_k#\d+, 1_x#\d+\)", executed)
    assert "ReadSchema: struct<s:timestamp,e:timestamp,k:string,x:double>" in executed


# Answers


def test_some_rows_of_an_answer(spark: SparkSession, visits: pa.Table) -> None:
    stream = g.events(to_spark(spark, visits), start="s", end="e").shift("1us")
    found = stream.head(3)
    assert found.num_rows == 3
    assert found.schema.types == stream.to_reader().schema.types
    assert set(rows(found)) <= set(rows(stream.collect().toArrow()))
    assert stream.to_spark().columns == stream.collect().columns


def test_the_reader_is_read_partition_by_partition(spark: SparkSession, visits: pa.Table) -> None:
    stream = g.events(to_spark(spark, visits), start="s", end="e").by("k").snapshot().agg(n=g.count())
    reader = stream.to_reader()
    assert reader.schema == pa.schema([("start", UTC), ("end", UTC), ("k", pa.string()), ("n", pa.int64())])
    expected = local(visits, lambda s: s.by("k").snapshot().agg(n=g.count()), start="s", end="e")
    assert rows(reader.read_all()) == rows(expected)
    assert pa.table(stream).num_rows == expected.num_rows


def test_write(spark: SparkSession, visits: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    stream = g.events(to_spark(spark, visits), start="s", end="e").by("k").snapshot().agg(n=g.count())
    report = stream.write(path, row_group_rows=2)
    written = parquet.read_table(path)
    assert (report.rows, report.path) == (written.num_rows, path)
    assert report.row_groups > 2
    assert written.schema.field("end").type == UTC
    assert max(written["end"].cast(pa.int64()).to_pylist()) == MAX_TIME
    with pytest.raises(SourceError, match="exists"):
        stream.write(path)
    stream.filter(g.col("n") > 1).write(path, if_exists="replace")
    assert parquet.read_table(path).num_rows < report.rows
    with pytest.raises(SourceError, match=r"End the folder's name in \.parquet"):
        stream.write(tmp_path / "answer.arrow")
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_explain_says_what_becomes_of_each_node(spark: SparkSession, visits: pa.Table) -> None:
    source = g.events(to_spark(spark, visits), start="s", end="e")
    text = WINDOWS["chained"](source.shift("5us")).explain()
    assert "repartition by k, then one mapInArrow" in text
    assert "in the same mapInArrow as the node above" in text
    assert "arithmetic on LONG microseconds" in text
    assert "every row is validated before any filter" in text
    assert "events move between tasks 1 time" in text
    alone = source.snapshot().agg(n=g.count()).explain()
    assert "cut in time, as there is no key" in alone
    binary = source.with_columns(b=g.col("k").cast(g.String)).explain()
    assert "RAPIDS plugin: not in this session" in binary
