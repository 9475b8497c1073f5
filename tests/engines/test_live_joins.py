"""Running queries of two streams: however the two come in beside each other, what comes out is what a batch gives."""

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
from gpu_ops.errors import PlanError
from tests.support.cuts import in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import PAIRS, SCHEMA, UTC, Query, events, table
from tests.support.rows import rows
from tests.support.ticks import at_us


def named(given: pa.Table, name: str) -> g.Stream:
    return g.events(given, start="start", end="end", name=name)


SIDES: dict[str, Query] = {
    "as it is": lambda s: s,
    "shifted": lambda s: s.shift("-4us"),
    "longer": lambda s: s.extend("6us"),
    "point": lambda s: s.to_point(),
    "counted": lambda s: s.by("k").snapshot().agg(v=g.count(), x=g.sum("x"), t=g.max("t")),
    "summed": lambda s: (
        s.clip_duration("30us").by("k").hopping("10us", "5us").agg(v=g.sum("v"), x=g.max("x"), t=g.min("t"))
    ),
}

ABOVE: dict[str, Query] = {
    "as it is": lambda s: s,
    "counted": lambda s: s.by("k").snapshot().agg(n=g.count()),
    "filtered": lambda s: s.filter(~g.col("k").is_null()).shift("3us"),
}


def query(names: tuple[str, str, str, str], left: pa.Table, right: pa.Table) -> g.Stream:
    pair, above = PAIRS[names[2]], ABOVE[names[3]]
    return above(pair(SIDES[names[0]](named(left, "left")), SIDES[names[1]](named(right, "right"))))


class Feeder:
    """Pushes what is left of each input piece by piece, with CTIs that what is to come allows."""

    def __init__(self, live: Any, given: dict[str, pa.Table], chance: random.Random) -> None:
        self.live, self.chance = live, chance
        names = live.input_ctis()
        self.left = {name: in_some_order(rest, chance) for name, rest in given.items() if name in names}

    def push(self, found: list[pa.Table], *, until: int = 0) -> None:
        """Until so many rows are left in all."""
        while sum(rest.num_rows for rest in self.left.values()) > until:
            name = self.chance.choice([name for name, rest in self.left.items() if rest.num_rows])
            size = self.chance.randrange(1, 6)
            self.live.push(self.left[name].slice(0, size), input=name)
            self.left[name] = rest = self.left[name].slice(size)
            if self.chance.random() < 0.7:
                # A CTI of this input, or of all at once.
                of_all = self.chance.random() < 0.3
                coming = [*self.left.values()] if of_all else [rest]
                starts = [start for each in coming for start in each["start"].cast(pa.int64()).to_pylist()]
                least = min(starts, default=100)
                self.live.advance(at_us(self.chance.randrange(-5, 1 + least)), input=None if of_all else name)
            found.append(self.live.results())


@pytest.mark.parametrize("device", HERE)
@examples(dear=True)
@given(
    st.tuples(*map(st.sampled_from, ([*SIDES], [*SIDES], [*PAIRS], [*ABOVE]))),
    events,
    events,
    st.integers(0, 1 << 32),
)
def test_two_inputs_give_what_a_batch_gives(
    device: str, names: tuple[str, str, str, str], left: list[Any], right: list[Any], seed: int
) -> None:
    chance = random.Random(seed)
    given_tables = {"left": table(left), "right": table(right)}
    expected = query(names, **given_tables).collect(device="cpu")
    live = query(names, SCHEMA.empty_table(), SCHEMA.empty_table()).start(device=device)
    found: list[pa.Table] = []
    promised = live.cti
    feeder = Feeder(live, given_tables, chance)
    while many := sum(rest.num_rows for rest in feeder.left.values()):
        feeder.push(found, until=many - 1)
        starts = found[-1]["start"].cast(pa.int64()).to_pylist()
        assert all(start >= promised for start in starts), "a result before the CTI that was given"
        promised = live.cti
    live.close()
    found.append(live.results())
    assert rows(pa.concat_tables(found)) == rows(expected)
    assert live.cti == MAX_TIME


@examples(dear=True)
@given(
    st.tuples(*map(st.sampled_from, ([*SIDES], [*SIDES], [*PAIRS], [*ABOVE]))),
    events,
    events,
    st.integers(0, 1 << 32),
)
def test_a_checkpoint_may_be_made_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
    names: tuple[str, str, str, str],
    left: list[Any],
    right: list[Any],
    seed: int,
) -> None:
    chance = random.Random(seed)
    given_tables = {"left": table(left), "right": table(right)}
    plan = query(names, SCHEMA.empty_table(), SCHEMA.empty_table())
    feeder = Feeder(plan.start(device="cpu"), given_tables, chance)
    found: list[pa.Table] = []
    feeder.push(found, until=chance.randrange(0, 1 + sum(rest.num_rows for rest in feeder.left.values())))
    path = tmp_path_factory.mktemp("checkpoint") / "query"
    feeder.live.checkpoint(path)
    feeder.live = g.restore(path, plan, device=chance.choice(HERE))
    feeder.push(found)
    feeder.live.close()
    found.append(feeder.live.results())
    assert rows(pa.concat_tables(found)) == rows(query(names, **given_tables).collect(device="cpu"))


def test_the_older_cti_holds_the_join_and_what_cannot_match_any_more_is_dropped() -> None:
    # left   0---------20     30--40
    # right      5--8
    # CTIs   left 50; right 10, 25, 50
    left = table([(0, 20, "a", 1, None, None), (30, 40, "a", 2, None, None)])
    right = table([(5, 8, "a", 3, None, None)])
    live = named(left.slice(0, 0), "left").join(named(right.slice(0, 0), "right"), on="k").start(device="cpu")
    live.push(left, input="left")
    live.advance(at_us(50), input="left")
    live.push(right, input="right")
    assert live.results().num_rows == 0
    assert live.status().alive == 3
    live.advance(at_us(10), input="right")
    assert live.results()["start"].cast(pa.int64()).to_pylist() == [5]
    assert live.cti == 10
    live.advance(at_us(25), input="right")
    assert live.status().alive == 1  # the left event of 30 waits
    live.advance(at_us(50), input="right")
    assert live.status().alive == 0
    assert live.cti == 50


def test_an_outer_join_promises_no_more_than_the_oldest_piece_that_goes_on() -> None:
    # left   0-----------------------------30
    # right           10----20
    left, right = table([(0, 30, "a", 1, None, None)]), table([(10, 20, "a", 2, None, None)])
    live = named(left.slice(0, 0), "left").join(named(right.slice(0, 0), "right"), on="k", how="left").start()
    live.push(left, input="left")
    live.push(right, input="right")
    for name in ("left", "right"):
        live.advance(at_us(9), input=name)
    assert live.results().num_rows == 0
    assert live.cti == 0  # alone from 0 on, nobody knows until when
    for name in ("left", "right"):
        live.advance(at_us(25), input=name)
    found = live.results().sort_by("start")
    assert found["start"].cast(pa.int64()).to_pylist() == [0, 10]
    assert found["v_right"].to_pylist() == [None, 2]
    assert live.cti == 20


def test_memory_does_not_grow_with_what_has_passed() -> None:
    live = named(SCHEMA.empty_table(), "left").join(named(SCHEMA.empty_table(), "right"), on="k", how="full").start()
    sizes = []
    for at in range(0, 4000, 100):
        for name in ("left", "right"):
            live.push(table([(at + i, at + i + 30, "ab"[i % 2], i, None, None) for i in range(100)]), input=name)
            live.advance(at_us(at + 100), input=name)
        live.results()
        sizes.append(live.status().state_bytes)
    assert max(sizes[20:]) <= 2 * max(sizes[5:10])


def test_a_silent_reference_follows_the_fast_stream() -> None:
    # orders  0    3    6    9     each with the price that holds then
    # prices  0---------5------…   the second one comes before the orders it is for
    prices = pa.schema([("at", UTC), ("till", UTC), ("price", pa.int64())]).empty_table()
    orders = pa.schema([("at", UTC), ("n", pa.int64())]).empty_table()
    fast = g.events(orders, start="at", name="orders")
    slow = g.events(prices, start="at", end="till", name="prices").advance_time(advance_with=fast, late="drop")
    live = fast.join(slow).start(device="cpu")
    live.push({"at": [0, 5], "till": [5, 100], "price": [10, 20]}, input="prices")
    for at in (0, 3, 6, 9):
        live.push({"at": [at], "n": [at]}, input="orders")
        live.advance(at_us(at + 1), input="orders")
    found = live.results().sort_by("start")
    assert found["price"].to_pylist() == [10, 10, 20, 20]  # no CTI was ever said of the prices


def test_inputs_are_told_apart_by_their_names() -> None:
    nameless = g.events(SCHEMA.empty_table(), start="start", end="end")
    other = g.events(SCHEMA.empty_table(), start="start", end="end")
    with pytest.raises(PlanError, match="tells them apart by their names"):
        nameless.join(other, on="k").start()
    live = named(SCHEMA.empty_table(), "left").union(named(SCHEMA.empty_table(), "right")).start()
    with pytest.raises(PlanError, match="several inputs"):
        live.push(table([]))
    with pytest.raises(PlanError, match="no input 'middle'"):
        live.push(table([]), input="middle")


def test_the_sources_own_rows_run_in_turns() -> None:
    left, right = table([(0, 9, "a", 1, None, None)]), table([(3, 5, "a", 2, None, None)])
    live = named(left, "left").join(named(right, "right"), on="k").start(device="cpu")
    assert sum(found.num_rows for found in live.run()) == 1
    again = named(left, "left").join(named(right, "right"), on="k").start(device="cpu")
    assert sum(found.num_rows for found in again.run([("right", right), ("left", left)])) == 1


def test_two_stores_are_followed_the_one_behind_first(tmp_path: Path) -> None:
    stores = {name: g.store(tmp_path / name) for name in ("left", "right")}
    chance = random.Random(5)
    given_tables = {}
    for name, store in stores.items():
        made = [(at, at + chance.randrange(1, 9), chance.choice("ab"), at, None, None) for at in range(0, 60, 2)]
        given_tables[name] = table(made)
        with store.writer() as writer:
            for first in range(0, 30, 5):
                writer.append(table(made[first : first + 5]), at_us(2 * (first + 5)))
            writer.append(table([]), at_us(MAX_TIME))

    def joined(**tables: pa.Table) -> g.Stream:
        return named(tables["left"], "left").join(named(tables["right"], "right"), on="k", how="full")

    plan = joined(left=SCHEMA.empty_table(), right=SCHEMA.empty_table())
    into = g.store(tmp_path / "into")

    class KilledError(Exception):
        pass

    def kill(live: Any) -> None:
        if live.status().events_in >= 30:
            raise KilledError

    live = plan.start(device="cpu")
    with pytest.raises(KilledError):
        live.follow(stores, into=into, checkpoint=tmp_path / "checkpoint", every=3, on_step=kill)
    again = g.restore(tmp_path / "checkpoint", plan, device="cpu")
    again.follow(stores, into=into, checkpoint=tmp_path / "checkpoint", every=3)
    written = g.events(into).collect().select(plan.collect().column_names)
    assert rows(written) == rows(joined(**given_tables).collect(device="cpu"))


def test_edges_meet_intervals_and_points() -> None:
    # doors (edges)  a: 0--------9    b: 2----------- (never ends)
    # alarms         a:    3--5       a: 12 (point)   b: 20--22
    edges = {"at": [0, 2, 0], "till": [None, None, 9], "edge": ["start", "start", "end"], "k": ["a", "b", "a"]}
    doors = pa.table(
        {name: pa.array(values, UTC if name in {"at", "till"} else None) for name, values in edges.items()}
    )
    alarms = table([(3, 5, "a", 1, None, None), (12, 13, "a", 2, None, None), (20, 22, "b", 3, None, None)])

    def asked(doors: pa.Table, alarms: pa.Table) -> g.Stream:
        inside = g.events(doors, start="at", end="till", shape="edge", edge="edge", name="doors")
        return inside.join(named(alarms, "alarms"), on="k", how="full")

    expected = asked(doors, alarms).collect(device="cpu")
    found = [
        (start.value, end.value, key.as_py(), number.as_py())
        for start, end, key, number in zip(*(expected[name] for name in ("start", "end", "k", "v")), strict=True)
    ]
    assert sorted(found, key=str) == sorted(
        [
            (0, 3, "a", None), (3, 5, "a", 1), (5, 9, "a", None), (12, 13, "a", 2),
            (2, 20, "b", None), (20, 22, "b", 3), (22, MAX_TIME, "b", None),
        ],
        key=str,
    )  # fmt: skip
    live = asked(doors.slice(0, 0), alarms.slice(0, 0)).start(device="cpu")
    results = []
    for at in range(3):
        live.push(doors.slice(at, 1), input="doors")
        live.push(alarms.slice(at, 1), input="alarms")
        results.append(live.results())
    live.close()
    assert rows(pa.concat_tables([*results, live.results()])) == rows(expected)
