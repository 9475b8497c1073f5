"""What operators of deliveries share: kinds of rows, their order, and columns that they write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.turns import ORDER, ROW
from gpu_ops.devices import Device
from gpu_ops.operators.row_order import run_starts


def kinds_of(frame: Any, device: Device) -> Any:
    """int64: each row's kind."""
    return numbers_of(frame, ROW, device)


def numbers_of(frame: Any, name: str, device: Device) -> Any:
    """int64: the values of a column of integers, 0 for null."""
    values, _ = device.columns.values(frame, name)
    return values.astype(np.int64, copy=False)


def with_order(frame: Any, order: Any, device: Device) -> Any:
    """A frame with another column `@order`, int64."""
    return with_column(frame, ORDER, device.columns.build({ORDER: (order, None, pa.int64())}), device)


def with_kind(frame: Any, kind: int, device: Device) -> Any:
    """A frame with one kind for all rows in the column `@row`."""
    return with_column(frame, ROW, of_kind(kind, device.columns.rows(frame), device), device)


def of_kind(kind: int, count: int, device: Device) -> Any:
    """A frame of the column `@row` with one kind."""
    kinds = device.columns.array(np.full(count, kind, np.int8))
    return device.columns.build({ROW: (kinds, None, pa.int8())})


def with_column(frame: Any, name: str, column: Any, device: Device) -> Any:
    """A frame with another column of this name, of a frame that has it alone; the order of columns stays."""
    columns, names = device.columns, list(frame.columns)
    rest = [each for each in names if each != name]
    return columns.select(columns.beside(columns.select(frame, rest), column) if rest else column, names)


def numbered(*columns: Any, device: Device) -> Any:
    """int64: the number of each row, from 0 on, among the neighbours that are equal to it in some columns."""
    begins = device.kernels.keep(run_starts(*columns))
    ends = np.concatenate([begins[1:], np.full_like(begins, len(columns[0]), shape=(min(len(begins), 1),))])
    return device.kernels.expand(ends - begins)[1]
