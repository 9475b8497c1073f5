"""What operators of deliveries share: kinds of rows, their order, and columns that they write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.turns import EMPTY, HELD, MARK, NEW, OLD, ORDER, ROW
from gpu_ops.devices import Device
from gpu_ops.errors import SourceError
from gpu_ops.operators.row_order import run_starts

KINDS = (NEW, OLD, HELD, MARK, EMPTY)
"""The words of the column `@row`, by their codes; rows of a delivery come first."""

IS_NEW, IS_OLD, IS_HELD, IS_MARK, IS_EMPTY = range(len(KINDS))


def kinds_of(frame: Any, device: Device) -> Any:
    """int64: the code of each row's kind.

    Raises:
        SourceError: A row is of no known kind.
    """
    codes, _, found = device.columns.key_codes(frame, [ROW])
    if not len(codes):
        return codes.astype(np.int64)
    words = [word for (word,) in device.columns.tuples(found)]
    strange = set(words) - set(KINDS)
    if strange:
        raise SourceError(f"{strange.pop()!r} is no kind of row.", column=ROW, remedy=f"Say one of {', '.join(KINDS)}.")
    known = device.columns.array(np.array([KINDS.index(word) for word in words], np.int64))
    return device.kernels.take(known, codes.astype(np.int64, copy=False))


def numbers_of(frame: Any, name: str, device: Device) -> Any:
    """int64: the values of a column of integers, 0 for null."""
    values, _ = device.columns.values(frame, name)
    return values.astype(np.int64, copy=False)


def with_order(frame: Any, order: Any, device: Device) -> Any:
    """A frame with another column `@order`, int64."""
    return with_column(frame, ORDER, device.columns.build({ORDER: (order, None, pa.int64())}), device)


def with_kind(frame: Any, kind: str, device: Device) -> Any:
    """A frame with one word for all rows in the column `@row`."""
    columns = device.columns
    one = columns.from_arrow(pa.table({ROW: pa.array([kind])}))
    return with_column(frame, ROW, columns.take(one, columns.array(np.zeros(columns.rows(frame), np.int64))), device)


def with_column(frame: Any, name: str, column: Any, device: Device) -> Any:
    """A frame with another column of this name, of a frame that has it alone; the order of columns stays."""
    columns, names = device.columns, list(frame.columns)
    rest = [each for each in names if each != name]
    return columns.select(columns.beside(columns.select(frame, rest), column) if rest else column, names)


def numbered(*columns: Any, device: Device) -> Any:
    """int64: the number of each row, from 0 on, among the neighbours that are equal to it in some columns."""
    at = np.arange(len(columns[0]), like=columns[0]).astype(np.int64, copy=False)
    begins = run_starts(*columns)
    return at - device.kernels.take(device.kernels.keep(begins), np.cumsum(begins) - 1)
