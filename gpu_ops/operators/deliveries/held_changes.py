"""Rows that enter and leave between two outputs do so at the second one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import Field, StateTable
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import IS_OLD, PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import UNKNOWN, Changes
from gpu_ops.operators.state.fields import nullable_columns


@dataclass(frozen=True)
class Outputs:
    """The outputs of a step, in order.

    Attributes:
        place: int64 even places, ascending.
        limit: int64: rows that enter or leave at a place below it are part of the output.
    """

    place: Any
    limit: Any

    def __len__(self) -> int:
        return len(self.place)


class HeldChanges:
    """Rows that entered or left since the last output.

    Args:
        schema: The rows' columns; `PLACE` tells them apart.
        device: Where arrays live.
    """

    def __init__(self, schema: pa.Schema, device: Device) -> None:
        self._schema, self._device = schema, device
        self._held: Changes | None = None

    def __len__(self) -> int:
        return 0 if self._held is None else len(self._held.enter)

    def step(self, changes: Changes | None, outputs: Outputs) -> Changes | None:
        """The changes that some outputs take, at the places of the outputs; the others are held."""
        whole = self.with_held(changes)
        self._held = whole
        if whole is None or not len(outputs):
            return None
        enters, enter, later_enters = self._moved(whole.enters, whole.enter, outputs)
        leaves, leave, later_leaves = self._moved(whole.leaves, whole.leave, outputs)
        self._held = self._some(replace(whole, enters=later_enters, leaves=later_leaves), later_enters | later_leaves)
        return Changes(whole.frame, enter, leave, enters, leaves, whole.enter, whole.leave)

    def _moved(self, which: Any, places: Any, outputs: Outputs) -> tuple[Any, Any, Any]:
        """(which of some edges an output takes, its place, which of them none takes yet)."""
        number = np.searchsorted(outputs.limit, places, side="right")
        taken = number < len(outputs)
        place = self._device.kernels.take(outputs.place, np.minimum(number, len(outputs) - 1))
        # An edge that no output takes keeps its place, in case it was there before.
        return which & taken, np.where(which & taken, place, places), which & ~taken

    def _some(self, changes: Changes, which: Any) -> Changes | None:
        """The rows of changes of which any enters or leaves."""
        at = self._device.kernels.keep(which)
        if len(at) == len(changes.enter):
            return changes
        return self._taken(changes, at) if len(at) else None

    def _taken(self, changes: Changes, at: Any) -> Changes:
        arrays = (changes.enter, changes.leave, changes.enters, changes.leaves, changes.came, changes.went)
        some = (None if each is None else self._device.kernels.take(each, at) for each in arrays)
        return Changes(self._device.columns.take(changes.frame, at), *some)

    def with_held(self, changes: Changes | None) -> Changes | None:
        """What is held beside new changes: a row that has entered and leaves now is one row."""
        held, device = self._held, self._device
        if held is None or changes is None:
            return held if changes is None else changes
        columns, keep, take = device.columns, device.kernels.keep, device.kernels.take
        opened = keep(held.enters & ~held.leaves)
        closed = keep(changes.leaves & ~changes.enters)
        leaves, leave, frame = held.leaves, held.leave, held.frame
        rest = changes
        if len(opened) and len(closed):
            mine, theirs = (columns.values(each.frame, PLACE)[0] for each in (held, changes))
            opened = take(opened, np.argsort(take(mine, opened), kind="stable"))
            at = np.minimum(np.searchsorted(take(mine, opened), take(theirs, closed)), len(opened) - 1)
            same = keep(take(take(mine, opened), at) == take(theirs, closed))
            if len(same):
                rows, over = take(opened, take(at, same)), take(closed, same)
                leaves, leave = leaves.copy(), leave.copy()
                leaves[rows], leave[rows] = True, take(changes.leave, over)
                if IS_OLD in self._schema.names:
                    # Whether a joined row is delivered where it leaves is known only now.
                    at = np.arange(len(leave), like=leave)
                    at[rows] = len(leave) + over
                    frame = columns.take(columns.concat([frame, changes.frame]), at)
                lasting = np.ones_like(changes.enters)
                lasting[over] = False
                rest = self._taken(changes, keep(lasting))
        held = replace(held, frame=frame, leaves=leaves, leave=leave)
        if not len(rest.enter):
            return held
        # Rows that only leave have come before those that are held.
        older = self._taken(rest, keep(~rest.enters))
        parts = [each for each in (older, held, self._taken(rest, keep(rest.enters))) if len(each.enter)]
        names = ("enter", "leave", "enters", "leaves")
        arrays = (np.concatenate([getattr(each, name) for each in parts]) for name in names)
        return Changes(columns.concat([each.frame for each in parts]), *arrays)

    # The state

    def tables(self) -> dict[str, pa.Table]:
        """The rows, and when they entered and left; no table without any."""
        held = self._held
        if held is None:
            return {}
        host, rows = self._device.columns.host, self._device.columns.to_arrow(held.frame, self._schema)
        made = {f"{_ROW}{name}": rows[name] for name in self._schema.names}
        for name, each in (("enter", held.enter), ("leave", held.leave)):
            made[name] = pa.array(host(each), pa.int64())
        for name, each in (("enters", held.enters), ("leaves", held.leaves)):
            made[name] = pa.array(host(each.astype(np.int64)), pa.int64())
        return {_TABLE: pa.table(made)}

    def declared(self) -> Iterator[StateTable]:
        """The table that `tables` gives."""
        flag, place = Field(pa.int64(), least=0, most=1), Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        until = replace(place, besides=(UNKNOWN,))
        columns = {"enter": place, "leave": until, "enters": flag, "leaves": flag}
        yield StateTable(_TABLE, {**nullable_columns(self._schema, _ROW), **columns})

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if _TABLE not in tables:
            return
        columns, table = self._device.columns, tables[_TABLE]
        enter, leave, enters, leaves = (
            columns.array(table[name].to_numpy().copy()) for name in ("enter", "leave", "enters", "leaves")
        )
        rows = pa.table({name: table[f"{_ROW}{name}"] for name in self._schema.names})
        self._held = Changes(columns.from_arrow(rows), enter, leave, enters != 0, leaves != 0)


_TABLE, _ROW = "since output", "row/"
