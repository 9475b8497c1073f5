"""The content of a partition, cycle by cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import DEAD, NEW, OLD, STATUS
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import ARRIVED, PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.ledger.waiting import NumberedPoints, OnTicks, WaitingPoints
from gpu_ops.operators.operator import Operator, StepInput
from gpu_ops.operators.row_order import distinct
from gpu_ops.operators.sizes import expanded
from gpu_ops.plan.cycles import BEAT, AtCycles

_EVER = 1 << 62
_UNTIL = "@until"
"""The column of kept rows with the places at which they leave, `_EVER` if nobody knows."""


class AtCyclesOperator(OnTicks, nodes=(AtCycles,)):
    """The rows that are in are kept; each step shows each of them in the step's cycles.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: AtCycles

    def __init__(self, node: AtCycles, device: Device) -> None:
        super().__init__(node, device)
        self._beats = WaitingPoints("beats", pa.schema([(BEAT, pa.int8())]), device)
        self._kept = NumberedPoints("kept", node.rows.schema.append(pa.field(_UNTIL, pa.int64())), device, [_UNTIL])

    def opens(self, at: int) -> bool:
        """It takes open rows, and whole cycles."""
        return at == 0

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's start and end as they come."""
        return self

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The content in the cycles before the older CTI."""
        cti, device, fed = min(ctis), self._device, given[0]
        rows = self._known(fed.opened)
        events = [self._kept.numbered(each) for each in fed.events if len(each)]
        there = concat([*self._closed(rows, fed.closed), *events], device)
        beats = self._beats.before(cti, given[1].events)
        if there is None or not len(there):
            return StepInput(), cti
        lasting = there.where(there.ends >= cti, device)
        if len(lasting) and cti != MAX_TIME:
            self._keep(lasting)
        if beats is None:
            return StepInput(), cti
        cycles = distinct(beats.start, device)
        first = np.searchsorted(cycles, there.start)
        last = np.searchsorted(cycles, there.ends, side="right" if self._node.stated else "left")
        source, offset = expanded(
            np.maximum(last - first, 0), device, what="not_dead", remedy="Make the windows smaller."
        )
        place = device.kernels.take(cycles, device.kernels.take(first, source) + offset)
        names = [name for name in there.frame.columns if name != ARRIVED]
        frame = device.columns.take(device.columns.select(there.frame, names), source)
        if self._node.stated:
            take = device.kernels.take
            state = np.where(
                place == take(there.start, source), NEW, np.where(place == take(there.ends, source), DEAD, OLD)
            )
            frame = device.columns.beside(
                frame, device.columns.build({STATUS: (state.astype(np.int8), None, pa.int8())})
            )
        return StepInput([Events(place, TICK, frame)]), cti

    def _known(self, opened: Sequence[Events]) -> list[Events]:
        """The rows that the step before kept, and those that are opened."""
        columns, kept = self._device.columns, self._kept.before(MAX_TIME, [])
        fresh = [self._kept.numbered(each) for each in opened if len(each)]
        rows = [Events(each.start, np.full_like(each.start, _EVER), each.frame) for each in fresh]
        if kept is None:
            return rows
        names = [name for name in kept.frame.columns if name != _UNTIL]
        ends = columns.values(kept.frame, _UNTIL)[0]
        return [Events(kept.start, ends, columns.select(kept.frame, names)), *rows]

    def _keep(self, rows: Events) -> None:
        columns = self._device.columns
        until = columns.build({_UNTIL: (rows.ends, None, pa.int64())})
        self._kept.hold(Events(rows.start, TICK, columns.beside(rows.frame, until)))

    def _closed(self, rows: list[Events], closed: Sequence[Events]) -> list[Events]:
        """Rows with the ends that have come for some of them, if there are any."""
        device = self._device
        whole = concat(rows, device)
        over = concat([each for each in closed if len(each)], device)
        if whole is None or over is None:
            return rows
        # A row's start, and its place among arrivals, are no other row's: an end comes directly behind its row.
        host, count = device.columns.host, len(whole)
        places = [host(device.columns.values(each.frame, PLACE)[0]) for each in (whole, over)]
        starts = [host(each.start) for each in (whole, over)]
        order = np.lexsort((np.concatenate(places), np.concatenate(starts)))
        at = np.flatnonzero(order >= count)
        ends = host(whole.ends).copy()
        ends[order[at - 1]] = host(over.ends)[order[at] - count]
        return [Events(whole.start, device.columns.array(ends), whole.frame)]

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [self._kept, self._beats]

    @property
    def in_runs(self) -> Sequence[Any]:
        """The rows."""
        return [self._kept]
