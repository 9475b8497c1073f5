"""The base of windows over time: the batch, places on a window's axis, and the places that a CTI makes final."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_tables import Field, Mask, RowRule
from gpu_ops.core.threads import ordered_map
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import column_name
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, StepInput, of_whole_groups
from gpu_ops.operators.state.fields import AFTER, BEFORE
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, Oldest, known_at, shown_time
from gpu_ops.operators.windows import grids
from gpu_ops.operators.windows.windows import check_open, window_aggregate
from gpu_ops.plan.windows import WindowAggregate

_MANY_WINDOWS = 1 << 22
"""The most windows, and so results, of one event of an untrusted checkpoint: more than all days of 9,999 years."""


class WindowOperator(IncrementalOperator, family=True):
    """A window node. It knows the last boundary of each group, up to which results are given.

    Args:
        node: The node, lowered to plain columns.
        device: Where arrays live.
        runs: As in `IncrementalOperator`.
    """

    _node: WindowAggregate

    def __init__(self, node: WindowAggregate, device: Device, runs: dict[str, RowRuns]) -> None:
        super().__init__(node, node.group, node.input.schema, device, runs, BEFORE)
        self._oldest = Oldest(device)

    @cached_property
    def _last(self) -> Any:
        """int64 place of each group's last boundary. A batch, which asks for none, uploads nothing for it."""
        return self._device.columns.array(np.zeros(0, np.int64))

    @property
    def _reads(self) -> list[str]:
        """The columns that its aggregates read."""
        return list(dict.fromkeys(column_name(each) for one in self._node.aggregates for each in one.reads))

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The key and the columns that aggregates read; a count of all rows reads none."""
        reads = self._node.group or any(each.reads for each in self._node.aggregates)
        return [tuple(self._schema.names) if reads else ()]

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Blocks of whole groups."""
        node, device, size = self._node, self._device, self._device.block_rows
        given = of_whole_groups(node.input, node.group, whole.inputs[0], device)
        # Pieces that are no larger than a block are computed several at a time, others block by block.
        for is_block, pieces in groupby(given, lambda events: size is not None and len(events) <= 2 * size):
            made = (window_aggregate(node, events, device) for events in pieces)
            for results in ordered_map(device.threads, list, made) if is_block else made:
                yield from results

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        limit = self._limit(cti)
        opened, closed = (concat(each, self._device) for each in (given[0].opened, given[0].closed))
        touched, results = self._settled(events[0], opened, closed, limit)
        self._changed(touched)
        if self._node.window.grid is None:
            rows = self._device.kernels.take(self._counts, touched)
            self._oldest.moved(touched[rows > 0], self._last)
        self._done = max(self._done, limit)
        self._forget()
        return StepInput(results), self._output_cti(cti)

    @abstractmethod
    def _settled(
        self, events: Events | None, opened: Events | None, closed: Events | None, limit: int
    ) -> tuple[Any, list[Events]]:
        """(int64 groups in which an event begins or ends, the results that are final up to a place on the axis).

        Args:
            events: New events; none starts before the last step's CTI.
            opened: New events whose ends are not known yet; their ends are not read.
            closed: Events that were opened in earlier steps, with their ends, none before the last step's CTI.
            limit: The place.
        """

    @property
    @abstractmethod
    def _counts(self) -> Any:
        """How many rows of each group are alive."""

    def _on_axis(self, rows: AxisRows, events: Events, *, every: bool = False) -> AxisRows:
        """Rows of some events with their places. Those in no window are left out, unless every one is asked for."""
        grid, device = self._node.window.grid, self._device
        if grid is None:
            return replace(rows, low=events.start, high=events.ends)
        check_open(grid, events)
        if every:
            low, high = grids.overlapped(grid, events.start, events.end, device)
            return replace(rows, low=low, high=high)
        low, high, at = grids.windows_of(grid, events.start, events.end, device)
        return replace(rows if at is None else rows.take(at, device), low=low, high=high)

    def _keys_of(self, numbers: Any) -> Any | None:
        """A frame with the keys of some groups, by their numbers; None without a key."""
        return self._groups.keys_of(numbers)

    def _limit(self, cti: int) -> int:
        """A CTI's place on the window's axis: results up to there are final."""
        grid = self._node.window.grid
        if grid is None:
            return cti
        if cti == MAX_TIME:
            return AFTER - 1
        if cti < MIN_TIME:
            return BEFORE + 1
        return grids.first_open(grid, cti)

    def _output_cti(self, cti: int) -> int:
        """The output CTI: the oldest group's last boundary; on a grid the start of the first window without results."""
        grid, done = self._node.window.grid, self._done
        if grid is None:
            oldest = self._oldest.place(self._last, self._counts)
            return cti if oldest is None else min(cti, oldest)
        if not BEFORE + 1 < done < AFTER - 1:
            return cti
        return max(MIN_TIME, min(cti, grids.first_start(grid, done)))

    # The state, to be looked at and kept

    @property
    def _axis(self) -> pa.DataType:
        return TIME_TYPE if self._node.window.grid is None else pa.int64()

    def _shown(self, places: Any) -> pa.Array:
        return shown_time(places) if self._node.window.grid is None else to_arrow(places, pa.int64())

    def _group_columns(self, numbers: Any) -> dict[str, Any]:
        # Groups that were only asked for have a number, and no row yet.
        return {"last": self._shown(self._device.columns.host(known_at(self._last, numbers, self._device)))}

    def _last_declared(self, done: int) -> dict[str, Field]:
        """The column of last boundaries; a group in which nothing has begun has 0."""
        return {"last": Field(self._axis, least=BEFORE, most=max(done, 0))}

    def _few_windows(self, done: int) -> tuple[RowRule, ...]:
        """The rule that refuses rows with millions of results to come."""
        if self._node.window.grid is None:
            return ()

        def few(rows: pa.Table) -> Mask:
            low, high = (integers(rows[name].combine_chunks()) for name in ("low", "high"))
            return np.asarray((high == AFTER) | (high - np.maximum(low, done) <= _MANY_WINDOWS), np.bool_)

        return (RowRule("high", f"is more than {_MANY_WINDOWS:,} windows away: only trust=True lets it through", few),)

    def _restore_groups(self, groups: pa.Table) -> None:
        self._last = self._device.columns.array(integers(groups["last"].combine_chunks()).copy())

    def _renumber(self, numbers: Any, left: Any) -> None:
        self._oldest.forget()
        self._last = self._device.kernels.take(self._last, left)
