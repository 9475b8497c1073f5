"""Windows of time whose rows come in at once: when each leaves is known as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import CYCLE, MS
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import PLACE
from gpu_ops.core.types import storage
from gpu_ops.devices import Device
from gpu_ops.errors import ColumnError
from gpu_ops.operators.events import Events, TimeOrder, extent_in
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import in_order, order_in_places
from gpu_ops.plan.cycles import TimedWindow

_FAR = 1 << 46
"""Milliseconds: further away than any place."""


class TimedWindowOperator(OnTicks, nodes=(TimedWindow,)):
    """Rows with their ends, as they come. Who reads these ends keeps what it needs until then.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: TimedWindow

    def __init__(self, node: TimedWindow, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = WaitingPoints("waiting", node.rows.schema, device)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that came.

        Raises:
            ColumnError: A row has no time of its own.
        """
        (cti,) = ctis
        fresh = self._waiting.before(cti, given[0].events)
        return StepInput([] if fresh is None else [self._timed(fresh)]), cti

    def _timed(self, rows: Events) -> Events:
        """Rows in order, with the places at which they leave."""
        columns, device = self._device.columns, self._device
        names = [name for name in rows.frame.columns if name in self._node.schema.names]
        rows = replace(rows, frame=columns.select(rows.frame, names))
        number = columns.values(rows.frame, PLACE)[0]
        if not in_order([rows.start, number]):
            rows = rows.take(order_in_places(rows.start, [number], device), device)
        ends, end_order = self._ends(rows)
        return Events(rows.start, ends, rows.frame, order=TimeOrder.ASCENDS, end_order=end_order)

    def _ends(self, rows: Events) -> tuple[Any, TimeOrder]:
        """int64: where each row leaves, and the order of these; one that came too late is there for one cycle."""
        schedule, stamps, span = self._node.schedule, self._stamps(rows.frame), self._node.span
        order = TimeOrder.ASCENDS if self._device.kernels.ascends(stamps) else TimeOrder.UNKNOWN
        least, most = extent_in(stamps, order, self._device)
        if least < -_FAR or most + span > _FAR:
            # Beyond the last place, or before the first.
            stamps = np.minimum(np.maximum(stamps, -_FAR), max(0, _FAR - span))
        due = schedule.places(schedule.runs(stamps + min(span, _FAR)))
        if extent_in(due, order, self._device)[1] > MAX_TIME:
            due = np.minimum(due, MAX_TIME)
        late = due <= rows.start
        if not bool(late.any()):
            return due, order
        follows = rows.start + CYCLE
        if schedule.every:
            follows = schedule.places(schedule.runs(schedule.clocks(rows.start) + 1))
        return np.where(late, follows, due), TimeOrder.UNKNOWN

    def _stamps(self, frame: Any) -> Any:
        """int64 milliseconds: the rows' own times."""
        columns, name = self._device.columns, self._node.stamp
        values, valid = columns.values(frame, name)
        found = values.astype(np.int64, copy=False)
        if valid is not None and not bool(valid.all()):
            row = int(np.argmin(columns.host(valid)))
            raise ColumnError("A row has no time of its own.", column=name, row=row, remedy="Filter it out first.")
        return found // MS if pa.types.is_timestamp(storage(self._node.rows.schema.field(name).type)) else found

    # State

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return [self._waiting]
