"""The distinct values of a running window: for each live value of a group, how many events have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers, to_arrow
from gpu_ops.core.state_parts import StatePart, joined
from gpu_ops.core.state_tables import StateTable, counter
from gpu_ops.core.table_runs import TableRuns
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import GroupInterner, grown, known_at

_KEY, _COUNT = "key/", "count/"

CODES = "codes"
"""The form of a column whose values are told apart by numbers."""


class ValueCounts:
    """The distinct values of one column within groups, by number, and their counts under some conditions.

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
        self._runs = TableRuns(_KEY)

    def of(self, frame: Any) -> Column:
        """The number of each row's value."""
        numbers = self._numbers.codes(frame).astype(np.int64, copy=False)
        return Column((numbers,), self._device.columns.validity(frame, self._column))

    def there(self, condition: str | None, values: Any) -> Any:
        """The counts of some values.

        Args:
            condition: The condition of the events that are counted.
            values: int64 numbers.
        """
        return known_at(self._counts.get(condition or "", values[:0]), values, self._device)

    def put(self, condition: str | None, values: Any, counts: Any) -> None:
        """Set the counts of some values, each given once."""
        known = self._counts.get(condition or "", values[:0])
        known = self._counts[condition or ""] = grown(known, len(self._numbers))
        known[values] = counts
        self._runs.note(self._device.columns.host(values))

    def parts(self) -> list[StatePart]:
        """Each value with its group and its count under each condition; no part before the first value."""
        return self._runs.parts(len(self._numbers), self._rows) if len(self._numbers) else []

    def _rows(self, at: Any) -> pa.Table:
        columns, numbers = self._device.columns, self._device.columns.array(at)
        keys = columns.to_arrow(self._numbers.keys_of(numbers), self._schema)
        made = {f"{_KEY}{name}": keys[name] for name in keys.column_names}
        for condition, counts in self._counts.items():
            known = columns.host(known_at(counts, numbers, self._device))
            made[f"{_COUNT}{condition}"] = to_arrow(known, pa.int64())
        return pa.table(made)

    def declared(self, name: str, conditions: Iterable[str]) -> StateTable:
        """The declaration of the table that `parts` make up; it may have the counts of some conditions only."""
        keys = nullable_columns(self._schema, _KEY)
        counts = {f"{_COUNT}{condition}": replace(counter(), optional=True) for condition in conditions}
        return StateTable(name, keys | counts, unique=tuple(keys))

    def restore(self, parts: Sequence[StatePart], groups: int) -> None:
        """Restore what `parts` gave."""
        del groups
        columns, table = self._device.columns, joined([part.wanted() for part in parts]).combine_chunks()
        self._runs.restore(parts)
        keys = {name: table[f"{_KEY}{name}"] for name in self._schema.names}
        self._numbers.restore(columns.from_arrow(pa.table(keys)))
        for name in table.column_names:
            if name.startswith(_COUNT):
                counts = columns.array(integers(in_one(table[name])).copy())
                self._counts[name.removeprefix(_COUNT)] = counts

    def forget(self, kept: Iterable[RowRuns]) -> None:
        """Forget values that no event has any more, once they are the majority.

        Args:
            kept: The rows that are kept, whose numbers change.
        """
        if not self._numbers.crowded:
            return
        kept, used, name = list(kept), np.zeros(len(self._numbers), np.bool_), (self._column, CODES)
        for counts in self._counts.values():
            # This includes events that are not kept: their ends are not known yet, or they never end.
            used[: len(counts)] |= self._device.columns.host(counts[: len(used)] > 0)
        for runs in kept:
            for rows in runs.pieces():
                used[self._device.columns.host(rows.columns[name].arrays[0])] = True
        numbers = self._numbers.forget(used)
        if numbers is None:
            return
        self._runs.forget()
        left = self._device.columns.array(np.flatnonzero(used))
        for condition, counts in self._counts.items():
            self._counts[condition] = self._device.kernels.take(grown(counts, len(used)), left)
        for runs in kept:
            runs.renumber_column(name, numbers.astype(np.int64))
