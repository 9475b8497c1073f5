"""Rows that are held back within their instance for so long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import ASK, HELD, OLD
from gpu_ops.devices import Device
from gpu_ops.operators.contexts.outputs import EndOutputOperator
from gpu_ops.operators.deliveries.rows import kinds_of
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import run_ends, run_starts, stable_order
from gpu_ops.operators.state.fields import NUMBERED_TIME
from gpu_ops.plan.contexts import TimedOutput
from gpu_ops.plan.window_kinds import UNKNOWN

_CELLS = 1 << 22
"""So many pairs of an instance and a tick are looked at together."""


class TimedOutputOperator(EndOutputOperator, nodes=(TimedOutput,)):
    """Rows until a tick passes a point of their instance's grid.

    The points of a grid are numbered from 0, the time of the instance's first row. A row behind point n is output at
    the first tick that shows point n + 1, or later. Where the points are the times of a crontab, a time stands for the
    next of them behind it, so that what is output behind one is what is output at any later value.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: TimedOutput

    def __init__(self, node: TimedOutput, device: Device) -> None:
        super().__init__(node, device)
        self._clocks = Clocks(device)
        none = device.columns.array(np.zeros(0, np.int64))
        # Instances with rows; the times of their first ones; the last points that the clock has passed.
        self._ids, self._since, self._passed = none, none, none
        self._moves = none, none

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows before the CTI."""
        cti, columns = min(ctis), self._device.columns
        rows, moved, ticks = (waits.before(cti, fed.events) for waits, fed in zip(self._waiting, given, strict=True))
        self._alive.take(moved)
        if ticks is not None:
            self._clocks.take([ticks])
            moving = ticks.take(self._device.kernels.keep(columns.values(ticks.frame, ASK)[0] == 0), self._device)
            places = np.sort(moving.start)
            self._moves = places, self._told(self._clocks.at(places))
        made = self._made(rows, moved, cti)
        self._clocks.forget(cti)
        self._moves = (self._moves[0][:0],) * 2
        self.ended += self._alive.forget()
        return StepInput([each for each in made if each is not None and len(each)]), cti

    def _made(self, rows: Events | None, moved: Events | None, cti: int) -> list[Events | None]:
        kernels, device = self._device.kernels, self._device
        made: list[Events | None] = []
        fresh, rows = None, rows if rows is None else self._held.numbered(rows)
        if rows is not None:
            kinds = kinds_of(rows.frame, device)
            content = rows.take(kernels.keep(kinds == HELD), device)
            at, there, _ = self._found(content)
            made.append(self._carried(content, at, there, kernels.keep(there)))
            fresh = rows.take(kernels.keep(kinds <= OLD), device)
            if not kernels.ascends(fresh.start):
                fresh = fresh.take(np.argsort(fresh.start, kind="stable"), device)
            fresh = fresh.take(kernels.keep(self._found(fresh)[1]), device)
        numbers = None if fresh is None or not len(fresh) else self._numbered(fresh)
        if self._node.first:
            made += [] if fresh is None or numbers is None else [self._first(fresh, numbers)]
        else:
            made += self._fired(fresh if numbers is not None else None, numbers)
        made += super()._made(None, moved, cti)
        self._forget()
        return made

    def _numbered(self, fresh: Events) -> Any:
        """int64: behind which point of its instance's grid each row comes; new instances have a grid from now on."""
        kernels, clocks = self._device.kernels, self._told(self._clocks.at(fresh.start))
        ids = kernels.take(self._alive.ids, self._found(fresh)[0])
        order = np.argsort(ids, kind="stable")
        starts = kernels.keep(run_starts(kernels.take(ids, order)))
        first = kernels.take(order, starts)
        mine = kernels.take(ids, first)
        first = kernels.take(first, kernels.keep(~self._known(mine)[1]))
        if len(first):
            every = np.concatenate([self._ids, kernels.take(ids, first)])
            order = np.argsort(every, kind="stable")
            since = np.concatenate([self._since, kernels.take(clocks, first)])
            passed = np.concatenate([self._passed, np.zeros_like(first)])
            self._ids, self._since, self._passed = (kernels.take(each, order) for each in (every, since, passed))
        made: Any = (clocks - kernels.take(self._since, self._known(ids)[0])) // self._node.span
        return made

    def _told(self, clocks: Any) -> Any:
        """int64: what the clock shows; the next time of the crontab behind it, where there is one."""
        times, columns = self._node.times, self._device.columns
        if times is None:
            return clocks
        distinct, which = np.unique(columns.host(clocks), return_inverse=True)
        return columns.array(np.array([times.next_after(int(clock)) for clock in distinct], np.int64)[which])

    def _known(self, ids: Any) -> tuple[Any, Any]:
        """(int64 index of the grid of each instance, whether there is one)."""
        if not len(self._ids):
            none = np.zeros_like(ids)
            return none, none != 0
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return at, self._device.kernels.take(self._ids, at) == ids

    def _first(self, fresh: Events, numbers: Any) -> Events | None:
        """The rows of the first delivery behind each point."""
        kernels = self._device.kernels
        at, index = self._found(fresh)[0], self._grids_of(fresh)
        order = stable_order([index, numbers, fresh.start], fresh.start, self._device)
        keys = [kernels.take(each, order) for each in (index, numbers)]
        place = kernels.take(fresh.start, order)
        begins = kernels.keep(run_starts(*keys))
        run = np.cumsum(run_starts(*keys)) - 1
        # A point that an earlier step has seen has had its delivery: the next one is looked for.
        is_first = place == kernels.take(kernels.take(place, begins), run)
        some = kernels.take(order, kernels.keep(is_first & (keys[1] >= kernels.take(self._passed, keys[0]))))
        last = kernels.keep(run_ends(keys[0]))
        self._passed = self._passed.copy()
        self._passed[kernels.take(keys[0], last)] = kernels.take(keys[1], last) + 1
        if not len(some):
            return None
        rows = fresh.take(np.sort(some), self._device)
        lasts = rows.start < kernels.take(self._alive.end, kernels.take(at, np.sort(some)))
        rows = rows.take(kernels.keep(lasts), self._device)
        return self._selected(rows, rows.start)

    def _grids_of(self, rows: Events) -> Any:
        """int64: the grid of each row's instance."""
        return self._known(self._device.kernels.take(self._alive.ids, self._found(rows)[0]))[0]

    def _fired(self, fresh: Events | None, numbers: Any) -> list[Events | None]:
        """What is output at ticks."""
        device, node = self._device, self._node
        kernels, (places, clocks) = device.kernels, self._moves
        before = self._held.whole()
        whole = concat([each for each in (before, fresh) if each is not None], device)
        made: list[Events | None] = []
        found: tuple[Any, Any] | None = None
        fires, of = self._firings()
        if whole is not None:
            grid = self._grids_of(whole)
            # What is held has come behind the last point that the clock has passed.
            count = len(grid) - (0 if numbers is None else len(numbers))
            held = kernels.take(self._passed, grid[:count])
            point = held if numbers is None else np.concatenate([held, numbers])
            due = kernels.take(self._since, grid) + (point + 1) * node.span
            tick = np.searchsorted(clocks, due)
            at = self._found(whole)[0]
            out = tick < len(places)
            if len(places):
                place = kernels.take(places, np.minimum(tick, len(places) - 1))
                out &= place < kernels.take(self._alive.end, at)
                some = kernels.keep(out)
                found = kernels.take(place, some), kernels.take(at, some)
                if len(some) and not node.every_group:
                    made.append(self._selected(whole.take(some, device), found[0]))
            self._held.replace(whole.take(kernels.keep(~out), device))
        if len(fires) and (node.every_group or node.current) and (whole is not None or len(self._shown)):
            current = self._of_all(whole, fires, of)
            if node.current and found is not None:
                current = self._without(current, *found)
            made.append(current)
        if len(fires):
            fires = np.sort(fires)
            made.append(self._empty(fires[run_starts(fires)]))
        self._pass()
        return made

    def _firings(self) -> tuple[Any, Any]:
        """(int64 place of each tick that passes a point of a grid, int64 index of the instance)."""
        kernels, (places, clocks) = self._device.kernels, self._moves
        made = [(places[:0], places[:0])]
        at, _ = self._alive.found(self._ids)
        size = max(_CELLS // max(len(places), 1), 1)
        for low in range(0, len(self._ids) if len(places) else 0, size):
            some = slice(low, low + size)
            points = (clocks[None, :] - self._since[some, None]) // self._node.span
            earlier = np.concatenate([self._passed[some, None], points[:, :-1]], axis=1)
            ends = kernels.take(self._alive.end, at[some])
            hit = (points > np.maximum(earlier, 0)) & (places[None, :] < ends[:, None])
            row, tick = np.nonzero(hit)
            made.append((kernels.take(places, tick), kernels.take(at[some], row)))
        fires, of = (np.concatenate(each) for each in zip(*made, strict=True))
        return fires, of

    def _without(self, rows: Events, places: Any, at: Any) -> Events:
        """Rows of the outputs of instances that have no others."""
        kernels = self._device.kernels
        order = stable_order([at, places], places, self._device)
        at, places = kernels.take(at, order).astype(np.int32), kernels.take(places, order)
        mine = self._found(rows)[0].astype(np.int32)
        upto, before = (kernels.search_pairs(at, places, mine, rows.start - less) for less in (0, 1))
        return rows.take(kernels.keep(upto == before), self._device)

    def _pass(self) -> None:
        """The clock has passed points."""
        if len(self._moves[1]) and len(self._ids):
            self._passed = np.maximum(self._passed, (self._moves[1][-1] - self._since) // self._node.span)

    def _forget(self) -> None:
        """The grids of instances that have ended are gone."""
        kernels = self._device.kernels
        at, there = self._alive.found(self._ids)
        ended = ~there if not len(self._alive) else ~there | (kernels.take(self._alive.end, at) < UNKNOWN)
        if bool(ended.any()):
            keep = kernels.keep(~ended)
            self._ids, self._since, self._passed = (
                kernels.take(each, keep) for each in (self._ids, self._since, self._passed)
            )

    # The state

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [*super().parts, self._clocks]

    def tables(self) -> dict[str, pa.Table]:
        """The same, and the grids."""
        host = self._device.columns.host
        names = {"number": self._ids, "since": self._since, "passed": self._passed}
        return super().tables() | {"grids": pa.table({name: pa.array(host(each)) for name, each in names.items()})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        columns = {
            "number": Field(pa.int64(), least=0, ascends=True),
            "since": NUMBERED_TIME,
            "passed": counter(MAX_TIME),
        }
        yield StateTable("grids", columns, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if tables:
            array, grids = self._device.columns.array, tables["grids"]
            self._ids, self._since, self._passed = (
                array(np.array(grids[name].to_numpy())) for name in ("number", "since", "passed")
            )
