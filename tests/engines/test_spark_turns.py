"""What happens at each arrival, on Spark: what the local engine gives, turn by turn; and what is an error there."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.api.arrivals import ArrivalStream
from gpu_ops.api.deliveries import ArrivalWindow
from gpu_ops.engines.spark.slice_policy import SliceSettings
from gpu_ops.engines.spark.turns import TurnFragment
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, TimeError
from gpu_ops.plan.ledger import AtClock
from tests.support.on_spark import SLICES, PairQuery, agree, answer, setting, times, to_spark
from tests.support.planner import planned
from tests.support.rows import rows
from tests.support.ticks import at_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

MS = 1000


def _drawn(seed: int, size: int) -> pa.Table:
    """Events in no order, of few keys, some of them null; many at one time, with silences between."""
    draw = random.Random(seed)
    starts = [draw.choice([at // 3 * 3, at, at // 20 * 20]) for at in (draw.randrange(60) for _ in range(size))]
    return pa.table(
        {
            "s": times([MS * at for at in starts]),
            "seq": pa.array(draw.sample(range(-2 * size, 2 * size), size), pa.int64()),
            "k": pa.array([draw.choice(["a", "b", "c", None]) for _ in range(size)]),
            "x": pa.array([draw.choice([0.0, -0.0, 1.5, float("nan"), None]) for _ in range(size)]),
            "v": pa.array([draw.choice([None, 1, 2, 3]) for _ in range(size)], pa.int64()),
        }
    )


TABLES = _drawn(1, 70), _drawn(2, 40)


def _of_one(ask: Callable[[ArrivalStream], g.Stream]) -> PairQuery:
    """A question of the first stream."""
    return lambda left, _: ask(g.arrivals(left, order="seq", start=at_us(0), until=at_us(75 * MS)))


def _both(left: g.Stream, right: g.Stream) -> g.Stream:
    one, two = g.arrivals(left, right, order="seq")
    pairs: ArrivalWindow = one.by("k").last(2).join(two.unique("k"), on="k", how="left")
    return pairs.deliveries("k", v=g.col("v_right"), shown="both")


def _rising(rows: ArrivalStream, **options: Any) -> ArrivalStream:
    """Two rows of a key of which the second is above the first."""
    low = g.row("low")
    high = g.row("high", g.col("v") >= low["v"])
    return rows.by("k").match(low + high, {"v": low["v"]}, skip="to next row", **options)


def _spans(found: g.Stream) -> g.Stream:
    """Matches as events, with the types that deliveries have."""
    return found.select(turn=g.col("v") * 0, row=g.col("k"), k=g.col("k"), v=g.col("v"))


def _then(left: g.Stream, right: g.Stream, span: str | None) -> g.Stream:
    """An event of one stream with a key, then one of the other; or two, in any order, and none of the first between."""
    one, two = g.arrivals(left, right, order="seq")
    later = g.one("b", two, g.col("v") >= g.col("a.v"), on="k")
    if span is not None:
        later = later.within(span)
    else:
        later = (
            g.one("b", two, on="k") & g.one("c", two, g.col("v") > 1, on="k") & g.none("", one, g.col("v") < 2, on="k")
        )
    return g.pattern(g.every("a", one) >> later).deliveries(k=g.col("a.k"), v=g.col("b.v"))


def _text(text: str) -> PairQuery:
    return lambda left, right: epl.query(text, A=left, B=right, order="seq", until=75)


QUERIES: Mapping[str, PairQuery] = {
    "no window": _of_one(lambda a: a.filter(g.col("v") > 1).deliveries("k", "v", shown="both")),
    "two keys": _of_one(lambda a: a.by("x").last(3).deliveries("k", v=g.sum("v"), by=("x", "k"), where=g.col("v") > 1)),
    "ticks of a key": _of_one(lambda a: a.last_span("9ms").deliveries("k", v=g.sum("v"), by="k", shown="both")),
    "sessions": _of_one(lambda a: a.by("k").session("4ms").deliveries("k", "v", shown="both", order_by="v")),
    "all ticks": _of_one(lambda a: a.by("k").time_batches("7ms").deliveries("k", "v", shown="both")),
    "output first": _of_one(lambda a: a.deliveries("k", "v", by="k").output("first", every="6ms")),
    "a row pattern": _of_one(lambda a: _spans(_rising(a, within="9ms").events("k", "v"))),
    "a pattern by key": lambda left, right: _then(left, right, "4ms"),
    "a pattern of three": lambda left, right: _then(left, right, None),
    "a join": _both,
    "an inserted stream": _text(
        "insert into C select k, v from A(v > 1); insert into C select k, v from B#groupwin(k)#length(1);"
        " select irstream k, count(*) as v from C#time(5 msec) group by k"
    ),
    "a context of two streams": _text(
        "create context C partition by k from A, k from B initiated by A(v > 1) terminated after 20 msec;"
        " context C select irstream a.k as k, b.v as v from A#time(9 msec) as a, B#length(2) as b"
    ),
    "instances that one stream starts and the other ends": _text(
        "create context C initiated by A as s terminated by B(k = s.k and v > 1);"
        " context C select context.s.k as k, sum(v) as v from A(k = context.s.k) output last when terminated"
    ),
    "a sub-query": _text("select k, (select max(v) from B#unique(k) as b where b.k = a.k) as v from A as a"),
}
"""All of them give a text and an integer, so that they are one job."""


@pytest.mark.usefixtures("few_tasks")
def test_deliveries_are_those_of_the_local_engine(spark: SparkSession) -> None:
    found = agree(spark, TABLES, QUERIES, end=None)
    assert all(len(each) > 10 for each in found.values())


@pytest.mark.usefixtures("few_tasks")
def test_one_slice_and_little_memory(spark: SparkSession) -> None:
    """Tasks sort in files what does not fit, and see the ticks in their order all the same."""
    some = {name: QUERIES[name] for name in ("ticks of a key", "all ticks")}
    with setting(spark, SLICES, "1"), setting(spark, "spark.gpu_ops.worker.memory", "1k"):
        agree(spark, TABLES, some, end=None)


FRAME = pa.table({"seq": [3, 1, 2, 4], "k": ["a", "a", "b", "b"], "v": [5, 7, 1, 2], "at": [4_000, 0, 0, 11_000]})


@pytest.mark.usefixtures("few_tasks")
def test_texts_take_data_frames(spark: SparkSession) -> None:
    """With times the clock moves; with numbers alone it stays until the end.

    at      0   0   4   11      until 20        seq   1 2 3 4    until 20
    turn    1   2   4   6       7               turn  1 2 3 4    5
    """
    text = "select irstream k, sum(v) as v from A#time(10 sec) group by k"
    asked: list[dict[str, Any]] = [{"time": "at", "order": "seq", "until": 20_000}, {"order": "seq", "until": 20_000}]
    far = [epl.query(text, A=to_spark(spark, FRAME), **each) for each in asked]
    near = [epl.query(text, A=FRAME, **each).collect() for each in asked]
    first, second = (each.collect() for each in far)
    assert rows(first.unionAll(second).toArrow().cast(near[0].schema)) == rows(pa.concat_tables(near))
    assert sorted(near[0]["turn"].unique().to_pylist()) == [1, 2, 4, 5, 6, 7]
    assert sorted(near[1]["turn"].unique().to_pylist()) == [1, 2, 3, 4, 5]


def _spoiled(column: str, values: list[Any]) -> pa.Table:
    return FRAME.set_column(FRAME.schema.names.index(column), column, pa.array(values, pa.int64()))


@pytest.mark.parametrize(
    ("table", "said", "error"),
    [
        (
            _spoiled("seq", [3, 1, 1, 4]),
            r"Two events of the stream have one number.*column 'seq', start=.*order=1",
            ColumnError,
        ),
        (_spoiled("seq", [3, 1, None, 4]), "has no place in the order.*column 'seq'", ColumnError),
        (_spoiled("at", [4_000, -5, 0, 0]), "An event comes before the clock starts.*start=1969", TimeError),
    ],
)
def test_bad_orders_are_errors(spark: SparkSession, table: pa.Table, said: str, error: type[GpuOpsError]) -> None:
    stream = g.events(to_spark(spark, table), start="at", unit="ms")
    with pytest.raises(error, match=said):
        answer(g.arrivals(stream, order="seq", start=at_us(0)).deliveries("k"))


def test_events_that_nothing_orders_are_an_error(spark: SparkSession) -> None:
    stream = g.events(to_spark(spark, FRAME), start="at", unit="ms")
    with pytest.raises(ColumnError, match="Two events of the stream come at one time, and nothing says which is first"):
        answer(g.arrivals(stream).deliveries("k"))


def test_what_needs_one_order_is_refused_before_anything_runs(spark: SparkSession) -> None:
    frame = to_spark(spark, FRAME)
    stream = g.arrivals(g.events(frame, start="at", unit="ms"), order="seq").last(2).deliveries()
    for ask in (stream.collect, stream.explain):
        with pytest.raises(PlanError, match=r"The window last 2 needs all events in one order, .* among tasks by keys"):
            ask()
    with pytest.raises(PlanError, match="'A' is on Spark, and 'B' is not"):
        epl.query("select * from A", A=frame, B=FRAME, order="seq")


def test_explain_says_how(spark: SparkSession) -> None:
    stream = g.arrivals(g.events(to_spark(spark, FRAME), start="at", unit="ms"), order="seq")
    said = stream.last_span("10s").deliveries("k", v=g.sum("v"), by="k").explain()
    assert "events at places, one repartition by k, then one mapInArrow with the local engine" in said
    assert "ticks: for each event the first move of the clock 10s after it" in said
    settings = SliceSettings(8, keyed=False, looks=False, tasks=2)

    def ways(asked: g.Stream) -> str:
        (last,) = asked._node.all(AtClock)
        return "; ".join(TurnFragment.of(last).ways(settings))

    assert "every move of the clock goes to each of 8 buckets" in ways(
        stream.by("k").time_batches("1s").deliveries("v")
    )
    assert "any task will do, as no row needs another" in ways(stream.deliveries("v"))


@pytest.mark.rapids
def test_the_plugin_plans_all_of_it(stream: g.Stream, frame: DataFrame) -> None:
    """Windows, merges and unions among Spark's own operations, and one mapInArrow; a text's frame likewise."""
    ours = g.arrivals(stream, order="long", start=at_us(0), until=at_us(99))
    one, two = g.arrivals(stream, stream.filter(g.col("long") > 1), order="long")
    usual = ("WindowExec", "ShuffleExchangeExec", "MapInArrowExec")
    planned(ours.filter(g.col("long") > 1).deliveries("text").collect(), "WindowExec", "MapInArrowExec")
    planned(ours.by("text").last(2).deliveries("long").collect(), *usual)
    planned(ours.last_span("5s").deliveries("text", n=g.sum("long"), by="text").collect(), *usual, "UnionExec")
    planned(ours.by("text").time_batches("5s").deliveries("long").collect(), *usual, "GenerateExec")
    planned(one.by("text").last(1).join(two.unique("text"), on="text").deliveries("text").collect(), *usual)
    text = "select text, sum(long) as n from A#time(3 sec) group by text"
    read = frame.select("s", "long", "text")
    planned(epl.query(text, A=read, time="s", order="long").collect(), *usual)
    keyed = "create context C partition by text from A, text from B"
    for context in (
        f"{keyed}; context C select a.text as text, b.long as n from A#time(9) as a, B#length(2) as b",
        f"{keyed} initiated by A(long > 1) terminated by B(long > 1); context C select text, sum(long) as s from A",
    ):
        planned(epl.query(context, A=read, B=read.where("long > 0"), time="s", order="long").collect(), *usual)
