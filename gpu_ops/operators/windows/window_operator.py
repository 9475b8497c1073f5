"""What the operators of windows over time have in common: the batch, places on a window's axis, what a CTI settles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_tables import Field, Mask, RowRule, StateTable
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import column_name
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, StepInput, of_whole_groups
from gpu_ops.operators.state.fields import AFTER, BEFORE, group_columns
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import Oldest, shown_time
from gpu_ops.operators.windows import calendars
from gpu_ops.operators.windows.windows import window_aggregate
from gpu_ops.plan.windows import WindowAggregate

_MANY_WINDOWS = 1 << 22
"""In so many windows an event of an untrusted checkpoint may be, each of which is a result: all days that there are."""


class WindowOperator(IncrementalOperator, family=True):
    """A window node: of each group it knows its last boundary, up to which its results are given.

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
        """All that was lowered: the key, and what the aggregates read; a count of all rows reads nothing."""
        reads = self._node.group or any(each.reads for each in self._node.aggregates)
        return [tuple(self._schema.names) if reads else ()]

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Blocks of whole groups."""
        for events in of_whole_groups(self._node.input, self._node.group, whole.inputs[0], self._device):
            yield from window_aggregate(self._node, events, self._device)

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        limit = self._limit(cti)
        opened, closed = (concat(each, self._device) for each in (given[0].opened, given[0].closed))
        touched, results = self._settled(events[0], opened, closed, limit)
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
        """(int64 groups in which something begins or ends, the results that a place on the axis makes final).

        Args:
            events: What has come since the last step; no start is before that step's CTI.
            opened: Events whose ends are not known yet, likewise; their ends are not looked at.
            closed: Events that were opened in earlier steps, with their ends, which are not before the CTI of the last.
            limit: The place.
        """

    @property
    @abstractmethod
    def _counts(self) -> Any:
        """How many rows are alive of each group."""

    def _limit(self, cti: int) -> int:
        """A CTI's place on the window's axis: results up to there are final."""
        grid = self._node.window.grid
        if grid is None:
            return cti
        if cti == MAX_TIME:
            return AFTER - 1
        if cti < MIN_TIME:
            return BEFORE + 1
        regular = grid.regular
        if regular is None:
            return calendars.first_open(grid, cti)
        align = regular.align - regular.size + 1 if regular.membership == "start" else regular.align
        return (cti - regular.size - align) // regular.hop + 1

    def _output_cti(self, cti: int) -> int:
        """The CTI behind it: of a grid whose results are given up to a window no later one begins before that one."""
        grid, done = self._node.window.grid, self._done
        if grid is None:
            oldest = self._oldest.place(self._last, self._counts)
            return cti if oldest is None else min(cti, oldest)
        if not BEFORE + 1 < done < AFTER - 1:
            return cti
        regular = grid.regular
        if regular is None:
            return max(MIN_TIME, min(cti, calendars.begin_of(grid, done)))
        return max(MIN_TIME, min(cti, regular.align + done * regular.hop + regular.lifetime[0]))

    # The state, to be looked at and kept

    @property
    def _axis(self) -> pa.DataType:
        return TIME_TYPE if self._node.window.grid is None else pa.int64()

    def _shown(self, places: Any) -> pa.Array:
        return shown_time(places) if self._node.window.grid is None else to_arrow(places, pa.int64())

    def _group_columns(self, count: int) -> dict[str, Any]:
        return {"last": self._shown(self._device.columns.host(self._last[:count]).copy())}

    def _groups_declared(self, done: int, columns: dict[str, Field], rules: tuple[RowRule, ...] = ()) -> StateTable:
        """The table of groups, with these columns and rules beside what all windows know of one."""
        # Of a group of which nothing has begun its last boundary is 0.
        last = {"last": Field(self._axis, least=BEFORE, most=max(done, 0))}
        keys = group_columns(self._node.group, self._schema)
        rows = None if keys else 1
        return StateTable("groups", last | columns | keys, rows, required=True, unique=tuple(keys), rules=rules)

    def _few_windows(self, done: int) -> tuple[RowRule, ...]:
        """What is doubted of rows: that one has millions of results to come."""
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
