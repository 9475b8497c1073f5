"""The values that the conditions of a pattern read of the rows that it keeps: what has come is added, and stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.devices.columns import Frame
from gpu_ops.operators.patterns.tables import PatternTables
from gpu_ops.operators.row_cells import CellValues, absent_value, cell_values, stored_values
from gpu_ops.operators.state.rows import GroupInterner

_TEXT = "text"

_FEW = 1 << 10
"""So many texts are kept before anybody looks which of them are needed."""


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
        texts = [each.kind == "text" for each in self._cells]
        # Programs compare texts, by their ranks among all that are there. Equalities and keys need a number for each.
        self._anew = tables.ranks_texts or any(each.absent for each in self._cells if each.kind == "text")
        self._texts = None if self._anew or not any(texts) else self._interner()
        self._renumbered = True
        same = [
            (*column, cell.kind) if shares else number
            for number, (cell, column) in enumerate(zip(self._cells, self._columns, strict=True))
        ]
        self._firsts = [same.index(each) for each in dict.fromkeys(same)]
        self._at = np.array([list(dict.fromkeys(same)).index(each) for each in same], np.int64)
        self._counts = [0] * streams
        self._values, self._there = self._room(0)

    def _interner(self) -> GroupInterner:
        """Numbers of texts; there are none yet."""
        return GroupInterner((_TEXT,), pa.schema([(_TEXT, pa.large_string())]), self._device)

    def _room(self, rows: int) -> tuple[Any, Any]:
        """Room for the values of so many rows, and for that of no row."""
        shape = len(self._firsts), rows + 1
        values, there = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        values[:, -1], there[:, -1] = 0, False
        for number, first in enumerate(self._firsts) if not self._anew else ():
            # Of a stream that nothing has come of, there is no row too.
            absent = None if self._cells[first].kind == "text" else absent_value(self._cells[first])
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

    def take_all_at_once(self) -> None:
        """Rows come once: to rank their texts costs less than to number them."""
        if self._texts is not None:
            self._anew, self._texts = True, None

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
                numbers, valid = self._stored(first, frame, name)
                values, there, end = self._values[number], self._there[number], begin + counts[stream]
                values.view(numbers.dtype)[begin:end], there[begin:end] = numbers, valid
        self._counts = [before + more for before, more in zip(self._counts, counts, strict=True)]

    def _stored(self, cell: int, frame: Frame, name: str) -> tuple[Any, Any]:
        """(the numbers of a cell, which of them are not null)."""
        if self._cells[cell].kind != "text" or self._texts is None:
            return stored_values(self._cells[cell], frame, name, self._device)[:2]
        columns = self._device.columns
        own = columns.to_arrow(columns.select(frame, [name]), pa.schema([(name, self._cells[cell].type)]))[name]
        texts = pa.table({_TEXT: own.cast(pa.large_string())})
        codes = columns.host(self._texts.codes(columns.from_arrow(texts)))
        return codes.astype(np.int64), True if not own.null_count else own.is_valid().to_numpy()

    def restore(self, kept: Sequence[Frame]) -> None:
        """The rows that a state has, in place of all others."""
        self._counts = [0] * len(self._counts)
        if self._texts is not None:
            self._texts, self._renumbered = self._interner(), True
        self.add(kept)

    def forget(self, kept: Callable[[int], Frame]) -> None:
        """Forget the texts that no row has, where they are many.

        Args:
            kept: Gives the rows of a stream.
        """
        if self._texts is not None and len(self._texts) > 2 * sum(self._counts) + _FEW:
            self.restore([kept(stream) for stream in range(len(self._counts))])

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
        renumbered, self._renumbered = self._renumbered, False
        return CellValues(begins, self._values.reshape(-1), self._there.reshape(-1), renumbered)
