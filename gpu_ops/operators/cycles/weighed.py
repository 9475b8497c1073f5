"""Rows that weigh less than one wait until a cycle takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import MS
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.core.types import storage
from gpu_ops.devices import Device
from gpu_ops.devices.cpu import cycles as m
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.state.fields import NUMBERED_TIME
from gpu_ops.plan.cycles import Weighed


class WeighedOperator(OnTicks, nodes=(Weighed,)):
    """All rows that wait, in their order. The walk runs on the host, whatever the device.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Weighed

    def __init__(self, node: Weighed, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = [WaitingPoints(f"waiting {at}", each.schema, device) for at, each in enumerate(node.parts)]
        self._anyway = np.zeros(0, np.int64)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that cycles before the CTI take."""
        cti, schedule, columns = min(ctis), self._node.schedule, self._device.columns
        due = [waits.before(cti, fed.events) for waits, fed in zip(self._waiting, given, strict=True)]
        parts = [
            (at, each.take(columns.array(np.argsort(columns.host(each.start), kind="stable")), self._device))
            for at, each in enumerate(due)
            if each is not None
        ]
        limit = m.UNKNOWN if cti == MAX_TIME else int(schedule.clocks(cti))
        lengths = [len(each) for _, each in parts]
        none = np.zeros(0, np.int64)
        time = np.concatenate([none, *(schedule.clocks(columns.host(each.start)) for _, each in parts)])
        number = np.concatenate([none, *(columns.host(columns.values(each.frame, PLACE)[0]) for _, each in parts)])
        weight = np.repeat([self._node.weights[at].weight for at, _ in parts], lengths).astype(np.float64)
        dues = np.concatenate([none, *(self._due(at, each) for at, each in parts)])
        order = np.lexsort((number, time))
        # What several partitions take has come once.
        again = np.append(False, number[order][1:] == number[order][:-1])[: len(order)]
        heap = np.concatenate([self._anyway, np.zeros(len(order), np.int64)])
        taken = np.empty(len(order), np.int64)
        size = m.weighed(
            time[order], np.where(again, 0.0, weight[order]), dues[order], limit, len(self._anyway), heap, taken
        )
        self._anyway = heap[:size].copy()
        when = np.empty(len(order), np.int64)
        when[order] = taken
        made = []
        for (at, each), upto, count in zip(parts, np.cumsum(lengths), lengths, strict=True):
            mine = when[upto - count : upto]
            waits = np.flatnonzero(mine == m.UNKNOWN)
            if len(waits) and cti != MAX_TIME:
                self._waiting[at].hold(each.take(columns.array(waits), self._device))
            if at == self._node.gives and len(waits) < count:
                goes = np.flatnonzero(mine != m.UNKNOWN)
                some = each.take(columns.array(goes), self._device)
                made.append(Events(columns.array(schedule.places(mine[goes])), TICK, some.frame))
        if cti == MAX_TIME:
            self._anyway = none
        return StepInput(made), cti

    def _due(self, at: int, rows: Events) -> Any:
        """Host int64: the millisecond in which the query runs as a row's time is up; `UNKNOWN` for no such."""
        columns, weight = self._device.columns, self._node.weights[at]
        if weight.span is None:
            return np.full(len(rows), m.UNKNOWN)
        stamp = columns.host(columns.values(rows.frame, weight.stamp)[0]).astype(np.int64)
        if pa.types.is_timestamp(storage(self._node.parts[at].schema.field(weight.stamp).type)):
            stamp = stamp // MS
        span = weight.span if isinstance(weight.span, int) else columns.host(columns.values(rows.frame, weight.span)[0])
        return self._node.schedule.runs(stamp + span)

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return self._waiting

    def tables(self) -> dict[str, pa.Table]:
        """The rows that wait, and when the query runs anyway."""
        return super().tables() | {"anyway": pa.table({"time": pa.array(np.sort(self._anyway))})}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        yield StateTable("anyway", {"time": NUMBERED_TIME}, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave; times in their order are a heap."""
        super().restore(tables)
        self._anyway = np.sort(tables["anyway"]["time"].to_numpy())
