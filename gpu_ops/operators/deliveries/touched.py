"""Which groups the turns of a step touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.row_order import sums_by


@dataclass(frozen=True)
class Touched:
    """A row for each group at each place that touches it, in order of the first edge there.

    Attributes:
        row: int64 row of each edge.
        first: int64 first edge of each row.
        last: int64 last edge of each row.
        before: int64 row of the same group before each; -1 for none.
    """

    row: Any
    first: Any
    last: Any
    before: Any

    @classmethod
    def of(cls, codes: Any, places: Any, groups: int, device: Device) -> Touched:
        """The groups that some edges touch.

        Args:
            codes: int32 group of each edge.
            places: int64 place of each, ascending.
            groups: How many groups there are.
            device: Where arrays live.
        """
        return cls(*device.kernels.touched_rows(codes, places, groups))

    def each(self, of_edges: Any, device: Device) -> Any:
        """What the first edge of each row has."""
        return of_edges if len(self.first) == len(of_edges) else device.kernels.take(of_edges, self.first)

    def by_last(self) -> Any:
        """int64 rows in order of their last edges."""
        return np.argsort(self.last, kind="stable")

    def sums(self, values: Any, device: Device) -> Any:
        """int64 sum of the edges' values in each row."""
        return sums_by(self.row, values, len(self.first), device)
