"""Deliveries become events at the times that the clock showed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import ORDER, TURN
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.rows import kinds_of, numbers_of
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.clocks import Clocks
from gpu_ops.operators.ledger.waiting import WaitingPoints
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.row_order import in_order, order_in_places
from gpu_ops.plan.ledger import TURN_NUMBER, AtClock


class AtClockOperator(Operator, nodes=(AtClock,)):
    """One search of the ticks for each row.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: AtClock

    def __init__(self, node: AtClock, device: Device) -> None:
        super().__init__(node, device)
        self._clocks, self._waiting = Clocks(device), WaitingPoints("waiting", node.deliveries.schema, device)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

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
        keys = [kinds_of(rows.frame, device), numbers_of(rows.frame, ORDER, device)]
        if not in_order([rows.start, *keys]):
            rows = rows.take(order_in_places(rows.start, keys, device), device)
        turn = device.columns.build({TURN_NUMBER: (rows.start // TURN, None, pa.int64())})
        return Events(self._clocks.at(rows.start), TICK, device.columns.beside(rows.frame, turn))

    # The state

    @property
    def _parts(self) -> list[Any]:
        return [self._waiting, self._clocks]

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI."""
        return sum(map(len, self._parts))

    def tables(self) -> dict[str, pa.Table]:
        """The rows that wait, and the ticks that they need."""
        return {name: table for each in self._parts for name, table in each.tables().items()}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        for each in self._parts:
            yield from each.declared()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        for each in self._parts:
            each.restore(tables)
