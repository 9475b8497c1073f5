"""Verbs of what happens at each arrival: they give what their twins in EPL give, in any cut, on any device."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.api.arrivals import ArrivalStream
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, TimeError
from tests.support.examples import examples
from tests.support.ticks import at_us

Ask = Callable[[ArrivalStream], g.Stream]

_TWINS: Mapping[str, Ask] = {
    "select k, v * 2 as w from A where v > 1": lambda a: a.deliveries("k", w=g.col("v") * 2, where=g.col("v") > 1),
    "select * from A(v > 1)": lambda a: a.filter(g.col("v") > 1).deliveries(),
    "select irstream seq, v from A#length(2)": lambda a: a.last(2).deliveries("seq", "v", shown="both"),
    "select rstream seq from A#time(2 sec)": lambda a: a.last_span("2s").deliveries("seq", shown="old"),
    "select irstream seq from A#length_batch(2)": lambda a: a.batches(2).deliveries("seq", shown="both"),
    "select irstream seq from A#time_batch(2 sec)": lambda a: a.time_batches("2s").deliveries("seq", shown="both"),
    "select irstream seq from A#time_length_batch(2 sec, 2)": lambda a: a.time_length_batches("2s", 2).deliveries(
        "seq", shown="both"
    ),
    "select irstream seq from A#time_accum(1500 msec)": lambda a: a.session("1500ms").deliveries("seq", shown="both"),
    "select irstream seq from A#unique(k)": lambda a: a.unique("k").deliveries("seq", shown="both"),
    "select seq from A#firstunique(k)": lambda a: a.first_unique("k").deliveries("seq"),
    "select seq from A#firstlength(3)": lambda a: a.first(3).deliveries("seq"),
    "select irstream seq from A#groupwin(k)#length(1)": lambda a: a.by("k").last(1).deliveries("seq", shown="both"),
    "select irstream sum(v) as s, count(*) as n from A#length(2)": lambda a: a.last(2).deliveries(
        s=g.sum("v"), n=g.count(), shown="both"
    ),
    "select irstream seq, max(v) as m, last(v) as l from A#time(2 sec)": lambda a: a.last_span("2s").deliveries(
        "seq", m=g.max("v"), l=g.last("v"), shown="both"
    ),
    "select irstream k, avg(v) as m from A#time(2 sec) group by k order by k": lambda a: a.last_span("2s").deliveries(
        "k", m=g.mean("v"), by="k", shown="both", order_by="k"
    ),
    "select irstream k, seq, sum(v) as s from A#length(3) group by k": lambda a: a.last(3).deliveries(
        "k", "seq", s=g.sum("v"), by="k", shown="both"
    ),
    "select sum(v) + count(*) as s from A#keepall having sum(v) + count(*) > 4": lambda a: a.keep_all().deliveries(
        s=g.sum("v") + g.count(), having=g.col("s") > 4
    ),
    "select distinct k from A#length_batch(3) order by k desc limit 2": lambda a: a.batches(3).deliveries(
        "k", distinct=True, order_by="k", descending=True, limit=2
    ),
    "select k, count(*) as n from A group by k output last every 2 sec order by k": lambda a: a.deliveries(
        "k", n=g.count(), by="k", order_by="k"
    ).output("last", every="2s"),
    "select k, seq, sum(v) as s from A#length(3) group by k output all every 3 events order by k, seq": lambda a: (
        a.last(3).deliveries("k", "seq", s=g.sum("v"), by="k", order_by=["k", "seq"]).output("all", every=3)
    ),
    "select k, seq from A group by k output first every 2 sec": lambda a: a.deliveries("k", "seq", by="k").output(
        "first", every="2s"
    ),
    "select k, sum(v) as s from A#time(3 sec) group by k output snapshot every 1 sec order by k": lambda a: (
        a.last_span("3s").deliveries("k", s=g.sum("v"), by="k", order_by="k").output("snapshot", every="1s")
    ),
    "select sum(v) as s from A having sum(v) > 3 output after 2 sec every 1 sec": lambda a: a.deliveries(
        s=g.sum("v"), having=g.col("s") > 3
    ).output(every="1s", after="2s"),
    "select seq from A output after 2 events last every 2 events": lambda a: a.deliveries("seq").output(
        "last", every=2, after=2
    ),
    "select irstream a.seq as seq, b.seq as c from A#length(2) as a, A#time(2 sec) as b where a.v = b.v": lambda a: (
        a.last(2).join(a.last_span("2s"), on="v", suffix="_b").deliveries("seq", c="seq_b", shown="both")
    ),
}
"""Texts, and the same by verbs."""

_COLUMNS = pa.schema([("at", pa.int64()), ("seq", pa.int64()), ("k", pa.string()), ("v", pa.int32())])


@st.composite
def _events(draw: st.DrawFn) -> pa.Table:
    """Some events, of which many come at once."""
    rows, now = [], 0
    steps = st.tuples(st.sampled_from([0, 0, 250, 500, 1000, 3000]), st.sampled_from("abc"), st.integers(0, 3))
    for seq, (wait, key, value) in enumerate(draw(st.lists(steps, min_size=3, max_size=14))):
        now += wait
        rows.append({"at": now, "seq": seq, "k": key, "v": value})
    return pa.Table.from_pylist(rows, _COLUMNS)


def _rows(answer: pa.Table, text: str) -> list[Mapping[str, Any]]:
    """The rows; those of a join have no order within a delivery."""
    rows: list[Mapping[str, Any]] = answer.drop_columns(["start", "end"]).to_pylist()
    return sorted(rows, key=lambda row: tuple(row.values())) if " as b " in text else rows


def _asked(events: pa.Table, ask: Ask) -> g.Stream:
    stream = g.events(events, start="at", unit="ms", name="A")
    return ask(g.arrivals(stream, order="seq", start=at_us(0), until=at_us(20_000_000)))


@pytest.mark.parametrize("text", _TWINS)
@given(events=_events())
@examples(3, derandomize=True)
def test_verbs_give_what_their_twins_in_epl_give(text: str, events: pa.Table) -> None:
    stream = g.events(events, start="at", unit="ms")
    wanted = epl.query(text, A=stream, order="seq", until=20_000).collect()
    assert _rows(_asked(events, _TWINS[text]).collect(device="cpu"), text) == _rows(wanted, text)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.sampled_from(sorted(_TWINS)), _events(), st.integers(0, 1 << 30))
@examples(15, dear=True)
def test_they_give_the_same_live_in_any_cut(device: str, text: str, events: pa.Table, seed: int) -> None:
    chance, query = random.Random(seed), _asked(events, _TWINS[text])
    live, found, at = query.start(device=device), list[pa.Table](), 0
    while at < events.num_rows:
        some = events.slice(at, size := chance.randrange(1, 5))
        at += size
        live.push(some.take(pa.array(chance.sample(range(some.num_rows), some.num_rows), pa.int64())))
        if chance.random() < 0.6:
            live.advance(at_us(min(events["at"].to_pylist()[at:], default=15_000) * 1000))
        found.append(live.results())
    live.close()
    found.append(live.results())
    assert _rows(pa.concat_tables(found), text) == _rows(query.collect(device="cpu"), text)


# What users see


def _stream(**columns: Any) -> g.Stream:
    return g.events(pa.table({"at": [0, 1, 2], "v": [1, 2, 3], **columns}), start="at", unit="s")


def test_a_row_per_key_at_most_every_ten_seconds() -> None:
    """a0 a4 b5 a9 a12: the rows of a that come within ten seconds of one that was shown are left out."""
    seen = pa.table({"at": [0, 4, 5, 9, 12], "k": ["a", "a", "b", "a", "a"]})
    quiet = g.arrivals(g.events(seen, start="at", unit="s")).deliveries("k", by="k").output("first", every="10s")
    assert [(row["start"].second, row["k"]) for row in quiet.collect().to_pylist()] == [(0, "a"), (5, "b"), (12, "a")]


def test_two_streams_share_a_clock() -> None:
    """The second event of the other stream makes the first one's row leave."""
    other = g.events(pa.table({"at": [1, 30], "w": [7, 8]}), start="at", unit="s")
    one, two = g.arrivals(_stream(), other)
    left = one.last_span("10s").deliveries("v", shown="old").collect()
    assert [row["start"].second for row in left.to_pylist()] == [30, 30, 30]
    assert two.deliveries(n=g.count()).collect()["n"].to_pylist() == [1, 2]
    outer = one.last(1).join(two.last(1), how="full").deliveries("v", "w").collect()
    assert [(row["v"], row["w"]) for row in outer.to_pylist()] == [(1, None), (2, None), (2, 7), (3, 7), (3, 8)]


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (g.arrivals, PlanError, "takes streams"),
        (lambda: g.arrivals(_stream(), order="nr"), ColumnError, "'nr'"),
        (lambda: g.arrivals(_stream()).deliveries("w"), GpuOpsError, "w"),
        (lambda: g.arrivals(_stream()).deliveries(g.col("start")), PlanError, "no lifetimes"),
        (lambda: g.arrivals(_stream()).deliveries(s=g.sum(g.col("end") - g.col("start"))), PlanError, "no lifetimes"),
        (lambda: g.arrivals(_stream()).deliveries("v", v=g.sum("v")), ColumnError, "'v'"),
        (lambda: g.arrivals(_stream()).deliveries(turn=g.col("v")), ColumnError, "turn"),
        (lambda: g.arrivals(_stream()).deliveries("v", order_by="w"), ColumnError, "'w'"),
        (lambda: g.arrivals(_stream()).deliveries("v").output(), PlanError, "every="),
        (lambda: g.arrivals(_stream()).deliveries("v").output(every="1s", after="1s"), PlanError, "start="),
        (lambda: g.arrivals(_stream()).batches(2).deliveries("v").output("snapshot", every=2), PlanError, "snapshot"),
        (lambda: g.arrivals(_stream()).last(1).join(g.arrivals(_stream()).last(1)), PlanError, "one clock"),
        (lambda: g.arrivals(_stream(k=["a", "b", "c"])).last(1).deliveries("k", by="z"), ColumnError, "'z'"),
    ],
)
def test_what_cannot_be_asked_is_an_error_at_once(ask: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ask()


@pytest.mark.parametrize(
    "ask",
    [
        lambda a: a.by("kk"),
        lambda a: a.deliveries("k", by="kk"),
        lambda a: a.until(a, on="kk"),
        lambda a: a.until(a, one_per="kk"),
        lambda a: a.match(g.row("x", g.col("kk") > 1), {"k": g.row("x")["k"]}),
        lambda a: g.pattern(g.every("a", a) >> g.one("b", a, on="kk")),
        lambda a: g.pattern(g.every("a", a) >> g.one("b", a, g.col("a.kk") > 1)),
    ],
)
def test_an_unknown_column_is_told_beside_those_that_a_user_knows(ask: Ask) -> None:
    with pytest.raises(ColumnError, match=r"The (left )?(stream|pattern|step) has no such column.*kk") as told:
        ask(g.arrivals(_stream(k=[1, 2, 3])))
    assert "@" not in str(told.value)


def test_events_before_the_clock_are_an_error() -> None:
    with pytest.raises(TimeError, match="before the clock"):
        g.arrivals(_stream(), start=at_us(5)).deliveries("v").collect()


_TIMES = st.lists(st.integers(0, 3), max_size=5).map(sorted)


@examples(25, dear=True)
@given(st.tuples(_TIMES, _TIMES, _TIMES), st.integers(0, 1 << 30), st.sampled_from(["cpu", "array"]))
def test_several_streams_come_by_time_then_by_their_numbers_then_by_stream(
    times: tuple[list[int], ...], seed: int, device: str
) -> None:
    # at        0        1
    # stream 0  seq 4    seq 1
    # stream 1  seq 2    seq 1         in turn, as stream/seq: 1/2, 0/4, 0/1, 1/1
    chance, rows = random.Random(seed), []
    for stream, each in enumerate(times):
        numbers = chance.sample(range(8), len(each))
        rows += [(at, number, stream) for at, number in zip(each, numbers, strict=True)]
    tables = []
    for stream in range(3):
        own = sorted((row for row in rows if row[2] == stream), key=lambda row: row[0])
        tables.append(pa.table({"at": pa.array([row[0] for row in own], pa.int64()), "seq": [row[1] for row in own]}))
    schema = pa.schema([("at", pa.int64()), ("seq", pa.int64())])
    found = []
    streams = [g.events(each.cast(schema), start="at", unit="s") for each in tables]
    for stream, each in enumerate(g.arrivals(*streams, order="seq")):
        made = each.deliveries("seq").collect(device=device)
        found += [(row["turn"], row["seq"], stream) for row in made.to_pylist()]
    assert [row[1:] for row in sorted(found)] == [row[1:] for row in sorted(rows)]


@pytest.mark.parametrize(
    ("times", "seqs", "cut"),
    [
        ([5, 5, 7], [2, 1, 3], 3),
        ([5, 5, 7], [2, 1, 3], 1),
        ([7, 5, 5], [3, 2, 1], 3),
        ([7, 5, 6], [3, 1, 2], 2),
        ([5, 6, 7], [1, 2, 3], 2),
    ],
)
def test_rows_come_in_the_order_of_their_times_and_numbers_however_they_were_pushed(
    times: list[int], seqs: list[int], cut: int, device_name: str
) -> None:
    """Each row of a push after the one in front of it, some of one time, some out of order: 1, 2, 3 in any case."""
    rows = pa.table({"t": times, "seq": seqs})
    live = g.arrivals(g.events(rows.slice(0, 0), start="t", unit="s"), order="seq").deliveries("seq")
    with live.start(device=device_name) as running:
        running.push(rows.slice(0, cut))
        running.push(rows.slice(cut))
    assert running.results()["seq"].to_pylist() == [1, 2, 3]
