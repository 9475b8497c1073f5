"""Windows of a running query: each step computes the results that the CTI made final, from the new events alone.

On a window's axis an event begins at ``low`` and ends at ``high``. A step takes the events that begin or end at or
before the CTI's place. For each of their groups, the events that are alive throughout the step contribute a base: the
totals of all live events, less the events that end in the step. On this base, the block of the step's events gives
every slot from the group's last boundary to its newest one; later slots are not final yet.

So a step costs its new events and final results, times the logarithm of sorted runs. Extremes also keep the events of
each group that can still become the extreme (`pareto_runs`); a step reads those that end in it, and one more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column, Columns, PartName
from gpu_ops.operators.aggregates.forms import FORMS, ranked_by
from gpu_ops.operators.events import Events, present
from gpu_ops.operators.operator import Operator
from gpu_ops.operators.state.fields import AFTER, BEFORE
from gpu_ops.operators.state.rows import AxisRows, all_of, concat_rows, grown
from gpu_ops.operators.windows.incremental_block import (
    ROWS,
    ExtremeCodes,
    IncrementalBlock,
    StepSlots,
    places_among,
)
from gpu_ops.operators.windows.pareto_runs import CODES
from gpu_ops.operators.windows.recomputing_window import RecomputingWindow
from gpu_ops.operators.windows.window_state import WindowState
from gpu_ops.operators.windows.windows import grid_results, places_of
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.windows import WindowAggregate

_ENDED: PartName = ("ended", None, None)
"""The segment of the rows that began in earlier steps and end in this one."""

_BEGUN: PartName = ("begun", None, None)
"""The segment of the rows that begin in this step."""


@dataclass(frozen=True)
class Placed:
    """Where rows are on a step's axis. Segments of rows follow each other; those of extremes are in the middle.

    Attributes:
        axis: The places of all boundaries.
        first: First slot of each row.
        last: One past its last slot.
        segments: The rows of each segment.
        slots: The step's slots.
    """

    axis: Any
    first: Any
    last: Any
    segments: dict[PartName, slice]
    slots: StepSlots

    def of(self, *names: PartName) -> tuple[Any, Any]:
        """(first, last) of the rows of some segments, one behind the other."""
        some = [self.segments[name] for name in names]
        first, last = ([each[rows] for rows in some] for each in (self.first, self.last))
        return (first[0], last[0]) if len(some) == 1 else (np.concatenate(first), np.concatenate(last))

    @property
    def events(self) -> tuple[Any, Any]:
        """(first, last) of the step's events: ending events, then beginning ones."""
        return (self.first, self.last) if len(self.segments) == 2 else self.of(_ENDED, _BEGUN)


class IncrementalWindow(WindowState, nodes=(WindowAggregate,)):
    """The steps of one window node."""

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Node] | None = None) -> Operator:
        """A window that updates its aggregates, or one that keeps its events. In a batch the two are the same."""
        lowered = node.lowered()
        keeps = (each.keeps(lowered.input.schema) for each in lowered.aggregates)
        return (RecomputingWindow if apart is not None or "events" in keeps else cls)(lowered, device)

    def _settled(
        self, events: Events | None, opened: Events | None, closed: Events | None, limit: int
    ) -> tuple[Any, list[Events]]:
        begun, ended = self._due(events, opened, closed, limit)
        self._totals.grow(self._last, len(self._groups))
        self._last = grown(self._last, len(self._groups))
        touched = self._touched(begun, ended, limit)
        return touched, self._results(begun, ended, touched, limit) if len(touched) else []

    @property
    def _counts(self) -> Any:
        return self._totals.limbs[ROWS][0]

    def with_open(self) -> Operator | None:
        """Itself; or a window that keeps all events: candidates of an extreme by rank depend on when events end."""
        return self if self.take_open() else RecomputingWindow(self._node, self._device).with_open()

    def take_open(self) -> bool:
        """Take events whose ends are not known yet. It cannot on a grid, nor if values are only ranked.

        An extreme is then the first or the last in the order of all live events: any of them may end at any time, so no
        event can be left out for another one.
        """
        if self._node.window.grid is not None or self._ranked:
            return False
        for aggregate in self._node.aggregates:
            if aggregate.keeps(self._node.input.schema) == "extreme":
                self._order(aggregate)
        self._best, self._runs = {}, {"waiting": self._waiting, "ending": self._ending}
        return True

    # New rows and due rows

    def _due(
        self, events: Events | None, opened: Events | None, closed: Events | None, limit: int
    ) -> tuple[AxisRows | None, AxisRows | None]:
        """The rows that begin in this step, and earlier rows that end in it."""
        if closed is not None and len(closed):
            # It has counted since its start edge, and counts until its end.
            self._ending.add(self._rows(closed, every=True))
        fresh = [] if events is None or not len(events) else [self._rows(events)]
        if opened is not None and len(opened):
            rows = self._rows(opened, every=True)
            fresh.append(replace(rows, high=np.full_like(rows.high, AFTER, dtype=np.int64)))
        started = self._waiting.through(fresh, limit)
        ended = self._ending.due(limit)
        if started is not None:
            # A row that never ends need not wait for its end: at the end of time every group has a boundary.
            lasting = (started.high > limit) & (started.high < self._never)
            self._ending.add(started.take(self._device.kernels.keep(lasting), self._device))
        return started, concat_rows(ended, self._device) if ended else None

    def _rows(self, events: Events, *, every: bool = False) -> AxisRows:
        """Events as rows. Those between two windows are left out, unless every one is asked for."""
        rows = self._loaded(events.frame, self._groups.codes(events.frame))
        return self._on_axis(rows, events, every=every)

    def _with_valid(self, rows: AxisRows) -> AxisRows:
        """The rows, with the validity of each column that ever had a null."""
        columns = {
            name: replace(column, valid=all_of(rows.code))
            if column.valid is None and name in self._nullable
            else column
            for name, column in rows.columns.items()
        }
        return replace(rows, columns=columns)

    def _touched(self, begun: AxisRows | None, ended: AxisRows | None, limit: int) -> Any:
        """int64 numbers of the groups that have a boundary in this step, ascending."""
        none = self._device.columns.array(np.zeros(0, np.int32))
        codes = np.concatenate([none, *(rows.code for rows in (begun, ended) if rows is not None)])
        if not self._forces(limit):
            return present(codes, len(self._groups), self._device)
        found = self._counts[: len(self._groups)] > 0
        found[codes] = True
        return self._device.kernels.keep(found)

    def _forces(self, limit: int) -> bool:
        """Whether each group with events has a boundary at the limit: windows end there, or time ends."""
        if self._node.window.grid is not None:
            return self._done < limit < AFTER - 1
        return self._done < limit == MAX_TIME

    def _bound(self, limit: int) -> int:
        """A boundary that each touched group has; `AFTER` for none."""
        return limit if self._forces(limit) else AFTER

    @property
    def done(self) -> int:
        """The place up to which results are given."""
        return self._done

    @property
    def _never(self) -> int:
        """The end of events that never end, as a place."""
        return MAX_TIME if self._node.window.grid is None else AFTER

    # Results

    def _results(self, begun: AxisRows | None, ended: AxisRows | None, touched: Any, limit: int) -> list[Events]:
        """The results of a step in which some rows begin and earlier rows end. It updates the state."""
        node, device = self._node, self._device
        kernels = device.kernels
        # Earlier rows come first. Rows from before a column's first null have no validity yet.
        parts = [rows for rows in (ended, begun) if rows is not None]
        events = self._with_valid(concat_rows(parts, device) if parts else self._nothing())
        known = {name: self._known(name, touched, limit) for name in self._best}
        placed = self._placed(events, 0 if ended is None else len(ended), known, touched, limit)
        columns, best = self._extremes(events, known, placed)
        block = IncrementalBlock(
            device,
            *placed.events,
            len(placed.axis),
            columns,
            node.input.schema,
            of_step=placed.slots,
            totals=self._totals,
            best=best,
            events=events,
            ended=placed.segments[_ENDED].stop,
            limit=limit,
            orders=self._orders,
            ordered=self._ordered,
            values=self._values,
        )
        shown = block.slots  # not the block itself: a reference to it would be a circle, and keep it in memory
        bounds = partial(kernels.slot_bounds, placed.slots.owners, placed.axis)
        block.places = lambda: places_of(node, bounds(shown), self._groups.keys_of(touched), device)
        block.depart()
        frame = block.results(node.aggregates)
        block.update()
        self._last[touched] = kernels.take(placed.axis, kernels.take(placed.slots.all, placed.slots.after))
        if not len(shown):
            return []
        group, begin, end = bounds(shown)
        group = group.astype(np.int64)
        if node.window.grid is not None:
            return list(grid_results(node.window.grid, begin, end, self._groups.keys_of(touched), group, frame, device))
        keys = self._keys_of(kernels.take(touched, group))
        return [Events(begin, end, frame if keys is None else device.columns.beside(keys, frame))]

    def _placed(
        self, events: AxisRows, ended: int, known: dict[PartName, AxisRows], touched: Any, limit: int
    ) -> Placed:
        """The axis of a step's groups, and where on it rows begin and end."""
        kernels, local = self._device.kernels, places_among(touched, len(self._groups), self._device)

        def segment(codes: Any, low: Any | None, high: Any) -> tuple[Any, Any, Any]:
            """(place of each row's group, its begin, its end); a row from before the step has its end as begin."""
            until = np.where(high > limit, AFTER, high)
            return local(codes), until if low is None else low, until

        segments = {
            _ENDED: segment(events.code[:ended], None, events.high[:ended]),
            **{name: segment(rows.code, None, rows.high) for name, rows in known.items()},
            _BEGUN: segment(events.code[ended:], events.low[ended:], events.high[ended:]),
        }
        bounds = accumulate((len(codes) for codes, _, _ in segments.values()), initial=0)
        where = dict(zip(segments, starmap(slice, pairwise(bounds)), strict=True))
        alive = kernels.take(self._counts, touched) > 0
        codes, begins, ends = (np.concatenate(each) for each in zip(*segments.values(), strict=True))
        owners, axis, first, last, every, group, before, after = kernels.step_axis(
            codes,
            begins,
            ends,
            where[_BEGUN].start,
            np.where(alive, kernels.take(self._last, touched), BEFORE),
            self._bound(limit),
            BEFORE,
            AFTER,
        )
        return Placed(axis, first, last, where, StepSlots(every, group, before, after, touched, owners))

    def _known(self, name: PartName, touched: Any, limit: int) -> AxisRows:
        """The rows of an extreme's state that can be the greatest of their group in the step."""
        rows, device = self._best[name].reach(touched, self._done, limit), self._device
        if rows is None:
            none = device.columns.array(np.zeros(0, np.int64))
            framed = self._best[name].extreme.framed
            frame = device.columns.select(self._nothing().frame, framed) if framed else None
            return AxisRows(none.astype(np.int32), none, none, {CODES: Column((none,), None)}, frame)
        return rows

    def _extremes(
        self, events: AxisRows, known: dict[PartName, AxisRows], placed: Placed
    ) -> tuple[Columns, dict[PartName, ExtremeCodes]]:
        """(columns, best): the ranked values of events and state are ranked together."""
        device = self._device
        columns = dict(events.columns)
        order = {name: rows.columns[CODES].arrays[0] for name, rows in known.items()}
        for column, form in self._ranked:
            names = [name for name in known if name[1] == column]
            frames = [device.columns.select(events.frame, ranked_by(column, form))]
            together = device.columns.concat([*frames, *(known[name].frame for name in names)])
            made = FORMS[form](together, column, device)
            (codes,), valid, count = made.arrays, made.valid, len(events)
            if valid is not None:
                self._has_null((column, form))
            if (column, form) in self._nullable:
                valid = all_of(codes) if valid is None else valid
            valid = None if valid is None else valid[:count]
            columns[column, form] = replace(made, arrays=(codes[:count],), valid=valid)
            for name in names:
                mine = codes[count : count + len(known[name])]
                count += len(known[name])
                order[name] = self._best[name].extreme.turned(mine)
        return columns, {name: ExtremeCodes(self._best[name], order[name], *placed.of(name)) for name in known}

    # The state, to be looked at and kept

    @property
    def alive(self) -> int:
        """How many events are kept that have not ended."""
        over = self._done >= self._never  # at the end of time all events have ended
        begun = self._counts.sum() if self._groups.seen and not over else 0
        return len(self._waiting) + int(begun)

    def _forget(self) -> None:
        """Forget groups of which nothing is left, once they are most of all."""
        for values in self._values.values():
            values.forget((self._waiting, self._ending))
        super()._forget()

    def _note_used(self, used: Any) -> None:
        # Groups that were only asked for have a number, and no row yet.
        used |= self._device.columns.host(grown(self._counts, len(used))[: len(used)] > 0)

    def _renumber(self, numbers: Any, left: Any) -> None:
        take = self._device.kernels.take
        super()._renumber(numbers, left)
        for arrays in self._totals.limbs.values():
            arrays[:] = [take(values, left) for values in arrays]
        for orders in self._orders.values():
            orders.renumber(numbers)
