"""Alerts: what comes into partitions and leaves them becomes changes of values, and what fires becomes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.devices.cpu import alerts as m
from gpu_ops.operators.events import Events
from gpu_ops.operators.ledger.waiting import OnTicks, WaitingPoints
from gpu_ops.operators.operator import Operator, StepInput
from gpu_ops.operators.row_order import in_order
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.rows import GroupInterner
from gpu_ops.plan.alerts import Alerts

_VALUE = "@value"
_SMALL = 1 << 12
"""So many rows are kept before anybody looks which of them are needed."""


_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)
"""No changes."""


class AlertsOperator(OnTicks, nodes=(Alerts,)):
    """All changes of a step, value by value. The walk runs on the host, whatever the device.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Alerts

    def __init__(self, node: Alerts, device: Device) -> None:
        super().__init__(node, device)
        count = len(node.sources)
        schemas = [
            pa.schema([each.schema.field(name) for name in node.kept(at)]) for at, each in enumerate(node.sources)
        ]
        values = pa.schema([schemas[0].field(node.on[0]).with_name(_VALUE).with_nullable(True)])
        self._schemas = schemas
        self._coming = [WaitingPoints(f"coming {at}", each, device) for at, each in enumerate(schemas)]
        self._leaving = [WaitingPoints(f"leaving {at}", values, device) for at in range(count)]
        self._values = GroupInterner((_VALUE,), values, device)
        self._one_value = values
        self._patterns = np.array(
            [
                [sum(1 << at for at in each.wanted), sum(1 << at for at in (*each.wanted, *each.absent))]
                for each in node.patterns
            ],
            np.int64,
        )
        self._there = np.zeros(0, np.int64)
        self._states = np.zeros((0, len(node.patterns)), np.int64)
        self._latest = np.zeros((0, count), np.int64)
        self._moved = np.zeros((0, 2), np.int64)
        self._rows = [device.columns.from_arrow(empty_table(each)) for each in schemas]
        self._counts, self._looked_at = [0] * count, _SMALL

    def opens(self, at: int) -> bool:
        """It takes open rows of each partition."""
        return True

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's start and end as they come."""
        return self

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """What fires before the oldest CTI."""
        cti = min(ctis)
        come = [self._come(at, fed, cti) for at, fed in enumerate(given)]
        # A value that is unknown when all that come are known is nowhere: nothing changes where it leaves.
        stretches = [*(self._gone(at, fed, cti) for at, fed in enumerate(given)), *come]
        lengths = [len(place) for place, _, _ in stretches]
        made = []
        if count := sum(lengths):
            place, value, row = (np.concatenate(each) for each in zip(*stretches, strict=True))
            self._make_room()
            sources = len(given)
            # Memory that nobody writes costs nothing.
            fired = np.empty((count * len(self._patterns), m.FIRST + sources), np.int64)
            fires = m.fired(
                place, value, row, np.cumsum([0, *lengths]), self._patterns, self._there, self._states, self._latest,
                np.empty(2 * sources, np.int64), np.empty(2 * sources, np.int64), self._moved,
                np.empty(count, np.int64), fired,
            )  # fmt: skip
            if fires:
                made.append(self._fired(fired[:fires]))
        if cti == MAX_TIME or sum(self._counts) > 2 * self._looked_at:
            self._compact(ends=cti == MAX_TIME)
        return StepInput(made), cti

    def _come(self, at: int, fed: StepInput, cti: int) -> tuple[Any, Any, Any]:
        """(place, value, number) of the rows that come to a partition, by their places."""
        device, name, kept = self._device, self._node.on[at], list(self._schemas[at].names)
        columns, host = device.columns, device.columns.host
        begun = [
            Events(each.start, TICK, columns.select(each.frame, kept))
            for each in (*fed.events, *fed.opened)
            if len(each)
        ]
        come = self._coming[at].before(cti, begun)
        if come is None:
            return _NOTHING
        order = [host(come.start), host(columns.values(come.frame, PLACE)[0])]
        if not in_order(order):
            come = come.take(columns.array(np.lexsort(order[::-1])), device)
        number = np.arange(self._counts[at], self._counts[at] + len(come))
        frame = columns.select(come.frame, kept)
        self._rows[at] = columns.concat([self._rows[at], frame]) if self._counts[at] else frame
        self._counts[at] += len(come)
        value = columns.rename(columns.select(come.frame, [name]), name, _VALUE)
        return host(come.start), self._codes(value, self._values.codes(value)), number

    def _gone(self, at: int, fed: StepInput, cti: int) -> tuple[Any, Any, Any]:
        """The same of the rows that leave it, which have no numbers."""
        device, name = self._device, self._node.on[at]
        columns = device.columns
        ended = [
            Events(each.ends, TICK, columns.rename(columns.select(each.frame, [name]), name, _VALUE)).where(
                each.ends < MAX_TIME, device
            )
            for each in (*fed.events, *fed.closed)
            if len(each)
        ]
        gone = self._leaving[at].before(cti, [each for each in ended if len(each)])
        if gone is None:
            return _NOTHING
        if not device.kernels.ascends(gone.start):
            gone = gone.take(np.argsort(gone.start, kind="stable"), device)
        codes = self._codes(gone.frame, self._values.known(gone.frame))
        return columns.host(gone.start), codes, np.empty(len(gone), np.int64)

    def _codes(self, frame: Any, found: Any) -> Any:
        """Host int32 number of each value; -1 for null, which equals nothing."""
        columns = self._device.columns
        codes, valid = columns.host(found), columns.validity(frame, _VALUE)
        return codes if valid is None else np.where(columns.host(valid), codes, np.int32(-1))

    def _make_room(self) -> None:
        size = len(self._values)
        if len(self._there) >= size:
            return
        size = max(size, 2 * len(self._there))
        for name in ("_there", "_states", "_latest"):
            before = getattr(self, name)
            made = np.zeros((size, *before.shape[1:]), np.int64)
            made[: len(before)] = before
            setattr(self, name, made)
        self._moved = np.zeros((size, 2), np.int64)

    def _fired(self, rows: Any) -> Events:
        columns, node = self._device.columns, self._node
        frames = []
        for each in node.columns:
            at = rows[:, m.FIRST + each.source]
            there = at >= 0
            own = columns.select(self._rows[each.source], [each.column])
            if not self._counts[each.source]:
                found = columns.nulls(own, len(at))
            else:
                found = columns.take(own, columns.array(np.maximum(at, 0)))
                if not there.all():
                    found = columns.null_where(found, columns.array(there))
            frames.append(columns.rename(found, each.column, each.name))
        return Events(columns.array(np.ascontiguousarray(rows[:, m.PLACE])), TICK, columns.beside(*frames))

    def _compact(self, *, ends: bool = False) -> None:
        """Keep what is needed of values that are there; at the end of time nothing."""
        columns = self._device.columns
        if ends:
            self._there[:] = 0
        count = len(self._values)
        self._make_room()
        if self._values.crowded:
            numbers = self._values.forget(self._there[:count] != 0)
            if numbers is not None:
                left = np.flatnonzero(self._there[:count])
                self._there, self._states, self._latest = (
                    each[left] for each in (self._there, self._states, self._latest)
                )
        for at, before in enumerate(self._counts):
            is_there = (self._there >> at & 1).astype(np.bool_)
            self._latest[~is_there, at] = 0  # nobody asks for a row that is gone
            mine = np.flatnonzero(is_there)
            kept = np.unique(self._latest[mine, at])
            if len(kept) < before:
                self._latest[mine, at] = np.searchsorted(kept, self._latest[mine, at])
                self._rows[at] = columns.take(self._rows[at], columns.array(kept))
                self._counts[at] = len(kept)
        self._looked_at = max(_SMALL, sum(self._counts))

    # State

    @property
    def parts(self) -> list[Any]:
        """What waits."""
        return [*self._coming, *self._leaving]

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return self.waiting + sum(self._counts)

    def tables(self) -> dict[str, pa.Table]:
        """What waits, the values with their states, and the rows that may be shown."""
        self._compact()
        made, count = super().tables(), len(self._values)
        own = {"there": self._there[:count]}
        own |= {f"state {at}": self._states[:count, at] for at in range(self._states.shape[1])}
        own |= {f"row {at}": self._latest[:count, at] for at in range(self._latest.shape[1])}
        made["values"] = pa.table({name: pa.array(np.ascontiguousarray(each)) for name, each in own.items()})
        if self._values.keys is not None:
            made["names"] = self._device.columns.to_arrow(self._values.keys, self._one_value)
        for at, schema in enumerate(self._schemas):
            made[f"rows {at}"] = self._device.columns.to_arrow(self._rows[at], schema)
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from super().declared(tables)
        yield StateTable("names", nullable_columns(self._one_value, ""), unique=(_VALUE,))
        values = tables["names"].num_rows if "names" in tables else 0
        columns = {"there": Field(pa.int64(), least=0, most=(1 << len(self._schemas)) - 1)}
        for at in range(len(self._patterns)):
            columns[f"state {at}"] = Field(pa.int64(), least=m.WAITS, most=m.DONE)
        for at in range(len(self._schemas)):
            rows = tables[f"rows {at}"].num_rows if f"rows {at}" in tables else 0
            columns[f"row {at}"] = Field(pa.int64(), least=0, most=max(rows - 1, 0))
        for at, schema in enumerate(self._schemas):
            yield StateTable(f"rows {at}", nullable_columns(schema, ""), required=True)
        yield StateTable("values", columns, rows=values, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        columns = self._device.columns
        if "names" in tables:
            self._values.restore(columns.from_arrow(tables["names"]))
        values = tables["values"]
        self._make_room()
        size = values.num_rows
        self._there[:size] = values["there"].to_numpy()
        for at in range(self._states.shape[1]):
            self._states[:size, at] = values[f"state {at}"].to_numpy()
        for at in range(self._latest.shape[1]):
            self._latest[:size, at] = values[f"row {at}"].to_numpy()
            self._rows[at] = columns.from_arrow(tables[f"rows {at}"])
            self._counts[at] = tables[f"rows {at}"].num_rows
