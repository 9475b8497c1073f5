"""The values that row programs read, as the arrays of a kernel: whole numbers, ranks of texts, the bits of floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.devices import Device
from gpu_ops.devices.columns import Frame
from gpu_ops.plan.row_programs import Cell


@dataclass(frozen=True)
class CellValues:
    """The values of cells, on the host.

    Attributes:
        begins: int64[cells + 1]: where the values of each cell begin; its last one is what it is for no row.
        values: int64.
        there: bool: which of them are not null.
        renumbered: Whether the numbers of texts are others than the last time.
    """

    begins: Any
    values: Any
    there: Any
    renumbered: bool = True


def cell_values(cells: Sequence[Cell], frames: Sequence[tuple[Frame, str]], device: Device) -> CellValues:
    """The values of cells.

    Args:
        cells: The cells.
        frames: For each the rows of its slot, and the column that has its values.
        device: Where the rows are.
    """
    found = dict[int, tuple[Any, Any, Any]]()
    texts = [at for at, cell in enumerate(cells) if cell.kind == "text"]
    if texts:
        found.update(zip(texts, _ranked([(cells[at], *frames[at]) for at in texts], device), strict=True))
    for at, (cell, (frame, name)) in enumerate(zip(cells, frames, strict=True)):
        if cell.kind != "text":
            found[at] = stored_values(cell, frame, name, device)
    begins = np.cumsum([0, *(len(found[at][0]) + 1 for at in range(len(cells)))]).astype(np.int64)
    values, there = np.zeros(begins[-1], np.int64), np.zeros(begins[-1], np.bool_)
    for at in range(len(cells)):
        (numbers, valid, absent), first, last = found[at], begins[at], begins[at + 1] - 1
        into = values.view(numbers.dtype)
        into[first:last], there[first:last] = numbers, valid
        if absent is not None:
            into[last], there[last] = absent, True
    return CellValues(begins, values, there)


def stored_values(cell: Cell, frame: Frame, name: str, device: Device) -> tuple[Any, Any, Any]:
    """(the numbers of a cell that is no text, which of them are not null, what it is for no row)."""
    stored, valid = device.columns.values(frame, name)
    numbers = device.columns.host(stored)
    if cell.kind == "float":
        # -0.0 equals 0.0, and all NaNs are one.
        numbers = numbers.astype(np.float64) + 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
    else:
        numbers = numbers.astype(np.int64, copy=False)
    return numbers, True if valid is None else device.columns.host(valid), absent_value(cell)


def absent_value(cell: Cell) -> Any:
    """The number that a cell is for no row; None for null."""
    if cell.absent is None:
        return None
    (value,) = pa.array([cell.absent], cell.type).to_numpy(zero_copy_only=False)
    return value


def _ranked(texts: Sequence[tuple[Cell, Frame, str]], device: Device) -> list[tuple[Any, Any, Any]]:
    """Texts as their ranks among all of them, which of them are not null, and the rank for no row."""
    columns = []
    for cell, frame, name in texts:
        own = device.columns.to_arrow(device.columns.select(frame, [name]), pa.schema([(name, cell.type)]))[name]
        columns.append(
            pa.chunked_array([*own.cast(pa.large_string()).chunks, pa.array([cell.absent], pa.large_string())])
        )
    every = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.large_string())
    # By their bytes in UTF-8, which is the order of code points.
    distinct = pc.drop_null(pc.unique(every))
    ordered = distinct.take(pc.sort_indices(distinct))
    found = []
    for column in columns:
        codes = pc.index_in(column, ordered)
        ranks, valid = codes.fill_null(0).to_numpy().astype(np.int64), codes.is_valid().to_numpy()
        found.append((ranks[:-1], valid[:-1], ranks[-1] if valid[-1] else None))
    return found
