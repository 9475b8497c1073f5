"""Every data window, windows of the calendar, and what is asked of them: on Spark what the local engine gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.spark import data_windows
from gpu_ops.engines.spark.grids import seams_at_begins
from gpu_ops.engines.spark.slice_policy import AFTER, BEFORE
from gpu_ops.errors import TimeError
from gpu_ops.plan.calendars import Calendar, CalendarSpan
from gpu_ops.plan.window_kinds import Hopping
from tests.support.on_spark import PARTITIONS, SLICES, agree, answer, setting, tasks, times, to_spark
from tests.support.planner import planned
from tests.support.spark_aggregates import holistic, moments
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Query = Callable[[g.Stream, g.Stream], g.Stream]
Windows = Callable[[g.Stream], Any]


def drawn(seed: int, size: int, span: int, unit: int = 1) -> pa.Table:
    """Events of which many start together, with silences between; nulls among the keys and the values.

    Args:
        seed: What is drawn.
        size: How many.
        span: Over how many units of time.
        unit: So many ticks.
    """
    draw = random.Random(seed)
    starts = [
        unit * draw.choice([at // 3 * 3, at, at // 40 * 40]) for at in (draw.randrange(span) for _ in range(size))
    ]
    lengths = [unit * draw.choice([1, 1, 2, 5, 13]) for _ in range(size)]
    if unit == 1:
        lengths = [draw.choice([length, length, length, MAX_TIME]) for length in lengths]
    return pa.table(
        {
            "s": times(starts),
            "e": times([min(start + length, MAX_TIME) for start, length in zip(starts, lengths, strict=True)]),
            "k": pa.array([draw.choice(["a", "b", None]) for _ in range(size)]),
            "x": pa.array([draw.choice([0.0, -0.0, 1.5, float("nan"), None]) for _ in range(size)]),
            "v": pa.array([draw.choice([None, 1, 2, 3]) for _ in range(size)], pa.int64()),
        }
    )


HOURS = 3_600_000_000
TABLES = drawn(1, 90, 200), drawn(2, 60, 4000, HOURS)

CUT: Mapping[str, Windows] = {
    "last": lambda s: s.last(3),
    "last by hops": lambda s: s.last(4, every=3, order="v"),
    "batches": lambda s: s.batches(4),
    "count_window": lambda s: s.count_window(3),
    "session": lambda s: s.session("4us"),
    "session, capped": lambda s: s.session("5us", cap="9us", grid_cap="7us", align=at_us(3)),
    "session, running": lambda s: s.session("3us", running=True),
    "last_span": lambda s: s.last_span("6us"),
    "until": lambda s: s.until(g.col("end")),
    "time_batches": lambda s: s.time_batches("7us", align=at_us(2)),
    "time_batches, first": lambda s: s.time_batches("7us"),
    "time_batches of months": lambda s: s.time_batches("1mo", zone="Europe/Vienna", align=None),
    "time_length_batches": lambda s: s.time_length_batches("3us", 4),
    "unique": lambda s: s.unique("v"),
}
"""Those that are cut in time."""
WHOLE: Mapping[str, Windows] = {
    "keep_all": lambda s: s.keep_all(),
    "first": lambda s: s.first(3),
    "first_span": lambda s: s.first_span("20us"),
    "first_unique": lambda s: s.first_unique("v"),
    "highest": lambda s: s.highest(3, "v", unique="x"),
    "lowest": lambda s: s.lowest(3, "x"),
    "sample": lambda s: s.sample(4, seed=3),
    "keep_while": lambda s: s.keep_while(g.window.count <= 3),
    "batches_until": lambda s: s.batches_until(g.window.sum("v") > 7),
    "time_length_batches, running on": lambda s: s.time_length_batches("3us", 4, idle="run"),
    "intersect": lambda s: s.last(4).intersect(s.last_span("9us")),
    "unite": lambda s: s.unique("v").unite(s.last_span("4us")),
}
"""Those that are not."""
ASKED: Mapping[str, Callable[[Any], g.Stream]] = {
    "agg": lambda w: w.agg(n=g.count(), v=g.sum("v")).select("n", "v"),
    "rows": lambda w: w.rows(),
    "insert": lambda w: w.insert_stream(),
    "remove": lambda w: w.remove_stream(),
    "changes": lambda w: w.changes(),
    "each": lambda w: w.each(n=g.count(), t=g.sum("v")),
}


def asked(windows: Mapping[str, Windows], *, keyed: bool) -> dict[str, Query]:
    """All that can be asked of windows."""
    return {f"{what} of {name}": of(windows[name], what, keyed=keyed) for name in windows for what in ASKED}


def of(window: Windows, what: str, *, keyed: bool) -> Query:
    """One thing asked of a window; of times in ticks."""
    return lambda s, _: ASKED[what](window(s.by("k") if keyed else s))


SLICED: Mapping[str, Query] = {
    "last": of(CUT["last"], "each", keyed=False),
    "last by hops": of(CUT["last by hops"], "each", keyed=True),
    "batches": of(CUT["batches"], "changes", keyed=False),
    "count_window": of(CUT["count_window"], "each", keyed=False),
    "session": of(CUT["session"], "changes", keyed=True),
    "session, capped": of(CUT["session, capped"], "each", keyed=False),
    "last_span": of(CUT["last_span"], "each", keyed=True),
    "until": of(CUT["until"], "changes", keyed=False),
    "time_batches": of(CUT["time_batches"], "changes", keyed=True),
    "time_batches, first": of(CUT["time_batches, first"], "each", keyed=True),
    "time_batches of months": lambda _, s: ASKED["each"](CUT["time_batches of months"](s)),
    "time_length_batches": of(CUT["time_length_batches"], "changes", keyed=True),
    "unique": of(CUT["unique"], "changes", keyed=True),
    "prior": lambda s, _: s.by("k").with_prior(2, order="x", before="v"),
}
"""Each kind once: by its changes, which are all enters and leaves, or by what is in at them."""


def test_data_windows_cut_in_time(spark: SparkSession) -> None:
    with setting(spark, PARTITIONS, "1"), setting(spark, SLICES, "5"):
        found = agree(spark, TABLES, SLICED)
    assert all(table.num_rows for table in found.values())


AGGREGATES: Mapping[str, Query] = {
    name: of(CUT[name], "agg", keyed=keyed)
    for name, keyed in {
        "last": False,
        "last by hops": True,
        "batches": False,
        "count_window": False,
        "session, capped": False,
        "session, running": True,
        "time_batches, first": True,
        "time_length_batches": False,
    }.items()
}


def test_aggregates_over_data_windows_cut_in_time(spark: SparkSession) -> None:
    """They share the pass of their window."""
    with setting(spark, PARTITIONS, "1"), setting(spark, SLICES, "5"):
        agree(spark, TABLES, AGGREGATES)


@pytest.mark.parametrize("slices", ["4", "200"])
def test_slices_know_some_of_the_starts_near_their_ends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, slices: str
) -> None:
    """Four bins for each slice: of the starts in a bin the first and the last one are known, and slices see more."""
    monkeypatch.setattr(data_windows, "_LEAST_BINS", 4)
    queries = {
        f"{what} of {name}": of(window, what, keyed=False)
        for name, window in {"last(1)": lambda s: s.last(1), "count_window(1)": lambda s: s.count_window(1)}.items()
        for what in ("each", "changes")
    }
    tables = drawn(5, 150, 400), TABLES[1]
    with setting(spark, PARTITIONS, "1"), setting(spark, SLICES, slices):
        found = agree(spark, tables, queries | {"total": lambda s, _: s.last(1).agg(t=g.sum("x"), n=g.count())})
    assert all(table.num_rows for table in found.values())


def test_many_slices_are_searched(spark: SparkSession) -> None:
    queries = {f"each of {name}": of(CUT[name], "each", keyed=False) for name in ("last", "session", "time_batches")}
    queries["each of months"] = lambda _, s: CUT["time_batches of months"](s).each(n=g.count(), t=g.sum("v"))
    with setting(spark, PARTITIONS, "1"), setting(spark, SLICES, "200"):
        agree(spark, TABLES, queries)


def test_data_windows_in_one_task(spark: SparkSession) -> None:
    queries = {
        f"{what} of {name}": of(window, what, keyed=False)
        for name, window in WHOLE.items()
        for what in ("changes", "each")
    }
    queries |= {f"{what} by k": of(CUT["last"], what, keyed=True) for what in ASKED}
    queries["each of unique"] = of(CUT["unique"], "each", keyed=False)
    with setting(spark, PARTITIONS, "1"):
        found = agree(spark, TABLES, queries)
    assert all(table.num_rows for table in found.values())


@pytest.mark.deep
@pytest.mark.parametrize("keyed", [False, True])
def test_all_of_all(spark: SparkSession, keyed: bool) -> None:  # noqa: FBT001
    for seed in range(20):
        with setting(spark, PARTITIONS, "1"), setting(spark, SLICES, str(2 + seed)):
            agree(spark, (drawn(seed, 20 * seed, 30 + 20 * seed), TABLES[1]), asked({**CUT, **WHOLE}, keyed=keyed))


# Windows of a grid


def rows_held(table: pa.Table, start: Any, end: Any) -> int:
    """How many rows a window has, beside how long it is."""
    return int(table.num_rows * 1000 + (end - start).days)


GRIDS: Mapping[str, Query] = {
    "months": lambda _, s: s.tumbling("1mo", zone="Europe/Vienna").agg(n=g.count(), t=g.sum("x")),
    "days by k": lambda _, s: (
        s.by("k").hopping("3d", "2d", zone="America/Sao_Paulo", output="point").agg(n=g.count(), t=g.sum("x"))
    ),
    "weeks until": lambda _, s: (
        s.hopping("1w", "2w", zone="UTC", until="1970-05-01T00:00Z").agg(n=g.count(), t=g.integral("v", unit="1d"))
    ),
    "bounds": lambda _, s: s.hopping("40h", "25h").agg(n=g.count(), t=g.time_weighted_mean("v")),
    "bounds, as points": lambda _, s: s.by("k").tumbling("30d", output="point").agg(
        n=g.window_function(rows_held, returns=pa.int64(), of="v", time_sensitive=True), t=g.rate("1d")
    ).select("n", "t"),
}  # fmt: skip
ODD = g.incremental(
    zero=0, add=lambda held, v: held ^ (v or 0), remove=lambda held, v: held ^ (v or 0), result=int,
    returns=pa.int64(), of="v",
)  # fmt: skip
FILLED: Mapping[str, Query] = {
    "days": lambda _, s: s.by("k").tumbling("1d", zone="UTC", fill="zero").agg(n=g.count(), t=g.sum("v")),
    "a span": lambda _, s: (
        s.tumbling("20d", fill="last", span=("1969-12-01T00:00Z", "1970-09-01T00:00Z")).agg(n=g.count(), t=g.sum("v"))
    ),
    "combined": lambda _, s: s.by("k").tumbling("9d", fill="null").agg(each=(g.sum("v") + 1) / g.count()),
    "rows": lambda _, s: s.by("k").tumbling("30d").rows(),
    "top": lambda _, s: s.hopping("30d", "20d").top(2, by="v"),
    "rows of a window": lambda s, _: s.by("k").session("4us").top(2, by="v"),
    "apply": lambda _, s: (
        s.by("k").apply(lambda one: one.tumbling("9d").agg(n=g.count()).tumbling("30d").agg(m=g.max("n")))
    ),
    "own": lambda s, _: s.by("k").last(4).agg(odd=ODD),
    "holistic": lambda s, _: holistic(s.by("k").last(5)),
    "moments": lambda s, _: moments(s.by("k").session("5us")),
}  # fmt: skip


def test_windows_of_the_calendar_and_bounds(spark: SparkSession) -> None:
    with setting(spark, PARTITIONS, "1"), setting(spark, SLICES, "5"):
        found = agree(spark, TABLES, GRIDS)
    assert all(table.num_rows for table in found.values())


def test_what_is_asked_of_windows(spark: SparkSession) -> None:
    with setting(spark, PARTITIONS, "1"):
        found = agree(spark, TABLES, FILLED)
    assert all(table.num_rows for table in found.values())


@pytest.mark.parametrize(
    "window", [Hopping(20 * HOURS, 24 * HOURS), Calendar(CalendarSpan(days=3), CalendarSpan(days=1), "Asia/Kathmandu")]
)
def test_seams_move_to_where_windows_begin(window: Any) -> None:
    seams = [7 * HOURS, 8 * HOURS, 100 * HOURS]
    before = pa.RecordBatch.from_pydict({"begin": [BEFORE, *seams], "finish": [*seams, AFTER]})
    moved = seams_at_begins(window, before).to_pydict()
    assert len(moved["begin"]) == 3
    assert [moved["begin"][0], moved["finish"][-1], moved["reach"][-1]] == [BEFORE, AFTER, AFTER]
    assert moved["begin"][1:] == moved["finish"][:-1]
    assert all(0 <= at - seam < 24 * HOURS for at, seam in zip(moved["begin"][1:], seams[1:], strict=True))
    assert seams_at_begins(window, before.slice(0, 0)).num_rows == 0


# Whether, and what it says


def test_more_than_one_task_does_the_work(spark: SparkSession) -> None:
    events = g.events(to_spark(spark, TABLES[0]), start="s", end="e")
    assert tasks(events.last(3).changes().collect()) > 1


def test_explain(spark: SparkSession) -> None:
    s = g.events(to_spark(spark, TABLES[0]), start="s", end="e")
    because = "cut in time, as there is no key: events in at most 16 slices, repartition by slice, then mapInArrow"
    shown = {
        "last": "a slice is shown 3 events before it and after it",
        "count_window": "a slice is shown 3 starts before it and after it",
        "session": "a slice begins where no event has started for 4us",
        "time_batches, first": "a slice begins a multiple of 7us after the first start",
        "time_batches of months": "a slice begins with a window of the calendar: tumbling size=1mo zone=Europe/Vienna",
    }
    for name, line in shown.items():
        text = CUT[name](s).changes().explain()
        assert because in text
        assert line in text
        assert "events move between tasks 1 times" in text
    text = s.last_span("1s").agg(n=g.count()).explain()
    assert "Spark: nothing, events are in for as long as they live" in text
    assert "events move between tasks 1 times" in text
    endless = s.tumbling("1d", zone="UTC").agg(n=g.count()).explain()
    assert because in endless
    assert "as Spark fails while it plans, and so will the answer: " in endless
    for window in WHOLE.values():
        if window is WHOLE["first_unique"]:
            continue
        text = window(s).agg(n=g.count()).explain()
        assert "not cut in time: " in text
        assert "all earlier events" in text
        # What is above shares the task: it would be done for each pass of the windows again.
        assert "events move between tasks 1 times" in text
    assert "aggregates over the windows of all other values" in s.unique("v").each(n=g.count()).explain()


def test_an_event_that_never_ends_has_endlessly_many_months(spark: SparkSession) -> None:
    endless = g.events(to_spark(spark, TABLES[0]), start="s", end="e")
    with pytest.raises(TimeError, match="endlessly many"):
        answer(endless.tumbling("1mo", zone="UTC").agg(n=g.count()))


# What the RAPIDS planner says

PLANS: Mapping[str, Windows] = {
    "last": lambda s: s.by("text", "double").last(3, every=2).changes(),
    "session": lambda s: s.session("3s").rows(),
    "batches": lambda s: s.by("text").time_batches("3s").rows(),
    "months": lambda s: s.tumbling("1mo", zone="Europe/Vienna", until="2021-01-01T00:00Z").agg(n=g.sum("price")),
}


@pytest.mark.rapids
@pytest.mark.parametrize("name", PLANS)
def test_cut_plans_are_planned(spark: SparkSession, stream: g.Stream, name: str) -> None:
    kept = stream.select("text", "double", "price", "long")
    with setting(spark, SLICES, "9"):
        planned(PLANS[name](kept).collect(), "ShuffleExchangeExec", "MapInArrowExec")
