"""What a running window remembers of distinct values: of each that is alive in a group, how many events have it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_tables import StateTable, counter
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state.fields import group_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import GroupInterner, grown, known_at

CODES = "codes"
"""The form of a column whose values are told apart by numbers."""


class ValueCounts:
    """The distinct values of one column within groups, by number, and how often each is there under some conditions.

    Args:
        group: The columns that tell groups apart.
        column: The column.
        schema: The types of all.
        device: Where arrays live.
    """

    def __init__(self, group: tuple[str, ...], column: str, schema: pa.Schema, device: Device) -> None:
        self._schema = pa.schema([schema.field(name) for name in dict.fromkeys((*group, column))])
        self._column, self._device = column, device
        self._numbers = GroupInterner(tuple(self._schema.names), schema, device)
        self._counts: dict[str, Any] = {}

    def of(self, frame: Any) -> Column:
        """The number of each row's value."""
        numbers = self._numbers.codes(frame).astype(np.int64, copy=False)
        return Column((numbers,), self._device.columns.validity(frame, self._column))

    def there(self, condition: str | None, values: Any) -> Any:
        """How often some values are there.

        Args:
            condition: Which events take part.
            values: int64 numbers.
        """
        return known_at(self._counts.get(condition or "", values[:0]), values, self._device)

    def put(self, condition: str | None, values: Any, counts: Any) -> None:
        """Some values are there so often from now on; each is named once."""
        known = self._counts.get(condition or "", values[:0])
        known = self._counts[condition or ""] = grown(known, len(self._numbers))
        known[values] = counts

    def table(self) -> pa.Table | None:
        """Each value with its group, and how often it is there under each condition; None if none was seen."""
        if not len(self._numbers):
            return None
        columns, count = self._device.columns, len(self._numbers)
        keys = columns.to_arrow(self._numbers.keys, self._schema)
        made = {f"key/{name}": keys[name] for name in keys.column_names}
        for condition, counts in self._counts.items():
            known = columns.host(grown(counts, count)[:count])
            made[f"count/{condition}"] = to_arrow(known.copy(), pa.int64())
        return pa.table(made)

    def declared(self, name: str, conditions: Iterable[str]) -> StateTable:
        """The table that `table` gives, which may tell under some conditions how often each value is there."""
        keys = group_columns(tuple(self._schema.names), self._schema)
        counts = {f"count/{condition}": replace(counter(), optional=True) for condition in conditions}
        return StateTable(name, keys | counts, unique=tuple(keys))

    def restore(self, table: pa.Table) -> None:
        """What `table` gave."""
        columns = self._device.columns
        table = table.combine_chunks()
        keys = {name: table[f"key/{name}"] for name in self._schema.names}
        self._numbers.restore(columns.from_arrow(pa.table(keys)))
        for name in table.column_names:
            if name.startswith("count/"):
                counts = columns.array(integers(table[name].combine_chunks()).copy())
                self._counts[name.removeprefix("count/")] = counts

    def forget(self, kept: Iterable[RowRuns]) -> None:
        """Forget values that nothing has any more, once they are most of all.

        Args:
            kept: The rows that are kept, whose numbers change.
        """
        if not self._numbers.crowded:
            return
        kept, used, name = list(kept), np.zeros(len(self._numbers), np.bool_), (self._column, CODES)
        for counts in self._counts.values():
            # Also of events that are not kept, since nobody knows when they end, or since they never do.
            used[: len(counts)] |= self._device.columns.host(counts[: len(used)] > 0)
        for runs in kept:
            for rows in runs.pieces():
                used[self._device.columns.host(rows.columns[name].arrays[0])] = True
        numbers = self._numbers.forget(used)
        if numbers is None:
            return
        left = self._device.columns.array(np.flatnonzero(used))
        for condition, counts in self._counts.items():
            self._counts[condition] = self._device.kernels.take(grown(counts, len(used)), left)
        for runs in kept:
            runs.renumber_column(name, numbers.astype(np.int64))
