"""The instances that are there, with where they start and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.numbered_runs import NumberedRuns
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import Field, StateTable
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import ENDED, INSTANCE
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.plan.window_kinds import UNKNOWN

_PREFIX = "row/"


class AliveInstances:
    """Instances in order of their numbers: those that are there, and those that end in the step.

    Args:
        schema: Their columns.
        device: Where arrays live.
        number: The column with their numbers.

    Attributes:
        ids: int64 numbers, ascending.
        begin: int64 places at which they start.
        end: int64 places at which they end; `UNKNOWN` while they last.
        frame: Their columns.
    """

    def __init__(self, schema: pa.Schema, device: Device, number: str = INSTANCE) -> None:
        self._schema, self._device, self._number = schema, device, number
        none = device.columns.array(np.zeros(0, np.int64))
        self.ids = self.begin = self.end = none
        self.frame = device.columns.from_arrow(empty_table(schema))
        self._runs = NumberedRuns("number")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, points: Events | None) -> None:
        """Take in where instances start and end."""
        if points is None:
            return
        columns, kernels = self._device.columns, self._device.kernels
        ended = columns.values(points.frame, ENDED)[0] != 0
        ids = columns.values(points.frame, self._number)[0]
        frame = columns.select(points.frame, self._schema.names)
        come, go = kernels.keep(~ended), kernels.keep(ended)
        if len(come):
            self.add(kernels.take(ids, come), kernels.take(points.start, come), columns.take(frame, come))
        if len(go):
            self.finish(self.found(kernels.take(ids, go))[0], kernels.take(points.start, go), columns.take(frame, go))

    def add(self, ids: Any, begin: Any, frame: Any) -> None:
        """More of them."""
        columns, kernels = self._device.columns, self._device.kernels
        made = [np.concatenate(pair) for pair in ((self.ids, ids), (self.begin, begin))]
        end = np.concatenate([self.end, np.full_like(begin, UNKNOWN)])
        whole = columns.concat([self.frame, frame]) if len(self.ids) else frame
        if not kernels.ascends(made[0]):
            order = np.argsort(made[0], kind="stable")
            made, end = [kernels.take(each, order) for each in made], kernels.take(end, order)
            whole = columns.take(whole, order)
        (self.ids, self.begin), self.end, self.frame = made, end, whole

    def finish(self, index: Any, end: Any, frame: Any) -> None:
        """Some end, with other columns from now on."""
        columns = self._device.columns
        self.end = self.end.copy()
        self.end[index] = end
        if self._schema.names == [self._number]:
            return
        source = np.arange(len(self.ids), like=self.ids)
        source[index] = np.arange(len(self.ids), len(self.ids) + len(end), like=self.ids)
        self.frame = columns.take(columns.concat([self.frame, frame]), source)

    def found(self, ids: Any) -> tuple[Any, Any]:
        """(int64 index of some numbers, whether each is there)."""
        if not len(self.ids):
            none = np.zeros_like(ids)
            return none, none != 0
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return at, self._device.kernels.take(self.ids, at) == ids

    def forget(self) -> int:
        """Those that have ended are gone; how many they were."""
        lasting = self.end == UNKNOWN
        if bool(lasting.all()):
            return 0
        count = len(self.ids)
        at, take = self._device.kernels.keep(lasting), self._device.kernels.take
        self.ids, self.begin, self.end = (take(each, at) for each in (self.ids, self.begin, self.end))
        self.frame = self._device.columns.take(self.frame, at)
        return count - len(at)

    # The state

    def tables(self) -> dict[str, pa.Table]:
        """The instances."""
        return {"alive": self._table(self.ids, self.begin, self.frame)}

    def _table(self, ids: Any, begin: Any, frame: Any) -> pa.Table:
        host, rows = self._device.columns.host, self._device.columns.to_arrow(frame, self._schema)
        named = {f"{_PREFIX}{name}": rows[name] for name in rows.column_names}
        return pa.table({"number": pa.array(host(ids)), "begin": pa.array(host(begin)), **named})

    def state_parts(self) -> Parts:
        """The same in parts: of an instance that is there nothing changes."""

        def some(at: Any) -> pa.Table:
            at, take = self._device.columns.array(at), self._device.kernels.take
            return self._table(take(self.ids, at), take(self.begin, at), self._device.columns.take(self.frame, at))

        return {"alive": self._runs.parts({"number": self._device.columns.host(self.ids)}, some)}

    def keep_names(self, parts: Parts) -> None:
        """The parts that were restored keep their names."""
        self._runs.restore(parts.get("alive", ()))

    def declared(self) -> Iterator[StateTable]:
        """The declaration of that table."""
        number = Field(pa.int64(), least=0, ascends=True)
        place = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        columns = {"number": number, "begin": place, **nullable_columns(self._schema, _PREFIX)}
        yield StateTable("alive", columns, required=True)

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """What `tables` gave."""
        table, columns = tables["alive"], self._device.columns
        self.ids, self.begin = (columns.array(np.array(table[name].to_numpy())) for name in ("number", "begin"))
        self.end = np.full_like(self.ids, UNKNOWN)
        rows = table.drop_columns(["number", "begin"])
        names = [name.removeprefix(_PREFIX) for name in rows.column_names]
        self.frame = columns.from_arrow(rows.rename_columns(names))
