"""Stitch in a running query: an event that ends before the CTI has found its follower, or has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import Events, concat, present
from gpu_ops.operators.joins.stitch import leading, payload, stitch
from gpu_ops.operators.operator import BatchInput, StepInput
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, row_columns
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, concat_rows
from gpu_ops.plan.lifetimes import Stitch

_CHAIN = ("chain", "numbers")


class IncrementalStitch(IncrementalOperator, nodes=(Stitch,)):
    """The steps of one stitch node: pieces wait for a CTI past their start, chains for a piece that follows them.

    A chain is its last piece, with the start of its first one. Matching at a time needs all pieces that end or start
    there, so it waits until the CTI is past that time.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Stitch
    _key_prefix, _has_clock, _may_batch = "", False, False

    def __init__(self, node: Stitch, device: Device) -> None:
        self._waiting, self._chains = RowRuns(("low",), device), RowRuns(("high",), device)
        runs = {"waiting": self._waiting, "chains": self._chains}
        super().__init__(node, node.compared, node.schema, device, runs)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """All events at once: each has a follower, or none."""
        events = concat(whole.inputs[0], self._device)
        if events is not None:
            yield stitch(self._node, events, self._device)

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        results = self._joined(events[0], cti)
        oldest = self._chains.least(_CHAIN)
        return StepInput(results), cti if oldest is None else oldest

    def _joined(self, events: Events | None, cti: int) -> list[Events]:
        device, came = self._device, []
        before = cti if cti == MAX_TIME else cti - 1
        if events is not None and len(events):
            codes = self._groups.codes(events.frame)
            frame = device.columns.select(events.frame, self._node.carried) if self._node.carried else None
            came = [AxisRows(codes, events.start, events.ends, {_CHAIN: Column((events.start,), None)}, frame)]
        fresh = self._waiting.through(came, before)
        if fresh is not None and self._node.carried:
            # All events with the same start have come by now.
            frame = leading(self._node, fresh.code, fresh.low, fresh.high, fresh.frame, device)
            fresh = replace(fresh, frame=frame)
        due = [*([] if fresh is None else [fresh]), *self._chains.due(before)]
        if not due:
            return []
        rows = concat_rows(due, device)
        take = device.kernels.take
        touched = present(rows.code, len(self._groups), device)
        local = np.searchsorted(touched, rows.code).astype(np.int32)
        order = device.kernels.group_order(local, len(touched), rows.low)
        rows, local = rows.take(order, device), take(local, order)
        first, last = device.kernels.stitch_order(local, rows.low, rows.high)
        begun = take(rows.columns[_CHAIN].arrays[0], first)
        chains = rows.take(last, device)
        carried = None if rows.frame is None else device.columns.take(rows.frame, first)
        chains = AxisRows(chains.code, chains.low, chains.high, {_CHAIN: Column((begun,), None)}, carried)
        final = chains.high <= before
        self._chains.add(chains.take(device.kernels.keep(~final), device))
        done = chains.take(device.kernels.keep(final), device)
        results = []
        if len(done):
            frame = self._groups.keys_of(done.code.astype(np.int64))
            frame = frame if done.frame is None else payload(self._node, frame, done.frame, device)
            results.append(Events(done.columns[_CHAIN].arrays[0], done.high, frame))
        self._forget()
        return results

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if not tables:
            return
        yield from self._groups_declared({})
        groups = self._group_count(tables)
        begun = {_CHAIN: NUMBERED_TIME}
        carried = pa.schema([self._schema.field(name) for name in self._node.carried])
        for name in ("waiting", "chains"):
            columns = row_columns(
                replace(TIME, from_=f"{'.'.join(_CHAIN)}.0"),
                replace(TIME, above="low"),
                groups,
                numbers=begun,
                frame=carried,
            )
            yield StateTable(name, columns)
