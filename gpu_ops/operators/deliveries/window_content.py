"""The rows that are in a window, for whoever asks for its content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import Field, StateTable
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import Changes
from gpu_ops.operators.state.fields import nullable_columns


class WindowContent:
    """Rows that came, less those that left: the difference is taken when somebody asks, or when most have left.

    Args:
        schema: The rows' columns; `PLACE` tells them apart.
        device: Where arrays live.
    """

    def __init__(self, schema: pa.Schema, device: Device) -> None:
        self._schema, self._device = schema, device
        self._came: list[Any] = []
        self._left: list[Any] = []
        self._count, self._gone = 0, 0

    def __len__(self) -> int:
        return self._count - self._gone

    def step(self, changes: Changes) -> None:
        """Take in rows that enter and leave."""
        columns, keep = self._device.columns, self._device.kernels.keep
        come = keep(changes.enters & ~changes.leaves)
        if len(come):
            self._came.append(columns.take(changes.frame, come))
            self._count += len(come)
        go = keep(changes.leaves & ~changes.enters)
        if len(go):
            self._left.append(columns.values(columns.take(columns.select(changes.frame, [PLACE]), go), PLACE)[0])
            self._gone += len(go)
        if 2 * self._gone > self._count + 1024:
            self.rows()

    def rows(self) -> Any:
        """A frame of the rows, in the order in which they came."""
        columns = self._device.columns
        if not self._came:
            return columns.from_arrow(empty_table(self._schema))
        frame = self._came[0] if len(self._came) == 1 else columns.concat(self._came)
        if self._left:
            left = np.sort(np.concatenate(self._left))
            places = columns.values(frame, PLACE)[0]
            at = np.minimum(np.searchsorted(left, places), len(left) - 1)
            frame = columns.take(frame, self._device.kernels.keep(left[at] != places))
        self._came, self._left = [frame], []
        self._count, self._gone = columns.rows(frame), 0
        return frame

    def tables(self) -> dict[str, pa.Table]:
        """The rows."""
        return {"held": self._device.columns.to_arrow(self.rows(), self._schema)}

    def declared(self) -> Iterator[StateTable]:
        """The table that `tables` gives."""
        columns: dict[str, Field] = nullable_columns(self._schema, "")
        yield StateTable("held", columns, required=True, unique=(PLACE,))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        self._came = [self._device.columns.from_arrow(tables["held"])]
        self._left, self._count, self._gone = [], tables["held"].num_rows, 0
