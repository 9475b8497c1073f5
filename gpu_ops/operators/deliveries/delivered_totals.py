"""Counts and sums of what is delivered: of an outer join, whose rows leave that never entered, and the other way round.

As in Esper, no count goes below nothing, and a sum begins anew where its count is nothing. A group is forgotten as the
next row enters any group, once as many rows of it have left as entered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import Field, StateTable, Tables, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import IS_NEW, IS_OLD
from gpu_ops.devices import Device
from gpu_ops.errors import SumOverflowError
from gpu_ops.operators.deliveries.changes import UNKNOWN, Changes, Edges
from gpu_ops.operators.deliveries.group_values import GroupValues
from gpu_ops.operators.row_order import distinct, run_ends, run_starts, stable_order
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.rows import GroupInterner, grown
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.expressions import bare_column

_MOST = float((1 << 62) - 1)
_BEFORE = -(1 << 62)
"""Before all places."""

_GROUPS, _KEY = "groups", "key/"


def along(steps: Any, begins: Any, device: Device) -> Any:
    """Running sums within stretches."""
    upto = np.cumsum(steps)
    if not len(upto):
        return upto
    return upto - device.kernels.take(upto - steps, device.kernels.keep(begins))[np.cumsum(begins) - 1]


def clamped(steps: Any, worth: Any, begins: Any, device: Device) -> tuple[Any, Any]:
    """Running counts within stretches that do not go below nothing, and sums that begin anew where these are nothing.

    Args:
        steps: int64: how many each one adds to the count; -1 where it takes one off.
        worth: int64: what it adds to the sum.
        begins: Which of them begin a stretch.
        device: Where arrays live.
    """
    if not len(steps):
        return steps, worth
    free, number = along(steps, begins, device), np.cumsum(begins)
    # What has been taken off in vain so far is the greatest debt; stretches lie above one another.
    above = number * (2 * int(np.abs(free).max()) + 1)
    debt = device.kernels.running_max(above - free) - above
    count = free + np.maximum(debt, np.zeros_like(debt))
    over = (steps < 0) & (count == 0)
    total = along(worth, begins | np.concatenate([np.zeros_like(over[:1]), over[:-1]]), device)
    return count, np.where(over, np.zeros_like(total), total)


@dataclass(frozen=True)
class _DeliveredWalk:
    """The groups of a step behind each of their moves, in order of groups and places.

    Attributes:
        code: int32: the group.
        place: int64: the place; what was before the step is before all places.
        empty: int64: the place at which it has lost its last row; `UNKNOWN` while it has any.
        values: Of each aggregate, int64 counts and sums.
        arrivals: int64 places at which rows enter any group, ascending.
    """

    code: Any
    place: Any
    empty: Any
    values: Sequence[tuple[Any, Any]]
    arrivals: Any


class DeliveredTotals(GroupValues):
    """Counts and sums of whole numbers with one key, of rows that are delivered.

    Args:
        aggregates: The aggregates.
        schema: The rows' columns.
        device: Where arrays live.
    """

    def __init__(self, aggregates: Sequence[Delivered], schema: pa.Schema, device: Device) -> None:
        self.keys, self.life, self._device = aggregates[0].keys or (), aggregates[0].life, device
        self.names = [each.aggregate.name for each in aggregates]
        self._aggregates = tuple(each.aggregate for each in aggregates)
        self._types = [each.aggregate.field(schema).type for each in aggregates]
        self._key_schema = pa.schema([schema.field(name) for name in self.keys])
        self._groups = GroupInterner(self.keys, schema, device)
        none = device.columns.array(np.zeros(0, np.int64))
        # Of each group the number of its rows, the place at which it lost the last one; then each count and sum.
        self._size, self._empty = none, none
        self._known = [(none, none)] * len(self.names)
        self._walk: _DeliveredWalk | None = None

    @property
    def groups(self) -> int:
        """How many groups have a number."""
        return len(self._groups)

    def codes(self, frame: Any) -> Any:
        """int32 number of the group of each of some rows."""
        found = self._groups.codes(frame)
        self._grow()
        return found

    def keys_of(self, numbers: Any) -> Any | None:
        """The keys of some groups."""
        return self._groups.keys_of(numbers)

    def _grow(self) -> None:
        count, known = len(self._groups), len(self._size)
        if known < count:
            self._size, self._empty = grown(self._size, count), grown(self._empty, count)
            self._empty[known:] = UNKNOWN
            self._known = [(grown(one, count), grown(other, count)) for one, other in self._known]

    def step(
        self,
        changes: Changes,
        limit: int,
        *,
        forced: bool,
        momentary: bool = False,
        edges: Edges | None = None,
        before: bool = False,
    ) -> None:
        """Take in a part of a step."""
        del limit, forced, momentary, edges, before
        device, kernels, take = self._device, self._device.kernels, self._device.kernels.take
        codes = self.codes(changes.frame)
        new, old = (device.columns.values(changes.frame, name)[0] != 0 for name in (IS_NEW, IS_OLD))
        come, go = kernels.keep(changes.enters & new), kernels.keep(changes.leaves & old)
        rows = np.concatenate([come, go])
        entered = take(changes.enter, come)
        group, place = take(codes, rows), np.concatenate([entered, take(changes.leave, go)])
        sign = np.concatenate([np.ones_like(come), -np.ones_like(go)])
        # What is known of a group stands before all that moves in it.
        touched = distinct(group.astype(np.int64), device)
        code = np.concatenate([touched.astype(np.int32), group])
        place = np.concatenate([np.full_like(touched, _BEFORE), place])
        order = stable_order([code, place, np.concatenate([-np.ones_like(touched), (1 - sign) // 2])], place, device)
        code, place = take(code, order), take(place, order)
        moves = take(np.concatenate([np.zeros_like(touched), sign]), order)
        begins = run_starts(code) if len(code) else moves != 0

        def walked(known: tuple[Any, Any], steps: Any, worth: Any, starts: Any) -> tuple[Any, Any]:
            count, total = known
            more = take(np.concatenate([take(count, touched), steps]), order)
            return clamped(more, take(np.concatenate([take(total, touched), worth]), order), starts, device)

        size, _ = walked((self._size, self._size), sign, sign, begins)
        arrivals = distinct(entered, device) if len(entered) else entered
        empty, anew = self._emptied(code, place, moves, size, begins, arrivals)
        frame = device.columns.take(changes.frame, rows)
        values = []
        for aggregate, known in zip(self._aggregates, self._known, strict=True):
            there, worth = self._worth(aggregate, frame)
            self._check(aggregate, known[1], worth)
            values.append(walked(known, sign * there, sign * worth * there, begins | anew))
        last = kernels.keep(run_ends(code)) if len(code) else touched
        self._walk = _DeliveredWalk(code, place, empty, values, arrivals)
        self._size[touched], self._empty[touched] = take(size, last), take(empty, last)
        for (count, total), found in zip(self._known, values, strict=True):
            count[touched], total[touched] = (take(each, last) for each in found)

    def _emptied(self, code: Any, place: Any, moves: Any, size: Any, begins: Any, arrivals: Any) -> tuple[Any, Any]:
        """(the place at which the group of each move has lost its last row, whether it was forgotten before it)."""
        none = np.full_like(place, UNKNOWN)
        if not self.keys or not len(code):
            return none, begins & ~begins
        empty = np.where((moves < 0) & (size == 0), place, none)
        first = self._device.kernels.keep(begins)
        empty[first] = self._device.kernels.take(self._empty, self._device.kernels.take(code, first).astype(np.int64))
        was = np.concatenate([none[:1], empty[:-1]])
        return empty, ~begins & self._forgotten(was, place, arrivals)

    def _forgotten(self, empty: Any, place: Any, arrivals: Any) -> Any:
        """Whether groups that lost their last rows at some places are forgotten at others."""
        between = np.searchsorted(arrivals, place, side="right") > np.searchsorted(arrivals, empty, side="right")
        return (empty != UNKNOWN) & between

    def _worth(self, aggregate: Aggregate, frame: Any) -> tuple[Any, Any]:
        """(int64: whether each row counts, int64 what it adds to a sum)."""
        columns = self._device.columns
        one = columns.array(np.ones(columns.rows(frame), np.int64))
        there, worth = one, one
        if aggregate.expression is not None:
            name = str(bare_column(aggregate.expression))
            valid = columns.validity(frame, name)
            there = one if valid is None else valid.astype(np.int64)
            worth = one if aggregate.kind.name == "count" else columns.values(frame, name)[0].astype(np.int64)
        if aggregate.filter is not None:
            values, valid = columns.values(frame, str(bare_column(aggregate.filter)))
            there = there * (values != 0) * (1 if valid is None else valid)
        return there, worth

    def _check(self, aggregate: Aggregate, known: Any, worth: Any) -> None:
        """No sum wraps around."""
        if float(np.abs(known.astype(np.float64)).sum() + np.abs(worth.astype(np.float64)).sum()) > _MOST:
            raise SumOverflowError(f"{aggregate} does not fit int64.", remedy="Cast what it sums to a double.")

    def at(self, codes: Any, places: Any) -> Any:
        """A frame of the values of some groups at some places."""
        take, columns, walk = self._device.kernels.take, self._device.columns, self._walk
        groups = codes.astype(np.int64)
        values = [[take(each, groups) for each in pair] for pair in self._known]
        empty = take(self._empty, groups)
        arrivals = empty[:0]
        if walk is not None and len(walk.code):
            index = np.maximum(self._device.kernels.search_pairs(walk.code, walk.place, codes, places) - 1, 0)
            there = take(walk.code, index) == codes
            empty, arrivals = np.where(there, take(walk.empty, index), empty), walk.arrivals
            values = [
                [np.where(there, take(new, index), old) for new, old in zip(pair, known, strict=True)]
                for pair, known in zip(walk.values, values, strict=True)
            ]
        over = self._forgotten(empty, places, arrivals)
        built = {}
        for aggregate, dtype, (count, total) in zip(self._aggregates, self._types, values, strict=True):
            left = np.where(over, np.zeros_like(count), count)
            is_count = aggregate.kind.name == "count"
            built[aggregate.name] = (left if is_count else total, None if is_count else left > 0, dtype)
        return columns.build(built)

    def rest(self) -> None:
        """Drop the values of the last step, and groups that are forgotten."""
        walk, self._walk = self._walk, None
        if walk is None or not self.keys or not len(walk.arrivals):
            return
        over = self._device.kernels.keep(self._empty < walk.arrivals[-1])
        for each in (self._size, *(one for pair in self._known for one in pair)):
            each[over] = 0
        self._empty[over] = UNKNOWN
        if self._groups.crowded:
            used = (self._size != 0) | (self._empty != UNKNOWN)
            if self._groups.forget(self._device.columns.host(used)) is not None:
                self._size, self._empty = self._size[used], self._empty[used]
                self._known = [(one[used], other[used]) for one, other in self._known]

    # The state

    @property
    def alive(self) -> int:
        """How many groups it keeps."""
        return len(self._groups) if self._groups.seen else 0

    @property
    def _columns(self) -> dict[str, Any]:
        made = {"rows": self._size, "empty": self._empty}
        for at, (count, total) in enumerate(self._known):
            made |= {f"count {at}": count, f"sum {at}": total}
        return made

    def state_parts(self, prefix: str) -> Parts:
        """What is known of each group; no table before the first row."""
        return in_parts(self._tables(prefix))

    def entire_tables(self, prefix: str) -> tuple[str, ...]:
        """None: no other table tells of groups by their numbers."""
        del prefix
        return ()

    def _tables(self, prefix: str) -> dict[str, pa.Table]:
        if not self._groups.seen:
            return {}
        self._grow()
        columns, count = self._device.columns, len(self._groups)
        made = {name: pa.array(columns.host(each[:count]), pa.int64()) for name, each in self._columns.items()}
        if self.keys:
            keys = columns.to_arrow(self._groups.keys, self._key_schema)
            made |= {f"{_KEY}{name}": keys[name] for name in keys.column_names}
        return {f"{prefix}{_GROUPS}": pa.table(made)}

    def declared(self, tables: Tables, prefix: str) -> Iterator[StateTable]:
        """The tables that `state_parts` gives."""
        del tables
        keys = nullable_columns(self._key_schema, _KEY)
        fields = {"rows": counter(), "empty": Field(pa.int64(), least=MIN_TIME, most=MAX_TIME, besides=(UNKNOWN,))}
        for at in range(len(self.names)):
            fields |= {f"count {at}": counter(), f"sum {at}": Field(pa.int64())}
        yield StateTable(f"{prefix}{_GROUPS}", fields | keys, rows=None if keys else 1, unique=tuple(keys))

    def put_back(self, parts: Parts, prefix: str) -> None:
        """The state that `state_parts` gave."""
        if f"{prefix}{_GROUPS}" not in parts:
            return
        tables = whole({name: each for name, each in parts.items() if name == f"{prefix}{_GROUPS}"})
        columns, table = self._device.columns, tables[f"{prefix}{_GROUPS}"].combine_chunks()
        keys = {name: table[f"{_KEY}{name}"] for name in self.keys}
        self._groups.restore(columns.from_arrow(pa.table(keys)) if keys else None)

        def read(name: str) -> Any:
            return columns.array(table[name].to_numpy().copy())

        self._size, self._empty = read("rows"), read("empty")
        self._known = [(read(f"count {at}"), read(f"sum {at}")) for at in range(len(self.names))]
