"""The content of a partition, cycle by cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import Operator, StepInput
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
        self._kept = WaitingPoints("kept", node.rows.schema.append(pa.field(_UNTIL, pa.int64())), device)

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
        there = concat([self._closed(rows, fed.closed), *fed.events], device)
        beats = self._beats.before(cti, given[1].events)
        if there is None or not len(there):
            return StepInput(), cti
        lasting = there.where(there.ends >= cti, device)
        if len(lasting) and cti != MAX_TIME:
            self._keep(lasting)
        if beats is None:
            return StepInput(), cti
        cycles = np.unique(beats.start)
        first = np.searchsorted(cycles, there.start)
        counts = np.maximum(np.searchsorted(cycles, there.ends) - first, 0)
        source, offset = expanded(counts, device, what="not_dead", remedy="Make the windows smaller.")
        place = device.kernels.take(cycles, device.kernels.take(first, source) + offset)
        return StepInput([Events(place, TICK, device.columns.take(there.frame, source))]), cti

    def _known(self, opened: Sequence[Events]) -> list[Events]:
        """The rows that the step before kept, and those that are opened."""
        columns, kept = self._device.columns, self._kept.before(MAX_TIME, [])
        rows = [Events(each.start, np.full_like(each.start, _EVER), each.frame) for each in opened if len(each)]
        if kept is None:
            return rows
        names = [name for name in kept.frame.columns if name != _UNTIL]
        ends = columns.values(kept.frame, _UNTIL)[0]
        return [Events(kept.start, ends, columns.select(kept.frame, names)), *rows]

    def _keep(self, rows: Events) -> None:
        columns = self._device.columns
        until = columns.build({_UNTIL: (rows.ends, None, pa.int64())})
        self._kept.hold(Events(rows.start, TICK, columns.beside(rows.frame, until)))

    def _closed(self, rows: list[Events], closed: Sequence[Events]) -> Events:
        """Rows with the ends that have come for some of them."""
        device = self._device
        whole = concat(rows, device)
        over = concat([each for each in closed if len(each)], device)
        if whole is None:
            return Events(
                device.columns.array(np.zeros(0, np.int64)),
                TICK,
                device.columns.from_arrow(self._node.rows.schema.empty_table()),
            )
        if over is None:
            return whole
        # A row's start, and its place among arrivals, are no other row's.
        place, mine = (device.columns.values(each.frame, PLACE)[0] for each in (whole, over))
        order = np.lexsort((place, whole.start))
        start, place = whole.start[order], place[order]
        group = np.cumsum(
            np.concatenate([np.zeros_like(start[:1]), (start[1:] != start[:-1]).astype(np.int64)])
        ).astype(np.int32)
        distinct = start[np.searchsorted(start, start) == np.arange(len(start))]
        of = np.searchsorted(distinct, over.start).astype(np.int32)
        at = device.kernels.search_pairs(group, place, of, mine) - 1
        ends = whole.ends.copy()
        ends[order[at]] = over.ends
        return Events(whole.start, ends, whole.frame)

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [self._kept, self._beats]
