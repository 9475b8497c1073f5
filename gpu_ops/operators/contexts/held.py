"""Rows that are held back until their instances end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.numbered_runs import NumberedRuns
from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import MANY, Field, StateTable
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import ARRIVED, INSTANCE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import WaitingPoints

_SAVED = f"row/{ARRIVED}"


class RowsOfInstances:
    """Rows of instances, which `with_numbers` has given numbers.

    Args:
        name: What their table is called.
        schema: Their columns.
        device: Where arrays live.
    """

    def __init__(self, name: str, schema: pa.Schema, device: Device) -> None:
        self._device, self._name = device, name
        self._rows = WaitingPoints(name, schema.append(pa.field(ARRIVED, pa.int64())), device)
        self._runs = NumberedRuns(_SAVED)

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
        """The rows, by their numbers."""
        made = self._rows.tables()
        return {name: _in_order(table) for name, table in made.items()}

    def state_parts(self) -> Parts:
        """The same in parts: of a row that is held nothing changes."""
        tables = self.tables()
        if not tables:
            self._runs.restore(())
            return {}
        table = tables[self._name]
        number = table[_SAVED].to_numpy()
        return {self._name: self._runs.parts({_SAVED: number}, lambda at: table.take(pa.array(at)))}

    def keep_names(self, parts: Parts) -> None:
        """The parts that were restored keep their names."""
        self._runs.restore(parts.get(self._name, ()))

    def declared(self) -> Iterator[StateTable]:
        """The declaration of their table."""
        for each in self._rows.declared():
            number = Field(pa.int64(), least=0, most=MANY, ascends=True, optional=True)
            yield replace(each, columns={**each.columns, _SAVED: number})

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave; in older states rows have no numbers."""
        table = tables.get(self._name)
        if table is not None and _SAVED not in table.column_names:
            tables = {self._name: table.append_column(_SAVED, pa.array(np.arange(table.num_rows)))}
        self._rows.restore(tables)

    @property
    def most(self) -> int:
        """The greatest number of a row; -1 without rows."""
        whole = self.whole()
        return -1 if whole is None else int(self._device.columns.values(whole.frame, ARRIVED)[0].max())


def _in_order(table: pa.Table) -> pa.Table:
    number = table[_SAVED].to_numpy()
    return table if bool((np.diff(number) > 0).all()) else table.take(pa.array(np.argsort(number)))


def with_numbers(rows: Events, first: int, device: Device) -> Events:
    """Rows with numbers from some number on."""
    number = device.columns.array(np.arange(first, first + len(rows)))
    return replace(
        rows, frame=device.columns.beside(rows.frame, device.columns.build({ARRIVED: (number, None, pa.int64())}))
    )
