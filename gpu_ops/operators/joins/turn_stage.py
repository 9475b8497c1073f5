"""One join of a join on turns: the rows of the streams before, with those of a further stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_parts import Parts, joined
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.table_runs import TableRuns
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import CLOCK
from gpu_ops.devices import Device
from gpu_ops.operators.checked import holds
from gpu_ops.operators.events import Events, present
from gpu_ops.operators.joins import joins
from gpu_ops.operators.joins.joins import OverlapPairs
from gpu_ops.operators.joins.lonely import Lonely
from gpu_ops.operators.joins.turn_rows import (
    AT,
    ID,
    IDENTITIES,
    NEW,
    OLD,
    OPEN,
    Moved,
    column,
    made_columns,
    shown_places,
    some_of,
    together,
    with_columns,
)
from gpu_ops.operators.row_windows.data_windows import hashes
from gpu_ops.operators.state.changing_runs import ChangingRuns, change, now
from gpu_ops.operators.state.fields import nullable_columns, row_columns
from gpu_ops.operators.state.least import Least
from gpu_ops.operators.state.row_runs import RowRuns, ordered, parts_of, restore_runs
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, concat_rows
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.nodes import Feed, Filter
from gpu_ops.plan.turn_joins import TurnJoin

NULLS = 2
"""Null keys have numbers of their own, 0 on the left and 1 on the right, which the other side does not have."""

_SIDES = ("left", "right")

_ENTER = ("row", "enter")
"""The column of kept rows with the place at which they entered; they are in order of key and number of their own."""

_MET, _SINCE = ("row", "met"), ("row", "since")
"""The columns of rows that are there without a match: how many matches they have, and since when they have none."""

_RUN, _INDEX = ("row", "run"), ("row", "index")
"""Their columns in a step: in which run each is kept and where, -1 for rows that move."""


class _StayingRows(ChangingRuns):
    """Rows that stay, by key and number of their own; how many matches they have changes."""

    _least = 1 << 11
    # Each run that a row meets costs a gather; below this length merging costs less.


class TurnStage:
    """The rows of both sides that are in, by key, and the steps of their join.

    Pairs are not kept: those of a row that leaves are found again as they were found when it entered. Of rows that are
    there without a match too, it keeps how many matches they have.

    Args:
        node: The join.
        number: The number of the further stream.
        device: Where arrays live.
        opens: Whether pairs are given before their leaves are known.
    """

    def __init__(self, node: TurnJoin, number: int, device: Device, *, opens: bool) -> None:
        self._how, self._number, self._device, self._opens = node.further[number - 1], number, device, opens
        # Where only points make rows of the result, others are made for the points of later streams alone.
        self._has_pairs = not node.unidirectional or max(node.unidirectional) > number
        self._schemas = node.paired(number - 1), node.columns(number)
        # The last one gives what is read.
        drops = node.drops if number == len(node.further) else frozenset()
        self._given = [[name for name in schema.names if name not in drops] for schema in self._schemas]
        self._own = (NEW, OLD) if CLOCK in drops else (AT, NEW, OLD)
        self._is_inner = all(how.kind == "inner" for how in node.further[:number])
        condition = self._how.condition
        self._filter = None if condition is None else Filter(Feed(node.paired(number), (), None), condition)
        names = tuple(name for name, _ in self._how.on)
        self._keys = pa.schema([self._schemas[0].field(name).with_nullable(True) for name in names])
        self._groups, self._key_runs = GroupInterner(names, self._keys, device), TableRuns("")
        rows = [_StayingRows(("group", "low"), (_MET, _SINCE) if keeps else (), device) for keeps in self._how.keeps]
        self._alive = rows[0], rows[1]
        self._entered = Least(device.columns.host), Least(device.columns.host)

    def step(self, sides: tuple[Moved, Moved], done: int, cti: int) -> Moved:
        """The pairs that enter and leave in a step, from one CTI to another."""
        device, made, over = self._device, Moved(), cti == MAX_TIME and not self._opens
        moving = [self._moving(at, side, over=over) for at, side in enumerate(sides)]
        points = [
            ordered(self._coded(at, together(side.points, device)), "low", device) for at, side in enumerate(sides)
        ]
        left, right = (self._content(at, moving[at], (moving[1 - at], points[1 - at])) for at in (0, 1))
        pairs = [joins.no_pairs(device)]
        if self._has_pairs:
            entering = joins.all_pairs([*self._matched(left, right, self._entering(left, right, done))], device)
            leaving = joins.all_pairs([*self._matched(left, right, self._leaving(left, right, done))], device)
            pairs += [entering, leaving]
            made.entered, made.closed = (
                [self._pairs(left, right, each)] if len(each.rows) else [] for each in (entering, leaving)
            )
        every = joins.all_pairs(pairs if any(self._how.keeps) else [], device)
        for at, (point, rows) in enumerate(zip(points, (left, right), strict=True)):
            one, other = (point, right) if at == 0 else (left, point)
            found = joins.all_pairs([*self._matched(one, other, joins.overlaps(one, other, device))], device)
            if len(found.rows):
                made.points.append(self._pairs(one, other, found, point=at))
            kept = rows
            if self._how.keeps[at]:
                self._points_alone(at, point, found.others if at else found.rows, made)
                kept = self._alone(at, rows, every, done, made) if self._has_pairs else rows
            self._keep(at, kept, done)
        self._forget()
        return made

    # What comes in

    def _moving(self, at: int, side: Moved, *, over: bool) -> AxisRows:
        """The rows of a side that move in a step; those that leave are no longer kept."""
        device, pieces = self._device, side.entered
        leaving = together(side.closed, device)
        parts = [] if leaving is None else [self._drop(at, self._coded(at, leaving))]
        if over:
            # At the end of time all rows leave. What was made of rows before has been closed by who made it.
            pieces = [replace(each, high=np.minimum(each.high, MAX_TIME)) for each in pieces]
            if at == 1 or self._number == 1:
                parts += [self._kept(at, each, MAX_TIME) for each in self._alive[at].pieces()]
                self._alive[at].replace([])
        entering = together([self._alone_so_far(at, each) for each in pieces], device)
        parts += [] if entering is None else [self._coded(at, entering)]
        return concat_rows(parts, device) if parts else self._alone_so_far(at, self._none(at))

    def _content(self, at: int, moving: AxisRows, others: Sequence[AxisRows]) -> AxisRows:
        """The rows of a side that move, and those that stay and have a key of some others; in order of key and enter.

        Rows that stay have entered before the step, and leave at `OPEN`.
        """
        device, alive = self._device, self._alive[at]
        keeps = self._how.keeps[at]
        rows = [self._from_run(moving, -1, np.full_like(moving.low, -1)) if keeps else moving]
        codes = np.concatenate([each.code for each in others])
        if len(codes) and len(alive):
            groups = present(codes, len(self._groups) + NULLS, device)
            for number, (run, where) in enumerate(alive.of_groups(groups)):
                if len(where):
                    some = self._kept(at, self._with_matches(run, where), OPEN)
                    rows.append(self._from_run(some, number, where) if keeps else some)
        return ordered(concat_rows(rows, device), "low", device)

    def _with_matches(self, run: Run[AxisRows], where: Any) -> AxisRows:
        """Some rows of a run, with how many matches they have now."""
        names = (_MET, _SINCE) if _MET in run.rows.columns else ()
        known = {name[1]: self._device.kernels.take(now(run, name), where) for name in names}
        return with_columns(run.rows.take(where, self._device), **known)

    def _from_run(self, rows: AxisRows, run: int, index: Any) -> AxisRows:
        return with_columns(rows, run=np.full_like(rows.low, run), index=index)

    def _alone_so_far(self, at: int, rows: AxisRows) -> AxisRows:
        """New rows, without matches if that matters."""
        if not self._how.keeps[at] or _MET in rows.columns:
            return rows
        return with_columns(rows, met=np.zeros_like(rows.low), since=rows.low.copy())

    def _coded(self, at: int, rows: AxisRows | None) -> AxisRows:
        """Rows with the numbers of their keys."""
        if rows is None:
            return self._none(at)
        on, device = self._how.on, self._device
        names = [each[at] for each in on]
        keys = joins.right_keys(on, rows.frame, device) if at and names else rows.frame
        codes = self._groups.codes(keys) + np.int32(NULLS)
        known = joins.known_keys(names, rows.frame, device)
        if known is not None:
            codes = np.where(known, codes, np.int32(at)).astype(np.int32)
        return replace(rows, code=codes)

    def _none(self, at: int) -> AxisRows:
        events = joins.nothing(self._schemas[at], self._device)
        none, no = events.start, events.start.astype(np.bool_)
        columns = made_columns(id=none, clock=none, new=no, old=no)
        return AxisRows(none.astype(np.int32), none, none, columns, events.frame)

    def _drop(self, at: int, leaving: AxisRows) -> AxisRows:
        """Rows leave that are kept; with what was known of them."""
        kernels, alive = self._device.kernels, self._alive[at]
        leaving = self._alone_so_far(at, leaving)
        known = {name: column(leaving, ("row", name)) for _, name in (_MET, _SINCE) if self._how.keeps[at]}
        ids = column(leaving, ID)
        for run in alive.runs:
            rows = run.rows
            where = kernels.search_pairs(rows.code, rows.low, leaving.code, ids - 1)
            inside = np.minimum(where, len(rows) - 1)
            found = (where == inside) & (kernels.take(rows.code, inside) == leaving.code)
            found = found & (kernels.take(rows.low, inside) == ids)
            if run.gone is not None:
                found = found & ~kernels.take(run.gone, inside)
            here = kernels.keep(found)
            places = kernels.take(inside, here)
            alive.drop(run, places)
            for name, values in known.items():
                values[here] = kernels.take(now(run, ("row", name)), places)
        if not self._opens:
            self._entered[at].remove(leaving.low)
        return with_columns(leaving, **known)

    def _keep(self, at: int, rows: AxisRows, done: int) -> None:
        """Rows that enter and stay are kept."""
        rows = some_of(rows, (rows.low >= done) & (rows.high == OPEN), self._device)
        if not len(rows):
            return
        columns = made_columns(enter=rows.low) | {name: rows.columns[name] for name in self._known_of(at)}
        self._alive[at].add(replace(rows, low=column(rows, ID), columns=columns))
        if not self._opens:
            self._entered[at].add(rows.low)

    def _kept(self, at: int, kept: AxisRows, leave: int) -> AxisRows:
        """Kept rows as rows that leave at a place."""
        columns = {name: kept.columns[name] for name in self._known_of(at)}
        columns |= made_columns(id=kept.low, old=np.zeros_like(column(kept, NEW)))
        return replace(kept, low=column(kept, _ENTER), high=np.full_like(kept.low, leave), columns=columns)

    def _known_of(self, at: int) -> tuple[tuple[str, str], ...]:
        """The columns of kept rows, beside that of their enters."""
        return (AT, NEW, _MET, _SINCE) if self._how.keeps[at] else (AT, NEW)

    # Pairs

    def _entering(self, left: AxisRows, right: AxisRows, done: int) -> Iterator[OverlapPairs]:
        """The pairs of which a member enters, in order of where they enter, then of where their other members did."""
        kernels, sides = self._device.kernels, (left, right)
        new = [kernels.keep(side.low >= done) for side in sides]
        lows = np.concatenate([kernels.take(side.low, at) for side, at in zip(sides, new, strict=True)])
        rank = np.empty_like(lows)
        rank[kernels.group_order(np.zeros_like(lows, dtype=np.int32), 1, lows)] = np.arange(len(lows), like=lows)
        yield from self._met(left, right, (new[0], new[1]), (rank[: len(new[0])], rank[len(new[0]) :]))

    def _met(
        self, left: AxisRows, right: AxisRows, new: tuple[Any, Any], rank: tuple[Any, Any]
    ) -> Iterator[OverlapPairs]:
        """The pairs of some that enter, with all: in pieces where a condition reads them.

        Args:
            left: The rows of the left side, those that entered before among them.
            right: Those of the right side.
            new: int64 indices of those on each side that enter.
            rank: int64 for each of them how many of both sides enter before it.
        """
        device, count = self._device, sum(map(len, new))
        lefts, rights = (_lifetimes(side, at, device) for side, at in zip((left, right), new, strict=True))
        ranges = joins.starting_within(left, rights, device), joins.starting_after(lefts, right, device)
        if self._filter is not None and count > 1 and sum(int(offsets[-1]) for _, offsets in ranges) > joins.PAIRS:
            least = min(int(each.min()) for each in rank if len(each))
            for late in (False, True):
                some = [device.kernels.keep((each >= least + count // 2) == late) for each in rank]
                parts = [
                    [device.kernels.take(each, at) for each, at in zip(whole, some, strict=True)]
                    for whole in (new, rank)
                ]
                yield from self._met(left, right, (parts[0][0], parts[0][1]), (parts[1][0], parts[1][1]))
            return
        base = min((int(each.min()) for each in rank if len(each)), default=0)
        given = [
            (*found, at, number - base, side.low, side.high)
            for found, at, number, side in zip(ranges, new, rank, (left, right), strict=True)
        ]
        yield OverlapPairs(*device.kernels.meetings_in_order(*given[0], *given[1]))

    def _leaving(self, left: AxisRows, right: AxisRows, done: int) -> Iterator[OverlapPairs]:
        """The pairs of members that entered before the step, of which one leaves: all of one key are in together."""
        device, take = self._device, self._device.kernels.take
        for one, other, back in ((left, right, False), (right, left, True)):
            goes = device.kernels.keep((one.low < done) & (one.high < OPEN))
            # Pairs of two that leave are found with the left one.
            there = device.kernels.keep((other.low < done) & (other.high == OPEN) if back else other.low < done)
            if not len(goes) or not len(there):
                continue
            some, others = _lifetimes(one, goes, device), _lifetimes(other, there, device)
            first, last = (np.searchsorted(others.code, some.code, side=side) for side in ("left", "right"))
            for found in joins.pairs(first.astype(np.int64), last.astype(np.int64), some.high, others, device):
                start = np.maximum(take(some.low, found.rows), found.start)
                pairs = OverlapPairs(take(goes, found.rows), take(there, found.others), start, found.end)
                yield pairs.swapped() if back else pairs

    def _matched(self, left: AxisRows, right: AxisRows, pairs: Iterator[OverlapPairs]) -> Iterator[OverlapPairs]:
        """The pairs for which the condition holds."""
        for found in pairs:
            if self._filter is None or not len(found.rows):
                yield found
            else:
                mask = self._holds(left, right, found)
                yield found if bool(mask.all()) else found.take(self._device.kernels.keep(mask), self._device)

    def _holds(self, left: AxisRows, right: AxisRows, found: OverlapPairs) -> Any:
        assert self._filter is not None  # noqa: S101  (asked by who calls it)
        columns, parts = self._device.columns, []
        (condition,) = self._filter.exact
        for rows, at, schema in ((left, found.rows, self._schemas[0]), (right, found.others, self._schemas[1])):
            names = column_names(condition, schema.names)
            if names:
                parts.append(columns.take(columns.select(rows.frame, names), at))
        if not parts:  # it reads no column
            parts.append(columns.take(columns.select(left.frame, self._schemas[0].names[:1]), found.rows))
        return holds(
            condition, self._filter.guards, Events(found.start, found.end, columns.beside(*parts)), self._device
        )

    # What goes out

    def _pairs(self, left: AxisRows, right: AxisRows, pairs: OverlapPairs, point: int | None = None) -> AxisRows:
        """Pairs as rows; those of the points of a side are delivered as these are."""
        columns, take = self._device.columns, self._device.kernels.take
        start, end = pairs.start, pairs.end
        members = ((left, pairs.rows), (right, pairs.others))
        if point is not None:
            rows, at = members[point]
            new, old = (take(column(rows, name), at) for name in (NEW, OLD))
        elif self._is_inner:
            new, old = np.ones_like(start, dtype=np.bool_), end < MAX_TIME
        else:
            enters = [(take(rows.low, at) == start) & take(column(rows, NEW), at) for rows, at in members]
            leaves = [(take(rows.high, at) == end) & take(column(rows, OLD), at) for rows, at in members]
            new, old = enters[0] | enters[1], leaves[0] | leaves[1]
        ids = [take(column(rows, ID), at) for rows, at in members]
        made = made_columns(id=(ids[0] + ids[1]) & IDENTITIES, new=new, old=old)
        if AT in self._own:
            made |= made_columns(clock=np.maximum(*(take(column(rows, AT), at) for rows, at in members)))
        parts = [
            columns.take(columns.select(rows.frame, names), at)
            for (rows, at), names in zip(members, self._given, strict=True)
            if names
        ]
        return AxisRows(np.zeros_like(start, dtype=np.int32), start, end, made, self._beside(parts))

    def _beside(self, parts: Sequence[Any]) -> Any:
        return self._device.columns.beside(*parts) if parts else None

    # Rows without a match

    def _points_alone(self, at: int, point: AxisRows, met: Any, made: Moved) -> None:
        """Points without a match."""
        alone = np.ones_like(column(point, OLD))
        alone[met] = False
        which = self._device.kernels.keep(alone)
        if len(which):
            some = replace(replace(point, frame=None).take(which, self._device), frame=point.frame)
            made.points.append(self._padded(at, some, which, some.low))

    def _alone(self, at: int, rows: AxisRows, pairs: OverlapPairs, done: int, made: Moved) -> AxisRows:
        """The times of rows without a match; gives the rows with what is known of them now."""
        begin = np.where(rows.low < done, MIN_TIME, rows.low)
        lone = Lonely(begin, rows.high, column(rows, _MET), column(rows, _SINCE), self._device)
        found = lone.pieces([(pairs.others if at else pairs.rows, pairs.start, pairs.end)], done)
        self._give_alone(at, rows, found, done, made)
        for number, run in enumerate(self._alive[at].runs):
            here = self._device.kernels.keep(column(rows, _RUN) == number)
            where = column(rows, _INDEX)[here]
            change(run, where, {_MET: lone.met[here], _SINCE: lone.since[here]})
        return with_columns(rows, met=lone.met, since=lone.since)

    def _give_alone(self, at: int, rows: AxisRows, pieces: tuple[Any, Any, Any], done: int, made: Moved) -> None:
        device, take = self._device, self._device.kernels.take
        was, stays = pieces[1] < done, pieces[2] == OPEN
        for which, into in ((was & ~stays, made.closed), (~was, made.entered)):
            which_rows = device.kernels.keep(which)
            if len(which_rows):
                index, start, end = (take(each, which_rows) for each in pieces)
                columns = made_columns(
                    id=take(column(rows, ID), index),
                    clock=take(column(rows, AT), index),
                    new=(take(rows.low, index) == start) & take(column(rows, NEW), index),
                    old=(take(rows.high, index) == end) & take(column(rows, OLD), index),
                )
                some = AxisRows(np.zeros_like(start, dtype=np.int32), start, end, columns, rows.frame)
                into.append(self._padded(at, some, index, start))

    def _padded(self, at: int, rows: AxisRows, index: Any, since: Any) -> AxisRows:
        """Rows of one side with nulls for the other. Each stretch of time without a match makes a row of its own.

        Args:
            at: The side.
            rows: The rows, with the frame out of which they are taken.
            index: int64 index of each in it.
            since: Where each stretch begins.
        """
        columns, other, (mine, theirs) = self._device.columns, self._schemas[1 - at], self._given[:: -1 if at else 1]
        parts = [columns.take(columns.select(rows.frame, mine), index)] if mine else []
        if theirs:
            none = columns.from_arrow(empty_table(pa.schema([other.field(name) for name in theirs])))
            parts.append(columns.nulls(none, len(rows)))
        made = {name: rows.columns[name] for name in self._own}
        made |= made_columns(id=hashes(at, column(rows, ID), since) & IDENTITIES)
        return replace(rows, columns=made, frame=self._beside(parts[::-1] if at else parts))

    # The state

    def floor(self, cti: int) -> list[int]:
        """For each stream of it the least place at which a row entered that stays; ``cti`` if none does."""
        sides = self._entered if self._number == 1 else self._entered[1:]
        return [each.least(cti) for each in sides]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return sum(map(len, self._alive))

    def _forget(self) -> None:
        """Forget keys of which no row is left, once they are most of all."""
        if not self._groups.crowded:
            return
        used = np.zeros(len(self._groups) + NULLS, np.bool_)
        for runs in self._alive:
            for rows in runs.pieces():
                used[self._device.columns.host(rows.code)] = True
        numbers = self._groups.forget(used[NULLS:])
        if numbers is None:
            return
        own = self._device.columns.array(np.arange(NULLS, dtype=np.int32))
        numbers = np.concatenate([own, numbers + np.int32(NULLS)])
        self._key_runs.forget()
        for runs in self._alive:
            runs.renumber(numbers)

    def _name(self, name: str) -> str:
        return f"{name} {self._number}"

    @property
    def _runs(self) -> dict[str, RowRuns]:
        return {self._name(side): self._alive[at] for at, side in enumerate(_SIDES)}

    def state_parts(self) -> Parts:
        """The keys with their numbers, and the rows that stay; no table before the first row."""
        if not self._groups.seen:
            return {}
        rows = parts_of(self._runs, self._table)
        if not self._keys.names:
            return rows
        return {self._name("keys"): self._key_runs.parts(len(self._groups), self._key_rows), **rows}

    def _key_rows(self, at: Any) -> pa.Table:
        keys = self._groups.keys_of(self._device.columns.array(at))
        return empty_table(self._keys) if keys is None else self._device.columns.to_arrow(keys, self._keys)

    def _table(self, name: str, rows: AxisRows) -> pa.Table:
        return rows.to_arrow(self._schemas[int(name == self._name(_SIDES[1]))], self._device, shown_places)

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """That of keys: rows tell of them by their numbers."""
        return (self._name("keys"),)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `state_parts` gives."""
        groups, keys = 1, self._name("keys")
        if self._keys.names:
            yield StateTable(keys, nullable_columns(self._keys, ""), unique=tuple(self._keys.names))
            groups = tables[keys].num_rows if keys in tables else 0
        own = Field(pa.int64(), least=0, most=IDENTITIES)
        place = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        for at, side in enumerate(_SIDES):
            numbers = {_ENTER: place, AT: Field(pa.int64())}
            if self._how.keeps[at]:
                numbers |= {_MET: Field(pa.int64(), least=0), _SINCE: place}
            columns = row_columns(
                own,
                Field(pa.int64(), least=OPEN, most=OPEN),
                groups + NULLS,
                first=NULLS,
                columns=made_columns(new=np.zeros(0, np.bool_)),
                numbers=numbers,
                frame=self._schemas[at],
            )
            columns["group"] = replace(columns["group"], besides=(at,))
            yield StateTable(self._name(side), columns)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        keys = parts.get(self._name("keys"), ())
        self._key_runs.restore(keys)
        if keys:
            table = joined([part.wanted() for part in keys]).combine_chunks()
            self._groups.restore(self._device.columns.from_arrow(table))
        for name, rows in restore_runs(self._runs, parts, self._device, len(self._groups) + NULLS):
            self._groups.see()
            if not self._opens:
                self._entered[int(name == self._name(_SIDES[1]))].add(column(rows, _ENTER))


def _lifetimes(rows: AxisRows, at: Any, device: Device) -> AxisRows:
    """Some rows, with their keys and lifetimes alone."""
    plain = replace(rows, columns={}, frame=None)
    return plain if len(at) == len(rows) else plain.take(at, device)
