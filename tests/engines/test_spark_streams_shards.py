"""Live queries on Spark go on with another number of partitions: each hosts shards, of which the state is for life."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gpu_ops as g
from gpu_ops.engines.spark.streams.stream_plan import hosts_of
from tests.support.epoch_driver import dying
from tests.support.epochs import Epoch, admitted, read, same, table
from tests.support.epochs_here import drive, finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KilledError(Exception):
    """Stands for a kill."""


def drawn(made: random.Random, count: int = 5, rows: int = 10) -> list[Epoch]:
    """Pieces of an input, whose rows are up to half a minute out of order."""
    pieces: list[Epoch] = []
    for number in range(count):
        starts = [max(0, 40 * number + made.randrange(-30, 40)) for _ in range(rows)]
        pieces.append([(at, at + made.randrange(1, 90), made.choice("abcdefgh"), made.randrange(100)) for at in starts])
    return pieces


QUERIES: dict[str, Callable[[g.Stream], g.Stream]] = {
    "window": lambda s: s.by("item").sliding("1min").agg(n=g.count(), best=g.max("price")),
    "rows": lambda s: s.by("item").last(2).agg(total=g.sum("price")),
    "with itself": lambda s: s.clip_by(s, on="item").by("item").tumbling("1min").agg(n=g.count()),
}


def live(spark: SparkSession, folder: Path, name: str) -> g.Stream:
    (folder / "in").mkdir(exist_ok=True)
    events = g.events(read(spark, folder / "in"), start="at", end="till", unit="s")
    return QUERIES[name](events.advance_time("10s", delay="30s", late="drop"))


def answer(name: str, pieces: list[Epoch]) -> Any:
    taken, _ = admitted(pieces, every=10, delay=30, late="drop")
    return QUERIES[name](g.events(table(taken), start="at", end="till", unit="s")).collect()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.services) for seed in (1, 2))])
def test_each_start_has_another_number(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """It is killed at some step, starts with any number of partitions up to that of shards, and so on."""
    made = random.Random(seed)
    name = list(QUERIES)[seed]
    pieces, query, shards = drawn(made, count=4), live(spark, tmp_path, name), made.choice([3, 5])
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    drive(query, pieces[:1], **where, partitions=2, shards=shards)

    def die() -> None:
        raise KilledError

    deaths = 0
    while True:
        try:
            with dying(made.randrange(1, 40), die):
                drive(query, pieces, **where, partitions=made.randrange(1, shards + 1))
            break
        except KilledError:
            deaths += 1
    finish(query, **where)
    assert deaths
    same(g.epochs(tmp_path / "out").read(), answer(name, pieces))


def test_what_a_checkpoint_says_of_shards(spark: SparkSession, tmp_path: Path) -> None:
    pieces, query = drawn(random.Random(9), count=3), live(spark, tmp_path, "window")
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(g.PlanError, match="3 partitions are asked for, and the query's state has 2 shards"):
        drive(query, pieces, **where, partitions=3, shards=2)
    drive(query, pieces[:1], **where, partitions=3)
    record = tmp_path / "checkpoint" / "query.json"
    said = json.loads(record.read_text())
    assert said["shards"] == said["partitions"] == 3
    record.write_text(json.dumps({name: each for name, each in said.items() if name != "shards"}))  # an older one
    with pytest.raises(g.PlanError, match="4 partitions are asked for, and the query's state has 3 shards"):
        drive(query, pieces, **where, partitions=4)
    with pytest.raises(g.SourceError, match="the state of 3 shards, and 4 are asked for"):
        drive(query, pieces, **where, shards=4)
    alone = g.events(read(spark, tmp_path / "in"), start="at", unit="s").tumbling("1min").agg(n=g.count())
    with pytest.raises(g.PlanError, match="4 shards are asked for, and the query needs all events in one"):
        drive(alone, [], into=tmp_path / "other", checkpoint=tmp_path / "other checkpoint", shards=4)
    drive(query, pieces, **where, partitions=2)
    finish(query, **where)
    same(g.epochs(tmp_path / "out").read(), answer("window", pieces))


@pytest.mark.services
def test_a_shard_is_where_spark_sends_its_keys(spark: SparkSession) -> None:
    """By keys of all types that tasks get, null, NaN and -0.0 too; and there is a host in each partition."""
    from pyspark.sql import functions as F  # noqa: N812

    kinds = "boolean tinyint smallint int bigint float double string timestamp"
    columns = [F.expr(f"cast(n as {kind})").alias(kind) for kind in kinds.split()]
    columns += [F.expr("date_add(date'2020-01-01', cast(n as int))").alias("date"), F.array("n", "n").alias("array")]
    numbers = ["0.0", "-0.0", "NaN", "1.0", "2.0", "-3.0", "17.0", None]
    frame = spark.createDataFrame([(None if each is None else float(each),) for each in numbers], "n double")
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")  # NaN becomes whole numbers
    try:
        for keys in (columns[:5], columns[5:8], columns[8:]):
            moved = frame.select(*keys).repartition(6, *frame.select(*keys).columns)
            here, there = F.spark_partition_id(), F.pmod(F.hash(*moved.columns), F.lit(6))
            assert [row[0] for row in moved.select(here == there).collect()] == [True] * len(numbers)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))
    hosts = spark.createDataFrame([(each,) for each in hosts_of(spark, 7)], "n int").repartition(7, "n")
    assert sorted(row[0] for row in hosts.select(F.spark_partition_id()).collect()) == list(range(7))
