"""The groups of deliveries by each of their levels, and rows of these groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.turns import GROUPING
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import Edges
from gpu_ops.operators.deliveries.delivered_totals import DeliveredTotals
from gpu_ops.operators.deliveries.group_memory import GroupMemory
from gpu_ops.operators.deliveries.group_totals import GroupTotals
from gpu_ops.operators.deliveries.group_values import GroupValues
from gpu_ops.operators.deliveries.touched import Touched
from gpu_ops.plan.deliveries import REMEMBERED, Delivered, Deliveries, Life

_ALWAYS: dict[Life, Life] = {remembered: life for life, remembered in REMEMBERED.items()}
"""What the aggregates of all rows are over: these are no group that is forgotten."""


@dataclass(frozen=True)
class GroupLevel:
    """The groups by some keys, and their aggregates."""

    number: int
    keys: tuple[str, ...]
    values: list[GroupValues]

    @property
    def own(self) -> GroupValues:
        """The values over the rows in the window, which know the groups."""
        return next(each for each in self.values if each.life == "alive")


class GroupLevels:
    """All levels, and the aggregates with keys of their own, which every row has.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: Deliveries, device: Device) -> None:
        schema = node.rows.schema
        self._node, self._device = node, device
        self._nothing = device.columns.from_arrow(empty_table(schema))
        self._shared = _grouped(
            [each for each in node.aggregates if each.keys is not None], (), schema, device, momentary=node.momentary
        )
        levelled = [each for each in node.aggregates if each.keys is None]
        self.each = [
            GroupLevel(number, keys, _grouped(levelled, keys, schema, device, momentary=node.momentary))
            for number, keys in enumerate(node.levels)
        ]
        for level in self.each:
            if level.keys and node.lists:
                level.own.list_in_order()
        self.values = [*self._shared, *(values for level in self.each for values in level.values)]
        forgetting = dict.fromkeys(each.keys for each in self.values if each.life in REMEMBERED.values())
        self.memories = {keys: GroupMemory(keys, schema, device) for keys in forgetting}

    @property
    def read(self) -> list[str]:
        """The columns that tell groups."""
        read = {*self._node.keys, *self._node.carried, *(key for values in self.values for key in values.keys)}
        return sorted(read)

    def none(self, count: int) -> Any:
        """So many rows of nulls."""
        return self._device.columns.nulls(self._nothing, count)

    def rows(self, level: GroupLevel, frame: Any, places: Any) -> Any:
        """A row for each of some groups, with the values at some places.

        Aggregates whose own keys the level leaves out are of no event there: they are null.
        """
        found = []
        for values in (*self._shared, *level.values):
            at = values.at(values.codes(frame), places)
            left_out = len(self.each) > 1 and not {*values.keys} <= {*level.keys}
            found.append(self._device.columns.nulls(at, len(places)) if left_out else at)
        return self._beside_keys(level, frame, found, len(places))

    def touched(self, level: GroupLevel, keys: Any, edges: Edges) -> Touched:
        """Which groups of a level some edges touch.

        Args:
            level: The level.
            keys: The columns that tell groups, of the changed rows.
            edges: The edges.
        """
        found = level.own.touched_by(edges)
        if found is not None:
            return found
        codes = level.own.codes(self._device.columns.take(keys, edges.rows))
        return Touched.of(codes, edges.place, level.own.groups, self._device)

    @property
    def tells_by_last(self) -> bool:
        """Whether the last row of those that touch a group tells its aggregates: they have keys that a level lacks."""
        return len(self.each) > 1 and any(values.keys for values in self._shared)

    def at_edges(self, level: GroupLevel, frame: Any, edges: Edges, rows: Any | None, places: Any, *, old: bool) -> Any:
        """A row for each touched group, with the values behind what touches it, or before it.

        Args:
            level: The level.
            frame: The columns that tell groups, a row for each.
            edges: The edges.
            rows: int64 numbers of the rows among the touched ones; None for all.
            places: int64 place of each.
            old: Whether the values are those before.
        """
        found = []
        for values in (*self._shared, *level.values):
            # All values of a level are by the same keys, and edges tell in which order groups are touched.
            if values in level.values and values.touched_by(edges) is not None:
                found.append(values.at_rows(rows, before=old))
            else:
                found.append(values.at(values.codes(frame), places - 2 if old else places))
        return self._beside_keys(level, frame, found, len(places))

    def held(self, level: GroupLevel, places: Any) -> tuple[Any, Any]:
        """(int64 index of a place, a row for each group that has rows at it), the places in order.

        All rows as one group have a row always.
        """
        columns, take = self._device.columns, self._device.kernels.take
        at, groups, _ = level.own.held_at(places)
        if level.keys:
            keys = level.own.keys_of(groups)
            rest = [name for name in self._nothing.columns if name not in level.keys]
            none = columns.nulls(columns.select(self._nothing, rest), len(groups))
            frame = self.none(0) if keys is None else columns.beside(keys, none)
        else:
            at = np.arange(len(places), like=places) if len(self.each) == 1 else at
            frame = self.none(len(at))
        return at, self.rows(level, frame, take(places, at))

    def _beside_keys(self, level: GroupLevel, frame: Any, found: Sequence[Any], count: int) -> Any:
        """The keys of some groups beside their values; those of other levels are null."""
        columns, parts = self._device.columns, []
        for key in self._node.keys:
            one = columns.select(frame, [key])
            parts.append(one if key in level.keys else columns.nulls(one, count))
        parts += [columns.select(frame, [name]) for name in self._node.carried]
        parts.extend(found)
        if len(self.each) > 1:
            number = columns.array(np.full(count, level.number, np.int64))
            parts.append(columns.build({GROUPING: (number, None, pa.int64())}))
        return parts[0] if len(parts) == 1 else columns.beside(*parts)


def _grouped(
    aggregates: Sequence[Delivered], keys: tuple[str, ...], schema: pa.Schema, device: Device, *, momentary: bool
) -> list[GroupValues]:
    """The running values of some aggregates; those without keys of their own have these."""
    found: dict[tuple[tuple[str, ...], str], list[Delivered]] = {}
    for each in aggregates:
        own = replace(each, keys=keys if each.keys is None else each.keys)
        if not own.keys:
            own = replace(own, life=_ALWAYS.get(own.life, own.life))
        found.setdefault((own.keys or (), own.life), []).append(own)

    def made(some: Sequence[Delivered]) -> GroupValues:
        if some[0].life == "delivered":
            return DeliveredTotals(some, schema, device)
        walks = not momentary and GroupTotals.takes(some, schema)
        return (GroupTotals if walks else GroupValues)(some, schema, device)

    return [made(some) for some in found.values()]
