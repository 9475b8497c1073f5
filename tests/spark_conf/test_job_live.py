"""The submitted job over topics: live, again and again, into folders and topics; and which options do not fit."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import gpu_ops as g
from gpu_ops.apps.broker import CONNECTOR, Broker
from tests.support.epoch_driver import best
from tests.support.epochs import SCHEMA, same, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = Path(__file__).parents[2] / "spark_conf" / "job.py"

ONE = """
import gpu_ops as g
def query(bids):
    stream = g.events(bids, start="at", end="till", unit="s").advance_time("10s", delay="5min").by("item")
    return stream.tumbling("1min").agg(n=g.count(), best=g.max("price"))
"""

TWO = (
    ONE
    + """
one = query
def query(bids):
    return {"best": one(bids), "all": g.events(bids, start="at", end="till", unit="s").filter(g.col("price") > 10)}
"""
)

ROWS = [(number * 7, number * 7 + 5, "abc"[number % 3], number % 20) for number in range(60)]

Job = Callable[..., int]


@pytest.fixture(scope="module")
def job() -> ModuleType:
    described = importlib.util.spec_from_file_location("gpu_ops_job_live", JOB)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


@pytest.fixture
def run(spark: SparkSession, few_tasks: None, job: ModuleType, tmp_path: Path) -> Job:
    assert spark.version

    def call(query: str, *arguments: str) -> int:
        (tmp_path / "query.py").write_text(query)
        code = job.main([str(tmp_path / "query.py"), *(each.replace("@", f"{tmp_path}/") for each in arguments)])
        assert isinstance(code, int)
        return code

    return call


def address(kafka: Broker, name: str) -> str:
    return f"kafka://{kafka.servers}/{name}?value=json&columns=at:int64,till:int64,item:string,price:int64"


def send(kafka: Broker, name: str, rows: list[tuple[int, int, str, int]]) -> None:
    kafka.write(name, [json.dumps(dict(zip(SCHEMA.names, row, strict=True))).encode() for row in rows])


@pytest.mark.services
@pytest.mark.skipif(not CONNECTOR, reason="there is no connector (`make kafka` fetches it)")
def test_topics_are_read_live_and_the_next_call_goes_on(
    run: Job, kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = kafka.topic("rows", 1)
    common = ("--input", f"bids={address(kafka, name)}", "--output", "@out", "--checkpoint", "@checkpoint")
    send(kafka, name, ROWS[:30])
    assert run(TWO, *common, "--epoch-rows", "12") == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "live: epochs of all inputs together" in said
    assert said.endswith(f"epoch 2 is committed: {tmp_path}/out/all\n")
    send(kafka, name, ROWS[30:])
    assert run(TWO, *common, "--end") == 0
    events = g.events(table(ROWS), start="at", end="till", unit="s")
    same(g.epochs(tmp_path / "out" / "best").read(), best(events).collect())
    same(g.epochs(tmp_path / "out" / "all").read(), events.filter(g.col("price") > 10).collect())
    assert run(TWO, *common) == 1
    assert "has ended" in capsys.readouterr().err


@pytest.mark.services
@pytest.mark.skipif(not CONNECTOR, reason="there is no connector (`make kafka` fetches it)")
def test_a_topic_into_a_topic(run: Job, kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    name, into = kafka.topic("rows", 2), kafka.topic("best")
    send(kafka, name, ROWS)
    out = f"kafka://{kafka.servers}/{into}?value=json&key=item"
    arguments = ("--input", f"bids={address(kafka, name)}", "--output", out, "--checkpoint", "@checkpoint", "--end")
    assert run(TWO, *arguments) == 1
    assert "several streams, and --output is one topic" in capsys.readouterr().err
    assert run(ONE, *arguments) == 0, capsys.readouterr().err
    expected = best(g.events(table(ROWS), start="at", end="till", unit="s")).collect()
    found = g.kafka(into, servers=kafka.servers, value="json", schema=expected.schema)
    same(g.events(found, start="start", end="end").collect(), expected)


BIDS = "bids=kafka://localhost:1/bids?value=json&columns=at:int64"
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no checkpoint": (("--input", BIDS, "--output", "out"), "Say --checkpoint PATH"),
    "files live": (("--input", "bids=bids.parquet", "--output", "out", "--end"), "--end is for queries that run live"),
    "files into a topic": (("--input", "bids=bids.parquet", "--output", "kafka://a/b?value=json"), "runs live"),
    "a format live": (("--input", BIDS, "--output", "out", "--checkpoint", "c", "--format", "csv"), "--format is not"),
    "a table without a format": (("--input", BIDS, "--output", "table:top"), "--format delta or iceberg"),
    "a format without a table": (("--input", BIDS, "--output", "top", "--format", "delta"), "--output table:NAME"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together(run: Job, capsys: pytest.CaptureFixture[str], name: str) -> None:
    arguments, refused = REFUSED[name]
    assert run(ONE, *arguments) == 1
    assert refused in capsys.readouterr().err
