"""The values that the conditions of a pattern read of the rows that it keeps: what has come is added, and stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.devices.columns import Frame
from gpu_ops.operators.patterns.tables import PatternTables
from gpu_ops.operators.row_cells import CellValues, absent_value, cell_values, stored_values


class KeptCells:
    """The values of cells for the rows of each stream.

    Args:
        tables: The tables of the pattern.
        streams: How many streams there are.
        shares: Whether cells of one column may be one: nobody reads them for no row.
        device: Where the rows are.
    """

    def __init__(self, tables: PatternTables, streams: int, device: Device, *, shares: bool) -> None:
        self._cells, self._columns, self._device = tables.programs.cells, tables.cell_columns, device
        # Texts are known by their ranks among all that are there.
        self._anew = any(each.kind == "text" for each in self._cells)
        same = [
            (*column, cell.kind) if shares else number
            for number, (cell, column) in enumerate(zip(self._cells, self._columns, strict=True))
        ]
        self._firsts = [same.index(each) for each in dict.fromkeys(same)]
        self._at = np.array([list(dict.fromkeys(same)).index(each) for each in same], np.int64)
        self._counts = [0] * streams
        self._values, self._there = self._room(0)

    def _room(self, rows: int) -> tuple[Any, Any]:
        """Room for the values of so many rows, and for that of no row."""
        shape = len(self._firsts), rows + 1
        values, there = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        values[:, -1], there[:, -1] = 0, False
        for number, first in enumerate(self._firsts) if not self._anew else ():
            # Of a stream that nothing has come of, there is no row too.
            absent = absent_value(self._cells[first])
            if absent is not None:
                own = values[number].view(np.float64 if self._cells[first].kind == "float" else np.int64)
                own[-1], there[number, -1] = absent, True
        return values, there

    def _have_room(self, rows: int) -> None:
        room = self._values.shape[1] - 1
        if rows <= room:
            return
        before = self._values, self._there
        self._values, self._there = self._room(max(rows, 2 * room))
        for old, new in zip(before, (self._values, self._there), strict=True):
            for number, first in enumerate(self._firsts):
                count = self._counts[self._columns[first][0]]
                new[number, :count] = old[number, :count]

    def add(self, fresh: Sequence[Frame | None]) -> None:
        """More rows of each stream."""
        columns = self._device.columns
        counts = [0 if each is None else columns.rows(each) for each in fresh]
        if not self._anew:
            self._have_room(max(map(sum, zip(self._counts, counts, strict=True)), default=0))
            for number, first in enumerate(self._firsts):
                stream, name = self._columns[first]
                frame, begin = fresh[stream], self._counts[stream]
                if frame is None:
                    continue
                numbers, valid, _ = stored_values(self._cells[first], frame, name, self._device)
                values, there, end = self._values[number], self._there[number], begin + counts[stream]
                values.view(numbers.dtype)[begin:end], there[begin:end] = numbers, valid
        self._counts = [before + more for before, more in zip(self._counts, counts, strict=True)]

    def restore(self, kept: Sequence[Frame]) -> None:
        """The rows that a state has, in place of all others."""
        self._counts = [0] * len(self._counts)
        self.add(kept)

    def take(self, stream: int, rows: Any) -> None:
        """Keep some rows of a stream alone, which are numbered so from now on."""
        for number, first in enumerate(self._firsts) if not self._anew else ():
            if self._columns[first][0] == stream:
                for table in (self._values, self._there):
                    table[number, : len(rows)] = table[number, rows]
        self._counts[stream] = len(rows)

    def values(self, kept: Callable[[int], Frame]) -> CellValues:
        """The values of all cells.

        Args:
            kept: Gives the rows of a stream.
        """
        if self._anew:
            frames = [(kept(stream), column) for stream, column in self._columns]
            return cell_values(self._cells, frames, self._device)
        begins = np.append(self._at, len(self._firsts)) * self._values.shape[1]
        return CellValues(begins, self._values.reshape(-1), self._there.reshape(-1))
