"""What a running window remembers of an order: per group the codes of what is alive, however much comes and goes.

From one CTI to the next so many events of a group come and so many go. A quantile moves by no more places than that. So
of all that was alive throughout, a step needs the codes around the rank that it asks for, and how many are before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_tables import MANY, Field, StateTable
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, grown, known_at

_WEIGHT = ("order", "weight")


class OrderStatistics(RowRuns):
    """Codes by group, in runs: rows of a group, a code (low) and a weight, each pair once.

    What goes is written down as what comes, with a weight of its own: the two cancel where their runs are merged. So
    a code is moved as often as the logarithm of how many there are. All runs stand one behind the other in arrays
    beside, to be searched at once.

    Args:
        device: Where arrays live.
    """

    _factor = 4

    def __init__(self, device: Device) -> None:
        super().__init__(("group", "low"), device)
        none = device.columns.array(np.zeros(0, np.int64))
        self._none = AxisRows(none.astype(np.int32), none, none, {_WEIGHT: Column((none,), None)})
        self._beside = [none.astype(np.int32), none, none, none]
        self._placed: list[Run[AxisRows]] = []
        self._counts = none
        self._coming: list[tuple[Any, Any]] = []

    def go(self, codes: Any, values: Any) -> None:
        """Some codes are gone, and those that were to come are there.

        Args:
            codes: int32 groups.
            values: int64 codes.
        """
        pieces = [*self._coming, (codes, values)]
        self._coming = []
        came = sum(len(each) for each, _ in pieces[:-1])
        codes, values = (np.concatenate([piece[at] for piece in pieces]) for at in (0, 1))
        weights = np.ones_like(values)
        weights[came:] = -1
        if not len(codes):
            return
        self._counts = grown(self._counts, int(codes.max()) + 1)
        groups, at = np.unique(codes, return_inverse=True)
        every = self._device.columns.array(np.arange(len(groups)))
        self._counts[groups] += self._device.kernels.range_sum(weights, at, at + 1, len(groups), every)
        self.add(AxisRows(codes, values, values, {_WEIGHT: Column((weights,), None)}))

    def come(self, codes: Any, values: Any) -> None:
        """Some codes are there from now on."""
        if len(codes):
            self._coming.append((codes, values))

    def counts(self, groups: Any) -> Any:
        """How many codes some groups have, without those that are to come; int64 groups."""
        return known_at(self._counts, groups, self._device)

    def between(self, groups: Any, low: Any, high: Any) -> tuple[Any, Any]:
        """(which query, code) of all codes of some groups whose rank is within some bounds, in order.

        Args:
            groups: int32 group of each query.
            low: int64 rank of the first code asked for.
            high: One past that of the last one, no more than there are.
        """
        kernels, array = self._device.kernels, self._device.columns.array
        runs = len(self.runs)
        if not runs:
            return low[:0], low[:0]
        bounds = self._bounds()
        codes, values, weights, sums = (each[: bounds[-1]] for each in self._all())
        begins, ends, before = kernels.runs_between(codes, values, sums, array(np.array(bounds)), groups, low, high)
        source, offset = kernels.expand(ends - begins)
        at, query = kernels.take(begins, source) + offset, source // runs
        rows = AxisRows(
            query.astype(np.int32),
            kernels.take(values, at),
            query,
            {_WEIGHT: Column((kernels.take(weights, at),), None)},
        )
        found = self._ordered(rows)
        query, weights = found.code.astype(np.int64), _weights(found)
        upto = np.cumsum(weights)
        first = np.searchsorted(found.code, found.code).astype(np.int64, copy=False)
        after = kernels.take(before, query) + upto - kernels.take(upto - weights, first)
        # Equal codes at either end are there as often as their ranks are asked for.
        begin = np.maximum(after - weights, kernels.take(low, query))
        count = np.minimum(after, kernels.take(high, query)) - begin
        source, _ = kernels.expand(np.maximum(count, 0))
        return kernels.take(query, source), kernels.take(found.low, source)

    def _bounds(self) -> list[int]:
        return list(accumulate((len(run.rows) for run in self.runs), initial=0))

    def _all(self) -> list[Any]:
        """The groups, codes, weights and sums of weights of all runs, one behind the other; new ones are written."""
        pairs, bounds = zip(self._placed, self.runs, strict=False), self._bounds()
        same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        if bounds[-1] > len(self._beside[0]):
            self._beside = [grown(each[: bounds[same]], bounds[-1]) for each in self._beside]
        for run, low, high in zip(self.runs[same:], bounds[same:], bounds[same + 1 :], strict=False):
            rows, weights = run.rows, _weights(run.rows)
            for each, part in zip(self._beside, (rows.code, rows.low, weights, np.cumsum(weights)), strict=True):
                each[low:high] = part
        self._placed = list(self.runs)
        return self._beside

    def _ordered(self, rows: AxisRows) -> AxisRows:
        return self._distinct(super()._ordered(rows))

    def _merged(self, pieces: Sequence[AxisRows]) -> AxisRows:
        return self._distinct(super()._merged(pieces))

    def _distinct(self, rows: AxisRows) -> AxisRows:
        """Rows in order, one for each pair of group and code, and none for what has come as often as it has gone."""
        if not len(rows):
            return rows
        kernels, weights = self._device.kernels, _weights(rows)
        last = np.ones_like(rows.code, dtype=np.bool_)
        last[:-1] = (rows.code[1:] != rows.code[:-1]) | (rows.low[1:] != rows.low[:-1])
        if bool(last.all()):
            some = weights != 0
            return rows if bool(some.all()) else rows.take(kernels.keep(some), self._device)
        at = kernels.keep(last)
        sums = kernels.take(np.cumsum(weights), at)
        weights = np.concatenate([sums[:1], sums[1:] - sums[:-1]])
        some = kernels.keep(weights != 0)
        rows = rows.take(kernels.take(at, some), self._device)
        return replace(rows, columns={_WEIGHT: Column((kernels.take(weights, some),), None)})

    # The state, to be looked at and kept

    def rows(self) -> AxisRows | None:
        """All rows as one run; None if there are none."""
        self.go(self._none.code, self._none.low)
        whole = self._merged(self.pieces() or [self._none])
        return whole if len(whole) else None

    def table(self) -> pa.Table | None:
        """For each group (int32) its codes, and how often each is there; None if there are none."""
        rows, host = self.rows(), self._device.columns.host
        if rows is None:
            return None
        made = {"group": rows.code, "code": rows.low, "count": _weights(rows)}
        return pa.table({name: pa.array(host(each).copy()) for name, each in made.items()})

    @staticmethod
    def declared(name: str, groups: int) -> StateTable:
        """The table that `table` gives."""
        columns = {
            "group": Field(pa.int32(), least=0, most=groups - 1),
            "code": Field(pa.int64()),
            "count": Field(pa.int64(), least=1, most=MANY),
        }
        return StateTable(name, columns, unique=("group", "code"))

    def restore(self, table: pa.Table) -> None:
        """What `table` gave, in any order."""
        array = self._device.columns.array
        codes, values, weights = (array(table[name].to_numpy().copy()) for name in ("group", "code", "count"))
        self._begin(self._ordered(AxisRows(codes, values, values, {_WEIGHT: Column((weights,), None)})))

    def renumber(self, numbers: Any) -> None:
        """Give each group ``g`` the number ``numbers[g]``; groups without codes have none. Their order stays."""
        rows = self.rows() or self._none
        self._begin(replace(rows, code=numbers[rows.code]))

    def _begin(self, rows: AxisRows) -> None:
        self.replace([rows] if len(rows) else [])
        groups = int(rows.code.max()) + 1 if len(rows) else 0
        every, code = self._device.columns.array(np.arange(groups)), rows.code.astype(np.int64)
        self._counts = self._device.kernels.range_sum(_weights(rows), code, code + 1, groups, every)


def _weights(rows: AxisRows) -> Any:
    return rows.columns[_WEIGHT].arrays[0]
