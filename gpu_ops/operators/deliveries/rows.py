"""What operators of deliveries share: kinds of rows, their order, and columns that they write."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import EMPTY, HELD, MARK, NEW, OLD, ORDER, ROW
from gpu_ops.devices import Device
from gpu_ops.errors import SourceError
from gpu_ops.operators.checked import evaluated
from gpu_ops.operators.events import Events
from gpu_ops.operators.row_order import run_starts

KINDS = (NEW, OLD, HELD, MARK, EMPTY)
"""The words of the column `@row`, by their codes; rows of a delivery come first."""

IS_NEW, IS_OLD, IS_HELD, IS_MARK, IS_EMPTY = range(len(KINDS))


def kinds_of(frame: Any, device: Device) -> Any:
    """int64: the code of each row's kind.

    Raises:
        SourceError: A row is of no known kind.
    """
    columns = device.columns
    if columns.rows(frame) < _MANY:
        codes, _, found = columns.key_codes(frame, [ROW])
        known = np.array([(*KINDS, word).index(word) for (word,) in columns.tuples(found)], np.int64)
        kinds = device.kernels.take(columns.array(known), codes.astype(np.int64, copy=False))
    else:
        place = columns.array(np.zeros(columns.rows(frame), np.int64))
        found = evaluated({_KIND: _CODE}, Events(place, TICK, columns.select(frame, [ROW])), device)
        kinds = numbers_of(found, _KIND, device)
    strange = device.kernels.keep(kinds == len(KINDS))
    if len(strange):
        (word,) = columns.tuples(columns.take(columns.select(frame, [ROW]), strange[:1]))[0]
        raise SourceError(f"{word!r} is no kind of row.", column=ROW, remedy=f"Say one of {', '.join(KINDS)}.")
    return kinds


def _code(kinds: tuple[str, ...]) -> nw.Expr:
    """The place of a word among `KINDS`, or behind them."""
    if not kinds:
        return nw.lit(len(KINDS))
    return nw.when(nw.col(ROW) == kinds[0]).then(len(KINDS) - len(kinds)).otherwise(_code(kinds[1:]))


_KIND, _CODE = "kind", _code(KINDS)

_MANY = 1 << 16
"""Rows from which on it takes less time to compare words than to tell which are equal."""


def numbers_of(frame: Any, name: str, device: Device) -> Any:
    """int64: the values of a column of integers, 0 for null."""
    values, _ = device.columns.values(frame, name)
    return values.astype(np.int64, copy=False)


def with_order(frame: Any, order: Any, device: Device) -> Any:
    """A frame with another column `@order`, int64."""
    return with_column(frame, ORDER, device.columns.build({ORDER: (order, None, pa.int64())}), device)


def with_kind(frame: Any, kind: str, device: Device) -> Any:
    """A frame with one word for all rows in the column `@row`."""
    return with_column(frame, ROW, words_of(kind, device.columns.rows(frame), device), device)


def words_of(kind: str, count: int, device: Device) -> Any:
    """A frame of the column `@row` with one word."""
    columns = device.columns
    one = columns.from_arrow(pa.table({ROW: pa.array([kind])}))
    return columns.take(one, columns.array(np.zeros(count, np.int64)))


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
