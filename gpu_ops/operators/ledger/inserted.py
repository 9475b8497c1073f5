"""Rows of deliveries become arrivals: events that statements insert into a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, LEVEL, ORDER, PLACE, ROW, STEP, TURN
from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.deliveries.rows import kinds_of, numbered, numbers_of
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import in_order, stable_order
from gpu_ops.plan.ledger import Inserted


class InsertedOperator(OnTicks, nodes=(Inserted,)):
    """The rows of whole turns, numbered within each.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Inserted

    def __init__(self, node: Inserted, device: Device) -> None:
        super().__init__(node, device)
        self._clocks = Clocks(device)
        self._waiting = [WaitingPoints(f"waiting {at}", each.schema, device) for at, each in enumerate(node.parts)]

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The arrivals of the turns that are whole.

        Raises:
            PlanError: One turn inserts too many.
        """
        cti = min(ctis)
        cti = cti if cti == MAX_TIME else cti // TURN * TURN
        *parts, ticks = given
        self._clocks.take(ticks.events)
        found = [waits.before(cti, fed.events) for waits, fed in zip(self._waiting, parts, strict=True)]
        made = [self._arrivals(found)] if any(each is not None for each in found) else []
        self._clocks.forget(cti)
        return StepInput(made), cti

    def _arrivals(self, found: Sequence[Events | None]) -> Events:
        columns, take = self._device.columns, self._device.kernels.take
        some = [(at, each) for at, each in enumerate(found) if each is not None]
        names = [name for name in some[0][1].frame.columns if name not in {ROW, ORDER}]
        place = np.concatenate([each.start for _, each in some])
        keys = [
            place,
            np.concatenate([np.full_like(each.start, at) for at, each in some]),
            np.concatenate([kinds_of(each.frame, self._device) for _, each in some]),
            np.concatenate([numbers_of(each.frame, ORDER, self._device) for _, each in some]),
        ]
        frame = columns.concat([columns.select(each.frame, names) for _, each in some]) if names else None
        if not in_order(keys):
            order = stable_order(keys, place, self._device)
            place = take(place, order)
            frame = None if frame is None else columns.take(frame, order)
        turn = place // TURN
        number = numbered(turn, device=self._device)
        if int(number.max()) * STEP >= LEVEL:
            raise PlanError(
                f"One turn inserts more than {LEVEL // STEP:,} events into {self._node.name!r}.",
                remedy="Make windows smaller.",
            )
        clock = self._clocks.at(turn * TURN)
        place = turn * TURN + self._node.level * LEVEL + number * STEP
        own = columns.build({CLOCK: (clock, None, TIME_TYPE), PLACE: (place, None, pa.int64())})
        return Events(place, TICK, own if frame is None else columns.beside(frame, own))

    @property
    def parts(self) -> list[Any]:
        """What it keeps."""
        return [*self._waiting, self._clocks]
