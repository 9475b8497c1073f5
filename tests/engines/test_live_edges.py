"""Edges in running queries of several branches: each path gets as much as it can take, as early as it can take it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import GpuOpsError
from tests.support import branches
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import EDGES, edge, sessions, told
from tests.support.rows import rows
from tests.support.ticks import at_us


@examples(dear=True)
@given(st.integers(0, 1 << 40), st.sampled_from(HERE))
def test_edges_under_several_branches_are_what_a_batch_gives(
    tmp_path_factory: pytest.TempPathFactory, seed: int, device: str
) -> None:
    chance = random.Random(seed)
    asked = branches.Asked(chance)
    try:
        expected = asked.query(asked.tables).collect(device=device)
    except GpuOpsError:
        return
    live, found = asked.live().start(device=device), list[pa.Table]()
    left = {name: table for name, table in asked.tables.items() if name in live.input_ctis()}
    promised = live.cti
    while any(table.num_rows for table in left.values()):
        name = chance.choice([name for name, table in left.items() if table.num_rows])
        size = chance.randrange(1, 6)
        live.push(left[name].slice(0, size), input=name)
        left[name] = left[name].slice(size)
        if asked.settings[name] is None and chance.random() < 0.7:
            live.advance(at_us(chance.randrange(-5, 1 + min(branches.times(left[name]), default=100))), input=name)
        found.append(live.results())
        assert all(start >= promised for start in found[-1]["start"].cast(pa.int64()).to_pylist())
        promised = live.cti
        if chance.random() < 0.2:
            path = tmp_path_factory.mktemp("edges") / "checkpoint"
            live.checkpoint(path)
            live = g.restore(path, asked.live(), device=device)
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(expected)
    assert (live.status().cti_out, live.status().alive) == (MAX_TIME, 0)


def named(name: str) -> g.Stream:
    return g.events(EDGES.empty_table(), start="at", end="until", unit="us", shape="edge", edge="kind", name=name)


A = [edge("start", 2, None, "a"), edge("start", 4, None, "b")]
ENDS = [edge("end", 4, 9, "b"), edge("end", 2, 30, "a")]


def over(query: g.Stream, *steps: tuple[list[dict[str, Any]], int]) -> tuple[RunningQuery, list[list[tuple[Any, ...]]]]:
    """What each step gives: rows, and the CTI behind them."""
    live = query.start(device="cpu")
    given_rows = []
    for pushed, cti in steps:
        if pushed:
            live.push(pushed)
        live.advance(at_us(cti))
        given_rows.append(sorted(told(live.results())))
    return live, given_rows


def test_a_join_of_edges_with_their_beginnings() -> None:
    # a  2|============…======|30     as beginnings  2|==|5
    # b     4|=====|9                                   4|==|7    A pair is known once the whole event is.
    s = sessions()
    query = s.join(s.set_duration("3us"), on="who")
    live, found = over(query, (A, 8), (ENDS[:1], 10), (ENDS[1:], 40))
    assert found == [[], [], [(2, 5, "a"), (4, 7, "b")]]
    whole = g.events(
        pa.Table.from_pylist(A + ENDS, schema=EDGES), start="at", end="until", unit="us", shape="edge", edge="kind"
    )
    assert whole.join(whole.set_duration("3us"), on="who").collect().num_rows == 2
    assert (live.status().alive, live.cti) == (0, 40)


def test_a_union_gives_the_branch_early_that_needs_no_end() -> None:
    s = sessions()
    live, found = over(s.union(s.set_duration("3us")), (A, 8), (ENDS[:1], 10), (ENDS[1:], 40))
    # The beginnings as soon as the CTI has passed the starts; the whole events when they have ended.
    assert found == [[(2, 5, "a"), (4, 7, "b")], [(4, 9, "b")], [(2, 30, "a")]]
    live, found = over(s.union(s.set_duration("3us")), (A, 8), (ENDS[:1], 10))
    assert live.cti == 2  # held back at the oldest that is open


def test_a_snapshot_over_a_union_counts_open_edges() -> None:
    # a         2|=======…         a for 3     2|==|5
    # b            4|====|9        b for 3        4|==|7
    s = sessions()
    _, found = over(
        s.union(s.set_duration("3us")).snapshot().agg(n=g.count()), (A, 6), (ENDS[:1], 8), ([], 10), ([], 20)
    )
    assert found == [[(2, 4, 2), (4, 5, 4)], [(5, 7, 3)], [(7, 9, 2)], []]


def test_a_union_of_two_inputs_counts_open_edges_of_both() -> None:
    live = named("left").union(named("right")).snapshot().agg(n=g.count()).start(device="cpu")
    live.push([edge("start", 2, None, "a")], input="left")
    live.push([edge("start", 5, None, "b")], input="right")
    live.advance(at_us(20), input="left")
    assert (told(live.results()), live.cti) == ([], -62135596800000000)  # nothing is known of the right one
    live.advance(at_us(8), input="right")
    assert (told(live.results()), live.cti) == ([(2, 5, 1)], 5)
    # It ended before the other input said that it had begun.
    live.push([edge("end", 2, 30, "a"), edge("start", 25, None, "c"), edge("end", 25, 40, "c")], input="left")
    live.advance(at_us(50), input="left")
    live.advance(at_us(28), input="right")
    assert (told(live.results()), live.cti) == ([(5, 25, 2)], 25)
    live.advance(at_us(45), input="right")
    assert told(live.results()) == [(25, 30, 3), (30, 40, 2)]


def test_a_branch_that_reads_the_end_holds_back_no_other() -> None:
    s = sessions()
    long = s.filter(g.col("end") > g.col("start")).snapshot().agg(n=g.count())
    early = s.snapshot().agg(n=g.count())
    _, found = over(long.union(early), (A, 6), (ENDS, 40))
    assert found == [[(2, 4, 1)], [(2, 4, 1), (4, 9, 2), (4, 9, 2), (9, 30, 1), (9, 30, 1)]]


def test_windows_over_windows_of_open_edges() -> None:
    s = sessions()
    # A filter between, and a window again: 2|=1=|4|=2=|9|=1=|30
    query = s.snapshot().agg(n=g.count()).filter(g.col("n") > 1).tumbling("5us", align=at_us(0)).agg(most=g.max("n"))
    _, found = over(query, (A, 6), (ENDS[:1], 10), (ENDS[1:], 31))
    # From 9 on somebody is alive, and nobody knows yet until when: so [5, 10) is not over either.
    assert found == [[], [(0, 5, 2)], [(5, 10, 2)]]


@pytest.mark.parametrize(
    ("query", "early"),
    [
        (lambda s: s.hop_lifetime("4us", "4us", align=at_us(0)), [(4, 8, "a"), (4, 8, "b")]),
        (lambda s: s.hopping("4us", "4us", align=at_us(0), membership="start").agg(last=g.max("who")), [(4, 8, "b")]),
        (lambda s: s.repeat(g.lit(2)).snapshot().agg(n=g.count()), [(2, 4, 2)]),
    ],
    ids=["hop_lifetime", "by start", "repeat"],
)
def test_what_comes_before_any_end_is_known(query: Any, early: list[Any]) -> None:
    _, found = over(query(sessions()), (A, 8))
    assert found == [early]


def test_a_right_start_clips_before_its_own_end_is_known() -> None:
    # tasks   0|=============|50        bells (edges)  5|====…
    tasks = g.events(pa.table({"at": [0], "until": [50]}).slice(0, 0), start="at", end="until", unit="us", name="tasks")
    live = tasks.clip_by(named("bells")).start(device="cpu")
    live.push({"at": [0], "until": [50]}, input="tasks")
    live.push([edge("start", 5, None, "bell")], input="bells")
    live.advance(at_us(7), input="tasks")
    live.advance(at_us(7), input="bells")
    assert told(live.results().select(["start", "end"])) == [(0, 5)]


def test_plans_of_one_view_and_of_two_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    s = sessions()
    query = s.union(s.set_duration("3us"))
    live = query.start(device="cpu")
    live.push(A)
    live.advance(at_us(8))
    live.checkpoint(tmp_path / "c")
    again = g.restore(tmp_path / "c", query, device="cpu")
    for each in (live, again):
        each.push(ENDS[:1])
    assert sorted(told(live.results())) == sorted(told(again.results()))
    assert live.state().keys() == again.state().keys()
    # Without a CTI more is promised once the oldest has ended, and given.
    again.push(ENDS[1:])
    assert (told(again.results()), again.cti) == ([(2, 30, "a")], 8)
