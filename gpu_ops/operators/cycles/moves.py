"""Rows that come into windows and leave them, as a walk takes them, and what is kept of those that leave later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.forms import Column
from gpu_ops.operators.events import stretch_of
from gpu_ops.operators.row_order import in_order
from gpu_ops.operators.state.rows import AxisRows

_KEPT = "kept"
"""The form of kept columns."""


@dataclass(frozen=True)
class CycleMoves:
    """Rows that come or leave, on the host.

    Attributes:
        starts: int64 place at which each comes.
        ends: int64 place at which it leaves.
        codes: int32 number of its key.
        number: int64 place among arrivals; nothing for rows that leave.
        windows: int64 number of its window; nothing if windows are numbered as they begin.
        values: int64: a line for each column that is read.
        valid: bools: which of these are not null; of no length if all are.
    """

    starts: Any
    ends: Any
    codes: Any
    number: Any
    windows: Any
    values: Any
    valid: Any

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def arriving(self) -> Any:
        """int64 order in which they come; nothing if they are in it."""
        keys = [self.starts, self.number]
        return np.zeros(0, np.int64) if in_order(keys) else np.lexsort(keys[::-1])

    @property
    def leaving(self) -> Any:
        """int64 order in which they leave; nothing if they are in it."""
        return np.zeros(0, np.int64) if in_order([self.ends]) else np.argsort(self.ends, kind="stable")

    def cut(self, low: int, high: int) -> CycleMoves:
        """Those from ``low`` to ``high``."""
        return self if not low and high >= len(self) else self._each(lambda values: values[..., low:high])

    def take(self, at: Any) -> CycleMoves:
        """Those at ascending indices: a stretch is not copied."""
        found = stretch_of(at)
        return self.cut(*found) if found is not None else self._each(lambda values: values[..., at])

    def _each(self, change: Callable[[Any], Any]) -> CycleMoves:
        parts = (self.starts, self.ends, self.codes, self.number, self.windows, self.values, self.valid)
        return CycleMoves(*(np.ascontiguousarray(change(each)) if each.shape[-1] else each for each in parts))

    @staticmethod
    def none(columns: int) -> CycleMoves:
        """No rows, of which some columns are read."""
        none, lines = np.zeros(0, np.int64), np.zeros((columns, 0), np.int64)
        return CycleMoves(none, none, none.astype(np.int32), none, none, lines, lines.astype(np.bool_))

    @staticmethod
    def joined(parts: Sequence[CycleMoves]) -> CycleMoves:
        """All rows that leave, one part behind the other."""
        some = [each for each in parts if len(each)] or [*parts[:1]]
        if len(some) == 1:
            return some[0]
        none = np.zeros(0, np.int64)
        valid = [each.valid for each in some]
        if any(each.shape[1] for each in valid):
            valid = [each.valid if each.valid.shape[1] else np.ones(each.values.shape, np.bool_) for each in some]
        ends, codes = (np.concatenate([getattr(each, name) for each in some]) for name in ("ends", "codes"))
        values = np.concatenate([each.values for each in some], axis=1)
        return CycleMoves(none, ends, codes, none, none, values, np.concatenate(valid, axis=1))

    def kept(self, names: Sequence[str], device: Device) -> AxisRows:
        """What is kept of them until they leave."""
        array = device.columns.array
        columns = {
            (name, _KEPT): Column((array(self.values[at]),), array(self.valid[at]) if self.valid.shape[1] else None)
            for at, name in enumerate(names)
        }
        return AxisRows(array(self.codes), array(self.starts), array(self.ends), columns)

    @staticmethod
    def of(rows: AxisRows, names: Sequence[str], device: Device) -> CycleMoves:
        """Rows that were kept."""
        host, count, none = device.columns.host, len(rows), np.zeros(0, np.int64)
        kept = [rows.columns[name, _KEPT] for name in names]
        values = np.array([host(each.arrays[0]) for each in kept], np.int64).reshape(len(kept), count)
        valid = np.zeros((len(kept), 0), np.bool_)
        if any(each.valid is not None for each in kept):
            valid = np.stack([np.ones(count, np.bool_) if each.valid is None else host(each.valid) for each in kept])
        return CycleMoves(none, host(rows.high), host(rows.code), none, none, values, valid)
