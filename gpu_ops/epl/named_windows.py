"""Named windows that run: their rows, which inserts, the clock and events of other statements change.

A step finds where rows enter and leave. Events that change rows come between: what they find depends on what
earlier ones did. Where all rows are kept, and conditions and values have programs, a walk goes from one event to the
next (`gpu_ops.epl.row_walk`). Where rows leave whatever becomes of others, and are only taken out, the first event that
takes a row out is found for all rows at once. Where all rows are kept, and events are about those of their keys, the
first event of each key is taken together with those of others, then the second ones. Where queries alone change a
table, the rows of each key follow each other. Else the step is cut at the events that change rows, and data windows go
on with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.time import MIN_TIME, TIME_TYPE
from gpu_ops.core.turns import CLOCK, INSTANCE, LEVEL, NEW, OLD, ORDER, PLACE, ROW, TURN
from gpu_ops.devices import Device
from gpu_ops.devices.cpu.row_changes import STAYS
from gpu_ops.epl.kept_rows import BY, ENTER, LEAVE, MOMENT, KeptRows, WindowMoves, key_codes, matching
from gpu_ops.epl.planning.known_windows import (
    CAME,
    EVENT,
    ID,
    KEPT,
    Action,
    KnownWindow,
    PlannedChange,
)
from gpu_ops.epl.row_walk import RowWalk, WalkingEvents
from gpu_ops.epl.running import placed_table
from gpu_ops.errors import PlanError, shown
from gpu_ops.operators.runtime.steps import RunningNode, running
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.texts.feeding import PlacedRows, TickRows, leaves_of, stepped_node

_MOST_WALKS = 64
_GHOST = -1
"""The number of the row that stands for the one which came first, where that says when batches end."""


@dataclass(frozen=True)
class Triggered:
    """The events that trigger a statement in a step.

    Attributes:
        number: The number of the statement.
        change: What it does.
        rows: The events, with `CLOCK`, in order.
        places: int64 place of each.
    """

    number: int
    change: PlannedChange
    rows: pa.Table
    places: Any


class RunningWindow:
    """A named window.

    Args:
        known: What is kept in it.
        device: Where it computes.
        ticks: The leaf of ticks.

    Attributes:
        known: Likewise.
        moved: What changed in the last step.
        waited: Likewise of the rows that wait for their batch.
        failed: Why it gives nothing any more; None while it does.
        orphans: Whether there is a batch of which the data windows do not know any more.
    """

    def __init__(self, known: KnownWindow, device: Device, ticks: Feed) -> None:
        self.known, self._device, self._ticks = known, device, ticks
        self._rows, self._waiting = KeptRows(known.content.schema), KeptRows(known.content.schema)
        self._nodes = self._made()
        self._walks: dict[tuple[int, ...], RowWalk | None] = {}
        self._computed: dict[Node, tuple[RunningNode, Mapping[Node, list[str]]]] = {}
        self._at = self._done = MIN_TIME
        self._made_in = np.zeros(0, np.int64)
        self._anchor: pa.Table | None = None
        self._stale = False
        self.orphans = False
        self.failed: BaseException | None = None
        self.moved, self.waited = self._rows.whole(), self._waiting.whole()

    def _made(self) -> list[tuple[RunningNode, Mapping[Node, list[str]], KeptRows]]:
        pairs = ((self.known.moves, self._rows), (self.known.waiting, self._waiting))
        return [(running(node, self._device), leaves_of(node), rows) for node, rows in pairs if node is not None]

    @property
    def _kept(self) -> KeptRows:
        """The rows that events find: of batches those that wait."""
        return self._rows if self.known.gathering is None else self._waiting

    def whole(self) -> dict[Feed, WindowMoves]:
        """All that is in, for a statement that begins."""
        return self._read(self._rows.whole(), self._waiting.whole())

    def read(self) -> dict[Feed, WindowMoves]:
        """What changed in the last step, for the statements over it."""
        return {feed: moves for feed, moves in self._read(self.moved, self.waited).items() if len(moves)}

    def _read(self, rows: WindowMoves, waiting: WindowMoves) -> dict[Feed, WindowMoves]:
        known = self.known
        return {known.content: rows} | ({} if known.gathering is None else {known.gathering: waiting})

    def content(self) -> pa.Table:
        """The rows that are in."""
        return self._kept.table.select(self.known.columns.names)

    # The state

    @property
    def nodes(self) -> list[RunningNode]:
        """What runs, each node after those that it reads."""
        self._begin_anew()
        return [node for own, _, _ in self._nodes for node in own.walk()]

    def tables(self) -> dict[str, pa.Table]:
        """The rows that are in, those that wait, and the first one where it says when batches end."""
        anchor = self.schemas()["anchor"].empty_table() if self._anchor is None else self._anchor
        return {"rows": self._rows.table, "waiting": self._waiting.table, "anchor": anchor}

    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of what `tables` gives."""
        first = pa.schema([*self.known.schema, pa.field(CLOCK, TIME_TYPE)])
        return {"rows": self._rows.schema, "waiting": self._waiting.schema, "anchor": first}

    def restored(self, tables: Mapping[str, pa.Table], place: int, *, orphans: bool) -> None:
        """Have what `tables` gave, as things stand at a place."""
        for name, rows in (("rows", self._rows), ("waiting", self._waiting)):
            rows.table = tables.get(name, rows.table)
        self._anchor, self.orphans = tables.get("anchor"), orphans
        self._at = self._done = place

    # Steps

    def step(
        self,
        inserted: PlacedRows | None,
        ticks: TickRows | None,
        triggered: Sequence[Triggered],
        until: int,
        ended: PlacedRows | None = None,
    ) -> dict[int, pa.Table]:
        """Take some turns.

        Args:
            inserted: The rows that are inserted.
            ticks: The moves of the clock.
            triggered: The events that change rows, of each statement, in the order of statements.
            until: The place behind the turns.
            ended: The instances of its context that end.

        Returns:
            What each of these statements delivers, by its number.
        """
        made: dict[int, list[pa.Table]] = {each.number: [] for each in triggered}
        if triggered and all(each.change.into for each in triggered):
            self._replace(triggered)
        elif self._nodes and self.known.alone and all(each.change.deletes_only for each in triggered):
            self._advance(inserted, ticks, until)
            for number, rows in self._taken_out(triggered):
                made[number].append(rows)
        elif (walk := self._walk_of(triggered)) is not None:
            self._advance(inserted, ticks, until, walks=True)
            for number, rows in self._walked(walk, triggered, ticks):
                made[number].append(rows)
        elif self.known.alone and all(each.change.deletes_only for each in triggered):
            self._advance(inserted, ticks, until)
            for number, rows in self._taken_out(triggered):
                made[number].append(rows)
        elif not self._nodes and _share_keys(triggered):
            self._advance(inserted, ticks, until)
            for number, rows in self._by_rounds(triggered):
                made[number].append(rows)
        else:
            for place in np.unique(
                np.concatenate([np.zeros(0, np.int64), *(each.places for each in triggered)])
            ).tolist():
                self._advance(inserted, ticks, place + MOMENT)
                for each in triggered:
                    low, high = np.searchsorted(each.places, [place, place + 1]).tolist()
                    for at in range(low, high):
                        made[each.number] += self._changed(each, each.rows.slice(at, 1), each.places[at : at + 1])
            self._advance(inserted, ticks, until)
        if ended is not None and len(ended.places):
            self._over(ended)
        if self.known.keys and inserted is not None:
            self._check_keys()
        self._rows.put_in_order()
        self.moved, self.waited = self._rows.moves(self._done), self._waiting.moves(self._done)
        self._done, self._made_in = until, self._made_in[:0]
        return {number: _in_order(pa.concat_tables([self._delivered([]), *tables])) for number, tables in made.items()}

    def _advance(self, inserted: PlacedRows | None, ticks: TickRows | None, cti: int, *, walks: bool = False) -> None:
        """Have the inserts and the ticks up to a place; where a walk takes them, rows enter, and none leaves."""
        if cti <= self._at:
            return
        if not walks:
            self._begin_anew()
        begin, self._at = self._at, cti
        if inserted is not None:
            low, high = np.searchsorted(inserted.places, [begin, cti]).tolist()
            inserted = inserted.between(low, high) if low < high else None
        if ticks is not None:
            low, high = np.searchsorted(ticks.places, [begin, cti]).tolist()
            ticks = ticks.between(low, high) if low < high else None
        if inserted is not None:
            rows = inserted.rows.append_column(ID, pa.array(inserted.places, pa.int64()))
            inserted = PlacedRows(inserted.places, rows, inserted.shown_clocks)
            if self._anchor is None and self.known.anchored:
                self._anchor = inserted.between(0, 1).table([*self.known.schema.names, CLOCK])
        if walks and self._nodes:
            self._stale = True
        if inserted is not None and (walks or not self._nodes):
            self._enter(inserted, 0)
        elif not walks and (inserted is not None or (ticks is not None and self._nodes)):
            self._fed(inserted, ticks, cti)

    def _fed(self, inserted: PlacedRows | None, ticks: TickRows | None, cti: int, by: int = 0, later: int = 0) -> None:
        """Have the data windows take rows and ticks; rows are so many places later than where they enter."""
        if not self._nodes:
            assert inserted is not None  # noqa: S101  (nothing else changes it)
            self._enter(inserted, by)
            return
        for made, rows in self._run(inserted, ticks, cti):
            kinds, places = made[ROW].to_numpy(), made[PLACE].to_numpy()
            came = made.filter(pa.array(kinds == NEW))
            if rows is self._rows and self.orphans and len(came):
                # Rows of the batch before, of which the data windows do not know any more.
                self.orphans = False
                rows.remove(np.ones(len(rows.table), np.bool_), places[kinds == NEW].min())
            rows.add(_as_rows(came), places[kinds == NEW] - later, by)
            _leave(rows, made[ID].to_numpy()[kinds == OLD], places[kinds == OLD])

    def _enter(self, inserted: PlacedRows, by: int) -> None:
        """Have rows in, whatever the data windows say."""
        table = inserted.table([*self.known.schema.names, CLOCK, ID])
        table = table.rename_columns([*self.known.schema.names, CLOCK, PLACE])
        self._rows.add(table, inserted.places, by)

    def _check_keys(self) -> None:
        """Refuse rows of a table that have one key."""
        rows = self._rows.table.select(list(self.known.keys))
        codes = key_codes(rows.columns, len(rows))
        _, first = np.unique(codes, return_index=True)
        if len(first) < len(rows):
            twice = np.setdiff1d(np.arange(len(rows)), first)
            row = rows.slice(int(twice[0]), 1).to_pylist()[0]
            raise PlanError(
                f"The table {self.known.name!r} has a row with the key {shown(tuple(row.values()))} already.",
                remedy="Merge: on T merge Table … when not matched then insert select ….",
            )

    def _begin_anew(self) -> None:
        """Have the data windows know the rows that a walk has left."""
        if self._stale:
            self._stale = False
            self._go_on(None, self._at, 0, 0)

    def _run(
        self, inserted: PlacedRows | None, ticks: TickRows | None, cti: int
    ) -> Iterator[tuple[pa.Table, KeptRows]]:
        """What the data windows make of rows and ticks, without the row that stands for another."""
        arrived = {} if inserted is None else {self.known.arrivals: inserted}
        for node, reads, rows in self._nodes:
            made = placed_table(
                stepped_node(node, self._device, reads, arrived, (self._ticks, ticks), cti),
                node.node.schema,
                self._device,
            )
            yield made.filter(pa.array(made[ID].to_numpy() != _GHOST)), rows

    def _over(self, ended: PlacedRows) -> None:
        """Have the rows of instances that have ended gone, of which statements within them are not told."""
        instances = ended.rows[INSTANCE].to_numpy()
        order = np.argsort(instances)
        for rows in (self._rows, self._waiting):
            of = rows.table[INSTANCE].to_numpy()
            at = order[np.minimum(np.searchsorted(instances[order], of), len(order) - 1)]
            gone = instances[at] == of
            rows.remove(gone, np.maximum(ended.places[at][gone] + MOMENT, rows.table[ENTER].to_numpy()[gone]))
        # The data windows begin anew with the rows that are left.
        self._stale = self._stale or (bool(self._nodes) and not self.known.alone)

    # Changes

    def _walk_of(self, triggered: Sequence[Triggered]) -> RowWalk | None:
        """How the statements change rows in a walk over the events; None if there are none, or it is none of theirs."""
        numbers = tuple(each.number for each in triggered)
        if numbers not in self._walks:
            if len(self._walks) > _MOST_WALKS:  # those of queries on demand come once
                self._walks.clear()
            made, changes = None, [(each.number, each.change) for each in triggered]
            if changes and self.known.limits is not None:
                with suppress(PlanError):
                    made = RowWalk(self.known.schema, changes, self.known.limits)
            self._walks[numbers] = made
        return self._walks[numbers]

    def _walked(
        self, walk: RowWalk, triggered: Sequence[Triggered], ticks: TickRows | None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Have events change rows, in a walk."""
        kept, events = self._rows, []
        for each in triggered:
            programs, clocks = each.change.programs, each.rows[CLOCK].cast(pa.int64()).to_numpy()
            assert programs is not None  # noqa: S101  (there is no walk without them)
            computed = pa.table({})
            if programs.computed is not None:
                columns = {EVENT + name: each.rows[name] for name in each.rows.column_names if name != CLOCK}
                columns |= {CLOCK: each.rows[CLOCK], PLACE: pa.array(np.zeros(len(clocks), np.int64))}
                rows = pa.table([columns[name] for name in programs.events.schema.names], programs.events.schema)
                computed = self._calculated(programs.computed, programs.events, rows)
            events.append(WalkingEvents(each.rows, computed, each.places, clocks))
        enter = kept.table[ENTER].to_numpy()
        concerned = walk.concerned(kept.table, enter >= self._done, events)
        rows = kept.table.filter(pa.array(concerned))
        clocks = rows[CLOCK].cast(pa.int64()).to_numpy()
        moves = (clocks[:0], clocks[:0]) if ticks is None else (ticks.places, ticks.clocks)
        found = walk.of(rows, enter[concerned], clocks, events, moves)
        numbers = np.array([each.number for each in triggered])
        silent = np.isin(found.out_by, [each.number for each in triggered if each.change.silent])
        out, count = found.leave < STAYS, found.count
        gone = out[:count]
        concerned[concerned] = gone
        kept.remove(concerned, found.leave[:count][gone], found.out_by[:count][gone], silent[:count][gone])
        if len(found.enter):
            of, at = found.events
            clocks = np.empty(len(of), np.int64)
            for which, own in enumerate(events):
                clocks[of == which] = own.clocks[at[of == which]]
            rows = found.rows.slice(count).append_column(CLOCK, to_arrow(clocks, TIME_TYPE))
            rows = rows.append_column(PLACE, pa.array(self._ids((found.enter - MOMENT) // TURN)))
            ends = out[count:], found.leave[count:], found.out_by[count:], silent[count:]
            kept.follow(rows, found.enter, numbers[of], *ends)
        of, at, what, rows_of = found.known
        for which, each in enumerate(triggered):
            mine = of == which
            kinds = np.array([each.change.deleted_as, NEW, OLD])[what[mine]]
            rows = found.rows.take(pa.array(rows_of[mine]))
            yield each.number, self._delivered([(rows, kinds, each.places[at[mine]])])

    def _replace(self, triggered: Sequence[Triggered]) -> None:
        """Have the rows of queries in a table: each replaces that of its key, and keeps the columns it does not say."""
        names, kept = self.known.schema.names, self._rows.table
        tables = [kept.select([*names, CLOCK])]
        tables += [pa.table({name: each.rows[name] for name in each.rows.column_names}) for each in triggered]
        rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
        owner = np.repeat([0, *(each.number for each in triggered)], list(map(len, tables)))
        places = np.concatenate([np.full(len(kept), MIN_TIME), *(each.places for each in triggered)])
        codes = key_codes([rows[name] for name in self.known.keys], len(rows))
        order = np.lexsort((np.arange(len(rows)), owner, places, codes))
        owner, places, codes = owner[order], places[order], codes[order]
        first = np.concatenate([[True], codes[1:] != codes[:-1]])
        begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
        columns: dict[str, Any] = {}
        for name in names:
            said = np.isin(owner, [0, *(each.number for each in triggered if name in each.rows.column_names)])
            at = np.maximum.accumulate(np.where(said, np.arange(len(rows)), -1))
            known = at >= begin
            columns[name] = rows[name].take(pa.array(np.where(known, order[at], 0), mask=~known))
        columns[CLOCK] = rows[CLOCK].take(pa.array(order))
        new = owner > 0
        turn = places[new] // TURN
        by_turn = np.argsort(turn, kind="stable")
        rank = np.empty(len(turn), np.int64)
        rank[by_turn] = np.arange(len(turn)) - np.searchsorted(turn[by_turn], turn[by_turn])
        leave = np.append(places[1:], 0) + MOMENT
        last = np.append(first[1:], True)
        made = pa.table({**columns}).filter(pa.array(new))
        made = made.append_column(PLACE, pa.array(turn * TURN + TURN - LEVEL + 2 * rank))
        gone = np.zeros(len(kept), np.bool_)
        was, next_owner = ~new & ~last, np.append(owner[1:], 0)
        gone[order[was]] = True
        ends, by = np.zeros(len(kept), np.int64), np.zeros(len(kept), np.int64)
        ends[order[was]], by[order[was]] = leave[was], next_owner[was]
        self._rows.remove(gone, ends[gone], by[gone])
        self._rows.follow(made, places[new] + MOMENT, owner[new], ~last[new], leave[new], next_owner[new])

    def _taken_out(self, triggered: Sequence[Triggered]) -> Iterator[tuple[int, pa.Table]]:
        """Have rows out, each at the first event that says so: where nothing else depends on it."""
        if not any(len(each.places) for each in triggered):
            return
        kept, gone = self._rows.table, self._rows.gone
        rows = pa.concat_tables([kept, gone.select(kept.column_names)])
        if not len(rows):
            return
        enter = rows[ENTER].to_numpy()
        leave = np.concatenate([np.full(len(kept), np.iinfo(np.int64).max), gone[LEAVE].to_numpy()])
        first = np.full(len(rows), np.iinfo(np.int64).max)
        owner = np.zeros(len(rows), np.int64)
        for each in triggered:
            for pairs in matching(each.rows, rows, each.change.on):
                places = each.places[pairs[0]]
                there = (enter[pairs[1]] < places) & (places < leave[pairs[1]])
                events, own = (side[there] for side in pairs)
                passed = _holds(self._paired(each.change, each.rows, rows, events, own), each.change.passes)
                found = np.full(len(rows), np.iinfo(np.int64).max)
                np.minimum.at(found, own[passed], each.places[events[passed]])
                earlier = found < first
                first, owner = np.where(earlier, found, first), np.where(earlier, each.number, owner)
        hit = first < np.iinfo(np.int64).max
        silent = np.isin(owner, [each.number for each in triggered if each.change.silent])
        self._rows.taken(hit, first + MOMENT, owner, silent)
        for each in triggered:
            own = np.flatnonzero(hit & (owner == each.number))
            own = own[np.lexsort((own, first[own]))]
            taken = rows.take(pa.array(own)).select(self.known.schema.names)
            yield each.number, self._delivered([(taken, each.change.deleted_as, first[own])])

    def _by_rounds(self, triggered: Sequence[Triggered]) -> Iterator[tuple[int, pa.Table]]:
        """Have events change the rows of their keys: the first event of each key together, then the second ones."""
        keys = sorted(other for _, other in triggered[0].change.on)
        columns = [
            pa.chunked_array(
                [chunk for each in triggered for chunk in each.rows[_of(each.change.on, key)].chunks],
                self.known.schema.field(key).type,
            )
            for key in keys
        ]
        places = np.concatenate([each.places for each in triggered])
        codes = key_codes(columns, len(places))
        number = np.repeat([each.number for each in triggered], [len(each.places) for each in triggered])
        order = np.lexsort((np.arange(len(places)), number, places, codes))
        begins = np.searchsorted(codes[order], codes[order])
        rounds = np.empty(len(places), np.int64)
        rounds[order] = np.arange(len(places)) - begins
        for at in range(int(rounds.max(initial=-1)) + 1):
            low = 0
            for each in triggered:
                some = np.flatnonzero(rounds[low : low + len(each.places)] == at)
                low += len(each.places)
                if len(some):
                    rows = self._changed(each, each.rows.take(pa.array(some)), each.places[some])
                    yield from ((each.number, made) for made in rows)

    def _changed(self, event: Triggered, events: pa.Table, places: Any) -> list[pa.Table]:
        """Have events change rows, of which no two find the same one.

        Args:
            event: The statement.
            events: Its events.
            places: int64 place of each.

        Returns:
            What the statement delivers.
        """
        change, kept = event.change, self._kept
        pairs = [*matching(events, kept.table, change.on, nulls=change.into)]
        empty = np.zeros(0, np.int64)
        at, own = (np.concatenate([empty, *(pair[side] for pair in pairs)]) for side in (0, 1))
        enter, by = kept.table[ENTER].to_numpy()[own], kept.table[BY].to_numpy()[own]
        # What earlier statements, and earlier events of this one, have brought in at an event is there for it.
        there = (enter < places[at]) | ((enter == places[at] + MOMENT) & (by > 0) & (by <= event.number))
        at, own = at[there], own[there]
        values = self._paired(change, events, kept.table, at, own)
        passed = _holds(values, change.passes)
        at, own, values = at[passed], own[passed], values.filter(pa.array(passed))
        done = _Done(self.known.schema, change.deleted_as)
        out, ends = np.zeros(len(kept.table), np.bool_), np.zeros(len(kept.table), np.int64)
        left = np.ones(len(own), np.bool_)
        for branch in change.branches:
            if branch.matched and left.any():
                fits = left & _holds(values, branch.where)
                left &= ~fits
                for action in branch.actions:
                    does = fits & _holds(values, action.where)
                    if action.kind != "insert":
                        out[own[does]], ends[own[does]] = True, places[at[does]] + MOMENT
                    done.act(action, values, does, at, kept.table.take(pa.array(own[does])))
        found = np.zeros(len(events), np.bool_)
        found[at] = True
        always = any(branch.always for branch in change.branches)
        lone = np.arange(len(events)) if always else np.flatnonzero(~found)
        if len(lone):
            values = self._paired(change, events, kept.table, lone, np.full(len(lone), -1))
            left = np.ones(len(lone), np.bool_)
            for branch in change.branches:
                if not branch.matched or branch.always:
                    fits = left & _holds(values, branch.where) & (branch.always | ~found[lone])
                    left &= ~fits
                    for action in branch.actions:
                        done.act(action, values, fits & _holds(values, action.where), lone, kept.table.slice(0, 0))
        if out.any() or done.at:
            clocks = events[CLOCK].cast(pa.int64()).to_numpy()
            self._replaced(out, ends, done, places, clocks, event)
        return [self._delivered([(rows, kind, places[each]) for rows, kind, each in done.told])] if done.told else []

    def _replaced(self, out: Any, ends: Any, done: _Done, places: Any, clocks: Any, event: Triggered) -> None:
        """Have some rows out and others in, behind the events that do it."""
        kept, number = self._kept, event.number
        kept.remove(out, ends[out], number, event.change.silent)
        inserted = None
        if done.at:
            at = np.concatenate(done.at)
            order = np.argsort(at, kind="stable")
            at, new = at[order], pa.concat_tables(done.new).take(pa.array(order))
            rows = new.append_column(ID, pa.array(self._ids(places[at] // TURN)))
            inserted = PlacedRows(places[at] + MOMENT, rows, clocks[at])
        place, clock = int(places[-1]) + MOMENT, int(clocks[-1])
        if not self._nodes or self.known.alone:
            if inserted is not None:
                # Data windows take no row at a place that they have left behind: it comes later, and enters there.
                later = max(self._at - int(inserted.places[0]), 0) if self._nodes else 0
                inserted = PlacedRows(inserted.places + later, inserted.rows, inserted.shown_clocks)
                self._at = max(self._at, place + later + MOMENT)
                self._fed(inserted, None, self._at, number, later)
            return
        self._go_on(inserted, place, clock, number)

    def _go_on(self, inserted: PlacedRows | None, place: int, clock: int, by: int) -> None:
        """Have the data windows begin anew with the rows that are left, as if they had come in their order."""
        kept, names = self._kept, self.known.schema.names
        tables = [] if self._anchor is None else [_anchored(self._anchor)]
        tables.append(kept.table.select([*names, CLOCK, PLACE]).rename_columns([*names, CLOCK, ID]))
        if inserted is not None:
            tables.append(inserted.table([*names, CLOCK, ID]))
        rows = pa.concat_tables([each.cast(tables[-1].schema) for each in tables]).combine_chunks()
        places = place - 4 * (len(rows) - np.arange(len(rows)))
        clocks = rows[CLOCK].cast(pa.int64()).to_numpy()
        fed = PlacedRows(places, rows.drop_columns([CLOCK]), clocks)
        self._nodes, self.orphans = self._made(), self.known.gathering is not None and len(self._rows.table) > 0
        ticks = None
        if self._anchor is not None:
            moment = np.full(1, clocks[1] if len(clocks) > 1 else clock)
            ticks = TickRows(lambda: (places[:1] + 2, moment, np.zeros(1, np.bool_)))
        self._at = max(self._at, place)
        for made, rows_in in self._run(fed, ticks, self._at):
            kinds, ids = made[ROW].to_numpy(), made[ID].to_numpy()
            gone = ids[kinds == OLD]
            came = made.filter(pa.array((kinds == NEW) & ~np.isin(ids, gone)))
            if rows_in is kept:
                stay = came[ID].to_numpy()
                kept.remove(~np.isin(kept.ids, stay), place, by)
                came = came.filter(pa.array(~np.isin(stay, kept.ids)))
            elif len(came):
                rows_in.remove(np.ones(len(rows_in.table), np.bool_), place, by)
                self.orphans = False
            rows_in.add(_as_rows(came), np.full(len(came), place), by)

    def _ids(self, turns: Any) -> Any:
        """Numbers for rows that turns make: behind those of the events that come in them.

        Args:
            turns: int64 turn of each row, ascending.
        """
        before = np.searchsorted(self._made_in, turns, side="right") - np.searchsorted(self._made_in, turns)
        rank = before + np.arange(len(turns)) - np.searchsorted(turns, turns)
        self._made_in = np.sort(np.concatenate([self._made_in, turns]))
        return turns * TURN + TURN - LEVEL + 2 * rank

    def _paired(self, change: PlannedChange, events: pa.Table, rows: pa.Table, at: Any, own: Any) -> pa.Table:
        """The conditions and the values of pairs of an event and a row; a row of -1 is none."""
        if change.computed is None:
            return pa.table({"@pair": pa.array(at)})
        mine, other = pa.array(at), pa.array(own, mask=own < 0)
        columns = []
        for each in change.pairs.schema.names:
            if each == PLACE:
                columns.append(pa.array(np.zeros(len(at), np.int64)))
            elif each == CLOCK:
                columns.append(events[CLOCK].take(mine))
            elif each.startswith(EVENT):
                columns.append(events[each.removeprefix(EVENT)].take(mine))
            else:
                columns.append(rows[each.removeprefix(KEPT)].take(other))
        return self._calculated(change.computed, change.pairs, pa.table(columns, change.pairs.schema))

    def _calculated(self, computed: Node, feed: Feed, table: pa.Table) -> pa.Table:
        """What a node makes of the rows of its leaf."""
        fed = {feed: PlacedRows(np.zeros(len(table), np.int64), table)}
        if computed not in self._computed:
            self._computed[computed] = running(computed, self._device), leaves_of(computed)
        node, reads = self._computed[computed]
        made = stepped_node(node, self._device, reads, fed, (self._ticks, None), 0)
        schema, columns_of = computed.schema, self._device.columns
        tables = [columns_of.to_arrow(each.frame, schema) for each in made.events]
        return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()

    def _delivered(self, parts: Sequence[tuple[pa.Table, Any, Any]]) -> pa.Table:
        """Rows as a statement delivers them."""
        names = [f"@column {at}" for at in range(len(self.known.schema))]
        fields = [pa.field(to, each.type) for to, each in zip(names, self.known.schema, strict=True)]
        own = [pa.field(ROW, pa.int8()), pa.field(ORDER, pa.int64()), pa.field(PLACE, pa.int64())]
        schema = pa.schema([*fields, *own])
        tables = [schema.empty_table()]
        for rows, kind, places in parts:
            count = len(rows)
            more = [np.full(count, kind, np.int8), np.arange(count), places]
            tables.append(pa.table([*rows.columns, *map(pa.array, more)], schema))
        return _in_order(pa.concat_tables(tables))


@dataclass
class _Done:
    """What events do to rows.

    Attributes:
        schema: The columns of the window.
        deleted_as: What a row that is taken out is for the statement.
        new: The rows that come in.
        at: The number of the event of each.
        told: What the statement delivers: rows, what they are, and the number of the event of each.
    """

    schema: pa.Schema
    deleted_as: int
    new: list[pa.Table] = field(default_factory=list)
    at: list[Any] = field(default_factory=list)
    told: list[tuple[pa.Table, int, Any]] = field(default_factory=list)

    def act(self, action: Action, values: pa.Table, does: Any, at: Any, before: pa.Table) -> None:
        """Note what an action does with some pairs.

        Args:
            action: The action.
            values: The conditions and values of pairs.
            does: Of which of them it does anything.
            at: The number of the event of each pair.
            before: The rows of those of which it does anything.
        """
        if not does.any():
            return
        old, events = before.select(self.schema.names), at[does]
        if action.kind == "delete":
            self.told.append((old, self.deleted_as, events))
            return
        columns = [values[name] for name in action.values]
        made = pa.table(columns, self.schema.names).filter(pa.array(does)).cast(self.schema)
        self.new.append(made)
        self.at.append(events)
        self.told.append((made, NEW, events))
        if action.kind == "update":
            self.told.append((old, OLD, events))


def _of(on: Sequence[tuple[str, str]], key: str) -> str:
    """The property of the event that is equal to a column of the window."""
    return next(mine for mine, other in on if other == key)


def _share_keys(triggered: Sequence[Triggered]) -> bool:
    """Whether all events are about the rows of their keys alone, and these are the same columns."""
    keys = {tuple(sorted(other for _, other in each.change.on)) for each in triggered}
    return len(keys) == 1 and all(each.change.by_key for each in triggered)


def _in_order(made: pa.Table) -> pa.Table:
    """Rows that are delivered, by place and kind; those of one event as they were made."""
    made = made.combine_chunks()
    order = np.lexsort((np.arange(len(made)), made[ROW].to_numpy(), made[PLACE].to_numpy()))
    return made.take(pa.array(order))


def _as_rows(made: pa.Table) -> pa.Table:
    """Rows that enter, with their numbers and what the clock showed as they came."""
    return made.drop_columns([PLACE]).rename_columns({ID: PLACE, CAME: CLOCK})


def _leave(rows: KeptRows, ids: Any, places: Any) -> None:
    """Have the rows with some numbers leave; others have gone already."""
    if not len(ids):
        return
    order = np.argsort(ids)
    at = np.searchsorted(ids[order], rows.ids)
    at = np.minimum(at, len(ids) - 1)
    mask = ids[order][at] == rows.ids
    rows.remove(mask, places[order][at][mask])


def _anchored(first: pa.Table) -> pa.Table:
    """The row that stands for the first one."""
    return first.append_column(ID, pa.array([_GHOST], pa.int64()))


def _holds(values: pa.Table, name: str | None) -> Any:
    """For which rows a condition holds."""
    if name is None:
        return np.ones(len(values), np.bool_)
    return values[name].fill_null(False).to_numpy()
