"""The order statistics of a running window: for each group the order codes of its live events.

Between two CTIs a quantile moves by at most as many places as events of its group begin or end. So of the events that
are alive throughout a step, the step needs only the codes around the rank it asks for, and how many codes are before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from gpu_ops.core.polars_frames import to_frame
from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_parts import StatePart
from gpu_ops.core.state_tables import MANY, Field, Mask, RowRule, StateTable
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.row_order import run_ends, sums_by
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, concat_rows, grown, known_at

_WEIGHT = ("order", "weight")

_GROUP, _CODE, _COUNT = "group", "code", "count"
"""The columns of its table."""


class OrderStatistics(RowRuns):
    """Codes by group, in runs: rows of a group, a code (low) and a weight, each pair of group and code once.

    A code that goes is added with a negative weight; when runs are merged, the two cancel. So each code is moved a
    logarithmic number of times. Copies of all runs stand one behind the other, to be searched together.

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
        """Remove some codes, and add those given to `come`.

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
        self._counts[groups] += sums_by(at, weights, len(groups), self._device)
        self.add(AxisRows(codes, values, values, {_WEIGHT: Column((weights,), None)}))

    def come(self, codes: Any, values: Any) -> None:
        """Add some codes at the next call of `go`."""
        if len(codes):
            self._coming.append((codes, values))

    def counts(self, groups: Any) -> Any:
        """How many codes some groups have, without those given to `come`; int64 groups."""
        return known_at(self._counts, groups, self._device)

    def between(self, groups: Any, low: Any, high: Any) -> tuple[Any, Any]:
        """(which query, code) of all codes in some ranges of ranks, in order.

        Args:
            groups: int32 group of each query.
            low: int64 rank of the first code asked for.
            high: One past the rank of the last code, at most the number of codes.
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
        # Equal codes at either end are repeated as often as their ranks are asked for.
        begin = np.maximum(after - weights, kernels.take(low, query))
        count = np.minimum(after, kernels.take(high, query)) - begin
        source, _ = kernels.expand(np.maximum(count, 0))
        return kernels.take(query, source), kernels.take(found.low, source)

    def _bounds(self) -> list[int]:
        return list(accumulate((len(run.rows) for run in self.runs), initial=0))

    def _all(self) -> list[Any]:
        """The groups, codes, weights and sums of weights of all runs, one behind the other; new runs are copied."""
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
        """Sorted rows, one for each pair of group and code; none for a pair whose weights cancel."""
        if not len(rows):
            return rows
        kernels, weights = self._device.kernels, _weights(rows)
        last = run_ends(rows.code, rows.low)
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
        self._take_in()
        whole = self._merged(self.pieces() or [self._none])
        return whole if len(whole) else None

    def _take_in(self) -> None:
        """Have what is to come."""
        self.go(self._none.code, self._none.low)

    def saved(self) -> list[StatePart]:
        """Groups (int32), codes and how often each is there, run by run; what goes again has a negative number."""
        self._take_in()
        return self.parts(self._table)

    def _table(self, rows: AxisRows) -> pa.Table:
        made = {_GROUP: rows.code, _CODE: rows.low, _COUNT: _weights(rows)}
        return pa.table({name: pa.array(self._device.columns.host(each).copy()) for name, each in made.items()})

    @staticmethod
    def declared(name: str, groups: int) -> StateTable:
        """The declaration of the table that `saved` makes up."""
        columns = {
            _GROUP: Field(pa.int32(), least=0, most=groups - 1),
            _CODE: Field(pa.int64()),
            _COUNT: Field(pa.int64(), least=-MANY, most=MANY),
        }
        return StateTable(name, columns, rules=(RowRule(_COUNT, "makes fewer than none of a code", _none_lacks),))

    def restore(self, parts: Sequence[StatePart], groups: int) -> None:
        """Restore what `saved` gave."""
        array, none = self._device.columns.array, self._none
        for part in parts:
            table = part.rows()
            codes, values, weights = (array(table[name].to_numpy().copy()) for name in (_GROUP, _CODE, _COUNT))
            rows = AxisRows(codes, values, values, {_WEIGHT: Column((weights,), None)})
            if part.name is None:
                self.put_back(rows)
            else:
                self.put_run_back(part, rows, groups)
        rows = concat_rows([none, *(run.rows for run in self.runs)], self._device)
        self._counts = sums_by(rows.code, _weights(rows), groups, self._device)

    def _is_run(self, rows: AxisRows, groups: int) -> bool:
        return super()._is_run(rows, groups) and bool(run_ends(rows.code, rows.low).all())

    def renumber(self, numbers: Any) -> None:
        """Give each group ``g`` the number ``numbers[g]``; groups without codes have none. Their order stays."""
        rows = self.rows() or self._none
        self._begin(replace(rows, code=numbers[rows.code]))

    def _begin(self, rows: AxisRows) -> None:
        self.replace([rows] if len(rows) else [])
        groups = int(rows.code.max()) + 1 if len(rows) else 0
        self._counts = sums_by(rows.code, _weights(rows), groups, self._device)


def _none_lacks(table: pa.Table) -> Mask:
    """Whether a code of a group is there at least never, all its rows together."""
    codes = to_frame(table)
    return codes.select(pl.col(_COUNT).sum().over(_GROUP, _CODE) >= 0).to_series().to_numpy()


def _weights(rows: AxisRows) -> Any:
    return rows.columns[_WEIGHT].arrays[0]
