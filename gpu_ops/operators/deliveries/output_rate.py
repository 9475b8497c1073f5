"""Deliveries that are held back until an output rate fires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CHANGED, CLOCK, DUE, EMPTY, ENTERED, FIRED, HELD, LEFT, MARK, NEW, OLD, ORDER, ROW
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.firing import Firings, FiringTimes, TurnMarks, stretches
from gpu_ops.operators.deliveries.first_rows import FirstOfGroups
from gpu_ops.operators.deliveries.gathered import Gathered, ShownRows, built, by_firing, reads_known, selecting
from gpu_ops.operators.deliveries.rows import (
    kinds_of,
    numbered,
    numbers_of,
    with_column,
    with_kind,
    with_order,
)
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.row_order import greatest_by, in_order, run_starts, stable_order
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.plan.rates import OutputRate, RateCounts, When

_FEW = 4096
"""Rows that are kept are looked through again when there are twice as many as were needed then, and so many more."""

_MOST = (1 << 63) - 1


class OutputRateOperator(Operator, nodes=(OutputRate,)):
    """The steps of an output rate; a batch is one step.

    It keeps rows that the next firing may need: all of them, or the last ones (`gathered`). Rows that are not needed
    any more are dropped when there are as many as others, so that a row costs the same however many are kept.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: OutputRate

    def __init__(self, node: OutputRate, device: Device) -> None:
        super().__init__(node, device)
        self._first = node.selection == "first" and node.rate.every is not None
        self._times = FiringTimes(node.rate, device, first=self._first and not node.by_group)
        self._of_groups = FirstOfGroups(node, device) if self._first and node.by_group else None
        self._select = selecting(node)
        self._waiting: list[list[Events]] = [[], []]
        self._kept: list[tuple[Events, Any]] = []  # with the kind of each row
        self._needed = 0
        self._known: Events | None = None
        self._had = False
        self._names: Sequence[str] = node.schema.names

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The columns that it reads beside the wanted ones, and the ticks' clock."""
        return self._node.needs(wanted)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME, MAX_TIME])
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """What is output at the firings before the older CTI."""
        cti = min(ctis)
        deliveries, ticks = (self._before(cti, at, fed.events) for at, fed in enumerate(given))
        made = self._output(deliveries, self._clocks(ticks))
        if cti == MAX_TIME:
            self._kept, self._known, self._needed = [], None, 0
            if self._of_groups is not None:
                self._of_groups = FirstOfGroups(self._node, self._device)
        return StepInput([each for each in made if len(each)]), cti

    # What comes in

    def _before(self, cti: int, side: int, events: Sequence[Events]) -> Events | None:
        """The events of an input before a CTI, with those that waited for it; later ones wait."""
        whole = concat([*self._waiting[side], *(each for each in events if len(each))], self._device)
        self._waiting[side] = []
        if whole is None or cti == MAX_TIME or int(whole.start.max()) < cti:
            return whole
        is_due, keep = whole.start < cti, self._device.kernels.keep
        self._waiting[side] = [whole.take(keep(~is_due), self._device)]
        due = whole.take(keep(is_due), self._device)
        return due if len(due) else None

    def _clocks(self, ticks: Events | None) -> tuple[Any, Any]:
        """(int64 places, int64 clocks) of the ticks that move the clock, in order."""
        if ticks is None:
            none = self._device.columns.array(np.zeros(0, np.int64))
            return none, none
        kernels, values = self._device.kernels, self._device.columns.values
        moving = kernels.keep(values(ticks.frame, ASK)[0] == 0)
        place, clock = (
            kernels.take(each, moving) for each in (ticks.start, numbers_of(ticks.frame, CLOCK, self._device))
        )
        if not kernels.ascends(place):
            order = np.argsort(place, kind="stable")
            place, clock = kernels.take(place, order), kernels.take(clock, order)
        return place, clock

    # What goes out

    def _output(self, deliveries: Events | None, ticks: tuple[Any, Any]) -> list[Events]:
        device = self._device
        before, (at, clock) = self._times.clock, ticks
        shown = np.concatenate([np.full_like(clock, before, shape=(1,)), clock])
        if deliveries is None:
            none = device.columns.array(np.zeros(0, np.int64))
            firings = self._times.step(TurnMarks(none, none, none), ticks)
            self._had = self._had and not len(firings)
            fired = device.kernels.take(shown, np.searchsorted(at, firings.place, side="right"))
            return [] if self._first or not len(firings) else self._fire(firings, fired, None)
        self._names = list(deliveries.frame.columns)  # a batch leaves out columns that nobody reads
        kinds = kinds_of(deliveries.frame, device)
        content = deliveries.take(device.kernels.keep(kinds == HELD), device)
        rows = self._rows(deliveries, kinds)
        clocks = self._times.clocks(rows.place, ticks) if self._of_groups is not None else rows.place
        firings = self._times.step(self._marks(deliveries, kinds, rows), ticks)
        rows = self._taken(rows, deliveries, firings)
        if self._of_groups is not None:
            clocks = clocks[len(clocks) - len(rows) :]  # those from before `after` are gone
            made = [self._at_once(rows, each, each.kind) for each in self._of_groups.step(rows, clocks)]
        elif self._first:
            made = self._first_deliveries(rows)
        elif self._node.rate.every is None:
            made = [self._at_once(rows, self._all_shown(rows))]
        elif len(firings):
            fired = device.kernels.take(shown, np.searchsorted(at, firings.place, side="right"))
            made = self._fire(firings, fired, rows)
        else:
            self._keep(rows)
            made = []
        return [content, *made]

    def _rows(self, deliveries: Events, kinds: Any) -> Gathered:
        """The new and the old rows of a step, in order, before their firings are known."""
        device, kernels = self._device, self._device.kernels
        at = kernels.keep(kinds <= OLD)
        place, kind = kernels.take(deliveries.start, at), kernels.take(kinds, at)
        number = kernels.take(numbers_of(deliveries.frame, ORDER, device), at)
        if not in_order([place, kind, number]):
            order = stable_order([place, kind, number], place, device)
            at, place, kind = (kernels.take(each, order) for each in (at, place, kind))
        return self._gathered(deliveries.frame, at, place, kind)

    def _gathered(self, frame: Any, at: Any, place: Any, kind: Any) -> Gathered:
        """Rows of a frame that no firing takes yet."""
        columns, take = self._device.columns, self._device.kernels.take
        passes = np.ones_like(at, dtype=np.bool_)
        if self._node.passes is not None:
            values, valid = columns.values(frame, self._node.passes)
            passes = take((values != 0) if valid is None else (values != 0) & valid, at)
        group, groups = np.zeros_like(at, dtype=np.int32), 1
        if self._node.group and len(at) and not self._first:
            names = list(self._node.group)
            keys = columns.select(frame, names)
            is_all = len(at) == columns.rows(frame)
            group, groups, _ = columns.key_codes(keys if is_all else columns.take(keys, at), names)
        return Gathered(frame, at, place, kind, passes, np.zeros_like(at), 0, group, groups)

    def _marks(self, deliveries: Events, kinds: Any, rows: Gathered) -> TurnMarks:
        """How many rows each turn moved; without a rate, how many new rows it would show."""
        device, kernels = self._device, self._device.kernels
        shown = self._all_shown(rows)
        if self._node.rate.every is None:
            new = kernels.keep((rows.kind == NEW) & rows.passes)
            place = kernels.take(rows.place, new)
            begins = kernels.keep(run_starts(place)) if len(new) else new
            ends = np.concatenate([begins[1:], np.full_like(begins, len(new), shape=(min(len(begins), 1),))])
            return TurnMarks(kernels.take(place, begins), ends - begins, np.zeros_like(begins))
        at = kernels.keep(kinds == MARK)
        place = kernels.take(deliveries.start, at)
        if not kernels.ascends(place):
            at = kernels.take(at, np.argsort(place, kind="stable"))
            place = kernels.take(deliveries.start, at)
        entered, left = (kernels.take(numbers_of(deliveries.frame, name, device), at) for name in (ENTERED, LEFT))
        has_row = None
        if self._first:
            here = kernels.take(rows.place, shown.rows)
            found = np.searchsorted(here, place, side="right") > np.searchsorted(here, place)
            has_row = found
        values = device.columns.take(deliveries.frame, at) if isinstance(self._node.rate.every, When) else None
        changed = None
        if values is not None and CHANGED in deliveries.frame.columns:
            changed = device.columns.values(values, CHANGED)[0] != 0
        return TurnMarks(place, entered, left, has_row, values, changed)

    def _all_shown(self, rows: Gathered) -> ShownRows:
        """The rows that may be shown."""
        kinds = [kind for kind in (NEW, OLD) if kind in self._node.shows]
        may = rows.passes if len(kinds) == 2 else rows.passes & (rows.kind == kinds[0])
        at = self._device.kernels.keep(may)
        return ShownRows(at, self._device.kernels.take(rows.firing, at), NEW)

    def _taken(self, rows: Gathered, deliveries: Events, firings: Firings) -> Gathered:
        """Rows with the number of the firing that takes each; those from before `after` are gone, if they are to be."""
        kernels, count = self._device.kernels, len(firings)
        firing = stretches(rows.place, firings.place, "right", self._device)
        late = self._late(deliveries, firings)
        if count and late is not None:
            last = np.minimum(firing, count - 1)
            same = (firing < count) & (kernels.take(firings.place, last) == rows.place)
            firing = firing + (same & kernels.take(late, last))
        rows = _with(rows, firing=firing, firings=count)
        if self._node.keeps_early or self._times.begins <= MIN_TIME:
            return rows
        return _of(rows, kernels.keep(rows.place >= self._times.begins), self._device)

    def _late(self, deliveries: Events, firings: Firings) -> Any | None:
        """bool: at which firings the deliveries of their places fell due later; None if none did."""
        device, kernels, count = self._device, self._device.kernels, len(firings)
        if not count or DUE not in deliveries.frame.columns:
            return None
        due, valid = device.columns.values(deliveries.frame, DUE)
        firing = np.searchsorted(firings.place, deliveries.start)
        here = (firing < count) & (kernels.take(firings.place, np.minimum(firing, count - 1)) == deliveries.start)
        at = kernels.keep(here if valid is None else here & valid)
        if not len(at):
            return None
        least = ~greatest_by(kernels.take(firing, at), ~kernels.take(due, at).astype(np.int64), count, device)
        late = (least != _MOST) & (least > firings.due)
        return late if bool(late.any()) else None

    def _first_deliveries(self, rows: Gathered) -> list[Events]:
        """The first delivery of each interval that has a row to show."""
        kernels, shown = self._device.kernels, self._all_shown(rows)
        at, firing = shown.rows, shown.firing
        had, self._had = self._had, (self._had and not rows.firings) or bool((firing == rows.firings).any())
        if had:
            later = kernels.keep(firing > 0)
            at, firing = kernels.take(at, later), kernels.take(firing, later)
        if not len(at):
            return []
        place, begins = kernels.take(rows.place, at), run_starts(firing)
        begin = kernels.take(place, kernels.take(kernels.keep(begins), np.cumsum(begins) - 1))
        at = kernels.take(at, kernels.keep(place == begin))
        return [self._at_once(rows, ShownRows(at, at, NEW))]

    def _at_once(self, rows: Gathered, shown: ShownRows, as_kind: int | None = None) -> Events:
        """Rows at the places of their deliveries, of the kinds that they have, or of another; numbered anew."""
        kernels = self._device.kernels
        place, kind = kernels.take(rows.place, shown.rows), kernels.take(rows.kind, shown.rows)
        frame = built(rows, shown, (), self._device)
        if as_kind is not None and not bool((kind == as_kind).all()):
            frame, kind = with_kind(frame, as_kind, self._device), np.full_like(kind, as_kind)
        return Events(place, TICK, with_order(frame, numbered(place, kind, device=self._device), self._device))

    def _fire(self, firings: Firings, clocks: Any, new: Gathered | None) -> list[Events]:
        """What is output at some firings, of the rows from before and the new ones, and the clock at each."""
        device, kernels, node = self._device, self._device.kernels, self._node
        rows = self._together(new, len(firings))
        made, had = list[Events](), np.zeros_like(firings.place, dtype=np.bool_)
        if rows is not None:
            chosen = self._select(node, rows, device)
            values = (*node.values, *(() if node.passes is None else (node.passes,)))
            for kind in dict.fromkeys(each.kind for each in chosen.shown):
                shown = _joined([each for each in chosen.shown if each.kind == kind], rows.firings, device)
                frame = built(rows, shown, values, device)
                if not bool((kernels.take(rows.kind, shown.rows) == kind).all()):
                    frame = with_kind(frame, kind, device)
                if CLOCK in frame.columns:
                    frame = self._at_output(frame, kind, rows, shown, clocks)
                order = numbered(shown.firing, device=device) if len(shown.rows) else shown.rows
                start = kernels.take(firings.place, shown.firing)
                made.append(Events(start, TICK, with_order(frame, order, device)))
                had[shown.firing] = True
            if chosen.known is not None:
                start = kernels.take(rows.place, chosen.known.rows)
                self._known = Events(start, TICK, built(rows, chosen.known, values, device))
            self._keep_only(rows, chosen.kept)
        none = kernels.keep(~had)
        if node.rate.posts_empty and len(none):
            made.append(self._empty(kernels.take(firings.place, none)))
        return made

    def _at_output(self, frame: Any, kind: int, rows: Gathered, shown: ShownRows, clocks: Any) -> Any:
        """Rows with the clock at which what is selected of them is evaluated: when they come, or when they go out."""
        node, take = self._node, self._device.kernels.take
        waits = node.waits or node.kind == "un-aggregated" or not node.selection
        of_groups = node.kind == "row per group" or (node.kind == "row for all" and node.selection == "last")
        now = take(clocks, shown.firing)
        if not (waits or (of_groups and kind == NEW)):
            # What an earlier output has had is evaluated again.
            now = np.where(take(rows.firing, shown.rows) == shown.firing, numbers_of(frame, CLOCK, self._device), now)
        return with_column(frame, CLOCK, self._device.columns.build({CLOCK: (now, None, TIME_TYPE)}), self._device)

    def _empty(self, places: Any) -> Events:
        """Deliveries without rows."""
        columns = self._device.columns
        none = empty_table(pa.schema([self._node.schema.field(name) for name in self._names]))
        frame = columns.nulls(columns.from_arrow(none), len(places))
        frame = with_kind(frame, EMPTY, self._device)
        return Events(places, TICK, with_order(frame, np.zeros_like(places), self._device))

    # What is kept

    def _together(self, new: Gathered | None, firings: int) -> Gathered | None:
        """What is known, the rows that were kept, and the new ones, with the firings that take them."""
        device = self._device
        known = [] if self._known is None or not reads_known(self._node) else [self._known]
        before = concat([*known, *(events for events, _ in self._kept)], device)
        if before is None:
            return new
        frame, place = before.frame, before.start
        at, firing = np.arange(len(before), like=place), np.zeros_like(place)
        count = sum(map(len, known))
        firing[:count] = -1
        kind = np.concatenate([np.full_like(place, NEW, shape=(count,)), *(kinds for _, kinds in self._kept)])
        if new is not None:
            at = np.concatenate([at, new.at + len(before)])
            place, kind = np.concatenate([place, new.place]), np.concatenate([kind, new.kind])
            firing = np.concatenate([firing, new.firing])
            frame = device.columns.concat([frame, new.frame])
        return _with(self._gathered(frame, at, place, kind), firing=firing, firings=firings)

    def _keep(self, rows: Gathered) -> None:
        """Keep what is needed of the rows of a step without a firing."""
        chosen = self._select(self._node, rows, self._device)
        self._kept.append(self._events(rows, chosen.kept))
        if self._kept_rows > 2 * self._needed + _FEW:
            known, self._known = self._known, None
            whole = self._together(None, 0)
            self._known = known
            if whole is not None:
                self._keep_only(whole, self._select(self._node, whole, self._device).kept)

    def _keep_only(self, rows: Gathered, at: Any) -> None:
        self._kept = [self._events(rows, at)] if len(at) else []
        self._needed = len(at)

    def _events(self, rows: Gathered, at: Any) -> tuple[Events, Any]:
        """Some rows, and their kinds."""
        take = self._device.kernels.take
        frame = built(rows, ShownRows(at, at, NEW), (), self._device)
        return Events(take(rows.place, at), TICK, frame), take(rows.kind, at)

    @property
    def _kept_rows(self) -> int:
        return sum(len(events) for events, _ in self._kept)

    # State

    @property
    def alive(self) -> int:
        """How many rows are kept, and how many are known of groups."""
        known = 0 if self._known is None else len(self._known)
        groups = 0 if self._of_groups is None else len(self._of_groups)
        return known + groups + self._kept_rows + self.waiting

    @property
    def waiting(self) -> int:
        """How many deliveries and ticks wait for the other input's CTI."""
        return sum(len(each) for side in self._waiting for each in side)

    def tables(self) -> dict[str, pa.Table]:
        """When it fires next, the rows that are kept, what is known, and what waits."""
        made = self._times.tables()
        held = {"kept": [events for events, _ in self._kept], "known": [] if self._known is None else [self._known]}
        held |= {"waiting": self._waiting[0], "waiting ticks": self._waiting[1]}
        for name, pieces in held.items():
            whole = concat(pieces, self._device)
            if whole is not None and len(whole):
                rows = self._device.columns.to_arrow(whole.frame, self._schema(name))
                place = pa.array(self._device.columns.host(whole.start), pa.int64())
                columns = {f"{_PREFIX}{each}": rows[each] for each in rows.column_names}
                made[name] = pa.table({"place": place, **columns})
        if self._had:
            made["interval"] = pa.table({"had": pa.array([1], pa.int64())})
        return made | ({} if self._of_groups is None else self._of_groups.tables())

    def _schema(self, name: str) -> pa.Schema:
        return self._node.ticks.schema if name == "waiting ticks" else self._node.schema

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The declarations of the tables that `tables` gives."""
        yield from self._times.declared(tables)
        place = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        for name in _HELD:
            columns = {"place": place, **nullable_columns(self._schema(name), _PREFIX)}
            if name != "waiting ticks":
                most = EMPTY if name == "waiting" else OLD
                columns[f"{_PREFIX}{ROW}"] = Field(pa.int8(), least=NEW, most=most)
            yield StateTable(name, columns)
        yield StateTable("interval", {"had": counter(1)}, rows=1)
        if self._of_groups is not None:
            yield from self._of_groups.declared(tables)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """Restore the state that `tables` gave."""
        self._times.restore(tables)
        held = {name: self._restored(tables[name]) for name in _HELD if name in tables}
        self._kept = [(held["kept"], kinds_of(held["kept"].frame, self._device))] if "kept" in held else []
        self._needed = self._kept_rows
        self._known = held.get("known")
        self._waiting = [[held[name]] if name in held else [] for name in ("waiting", "waiting ticks")]
        self._had = "interval" in tables
        if self._of_groups is not None:
            self._of_groups.restore(tables)

    def _restored(self, table: pa.Table) -> Events:
        columns = self._device.columns
        place = columns.array(table["place"].to_numpy().copy())
        rows = table.drop_columns("place")
        names = [name.removeprefix(_PREFIX) for name in rows.column_names]
        return Events(place, TICK, columns.from_arrow(rows.rename_columns(names)))


class RateCountsOperator(OutputRateOperator, nodes=(RateCounts,)):
    """What a rate has counted where its condition holds: it keeps no rows.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: RateCounts, device: Device) -> None:
        super().__init__(node.output, device)

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The columns that its condition reads."""
        return self._node.needs(())

    def _output(self, deliveries: Events | None, ticks: tuple[Any, Any]) -> list[Events]:
        device = self._device
        none = device.columns.array(np.zeros(0, np.int64))
        marks = TurnMarks(none, none, none)
        if deliveries is not None:
            kinds = kinds_of(deliveries.frame, device)
            marks = self._marks(deliveries, kinds, self._rows(deliveries, kinds))
        counted = {**self._times.step(marks, ticks).counted}
        place = device.columns.array(counted.pop("place"))
        columns = {name: (device.columns.array(each), None, pa.int64()) for name, each in counted.items()}
        columns[ROW] = np.full_like(place, FIRED, dtype=np.int8), None, pa.int8()
        columns[ORDER] = np.zeros_like(place), None, pa.int64()
        return [Events(place, TICK, device.columns.build(columns))]


_PREFIX = "row/"

_HELD = ("kept", "known", "waiting", "waiting ticks")


def _joined(shown: Sequence[ShownRows], firings: int, device: Device) -> ShownRows:
    """Rows of one kind, in order of their firings."""
    if len(shown) == 1:
        return shown[0]
    rows, firing = (np.concatenate([getattr(each, name) for each in shown]) for name in ("rows", "firing"))
    order = by_firing(firing, rows, firings, device)
    return ShownRows(rows[order], firing[order], shown[0].kind)


def _with(rows: Gathered, **changed: Any) -> Gathered:
    return Gathered(**{**vars(rows), **changed})


def _of(rows: Gathered, some: Any, device: Device) -> Gathered:
    """Some of the rows."""
    names = ("at", "place", "kind", "passes", "firing", "group")
    return _with(rows, **{name: device.kernels.take(getattr(rows, name), some) for name in names})
