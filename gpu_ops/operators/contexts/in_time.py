"""Rows in windows that do not leave where their instance ended before that fell due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import DUE, INSTANCE
from gpu_ops.devices import Device
from gpu_ops.operators.contexts.within import WithInstances
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import StepInput
from gpu_ops.plan.contexts import LeavesInTime
from gpu_ops.plan.window_kinds import UNKNOWN


class LeavesInTimeOperator(WithInstances, nodes=(LeavesInTime,)):
    """Looks at the rows that leave at the place where their instance ends.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: LeavesInTime

    passes_open = True

    def __init__(self, node: LeavesInTime, device: Device) -> None:
        super().__init__(node, device, 0, [INSTANCE, *node.until])

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows, of which some never leave."""
        self._alive.take(self._waiting[self.side].before(ctis[self.side], given[self.side].events))
        rows, end = given[0], self._ends()
        events = [self._lasting(each, end) for each in rows.events]
        closed = [each.take(self._device.kernels.keep(~self._is_late(each, end)), self._device) for each in rows.closed]
        self.ended += self._alive.forget()
        return StepInput(events, rows.opened, [each for each in closed if len(each)]), min(ctis)

    def _ends(self) -> Any:
        """int64: when the clock ended each instance; `UNKNOWN` where it has not."""
        columns, alive = self._device.columns, self._alive
        made = np.full_like(alive.end, UNKNOWN)
        for name in self._node.until:
            due, valid = columns.values(alive.frame, name)
            made = np.minimum(made, due if valid is None else np.where(valid, due, UNKNOWN))
        return made

    def _is_late(self, rows: Events, end: Any) -> Any:
        """bool: which rows leave where their instance ends, and not before that by the clock."""
        columns, take = self._device.columns, self._device.kernels.take
        at, there = self._alive.found(columns.values(rows.frame, INSTANCE)[0])
        if not len(self._alive):
            return there
        due, valid = columns.values(rows.frame, DUE)
        known = there if valid is None else there & valid
        return known & (take(self._alive.end, at) == rows.ends) & (due >= take(end, at))

    def _lasting(self, rows: Events, end: Any) -> Events:
        """Rows of which those that are late never leave."""
        late = self._is_late(rows, end)
        return Events(rows.start, np.where(late, MAX_TIME, rows.ends), rows.frame) if bool(late.any()) else rows
