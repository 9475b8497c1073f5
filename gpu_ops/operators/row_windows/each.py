"""Aggregates over a data window's content whenever a row enters, computed from enters and leaves alone.

The enters of a key are ordered by time; at one time, those due to time come before those due to rows. Enters of later
steps come later. So each gets the next place on an axis of its own, a leave has the place of the next enter, and a
running window computes the snapshots along the axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import TICK
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_windows.data_windows import moment_places
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows.incremental_window import IncrementalWindow
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.nodes import Feed
from gpu_ops.plan.window_kinds import Membership
from gpu_ops.plan.windows import Snapshot, WindowAggregate

EACH = "each/"
"""With what the names of its tables begin."""

T = TypeVar("T")


class _Moments(IncrementalWindow):
    """Snapshots; each group's last one is given too, up to the end of the step."""

    def _bound(self, limit: int) -> int:
        return limit


class IncrementalEach:
    """The aggregates of one data window, updated step by step.

    Args:
        node: The data window.
        window: Its aggregates over snapshots.
        device: Where arrays live.
    """

    def __init__(self, node: DataWindow, window: IncrementalWindow, device: Device) -> None:
        self._node, self._window, self._device = node, window, device

    @classmethod
    def of(cls, node: DataWindow, device: Device) -> Self | None:
        """For a data window that gives a result for each row; None if its aggregates need all rows that are in."""
        window, schema = node.window, node.input.schema
        # No row may leave at its own enter, and no later row may enter before earlier ones.
        if node.output != "each" or window.leaves == "at once" or window.holds_enters:
            return None
        if not all(each.keeps(schema) != "events" for each in node.aggregates):
            return None
        made = _Moments(WindowAggregate(Feed(schema, node.key, None), Snapshot(), node.aggregates), device)
        return cls(node, made, device) if made.take_open() else None

    def values(self, rows: AxisRows, membership: Membership, enters: Any, leaves: Any) -> Any | None:
        """A frame with a row for each row that enters; None if no row enters.

        Args:
            rows: Rows, those among them with which others enter or leave.
            membership: When they are in.
            enters: Which of them enter in this step.
            leaves: Which leave in it.
        """
        device, node = self._device, self._node
        kernels, columns = device.kernels, device.columns
        come, go = kernels.keep(enters), kernels.keep(leaves)
        if not len(come) and not len(go):
            return None
        done = max(0, self._window.done)
        codes, count, _ = columns.key_codes(rows.frame, node.key)
        begins, ends = moment_places(node, rows, codes, membership, come, go, device)
        low, high = np.full_like(rows.low, done), np.full_like(rows.low, done)
        # Behind the enters of each key there is a place more: else its last leave had that of the next key's enter.
        low[come], high[go] = begins + kernels.take(codes, come) + done, ends + kernels.take(codes, go) + done
        limit = done + len(come) + count + 2

        def some(which: Any, end: Any) -> Events:
            at = kernels.keep(which)
            return Events(low[at], TICK if end is None else end[at], columns.take(rows.frame, at))

        given = StepInput([some(enters & leaves, high)], [some(enters & ~leaves, None)], [some(leaves & ~enters, high)])
        results, _ = self._window.step([given], [limit])
        found = concat(results.events, device)
        if found is None or not len(come):
            return None
        # What comes before has not changed since the group's last step.
        new = kernels.keep(found.start > done)
        at = np.zeros_like(low, shape=(limit - done,))
        at[found.start[new] - done] = new
        values = columns.select(found.frame, [aggregate.name for aggregate in node.aggregates])
        return columns.take(values, at[low[come] - done])

    def state_parts(self) -> Parts:
        """The state: that of the running window."""
        return {f"{EACH}{name}": each for name, each in self._window.state_parts().items()}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        for each in self._window.declared(_own(tables)):
            yield replace(each, name=f"{EACH}{each.name}")

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        self._window.restore(_own(tables))

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """As `gpu_ops.operators.operator.Operator.entire_tables`."""
        return tuple(f"{EACH}{name}" for name in self._window.entire_tables)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        self._window.put_back(_own(parts))


def _own(tables: Mapping[str, T]) -> dict[str, T]:
    return {name.removeprefix(EACH): table for name, table in tables.items() if name.startswith(EACH)}
