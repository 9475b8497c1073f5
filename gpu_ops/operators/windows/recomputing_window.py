"""Windows of a running query whose aggregates need the events themselves: events are kept as long as they are alive.

A step touches the groups in which an event or a window begins or ends. It clips each group's live events to the newly
final stretch, from the group's last boundary to its newest one, and runs the batch's computation over them. So a step
costs the live events of the groups that it touches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, present
from gpu_ops.operators.operator import Operator
from gpu_ops.operators.row_order import greatest_by
from gpu_ops.operators.state.fields import BEFORE, clock, extent, row_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, concat_rows, grown
from gpu_ops.operators.windows.window_operator import WindowOperator
from gpu_ops.operators.windows.windows import placed_results
from gpu_ops.plan.aggregate_kinds import FirstBy, FirstEvents
from gpu_ops.plan.windows import WindowAggregate

_FEW = 1 << 10
"""Of so many rows all are looked at."""


class RecomputingWindow(WindowOperator):
    """The steps of one window node that keeps its events.

    Args:
        node: The node, lowered to plain columns.
        device: Where arrays live.
    """

    def __init__(self, node: WindowAggregate, device: Device) -> None:
        self._waiting, self._alive = RowRuns(("low",), device), RowRuns(("group", "low"), device)
        super().__init__(node, device, {"waiting": self._waiting, "alive": self._alive})
        self._closing: AxisRows | None = None

    @cached_property
    def _held(self) -> Any:
        """int64 number of rows that each group has."""
        return np.zeros_like(self._last)

    def with_open(self) -> Operator | None:
        """Itself; None on a grid, or if values cannot be compared."""
        types = [self._schema.field(name).type for name in self._reads]
        return self if self._node.window.grid is None and not any(map(pa.types.is_nested, types)) else None

    @property
    def _counts(self) -> Any:
        return self._held

    def _settled(
        self, events: Events | None, opened: Events | None, closed: Events | None, limit: int
    ) -> tuple[Any, list[Events]]:
        fresh = [self._rows(each) for each in (events,) if each is not None and len(each)]
        if opened is not None and len(opened):
            # Until it is closed, it may never end.
            fresh.append(self._rows(Events(opened.start, np.full_like(opened.start, MAX_TIME), opened.frame)))
        begun = self._waiting.through(fresh, limit)
        self._last, self._held = (grown(each, len(self._groups)) for each in (self._last, self._held))
        held = self._held > 0
        changed = []
        if begun is not None:
            changed.append(begun.code)
            self._count(begun.code, 1)
            self._alive.add(begun)
        if closed is not None and len(closed):
            over = self._rows(closed)
            self._close(over)
            due = over.high <= limit
            changed.append(over.code[due])
            self._count(changed[-1], -1)
            # Rows that end in this step take part in this step only, also if they end at the CTI of the last one.
            self._closing = over.take(self._device.kernels.keep(due), self._device)
            self._alive.add(over.take(self._device.kernels.keep(~due), self._device))
        for run, at in self._alive.ended(limit):
            changed.append(self._device.kernels.take(run.rows.code, at))
            self._count(changed[-1], -1)
        touched = self._touched(changed, held, limit)
        results = self._results(touched, held, limit) if len(touched) else []
        self._closing = None
        return touched, results

    def _rows(self, events: Events) -> AxisRows:
        codes = self._groups.codes(events.frame)
        frame = self._device.columns.select(events.frame, self._reads) if self._reads else None
        return self._on_axis(AxisRows(codes, codes, codes, {}, frame), events)

    def _count(self, codes: Any, by: int) -> None:
        groups, counts = np.unique(codes, return_counts=True)
        self._held[groups] += by * counts

    def _touched(self, changed: list[Any], held: Any, limit: int) -> Any:
        """int64 numbers of the groups that have a boundary in this step, ascending."""
        none = self._device.columns.array(np.zeros(0, np.int32))
        if self._forces(limit):
            changed = [*changed, self._device.kernels.keep(held)]
        return present(np.concatenate([none, *changed]), len(self._groups), self._device)

    def _forces(self, limit: int) -> bool:
        """Whether each group with events has a boundary at the limit: windows of a grid end there."""
        return self._node.window.grid is not None and self._done < limit

    def _newest(self, codes: Any, bounds: Any, groups: int, limit: int) -> Any:
        """The boundary up to which each of some groups is computed: its newest one."""
        del limit
        return greatest_by(codes, bounds, groups, self._device)

    # Results

    def _results(self, touched: Any, held: Any, limit: int) -> list[Events]:
        node, device = self._node, self._device
        kernels = device.kernels
        rows = self._that_count(self._of_groups(touched), touched, limit)
        local = np.searchsorted(touched, rows.code).astype(np.int32)
        if node.window.grid is not None:
            low, high = np.maximum(rows.low, self._done), np.minimum(rows.high, limit)
        else:
            bounds = np.concatenate([rows.low, rows.high])
            codes = np.concatenate([local, local])
            some = kernels.keep(bounds <= limit)
            newest = self._newest(kernels.take(codes, some), kernels.take(bounds, some), len(touched), limit)
            # A group without live events begins with its first event.
            given = np.where(kernels.take(held, touched), kernels.take(self._last, touched), BEFORE)
            low = np.maximum(rows.low, kernels.take(given, local.astype(np.int64)))
            high = np.minimum(rows.high, kernels.take(newest, local.astype(np.int64)))
            self._last[touched] = newest
        inside = kernels.keep(low < high)
        if not len(inside):
            return []
        rows = rows.take(inside, device)
        take = kernels.take
        keys = self._keys_of(touched)
        made = placed_results(
            node, take(local, inside), take(low, inside), take(high, inside), rows.frame, keys, device
        )
        return list(made)

    def _of_groups(self, touched: Any) -> AxisRows:
        """All rows of some groups that had not ended at the last step."""
        pieces = []
        for run, at in self._alive.of_groups(touched):
            lasting = self._device.kernels.take(run.rows.high, at) > self._done
            pieces.append(run.rows.take(at[lasting], self._device))
        if self._closing is not None and len(self._closing):
            pieces.append(self._closing)
        return concat_rows(pieces, self._device)

    @cached_property
    def _firsts(self) -> FirstBy | None:
        """The events that count, of those that stay throughout a step; None for all."""
        found = []
        for each in self._node.aggregates:
            how = each.kind.incremental
            first = how.of(each) if isinstance(how, FirstEvents) else None
            if first is None or not pa.types.is_int64(self._schema.field(first.column).type):
                return None
            found.append(first)
        if len({(each.column, each.descending) for each in found}) != 1:
            return None
        return max(found, key=lambda each: each.most)

    def _that_count(self, rows: AxisRows, touched: Any, limit: int) -> AxisRows:
        """The rows without those behind as many of their group as any result asks for, which all stay in the step."""
        if self._firsts is None or len(touched) != 1 or len(rows) < _FEW:
            return rows
        column, descending, most = self._firsts
        values, valid = self._device.columns.values(rows.frame, column)
        stays = self._device.kernels.keep((rows.low <= self._done) & (rows.high > limit))
        if valid is not None or len(stays) <= most:
            return rows
        worth = values if descending else ~values
        bound = np.partition(self._device.kernels.take(worth, stays), len(stays) - most)[len(stays) - most]
        counts = worth >= bound
        counts |= (rows.low > self._done) | (rows.high <= limit)
        return rows.take(self._device.kernels.keep(counts), self._device)

    @property
    def _telling(self) -> list[str]:
        """The columns that tell which open row a closed one was."""
        return list(self._reads)

    def _lows(self, low: Any) -> Any:
        """Where open rows begin, as far as that tells them apart."""
        return low

    def _close(self, closed: AxisRows) -> None:
        """Drop the open rows that some closed rows were: for each closed row one that is equal in what tells them."""
        columns, kernels = self._device.columns, self._device.kernels
        in_groups = self._alive.of_groups(present(closed.code, len(self._groups), self._device))
        found = [at[kernels.take(run.rows.high, at) == MAX_TIME] for run, at in in_groups]
        there = [run.rows.take(at, self._device) for run, at in zip(self._alive.runs, found, strict=True)]
        rows = concat_rows([closed, *there], self._device)
        names = [*self._telling, "__code", "__low"]
        keys = columns.build(
            {"__code": (rows.code, None, pa.int32()), "__low": (self._lows(rows.low), None, pa.int64())}
        )
        keys = keys if rows.frame is None else columns.beside(rows.frame, keys)
        codes, _, _ = columns.key_codes(keys, names)
        # Closed rows come first. Of equal rows, as many open ones are dropped as there are closed ones.
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        begins = np.searchsorted(sorted_codes, sorted_codes)
        place = np.arange(len(order), like=begins) - begins
        closing = (order < len(closed)).astype(np.int64)
        before = np.concatenate([np.zeros_like(place[:1]), np.cumsum(closing)])
        ends = np.searchsorted(sorted_codes, sorted_codes, side="right")
        count = before[ends] - before[begins]
        mine = np.sort(order[(closing == 0) & (place < 2 * count)]) - len(closed)
        first = 0
        for run, at in zip(self._alive.runs, found, strict=True):
            here = mine[(mine >= first) & (mine < first + len(at))] - first
            self._alive.drop(run, at[here])
            first += len(at)

    # The state, to be looked at and kept

    def _restore_groups(self, groups: pa.Table) -> None:
        super()._restore_groups(groups)
        self._held = np.zeros_like(self._last)

    def _again(self, name: str, rows: AxisRows) -> None:
        if name == "alive":
            self._count(rows.code, 1)

    def _renumber(self, numbers: Any, left: Any) -> None:
        super()._renumber(numbers, left)
        self._held = self._device.kernels.take(self._held, left)

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if not tables:
            return
        yield clock(self._node.window)
        done, axis, (least, most) = int(tables["clock"]["done"][0].as_py()), self._axis, extent(self._node.window)
        yield from self._groups_declared(self._last_declared(done))
        groups, frame = self._group_count(tables), pa.schema([self._schema.field(name) for name in self._reads])
        later = max(least, done + 1)
        end = Field(axis, least=later, most=most, above="low")
        for name, begin in (
            ("waiting", Field(axis, least=later, most=most)),
            ("alive", Field(axis, least=least, most=min(done, most))),
        ):
            columns = row_columns(begin, end, groups, frame=frame)
            yield StateTable(name, columns, doubts=self._few_windows(done))
