"""What groups remember: rows from when they enter, or leave, until their group is forgotten.

A group that all rows have left is forgotten as the next row enters any group (Esper forgets its aggregates then).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import UNKNOWN, Changes
from gpu_ops.operators.row_order import distinct, run_ends, run_starts, stable_order
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.rows import GroupInterner, grown
from gpu_ops.plan.deliveries import Life

_GROUPS, _KEY, _ROW = "groups", "key/", "row/"
_LIVES: tuple[Life, Life] = ("remembered", "remembered left")


@dataclass(frozen=True)
class _Remembered:
    """Rows that are remembered.

    Attributes:
        frame: The rows.
        group: int32 number of the group of each.
        begin: int64 place from which on each is remembered.
    """

    frame: Any
    group: Any
    begin: Any


@dataclass(frozen=True)
class _Forgotten:
    """When groups are forgotten in a step: int32 groups, and int64 places, in order of both."""

    group: Any
    place: Any

    def behind(self, group: Any, place: Any, device: Device) -> Any:
        """int64 place at which some groups are forgotten behind some places; `UNKNOWN` where they are not."""
        if not len(self.group):
            return np.full_like(place, UNKNOWN)
        at = device.kernels.search_pairs(self.group, self.place, group, place)
        last = np.minimum(at, len(self.group) - 1)
        there = (at < len(self.group)) & (device.kernels.take(self.group, last) == group)
        return np.where(there, device.kernels.take(self.place, last), UNKNOWN)


class GroupMemory:
    """The rows of groups until these are forgotten, step by step: a step costs what changes and what is forgotten.

    Args:
        keys: The columns of the groups, at least one.
        schema: The rows' columns.
        device: Where arrays live.
    """

    def __init__(self, keys: tuple[str, ...], schema: pa.Schema, device: Device) -> None:
        self._keys, self._schema, self._device = keys, schema, device
        self._key_schema = pa.schema([schema.field(name) for name in keys])
        self._groups = GroupInterner(keys, schema, device)
        none = device.columns.array(np.zeros(0, np.int64))
        nothing = _Remembered(device.columns.from_arrow(empty_table(schema)), none.astype(np.int32), none)
        # By group: how many rows it has, and the place at which it lost the last one, until it is forgotten.
        self._size, self._empty = none, none
        self._kept: dict[Life, _Remembered] = dict.fromkeys(_LIVES, nothing)

    def step(self, changes: Changes) -> dict[Life, Changes]:
        """What enters and leaves the memory in a part of a step: of the rows that entered, and of those that left."""
        kernels, take = self._device.kernels, self._device.kernels.take
        codes = self._groups.codes(changes.frame)
        known = len(self._size)
        self._size, self._empty = (grown(each, len(self._groups)) for each in (self._size, self._empty))
        self._empty[known:] = UNKNOWN
        come, go = kernels.keep(changes.enters), kernels.keep(changes.leaves)
        entered, left = take(changes.enter, come), take(changes.leave, go)
        forgotten = self._forgotten(take(codes, come), entered, take(codes, go), left)
        rows = [
            _Remembered(self._device.columns.take(changes.frame, at), take(codes, at), begin)
            for at, begin in ((come, entered), (go, left))
        ]
        made = {
            life: self._remembered(life, new, others, forgotten)
            for life, new, others in zip(_LIVES, rows, reversed(rows), strict=True)
        }
        self._forget_groups()
        return made

    def _forgotten(self, come: Any, entered: Any, go: Any, left: Any) -> _Forgotten:
        """When groups are forgotten; what is known of them is that behind the step."""
        device, kernels, take = self._device, self._device.kernels, self._device.kernels.take
        waiting = kernels.keep(self._empty != UNKNOWN)
        group = np.concatenate([come, go])
        place, leaves = np.concatenate([entered, left]), np.concatenate([np.zeros_like(entered), np.ones_like(left)])
        order = stable_order([group, place, leaves], place, device)
        group, place, sign = take(group, order), take(place, order), 1 - 2 * take(leaves, order)
        upto = np.cumsum(sign)
        begins = run_starts(group)
        before = take(upto - sign, kernels.keep(begins))
        size = upto - take(before, np.cumsum(begins) - 1) + take(self._size, group) if len(group) else upto
        empty = kernels.keep((size <= 0) & run_ends(group, place))
        last = kernels.keep(run_ends(group))
        self._size[take(group, last)] = take(size, last)
        groups = np.concatenate([waiting.astype(np.int32), take(group, empty)])
        since = np.concatenate([take(self._empty, waiting), take(place, empty)])
        arrivals = distinct(entered, device) if len(entered) else entered
        at = np.searchsorted(arrivals, since, side="right")
        ends = at < len(arrivals)
        still, over = kernels.keep(~ends), kernels.keep(ends)
        self._empty[waiting] = UNKNOWN
        self._empty[take(groups, still)] = take(since, still)
        found = take(groups, over), take(arrivals, take(at, over))
        order = stable_order(found, found[1], device)
        return _Forgotten(*(take(each, order) for each in found))

    def _remembered(self, life: Life, new: _Remembered, others: _Remembered, forgotten: _Forgotten) -> Changes:
        """What enters and leaves the memory of one kind; where others do, groups have values too."""
        device, kernels, columns = self._device, self._device.kernels, self._device.columns
        kept = self._kept[life]
        over = forgotten.behind(kept.group, kept.begin, device)
        goes, until = kernels.keep(over != UNKNOWN), forgotten.behind(new.group, new.begin, device)
        stays = kernels.keep(until == UNKNOWN)
        parts = [kept if not len(goes) else self._some(kept, kernels.keep(over == UNKNOWN)), self._some(new, stays)]
        parts = [each for each in parts if len(each.begin)] or parts[:1]
        if len(parts) > 1:
            frame = columns.concat([each.frame for each in parts])
            group, begin = (np.concatenate([getattr(each, name) for each in parts]) for name in ("group", "begin"))
            self._kept[life] = _Remembered(frame, group, begin)
        else:
            self._kept[life] = parts[0]
        gone = self._some(kept, goes)
        parts = [gone, new, others]
        enter = np.concatenate([each.begin for each in parts])
        leave = np.concatenate([kernels.take(over, goes), until, others.begin])
        enters = np.ones_like(enter, dtype=np.bool_)
        enters[: len(goes)] = False
        frame = columns.concat([each.frame for each in parts if len(each.begin)] or [new.frame])
        return Changes(frame, enter, leave, enters, leave != UNKNOWN)

    def _some(self, rows: _Remembered, at: Any) -> _Remembered:
        take = self._device.kernels.take
        return _Remembered(self._device.columns.take(rows.frame, at), take(rows.group, at), take(rows.begin, at))

    def _forget_groups(self) -> None:
        """Forget groups of which nothing is known, once they are most of all."""
        if not self._groups.crowded:
            return
        used = (self._size != 0) | (self._empty != UNKNOWN)
        if self._groups.forget(self._device.columns.host(used)) is None:
            return
        numbers = (np.cumsum(used) - 1).astype(np.int32)
        self._size, self._empty = self._size[used], self._empty[used]
        for life, rows in self._kept.items():
            group = self._device.kernels.take(numbers, rows.group)
            self._kept[life] = _Remembered(rows.frame, group, rows.begin)

    # The state

    def __len__(self) -> int:
        return sum(len(rows.begin) for rows in self._kept.values())

    def tables(self, prefix: str) -> dict[str, pa.Table]:
        """The groups, and the rows that are remembered; no table before the first row."""
        keys = self._groups.keys
        if keys is None:
            return {}
        columns, count = self._device.columns, len(self._groups)
        made = columns.to_arrow(keys, self._key_schema)
        groups = {f"{_KEY}{name}": made[name] for name in made.column_names}
        for name, each in (("rows", self._size), ("empty", self._empty)):
            groups[name] = pa.array(columns.host(each[:count]), pa.int64())
        found = {f"{prefix}{_GROUPS}": pa.table(groups)}
        for life, rows in self._kept.items():
            made = columns.to_arrow(rows.frame, self._schema)
            own = {f"{_ROW}{name}": made[name] for name in made.column_names}
            own["group"] = pa.array(columns.host(rows.group), pa.int32())
            own["begin"] = pa.array(columns.host(rows.begin), pa.int64())
            found[f"{prefix}{life}"] = pa.table(own)
        return found

    def declared(self, tables: Tables, prefix: str) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        keys = nullable_columns(self._key_schema, _KEY)
        place = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        empty = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME, besides=(UNKNOWN,))
        yield StateTable(f"{prefix}{_GROUPS}", {**keys, "rows": counter(), "empty": empty}, unique=tuple(keys))
        groups = tables.get(f"{prefix}{_GROUPS}")
        number = Field(pa.int32(), least=0, most=-1 if groups is None else groups.num_rows - 1)
        for life in _LIVES:
            rows = nullable_columns(self._schema, _ROW)
            yield StateTable(f"{prefix}{life}", {**rows, "group": number, "begin": place}, required=groups is not None)

    def restore(self, tables: Mapping[str, pa.Table], prefix: str) -> None:
        """The state that `tables` gave."""
        if f"{prefix}{_GROUPS}" not in tables:
            return
        columns, groups = self._device.columns, tables[f"{prefix}{_GROUPS}"].combine_chunks()
        keys = {name: groups[f"{_KEY}{name}"] for name in self._keys}
        self._groups.restore(columns.from_arrow(pa.table(keys)))
        self._size, self._empty = (columns.array(groups[name].to_numpy().copy()) for name in ("rows", "empty"))
        for life in _LIVES:
            table = tables[f"{prefix}{life}"].combine_chunks()
            frame = columns.from_arrow(pa.table({name: table[f"{_ROW}{name}"] for name in self._schema.names}))
            group, begin = (columns.array(table[name].to_numpy().copy()) for name in ("group", "begin"))
            self._kept[life] = _Remembered(frame, group, begin)
