"""Points that wait for a CTI past their places, and what operators that keep them have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers
from gpu_ops.core.numbered_runs import NumberedRuns
from gpu_ops.core.state_parts import Parts, in_parts
from gpu_ops.core.state_tables import MANY, Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import ARRIVED
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, TimeOrder, concat
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.state.fields import nullable_columns

_PREFIX = "row/"

_PIECES = 16
"""So many pieces of what waits there may be before they become one."""


class WaitingPoints:
    """The points of an input that wait.

    Args:
        name: What their table is called.
        schema: Their columns.
        device: Where arrays live.
    """

    def __init__(self, name: str, schema: pa.Schema, device: Device) -> None:
        self._name, self._schema, self._device = name, schema, device
        self._held: list[Events] = []

    def __len__(self) -> int:
        return sum(map(len, self._held))

    def hold(self, events: Events) -> None:
        """More of them wait."""
        self._held.append(events)

    def before(self, limit: int, events: Sequence[Events]) -> Events | None:
        """Those before a place, of those that waited and of new ones; the others wait."""
        return concat(self.due(limit, events), self._device)

    def due(self, limit: int, events: Sequence[Events]) -> list[Events]:
        """The same in pieces."""
        pieces = [*self._held, *(each.points(each.frame) for each in events)]
        due, self._held = [], []
        for each in filter(len, pieces):
            early, late = (each, None) if limit == MAX_TIME else self._parted(each, limit)
            due += [] if early is None else [early]
            self._held += [] if late is None else [late]
        if len(self._held) > _PIECES:
            whole = concat(self._held, self._device)
            self._held = [] if whole is None else [whole]
        return due

    def _parted(self, points: Events, limit: int) -> tuple[Events | None, Events | None]:
        """(those before a place, the others)."""
        kernels, columns, start = self._device.kernels, self._device.columns, points.start
        least, most = points.first_and_last(self._device)
        if most < limit:
            return points, None
        if least >= limit:
            return None, points
        if not points.ascend(self._device):
            is_due = start < limit
            return points.take(kernels.keep(is_due), self._device), points.take(kernels.keep(~is_due), self._device)
        at = int(np.searchsorted(start, limit))
        parts = ((0, at), (at, len(start)))
        early, late = (
            Events(start[low:high], TICK, columns.cut(points.frame, low, high), order=TimeOrder.ASCENDS)
            for low, high in parts
        )
        return early, late

    def tables(self) -> dict[str, pa.Table]:
        """The points that wait, if there are any."""
        whole = concat(self._held, self._device)
        if whole is None:
            return {}
        names = list(whole.frame.columns)
        rows = self._device.columns.to_arrow(whole.frame, pa.schema([self._schema.field(name) for name in names]))
        place = pa.array(self._device.columns.host(whole.start), pa.int64())
        return {self._name: pa.table({"place": place, **{f"{_PREFIX}{name}": rows[name] for name in names}})}

    def declared(self) -> Iterator[StateTable]:
        """The declaration of that table."""
        place = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        yield StateTable(self._name, {"place": place, **nullable_columns(self._schema, _PREFIX)})

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        if self._name not in tables:
            return
        table, columns = tables[self._name], self._device.columns
        rows = table.drop_columns("place")
        names = [name.removeprefix(_PREFIX) for name in rows.column_names]
        self._held = [Events(_array(table, columns), TICK, columns.from_arrow(rows.rename_columns(names)))]


class NumberedPoints(WaitingPoints):
    """Points that are kept for long, each with its number among all that ever came (`ARRIVED`): saved in runs.

    Args:
        name: What their table is called.
        schema: Their columns, without the numbers.
        device: Where arrays live.
        changing: The columns, of int64, whose values may change.

    Attributes:
        came: How many points ever came.
    """

    _NUMBER = f"{_PREFIX}{ARRIVED}"

    def __init__(self, name: str, schema: pa.Schema, device: Device, changing: Sequence[str] = ()) -> None:
        super().__init__(name, schema.append(pa.field(ARRIVED, pa.int64())), device)
        self.came = 0
        self._changing = [f"{_PREFIX}{each}" for each in changing]
        self._runs = NumberedRuns(self._NUMBER, self._changing)

    def numbered(self, rows: Events) -> Events:
        """New rows with their numbers."""
        columns, first = self._device.columns, self.came
        self.came += len(rows)
        number = columns.build({ARRIVED: (columns.array(np.arange(first, self.came)), None, pa.int64())})
        return replace(rows, frame=columns.beside(rows.frame, number))

    def whole(self) -> Events | None:
        """All points; None if there are none."""
        found = self.before(MAX_TIME, [])
        if found is not None:
            self.hold(found)
        return found

    def tables(self) -> dict[str, pa.Table]:
        """The points by their numbers, if there are any, and how many ever came."""
        made = super().tables()
        for name, table in made.items():
            numbers = table[self._NUMBER].to_numpy()
            if not bool((np.diff(numbers) > 0).all()):
                made[name] = table.take(pa.array(np.argsort(numbers)))
        return made | ({self._came_name: pa.table({"came": pa.array([self.came])})} if self.came else {})

    @property
    def _came_name(self) -> str:
        return f"{self._name} came"

    def state_parts(self) -> Parts:
        """The points in parts."""
        table = self.tables().get(self._name)
        if table is None:
            self._runs.restore(())
            return {}
        now = {name: integers(in_one(table[name])) for name in (self._NUMBER, *self._changing)}
        return {self._name: self._runs.parts(now, lambda at: table.take(pa.array(at)))}

    def keep_names(self, parts: Parts) -> None:
        """The parts that were restored keep their names."""
        self._runs.restore(parts.get(self._name, ()))

    def declared(self) -> Iterator[StateTable]:
        """The declarations of their tables."""
        number = Field(pa.int64(), least=0, most=MANY, ascends=True, optional=True)
        for each in super().declared():
            yield replace(each, columns={**each.columns, self._NUMBER: number})
        yield StateTable(self._came_name, {"came": Field(pa.int64(), least=0, most=MANY)}, rows=1)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave; in older states they have no numbers."""
        table, came = tables.get(self._name), tables.get(self._came_name)
        self.came = 0 if came is None else int(came["came"][0].as_py())
        if table is None:
            return
        if self._NUMBER not in table.column_names:
            table = table.append_column(self._NUMBER, pa.array(np.arange(table.num_rows)))
        super().restore({self._name: table})
        self.came = max(self.came, int(table[self._NUMBER][-1].as_py()) + 1 if table.num_rows else 0)


def _array(table: pa.Table, columns: Any) -> Any:
    return columns.array(np.array(table["place"].to_numpy(), np.int64))


class OnTicks(Operator, family=True):
    """An operator over rows at places that wait for a CTI, and the ticks that they need."""

    @property
    @abstractmethod
    def parts(self) -> list[Any]:
        """What it keeps."""

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    @property
    def in_runs(self) -> Sequence[Any]:
        """Of `parts` those whose tables are saved in runs."""
        return ()

    @property
    def alive(self) -> int:
        """How many rows and ticks it keeps."""
        return self.waiting

    @property
    def waiting(self) -> int:
        """How many of them wait for a CTI."""
        return sum(map(len, self.parts))

    def tables(self) -> dict[str, pa.Table]:
        """The rows that wait, and the ticks that they need."""
        return {name: table for each in self.parts for name, table in each.tables().items()}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        for each in self.parts:
            yield from each.declared()

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        for each in self.parts:
            each.restore(tables)

    def state_parts(self) -> Parts:
        """What `tables` gives, in parts."""
        made: dict[str, Any] = {**in_parts(self.tables())}
        for each in self.in_runs:
            made |= each.state_parts()
        return made

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        super().put_back(parts)
        for each in self.in_runs:
            each.keep_names(parts)
