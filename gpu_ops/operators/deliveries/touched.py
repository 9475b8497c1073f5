"""Which groups the turns of a step touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.devices import Device
from gpu_ops.operators.row_order import run_starts


@dataclass(frozen=True)
class Touched:
    """A row for each group at each place that touches it, in order of the places, then of one of the rows there.

    Attributes:
        rows: int64 index of that row among the changed ones.
        order: int64: these rows by group, then place.
        codes: int32 group of each, in that order.
    """

    rows: Any
    order: Any
    codes: Any
    _begins: Any
    _by_group: Any
    _device: Device

    @classmethod
    def of(cls, codes: Any, places: Any, device: Device, *, last: bool = False) -> Touched:
        """The groups that some changed rows touch.

        Args:
            codes: int32 group of each changed row.
            places: int64 place of each, ascending.
            device: Where arrays live.
            last: Whether it is the last row of each that stands for it; else the first.
        """
        kernels = device.kernels
        by_group = kernels.group_order(codes, int(codes.max()) + 1, places)
        grouped = kernels.take(codes, by_group)
        begins = kernels.keep(run_starts(grouped, kernels.take(places, by_group)))
        if len(begins) == len(codes):
            return cls(np.arange(len(codes), like=places), by_group, grouped, begins, by_group, device)
        ends = np.concatenate([begins[1:] - 1, np.full_like(begins[:1], len(codes) - 1)])
        stands = kernels.take(by_group, ends if last else begins)
        is_one = np.zeros_like(places, dtype=np.bool_)
        is_one[stands] = True
        order = kernels.take(np.cumsum(is_one) - 1, stands)
        return cls(kernels.keep(is_one), order, kernels.take(grouped, begins), begins, by_group, device)

    def back(self, values: Any) -> Any:
        """Values of the rows by group, then place, in order of their places."""
        made = np.empty_like(values)
        made[self.order] = values
        return made

    def sums(self, values: Any) -> Any:
        """int64 sum of the values of the changed rows of each."""
        ordered = self._device.kernels.take(values, self._by_group)
        total = np.concatenate([np.zeros_like(ordered[:1]), np.cumsum(ordered)]).astype(np.int64, copy=False)
        ends = np.concatenate([self._begins[1:], np.full_like(self._begins[:1], len(ordered))])
        return self.back(total[ends] - total[self._begins])
