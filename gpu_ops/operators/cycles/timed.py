"""Windows of time whose rows come in at once: when each leaves is known as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.cycles import CYCLE, MS
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.core.types import storage
from gpu_ops.devices import Device
from gpu_ops.errors import ColumnError
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import in_order, order_in_places
from gpu_ops.operators.state.fields import NUMBERED_TIME, row_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, rows_from_arrow
from gpu_ops.plan.cycles import TimedWindow

_FAR = 1 << 46
"""Milliseconds: further away than any place."""


_PLACE = ("row", "place")
"""The column of the places at which kept rows came, of which the least is asked for."""


class TimedWindowOperator(OnTicks, nodes=(TimedWindow,)):
    """Rows with their ends. Only where these may come later they are kept until then.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: TimedWindow

    def __init__(self, node: TimedWindow, device: Device) -> None:
        super().__init__(node, device)
        self._waiting = WaitingPoints("waiting", node.rows.schema, device)
        self._kept = RowRuns(("high",), device)
        self._opens = False

    gives_open = True

    def open(self) -> None:
        """Emit rows as soon as they enter, and again when they leave."""
        self._opens = True

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows that came, and those that left.

        Raises:
            ColumnError: A row has no time of its own.
        """
        (cti,), device = ctis, self._device
        fresh = self._waiting.before(cti, given[0].events)
        left, opened = [self._given(each) for each in self._kept.due(cti - 1)], list[Events]()
        made = [] if self._opens else left
        if fresh is not None:
            coming = self._timed(fresh)
            if cti == MAX_TIME:
                made.append(coming)
            else:
                made += [each for each in [coming.where(coming.end < cti, device)] if len(each)]
                stays = coming.where(coming.end >= cti, device)
                code, begins = np.zeros_like(stays.start, dtype=np.int32), {_PLACE: Column((stays.start,), None)}
                self._kept.add(AxisRows(code, stays.start, stays.end, begins, stays.frame))
                opened = [replace(stays, end=TICK)] if self._opens and len(stays) else []
        if cti == MAX_TIME:
            rest = self._kept.pieces()
            made += [] if self._opens else [self._given(each) for each in rest]
            self._kept.replace([])
        floor = None if self._opens or cti == MAX_TIME else self._kept.least(_PLACE)
        return StepInput(made, opened, left if self._opens else []), cti if floor is None else min(cti, floor)

    def _given(self, rows: AxisRows) -> Events:
        return Events(rows.low, rows.high, rows.frame)

    def _timed(self, rows: Events) -> Events:
        """Rows in order, with the places at which they leave."""
        columns, device = self._device.columns, self._device
        names = [name for name in rows.frame.columns if name in self._node.schema.names]
        rows = replace(rows, frame=columns.select(rows.frame, names))
        number = columns.values(rows.frame, PLACE)[0]
        if not in_order([rows.start, number]):
            rows = rows.take(order_in_places(rows.start, [number], device), device)
        return Events(rows.start, self._ends(rows), rows.frame)

    def _ends(self, rows: Events) -> Any:
        """int64: where each row leaves; one that came too late is there for one cycle."""
        schedule, stamps, span = self._node.schedule, self._stamps(rows.frame), self._node.span
        least, most = self._device.kernels.extent(stamps)
        if least < -_FAR or most + span > _FAR:
            # Beyond the last place, or before the first.
            stamps = np.minimum(np.maximum(stamps, -_FAR), max(0, _FAR - span))
        due = np.minimum(schedule.places(schedule.runs(stamps + min(span, _FAR))), MAX_TIME)
        late = due <= rows.start
        if not bool(late.any()):
            return due
        follows = rows.start + CYCLE
        if schedule.every:
            follows = schedule.places(schedule.runs(schedule.clocks(rows.start) + 1))
        return np.where(late, follows, due)

    def _stamps(self, frame: Any) -> Any:
        """int64 milliseconds: the rows' own times."""
        columns, name = self._device.columns, self._node.stamp
        values, valid = columns.values(frame, name)
        found = values.astype(np.int64, copy=False)
        if valid is not None and not bool(valid.all()):
            row = int(np.argmin(columns.host(valid)))
            raise ColumnError("A row has no time of its own.", column=name, row=row, remedy="Filter it out first.")
        return found // MS if pa.types.is_timestamp(storage(self._node.rows.schema.field(name).type)) else found

    # State

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return [self._waiting]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return self.waiting + len(self._kept)

    def tables(self) -> dict[str, pa.Table]:
        """What waits, and the rows that are in."""
        made, rows = super().tables(), self._kept.rows()
        if rows is not None:
            made["inside"] = replace(rows, columns={}).to_arrow(self._node.schema, self._device, pa.array)
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        names = {*tables["inside"].column_names} if "inside" in tables else set()
        frame = pa.schema([each for each in self._node.schema if f"{each.name}.frame" in names])
        yield StateTable("inside", row_columns(NUMBERED_TIME, replace(NUMBERED_TIME, above="low"), 1, frame=frame))

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if "inside" in tables:
            rows = rows_from_arrow(tables["inside"], self._device)
            self._kept.put_back(replace(rows, columns={_PLACE: Column((rows.low,), None)}))
