"""Rows that are held back until their instances end."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import INSTANCE
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import NumberedPoints


class RowsOfInstances(NumberedPoints):
    """Rows of instances, which have numbers."""

    def count_from(self, others: NumberedPoints) -> None:
        """Give no number that one of other rows has."""
        self.came = max(self.came, others.came)

    def add(self, rows: Events) -> None:
        """Hold more rows."""
        if len(rows):
            self.hold(rows)

    def replace(self, rows: Events) -> None:
        """Hold these rows alone."""
        self.before(MAX_TIME, [])
        self.add(rows)

    def taken(self, ids: Any) -> Events | None:
        """The rows of some instances, which are no longer held."""
        whole = self.before(MAX_TIME, [])
        if whole is None:
            return None
        kernels, ids = self._device.kernels, np.sort(ids)
        mine = self._device.columns.values(whole.frame, INSTANCE)[0]
        at = np.minimum(np.searchsorted(ids, mine), len(ids) - 1)
        gone = kernels.take(ids, at) == mine
        self.add(whole.take(kernels.keep(~gone), self._device))
        some = whole.take(kernels.keep(gone), self._device)
        return some if len(some) else None
