"""One join of a join on turns: the rows of the streams before, with those of a further stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.checked import holds
from gpu_ops.operators.events import Events, present
from gpu_ops.operators.joins import joins
from gpu_ops.operators.joins.coverage import Matches
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
from gpu_ops.operators.state.fields import nullable_columns, row_columns
from gpu_ops.operators.state.row_runs import RowRuns, ordered
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, Least, concat_rows, rows_from_arrow
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.nodes import Feed, Filter
from gpu_ops.plan.turn_joins import TurnJoin

_NULLS = 2
"""Null keys have numbers of their own, 0 on the left and 1 on the right, which the other side does not have."""

_SIDES = ("left", "right")

_ENTER = ("row", "enter")
"""The column of kept rows with the place at which they entered; they are in order of key and number of their own."""


@dataclass(frozen=True)
class _Part:
    """Rows of a side: those that move in a step, or a run of those that stay.

    Attributes:
        rows: The rows.
        enter: Where they enter.
        leave: Where they leave.
        id: Their numbers.
        old: Whether they are delivered where they leave.
        run: The run.
    """

    rows: AxisRows
    enter: Any
    leave: Any
    id: Any
    old: Any
    run: Run[AxisRows] | None = None

    @classmethod
    def moving(cls, rows: AxisRows) -> _Part:
        """Rows that move."""
        return cls(rows, rows.low, rows.high, column(rows, ID), column(rows, OLD))

    @classmethod
    def staying(cls, run: Run[AxisRows]) -> _Part:
        """A run of rows that stay."""
        rows = run.rows
        return cls(rows, column(rows, _ENTER), rows.high, rows.low, np.zeros_like(column(rows, NEW)), run)


_Found = tuple[_Part, _Part, OverlapPairs]

_Met = dict[int | None, Matches]
"""The pairs of some rows, by the names of their runs; None for rows that move."""

_MET, _SINCE = ("row", "met"), ("row", "since")
"""The columns of rows that are there without a match: how many matches they have, and since when they have none."""


class _StayingRows(RowRuns):
    """Rows that stay, by key and number of their own; how many matches they have changes beside them."""

    _least = 1 << 11
    # Each run that a row meets costs a gather; below this length merging costs less.

    def _run(self, rows: AxisRows) -> Run[AxisRows]:
        run = super()._run(rows)
        for name in (_MET, _SINCE):
            if name in rows.columns:
                run.beside[name[1]] = column(rows, name).copy()
        return run

    def _rest(self, run: Run[AxisRows]) -> AxisRows:
        if _MET not in run.rows.columns:
            return super()._rest(run)
        rows = with_columns(run.rows, **{name: run.beside[name].copy() for _, name in (_MET, _SINCE)})
        return super()._rest(replace(run, rows=rows))


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
        condition = self._how.condition
        self._filter = None if condition is None else Filter(Feed(node.paired(number), (), None), condition)
        names = tuple(name for name, _ in self._how.on)
        self._keys = pa.schema([self._schemas[0].field(name).with_nullable(True) for name in names])
        self._groups = GroupInterner(names, self._keys, device)
        self._alive = _StayingRows(("group", "low"), device), _StayingRows(("group", "low"), device)
        self._entered = Least(), Least()

    def step(self, sides: tuple[Moved, Moved], done: int, cti: int) -> Moved:
        """The pairs that enter and leave in a step, from one CTI to another."""
        over, made = cti == MAX_TIME and not self._opens, Moved()
        left, right = (_Part.moving(self._moving(at, side, over=over)) for at, side in enumerate(sides))
        points = [_Part.moving(self._coded(at, together(side.points, self._device))) for at, side in enumerate(sides)]
        met: tuple[_Met, _Met] = ({}, {})
        for found in self._content(left, right) if self._has_pairs else ():
            self._sort_out(found, done, made)
            self._note(found, met)
        met_points: tuple[list[Any], list[Any]] = ([], [])
        for found, point in self._meeting_points(points[0], points[1], left, right):
            made.points.append(self._pairs(found, point))
            at = 0 if point is points[0] else 1
            met_points[at].append(found[2].others if at else found[2].rows)
        for at, (part, point) in enumerate(zip((left, right), points, strict=True)):
            moved = part
            if self._how.keeps[at]:
                self._points_alone(at, point, met_points[at], made)
                moved = self._alone(at, part, met[at], done, made) if self._has_pairs else part
            self._keep(at, moved)
        self._forget()
        return made

    # What comes in

    def _moving(self, at: int, side: Moved, *, over: bool) -> AxisRows:
        """The rows of a side that move in a step, in order of key and enter; those that leave are no longer kept."""
        device = self._device
        leaving = together(side.closed, device)
        pieces = [*side.whole, *side.opened]
        if leaving is not None:
            leaving = self._drop(at, self._coded(at, leaving))
        if over:
            # At the end of time all rows are whole. What was made of rows before has been closed by who made it.
            pieces = [replace(each, high=np.minimum(each.high, MAX_TIME)) for each in pieces]
            if at == 1 or self._number == 1:
                pieces += [self._lasting(each) for each in self._alive[at].pieces()]
                self._alive[at].replace([])
        entering = together([self._alone_so_far(at, each) for each in pieces], device)
        parts = [] if entering is None else [self._coded(at, entering)]
        parts += [] if leaving is None else [leaving]
        return ordered(concat_rows(parts, device), "low", device) if parts else self._alone_so_far(at, self._none(at))

    def _alone_so_far(self, at: int, rows: AxisRows) -> AxisRows:
        """New rows, without matches if that matters."""
        if not self._how.keeps[at] or _MET in rows.columns:
            return rows
        return with_columns(rows, met=np.zeros_like(rows.low), since=rows.low.copy())

    def _coded(self, at: int, rows: AxisRows | None) -> AxisRows:
        """Rows with the numbers of their keys, in order of key and enter."""
        if rows is None:
            return self._none(at)
        on, device = self._how.on, self._device
        names = [each[at] for each in on]
        keys = joins.right_keys(on, rows.frame, device) if at and names else rows.frame
        codes = self._groups.codes(keys) + np.int32(_NULLS)
        known = joins.known_keys(names, rows.frame, device)
        if known is not None:
            codes = np.where(known, codes, np.int32(at)).astype(np.int32)
        return ordered(replace(rows, code=codes), "low", device)

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
                values[here] = kernels.take(run.beside[name], places)
        if not self._opens:
            self._entered[at].remove(leaving.low)
        return with_columns(leaving, **known)

    def _keep(self, at: int, part: _Part) -> None:
        """Rows that stay are kept."""
        rows = some_of(part.rows, part.leave == OPEN, self._device)
        if not len(rows):
            return
        columns = made_columns(enter=rows.low) | {name: rows.columns[name] for name in self._known_of(at)}
        self._alive[at].add(replace(rows, low=column(rows, ID), columns=columns))
        if not self._opens:
            self._entered[at].add(rows.low)

    def _lasting(self, kept: AxisRows) -> AxisRows:
        """Kept rows as rows that leave at the end of time."""
        columns = {name: kept.columns[name] for name in (AT, NEW, _MET, _SINCE) if name in kept.columns}
        columns |= made_columns(id=kept.low, old=np.zeros_like(column(kept, NEW)))
        return replace(kept, low=column(kept, _ENTER), high=np.full_like(kept.low, MAX_TIME), columns=columns)

    def _known_of(self, at: int) -> tuple[tuple[str, str], ...]:
        """The columns of kept rows, beside that of their enters."""
        return (AT, NEW, _MET, _SINCE) if self._how.keeps[at] else (AT, NEW)

    # Pairs

    def _content(self, left: _Part, right: _Part) -> Iterator[_Found]:
        """The pairs of which a member moves."""
        yield from self._matched(left, right, joins.overlaps(left.rows, right.rows, self._device))
        yield from self._with_staying(left, right, (0, 1))

    def _meeting_points(self, lefts: _Part, rights: _Part, left: _Part, right: _Part) -> Iterator[tuple[_Found, _Part]]:
        """The pairs of points and others, and the points among both."""
        for mine, other, point in ((lefts, right, lefts), (left, rights, rights)):
            if len(mine.rows) and len(other.rows):
                for found in self._matched(mine, other, joins.overlaps(mine.rows, other.rows, self._device)):
                    yield found, point
        for at, point in enumerate((lefts, rights)):
            for found in self._with_staying(lefts, rights, (at,)):
                yield found, point

    def _with_staying(self, left: _Part, right: _Part, sides: tuple[int, ...]) -> Iterator[_Found]:
        """The pairs of these rows and rows of the other side that stay."""
        if 0 in sides and len(left.rows):
            for run in self._alive[1].runs:
                other = _Part.staying(run)
                yield from self._matched(left, other, self._met(left, other))
        if 1 in sides and len(right.rows):
            for run in self._alive[0].runs:
                other = _Part.staying(run)
                yield from self._matched(other, right, (each.swapped() for each in self._met(right, other)))

    def _met(self, moving: _Part, staying: _Part) -> Iterator[OverlapPairs]:
        """Rows that move with the rows of a run that have their keys."""
        kernels, rows = self._device.kernels, moving.rows
        code, run = staying.rows.code, staying.run
        first, last = (np.searchsorted(code, rows.code, side=side).astype(np.int64) for side in ("left", "right"))
        for found in joins.pairs(first, last, rows.high, staying.rows, self._device):
            start = np.maximum(kernels.take(rows.low, found.rows), kernels.take(staying.enter, found.others))
            pairs = replace(found, start=start)
            if run is not None and run.gone is not None:
                pairs = self._some(pairs, ~kernels.take(run.gone, pairs.others))
            yield pairs

    def _some(self, pairs: OverlapPairs, mask: Any) -> OverlapPairs:
        if bool(mask.all()):
            return pairs
        keep, take = self._device.kernels.keep, self._device.kernels.take
        at = keep(mask)
        return OverlapPairs(*(take(each, at) for each in (pairs.rows, pairs.others, pairs.start, pairs.end)))

    def _matched(self, left: _Part, right: _Part, pairs: Iterator[OverlapPairs]) -> Iterator[_Found]:
        """The pairs for which the condition holds."""
        for found in pairs:
            some = found
            if self._filter is not None and len(found.rows):
                some = self._some(found, self._holds(left, right, found))
            if len(some.rows):
                yield left, right, some

    def _holds(self, left: _Part, right: _Part, found: OverlapPairs) -> Any:
        assert self._filter is not None  # noqa: S101  (asked by who calls it)
        columns, parts = self._device.columns, []
        (condition,) = self._filter.exact
        for part, at, schema in ((left, found.rows, self._schemas[0]), (right, found.others, self._schemas[1])):
            names = column_names(condition, schema.names)
            if names:
                parts.append(columns.take(columns.select(part.rows.frame, names), at))
        if not parts:  # it reads no column
            parts.append(columns.take(columns.select(left.rows.frame, self._schemas[0].names[:1]), found.rows))
        return holds(
            condition, self._filter.guards, Events(found.start, found.end, columns.beside(*parts)), self._device
        )

    # What goes out

    def _sort_out(self, found: _Found, done: int, made: Moved) -> None:
        """Pairs as rows that enter, leave, or do both."""
        left, right, pairs = found
        was, stays = pairs.start < done, pairs.end == OPEN
        for some, into in ((was, made.closed), (stays, made.opened), (~was & ~stays, made.whole)):
            if bool(some.any()):
                into.append(self._pairs((left, right, self._some(pairs, some))))

    def _pairs(self, found: _Found, point: _Part | None = None) -> AxisRows:
        """Pairs as rows; those of a point are delivered as it is."""
        left, right, pairs = found
        columns, take = self._device.columns, self._device.kernels.take
        start, end = pairs.start, pairs.end
        members = ((left, pairs.rows), (right, pairs.others))
        if point is not None:
            at = pairs.rows if point is left else pairs.others
            new, old = (take(column(point.rows, name), at) for name in (NEW, OLD))
        else:
            enters = [(take(part.enter, at) == start) & take(column(part.rows, NEW), at) for part, at in members]
            leaves = [(take(part.leave, at) == end) & take(part.old, at) for part, at in members]
            new, old = enters[0] | enters[1], leaves[0] | leaves[1]
        ids, clocks = (
            [take(each, at) for each, (_, at) in zip(some, members, strict=True)]
            for some in (
                (left.id, right.id),
                (column(left.rows, AT), column(right.rows, AT)),
            )
        )
        made = made_columns(id=(ids[0] + ids[1]) & IDENTITIES, clock=np.maximum(*clocks), new=new, old=old)
        frame = columns.beside(*(columns.take(part.rows.frame, at) for part, at in members))
        return AxisRows(np.zeros_like(start, dtype=np.int32), start, end, made, frame)

    # Rows without a match

    def _note(self, found: _Found, met: tuple[_Met, _Met]) -> None:
        """Note the pairs of rows that are there without a match too."""
        left, right, pairs = found
        for at, (part, rows) in enumerate(((left, pairs.rows), (right, pairs.others))):
            if self._how.keeps[at]:
                name = None if part.run is None else part.run.name
                met[at].setdefault(name, []).append((rows, pairs.start, pairs.end))

    def _points_alone(self, at: int, point: _Part, met: list[Any], made: Moved) -> None:
        """Points without a match."""
        rows = point.rows
        alone = np.ones_like(point.old)
        for each in met:
            alone[each] = False
        which = self._device.kernels.keep(alone)
        if len(which):
            some = rows.take(which, self._device)
            made.points.append(self._padded(at, some, some.low, some.high, some.low))

    def _alone(self, at: int, part: _Part, met: _Met, done: int, made: Moved) -> _Part:
        """The times of rows without a match; gives the rows that move, with what is known of them now."""
        rows, begins = part.rows, part.rows.low < done
        lone = Lonely(
            np.where(begins, MIN_TIME, rows.low), rows.high, column(rows, _MET), column(rows, _SINCE), self._device
        )
        found = lone.pieces(met.get(None, []), done)
        self._give_alone(at, part, found, done, made)
        for run in self._alive[at].runs:
            if run.name not in met:
                continue
            matches = met[run.name]
            concerned = present(np.concatenate([each for each, _, _ in matches]), len(run.rows), self._device)
            numbered = [(np.searchsorted(concerned, each), start, end) for each, start, end in matches]
            some = _Part.staying(replace(run, rows=run.rows.take(concerned, self._device)))
            counts, since = (self._device.kernels.take(run.beside[name], concerned) for _, name in (_MET, _SINCE))
            stay = Lonely(np.full_like(since, MIN_TIME), some.leave, counts, since, self._device)
            self._give_alone(at, some, stay.pieces(numbered, done), done, made)
            run.beside[_MET[1]][concerned], run.beside[_SINCE[1]][concerned] = stay.met, stay.since
        return replace(part, rows=with_columns(rows, met=lone.met, since=lone.since))

    def _give_alone(self, at: int, part: _Part, pieces: tuple[Any, Any, Any], done: int, made: Moved) -> None:
        device, take = self._device, self._device.kernels.take
        was, stays = pieces[1] < done, pieces[2] == OPEN
        for which, into in ((was & ~stays, made.closed), (~was & stays, made.opened), (~was & ~stays, made.whole)):
            which_rows = device.kernels.keep(which)
            if len(which_rows):
                index, start, end = (take(each, which_rows) for each in pieces)
                columns = made_columns(
                    id=take(part.id, index),
                    clock=take(column(part.rows, AT), index),
                    new=(take(part.enter, index) == start) & take(column(part.rows, NEW), index),
                    old=(take(part.leave, index) == end) & take(part.old, index),
                )
                frame = device.columns.take(part.rows.frame, index)
                rows = AxisRows(np.zeros_like(start, dtype=np.int32), start, end, columns, frame)
                into.append(self._padded(at, rows, start, end, start))

    def _padded(self, at: int, rows: AxisRows, low: Any, high: Any, since: Any) -> AxisRows:
        """Rows of one side with nulls for the other. Each stretch of time without a match makes a row of its own."""
        columns = self._device.columns
        other = columns.from_arrow(empty_table(self._schemas[1 - at]))
        parts = [rows.frame, columns.nulls(other, len(rows))]
        made = {name: rows.columns[name] for name in (AT, NEW, OLD)}
        made |= made_columns(id=hashes(at, column(rows, ID), since) & IDENTITIES)
        return AxisRows(rows.code, low, high, made, columns.beside(*(parts[::-1] if at else parts)))

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
        used = np.zeros(len(self._groups) + _NULLS, np.bool_)
        for runs in self._alive:
            for rows in runs.pieces():
                used[self._device.columns.host(rows.code)] = True
        numbers = self._groups.forget(used[_NULLS:])
        if numbers is None:
            return
        own = self._device.columns.array(np.arange(_NULLS, dtype=np.int32))
        numbers = np.concatenate([own, numbers + np.int32(_NULLS)])
        for runs in self._alive:
            runs.renumber(numbers)

    def _table(self, name: str) -> str:
        return f"{name} {self._number}"

    def tables(self) -> dict[str, pa.Table]:
        """The keys with their numbers, and the rows that stay; no table before the first row."""
        if not self._groups.seen:
            return {}
        device, made = self._device, dict[str, pa.Table]()
        if self._keys.names:
            keys = self._groups.keys
            made[self._table("keys")] = (
                empty_table(self._keys) if keys is None else device.columns.to_arrow(keys, self._keys)
            )
        for at, side in enumerate(_SIDES):
            rows = self._alive[at].rows()
            if rows is not None:
                made[self._table(side)] = rows.to_arrow(self._schemas[at], device, shown_places)
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        groups, keys = 1, self._table("keys")
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
                groups + _NULLS,
                first=_NULLS,
                columns=made_columns(new=np.zeros(0, np.bool_)),
                numbers=numbers,
                frame=self._schemas[at],
            )
            columns["group"] = replace(columns["group"], besides=(at,))
            yield StateTable(self._table(side), columns)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        device, keys = self._device, self._table("keys")
        if keys in tables:
            self._groups.restore(device.columns.from_arrow(tables[keys]))
        for at, side in enumerate(_SIDES):
            if self._table(side) in tables:
                self._groups.see()
                rows = rows_from_arrow(tables[self._table(side)], device)
                self._alive[at].put_back(rows)
                if not self._opens:
                    self._entered[at].add(column(rows, _ENTER))
