"""The rows of a group in one batch as one row with a weight: they enter a window of batches together, and leave so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import MANY, Field
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.forms import Column
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.aggregate_kinds import Aggregate
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.expressions import bare_column

_WEIGHT = ("row", "weight")

WEIGHTS = {_WEIGHT: Field(pa.int64(), least=1, most=MANY, optional=True)}
"""How tables of a state have weights; those that older versions wrote have none."""

_FEW = 1 << 10
"""Up to this many rows of a step stay as they are."""

_SPARSE = 2
"""Rows are merged where a merged one has so many of them at least."""


def weights_of(rows: AxisRows) -> Any | None:
    """int64: how many rows each one is; None where each is one."""
    return rows.columns[_WEIGHT].arrays[0] if _WEIGHT in rows.columns else None


@dataclass(frozen=True)
class MergedRows:
    """What makes one row of those of a group that are due together.

    Attributes:
        keys: The columns of groups.
        sums: The columns of which aggregates have sums, and nothing else is read: int64.
    """

    keys: tuple[str, ...]
    sums: tuple[str, ...]
    _device: Device

    @classmethod
    def of(cls, what: Deliveries, device: Device) -> MergedRows | None:
        """It for deliveries whose aggregates are counts of all rows, and sums and means of whole numbers; else None."""
        schema = what.rows.schema
        aggregates = [each.aggregate for each in what.aggregates]
        if not all(_adds_up(each, schema) for each in aggregates):
            return None
        sums = dict.fromkeys(str(bare_column(each.expression)) for each in aggregates if each.expression is not None)
        return None if {*what.keys, *what.carried} & {*sums} else cls(what.keys, tuple(sums), device)

    def merged(self, rows: AxisRows) -> AxisRows:
        """Rows with weights, in order of the first of each: fewer than there were, if they are many of few groups.

        Args:
            rows: Rows in order of their ends, each of which is when a batch is complete.
        """
        columns, kernels, count = self._device.columns, self._device.kernels, len(rows)
        if count <= _FEW or not self._add_up(rows.frame, count):
            return self.weighed(rows)
        codes, groups, _ = columns.key_codes(rows.frame, self.keys)
        if groups * _SPARSE > count:
            return self.weighed(rows)
        row, first, weight = kernels.merged_rows(codes, rows.high, groups)
        if len(first) * _SPARSE > count:
            return self.weighed(rows)
        some = rows.take(first, self._device)
        frame = some.frame
        if self.sums:
            numbers = {name: columns.values(rows.frame, name)[0] for name in self.sums}
            added = {name: kernels.row_sums(each, row, len(first)) for name, each in numbers.items()}
            made = columns.build({name: (each, None, pa.int64()) for name, each in added.items()})
            rest = [name for name in frame.columns if name not in added]
            parts = [columns.select(frame, rest), made] if rest else [made]
            frame = columns.select(columns.beside(*parts), list(frame.columns))
        return replace(some, columns=some.columns | {_WEIGHT: Column((weight,), None)}, frame=frame)

    def weighed(self, rows: AxisRows) -> AxisRows:
        """Rows as they are, with weights, which are 1 where they have none."""
        one = np.ones_like(rows.low)
        return replace(rows, columns={_WEIGHT: Column((one,), None)} | rows.columns)

    def _add_up(self, frame: Any, count: int) -> bool:
        """Whether sums of so many rows are numbers of 64 bits, and none of them is null."""
        columns = self._device.columns
        for name in self.sums:
            if columns.validity(frame, name) is not None:
                return False
            least, most = columns.extent(frame, name)
            if max(-least, most) * count >= 1 << 62:
                return False
        return True


def _adds_up(aggregate: Aggregate, schema: pa.Schema) -> bool:
    """Whether an aggregate is made of the counts of all rows, and of sums of int64."""
    if aggregate.filter is not None or aggregate.distinct or aggregate.others:
        return False
    made_of = aggregate.kind.incremental.made_of
    if aggregate.expression is None:
        return made_of == "counts"
    dtype = schema.field(str(bare_column(aggregate.expression))).type
    return made_of in {"sums", "bounded sums"} and bool(dtype == pa.int64())
