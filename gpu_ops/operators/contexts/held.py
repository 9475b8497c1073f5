"""Rows that are held back until their instances end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import StateTable
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import INSTANCE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import WaitingPoints


class RowsOfInstances:
    """Rows of instances.

    Args:
        name: What their table is called.
        schema: Their columns.
        device: Where arrays live.
    """

    def __init__(self, name: str, schema: pa.Schema, device: Device) -> None:
        self._device, self._rows = device, WaitingPoints(name, schema, device)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Events) -> None:
        """Hold more rows."""
        if len(rows):
            self._rows.hold(rows)

    def whole(self) -> Events | None:
        """All rows; None if there are none."""
        found = self._rows.before(MAX_TIME, [])
        if found is not None:
            self._rows.hold(found)
        return found

    def replace(self, rows: Events) -> None:
        """Hold these rows alone."""
        self._rows.before(MAX_TIME, [])
        self.add(rows)

    def taken(self, ids: Any) -> Events | None:
        """The rows of some instances, which are no longer held."""
        whole = self._rows.before(MAX_TIME, [])
        if whole is None:
            return None
        kernels, ids = self._device.kernels, np.sort(ids)
        mine = self._device.columns.values(whole.frame, INSTANCE)[0]
        at = np.minimum(np.searchsorted(ids, mine), len(ids) - 1)
        gone = kernels.take(ids, at) == mine
        self.add(whole.take(kernels.keep(~gone), self._device))
        some = whole.take(kernels.keep(gone), self._device)
        return some if len(some) else None

    def tables(self) -> dict[str, pa.Table]:
        """The rows."""
        return self._rows.tables()

    def declared(self) -> Iterator[StateTable]:
        """The declaration of their table."""
        yield from self._rows.declared()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        self._rows.restore(tables)
