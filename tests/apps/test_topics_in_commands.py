"""Commands over topics: what they read, follow and write, in one broker."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import gpu_ops as g
from gpu_ops.apps.broker import Broker
from gpu_ops.apps.cli import app
from tests.support.messages import committed

_QUERY = """
import gpu_ops as g
def query(bids):
    return g.events(bids, start="at", unit="ms").advance_time(1).by("item").tumbling("10s").agg(best=g.max("price"))
"""
_EPL = "select item, sum(price) as total from Bid#length(2) group by item"
_RQL = "select item, n from bids (partition by item store last 2 with sum(price) as n) as t where t.$row_status is new"


@pytest.fixture(autouse=True)
def _a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def _called(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.services
@pytest.mark.xdist_group("kafka")
def test_topics_are_read_followed_and_written(kafka: Broker, tmp_path: Path) -> None:
    # item  a    b    a       a       (a price is its number)
    # ms    1000 1000 3000    12000
    rows = [(1_000, "a", 1), (1_000, "b", 2), (3_000, "a", 3), (12_000, "a", 4)]
    values = [json.dumps(dict(zip(("at", "item", "price"), row, strict=True))).encode() for row in rows]
    name = kafka.topic("bids")
    kafka.write(name, values[:3])
    bids = f"kafka://{kafka.servers}/{name}?value=json&columns=at:int64,item:string,price:int64&offset=place"
    for file, text in {"best.py": _QUERY, "sums.epl": _EPL, "sums.rql": _RQL}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")

    def topic(what: str) -> tuple[str, str]:
        made = kafka.topic(what)
        return made, f"kafka://{kafka.servers}/{made}?value=json"

    def said(what: str, *columns: str) -> list[list[object]]:
        found = [json.loads(message.value()) for message in committed(kafka, what)]
        return [[each[column] for column in columns] for each in found]

    # At rest.
    _called("run", tmp_path / "best.py", "--input", f"bids={bids}", "--output", tmp_path / "best.parquet")
    assert sorted(pq.read_table(tmp_path / "best.parquet")["best"].to_pylist()) == [2, 3]
    lines = _called("epl", tmp_path / "sums.epl", "--input", f"Bid={bids}", "--time", "at").stdout.splitlines()
    assert [json.loads(each)["total"] for each in lines] == [1, 2, 3]
    cycles = _called("rql", tmp_path / "sums.rql", "--input", f"bids={bids}", "--time", "at", "--order", "place").stdout
    assert sorted(json.loads(each)["n"] for each in cycles.splitlines()) == [1, 2, 4]

    # Live; a second call goes on.
    best, sums = topic("best"), topic("sums")
    for more in ([], values[3:]):
        kafka.write(name, more)
        wait, at = ("--timeout", "0s"), ("--time", "at", "--order", "place")
        _called(
            *("run", tmp_path / "best.py", "--follow", f"bids={bids}", "--output", best[1], *wait),
            *("--checkpoint", tmp_path / "best.checkpoint"),
        )
        _called(
            *("epl", tmp_path / "sums.epl", "--follow", f"Bid={bids}", "--output", sums[1], *wait, *at),
            *("--checkpoint", tmp_path / "sums.checkpoint"),
        )
        _called(
            *("rql", tmp_path / "sums.rql", "--follow", f"bids={bids}", "--output", tmp_path / "store", *wait, *at),
            *("--checkpoint", tmp_path / "cycles.checkpoint"),
        )
    assert sorted(said(best[0], "item", "best")) == [["a", 3], ["b", 2]]
    assert said(sums[0], "item", "total")[:2] == [["a", 1], ["b", 2]]
    assert sorted(g.store(tmp_path / "store").read()["n"].to_pylist()) == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "q.py", "--input", "a=a.parquet", "--output", "kafka://h:1/t?value=json"), "Add --follow NAME=kafka:"),
        (("run", "q.py", "--follow", "a=kafka://h:1/t", "--output", "o"), "does not say value="),
        (("epl", "q.epl", "--follow", "A=kafka://h:1/t?value=json&columns=a:int64", "--output", "o"), "--time at"),
        (("rql", "q.rql", "--follow", "a=s", "--output", "o", "--input", "b=b"), "--follow is live"),
        (("rql", "q.rql", "--input", "a=a.parquet"), "Nothing says when events come"),
        (("rql", "q.rql", "--input", "a=a.parquet", "--delay", "1s"), "--delay needs --follow"),
    ],
)
def test_wrong_calls_are_one_message(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in {"q.py": _QUERY, "q.epl": _EPL, "q.rql": _RQL}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 1
    assert says in " ".join(result.output.split())
