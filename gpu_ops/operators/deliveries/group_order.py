"""The order in which groups are listed: that in which they got rows when they had none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_tables import Field
from gpu_ops.devices import Device
from gpu_ops.operators.row_order import run_ends, run_starts, stable_order
from gpu_ops.operators.state.rows import grown, known_at
from gpu_ops.operators.windows.window_operator import WindowOperator

_SINCE = "since"


class GroupOrder:
    """For each group a number, greater for those that got their first row later.

    A group that all rows have left is listed anew when it gets one. So the order does not depend on how rows were sent,
    nor on whether the group was forgotten in between.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._since = device.columns.array(np.zeros(0, np.int64))
        self._next = 1
        self._begun: tuple[Any, Any, Any] | None = None

    def begin(self, groups: Any, places: Any) -> None:
        """Some groups have got rows in this part of a step.

        Args:
            groups: The number of each, in the order in which they got them; one may have done so several times.
            places: int64 place of each, ascending.
        """
        if not len(groups):
            return
        number = self._next + np.arange(len(groups), like=places)
        self._next += len(groups)
        order = stable_order([groups, places], places, self._device)
        begun = (groups.astype(np.int32), places, number)
        self._begun = tuple(self._device.kernels.take(each, order) for each in begun)

    def of(self, groups: Any, places: Any) -> Any:
        """int64 numbers of groups that hold rows at some places, before `rest`."""
        take = self._device.kernels.take
        self._since = grown(self._since, int(groups.max()) + 1 if len(groups) else 0)
        since = take(self._since, groups.astype(np.int64))
        if self._begun is None:
            return since
        begun, place, number = self._begun
        found = self._device.kernels.search_pairs(begun, place, groups.astype(np.int32), places)
        index = np.maximum(found - 1, 0)
        return np.where((found > 0) & (take(begun, index) == groups), take(number, index), since)

    def ordered(self, at: Any, groups: Any, places: Any) -> Any:
        """int64 order of groups at some places, by place, then as they are listed.

        Args:
            at: int64 number of the place of each.
            groups: The groups.
            places: int64 place of each.
        """
        return stable_order([at, self.of(groups, places)], at, self._device)

    def rest(self) -> None:
        """The part of the step is over."""
        if self._begun is None:
            return
        (groups, _, number), self._begun = self._begun, None
        last = self._device.kernels.keep(run_ends(groups))
        groups = self._device.kernels.take(groups, last).astype(np.int64)
        self._since = grown(self._since, int(groups[-1]) + 1)
        self._since[groups] = self._device.kernels.take(number, last)

    def renumber(self, left: Any) -> None:
        """Groups have new numbers; these are the old ones of those that remain, in order."""
        self._since = grown(self._since, int(left[-1]) + 1 if len(left) else 0)
        self._since = self._device.kernels.take(self._since, left)

    # The state

    def column(self, groups: Any, rows: Any) -> pa.Array:
        """The numbers of some groups; 0 for those that hold no rows.

        Args:
            groups: int64 numbers of the groups.
            rows: int64: how many rows every group holds.
        """
        since, held = (known_at(each, groups, self._device) for each in (self._since, rows))
        return to_arrow(self._device.columns.host(np.where(held > 0, since, 0)), pa.int64())

    def restore(self, column: pa.Array | None, count: int) -> None:
        """The order that `column` gave; a state of an older version has its groups as they are numbered."""
        since = np.arange(1, count + 1) if column is None else integers(column).copy()
        self._since = self._device.columns.array(since)
        self._next = int(since.max()) + 1 if len(since) else 1


class ListedGroups(WindowOperator, family=True):
    """A running window whose groups may be listed.

    Attributes:
        order: The order of its groups; None if nobody asks for it.
        before: int64 numbers of the groups that a step touches, ascending, and whether each held rows before it.
    """

    order: GroupOrder | None = None
    before: tuple[Any, Any] | None = None

    def _group_columns(self, numbers: Any) -> dict[str, Any]:
        made = super()._group_columns(numbers)
        if self.order is not None:
            made[_SINCE] = self.order.column(numbers, self._counts)
        return made

    def _last_declared(self, done: int) -> dict[str, Field]:
        listed = {} if self.order is None else {_SINCE: Field(pa.int64(), least=0, optional=True)}
        return super()._last_declared(done) | listed

    def _restore_groups(self, groups: pa.Table) -> None:
        super()._restore_groups(groups)
        if self.order is not None:
            column = groups[_SINCE].combine_chunks() if _SINCE in groups.column_names else None
            self.order.restore(column, groups.num_rows)

    def _renumber(self, numbers: Any, left: Any) -> None:
        super()._renumber(numbers, left)
        if self.order is not None:
            self.order.renumber(left)


def first_of_groups(codes: Any, device: Device) -> Any:
    """int64: the first row of each group, in order.

    Args:
        codes: int32 group of each row.
        device: Where arrays live.
    """
    kernels, order = device.kernels, np.argsort(codes, kind="stable")
    return np.sort(kernels.take(order, kernels.keep(run_starts(kernels.take(codes, order)))))
