"""As-of joins in a running query."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import Events
from gpu_ops.operators.joins import joins
from gpu_ops.operators.joins.incremental import NULLS, IncrementalBinary
from gpu_ops.operators.operator import Operator
from gpu_ops.operators.row_order import run_ends, run_starts
from gpu_ops.operators.state.fields import NUMBERED_TIME
from gpu_ops.operators.state.least import Least
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.joins import AsOf
from gpu_ops.plan.nodes import Node

_END, _REACH, _FOUND = ("end", "numbers"), ("reach", "numbers"), ("found", "numbers")
"""Columns of left events that wait: their ends, how long after them a right one may start that they would take, and
whether they have an earlier one meanwhile."""

_FAR = MAX_TIME - MIN_TIME


class _Lasts(RowRuns):
    """Events by group and start; a run has only the last one of each group."""

    def _ordered(self, rows: AxisRows) -> AxisRows:
        return self._last(super()._ordered(rows))

    def _merged(self, pieces: Sequence[AxisRows]) -> AxisRows:
        return self._last(super()._merged(pieces))

    def _last(self, rows: AxisRows) -> AxisRows:
        return rows.take(self._device.kernels.keep(run_ends(rows.code)), self._device)


class IncrementalAsOf(IncrementalBinary, nodes=(AsOf,)):
    """The steps of an as-of join: a left event is answered when the older CTI has passed its start.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: AsOf

    def __init__(self, node: AsOf, device: Device) -> None:
        self._lasts = _Lasts(("group", "low"), device)
        super().__init__(node, device, {"right": self._lasts})

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Node] | None = None) -> Operator:
        """The operator of an as-of join; one that looks forward has to wait."""
        del apart
        return cls(node, device) if node.direction == "backward" else IncrementalNextAsOf(node, device)

    def _batch(self, left: Events | None, right: Events | None, *, gathered: bool) -> Iterator[Events]:
        return joins.as_of(self._node, left, right, self._device)

    def _meet(self, left: AxisRows, right: AxisRows, cti: int) -> Iterator[Events]:
        device, kernels = self._device, self._device.kernels
        node, rest = self._node, left
        fresh = joins.last_of_each_start(right, node.right.schema, device)
        # The newest run first: the latest start counts.
        for other in (fresh, *(run.rows for run in reversed(self._lasts.runs))):
            at = joins.last_started(rest, other, None, device)
            found = kernels.keep(at >= 0)
            if len(found):
                mine, partner = rest.take(found, device), kernels.take(at, found)
                if node.tolerance is not None:
                    near = mine.low - kernels.take(other.low, partner) <= node.tolerance
                    partner = np.where(near, partner, -1)
                yield from joins.with_last(node, mine, other, partner, device)
                rest = rest.take(kernels.keep(at < 0), device)
        if len(rest):
            yield from joins.with_last(node, rest, fresh, np.full_like(rest.low, -1), device)
        _keep_last(self._lasts, fresh, node, cti)


def _keep_last(lasts: _Lasts, fresh: AxisRows, node: AsOf, cti: int) -> None:
    """Keep the last event of each group, which alone can still be met; its end plays no part, the tolerance does."""
    far = MAX_TIME if node.tolerance is None else node.tolerance + 1
    lasts.add(replace(fresh, high=np.minimum(fresh.low, MAX_TIME - far) + far))
    lasts.end(cti)


class IncrementalNextAsOf(IncrementalBinary):
    """The steps of an as-of join that looks forward: left events wait for a right one, while one may be near enough.

    One that waits stands there with the earlier right event that it takes otherwise.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: AsOf

    def __init__(self, node: AsOf, device: Device) -> None:
        self._lefts, self._lasts = RowRuns(("group", "low"), device), _Lasts(("group", "low"), device)
        super().__init__(node, device, {"left": self._lefts, "right": self._lasts})
        self._oldest = Least(device.columns.host)

    def _batch(self, left: Events | None, right: Events | None, *, gathered: bool) -> Iterator[Events]:
        return joins.as_of(self._node, left, right, self._device)

    def _meet(self, left: AxisRows, right: AxisRows, cti: int) -> Iterator[Events]:
        fresh = joins.last_of_each_start(right, self._node.right.schema, self._device)
        if len(fresh):
            yield from self._met(fresh)
        for run, ended in self._lefts.ended(cti):
            if len(ended):
                run.left += len(ended)  # `drop` counts them, too
                self._lefts.drop(run, ended)
                yield from self._alone(run.rows.take(ended, self._device))
        for rows in self._with_earlier(left, fresh):
            yield from self._begun(rows, fresh, cti)
        if self._node.direction == "nearest":
            _keep_last(self._lasts, fresh, self._node, cti)

    def _met(self, fresh: AxisRows) -> Iterator[Events]:
        """What becomes of the left events that waited, of the groups of new right ones."""
        kernels = self._device.kernels
        first = kernels.keep(run_starts(fresh.code))
        groups = kernels.take(fresh.code, first)
        for run, at in self._lefts.of_groups(groups):
            if len(at):
                rows = run.rows.take(at, self._device)
                self._lefts.drop(run, at)
                self._oldest.remove(rows.low)
                yield from self._taken(rows, fresh, kernels.take(first, np.searchsorted(groups, rows.code)))

    def _taken(self, rows: AxisRows, fresh: AxisRows, at: Any) -> Iterator[Events]:
        """Left events with the next right ones, at some indices, where these are near enough."""
        device, kernels = self._device, self._device.kernels
        near = kernels.take(fresh.low, at) - rows.low <= rows.columns[_REACH].arrays[0]
        some = kernels.keep(near)
        if len(some):
            mine = rows.take(some, device)
            names = [name for name in mine.frame.columns if name in self._node.left.schema.names]
            frame = device.columns.select(mine.frame, names)
            whole = AxisRows(mine.code, mine.low, mine.columns[_END].arrays[0], {}, frame)
            yield from joins.with_last(self._node, whole, fresh, kernels.take(at, some), device)
        if len(some) < len(rows):
            yield from self._given(rows.take(kernels.keep(~near), device))

    def _given(self, rows: AxisRows) -> Iterator[Events]:
        """Left events with the earlier right ones that they have, or without any."""
        if self._node.how == "inner":
            rows = rows.take(self._device.kernels.keep(rows.columns[_FOUND].arrays[0] > 0), self._device)
        if len(rows):
            yield Events(rows.low, rows.columns[_END].arrays[0], rows.frame)

    def _alone(self, rows: AxisRows) -> Iterator[Events]:
        self._oldest.remove(rows.low)
        return self._given(rows)

    def _with_earlier(self, left: AxisRows, fresh: AxisRows) -> Iterator[AxisRows]:
        """New left events with the earlier right ones that they would take; they end where none can be nearer."""
        device, kernels, rest = self._device, self._device.kernels, left
        if self._node.direction == "nearest":
            for other in (fresh, *(run.rows for run in reversed(self._lasts.runs))):
                at = joins.last_started(rest, other, None, device)
                found = kernels.keep(at >= 0)
                if len(found):
                    yield self._standing(rest.take(found, device), other, kernels.take(at, found))
                    rest = rest.take(kernels.keep(at < 0), device)
        if len(rest):
            yield self._standing(rest, fresh, np.full_like(rest.low, -1))

    def _standing(self, rows: AxisRows, other: AxisRows, at: Any) -> AxisRows:
        """Left events as they wait, with the right ones at some indices, where these are near enough."""
        limit = _FAR if self._node.tolerance is None else self._node.tolerance
        reach = np.full_like(rows.low, limit)
        if len(other):
            distance = rows.low - self._device.kernels.take(other.low, np.maximum(at, 0))
            at = np.where(distance <= limit, at, -1)
            reach = np.where(at >= 0, np.minimum(reach, distance - 1), reach)
        frame = joins.beside_last(self._node, rows.frame, other, at, self._device)
        found = (at >= 0).astype(np.int64)
        own = {_END: rows.high, _REACH: reach, _FOUND: found}
        columns = {name: Column((values,), None) for name, values in own.items()}
        return AxisRows(rows.code, rows.low, np.minimum(rows.low + reach + 1, MAX_TIME), columns, frame)

    def _begun(self, rows: AxisRows, fresh: AxisRows, cti: int) -> Iterator[Events]:
        """New left events: with new right ones, alone, or waiting."""
        device, kernels = self._device, self._device.kernels
        at = joins.first_started(rows, fresh, None, device)
        met = kernels.keep(at >= 0)
        if len(met):
            yield from self._taken(rows.take(met, device), fresh, kernels.take(at, met))
            rows = rows.take(kernels.keep(at < 0), device)
        # Null equals no key.
        final = (rows.high <= cti) | (rows.code < NULLS)
        yield from self._given(rows.take(kernels.keep(final), device))
        kept = rows.take(kernels.keep(~final), device)
        self._oldest.add(kept.low)
        self._lefts.add(kept)

    def _output_cti(self, cti: int) -> int:
        return self._oldest.least(cti)

    # The state

    def _frame(self, name: str) -> pa.Schema:
        if name != "left":
            return super()._frame(name)
        return pa.schema([each.with_nullable(True) for each in self._node.schema])

    def _kept_besides(self, at: int) -> dict[str, Field]:
        reach = Field(pa.int64(), least=0, most=_FAR)
        fields = {_END: replace(NUMBERED_TIME, above="low"), _REACH: reach, _FOUND: counter(1)}
        return {} if at else {f"{name}.{form}.0": each for (name, form), each in fields.items()}

    def _again(self, name: str, rows: AxisRows) -> None:
        if name == "left":
            self._oldest.add(rows.low)
