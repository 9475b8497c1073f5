"""Stitch in a running query: what ends before the CTI has found its follower, or has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import Column
from gpu_ops.operators.events import Events
from gpu_ops.operators.row_runs import RowRuns
from gpu_ops.operators.state import GroupNumbers, Rows, concat_rows, rows_from_arrow, shown_time
from gpu_ops.operators.state_fields import NUMBERED_TIME, TIME, group_columns, group_count, row_columns
from gpu_ops.operators.stitch import leading, whole
from gpu_ops.plan.lifetimes import Stitch
from gpu_ops.state_tables import StateTable, Tables
from gpu_ops.time import MAX_TIME

_CHAIN = ("chain", "numbers")


class RunningStitch:
    """The steps of one stitch node: pieces wait for their start, chains for what may follow them.

    A chain is its last piece, with the start of its first. Matching at one time needs all that ends and all that starts
    there, so it waits until the CTI is past it.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: Stitch, device: Device) -> None:
        self._node, self._device = node, device
        self._groups = GroupNumbers(node.compared, node.schema, device)
        self._waiting, self._chains = RowRuns(("low",), device), RowRuns(("high",), device)

    def step(self, events: Events | None, cti: int) -> tuple[list[Events], int]:
        """Take pieces in, and give the joined events that a CTI makes final, and the CTI after them."""
        device = self._device
        before = cti if cti == MAX_TIME else cti - 1
        if events is not None and len(events):
            codes = self._groups.codes(events.frame)
            frame = device.columns.select(events.frame, self._node.carried) if self._node.carried else None
            self._waiting.add(Rows(codes, events.start, events.ends, {_CHAIN: Column((events.start,), None)}, frame))
        fresh = self._waiting.due(before)
        if fresh and self._node.carried:
            # All that start with it have come by now.
            rows = concat_rows(fresh, device)
            fresh = [replace(rows, frame=leading(self._node, rows.code, rows.low, rows.high, rows.frame, device))]
        due = [*fresh, *self._chains.due(before)]
        if not due:
            return [], self._promise(cti)
        rows = concat_rows(due, device)
        take = device.kernels.take
        touched, local = np.unique(rows.code, return_inverse=True)
        order = device.kernels.group_order(local.astype(np.int32), len(touched), rows.low)
        rows, local = rows.take(order, device), take(local.astype(np.int32), order)
        first, last = device.kernels.stitch_order(local, rows.low, rows.high)
        begun = take(rows.columns[_CHAIN].arrays[0], first)
        chains = rows.take(last, device)
        carried = None if rows.frame is None else device.columns.take(rows.frame, first)
        chains = Rows(chains.code, chains.low, chains.high, {_CHAIN: Column((begun,), None)}, carried)
        final = chains.high <= before
        self._chains.add(chains.take(device.kernels.keep(~final), device))
        done = chains.take(device.kernels.keep(final), device)
        results = []
        if len(done):
            frame = self._groups.keys_of(done.code.astype(np.int64))
            frame = frame if done.frame is None else whole(self._node, frame, done.frame, device)
            results.append(Events(done.columns[_CHAIN].arrays[0], done.high, frame))
        self._forget()
        return results, self._promise(cti)

    def _promise(self, cti: int) -> int:
        oldest = self._chains.least(_CHAIN)
        return cti if oldest is None else oldest

    @property
    def waiting(self) -> int:
        """How many events wait for a CTI to pass their start."""
        return len(self._waiting)

    @property
    def alive(self) -> int:
        """How many pieces and chains are kept."""
        return len(self._waiting) + len(self._chains)

    def tables(self) -> dict[str, pa.Table]:
        """The state: distinct payloads, pieces that wait for their start, chains that wait for what follows them."""
        device = self._device
        made = {
            name: rows.to_arrow(self._node.schema, device, shown_time)
            for name, runs in (("waiting", self._waiting), ("chains", self._chains))
            if (rows := runs.rows()) is not None
        }
        if self._groups.keys is not None:
            schema = pa.schema([self._node.schema.field(name) for name in self._node.compared])
            made["groups"] = device.columns.to_arrow(self._groups.keys, schema)
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        node = self._node
        keys = group_columns(node.compared, node.schema, prefix="")
        if keys:
            yield StateTable("groups", keys, unique=tuple(keys))
        groups = group_count(node.compared, tables)
        begun = {_CHAIN: NUMBERED_TIME}
        carried = pa.schema([node.schema.field(name) for name in node.carried])
        for name in ("waiting", "chains"):
            columns = row_columns(
                replace(TIME, from_=f"{'.'.join(_CHAIN)}.0"),
                replace(TIME, above="low"),
                groups,
                numbers=begun,
                frame=carried,
            )
            yield StateTable(name, columns)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if "groups" in tables:
            self._groups.restore(self._device.columns.from_arrow(tables["groups"]))
        for name, runs in (("waiting", self._waiting), ("chains", self._chains)):
            if name in tables:
                runs.add(rows_from_arrow(tables[name], self._device))

    def _forget(self) -> None:
        """Forget payloads that nothing has any more, once they are most of all."""
        if not self._groups.crowded:
            return
        used = np.zeros(len(self._groups), np.bool_)
        for run in (*self._waiting.pieces(), *self._chains.pieces()):
            used[self._device.columns.host(run.code)] = True
        for runs, numbers in zip((self._waiting, self._chains), [self._groups.forget(used)] * 2, strict=True):
            if numbers is not None:
                runs.renumber(numbers)
