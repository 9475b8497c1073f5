"""What partitions of a live query on Spark make of arrivals is, together, what one machine makes of all; without Spark.

Rows go to partitions by the columns that the plan names; in each a running query takes them epoch by epoch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl, rql
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.engines.spark.streams.clocks import with_clocks
from gpu_ops.engines.spark.streams.keys import partitioning
from gpu_ops.errors import TextError
from gpu_ops.plan.nodes import Source
from tests.support.epochs import SECOND, Epoch, admitted, put, read, run, same
from tests.support.epochs import table as written
from tests.support.epochs_here import drive, finish
from tests.support.examples import by_default
from tests.support.keyed_contexts import KEYED, OF_TWO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tests.support.rows import rows

PARTITIONS, EPOCHS = 2, 3
SCHEMA = pa.schema([("at", pa.int64()), ("seq", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


def _drawn(seed: int, size: int, epoch: int) -> pa.Table:
    draw = random.Random(100 * seed + epoch)
    order = draw.sample(range(3 * size * epoch, 3 * size * (epoch + 1)), size)
    values = [
        (max(0, 10 * epoch + draw.randrange(-9, 10)), seq, draw.choice(["a", "b", None]), draw.choice([None, 1, 2]))
        for seq in order
    ]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in values], SCHEMA)


WINDOWS = (
    "",
    "#time(3)",
    "#time_batch(4)",
    "#keepall",
    "#unique(k)",
    "#groupwin(k)#length(2)",
    "#groupwin(k)#length_batch(2)",
    "#length(2)",
)
ONE = (
    "select irstream k, v from A{0}",
    "select irstream k, sum(v) as s, count(*) as n from A{0} group by k",
    "select k, prev(1, v) as p from A{0}",
    "select * from pattern [every a=A -> b=B(k = a.k and v > 1)]",
    "select * from pattern [every a=A -> (b=B(k = a.k) where timer:within(4 sec))]",
    "create context C partition by k from A; context C select irstream k, sum(v) as s from A{0}",
    (
        "create context C partition by k from A terminated after 5 sec;"
        " context C select k, sum(v) as s from A{0} output last when terminated"
    ),
    "select * from A match_recognize (partition by k measures X.v as x, Y.v as y pattern (X Y) define Y as Y.v > X.v)",
)
TWO = (
    "select irstream a.k as k, a.v as v, b.v as w from A{0} as a, B{1} as b where a.k = b.k",
    "insert into C select k, v from A{0}; select irstream k, count(*) as n from C{1} group by k",
    "select k, v, (select max(v) from B{1} as b where b.k = a.k) as m from A{0} as a",
)


def _asked(text: str, tables: dict[str, pa.Table], shown: str) -> g.Stream:
    streams = {name: g.events(each, start="at", unit="s", name=name) for name, each in tables.items() if name in text}
    answer = epl.query(text, streams, order="seq", until=100_000)
    return answer if shown == "all" else answer.select(*(name for name in answer.schema.names if name != "turn"))


def _epochs(seed: int) -> dict[str, list[pa.Table]]:
    return {name: [_drawn(seed + at, 12, epoch) for epoch in range(EPOCHS)] for at, name in enumerate("AB")}


def _whole(epochs: dict[str, list[pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables(each) for name, each in epochs.items()}


@given(st.sampled_from(ONE + TWO), st.sampled_from(WINDOWS), st.sampled_from(WINDOWS), st.integers(0, 99))
@by_default(5)
def test_partitions_make_what_one_makes(text: str, window: str, other: str, seed: int) -> None:
    """Some of the texts need one partition (``prev`` over all keys), or are not there at all (a join without a window).

    Epochs are of 10 s, but their events may come 9 s late, and in each the CTI is the beginning of the one before it.
    """
    epochs = _epochs(seed)
    try:
        query = _asked(text.format(window, other), _whole(epochs), "without turns")
    except TextError:
        assume(False)
    leaves = query._node.all(Source)
    assume(partitioning(query._node, leaves).alone is None)
    found, answer = _partitioned(query, leaves, epochs), query.collect()
    assert rows(found) == rows(answer)


def _partitioned(query: g.Stream, leaves: Sequence[Source], epochs: dict[str, list[pa.Table]]) -> pa.Table:
    """What all partitions make together of epochs that come one by one."""
    parts = partitioning(query._node, leaves)
    plan, clocks = with_clocks(query._node, leaves) if parts.clocks else (query._node, [])
    found = []
    for at in range(PARTITIONS):
        live = RunningQuery(plan, "cpu")
        for epoch in range(EPOCHS):
            if epoch:
                live.advance(f"1970-01-01T00:00:{10 * (epoch - 1):02}Z")
            for clock in clocks:
                moved = pa.concat_tables([epochs[str(leaves[leaf].name)][epoch] for leaf in clock.of])
                live.push(clock.rows(np.unique(moved["at"]) * SECOND), input=clock.name)
            for number, leaf in enumerate(leaves):
                table = epochs[str(leaf.name)][epoch]
                names = (parts.keys[number] if parts.keys else ()) or ("seq",)
                key = zip(*(table[name].to_pylist() for name in names), strict=True)
                mine = [sum(map(ord, str(value))) % PARTITIONS == at for value in key]
                live.push(table.filter(pa.array(mine, pa.bool_())), input=leaf.name)
        live.close()
        found.append(live.results())
    return pa.concat_tables(found)


@pytest.mark.parametrize("name", OF_TWO)
@given(st.integers(0, 999))
@by_default(2)
def test_contexts_over_two_streams_by_key(name: str, seed: int) -> None:
    epochs = _epochs(seed)
    query = _asked(OF_TWO[name], _whole(epochs), "without turns")
    assert partitioning(query._node, query._node.all(Source)).alone is None
    found, answer = _partitioned(query, query._node.all(Source), epochs), query.collect()
    assert rows(found) == rows(answer)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{KEYED}; context C select context.id as id, v from B", "The number of an instance of a context"),
        (f"{KEYED}; context C select k, v + context.id as v from A", "The number of an instance of a context"),
        (f"{KEYED}; context C select sum(context.id) as s from A", "The number of an instance of a context"),
        (
            f"{KEYED}; context C select a.v as v from pattern [every a=A -> b=B(v >= context.id)]",
            "The number of an instance of a context",
        ),
        (
            (
                "create context C coalesce by hash_code(k) from A, hash_code(k) from B granularity 4;"
                " context C select k, v from A"
            ),
            "The context C",
        ),
        ("create context C start A as s end B(k = s.k); context C select k, v from A", "The context C"),
        ("create context C start after 1 sec end after 5 sec; context C select k, v from A", "The context C"),
        (
            (
                f"{KEYED}; context C select a.v as v, b.v as w from A#time(9) as a full outer join B#length(2) as b"
                " on a.v = b.v"
            ),
            "A context",
        ),
    ],
)
def test_contexts_that_need_one_order_name_why(text: str, why: str) -> None:
    query = _asked(text, _whole(_epochs(0)), "without turns")
    assert (partitioning(query._node, query._node.all(Source)).alone or "").startswith(why)


STRETCHES: dict[str, Callable[[g.ArrivalStream, g.ArrivalStream], g.Stream]] = {
    "ended by the other": lambda a, b: b.within(a.until(b, on="k"), on="k").at_ends(total=g.sum("v")),
    "one at a time": lambda a, b: a.within(a.until(b, on="k", one_per="k"), on="k").at_ends(n=g.count()),
    "ended by the clock": lambda a, b: b.within(a.until(after="5s"), on="k").at_ends(total=g.sum("v")),
    "one at a time by the clock": lambda a, b: b.within(a.until(after="5s", one_per="k"), on="k").at_ends(n=g.count()),
}


@pytest.mark.parametrize("name", STRETCHES)
@given(st.integers(0, 999))
@by_default(2)
def test_stretches_of_two_streams_by_key(name: str, seed: int) -> None:
    epochs = _epochs(seed)
    streams = [g.events(each, start="at", unit="s", name=of) for of, each in _whole(epochs).items()]
    made = STRETCHES[name](*g.arrivals(*streams, order="seq"))
    query = made.select(*(each for each in made.schema.names if each not in {"turn", "instance"}))
    assert partitioning(query._node, query._node.all(Source)).alone is None
    found, answer = _partitioned(query, query._node.all(Source), epochs), query.collect()
    assert rows(found) == rows(answer)


@pytest.mark.parametrize(
    ("text", "shown", "why"),
    [
        ("select k, v from A", "all", "The column turn, which counts the events of all keys"),
        ("select k, v from A#length(3)", "", "The window last 3"),
        (
            "create context C partition by k from A; context C select context.id as id, v from A",
            "",
            "The number of an instance of a context, which counts those of all keys,",
        ),
        ("select sum(v) as s from A", "", "An aggregate over all events"),
    ],
)
def test_what_needs_one_order_names_why(text: str, shown: str, why: str) -> None:
    query = _asked(text, {"A": _drawn(1, 3, 0)}, shown)
    parts = partitioning(query._node, query._node.all(Source))
    assert parts.on_turns
    assert (parts.alone or "").startswith(why)
    assert f"one partition, on request (partitions=1): {why}" in parts.shown


#          0        10        20        30
# epoch 0  a  b  a  |         |         |         the numbers say in which order events of one second come
# epoch 1           a  b      |         |
# epoch 2           |         b a  a    |
ROWS: list[Epoch] = [
    [(1, 2, "a", 5), (1, 1, "b", 3), (6, 3, "a", 1)],
    [(10, 4, "a", 2), (14, 5, "b", 9)],
    [(21, 8, "a", 4), (20, 6, "b", 7), (20, 7, "a", 8)],
]

TEXTS: dict[str, tuple[int, Callable[[g.Stream], g.Stream]]] = {
    "EPL in one partition": (
        1,
        lambda s: epl.query("select irstream sum(price) as v from E#time(7 sec)", E=s, order="till", until=60_000),
    ),
    "EPL by key": (
        2,
        lambda s: epl.query(
            "select irstream item, sum(price) as v from E#groupwin(item)#length(2) group by item", E=s, order="till"
        ).select("row", "item", "v"),
    ),
    "EPL with a clock by key": (
        2,
        lambda s: epl.query(
            "select irstream item, sum(price) as v from E#time(7 sec) group by item", E=s, order="till", until=60_000
        ).select("row", "item", "v"),
    ),
    "a context in one partition": (
        1,
        lambda s: epl.query(
            "create context C partition by item from E;"
            " context C select irstream item, context.id as id, sum(price) as v from E#time(7 sec)",
            E=s,
            order="till",
        ),
    ),
    "RQL in one partition": (
        1,
        lambda s: rql.query(
            "select item, n from E (partition by item store last 5 seconds with count(item) as n) as t "
            "where t.$row_status is new",
            E=s,
            order="till",
        ),
    ),
}


def test_a_clock_by_key_stops_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Windows of time by key in partitions, started anew for each epoch; late rows are dropped, and move nothing."""
    draw = random.Random(5)
    starts = [[max(0, 12 * epoch + draw.randrange(-9, 12)) for _ in range(9)] for epoch in range(4)]
    pieces: list[Epoch] = [
        [(at, at + 1, draw.choice("abc"), 100 * epoch + n) for n, at in enumerate(each)]
        for epoch, each in enumerate(starts)
    ]

    def ask(stream: g.Stream) -> g.Stream:
        text = "select irstream item, count(*) as n from E#time(7 sec) group by item"
        return epl.query(text, E=stream, order="price", until=90_000).select("row", "item", "n")

    (tmp_path / "in").mkdir()
    far = g.events(read(spark, tmp_path / "in"), start="at", end="till", unit="s")
    query = ask(far.advance_time("1s", delay="5s", late="drop"))
    assert "partitions by item, each shown all moves of the clock" in query.explain()
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    for count in range(1, len(pieces) + 1):
        drive(query, pieces[:count], **where, partitions=3)
    finish(query, **where)
    taken, missed = admitted(pieces, every=1, delay=5, late="drop")
    assert missed
    same(g.epochs(tmp_path / "out").read(), ask(g.events(written(taken), start="at", end="till", unit="s")).collect())


@pytest.mark.services
@pytest.mark.parametrize("name", TEXTS)
def test_texts_run_over_streams_of_spark(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for number, epoch in enumerate(ROWS):
        put(tmp_path / "in", number, epoch)
    partitions, ask = TEXTS[name]
    far = g.events(read(spark, tmp_path / "in"), start="at", unit="s").advance_time("1s", delay="5s", late="raise")
    query = ask(far)
    where: dict[str, Any] = {"into": tmp_path / "out", "checkpoint": tmp_path / "checkpoint"}
    run(query, **where, partitions=partitions)
    query.end_on_spark(**where)
    near = ask(g.events(written([row for epoch in ROWS for row in epoch]), start="at", unit="s")).collect()
    assert len(near) > 5
    same(g.epochs(tmp_path / "out").read(), near)
