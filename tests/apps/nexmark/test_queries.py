"""Each of NEXMark's questions, against plain SQL over the same auction; in a batch, live, as a query file."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import compute, parquet
from typer.testing import CliRunner

import gpu_ops as g
from gpu_ops.apps import nexmark
from gpu_ops.apps.cli import app
from gpu_ops.apps.nexmark import queries, streams
from gpu_ops.apps.queries import query_answers
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.engines.live.running_query import RunningQuery
from tests.apps.nexmark.reference import ANSWERED, OPEN, ask, connect
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = Path(queries.__file__)

AUCTIONS = {
    # A hundred seconds around midnight; an auction lasts eight seconds, on average.
    "fast": nexmark.generate(20_000, rate=200, seed=3, start="2015-07-14T23:59:10Z"),
    # Fourteen hours, from evening to morning; half an hour.
    "slow": nexmark.generate(50_000, rate=1, seed=4, start="2015-07-14T18:30:00Z"),
}

SIDE = nexmark.side_input(start="2015-07-14T00:00Z")


def answers(tables: nexmark.Tables) -> dict[str, g.Stream]:
    return queries.query(tables.bids, tables.auctions, tables.persons, SIDE)


def ordered(table: pa.Table) -> pa.Table:
    """Columns and rows in one order, times as numbers: SQL has numbers where times are payload."""
    names = ["start", "end", *sorted(set(table.column_names) - {"start", "end"})]
    columns = [
        table[name].cast(pa.int64()) if pa.types.is_timestamp(table.schema.field(name).type) else table[name]
        for name in names
    ]
    return pa.table(columns, names).sort_by([(name, "ascending") for name in names])


def same(answer: pa.Table, expected: pa.Table) -> None:
    assert answer.num_rows > 0
    assert ordered(answer).equals(ordered(expected))


@cache
def of_sql(name: str, auction: str) -> pa.Table:
    """Asked once for all devices."""
    return ask(connect(AUCTIONS[auction]), ANSWERED[name])


@pytest.mark.slow
@pytest.mark.parametrize("auction", AUCTIONS)
@pytest.mark.parametrize("name", queries.QUERIES)
def test_the_answer_is_that_of_sql(name: str, auction: str, device_name: str) -> None:
    tables = AUCTIONS[auction]
    same(answers(tables)[name].collect(device=device_name), of_sql(name, auction))


@pytest.mark.parametrize("auction", AUCTIONS)
def test_what_is_left_to_ask_has_an_answer(auction: str) -> None:
    connection = connect(AUCTIONS[auction])
    for sql in OPEN.values():
        answer = ask(connection, sql)
        assert answer.num_rows > 0
        assert compute.all(compute.less(answer["start"], answer["end"])).as_py()
    assert {f"q{number}" for number in range(24)} - ANSWERED.keys() == {"q10", *OPEN}
    assert queries.QUERIES.keys() == ANSWERED.keys()


EMPTY_BIDS = {name: pa.nulls(2, nexmark.SCHEMAS["bids"].field(name).type) for name in nexmark.SCHEMAS["bids"].names}


def started(name: str) -> RunningQuery:
    """The question live; what it looks up is there already."""
    live = queries.QUERIES[name](*(getattr(streams, each)() for each in queries.INPUTS[name])).start(device="cpu")
    if "side" in queries.INPUTS[name]:
        live.push(SIDE, input="side")
        live.advance(at_us(MAX_TIME), input="side")
    return live


def push(live: RunningQuery, name: str, part: nexmark.Tables) -> None:
    for kind in nexmark.KINDS:
        if kind in queries.INPUTS[name]:
            live.push(getattr(part, kind), input=kind)
            live.advance(at_us(part.cti), input=kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", queries.QUERIES)
def test_live_it_is_the_same(name: str) -> None:
    #   23:59:50 ----------|-----------> 00:00:20, half a minute around midnight
    settings: dict[str, Any] = {"rate": 100, "seed": 5, "start": "2015-07-14T23:59:50Z"}
    live = started(name)
    given: list[tuple[int, pa.Table]] = []
    for part in nexmark.batches(3000, size=700, **settings):
        push(live, name, part)
        results = live.results()
        # Nothing is given that an earlier CTI had promised would not come.
        assert not results.num_rows or compute.min(results["start"].cast(pa.int64())).as_py() >= promised(given)
        given.append((live.cti, results))
    # In half a minute the hot bidder makes no pause, and sessions are given in order of time.
    assert sum(results.num_rows for _, results in given) > 0 or name == "q11"
    live.close()
    whole = answers(nexmark.generate(3000, **settings))[name].collect()
    same(pa.concat_tables([*(results for _, results in given), live.results()]), whole)


def promised(given: list[tuple[int, pa.Table]]) -> int:
    return max((cti for cti, _ in given), default=MIN_TIME)


def test_inputs_may_come_one_after_the_other() -> None:
    tables = nexmark.generate(3000, rate=100, seed=5)
    live = started("q23")
    for kind in ("bids", "persons", "auctions"):
        live.push(getattr(tables, kind), input=kind)
    live.close()
    same(live.results(), answers(tables)["q23"].collect())


@pytest.mark.parametrize(("name", "kept"), [("q3", "persons"), ("q9", None), ("q20", None), ("q23", "persons")])
def test_auctions_are_forgotten_when_they_have_expired(name: str, kept: str | None) -> None:
    tables = nexmark.generate(3000, rate=100, seed=5)
    live = started(name)
    push(live, name, tables._replace(cti=tables.cti + 3_600_000_000))
    left = 0 if kept is None else getattr(tables, kept).num_rows
    assert live.status().alive <= left
    assert live.status().alive > 0 or kept is None


@pytest.mark.slow
def test_the_count_of_a_session_does_not_wait_for_the_end_of_the_input() -> None:
    # bidder 0:  0--5-------->            each bids twice, half a minute after the one before
    # bidder 1:                  30-35-------->
    live = started("q11")
    for bidder in range(50):
        at = pa.array([30 * bidder, 30 * bidder + 5], pa.timestamp("s", "UTC"))
        live.push(pa.table({**EMPTY_BIDS, "bidder": [bidder] * 2, "date_time": at}))
        live.advance(at_us((30 * bidder + 6) * 1_000_000))
        assert live.results()["bidder"].to_pylist() == [bidder - 1] * (bidder > 0)
        assert live.cti == 30 * bidder * 1_000_000
        assert live.status().alive < 10


def test_a_store_of_bids_is_asked_as_a_table_is(tmp_path: Path) -> None:
    store = g.store(tmp_path / "bids")
    with store.writer() as writer:
        for part in nexmark.batches(1000, size=300, rate=10):
            writer.append(streams.bids(part.bids).collect())
            writer.advance(at_us(part.cti))
    tables = nexmark.generate(1000, rate=10)
    same(queries.q5(streams.bids(store)).collect(), queries.q5(streams.bids(tables.bids)).collect())


def test_auctions_are_open_until_they_expire(tmp_path: Path) -> None:
    table = nexmark.generate(200, rate=10).auctions
    stream = streams.auctions(table)
    answer = stream.collect()
    assert answer["start"].equals(table["date_time"])
    assert answer["end"].equals(table["expires"])
    stream.write(g.store(tmp_path / "auctions"))
    same(streams.auctions(g.store(tmp_path / "auctions")).collect(), answer)
    assert streams.persons().schema.names == [name for name in nexmark.SCHEMAS["persons"].names if name != "date_time"]


def test_a_bid_at_the_gap_goes_on_with_the_session() -> None:
    # gap 10:  |--------->         a bid at 0
    #                    |--------->         10: the same session
    #                               |--------->  21: another
    at = pa.array([0, 10, 21], pa.timestamp("s", "UTC"))
    sessions = queries.q11(g.events(pa.table({"at": at, "bidder": [7, 7, 7]}), start="at"))

    def seconds(answer: pa.Table) -> list[tuple[int, ...]]:
        names = ("start", "end", "began")
        times = [[int(each.timestamp()) for each in answer[name].to_pylist()] for name in names]
        return sorted(zip(*times, answer["bid_count"].to_pylist(), strict=True))

    assert seconds(sessions.collect()) == [(10, 20, 0, 2), (21, 31, 21, 1)]
    # Over a batch the lifetime may be the whole session.
    whole = sessions.alter_lifetime(start=g.col("began")).collect()
    assert seconds(whole) == [(0, 20, 0, 2), (21, 31, 21, 1)]


def test_an_auction_takes_no_bid_when_it_has_expired() -> None:
    # auction 1:  |----------)     from 10 to 20
    # bids:      9 10      19 20   the ones at 9 and at 20 are for nothing
    def seconds(*at: int) -> Any:
        return pa.array(at, pa.timestamp("s", "UTC"))

    auction = pa.table({"id": [1], "category": [10], "date_time": seconds(10), "expires": seconds(20)})
    bid = pa.table({"auction": [1] * 4, "price": [900, 5, 6, 900], "date_time": seconds(9, 10, 19, 20)})
    answer = queries.q4(streams.auctions(auction), streams.bids(bid)).collect()
    # It is known when the auction expires.
    assert [(each.second, each.microsecond) for each in answer["start"].to_pylist()] == [(20, 0)]
    assert answer["final"].to_pylist() == [6.0]


def test_prices_of_one_rank_are_all_among_the_highest() -> None:
    at = pa.array(range(4), pa.timestamp("s", "UTC"))
    bids = g.events(pa.table({"at": at, "auction": [1] * 4, "price": [5, 9, 5, 4]}), start="at")
    answer = queries.q19(bids, top=2).collect()
    assert sorted(zip(answer["rank_number"].to_pylist(), answer["price"].to_pylist(), strict=True)) == [
        (1, 9),
        (2, 5),
        (2, 5),
    ]


def test_urls_without_directories_have_none() -> None:
    bids = streams.bids(nexmark.generate(5).bids).with_columns(url=g.lit("https://auction.example/a"))
    assert queries.q22(bids).collect().select(["dir1", "dir2", "dir3"]).to_pylist() == [
        {"dir1": "a", "dir2": "", "dir3": ""}
    ]


@pytest.mark.slow
def test_it_is_a_query_file(tmp_path: Path) -> None:
    tables = nexmark.generate(500, rate=10)
    arguments = ["run", str(FILE), "--output", str(tmp_path / "answers")]
    for name, table in (*zip(nexmark.KINDS, tables, strict=False), ("side", SIDE)):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
        arguments += ["--input", f"{name}={tmp_path / name}.parquet"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    assert {path.stem for path in (tmp_path / "answers").iterdir()} == set(queries.QUERIES)
    for name in ("q5", "q9"):
        same(parquet.read_table(tmp_path / "answers" / f"{name}.parquet"), answers(tables)[name].collect())


def test_it_asks_what_the_inputs_answer() -> None:
    tables = nexmark.generate(100)
    alone = queries.query(tables.bids)
    assert {name for name, inputs in queries.INPUTS.items() if inputs == ("bids",)} == alone.keys()
    assert queries.query(tables.bids, persons=tables.persons).keys() == alone.keys()
    assert answers(tables).keys() == queries.QUERIES.keys()


def check_on_spark(spark: SparkSession, names: Iterable[str], events: int = 1000) -> None:
    from gpu_ops.apps.nexmark.spark import register

    register(spark)
    options: dict[str, Any] = {"kind": "bids", "events": events, "rate": 100, "seed": 6, "partitions": 2}
    there = query_answers(FILE, {"bids": spark.read.format("nexmark").options(**options).load()})
    here = queries.query(nexmark.generate(events, rate=100, seed=6).bids)
    assert isinstance(there, dict)
    assert there.keys() == here.keys()
    for name in names:
        local = here[name].collect()
        same(there[name].collect().toArrow().cast(local.schema), local)


def test_on_spark_it_is_the_same(spark: SparkSession) -> None:
    check_on_spark(spark, ["q12", "q21"])


@pytest.mark.deep
def test_on_spark_all_are_the_same(spark: SparkSession) -> None:
    asked = queries.query(nexmark.generate(0).bids)
    check_on_spark(spark, asked, events=6000)
