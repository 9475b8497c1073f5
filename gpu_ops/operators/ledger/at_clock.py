"""Deliveries become events at the times that the clock showed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import ORDER, TURN
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.rows import kinds_of, numbers_of
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import in_order, order_in_places, strictly_ascend
from gpu_ops.plan.ledger import TURN_NUMBER, AtClock

_TURN_BITS = TURN.bit_length() - 1


class AtClockOperator(OnTicks, nodes=(AtClock,)):
    """One search of the ticks for each row.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: AtClock

    def __init__(self, node: AtClock, device: Device) -> None:
        super().__init__(node, device)
        self._clocks, self._waiting = Clocks(device), WaitingPoints("waiting", node.deliveries.schema, device)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows before the older CTI."""
        cti, (deliveries, ticks) = min(ctis), given
        self._clocks.take(ticks.events)
        rows = self._waiting.before(cti, deliveries.events)
        made = [] if rows is None else [self._timed(rows)]
        passed = cti if cti == MAX_TIME else self._clocks.before(cti)
        self._clocks.forget(cti)
        return StepInput(made), passed

    def _timed(self, rows: Events) -> Events:
        device = self._device
        if not strictly_ascend(rows.start):
            keys = [kinds_of(rows.frame, device), numbers_of(rows.frame, ORDER, device)]
            if not in_order([rows.start, *keys]):
                rows = rows.take(order_in_places(rows.start, keys, device), device)
        turn = device.columns.build({TURN_NUMBER: (rows.start >> _TURN_BITS, None, pa.int64())})
        return Events(self._clocks.at(rows.start), TICK, device.columns.beside(rows.frame, turn))

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [self._waiting, self._clocks]
