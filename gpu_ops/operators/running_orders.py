"""What a running window remembers of an order: per group the codes of what is alive, however much comes and goes.

From one CTI to the next so many events of a group come and so many go. A quantile moves by no more places than that. So
of all that was alive throughout, a step needs the codes around the rank that it asks for, and how many are before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import Column
from gpu_ops.operators.alive import ordered
from gpu_ops.operators.running_blocks import grown
from gpu_ops.operators.state import Rows
from gpu_ops.state_tables import MANY, Field, StateTable

_WEIGHT = ("order", "weight")


@dataclass
class _Run:
    """Distinct pairs of a group and a code, in order, and how often each came less how often it went."""

    codes: Any
    values: Any
    weights: Any

    def __len__(self) -> int:
        return len(self.codes)


class Orders:
    """Codes by group, in runs one behind the other, each more than four times as long as the next.

    What goes is written down as what comes, with a weight of its own: the two cancel where their runs are merged. So
    a code is moved as often as the logarithm of how many there are.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        none = device.columns.array(np.zeros(0, np.int64))
        self._codes, self._values, self._sums = none.astype(np.int32), none, none
        self._weights = none
        self._bounds = [0]
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
        rows = Rows(codes, values, values, {_WEIGHT: Column((weights,), None)})
        self._append(self._as_run(rows))

    def come(self, codes: Any, values: Any) -> None:
        """Some codes are there from now on."""
        if len(codes):
            self._coming.append((codes, values))

    def counts(self, groups: Any) -> Any:
        """How many codes some groups have, without those that are to come; int64 groups."""
        known = len(self._counts)
        if not known:
            return np.zeros_like(groups)
        return np.where(groups < known, self._device.kernels.take(self._counts, np.minimum(groups, known - 1)), 0)

    def between(self, groups: Any, low: Any, high: Any) -> tuple[Any, Any]:
        """(which query, code) of all codes of some groups whose rank is within some bounds, in order.

        Args:
            groups: int32 group of each query.
            low: int64 rank of the first code asked for.
            high: One past that of the last one, no more than there are.
        """
        kernels, array = self._device.kernels, self._device.columns.array
        runs, end = len(self._bounds) - 1, self._bounds[-1]
        if not runs:
            return low[:0], low[:0]
        codes, values, sums = (each[:end] for each in (self._codes, self._values, self._sums))
        begins, ends, before = kernels.runs_between(
            codes, values, sums, array(np.array(self._bounds)), groups, low, high
        )
        source, offset = kernels.expand(ends - begins)
        at, query = kernels.take(begins, source) + offset, source // runs
        rows = Rows(
            query.astype(np.int32),
            kernels.take(values, at),
            query,
            {_WEIGHT: Column((kernels.take(self._weights, at),), None)},
        )
        run = self._as_run(rows)
        query = run.codes.astype(np.int64)
        upto = np.cumsum(run.weights)
        first = np.searchsorted(run.codes, run.codes).astype(np.int64, copy=False)
        after = kernels.take(before, query) + upto - kernels.take(upto - run.weights, first)
        # Equal codes at either end are there as often as their ranks are asked for.
        begin = np.maximum(after - run.weights, kernels.take(low, query))
        count = np.minimum(after, kernels.take(high, query)) - begin
        source, _ = kernels.expand(np.maximum(count, 0))
        return kernels.take(query, source), kernels.take(run.values, source)

    def _append(self, run: _Run) -> None:
        while len(self._bounds) > 1 and self._bounds[-1] - self._bounds[-2] < 4 * len(run):
            low, high = self._bounds[-2:]
            before = _Run(self._codes[low:high], self._values[low:high], self._weights[low:high])
            self._bounds.pop()
            run = self._merged(before, run)
        if not len(run):
            return
        low = self._bounds[-1]
        high = low + len(run)
        if high > len(self._codes):
            self._codes, self._values, self._weights, self._sums = (
                grown(each[:low], high) for each in (self._codes, self._values, self._weights, self._sums)
            )
        self._codes[low:high], self._values[low:high], self._weights[low:high] = run.codes, run.values, run.weights
        self._sums[low:high] = np.cumsum(run.weights)
        self._bounds.append(high)

    def _merged(self, early: _Run, late: _Run) -> _Run:
        before = self._device.kernels.search_pairs(early.codes, early.values, late.codes, late.values)
        at = before + self._device.columns.array(np.arange(len(late)))
        is_early = np.ones_like(early.codes, shape=len(early) + len(late), dtype=np.bool_)
        is_early[at] = False
        places = self._device.kernels.keep(is_early)
        made = []
        for one, other in zip(
            (early.codes, early.values, early.weights), (late.codes, late.values, late.weights), strict=True
        ):
            both = np.empty_like(one, shape=len(is_early))
            both[places], both[at] = one, other
            made.append(both)
        return self._distinct(_Run(*made))

    def _as_run(self, rows: Rows) -> _Run:
        """Rows of a group (code), a code (low) and a weight, in any order."""
        if len(rows):
            rows = ordered(rows, "low", self._device)
        return self._distinct(_Run(rows.code, rows.low, rows.columns[_WEIGHT].arrays[0]))

    def _distinct(self, run: _Run) -> _Run:
        """A run in order, with one row for each pair, and none for what has come as often as it has gone."""
        if not len(run):
            return run
        kernels = self._device.kernels
        last = np.ones_like(run.codes, dtype=np.bool_)
        last[:-1] = (run.codes[1:] != run.codes[:-1]) | (run.values[1:] != run.values[:-1])
        if bool(last.all()):
            if bool((run.weights != 0).all()):
                return run
            at, weights = kernels.keep(run.weights != 0), run.weights
            return _Run(kernels.take(run.codes, at), kernels.take(run.values, at), kernels.take(weights, at))
        at = kernels.keep(last)
        sums = kernels.take(np.cumsum(run.weights), at)
        weights = np.concatenate([sums[:1], sums[1:] - sums[:-1]])
        some = kernels.keep(weights != 0)
        at = kernels.take(at, some)
        return _Run(kernels.take(run.codes, at), kernels.take(run.values, at), kernels.take(weights, some))

    # The state, to be looked at and kept

    def _whole(self) -> _Run:
        """All that is there."""
        self.go(self._codes[:0], self._values[:0])
        whole = _Run(self._codes[:0], self._values[:0], self._weights[:0])
        for low, high in reversed(list(zip(self._bounds[:-1], self._bounds[1:], strict=True))):
            whole = self._merged(_Run(self._codes[low:high], self._values[low:high], self._weights[low:high]), whole)
        return whole

    def table(self) -> pa.Table | None:
        """For each group (int32) its codes, and how often each is there; None if there are none."""
        whole = self._whole()
        if not len(whole):
            return None
        host = self._device.columns.host
        return pa.table(
            {
                "group": pa.array(host(whole.codes).copy()),
                "code": pa.array(host(whole.values).copy()),
                "count": pa.array(host(whole.weights).copy()),
            }
        )

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
        self._replace(self._as_run(Rows(codes, values, values, {_WEIGHT: Column((weights,), None)})))

    def renumber(self, numbers: Any) -> None:
        """Give each group ``g`` the number ``numbers[g]``; groups without codes have none. Their order stays."""
        whole = self._whole()
        self._replace(_Run(numbers[whole.codes], whole.values, whole.weights))

    def _replace(self, run: _Run) -> None:
        self._bounds, self._coming = [0], []
        groups = int(run.codes.max()) + 1 if len(run) else 0
        every = self._device.columns.array(np.arange(groups))
        code = run.codes.astype(np.int64)
        self._counts = self._device.kernels.range_sum(run.weights, code, code + 1, groups, every)
        self._append(run)
