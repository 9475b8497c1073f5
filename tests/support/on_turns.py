"""Streams on turns for tests: a script of arrivals and ticks, and a plan over them that is stepped by hand."""

from __future__ import annotations

import itertools
import random
import shutil
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from gpu_ops.checkpoints.saved_states import SavedState, read_state, write_state
from gpu_ops.core.state_parts import doubtful
from gpu_ops.core.state_tables import check
from gpu_ops.core.time import MAX_TIME, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, PLACE, TURN
from gpu_ops.devices import choose
from gpu_ops.microbatches.folders import LocalFolder
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.runtime.steps import Leaves, RunningNode, running
from gpu_ops.plan.nodes import Feed, Node

PAYLOAD = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.int64())])
ARRIVALS = pa.schema([*PAYLOAD, (CLOCK, TIME_TYPE), (PLACE, pa.int64())])
TICKS = pa.schema([(CLOCK, TIME_TYPE), (ASK, pa.bool_())])


@dataclass(frozen=True)
class Row:
    """An arrival: a key, a value and a time of its own, in ticks of the clock."""

    k: str | None = None
    v: int | None = None
    t: int | None = None


@dataclass(frozen=True)
class Tick:
    """The clock goes on by some ticks."""

    by: int


@dataclass(frozen=True)
class Ask:
    """Content is asked for."""


Turn = Row | Tick | Ask
Script = Sequence[Turn]


@dataclass(frozen=True)
class Placed:
    """A turn with its place and what the clock shows after it."""

    place: int
    clock: int
    turn: Turn


def placed(script: Script, begin: int = 0) -> list[Placed]:
    """The turns of a script; the clock begins at a time."""
    clock, found = begin, []
    for number, turn in enumerate(script, 1):
        clock += turn.by if isinstance(turn, Tick) else 0
        found.append(Placed(number * TURN, clock, turn))
    return found


def scripts(rows: st.SearchStrategy[Row], most: int = 30) -> st.SearchStrategy[list[Turn]]:
    """Arrivals, ticks of which many are small, some none at all and some coarse, and asks."""
    ticks = st.builds(Tick, st.sampled_from([0, 1, 1, 2, 3, 5, 9, 17, 40]))
    return st.lists(st.one_of(rows, rows, ticks, ticks, st.just(Ask())), max_size=most)


ROWS = st.builds(Row, st.sampled_from(["a", "b", None]), st.none() | st.integers(-2, 3), st.integers(0, 40))


Member = tuple[int, int, int | None]
"""The place of a row, and the places at which it enters and leaves; None where it stays."""


def feeds() -> tuple[Feed, Feed]:
    """The leaves of a plan over arrivals and ticks."""
    return Feed(ARRIVALS, (), 1), Feed(TICKS, (), 1)


class Stepped:
    """A plan over arrivals and ticks that is stepped as turns come.

    Args:
        plan: From the leaves to the plan.
        device: Where it runs.
        opens: Whether rows are given before their leaves are known.
    """

    def __init__(self, plan: Callable[[Node, Node], Node], device: str, *, opens: bool = False) -> None:
        self._plan, self._device, self._opens = plan, choose(device), opens
        self.leaves = feeds()
        self._node = plan(*self.leaves)
        self._running = self._started()
        self._open: dict[tuple[Any, ...], int] = {}
        self.cti = -(1 << 60)
        self.found: list[dict[str, Any]] = []
        self._folder: LocalFolder | None = None
        self._saved: SavedState | None = None
        self._numbers = itertools.count()

    def _started(self) -> RunningNode:
        made = running(self._node, self._device)
        if self._opens:
            top = next((each for each in reversed(made.walk()) if each.own is not None and each.own.gives_open), None)
            if top is not None and top.own is not None:
                top.own.open()
        return made

    def again(self) -> None:
        """Go on from the state as tables."""
        fresh = self._started()
        for before, after in zip(self._running.walk(), fresh.walk(), strict=True):
            if before.own is None or after.own is None:
                continue
            tables = {name: _stored(table) for name, table in before.own.tables().items()}
            check("The state", tables, after.own.declared)
            after.own.restore(tables)
            again = {name: _stored(table) for name, table in after.own.tables().items()}
            assert _known(again) == _known(tables)
            assert (after.own.alive, after.own.waiting) == (before.own.alive, before.own.waiting)
        self._running = fresh

    def save(self) -> None:
        """Write what of the state is in no file yet."""
        if self._folder is None:
            path = mkdtemp()
            weakref.finalize(self, shutil.rmtree, path)
            self._folder = LocalFolder(Path(path))
        parts = {
            f"{number}/{name}": part
            for number, each in enumerate(self._running.walk())
            if each.own is not None
            for name, part in each.own.state_parts().items()
        }
        self._saved = write_state(self._folder, f"{next(self._numbers)}-", parts, {}, self._saved)

    def again_in_parts(self) -> None:
        """Go on from what has been saved so far, and is saved now."""
        self.save()
        assert self._folder is not None
        assert self._saved is not None
        fresh, parts = self._started(), read_state(self._folder, self._saved)
        for number, (before, after) in enumerate(zip(self._running.walk(), fresh.walk(), strict=True)):
            if before.own is None or after.own is None:
                continue
            of = f"{number}/"
            mine = {name.removeprefix(of): each for name, each in parts.items() if name.startswith(of)}
            check("The state", doubtful(mine, after.own.entire_tables), after.own.declared)
            after.own.put_back(mine)
            assert _known(after.own.tables()) == _known(before.own.tables())
        self._running = fresh

    def step(self, turns: Sequence[Placed], cti: int) -> None:
        """Some turns, and a CTI."""
        rows = [each for each in turns if isinstance(each.turn, Row)]
        others = [each for each in turns if not isinstance(each.turn, Row)]
        arrivals = pa.Table.from_arrays(
            [
                *(pa.array([getattr(each.turn, field.name) for each in rows], field.type) for field in PAYLOAD),
                pa.array([each.clock for each in rows], pa.int64()).cast(TIME_TYPE),
                pa.array([each.place for each in rows], pa.int64()),
            ],
            schema=ARRIVALS,
        )
        ticks = pa.Table.from_arrays(
            [
                pa.array([each.clock for each in others], pa.int64()).cast(TIME_TYPE),
                pa.array([isinstance(each.turn, Ask) for each in others], pa.bool_()),
            ],
            schema=TICKS,
        )
        given: Leaves = {
            (leaf, "whole"): (StepInput([] if not len(some) else [self._events(some, table)]), cti)
            for leaf, some, table in zip(self.leaves, (rows, others), (arrivals, ticks), strict=True)
        }
        made, passed = self._running.step(given)
        self._take(made, passed)

    def _events(self, turns: Sequence[Placed], table: pa.Table) -> Events:
        columns = self._device.columns
        return Events(columns.array(np.array([each.place for each in turns], np.int64)), 1, columns.from_arrow(table))

    def _take(self, made: StepInput, passed: int) -> None:
        for row in self._rows(made.opened):
            assert row["start"] >= self.cti
            key = (row["start"], row[PLACE])
            assert key not in self._open
            self._open[key] = len(self.found)
            self.found.append({**row, "end": MAX_TIME})
        for row in self._rows(made.closed):
            at = self._open.pop((row["start"], row[PLACE]))
            assert row["end"] > row["start"]
            self.found[at] = row
        for row in self._rows(made.events):
            assert row["start"] >= self.cti
            assert row["end"] > row["start"]
            self.found.append(row)
        assert passed >= self.cti
        self.cti = passed

    def _rows(self, pieces: Sequence[Events]) -> list[dict[str, Any]]:
        columns, found = self._device.columns, []
        for piece in pieces:
            start, end = columns.host(piece.start).tolist(), columns.host(piece.ends).tolist()
            table = columns.to_arrow(piece.frame, self._node.schema)
            assert table.schema.names == self._node.schema.names
            found += [
                {"start": low, "end": high, **row} for low, high, row in zip(start, end, table.to_pylist(), strict=True)
            ]
        return found


def _stored(table: pa.Table) -> pa.Table:
    """A table as it is after it was written and read."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _known(tables: dict[str, pa.Table]) -> dict[str, list[str]]:
    return {name: sorted(map(repr, table.to_pylist())) for name, table in tables.items()}


def in_any_cut(
    plan: Callable[[Node, Node], Node], script: Script, device: str, chance: random.Random, begin: int = 0
) -> list[dict[str, Any]]:
    """What a plan gives in any cut, with rows before their leaves are known or not, stopped and gone on anywhere."""
    live = Stepped(plan, device, opens=chance.random() < 0.5)
    turns, at, early = placed(script, begin), 0, chance.random() < 0.3
    while at < len(turns):
        size = chance.choice([1, 1, 2, 3, 8])
        some = turns[at : at + size]
        cti = some[-1].place + chance.choice([1, 2, TURN])
        if early:  # some turns wait for a later CTI
            cti = min(cti, some[chance.randrange(len(some))].place + chance.choice([0, 1]))
        live.step(some, cti)
        at += size
        if chance.random() < 0.3:
            chance.choice([live.again, live.save, live.again_in_parts])()
    live.step([], MAX_TIME)
    return live.found


def in_one_step(
    plan: Callable[[Node, Node], Node], script: Script, device: str, begin: int = 0
) -> list[dict[str, Any]]:
    """What a plan gives of all turns at once."""
    live = Stepped(plan, device)
    live.step(placed(script, begin), MAX_TIME)
    return live.found


def members(found: Sequence[dict[str, Any]]) -> list[Member]:
    """When rows are in: in turns, where a row that leaves with its own place is in for a half."""
    return sorted(
        (
            row[PLACE] // TURN,
            row["start"] // TURN,
            None if row["end"] == MAX_TIME else row["end"] // TURN,
        )
        for row in found
    )


def ticks_of(time: Any) -> int:
    """A time of the clock as it stands in scripts."""
    return int(np.datetime64(time.replace(tzinfo=None), "us").astype(np.int64))
