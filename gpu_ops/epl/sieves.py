"""Which rows reach statements that run by themselves: those that no filter takes step nobody.

A sieve has the filters of statements that differ in constants. It says whose filter takes a row of a batch, once for
all of them; a statement is given its rows alone, and is not stepped where there are none. Its plan has the filter as
before, which takes what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.row_order import run_starts
from gpu_ops.operators.standing import StandingIndex
from gpu_ops.plan.standing import StandingFilter
from gpu_ops.texts.feeding import PlacedRows

_FEW = 8
"""So few statements are stepped in less time than it takes to sift."""


class Sieve:
    """The filters of some statements.

    Args:
        asked: What they ask.
        device: Where they compute.
    """

    def __init__(self, asked: StandingFilter, device: Device) -> None:
        self._constants, self.device = asked.constants, device
        self._index = StandingIndex(asked, device)
        self._read = [] if asked.values is None else [*asked.values.needs(tuple(asked.values.schema.names))[0]]
        self._next, self._count = 0, 0
        self._waiting: list[Sequence[Any]] = []
        self._last: tuple[PlacedRows, Mapping[int, Any] | None] | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, constants: Sequence[Any]) -> int:
        """Have a filter more.

        Returns:
            Its number.
        """
        self._waiting.append(constants)
        self._next, self._count = self._next + 1, self._count + 1
        return self._next - 1

    def remove(self, number: int) -> None:
        """Have a filter no more."""
        self._flush()
        self._index.remove([number])
        self._count -= 1

    def rows_of(self, number: int, rows: PlacedRows) -> PlacedRows | None:
        """The rows that a filter takes; None if there are none.

        Args:
            number: The filter.
            rows: The rows of a batch, of which all statements ask.
        """
        if self._count < _FEW:
            return rows
        if self._last is None or self._last[0] is not rows:
            self._last = rows, self._sifted(rows)
        found = self._last[1]
        if found is None:
            return rows
        at = found.get(number)
        return None if at is None else rows.take(at, rows.rows.column_names)

    def rest(self) -> None:
        """Forget the last batch."""
        self._last = None

    def _sifted(self, rows: PlacedRows) -> dict[int, Any] | None:
        """The rows that each filter takes; None if what they ask cannot be computed, of which each fails itself."""
        self._flush()
        columns = self.device.columns
        try:
            found = self._index.matched(columns.from_arrow(rows.table(self._read)), len(rows.places))
        except Exception:  # noqa: BLE001  (whatever it is, the statements meet it themselves)
            return None
        source, numbers = map(columns.host, found)
        order = np.argsort(numbers, kind="stable")
        source, numbers = source[order], numbers[order]
        begins = np.flatnonzero(run_starts(numbers))
        return dict(zip(numbers[begins].tolist(), np.split(source, begins[1:]), strict=True)) if len(begins) else {}

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            columns = zip(*waiting, strict=True) if waiting[0] else ()
            arrays = [pa.array(each, field.type) for each, field in zip(columns, self._constants, strict=True)]
            slots = np.arange(self._next - len(waiting), self._next, dtype=np.int32)
            self._index.add(pa.table(arrays, self._constants), slots)
