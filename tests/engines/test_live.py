"""Running queries: whatever comes in whichever way, what comes out is what a batch gives, and it never changes."""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import compute

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import choose
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import ColumnError, PlanError, SourceError, TimeError
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows.pareto_runs import ParetoRuns
from tests.support.cuts import in_some_order, remembered
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import (
    UTC,
    Query,
    edge,
    events,
    plan_of,
    plans,
    sessions,
    source,
    table,
    told,
    values,
)
from tests.support.rows import rows
from tests.support.ticks import at_us, us


def pushed(live: RunningQuery, found: list[pa.Table], rest: pa.Table, chance: random.Random) -> None:
    """In pieces of any size, with CTIs anywhere that the events which are to come allow."""
    starts = rest["start"].cast(pa.int64()).to_pylist()
    at = 0
    while at < rest.num_rows:
        size = chance.randrange(1, 8)
        live.push(rest.slice(at, size))
        at += size
        if chance.random() < 0.6:
            live.advance(at_us(chance.randrange(-5, 1 + min(starts[at:], default=100))))
        if chance.random() < 0.5:
            found.append(live.results())


@examples(dear=True)
@given(plans, events, st.randoms(use_true_random=False), st.sampled_from(HERE))
def test_live_is_batch(names: list[str], given_events: list[Any], chance: random.Random, device: str) -> None:
    query = plan_of(names)
    try:
        stream = query(source(in_some_order(table(given_events), chance)))
        expected = stream.collect(device=device)
    except (TimeError, ColumnError):
        return
    live, found = stream.start(device=device), list[pa.Table]()
    pushed(live, found, in_some_order(table(given_events), chance), chance)
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(expected)
    assert live.status().cti_out == MAX_TIME
    assert live.status().alive == 0


ENTRANCES = st.fixed_dictionaries(
    {
        "every": st.integers(1, 5) | st.sampled_from(["3us", "20us"]),
        "delay": st.sampled_from([0, "-1us", "3us", "10us"]),
        "late": st.sampled_from(["drop", "adjust", "divert"]),
    },
    optional={"reorder": st.sampled_from([0, "4us", "30us"]), "final": st.just(True)},
)


@examples(dear=True)
@given(plans, events, ENTRANCES, st.randoms(use_true_random=False), st.sampled_from(HERE))
def test_late_events_meet_the_same_fate_in_any_cut(
    names: list[str], given_events: list[Any], entrance: dict[str, Any], chance: random.Random, device: str
) -> None:
    arrived = in_some_order(table(given_events), chance)
    let_in = source(arrived).advance_time(entrance.pop("every"), **entrance)
    for stream in (plan_of(names)(let_in), *([let_in.late()] if entrance["late"] == "divert" else [])):
        try:
            expected = stream.collect(device=device)
        except (TimeError, ColumnError):
            continue
        live, at, found = stream.start(device=device), 0, list[pa.Table]()
        while at < arrived.num_rows:
            size = chance.randrange(1, 8)
            live.push(arrived.slice(at, size))
            at += size
            found.append(live.results())
        live.close()
        found.append(live.results())
        assert rows(pa.concat_tables(found)) == rows(expected)
        assert {fate: count for fate, count in live.status().late.items() if count} == stream.report().late


@examples(dear=True)
@given(plans, events, st.randoms(use_true_random=False), st.sampled_from(HERE))
def test_a_checkpoint_anywhere_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    given_events: list[Any],
    chance: random.Random,
    device: str,
) -> None:
    query = plan_of(names)
    arrived = in_some_order(table(given_events), chance)
    cut = chance.randrange(0, arrived.num_rows + 1)
    try:
        stream = query(source(arrived))
        expected = stream.collect(device=device)
    except (TimeError, ColumnError):
        return
    live, found = stream.start(device=device), list[pa.Table]()
    pushed(live, found, arrived.slice(0, cut), random.Random(0) if cut == arrived.num_rows else _patient(chance))
    path = tmp_path_factory.mktemp("live") / "checkpoint"
    live.checkpoint(path)
    again = g.restore(path, query(source(arrived.slice(0, 0))), device=device)
    assert remembered(again) == remembered(live)
    pushed(again, found, arrived.slice(cut), chance)
    again.close()
    found.append(again.results())
    assert rows(pa.concat_tables(found)) == rows(expected)


def _patient(chance: random.Random) -> random.Random:
    """CTIs that no later event can be before."""
    made = random.Random(chance.random())
    made.randrange = lambda low, high=None, step=1: 0 if low == -5 else random.Random.randrange(made, low, high, step)  # type: ignore[method-assign, assignment]
    return made


# By hand

TASKS = pa.schema([("at", pa.int64()), ("until", pa.int64()), ("who", pa.string())])


def tasks() -> g.Stream:
    return g.events(TASKS.empty_table(), start="at", end="until", unit="us")


def alive() -> g.Stream:
    return tasks().snapshot().agg(n=g.count())


def test_a_snapshot_is_given_once_its_end_is_certain() -> None:
    # a 2|======|9        CTI 4: [2, 4) has no end yet, since another task may start at 4 or later … or not before 9
    # b    4|==|7
    live = alive().start(device="cpu")
    live.push({"at": [2, 4], "until": [9, 7], "who": ["a", "b"]})
    assert told(live.results()) == []
    live.advance(at_us(4))
    assert told(live.results()) == [(2, 4, 1)]  # the boundary at 4 is there
    assert live.status().cti_out == 4
    live.advance(at_us(6))
    assert told(live.results()) == []
    assert live.status().cti_out == 4  # what begins at 4 is not given yet
    live.advance(at_us(7))
    assert told(live.results()) == [(4, 7, 2)]
    live.push({"at": [8], "until": [9], "who": ["c"]})
    live.close()
    assert told(live.results()) == [(7, 8, 1), (8, 9, 2)]
    assert live.status().cti_out == MAX_TIME


def test_a_hopping_window_is_given_once_it_is_over() -> None:
    # windows   0|=====|10
    #              5|=====|15      CTI 9: none is over; CTI 10: the first
    live = tasks().hopping("10us", "5us", align=at_us(0), output="point").agg(n=g.count()).start(device="cpu")
    live.push({"at": [6], "until": [7], "who": ["a"]})
    live.advance(at_us(9))
    assert told(live.results()) == []
    live.advance(at_us(10))
    assert told(live.results()) == [(10, 11, 1)]
    live.advance(at_us(14))
    assert (told(live.results()), live.status().cti_out) == ([], 14)
    live.advance(at_us(15))
    assert told(live.results()) == [(15, 16, 1)]
    windows = tasks().hopping("10us", "5us", align=at_us(0)).agg(n=g.count()).start(device="cpu")
    windows.advance(at_us(9))
    assert windows.status().cti_out == 0  # the window [0, 10) may still get events
    windows.advance(at_us(11))
    assert windows.status().cti_out == 5


def test_a_first_null_after_events_that_are_still_alive() -> None:
    # four of 5  0|====|4   null  1|======|6      At 4 those alone end that came before there was any null.
    events = pa.table({"at": [0, 0, 0, 0, 1], "until": [4, 4, 4, 4, 6], "v": [5, 5, 5, 5, None]})
    stream = g.events(events, start="at", end="until", unit="us").snapshot().agg(t=g.sum("v"), c=g.count("v"))
    live = stream.start(device="cpu")
    for piece, cti in ((events.slice(0, 4), 1), (events.slice(4), 2)):
        live.push(piece)
        live.advance(at_us(cti))
    live.advance(at_us(5))
    live.close()
    assert told(live.results()) == [(0, 1, 20, 4), (1, 4, 20, 4), (4, 6, None, 0)]


def test_what_needs_no_waiting_is_given_at_once() -> None:
    live = tasks().filter(g.col("who") == "a").shift("5us").start(device="cpu")
    live.push({"at": [2, 4], "until": [9, 7], "who": ["a", "b"]})
    assert told(live.results()) == [(7, 14, "a")]
    live.advance(at_us(3))
    assert live.status().cti_out == 8


def test_a_new_start_that_goes_back_is_an_error() -> None:
    day = g.lit(datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC))
    epoch = g.lit(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
    second = g.lit(datetime.timedelta(seconds=1))
    turned = tasks().alter_lifetime(start=day - (g.col("start") - epoch), duration=us(second))
    live = turned.start(device="cpu")
    live.advance(at_us(10))
    with pytest.raises(TimeError, match="moves a start before the CTI"):
        live.push({"at": [20], "until": [30], "who": ["a"]})


def test_an_event_before_the_cti_is_an_error_that_names_it_and_nothing_is_taken_in() -> None:
    live = alive().start(device="cpu")
    live.advance(at_us(5))
    with pytest.raises(TimeError) as raised:
        live.push({"at": [6, 3], "until": [9, 7], "who": ["a", "b"]})
    assert "CTI" in str(raised.value)
    assert raised.value.row == 1


def test_pushed_data_of_any_kind() -> None:
    import polars as pl

    batches: list[Any] = [
        {"at": [1], "until": [2], "who": ["a"]},
        [{"at": 1, "until": 2, "who": "a"}],
        pa.table({"at": [1], "until": [2], "who": ["a"], "more": [3]}),
        pa.record_batch({"at": [1], "until": [2], "who": ["a"]}),
        pl.DataFrame({"at": [1], "until": [2], "who": ["a"]}),
        pa.table({"at": pa.array([1], pa.int16()), "until": [2], "who": pa.array(["a"], pa.large_string())}),
    ]
    live = tasks().start(device="cpu")
    for batch in batches:
        live.push(batch)
        assert told(live.results()) == [(1, 2, "a")]


def test_pushed_data_that_does_not_fit() -> None:
    live = tasks().start(device="cpu")
    with pytest.raises(ColumnError, match="until"):
        live.push({"at": [1], "untill": [2], "who": ["a"]})
    with pytest.raises(ColumnError, match="int64"):
        live.push({"at": ["one"], "until": [2], "who": ["a"]})
    with pytest.raises(TimeError, match="end"):
        live.push({"at": [4], "until": [2], "who": ["a"]})
    for nonsense in (7, "events", [{"at": "one", "until": 2, "who": "a"}], [1, 2], {"at": [1], "until": 3}):
        with pytest.raises((SourceError, ColumnError)):
            live.push(nonsense)
    assert live.status().events_in == 0


def test_a_closed_query_takes_nothing() -> None:
    live = alive().start(device="cpu")
    live.close()
    for call in (
        live.close,
        lambda: live.advance(at_us(1)),
        lambda: live.push({"at": [1], "until": [2], "who": ["a"]}),
    ):
        with pytest.raises(PlanError, match="closed"):
            call()


def test_results_by_callback_and_status() -> None:
    given_tables: list[pa.Table] = []
    with alive().start(device="cpu", on_results=given_tables.append) as live:
        live.push({"at": [2, 4], "until": [9, 7], "who": ["a", "b"]})
        live.advance(at_us(7))
        assert told(pa.concat_tables(given_tables)) == [(2, 4, 1), (4, 7, 2)]
        status = live.status()
        assert (status.events_in, status.events_out, status.alive, status.cti_in) == (2, 2, 1, 7)
        assert status.state_bytes > 0
        assert "2 events in, 2 results out, 1 alive" in repr(status)
        assert repr(live) == "<RunningQuery CTI 1970-01-01T00:00:00.000007Z>"
    assert told(given_tables[-1]) == [(7, 9, 1)]
    assert live.results().num_rows == 0
    assert repr(live) == "<RunningQuery closed, CTI infinity>"


def test_run_pushes_all_and_closes() -> None:
    batches = [{"at": [at], "until": [at + 5], "who": ["a"]} for at in range(0, 50, 2)]
    expected = g.events(pa.concat_tables([pa.table(batch) for batch in batches]), start="at", end="until", unit="us")
    live = alive().start(device="cpu")
    assert rows(pa.concat_tables(live.run(batches))) == rows(expected.snapshot().agg(n=g.count()).collect())
    own = expected.snapshot().agg(n=g.count())
    assert rows(pa.concat_tables(own.start(device="cpu").run())) == rows(own.collect())


def test_run_over_what_comes_asynchronously() -> None:
    async def arrivals() -> AsyncIterator[Any]:
        for at in (1, 2):
            await asyncio.sleep(0)
            yield {"at": [at], "until": [at + 5], "who": ["a"]}

    async def collected() -> list[pa.Table]:
        return [results async for results in alive().start(device="cpu").arun(arrivals())]

    assert told(pa.concat_tables(asyncio.run(collected()))) == [(1, 2, 1), (2, 6, 2), (6, 7, 1)]


def test_state_is_tables_with_names_and_types() -> None:
    stream = tasks().with_columns(v=g.lit(3)).by("who").snapshot().agg(n=g.count(), best=g.max("v"))
    live = stream.start(device="cpu")
    live.push({"at": [2, 4, 90], "until": [9, 7, 95], "who": ["a", "b", "a"]})
    live.advance(at_us(5))
    state = live.state()
    name = "4 Window snapshot agg n=count(), best=max(col(v))"
    of_window = {key.removeprefix(f"{name}/"): table for key, table in state.items() if key.startswith(name)}
    assert set(of_window) == {"groups", "clock", "waiting", "ending", "extreme/max/v/"}
    groups = of_window["groups"]
    assert groups["key/who"].to_pylist() == ["a", "b"]
    assert groups["last"].cast(pa.int64()).to_pylist() == [2, 4]
    assert groups["count///0"].to_pylist() == [1, 1]
    assert of_window["ending"].schema.field("high").type == UTC
    assert told(of_window["waiting"].select(["low", "high"]).rename_columns(["start", "end"])) == [(90, 95)]


@pytest.mark.parametrize("device", HERE)
def test_state_that_was_read_stays_what_it_was(device: str) -> None:
    # a  2 ├───────────┤ 90   the second changes the totals of its group in their place, after
    # a        8 ├─────┤ 90   the state was read
    live = tasks().by("who").snapshot().agg(n=g.count()).start(device=device)
    live.push({"at": [2], "until": [90], "who": ["a"]})
    live.advance(at_us(5))
    state = live.state()
    before = {name: table.to_pylist() for name, table in state.items()}
    live.push({"at": [8], "until": [90], "who": ["a"]})
    live.advance(at_us(20))
    assert live.state() != state
    assert {name: table.to_pylist() for name, table in state.items()} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [pa.array(range(20_000)), pa.array(range(0, 20_000 << 40, 1 << 40)), pa.array(map(str, range(20_000)))],
    ids=["narrow", "wide", "text"],
)
@pytest.mark.parametrize("verb", ["snapshot", "stitch"])
def test_groups_of_which_nothing_is_left_are_forgotten(key: pa.Array, verb: str) -> None:
    # Each lives for a while, and never comes back; every hundredth stays.
    ends = [at + (100_000 if at % 100 == 0 else 50) for at in range(20_000)]
    whole = pa.table({"at": range(20_000), "until": ends, "k": key})
    stream = g.events(whole, start="at", end="until", unit="us")
    stream = stream.by("k").snapshot().agg(n=g.count(), best=g.max("k")) if verb == "snapshot" else stream.stitch()
    live, found, most = stream.start(device="cpu"), list[pa.Table](), 0
    for at in range(0, 20_000, 500):
        live.push(whole.slice(at, 500))
        live.advance(at_us(at + 500))
        found.append(live.results())
        groups = next(table for name, table in live.state().items() if name.endswith("/groups"))
        most = max(most, groups.num_rows)
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(stream.collect(device="cpu"))
    assert most < 6000


@pytest.mark.slow
def test_steps_that_touch_few_of_many_groups() -> None:
    chance = random.Random(11)
    starts = sorted(chance.randrange(0, 30_000) for _ in range(4000))
    whole = pa.table(
        {
            "at": starts,
            "until": [at + chance.randrange(1, 20_000) for at in starts],
            "k": [chance.randrange(3000) for _ in starts],
            "v": [chance.randrange(-50, 50) for _ in starts],
        }
    )
    stream = g.events(whole, start="at", end="until", unit="us").by("k").snapshot()
    query = stream.agg(n=g.count(), t=g.sum("v"), best=g.max("v"), least=g.min("v"))
    live, found = query.start(device="cpu"), list[pa.Table]()
    for at in range(0, 4000, 20):
        live.push(whole.slice(at, 20))
        if at + 20 < 4000:
            live.advance(at_us(starts[at + 20]))
            known = live.state()
            groups = next(table for name, table in known.items() if name.endswith("/groups"))
            alive = groups.filter(compute.not_equal(groups["count///0"], 0))["last"].cast(pa.timestamp("us", "UTC"))
            assert live.status().cti_out == min(starts[at + 20], compute.min(alive.cast(pa.int64())).as_py())
        found.append(live.results())
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(query.collect(device="cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("device", HERE)
def test_extremes_of_any_kind_over_many_steps(tmp_path: Path, device: str) -> None:
    chance = random.Random(12)
    starts = sorted(chance.randrange(0, 2000) for _ in range(750))
    numbers = [chance.choice([None, chance.randrange(-50, 50)]) for _ in starts]
    whole = pa.table(
        {
            "at": starts,
            "until": [at + chance.choice([5, 50, 900]) + chance.randrange(1, 9) for at in starts],
            "k": [chance.choice("abc") for _ in starts],
            "v": pa.array(numbers, pa.int64()),
            "x": pa.array([None if each is None else each / 3 or float("nan") for each in numbers], pa.float64()),
            "u": pa.array([None if each is None else (each % 7) << 61 for each in numbers], pa.uint64()),
            "d": pa.array([None if each is None else each for each in numbers], pa.decimal128(30, 2)),
            "t": pa.array([None if each is None else str(each) for each in numbers], pa.string()),
        }
    )
    names = ["v", "x", "u", "d", "t"]
    greatest = {f"max_{name}": g.max(name) for name in names}
    least = {f"min_{name}": g.min(name, where=g.col("v") > -20) for name in names}
    source = g.events(whole, start="at", end="until", unit="us")
    for window in (source.by("k").snapshot(), source.hopping("20us", "30us"), source.sliding("100us")):
        query = window.agg(**greatest, **least)
        live, found, at = query.start(device=device), list[pa.Table](), 0
        while at < whole.num_rows:
            size = chance.choice([1, 9, 60])
            live.push(whole.slice(at, size))
            at += size
            live.advance(at_us(min(starts[at:], default=2000)))
            found.append(live.results())
            if chance.random() < 0.1:
                live.checkpoint(tmp_path / "c")
                known, live = live, g.restore(tmp_path / "c", query, device=device)
                assert remembered(live) == remembered(known)
        live.close()
        found.append(live.results())
        assert rows(pa.concat_tables(found)) == rows(query.collect(device=device))


@pytest.mark.slow
@pytest.mark.parametrize("value", ["v", "t"])
def test_an_extreme_reads_no_more_of_a_greater_state(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    # Values descend: each event can still become the greatest, once those before it have ended.
    read, handled = list[int](), [0]
    reach, take = ParetoRuns.reach, AxisRows.take

    def reached(*given: Any) -> AxisRows | None:
        found = reach(*given)
        read.append(0 if found is None else len(found))
        return found

    def taken(rows_there: AxisRows, indices: Any, device: Any) -> AxisRows:
        handled[0] += len(indices)
        return take(rows_there, indices, device)

    monkeypatch.setattr(ParetoRuns, "reach", reached)
    monkeypatch.setattr(AxisRows, "take", taken)
    cost = {}
    for alive in (200, 3200):
        stream = g.events(
            pa.schema([("at", pa.int64()), ("v", pa.int64()), ("t", pa.string())]).empty_table(), start="at", unit="us"
        )
        live = stream.sliding(us(alive)).agg(best=g.max(value)).start(device="cpu")
        read.clear()
        handled[0] = 0
        for at in range(0, 3 * alive, 20):
            these = range(at, at + 20)
            live.push(
                {"at": these, "v": [-each for each in these], "t": [f"{9999 - each % 10000:05}" for each in these]}
            )
            live.advance(at_us(at + 20))
        cost[alive] = max(read), handled[0] / (3 * alive)
    assert cost[200][0] <= 20 + 1 + 4
    assert cost[3200][0] <= 20 + 1 + 8  # those that end, and one of each run
    assert cost[3200][1] < 2 * cost[200][1]  # 16 times as many are alive: four merges more for each


@pytest.mark.slow
def test_a_stitch_knows_its_oldest_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = choose("cpu").kernels
    handled, range_max = [0], kernels.range_max

    def counted(values: Any, *given: Any) -> Any:
        handled[0] += len(values)
        return range_max(values, *given)

    monkeypatch.setattr(kernels, "range_max", counted)
    chance = random.Random(13)
    cost = {}
    for chains in (100, 1600):
        # Some go on where they end, some stop; all others are open.
        ends: dict[int, list[str]] = {}
        live = tasks().stitch().start(device="cpu")
        handled[0] = 0
        for at in range(0, 3 * chains, 10):
            begun = [(each, each + chance.choice([3, 40, 2 * chains]), str(each)) for each in range(at, at + 10)]
            begun += [(end, end + 7, who) for end in range(at, at + 10) for who in ends.pop(end, []) if len(who) % 2]
            for _, until, who in begun:
                ends.setdefault(until, []).append(who)
            live.push([{"at": start, "until": until, "who": who} for start, until, who in begun])
            live.advance(at_us(at + 10))
            if chance.random() < 0.2:
                state = live.state()
                open_chains = next((table for name, table in state.items() if name.endswith("/chains")), None)
                begins = [] if open_chains is None else open_chains["chain.numbers.0"].to_pylist()
                assert live.status().cti_out == min([at + 10, *begins])
        cost[chains] = handled[0] / (3 * chains)
    assert cost[1600] < 2 * cost[100]


def test_the_readmes_live_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = readme.split("## Live", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  (it is ours)
    printed = capsys.readouterr().out.splitlines()
    assert "'item': 'pen', 'n': 2, 'best': 7" in printed[0]
    assert "'item': 'ink', 'n': 1, 'best': 9" in printed[1]
    assert "3 events in, 2 results out, 0 alive" in printed[1]


# Edges


def test_open_edges_are_counted_before_their_ends_are_known() -> None:
    # a 2|=========…        b 4|====|9, known at 9
    live = sessions().snapshot().agg(n=g.count()).start(device="cpu")
    live.push([edge("start", 2, None, "a"), edge("start", 4, None, "b")])
    live.advance(at_us(6))
    assert told(live.results()) == [(2, 4, 1)]
    assert (live.status().cti_out, live.status().alive) == (4, 2)  # from 4 on two are alive, nobody knows how long
    live.push([edge("end", 4, 9, "b")])
    live.advance(at_us(20))
    assert told(live.results()) == [(4, 9, 2)]
    live.close()
    assert told(live.results()) == [(9, MAX_TIME, 1)]


def test_hopping_windows_over_open_edges() -> None:
    windows = sessions().by("who").hopping("4us", "4us", align=at_us(0)).agg(n=g.count())
    live = windows.filter(g.col("who") == "a").start(device="cpu")
    live.push([edge("start", 2, None, "a")])
    live.advance(at_us(9))
    assert told(live.results()) == [(0, 4, "a", 1), (4, 8, "a", 1)]
    live.push([edge("end", 2, 10, "a")])
    live.close()
    assert told(live.results()) == [(8, 12, "a", 1)]


def test_what_asks_for_the_end_waits_for_it() -> None:
    for query in (
        sessions().snapshot().agg(best=g.max("who")),
        sessions().extend("1s").snapshot().agg(n=g.count()),
        sessions().filter(g.col("end") > g.col("start")).snapshot().agg(n=g.count()),
    ):
        live = query.start(device="cpu")
        live.push([edge("start", 2, None, "a"), edge("start", 4, None, "b")])
        live.advance(at_us(6))
        assert (live.results().num_rows, live.status().cti_out) == (0, 2)
    live = sessions().sliding("3us").agg(n=g.count()).start(device="cpu")  # lasts 3, whenever it ends
    live.push([edge("start", 2, None, "a")])
    live.advance(at_us(6))
    assert told(live.results()) == [(2, 5, 1)]


@examples(dear=True)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15) | st.none(), st.sampled_from("ab"), values), max_size=20),
    st.sampled_from(
        [
            lambda s: s.by("k").snapshot().agg(n=g.count(), v=g.sum("v"), m=g.mean("v")),
            lambda s: s.filter(g.col("v") > 0).with_columns(w=g.col("v") / 3).snapshot().agg(w=g.sum("w"), n=g.count()),
            lambda s: s.snapshot().agg(n=g.count()).by("n").snapshot().agg(m=g.count()),
            lambda s: s.by("k").sliding("5us").agg(n=g.count(), v=g.max("v")),
            lambda s: s.snapshot().agg(v=g.max("v")),
            lambda s: s.clip_duration("9us").hopping("6us", "3us").agg(n=g.count()),
            lambda s: s.to_point().hopping("6us", "3us").agg(n=g.count()),
        ]
    ),
    st.sampled_from(["drop", "adjust"]),
    st.randoms(use_true_random=False),
    st.sampled_from(HERE),
)
def test_edges_live_are_edges_in_a_batch(
    lifetimes: list[tuple[Any, ...]], query: Query, late: Any, chance: random.Random, device: str
) -> None:
    edges = [(at, ("start", at, None, k, v)) for at, _, k, v in lifetimes]
    edges += [(at + lasts, ("end", at, at + lasts, k, v)) for at, lasts, k, v in lifetimes if lasts is not None]
    edges.sort(key=lambda each: each[0] + chance.randrange(0, 4))
    columns = list(zip(*(row for _, row in edges), strict=True)) if edges else [()] * 5
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.int64())
    arrived = pa.table([pa.array(c, t) for c, t in zip(columns, kinds, strict=True)], ["kind", "at", "until", "k", "v"])
    stream = g.events(arrived, start="at", end="until", unit="us", shape="edge", edge="kind")
    stream = query(
        stream.advance_time(2, delay=us(chance.randrange(0, 4)), late=late, late_ends=chance.choice(["drop", late]))
    )
    expected = stream.collect(device=device)
    live, found, at = stream.start(device=device), list[pa.Table](), 0
    while at < arrived.num_rows:
        size = chance.randrange(1, 6)
        live.push(arrived.slice(at, size))
        at += size
        found.append(live.results())
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(expected)


# CTIs from another stream

FAST = pa.schema([("at", pa.int64()), ("price", pa.int64())])


def slow_and_fast(**settings: Any) -> g.Stream:
    """A slow stream of tasks that goes along with a fast one."""
    fast = g.events(FAST.empty_table(), start="at", unit="us", name="fast").advance_time(1, late="drop")
    slow = g.events(TASKS.empty_table(), start="at", end="until", unit="us", name="slow")
    return slow.advance_time(advance_with=fast, **settings)


def test_a_silent_stream_goes_along_with_another() -> None:
    # slow  2|=====|7           fast  . 3     . 8      each with a CTI of its own
    live = slow_and_fast(late="drop").snapshot().agg(n=g.count()).start(device="cpu")
    live.push({"at": [2], "until": [7], "who": ["a"]})
    live.push({"at": [3], "price": [1]}, input="fast")
    assert told(live.results()) == []
    live.push({"at": [8], "price": [1]}, input="fast")
    assert told(live.results()) == [(2, 7, 1)]
    live.push({"at": [5, 9], "until": [20, 10], "who": ["late", "b"]}, input="slow")
    assert live.status().late == {"dropped": 1}
    live.advance(at_us(12))
    assert told(live.results()) == [(9, 10, 1)]


def test_imported_and_made_ctis_together(tmp_path: Path) -> None:
    stream = slow_and_fast(every=2, late="adjust")
    live = stream.snapshot().agg(n=g.count()).start(device="cpu")
    live.push({"at": [3], "price": [1]}, input="fast")  # CTI 3
    live.push({"at": [1, 6], "until": [4, 9], "who": ["a", "b"]})  # a is adjusted to 3; CTI 6 after b
    assert live.status().late == {"adjusted": 1}
    assert told(live.results()) == [(3, 4, 1)]
    live.checkpoint(tmp_path / "c")
    again = g.restore(tmp_path / "c", stream.snapshot().agg(n=g.count()), device="cpu")
    again.push({"at": [2, 20], "price": [1, 1]}, input="fast")  # 2 is late there; CTI 20
    assert told(again.results()) == [(6, 9, 1)]


def test_names_of_inputs() -> None:
    live = slow_and_fast().start(device="cpu")
    with pytest.raises(PlanError, match="no input 'quick'"):
        live.advance(at_us(3), input="quick")
    unnamed = g.events(FAST.empty_table(), start="at", unit="us")
    with pytest.raises(PlanError, match="needs a name of its own"):
        tasks().advance_time(advance_with=unnamed)
    with pytest.raises(PlanError, match="at its source"):
        tasks().advance_time(advance_with=unnamed.shift("1us"))


# Checkpoints


def test_results_that_nobody_has_taken_are_in_the_checkpoint(tmp_path: Path) -> None:
    live = alive().start(device="cpu")
    live.push({"at": [2, 4], "until": [9, 7], "who": ["a", "b"]})
    live.advance(at_us(7))
    live.checkpoint(tmp_path / "c")
    again = g.restore(tmp_path / "c", alive(), device="array")
    assert told(again.results()) == [(2, 4, 1), (4, 7, 2)]
    assert again.status() == live.status()
    again.close()
    assert told(again.results()) == [(7, 9, 1)]


def test_another_plan_is_refused_with_the_difference(tmp_path: Path) -> None:
    alive().start(device="cpu").checkpoint(tmp_path / "c")
    with pytest.raises(SourceError) as raised:
        g.restore(tmp_path / "c", tasks().by("who").snapshot().agg(n=g.count()))
    assert "- Window snapshot agg n=count()" not in str(raised.value)
    assert "+ By who" in str(raised.value) or "+ KeyBy who" in str(raised.value)


@pytest.mark.parametrize("damage", ["missing", "text", "cut", "flipped"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "c"
    live = alive().start(device="cpu")
    live.push({"at": [2, 4], "until": [9, 7], "who": ["a", "b"]})
    live.advance(at_us(5))
    live.checkpoint(path)
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("no checkpoint")
    elif damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        at = whole.index(b"ARROW1") + 200
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    with pytest.raises(SourceError, match="checkpoint"):
        g.restore(path, alive())


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = alive().start(device="cpu")
    live.checkpoint(tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    live.push({"at": [2], "until": [9], "who": ["a"]})

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("zipfile.ZipFile.writestr", fail)
    with pytest.raises(SourceError, match="no space left"):
        live.checkpoint(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_explain_shows_each_nodes_time_rule() -> None:
    text = (
        tasks()
        .shift("5s")
        .quantize("10us", "5us")
        .hopping("10us", "5us", until=at_us(100))
        .agg(n=g.count())
        .explain(device="cpu")
    )
    assert "CTI T leaves as T + 5s" in text
    assert "CTI T leaves as T rounded down to the grid of 5us" in text
    assert "CTI T leaves as the start of the oldest window that is not final at T" in text


def test_a_column_that_holds_no_nulls_in_the_source_takes_none_later() -> None:
    """NumPy's integers have no null; pandas' nullable ones do."""
    frame = pd.DataFrame({"at": [1], "v": [1]})
    later = pa.table({"at": [2, 3], "v": pa.array([1, None], pa.int64())})
    strict = g.events(frame, start="at", unit="s").tumbling("9s").agg(total=g.sum("v")).start(device="cpu")
    with pytest.raises(g.SourceError, match="nullable") as raised:
        strict.push(later)
    assert (raised.value.column, raised.value.row) == ("v", 1)
    nullable = frame.convert_dtypes().astype({"at": "int64"})
    live = g.events(nullable, start="at", unit="s").tumbling("9s").agg(total=g.sum("v")).start(device="cpu")
    live.push(later)
    live.close()
    assert live.results()["total"].to_pylist() == [1]


@pytest.mark.parametrize("as_frame", [False, True])
def test_arrays_that_were_pushed_may_be_written_into_again(as_frame: bool) -> None:  # noqa: FBT001
    """A buffer is used for one batch after the other, while the window holds the rows of both."""
    values = {"start": np.array([0, 1]), "v": np.array([1, 2])}
    window = g.events(pa.table({name: each[:0] for name, each in values.items()}), start="start", unit="us").last(9)
    running = window.each(all=g.collect_list("v")).start()
    for at in (0, 10):
        values["start"][:] = [at, at + 1]
        values["v"][:] = [at + 1, at + 2]
        running.push(pd.DataFrame(values, copy=False) if as_frame else values)
    values["start"][:], values["v"][:] = 0, 99
    running.close()
    assert running.results()["all"].to_pylist()[-1] == [1, 2, 11, 12]
