"""Windows of a running query: each step makes the results that the CTI has made final, from what is new alone.

On a window's axis an event begins at ``low`` and ends at ``high``. A step takes the events that begin, and those that
end, at or before the CTI's place there. Of each group that one of them belongs to it knows what holds throughout: the
totals of all that was alive, less those that end in the step. With these as a base, the block of the step's own events
gives every slot between the group's last boundary and its newest one; what comes after that is not final yet.

So a step costs what came in and what became final, times the logarithm that sorted runs cost. Extremes also keep, per
group, the events that can still become one (`running_extremes`); of these a step reads those that end in it, and one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column, Columns, PartName, column_name, load_columns
from gpu_ops.operators.aggregates.forms import FORMS, ranked_by
from gpu_ops.operators.aggregates.selection import Extremum
from gpu_ops.operators.events import FEW, MANY, Events
from gpu_ops.operators.operator import Operator
from gpu_ops.operators.state.fields import AFTER, BEFORE
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, all_of, concat_rows, grown
from gpu_ops.operators.windows.incremental_block import (
    ROWS,
    ExtremeCodes,
    IncrementalBlock,
    StepSlots,
    Totals,
    places_among,
    stored,
)
from gpu_ops.operators.windows.order_statistics import OrderStatistics
from gpu_ops.operators.windows.pareto_runs import CODES, ParetoRuns
from gpu_ops.operators.windows.recomputing_window import RecomputingWindow
from gpu_ops.operators.windows.value_counts import CODES as CODES_OF_VALUES
from gpu_ops.operators.windows.value_counts import ValueCounts
from gpu_ops.operators.windows.window_state import WindowState
from gpu_ops.operators.windows.windows import (
    check_open,
    covered_windows,
    grid_results,
    places_of,
    window_numbers,
)
from gpu_ops.plan.aggregate_kinds import kind_named
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.windows import WindowAggregate

_ENDED: PartName = ("ended", None, None)
"""The segment of the rows that began in earlier steps and end in this one."""

_BEGUN: PartName = ("begun", None, None)
"""That of the rows that begin in it."""


@dataclass(frozen=True)
class Placed:
    """Where rows lie on a step's axis. They stand in segments, one behind the other; those of extremes in between.

    Attributes:
        axis: The places of all boundaries.
        first: First slot of each row.
        last: One past its last slot.
        segments: Which rows each segment has.
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
        """(first, last) of the step's events: those that end in it, then those that begin."""
        return (self.first, self.last) if len(self.segments) == 2 else self.of(_ENDED, _BEGUN)


class IncrementalWindow(WindowState, nodes=(WindowAggregate,)):
    """The steps of one window node.

    Args:
        node: The node, lowered to plain columns.
        device: Where arrays live.
    """

    def __init__(self, node: WindowAggregate, device: Device) -> None:
        self._waiting, self._ending = RowRuns(("low",), device), RowRuns(("high",), device)
        super().__init__(node, device, {"waiting": self._waiting, "ending": self._ending})
        self._totals = Totals()
        self._nullable: set[tuple[str, str]] = set()
        ranked: dict[tuple[str, str], None] = {}
        self._orders: dict[PartName, OrderStatistics] = {}
        self._ordered: dict[PartName, Aggregate] = {}
        self._values: dict[str, ValueCounts] = {}
        self._best: dict[PartName, ParetoRuns] = {}
        for aggregate in node.aggregates:
            keeps = aggregate.keeps(node.input.schema)
            if keeps == "values":
                name = column_name(aggregate.expression)
                self._values.setdefault(name, ValueCounts(node.group, name, node.input.schema, device))
            elif keeps == "order":
                self._order(aggregate)
            elif keeps == "extreme":
                extreme = Extremum.of(aggregate, node.input.schema)
                self._best[extreme.name] = ParetoRuns(extreme, device)
                if extreme.by_rank:
                    ranked[extreme.column, extreme.form] = None
        self._runs |= {stored("extreme", name): each for name, each in self._best.items()}
        self._ranked = list(ranked)
        # What is ranked stays a frame, to be ranked in each step; only which rows take part is read as it comes.
        self._read = [
            replace(each, kind=kind_named("count"), expression=None, others=(), distinct=False)
            if self._by_rank(each)
            else replace(each, distinct=False)
            for each in node.aggregates
        ]
        self._framed = list(dict.fromkeys(name for each in self._ranked for name in ranked_by(*each)))

    def _order(self, aggregate: Aggregate) -> None:
        where = None if aggregate.filter is None else column_name(aggregate.filter)
        name: PartName = ("order", column_name(aggregate.expression), where)
        self._orders[name], self._ordered[name] = OrderStatistics(self._device), aggregate

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Node] | None = None) -> Operator:
        """Windows whose aggregates are brought up to date, or those that keep their events: a batch is the same."""
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
        """Itself; or windows that keep all events: what is kept of an extreme by rank depends on when events end."""
        return self if self.take_open() else RecomputingWindow(self._node, self._device).with_open()

    def take_open(self) -> bool:
        """Take events whose ends are not known yet, if it can: not on a grid, nor where values are only ranked.

        An extreme is then the first or the last in the order of all that is alive: of what may go at any time, no event
        stands in the way of another.
        """
        if self._node.window.grid is not None or self._ranked:
            return False
        for aggregate in self._node.aggregates:
            if aggregate.keeps(self._node.input.schema) == "extreme":
                self._order(aggregate)
        self._best, self._runs = {}, {"waiting": self._waiting, "ending": self._ending}
        return True

    # What comes in, and what is due

    def _due(
        self, events: Events | None, opened: Events | None, closed: Events | None, limit: int
    ) -> tuple[AxisRows | None, AxisRows | None]:
        """The rows that begin in this step, and the earlier ones that end in it."""
        if closed is not None and len(closed):
            # It counts since its start edge; from its end on it does not.
            self._ending.add(self._rows(closed, every=True))
        fresh = [] if events is None or not len(events) else [self._rows(events)]
        if opened is not None and len(opened):
            rows = self._rows(opened, every=True)
            fresh.append(replace(rows, high=np.full_like(rows.high, AFTER, dtype=np.int64)))
        started = self._waiting.through(fresh, limit)
        ended = self._ending.due(limit)
        if started is not None:
            # What never ends need not be remembered for its end: at the end of time every group has a boundary.
            lasting = (started.high > limit) & (started.high < self._never)
            self._ending.add(started.take(self._device.kernels.keep(lasting), self._device))
        return started, concat_rows(ended, self._device) if ended else None

    def _rows(self, events: Events, *, every: bool = False) -> AxisRows:
        """Events as rows; those that lie in no window, between two of them, are left out unless every one is asked."""
        node, device = self._node, self._device
        codes = self._groups.codes(events.frame)
        grid = node.window.grid
        if grid is not None:
            check_open(grid, events)
            if every:
                (low, high), at = covered_windows(grid, events, device), None
            else:
                low, high, at = window_numbers(grid, events.start, events.end, device)
        else:
            low, high, at = events.start, events.ends, None
        rows = self._loaded(events.frame, codes)
        return replace(rows if at is None else rows.take(at, device), low=low, high=high)

    def _loaded(self, frame: Any, codes: Any) -> AxisRows:
        """Rows of a frame, without places."""
        device = self._device
        columns = load_columns(self._read, self._node.input.schema, frame, device)
        columns |= {(name, CODES_OF_VALUES): values.of(frame) for name, values in self._values.items()}
        for name, column in columns.items():
            if column.valid is not None:
                self._has_null(name)
        ranked = device.columns.select(frame, self._framed) if self._framed else None
        return AxisRows(codes, codes, codes, columns, ranked)

    def _with_valid(self, rows: AxisRows) -> AxisRows:
        """The rows, and of each column that ever had a null which values are there."""
        columns = {
            name: replace(column, valid=all_of(rows.code))
            if column.valid is None and name in self._nullable
            else column
            for name, column in rows.columns.items()
        }
        return replace(rows, columns=columns)

    def _has_null(self, name: tuple[str, str]) -> None:
        if name not in self._nullable:
            self._nullable.add(name)
            self._totals.first_null(name[0])

    def _nothing(self) -> AxisRows:
        """No rows, with all columns."""
        device, schema = self._device, self._node.input.schema
        frame = device.columns.from_arrow(pa.Table.from_batches([], schema))
        none = device.columns.array(np.zeros(0, np.int64))
        return replace(self._loaded(frame, none.astype(np.int32)), low=none, high=none)

    def _by_rank(self, aggregate: Aggregate) -> bool:
        schema = self._node.input.schema
        return aggregate.keeps(schema) == "extreme" and Extremum.of(aggregate, schema).by_rank

    def _touched(self, begun: AxisRows | None, ended: AxisRows | None, limit: int) -> Any:
        """int64 numbers of the groups that have a boundary in this step, ascending."""
        codes = [rows.code for rows in (begun, ended) if rows is not None]
        if not self._forces(limit) and len(self._groups) > MANY * sum(map(len, codes)) + FEW:
            none = self._device.columns.array(np.zeros(0, np.int64))
            return np.unique(np.concatenate([none, *codes]))
        found = self._device.columns.array(np.zeros(len(self._groups), np.bool_))
        for each in codes:
            found[each] = True
        if self._forces(limit):
            found = found | (self._counts[: len(self._groups)] > 0)
        return self._device.kernels.keep(found)

    def _forces(self, limit: int) -> bool:
        """Whether each group with events has a boundary at the limit: windows end there, or time does."""
        if self._node.window.grid is not None:
            return self._done < limit < AFTER - 1
        return self._done < limit == MAX_TIME

    def _bound(self, limit: int) -> int:
        """The boundary that each group has which the step touches; `AFTER` for none."""
        return limit if self._forces(limit) else AFTER

    @property
    def done(self) -> int:
        """The place up to which results are given."""
        return self._done

    @property
    def _never(self) -> int:
        """The place from which on nothing ends."""
        return MAX_TIME if self._node.window.grid is None else AFTER

    # Results

    def _results(self, begun: AxisRows | None, ended: AxisRows | None, touched: Any, limit: int) -> list[Events]:
        """The results of a step in which some rows begin and earlier ones end; the state is that after it."""
        node, device = self._node, self._device
        kernels = device.kernels
        # What began in earlier steps comes first. Rows from before a column's first null do not say what is there.
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
        shown = block.slots  # not the block itself, which would stay in memory until somebody looked for circles
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
        keys = self._groups.keys_of(kernels.take(touched, group))
        return [Events(begin, end, frame if keys is None else device.columns.beside(keys, frame))]

    def _placed(
        self, events: AxisRows, ended: int, known: dict[PartName, AxisRows], touched: Any, limit: int
    ) -> Placed:
        """The axis of a step's groups, and where on it rows begin and end."""
        kernels, local = self._device.kernels, places_among(touched, len(self._groups), self._device)

        def segment(codes: Any, low: Any | None, high: Any) -> tuple[Any, Any, Any]:
            """(place of each row's group, where it begins, where it ends): without a beginning here that is its end."""
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
        """The state's rows of an extreme that can be the greatest of one of the step's groups in the step."""
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
        """(columns, best): values that are ranked are so together, the events' and the state's."""
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
        over = self._done >= self._never  # then that has ended, too, which never does
        begun = self._counts.sum() if self._groups.seen and not over else 0
        return len(self._waiting) + int(begun)

    def _forget(self) -> None:
        """Forget groups of which nothing is left, once they are most of all."""
        for values in self._values.values():
            values.forget((self._waiting, self._ending))
        super()._forget()

    def _note_used(self, used: Any) -> None:
        used |= self._device.columns.host(self._counts[: len(used)] > 0)

    def _renumber(self, numbers: Any, left: Any) -> None:
        take = self._device.kernels.take
        super()._renumber(numbers, left)
        for arrays in self._totals.limbs.values():
            arrays[:] = [take(values, left) for values in arrays]
        for orders in self._orders.values():
            orders.renumber(numbers)
