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
from gpu_ops.operators.row_order import run_starts, stable_order
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
        rows = given[0]
        late = self._late([*rows.events, *rows.closed])
        events = [self._lasting(each, late) for each in rows.events]
        closed = [
            each.take(self._device.kernels.keep(~self._leaves_late(each, late)), self._device) for each in rows.closed
        ]
        self.ended += self._alive.forget()
        return StepInput(events, rows.opened, [each for each in closed if len(each)]), min(ctis)

    def _late(self, pieces: Sequence[Events]) -> Any:
        """bool: of which instances no row leaves where they end: the first that would falls due after that."""
        columns, take, alive = self._device.columns, self._device.kernels.take, self._alive
        found = []
        for rows in pieces:
            at, leaves = self._at_end(rows)
            due, valid = columns.values(rows.frame, DUE)
            some = self._device.kernels.keep(leaves if valid is None else leaves & valid)
            found.append((take(at, some), take(due, some)))
        oldest = np.full_like(alive.end, UNKNOWN)
        if found:
            at, due = (np.concatenate(each) for each in zip(*found, strict=True))
            order = stable_order([at, due], due, self._device)
            at, due = take(at, order), take(due, order)
            first = self._device.kernels.keep(run_starts(at))
            oldest[take(at, first)] = take(due, first)
        return oldest >= self._ends()

    def _at_end(self, rows: Events) -> tuple[Any, Any]:
        """(int64 index of each row's instance, whether it leaves where that ends)."""
        at, there = self._alive.found(self._device.columns.values(rows.frame, INSTANCE)[0])
        if not len(self._alive):
            return at, there
        return at, there & (self._device.kernels.take(self._alive.end, at) == rows.ends)

    def _ends(self) -> Any:
        """int64: when the clock ended each instance; `UNKNOWN` where it has not."""
        columns, alive = self._device.columns, self._alive
        made = np.full_like(alive.end, UNKNOWN)
        for name in self._node.until:
            due, valid = columns.values(alive.frame, name)
            made = np.minimum(made, due if valid is None else np.where(valid, due, UNKNOWN))
        return made

    def _leaves_late(self, rows: Events, late: Any) -> Any:
        """bool: which rows do not leave, as their instance ended before."""
        at, leaves = self._at_end(rows)
        return leaves & self._device.kernels.take(late, at) if len(late) else leaves

    def _lasting(self, rows: Events, late: Any) -> Events:
        """Rows of which those that are late never leave."""
        stays = self._leaves_late(rows, late)
        return Events(rows.start, np.where(stays, MAX_TIME, rows.ends), rows.frame) if bool(stays.any()) else rows
