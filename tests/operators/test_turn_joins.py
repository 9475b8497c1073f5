"""Joins on turns, against a brute force that goes from moment to moment; in any cut, by edges or not, on each device.

stream 0   a1 ───────────┐          a1 meets b1 and b2; the rows (a1, b1) and (a1, b2) are there
stream 1        b1 ──────┼────┐     as long as both of their members are
                    b2 ──┴─┐  │
(a1, b1)        ─────────┘
(a1, b2)            ─────┘
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.state_tables import check
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.core.turns import CLOCK, IS_NEW, IS_OLD, PLACE, TURN, of_stream
from gpu_ops.devices import choose
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.operators.events import Events
from gpu_ops.operators.joins.turn_joins import TurnJoinOperator
from gpu_ops.operators.operator import StepInput
from gpu_ops.plan.nodes import Feed
from gpu_ops.plan.turn_joins import Further, TurnJoin
from tests.support import turn_join_reference as reference
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.turn_join_reference import Joined, Member

TURNS = 12


def stream(number: int) -> Feed:
    """The rows of a stream's window."""
    fields = [(f"k{number}", pa.string()), (f"v{number}", pa.int64())]
    special = [(of_stream(CLOCK, number), TIME_TYPE), (of_stream(PLACE, number), pa.int64())]
    return Feed(pa.schema([*fields, *special]), (), None)


@dataclass(frozen=True)
class How:
    """How a further stream is joined: to which stream before by its key, and whether its value must be greater."""

    kind: Any
    to: int | None
    greater: int | None

    def node(self, number: int) -> Further:
        condition = None if self.greater is None else nw.col(f"v{number}") > nw.col(f"v{self.greater}")
        return Further(self.kind, () if self.to is None else ((f"k{self.to}", f"k{number}"),), condition)

    def on(self, row: Joined, member: Member) -> bool:
        if self.to is not None:
            other = row[self.to]
            if other is None or other.k is None or other.k != member.k:
                return False
        if self.greater is not None:
            other = row[self.greater]
            return other is not None and member.v > other.v
        return True


def joined(hows: Sequence[How], unidirectional: tuple[int, ...] = ()) -> TurnJoin:
    further = tuple(how.node(number) for number, how in enumerate(hows, start=1))
    return TurnJoin(tuple(map(stream, range(len(hows) + 1))), further, unidirectional)


def place_of(number: int, member: Member) -> int:
    return member.enter * TURN + 4 * member.number + 2 * (number % 2)


class Stepped:
    """A join that is stepped, with each stream up to its own CTI."""

    def __init__(self, node: TurnJoin, streams: Sequence[Sequence[Member]], device: str, *, opens: bool) -> None:
        self.node, self._streams, self._device, self._opens = node, streams, choose(device), opens
        self._own = self._made()
        self._given = [MIN_TIME] * len(streams)
        self.cti = MIN_TIME
        self.found: list[dict[str, Any]] = []
        self._open: dict[tuple[Any, ...], int] = {}

    def _made(self) -> TurnJoinOperator:
        made = TurnJoinOperator(self.node, self._device)
        if self._opens:
            made.open()
        return made

    def again(self) -> None:
        """Go on from the state as tables."""
        fresh, tables = self._made(), self._own.tables()
        check("The state", tables, fresh.declared)
        fresh.restore(tables)
        assert _known(fresh.tables()) == _known(tables)
        assert (fresh.alive, fresh.waiting) == (self._own.alive, self._own.waiting)
        self._own = fresh

    def step(self, ctis: Sequence[int], whole: Sequence[bool]) -> None:
        """All of each stream up to its CTI; rows of some streams are given when their leaves are known."""
        fed = []
        for number, cti in enumerate(ctis):
            before, self._given[number] = self._given[number], max(cti, self._given[number])
            fed.append(self._input(number, before, self._given[number], is_whole=whole[number]))
        given, passed = self._own.step(fed, self._given)
        self._take(given, passed)

    def _input(self, number: int, before: int, cti: int, *, is_whole: bool) -> StepInput:
        """Rows of a stream from one CTI to another; those of a whole stream come at once with their leaves."""
        events, opened, closed = [], [], []
        for member in self._streams[number]:
            low, high = member.enter * TURN, MAX_TIME if member.leave is None else member.leave * TURN
            if low == high:
                high += 1
            enters, leaves = before <= low < cti, before <= high - 1 < cti and high < MAX_TIME
            if is_whole:
                if enters:
                    events.append((member, low, high))
            elif enters and (leaves or (cti == MAX_TIME and not self._opens)):
                events.append((member, low, high))
            elif enters:
                opened.append((member, low, low + 1))
            elif leaves:
                closed.append((member, low, high))
        return StepInput(*([self._events(number, each)] if each else [] for each in (events, opened, closed)))

    def _events(self, number: int, rows: Sequence[tuple[Member, int, int]]) -> Events:
        schema, columns = self.node.streams[number].schema, self._device.columns
        members = [member for member, _, _ in rows]
        clocks = pa.array([each.enter for each in members], pa.int64()).cast(TIME_TYPE)
        places = pa.array([place_of(number, each) for each in members], pa.int64())
        table = pa.Table.from_arrays(
            [
                pa.array([each.k for each in members], pa.string()),
                pa.array([each.v for each in members]),
                clocks,
                places,
            ],
            schema=schema,
        )
        low, high = (columns.array(np.array([row[at] for row in rows], np.int64)) for at in (1, 2))
        return Events(low, high, columns.from_arrow(table))

    def _take(self, made: StepInput, passed: int) -> None:
        for row in self._rows(made.closed):
            at = self._open.pop((row["start"], row[PLACE]))
            assert row | {"end": MAX_TIME, IS_OLD: False} == self.found[at]
            self.found[at] = row
        assert not made.opened
        for row in self._rows(made.events):
            assert row["start"] >= self.cti
            if row["end"] > MAX_TIME:  # it is open
                assert self._opens
                key = (row["start"], row[PLACE])
                assert key not in self._open
                self._open[key] = len(self.found)
            self.found.append({**row, "end": min(row["end"], MAX_TIME)})
        assert passed >= self.cti
        self.cti = passed

    def _rows(self, pieces: Sequence[Events]) -> Iterator[dict[str, Any]]:
        columns = self._device.columns
        for piece in pieces:
            start, end = columns.host(piece.start).tolist(), columns.host(piece.ends).tolist()
            table = columns.to_arrow(piece.frame, self.node.schema)
            assert table.schema.names == self.node.schema.names
            for low, high, row in zip(start, end, table.to_pylist(), strict=True):
                yield {"start": low, "end": high, **row}


def _known(tables: dict[str, pa.Table]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, table.to_pylist())) for name, table in tables.items()}


def in_one_step(node: TurnJoin, streams: Sequence[Sequence[Member]], device: str) -> list[dict[str, Any]]:
    live = Stepped(node, streams, device, opens=False)
    live.step([MAX_TIME] * len(streams), [False] * len(streams))
    return live.found


def in_any_cut(
    node: TurnJoin, streams: Sequence[Sequence[Member]], device: str, chance: random.Random
) -> list[dict[str, Any]]:
    """What a join gives in any cut: by edges or not, with streams that lag, stopped and gone on anywhere."""
    live = Stepped(node, streams, device, opens=chance.random() < 0.7)
    whole = [chance.random() < 0.2 for _ in streams]
    turn = 0
    while turn < TURNS:
        turn += chance.choice([1, 1, 2, 4])
        cti = turn * TURN + chance.choice([0, 1, 2])
        live.step([cti if chance.random() < 0.8 else cti - chance.choice([TURN, 3 * TURN]) for _ in streams], whole)
        if chance.random() < 0.3:
            live.again()
    live.step([MAX_TIME] * len(streams), whole)
    return live.found


def shown(found: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, found))


def told(
    found: Sequence[dict[str, Any]], streams: Sequence[Sequence[Member]], *, held: bool
) -> dict[tuple[int, Any], list[Any]]:
    """The rows that are new, old and there at each turn, by the numbers of their members."""
    known = {place_of(at, each): each.number for at, members in enumerate(streams) for each in members}
    made: dict[tuple[int, Any], list[Any]] = {}
    for row in found:
        numbers = tuple(known.get(row[of_stream(PLACE, at)]) for at in range(len(streams)))
        enter, leave = row["start"] // TURN, None if row["end"] == MAX_TIME else row["end"] // TURN
        if row[IS_NEW]:
            made.setdefault((enter, "new"), []).append(numbers)
        if row[IS_OLD]:
            assert leave is not None
            made.setdefault((leave, "old"), []).append(numbers)
        for turn in range(enter, TURNS + 1 if leave is None else leave) if held else ():
            made.setdefault((turn, "held"), []).append(numbers)
    return _sorted(made)


def expected(
    hows: Sequence[How], streams: Sequence[Sequence[Member]], unidirectional: Sequence[int] = ()
) -> dict[tuple[int, Any], list[Any]]:
    found = reference.run(streams, [(how.kind, how.on) for how in hows], TURNS, unidirectional)
    numbers = {
        key: [tuple(None if each is None else each.number for each in row) for row in rows]
        for key, rows in found.items()
    }
    return _sorted(numbers)


def _sorted(rows: dict[tuple[int, Any], list[Any]]) -> dict[tuple[int, Any], list[Any]]:
    return {key: sorted(some, key=repr) for key, some in sorted(rows.items()) if some}


@st.composite
def members(draw: st.DrawFn, most: int = 8) -> list[Member]:
    """The rows of a stream: some stay, some leave as they enter."""
    found = []
    for number in range(draw(st.integers(0, most))):
        enter = draw(st.integers(1, TURNS))
        stays = draw(st.sampled_from([None, 0, 1, 1, 2, 3, 5, 9]))
        leave = None if stays is None or enter + stays > TURNS else enter + stays
        found.append(
            Member(number, draw(st.sampled_from(["a", "a", "b", None])), draw(st.integers(0, 3)), enter, leave)
        )
    return found


INNER = st.builds(How, st.just("inner"), st.sampled_from([0, 0, None]), st.sampled_from([None, None, 0]))


@pytest.mark.parametrize("device", HERE)
@examples(dear=True)
@given(how=INNER, streams=st.tuples(members(), members()), seed=st.integers(0, 1 << 20))
def test_rows_are_there_while_both_members_are(
    device: str, how: How, streams: tuple[list[Member], ...], seed: int
) -> None:
    node = joined([how])
    whole = in_one_step(node, streams, device)
    assert told(whole, streams, held=True) == expected([how], streams)
    assert shown(in_any_cut(node, streams, device, random.Random(seed))) == shown(whole)


def test_a_row_enters_with_its_last_member_and_leaves_with_the_first() -> None:
    streams = [Member(0, "a", 1, 1, 5)], [Member(0, "a", 2, 2, 9), Member(1, "a", 3, 3, 4), Member(2, "b", 4, 1, None)]
    found = in_one_step(joined([How("inner", 0, None)]), streams, "cpu")
    assert sorted((row["start"] // TURN, row["end"] // TURN, row["v0"], row["v1"]) for row in found) == [
        (2, 5, 1, 2),
        (3, 4, 1, 3),
    ]
    assert all(row[CLOCK].microsecond == row["start"] // TURN for row in found)


@pytest.mark.parametrize("device", HERE)
@examples(dear=True)
@given(kinds=st.tuples(*[st.lists(st.sampled_from("abc"), min_size=9, max_size=9)] * 2), cut=st.integers(2, 2 * 9))
def test_rows_come_in_the_order_of_their_enters_then_of_their_members(
    device: str, kinds: tuple[list[str], ...], cut: int
) -> None:
    # Each stream has a row in each second turn, until the fifth turn after it.
    streams = [
        [Member(at, k, 0, 2 * at + 1 + number, 2 * at + 6 + number) for at, k in enumerate(keys)]
        for number, keys in enumerate(kinds)
    ]
    live = Stepped(joined([How("inner", 0, None)]), streams, device, opens=True)
    for cti in (cut * TURN, MAX_TIME):
        before = len(live.found)
        live.step([cti, cti], [False, False])
        places = [(row["start"], row[of_stream(PLACE, 0)], row[of_stream(PLACE, 1)]) for row in live.found[before:]]
        assert places == sorted(places)


def test_streams_that_cannot_be_joined_are_refused() -> None:
    with pytest.raises(PlanError, match="2 streams says of 0"):
        TurnJoin((stream(0), stream(1)), ())
    with pytest.raises(ColumnError, match="Stream 1 of a join needs"):
        TurnJoin((stream(0), stream(0)), (Further(),))
    other = Feed(pa.schema([*stream(1).schema, ("v0", pa.int64())]), (), None)
    with pytest.raises(ColumnError, match="Two streams of a join have this column"):
        TurnJoin((stream(0), other), (Further(),))
    with pytest.raises(ColumnError, match="Cast one of them first"):
        TurnJoin((stream(0), stream(1)), (Further("inner", (("k0", "v1"),)),))


OUTER = st.builds(
    How, st.sampled_from(["left", "right", "full"]), st.sampled_from([0, 0, None]), st.sampled_from([None, None, 0])
)


@pytest.mark.parametrize("device", HERE)
@examples(dear=True)
@given(how=OUTER, streams=st.tuples(members(), members()), seed=st.integers(0, 1 << 20))
def test_outer_joins_do_not_retract(device: str, how: How, streams: tuple[list[Member], ...], seed: int) -> None:
    node = joined([how])
    whole = in_one_step(node, streams, device)
    assert told(whole, streams, held=True) == expected([how], streams)
    assert shown(in_any_cut(node, streams, device, random.Random(seed))) == shown(whole)


@st.composite
def several(draw: st.DrawFn) -> tuple[list[How], tuple[list[Member], ...]]:
    """Three or four streams, joined in any way to streams before."""
    count = draw(st.integers(3, 4))
    hows = []
    for number in range(1, count):
        others = st.none() | st.integers(0, number - 1)
        kind = draw(st.sampled_from(["inner", "left", "right", "full"]))
        hows.append(How(kind, draw(st.integers(0, number - 1) | others), draw(st.none() | others)))
    return hows, tuple(draw(members(4)) for _ in range(count))


@pytest.mark.parametrize("device", HERE)
@examples(dear=True)
@given(joins=several(), seed=st.integers(0, 1 << 20))
def test_several_streams_are_joined_one_after_another(
    device: str, joins: tuple[list[How], tuple[list[Member], ...]], seed: int
) -> None:
    hows, streams = joins
    node = joined(hows)
    whole = in_one_step(node, streams, device)
    assert told(whole, streams, held=True) == expected(hows, streams)
    assert shown(in_any_cut(node, streams, device, random.Random(seed))) == shown(whole)


@pytest.mark.parametrize("device", HERE)
@examples(dear=True)
@given(joins=several(), alone=st.sets(st.integers(0, 2), min_size=1), seed=st.integers(0, 1 << 20))
def test_rows_of_unidirectional_streams_alone_make_rows(
    device: str, joins: tuple[list[How], tuple[list[Member], ...]], alone: set[int], seed: int
) -> None:
    hows, streams = joins
    node = joined(hows, tuple(sorted(alone)))
    whole = in_one_step(node, streams, device)
    assert told(whole, streams, held=False) == expected(hows, streams, sorted(alone))
    assert all(row["end"] == row["start"] + 1 for row in whole)
    assert shown(in_any_cut(node, streams, device, random.Random(seed))) == shown(whole)
