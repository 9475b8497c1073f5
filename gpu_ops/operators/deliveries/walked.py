"""Deliveries of the groups of a window of time: a walk over the rows that enter and leave in a step, in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import OLDER, Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import CLOCK, EMPTY, HELD, NEW, OLD, ORDER
from gpu_ops.devices import Device
from gpu_ops.errors import SourceError
from gpu_ops.operators.deliveries.changes import moved
from gpu_ops.operators.deliveries.firing import Firings, FiringTimes, TurnMarks
from gpu_ops.operators.deliveries.group_order import first_of_groups
from gpu_ops.operators.deliveries.group_totals import GroupTotals, GroupWalk, RunningTotals
from gpu_ops.operators.deliveries.merged_rows import WEIGHTS, MergedRows, weights_of
from gpu_ops.operators.deliveries.rows import of_kind
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, InParts, StepInput
from gpu_ops.operators.row_windows.ticks import AskQueue, TickQueue, Ticks
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, row_columns
from gpu_ops.operators.state.row_runs import RowRuns, parts_of, restore_runs
from gpu_ops.operators.state.rows import AxisRows, concat_rows, shown_time
from gpu_ops.operators.windows.incremental_block import places_among
from gpu_ops.plan.clock_windows import ClockBatches, ClockSpan
from gpu_ops.plan.walked_deliveries import WalkedDeliveries
from gpu_ops.plan.window_kinds import UNKNOWN
from gpu_ops.plan.windows import WindowAggregate

_TOUCHED, _WAITING = "touched", "waiting rows"


class WalkedDeliveriesOperator(InParts, nodes=(WalkedDeliveries,)):
    """What the window's rows and the totals of its groups are; a batch is one step.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: WalkedDeliveries

    def __init__(self, node: WalkedDeliveries, device: Device) -> None:
        super().__init__(node, device)
        self._what = what = node.deliveries
        (keys,) = what.levels
        own = [replace(each, keys=keys) for each in what.aggregates]
        self._values = _WindowTotals(own, what.rows.schema, device)
        if keys and what.lists:
            self._values.list_in_order()
        self._times = None if what.snapshot is None else FiringTimes(what.snapshot, device)
        # What a batch has of a group comes and goes at once.
        self._merges = None if self._batches is None else MergedRows.of(what, device)
        self._waiting, self._kept, self._gathering = (RowRuns((each,), device) for each in ("low", "high", "high"))
        self._point = UNKNOWN if self._batches is None or self._batches.align is None else self._batches.align
        self._ticks, self._asks = TickQueue(device), AskQueue(device)
        self._batch_due: Any = None  # when the batches of a part's entering rows fell due

    @property
    def _batches(self) -> ClockBatches | None:
        """The batches of the window, if it has any."""
        return self._node.window if isinstance(self._node.window, ClockBatches) else None

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The columns that it reads."""
        return self._node.needs(wanted)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME, MAX_TIME])
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The deliveries of all turns before the CTI."""
        cti, device = min(ctis), self._device
        arrivals, ticks = (concat(fed.events, device) for fed in given)
        moves, fresh = self._ticks.through(ticks, cti), self._came(arrivals, cti)
        made = list[Events]()
        for ask in self._asks.through(ticks if self._what.content else None, cti):
            now, moves = moves.parted(ask)
            some, fresh = self._cut_rows(fresh, ask)
            made += self._part(some, now, ask, ask + 1)
        made += self._part(fresh, moves, None, cti)
        if cti == MAX_TIME:
            self._kept.replace([])
            self._gathering.replace([])
        return StepInput([each for each in made if len(each)]), cti

    # What comes in

    def _came(self, arrivals: Events | None, cti: int) -> AxisRows | None:
        """The arrivals before the CTI, in order; when each is due is its end."""
        device, fresh = self._device, []
        if arrivals is not None and len(arrivals):
            code = np.zeros_like(arrivals.start, dtype=np.int32)
            clock = device.columns.values(arrivals.frame, CLOCK)[0]
            frame = device.columns.select(arrivals.frame, self._read)
            fresh.append(AxisRows(code, arrivals.start, clock, {}, frame))
        rows = self._waiting.through(fresh, cti if cti == MAX_TIME else cti - 1)
        if rows is not None and not device.kernels.ascends(rows.low):
            rows = rows.take(np.argsort(rows.low, kind="stable"), device)
        if rows is None:
            return None
        rows = replace(rows, high=self._due(rows.high))
        return rows if self._merges is None else self._merges.merged(rows)

    def _due(self, clock: Any) -> Any:
        """int64: when rows that came at some clocks leave, or when their batch is complete."""
        window = self._node.window
        if isinstance(window, ClockBatches):
            self._point = int(clock[0]) if self._point == UNKNOWN else self._point
            return self._next(window.span, clock)
        due = clock + window.ticks
        return np.where(due > MAX_TIME, UNKNOWN, due) if len(due) and int(due.max()) > MAX_TIME else due

    def _next(self, span: ClockSpan, clock: Any) -> Any:
        """int64: the next points of the grid behind some clocks; these ascend."""
        if not len(clock):
            return clock
        first, last = (int(span.next_end(int(clock[at]), self._point)) for at in (0, -1))
        if (last - first) // span.ticks > _FEW_ENDS:
            due = span.next_end(clock, self._point)
        else:
            ends = np.arange(first, last + 1, span.ticks, like=clock)
            due = _repeated(ends, [*np.searchsorted(clock, ends[:-1]).tolist(), len(clock)])
        return due if last <= MAX_TIME else np.where(due > MAX_TIME, UNKNOWN, due)

    def _entering(self, fresh: AxisRows | None, moves: Ticks) -> tuple[list[AxisRows], Any]:
        """(the rows that enter, in parts, with when they leave; the place of each)."""
        none, window, device = moves.place[:0], self._node.window, self._device
        if not isinstance(window, ClockBatches):
            return ([], none) if fresh is None else ([fresh], fresh.low)
        parts = [] if moves.last is None else self._gathering.due(moves.last)
        parts += [] if fresh is None or not len(fresh) else [fresh]
        entering, places, came = list[AxisRows](), list[Any](), [none]
        for rows in parts:
            self._check(rows.high)
            enter, leave = self._posted(window.span, rows.high, moves)
            if len(enter) < len(rows):
                self._gathering.add(rows.cut(len(enter), len(rows), device))
            if len(enter):
                entering.append(replace(rows.cut(0, len(enter), device), high=leave))
                places.append(enter)
                came.append(rows.high[: len(enter)])
        enter = places[0] if len(places) == 1 else np.concatenate([none, *places])
        self._batch_due = np.concatenate(came)
        if len(places) > 1:
            self._check(enter)
        return entering, enter

    def _posted(self, span: ClockSpan, due: Any, moves: Ticks) -> tuple[Any, Any]:
        """(where the batches of rows are posted, and when they leave) for the rows whose batch is complete by then.

        Args:
            span: The distance of the grid's points.
            due: int64: when the batch of each row is complete, ascending.
            moves: The moves of the clock.
        """
        first, last = int(due[0]), min(int(due[-1]), MAX_TIME)
        ends, is_many = due, (last - first) // span.ticks > _FEW_ENDS
        if not is_many:
            ends = np.arange(first, last + 1, span.ticks, like=due)
        posted, shown = (
            self._device.kernels.due_places(ends, each, moves.clock) for each in (moves.place, moves.clock)
        )
        leave = self._next(span, shown)
        if is_many:
            return posted, leave
        # The rows of a batch stand one behind the other: what becomes of them is computed once.
        until = np.searchsorted(due, ends[: len(posted)], side="right").tolist()
        return _repeated(posted, until), _repeated(leave, until)

    def _check(self, due: Any) -> None:
        """Refuse rows that leave before older ones: only tables of a state that are damaged make such."""
        if not self._device.kernels.ascends(due):
            raise SourceError("The state of a window is damaged: a row leaves it before an older one.", remedy=OLDER)

    @property
    def _read(self) -> list[str]:
        """The columns of arrivals that it keeps."""
        read = set(self._what.needs(())[0])
        return [name for name in self._what.rows.schema.names if name in read]

    def _cut_rows(self, rows: AxisRows | None, place: int) -> tuple[AxisRows | None, AxisRows | None]:
        """The rows up to a place, and those behind it."""
        if rows is None:
            return None, None
        at = int(np.searchsorted(rows.low, place, side="right"))
        parts = rows.cut(0, at, self._device), rows.cut(at, len(rows), self._device)
        return tuple(each if len(each) else None for each in parts)  # type: ignore[return-value]

    # A part of a step

    def _part(self, fresh: AxisRows | None, moves: Ticks, ask: int | None, limit: int) -> list[Events]:
        """What happens up to a place at which content is asked for, or up to the end of the step."""
        device, kernels = self._device, self._device.kernels
        entering, enter = self._entering(fresh, moves)
        parts = [] if moves.last is None else self._kept.due(moves.last)
        old = sum(map(len, parts))
        parts += entering
        if not parts and ask is None and self._times is None:
            return []
        rows = concat_rows(parts, device) if parts else self._none()
        self._check(rows.high)
        leave = kernels.due_places(rows.high, moves.place, moves.clock)
        if old < len(rows) and len(leave) < len(rows):
            self._kept.add(rows.cut(max(old, len(leave)), len(rows), device))
        firings = self._firings(rows, enter, leave, moves)
        if not parts and ask is None and (firings is None or not len(firings)):
            return []
        made = self._walked(rows, enter, leave, firings, ask, limit)
        self._values.rest()
        return made

    def _none(self) -> AxisRows:
        """No rows."""
        columns, schema = self._device.columns, self._what.rows.schema
        none = columns.array(np.zeros(0, np.int64))
        frame = columns.from_arrow(empty_table(pa.schema([schema.field(name) for name in self._read])))
        return AxisRows(none.astype(np.int32), none, none, {}, frame)

    def _firings(self, rows: AxisRows, enter: Any, leave: Any, moves: Ticks) -> Firings | None:
        """Where the rate outputs; None without one."""
        if self._times is None:
            return None
        if self._times.counts_rows:
            return self._times.of_rows(enter, leave, (moves.place, moves.clock))
        none = enter[:0]
        marks = TurnMarks(none, none, none)
        if self._times.reads_marks and len(rows):
            marks = TurnMarks(*moved(enter, leave, self._device))
        return self._times.step(marks, (moves.place, moves.clock))

    def _limits(self, rows: AxisRows, enter: Any, leave: Any, firings: Firings) -> Any:
        """int64: behind each output's place, or at it, if what happens there fell due later than the output."""
        limits, take = firings.place + 1, self._device.kernels.take
        late = np.zeros_like(limits, dtype=np.bool_)
        entering = [(enter, self._batch_due)] if self._batches is not None else []
        for places, dues in [*entering, (leave, rows.high)] if len(firings) else []:
            if len(places):
                at = np.minimum(np.searchsorted(places, firings.place), len(places) - 1)
                late |= (take(places, at) == firings.place) & (take(dues, at) > firings.due)
        return limits - late

    def _walked(
        self, rows: AxisRows, enter: Any, leave: Any, firings: Firings | None, ask: int | None, limit: int
    ) -> list[Events]:
        """The rows of each turn, or of each output."""
        what, kernels, values = self._what, self._device.kernels, self._values
        codes = values.codes(rows.frame)
        forced = ask is not None or (firings is not None and not what.touched)
        groups, local, touched = values.of_step(codes, every=forced or what.old)
        based = int(forced or what.old)
        made = list[Events]()
        if firings is None:
            first, last, group, place, order, earlier = kernels.turn_rows(
                local, rows.low, enter, leave, len(groups), based
            )
            walk = GroupWalk(groups, group, place, earlier, weights_of(rows))
            values.take_in(rows.frame, codes, walk, first, last, limit)
            made += self._each_turn(groups, group[len(group) - len(place) :], place, order)
        else:
            limits = self._limits(rows, enter, leave, firings)
            first, last, group, moment, earlier, order = kernels.output_rows(
                local, enter, leave, limits, touched, len(groups), based
            )
            behind = np.full_like(firings.place, MAX_TIME if ask is None else ask, shape=(1,))
            place = kernels.take(np.concatenate([firings.place, behind]), moment)
            walk = GroupWalk(groups, group, place, earlier)
            values.take_in(rows.frame, codes, walk, first, last, limit, len(touched))
            made += self._each_output(groups, group[len(group) - len(place) :], place, moment, order, firings)
        if ask is not None and what.content:
            made += self._content(np.full_like(rows.low, ask, shape=(1,)))
        return [self._finished(each) for each in made]

    def _each_turn(self, groups: Any, group: Any, place: Any, order: Any) -> list[Events]:
        """A row for each group that a turn touches, with its values after it, or before it."""
        what, made = self._what, list[Events]()
        if not len(place):
            return made
        for wanted, kind in ((what.new, NEW), (what.old, OLD)):
            if wanted:
                found = self._values.at_rows(None, before=kind == OLD)
                made.append(self._rows(kind, place, self._beside_keys(groups, group, found), order))
        return made

    def _each_output(
        self, groups: Any, group: Any, place: Any, moment: Any, order: Any, firings: Firings
    ) -> list[Events]:
        """What is output: all groups with rows, or those that were touched since the last output."""
        what, take, values = self._what, self._device.kernels.take, self._values
        made, had = list[Events](), firings.place[:0]
        count = int(np.searchsorted(moment, len(firings)))
        if what.keys or what.touched:
            # Rows of one stretch stand together, in either order.
            values.touched = take(groups, take(group, order[count:]).astype(np.int64))
        if not what.touched and what.keys:
            at, numbers, rows = values.held_behind(moment, firings.place)
            frame = self._beside_keys(numbers, None, values.at_rows(rows))
            made.append(self._rows(NEW, take(firings.place, at), frame, np.arange(len(at), like=at)))
        elif not what.touched:
            made += self._held(NEW, firings.place, firings.place)
        elif what.new and count:
            shown, had = order[:count], place[:count]
            group = take(group, shown)
            frame = self._beside_keys(groups, group, values.at_rows(shown))
            made.append(self._rows(NEW, had, frame, np.arange(count, like=had)))
        if what.snapshot is not None and what.snapshot.posts_empty:
            without = firings.place
            if len(had):
                at = np.minimum(np.searchsorted(had, without), len(had) - 1)
                without = without[take(had, at) != without]
            made.append(self._rows(EMPTY, without, None, np.zeros_like(without)))
        return made

    def _held(self, kind: int, at: Any, places: Any) -> list[Events]:
        """A row for each group that holds rows behind some places; all rows as one group have one always."""
        take, values = self._device.kernels.take, self._values
        if self._what.keys:
            index, numbers, rows = values.held_at(at)
            found = values.taken(rows, rows >= 0)
        else:
            index, numbers = np.arange(len(places), like=places), np.zeros_like(places)
            found = values.at(numbers.astype(np.int32), at)
        if not len(index):
            return []
        order = np.arange(len(index), like=index)
        return [self._rows(kind, take(places, index), self._beside_keys(numbers, None, found), order)]

    def _content(self, place: Any) -> list[Events]:
        """The content at a place: groups with rows; of batches the groups of the one that gathers."""
        if not self._node.gathering or not self._what.keys:
            return self._held(HELD, place, place)
        columns, rows = self._device.columns, self._gathering.rows()
        if rows is None:
            return []
        at = first_of_groups(columns.key_codes(rows.frame, self._what.keys)[0], self._device)
        numbers = self._values.codes(columns.take(rows.frame, at))
        places = np.full_like(at, int(place[0]))
        frame = self._beside_keys(numbers.astype(np.int64), None, self._values.at(numbers, places))
        return [self._rows(HELD, places, frame, np.arange(len(at), like=at))]

    # What goes out

    def _beside_keys(self, groups: Any, group: Any | None, found: Any) -> Any:
        """Values beside the keys of their groups."""
        at = groups if group is None else self._device.kernels.take(groups, group.astype(np.int64))
        keys = self._values.keys_of(at)
        return found if keys is None else self._device.columns.beside(keys, found)

    def _rows(self, kind: int, places: Any, frame: Any | None, order: Any) -> Events:
        columns = self._device.columns
        placed = columns.build({ORDER: (order, None, pa.int64())})
        parts = [*([] if frame is None else [frame]), of_kind(kind, len(places), self._device), placed]
        return Events(places, TICK, columns.beside(*parts))

    def _finished(self, made: Events) -> Events:
        """The rows with all columns of the schema."""
        columns, schema = self._device.columns, self._what.schema
        parts, known = [made.frame], set(made.frame.columns)
        missing = [field for field in schema if field.name not in known]
        if missing:
            none = columns.from_arrow(empty_table(pa.schema(missing)))
            parts.append(columns.nulls(none, len(made)))
        frame = parts[0] if len(parts) == 1 else columns.beside(*parts)
        return replace(made, frame=columns.select(frame, schema.names))

    # The state

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return len(self._kept) + len(self._gathering) + self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI past their places."""
        return len(self._waiting) + len(self._ticks) + len(self._asks)

    def state_parts(self) -> Parts:
        """The rows in the window and those that wait, the totals of groups, and when there is output."""
        made = self._ticks.tables() | self._asks.tables()
        if len(self._values.touched):
            made[_TOUCHED] = pa.table({"group": pa.array(self._device.columns.host(self._values.touched), pa.int64())})
        if self._batches is not None and self._point != UNKNOWN:
            made["grid"] = pa.table({"point": pa.array([self._point], pa.int64())})
        made |= {} if self._times is None else self._times.tables()
        return {**in_parts(made), **self._values.state_parts(_VALUES), **parts_of(self._runs, self._table)}

    def _table(self, name: str, rows: AxisRows) -> pa.Table:
        del name
        return rows.to_arrow(self._what.rows.schema, self._device, shown_time)

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """Those of the totals."""
        return self._values.entire_tables(_VALUES)

    @property
    def _runs(self) -> dict[str, RowRuns]:
        return {_WAITING: self._waiting, "kept": self._kept, "gathering": self._gathering}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from self._ticks.declared()
        yield from self._asks.declared()
        yield from self._values.declared(tables, _VALUES)
        frame, leaves = self._none_schema, replace(TIME, nullable=True)
        rows = row_columns(TIME, leaves, 1, frame=frame)
        held = rows if self._merges is None else row_columns(TIME, leaves, 1, numbers=WEIGHTS, frame=frame)
        for name in self._runs:
            yield StateTable(name, rows if name == _WAITING else held)
        groups = tables[f"{_VALUES}groups"].num_rows if f"{_VALUES}groups" in tables else 0
        number = Field(pa.int64(), least=0, most=max(groups - 1, 0))
        yield StateTable(_TOUCHED, {"group": number}, unique=("group",))
        if self._batches is not None:
            yield StateTable("grid", {"point": NUMBERED_TIME}, rows=1)
        if self._times is not None:
            yield from self._times.declared(tables)

    @property
    def _none_schema(self) -> pa.Schema:
        schema = self._what.rows.schema
        return pa.schema([schema.field(name) for name in self._read])

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        tables = whole({name: each for name, each in parts.items() if name not in self._runs})
        self._ticks.restore(tables)
        self._asks.restore(tables)
        self._values.put_back(parts, _VALUES)
        restore_runs(self._runs, parts, self._device, completed=self._completed)
        if _TOUCHED in tables:
            self._values.touched = self._device.columns.array(tables[_TOUCHED]["group"].to_numpy().copy())
        if "grid" in tables:
            self._point = tables["grid"]["point"][0].as_py()
        if self._times is not None:
            self._times.restore(tables)

    def _completed(self, name: str, rows: AxisRows) -> AxisRows:
        return rows if self._merges is None or name == _WAITING else self._merges.weighed(rows)


_VALUES = "values/"

_FEW_ENDS = 64
"""Up to so many batches in a step, each is looked at by itself."""


def _repeated(values: Any, until: Sequence[int]) -> Any:
    """Each of some values for the rows up to an index, from that of the one before on."""
    counts = [upto - begin for begin, upto in pairwise([0, *until])]
    filled = [np.full_like(values, value, shape=(count,)) for value, count in zip(values.tolist(), counts, strict=True)]
    return filled[0] if len(filled) == 1 else np.concatenate([values[:0], *filled])


class _TouchedTotals(RunningTotals):
    """Groups with their totals; those that were touched since the last output are not forgotten.

    Args:
        node: The aggregates.
        device: Where arrays live.

    Attributes:
        touched: int64 numbers of these groups, in order of what touched each last.
    """

    def __init__(self, node: WindowAggregate, device: Device) -> None:
        super().__init__(node, device)
        self.touched = device.columns.array(np.zeros(0, np.int64))

    def _note_used(self, used: Any) -> None:
        super()._note_used(used)
        used[self._device.columns.host(self.touched)] = True

    def _renumber(self, numbers: Any, left: Any) -> None:
        super()._renumber(numbers, left)
        self.touched = self._device.kernels.take(numbers, self.touched).astype(np.int64)


class _WindowTotals(GroupTotals):
    """The totals of the groups of a window, whose rows a walk tells."""

    _window: _TouchedTotals

    @staticmethod
    def _running(node: WindowAggregate, device: Device) -> _TouchedTotals:
        return _TouchedTotals(node, device)

    @property
    def touched(self) -> Any:
        """int64 numbers of the groups that were touched since the last output, in order of what touched each last."""
        return self._window.touched

    @touched.setter
    def touched(self, numbers: Any) -> None:
        self._window.touched = numbers

    def of_step(self, codes: Any, *, every: bool) -> tuple[Any, Any, Any]:
        """The groups of a step: those of its rows, those that were touched before, and maybe all that hold a row.

        Returns:
            (int64 numbers of the groups, ascending; int32 place among them of each row, and of each touched one).
        """
        touched = self.touched.astype(np.int32)
        groups = self._window.groups_of(np.concatenate([codes, touched]) if len(touched) else codes, every=every)
        local = places_among(groups, self.groups, self._device)
        return groups, local(codes), local(touched)

    def held_behind(self, moment: Any, places: Any) -> tuple[Any, Any, Any]:
        """The groups that hold rows behind each of some stretches of a walk in which every group has a row.

        Args:
            moment: int64 number of the stretch of each touched row.
            places: int64 place of the output behind each stretch.

        Returns:
            (int64 number of a stretch, number of a group, number of the touched row that has its values, negative for
            what was before), by stretch, then as the groups are listed.
        """
        assert self._walk is not None and self._block is not None  # noqa: S101, PT018  (a step has been taken)
        kernels, take, walk, count = self._device.kernels, self._device.kernels.take, self._walk, len(places)
        first = np.concatenate([np.zeros_like(moment, shape=(walk.begin,)), moment])
        until = np.full_like(first, count)
        until[walk.before] = moment
        rows, offsets = kernels.expand(np.where(self._block.there, np.maximum(until - first, 0), 0))
        at, group = take(first, rows) + offsets, take(walk.groups, take(walk.group, rows).astype(np.int64))
        order = self.listed(at, group, take(places, at))
        return take(at, order), take(group, order), take(rows, order) - walk.begin

    def take_in(
        self, frame: Any, codes: Any, walk: GroupWalk, first: Any, last: Any, limit: int, carried: int = 0
    ) -> None:
        """Have the values at the rows of a walk, and the state behind it. See `GroupTotals`."""
        self._taken_in(frame, codes, walk, first, last, limit, carried)
