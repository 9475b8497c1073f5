"""What the RAPIDS planner says of joins on buckets of time; asked as `test_spark_plans` asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark.bucketed import unplanned
from tests.support.bucketed import HOWS, in_buckets, joined
from tests.support.planner import EVENTS, PLAIN, planned, refused

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rapids

Query = Callable[[g.Stream, g.Stream], g.Stream]

NATIVE = (
    *("FileSourceScanExec", "BroadcastNestedLoopJoinExec", "BroadcastExchangeExec", "ObjectHashAggregateExec"),
    *("GenerateExec", "ShuffleExchangeExec", "HashPartitioning", "SortMergeJoinExec"),
)
"""What a join on buckets has, from the scan upwards."""
ALONE = {"inner": (), "semi": ("WindowExec",)}
"""What finds gaps or covers; the other joins have both of these."""
PAYLOAD = [name for name in EVENTS.column_names if name not in {"s", "e"}]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("bucketed plans")
    for name in ("left", "right"):
        parquet.write_table(EVENTS, folder / f"{name}.parquet")
    return folder / "left.parquet", folder / "right.parquet"


@pytest.fixture
def frames(spark: SparkSession, paths: tuple[Path, Path]) -> tuple[DataFrame, DataFrame]:
    return spark.read.parquet(str(paths[0])), spark.read.parquet(str(paths[1]))


@pytest.fixture
def sides(frames: tuple[DataFrame, DataFrame]) -> tuple[g.Stream, g.Stream]:
    left, right = (g.events(frame, start="s", end="e") for frame in frames)
    return left, right


Sides = tuple[g.Stream, g.Stream]


def asked(stream: g.Stream, bucket: int | None = None) -> DataFrame:
    """The DataFrame of a join; what is said of it beforehand is what the planner says."""
    frame = in_buckets(stream, bucket)
    assert (unplanned(joined(stream)) is None) == (not refused(frame))
    return frame


@pytest.mark.parametrize("how", HOWS)
def test_joins_with_payload_of_every_type(sides: Sides, how: str) -> None:
    left, right = sides
    # Binary goes along where no gap stands beside it.
    united = {"left": (left, right.select(*_but_binary(right))), "right": (left.select(*_but_binary(left)), right)}
    both = (left.select(*_but_binary(left)), right.select(*_but_binary(right)))
    one, other = both if how == "full" else united.get(how, sides)
    assert {"price", "wide", "place", "tags", "list", "text", "time"} <= set(one.schema.names)
    needed = (*NATIVE, *ALONE.get(how, ("WindowExec", "UnionExec")))
    planned(asked(one.join(other, on="long", how=how)), *needed)  # type: ignore[arg-type]


def _but_binary(stream: g.Stream) -> list[str]:
    return [name for name in stream.schema.names if name != "raw"]


def test_joins_on_keys_of_every_type(sides: Sides) -> None:
    left, right = (side.select(*PLAIN, more="seconds") for side in sides)
    planned(asked(left.join(right, on=PLAIN)), *NATIVE)
    planned(asked(left.join(right, on=PLAIN, how="full")), *NATIVE, "WindowExec")


VERBS: dict[str, tuple[Query, int | None]] = {
    "no key": (lambda a, b: a.join(b), None),
    "no key, anti": (lambda a, b: a.join(b, how="anti"), None),
    "several keys": (lambda a, b: a.join(b.select("text", "wide", "date"), on=["text", "wide", "date"], how="left"), 1),
    "keys to be cast": (lambda a, b: a.join(b, on={"short": "long"}), None),
    "a bucket that is given": (lambda a, b: a.join(b, on="long", how="semi"), 3_600_000_000),
    "a condition": (
        lambda a, b: a.join(b, on="text", condition=(g.col("double") > g.col("double_right")) & (g.col("long") != 5)),
        None,
    ),
    "itself": (lambda a, _: a.join(a, on="long", how="anti"), None),
    "points": (lambda a, b: a.to_point().join(b.set_duration("5s"), on="long"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", VERBS)
def test_verbs(sides: Sides, name: str) -> None:
    query, bucket = VERBS[name]
    planned(asked(query(*sides), bucket), "FileSourceScanExec", "GenerateExec", "SortMergeJoinExec")


AWAY: dict[str, tuple[Query, set[str], str]] = {
    # What joins and sorts on keys, and all that stands around it.
    "binary key": (
        lambda a, b: a.select("raw").join(b.select("raw"), on="raw"),
        {"SortMergeJoinExec", "ShuffleExchangeExec", "HashPartitioning", "SortExec", "SortOrder"},
        "key 'raw': the RAPIDS plugin joins on no binary",
    ),
    "binary beside gaps": (
        lambda a, b: a.join(b.select("long", "raw"), on="long", how="left"),
        {"UnionExec"},
        "column 'raw': the RAPIDS plugin takes no binary in a union",
    ),
    "a division": (
        lambda a, b: a.join(b, on="long", condition=g.col("double") / g.col("long") > g.col("double_right")),
        {"Divide", "SortMergeJoinExec"},
        "the RAPIDS plugin has no rule for the division that Narwhals asks Spark for",
    ),
}  # fmt: skip
"""What is not wholly on the GPU, with the reason."""


@pytest.mark.parametrize("name", AWAY)
def test_what_leaves_the_gpu(sides: Sides, name: str) -> None:
    query, expected, said = AWAY[name]
    stream = query(*sides)
    found = refused(asked(stream))
    assert expected <= found, found
    assert unplanned(joined(stream)) == said


def test_durations_leave_the_gpu(frames: tuple[DataFrame, DataFrame]) -> None:
    timed = frames[0].selectExpr("s", "e", "long", "interval '0.000001' second * long lasts")
    left, right = (g.events(frame, start="s", end="e") for frame in (timed, frames[1].select("s", "e", "long")))
    stream = left.join(right, on="long")
    assert {"GenerateExec", "SortExec", "SortMergeJoinExec"} <= refused(asked(stream))
    assert unplanned(joined(stream)) == "column 'lasts': the RAPIDS plugin lists no duration[us] in buckets"
    # What is not read stays out of all of it.
    planned(asked(right.join(left, on="long", how="anti")), *NATIVE)


# What the checker must see: were one of these planned, the tests above would show nothing.


def test_the_checker_refuses(frames: tuple[DataFrame, DataFrame]) -> None:
    from pyspark.sql import functions

    left, right = (frame.selectExpr("long", "s", "e", "seconds") for frame in frames)
    bounds = functions.expr("a.long = b.long and a.seconds < b.seconds + a.long")
    controls = {
        "SubtractTimestamps": left.withColumn("lasts", functions.expr("e - s")).drop("s"),
        "Add": left.alias("a").join(right.alias("b"), bounds, "left"),
        "UnionExec": frames[0].select("raw").union(frames[1].select("raw")),
    }
    for culprit, frame in controls.items():
        assert culprit in refused(frame)
        with pytest.raises(AssertionError, match=culprit):
            planned(frame)


def test_the_checker_misses_what_is_not_there(sides: Sides) -> None:
    with pytest.raises(AssertionError):
        planned(asked(sides[0].join(sides[1], on="long")), "MapInArrowExec")
