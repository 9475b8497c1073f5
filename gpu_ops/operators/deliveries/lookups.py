"""Lookups step by step: the running aggregates of groups, at the places at which rows ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, TICK
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import Changes, changes_of, no_changes
from gpu_ops.operators.deliveries.group_values import GroupValues
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.joins import On
from gpu_ops.plan.lookups import Lookup

_MOMENT = 2
"""From one moment to the next: a change that waits for it is seen behind its place alone."""


class LookupOperator(Operator, nodes=(Lookup,)):
    """Aggregates of what is held, at the places of rows.

    A row that asks makes a boundary in the group that it asks for, so that a step costs its changes and its rows.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Lookup

    opens_first = True

    def __init__(self, node: Lookup, device: Device) -> None:
        super().__init__(node, device)
        self._values = _of_groups(node, device)
        self._waiting: list[Events] = []

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's enter and leave as they come."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows before the CTI."""
        cti, device = min(ctis), self._device
        rows = self._before(given[1].events, cti)
        changes = changes_of(given[0], cti, device)
        if changes is not None and self._node.before:
            changes = _later(changes)
        if rows is None and changes is None:
            return StepInput(), cti
        limit = cti if cti == MAX_TIME or cti & 1 else cti - 1
        found = [self._found(values, on, changes, rows, limit) for on, values in self._values]
        if rows is None:
            return StepInput(), cti
        names = self._node.schema.names
        frame = device.columns.select(device.columns.beside(rows.frame, *found), names)
        return StepInput([Events(rows.start, rows.end, frame)]), cti

    def _before(self, events: Sequence[Events], cti: int) -> Events | None:
        """The rows of this step; later ones wait."""
        every = concat([*self._waiting, *events], self._device)
        self._waiting = []
        if every is None or not len(every):
            return None
        early = every.start < cti
        if bool(early.all()):
            return every
        keep = self._device.kernels.keep
        self._waiting = [every.take(keep(~early), self._device)]
        now = keep(early)
        return every.take(now, self._device) if len(now) else None

    def _found(self, values: GroupValues, on: On, changes: Changes | None, rows: Events | None, limit: int) -> Any:
        """A frame of aggregates for each row."""
        device = self._device
        changes = changes or no_changes(self._node.content.schema, device)
        if rows is None:
            values.step(changes, limit, forced=False)
            values.rest()
            return None
        asking = self._asking(on, rows)
        places = rows.start & ~1
        values.step(_with_asking(changes, asking, places, device), limit, forced=False)
        found = values.at(values.codes(asking), places)
        values.rest()
        return found

    def _asking(self, on: On, rows: Events) -> Any:
        """Rows as those that are held, with nothing but their keys."""
        columns, schema = self._device.columns, self._node.content.schema
        keys = {inner: outer for outer, inner in on}
        rest = [each for each in schema if each.name not in keys]
        parts = [columns.rename(columns.select(rows.frame, [outer]), outer, inner) for inner, outer in keys.items()]
        if rest:
            parts.append(columns.nulls(columns.from_arrow(pa.schema(rest).empty_table()), len(rows)))
        return columns.select(columns.beside(*parts), schema.names)

    # The state

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return sum(values.alive for _, values in self._values) + self.waiting

    @property
    def waiting(self) -> int:
        """How many rows have asked for what is not known yet."""
        return sum(map(len, self._waiting))

    def tables(self) -> dict[str, pa.Table]:
        """The state of each group of aggregates, and the rows that wait."""
        made: dict[str, pa.Table] = {}
        for at, (_, values) in enumerate(self._values):
            made |= values.tables(f"values {at}/")
        waiting = concat(self._waiting, self._device)
        if waiting is not None:
            columns = self._device.columns
            table = columns.to_arrow(waiting.frame, self._node.rows.schema)
            made["asking"] = table.append_column(_PLACE, pa.array(columns.host(waiting.start)))
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        for at, (_, values) in enumerate(self._values):
            yield from values.declared(tables, f"values {at}/")
        if "asking" in tables:
            yield StateTable(
                "asking", nullable_columns(self._node.rows.schema.append(pa.field(_PLACE, pa.int64())), "")
            )

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if not tables:
            return
        for at, (_, values) in enumerate(self._values):
            values.restore(tables, f"values {at}/")
        if "asking" in tables:
            columns, table = self._device.columns, tables["asking"]
            start = columns.array(table[_PLACE].to_numpy().copy())
            self._waiting = [Events(start, TICK, columns.from_arrow(table.drop_columns(_PLACE)))]


_PLACE = "@asked at"


def _of_groups(node: Lookup, device: Device) -> list[tuple[On, GroupValues]]:
    """The running aggregates by each list of keys."""
    found: dict[On, list[Delivered]] = {}
    for each in node.looked:
        keys = tuple(inner for _, inner in each.on)
        found.setdefault(each.on, []).append(Delivered(each.aggregate, keys))
    return [(on, GroupValues(some, node.content.schema, device)) for on, some in found.items()]


def _later(changes: Changes) -> Changes:
    """The same changes one moment later."""
    return Changes(
        changes.frame, changes.enter + _MOMENT, _after(changes.leave, changes.leaves), changes.enters, changes.leaves
    )


def _after(leave: Any, leaves: Any) -> Any:
    return np.where(leaves, leave + _MOMENT, leave)


def _with_asking(changes: Changes, asking: Any, places: Any, device: Device) -> Changes:
    """Changes and rows that are there for no time."""
    frame = device.columns.concat([changes.frame, asking])
    enter, leave = (np.concatenate([each, places]) for each in (changes.enter, changes.leave))
    always = np.ones_like(places, dtype=np.bool_)
    enters, leaves = (np.concatenate([each, always]) for each in (changes.enters, changes.leaves))
    return Changes(frame, enter, leave, enters, leaves)
