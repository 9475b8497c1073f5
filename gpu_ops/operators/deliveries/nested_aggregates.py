"""Aggregates of aggregates step by step: running sums over what enters and leaves, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import Field, StateTable
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.errors import SumOverflowError
from gpu_ops.operators.deliveries.changes import Changes, no_changes
from gpu_ops.operators.deliveries.delivered_totals import along, clamped
from gpu_ops.operators.deliveries.lookups import AnswersRows
from gpu_ops.operators.events import Events
from gpu_ops.operators.row_order import run_ends, run_starts, stable_order
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.plan.nested_aggregates import NestedAggregate, NestedAggregates

_MOST = float((1 << 63) - 1)


class NestedAggregatesOperator(AnswersRows, nodes=(NestedAggregates,)):
    """It keeps, of each group with rows, their number and the sums; a step costs what enters, leaves and asks.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: NestedAggregates

    def __init__(self, node: NestedAggregates, device: Device) -> None:
        super().__init__(node, device)
        self._key_schema = pa.schema([node.content.schema.field(name) for name in node.keys])
        # The number of rows; then, of each aggregate, the inner sum and count, the outer sum and count.
        self._names = ["rows", *(f"{each.name} {at}" for each in node.nested for at in range(4))]
        none = device.columns.array(np.zeros(0, np.int64))
        self._keys: Any = device.columns.from_arrow(empty_table(self._key_schema))
        self._known = [none] * len(self._names)

    def _asked(self, changes: Changes | None, rows: Events | None, limit: int) -> list[Any]:
        del limit
        device, keys = self._device, list(self._node.keys)
        columns, kernels = device.columns, device.kernels
        moves = _moves(changes or no_changes(self._node.content.schema, device), device)
        frames = [self._keys, columns.select(moves.frame, keys)]
        counts = [len(self._known[0]), len(moves.place)]
        if rows is not None:
            frames.append(columns.select(rows.frame, keys))
            counts.append(len(rows))
        codes = columns.array(np.zeros(sum(counts), np.int32))
        if keys:
            codes = columns.key_codes(columns.concat(frames), keys)[0]
        known, moved, asking = codes[: counts[0]], codes[counts[0] : counts[0] + counts[1]], codes[sum(counts[:2]) :]
        # What is known of a group stands before all that moves in it.
        code = np.concatenate([known, moved])
        first = np.concatenate([np.zeros_like(known), np.ones_like(moved)])
        place, came = (
            np.concatenate([np.full_like(self._known[0], _BEFORE), each]) for each in (moves.place, moves.came)
        )
        leaves = np.concatenate([np.zeros_like(known), moves.leaves])
        order = stable_order([code, first, place, leaves, came], place, device)
        code, place, first = (kernels.take(each, order) for each in (code, place, first))
        running = self._running(code, first, order, moves, counts[0])
        ends = kernels.keep(run_ends(code)) if len(code) else code.astype(np.int64)
        found = [] if rows is None else [self._found(code, place, asking, rows.start & ~1, running)]
        stays = ends if not keys else kernels.take(ends, kernels.keep(kernels.take(running[0], ends) > 0))
        source = kernels.take(order, stays)
        self._keys = columns.take(columns.concat(frames[:2]), source) if keys else self._keys
        self._known = [kernels.take(each, stays) for each in running]
        return found

    def _running(self, code: Any, first: Any, order: Any, moves: _Moves, known: int) -> list[Any]:
        """The numbers of each group behind each move, in order."""
        kernels, take = self._device.kernels, self._device.kernels.take
        begins = run_starts(code) if len(code) else first != 0

        def from_known(number: int, steps: Any) -> Any:
            return take(np.concatenate([self._known[number], steps]), order)

        sign = 1 - 2 * moves.leaves
        rows = along(from_known(0, sign), begins, self._device)
        empty = (rows == 0) & (first != 0) if self._node.keys else first < 0
        anew = begins | np.concatenate([np.zeros_like(begins[:1]), empty[:-1]])
        made = [rows]
        moving = kernels.keep(first != 0)
        back = np.zeros_like(moves.place)
        back[take(order, moving) - known] = moving
        for at, each in enumerate(self._node.nested):
            values, there = self._values(each, moves)
            inner = [
                along(from_known(1 + 4 * at + number, steps), anew, self._device)
                for number, steps in enumerate((sign * values, sign * there))
            ]
            count = take(inner[1], back)
            shown = count if each.counts or each.column is None else take(inner[0], back)
            valid = 1 if each.counts or each.column is None else (count > 0).astype(np.int64)
            self._check(each, 3 + 4 * at, shown)
            steps, worth = from_known(4 + 4 * at, sign * valid), from_known(3 + 4 * at, sign * shown * valid)
            number, total = clamped(steps, worth, anew, self._device)
            made += [*inner, total, number]
        return made

    def _values(self, each: NestedAggregate, moves: _Moves) -> tuple[Any, Any]:
        """(what a move adds to the inner sum, to its count)."""
        one = np.ones_like(moves.place)
        if each.column is None:
            return one, one
        if each.counts:
            valid = self._device.columns.validity(moves.frame, each.column)
            return (one, one) if valid is None else (valid.astype(np.int64), valid.astype(np.int64))
        values, valid = self._device.columns.values(moves.frame, each.column)
        return values.astype(np.int64), one if valid is None else valid.astype(np.int64)

    def _check(self, each: NestedAggregate, number: int, shown: Any) -> None:
        """No sum wraps around."""
        largest = float(np.abs(self._known[number].astype(np.float64)).sum() + np.abs(shown.astype(np.float64)).sum())
        if largest > _MOST:
            raise SumOverflowError(f"A sum of {each} does not fit int64.", remedy="Cast what it sums to a double.")

    def _found(self, code: Any, place: Any, asking: Any, at: Any, running: list[Any]) -> Any:
        """A frame with the outer sums and counts of each row."""
        take, device = self._device.kernels.take, self._device
        index = np.maximum(device.kernels.search_pairs(code, place, asking, at) - 1, 0)
        there = take(code, index) == asking if len(code) else asking < 0
        built = {}
        for number, each in enumerate(self._node.nested):
            for more, name in enumerate((each.total, each.count)):
                values = running[3 + 4 * number + more]
                values = np.where(there, take(values, index), 0) if len(code) else np.zeros_like(at)
                built[name] = (values, None, pa.int64())
        return device.columns.build(built)

    # The state

    @property
    def alive(self) -> int:
        """How many groups it keeps."""
        return len(self._known[0]) + self.waiting

    def _own_parts(self) -> Parts:
        columns = self._device.columns
        table = pa.table({name: columns.host(each) for name, each in zip(self._names, self._known, strict=True)})
        if self._node.keys:
            keys = columns.to_arrow(self._keys, self._key_schema)
            for field in self._key_schema:
                table = table.append_column(field, keys[field.name])
        return in_parts({"groups": table})

    def _own_declared(self, tables: Mapping[str, Any]) -> Iterator[StateTable]:
        numbers = {name: Field(pa.int64()) for name in self._names}
        yield StateTable("groups", {**numbers, **nullable_columns(self._key_schema, "")}, required=True)

    def _own_restore(self, parts: Parts) -> None:
        table, columns = whole(parts)["groups"], self._device.columns
        self._known = [columns.array(table[name].to_numpy().copy()) for name in self._names]
        if self._node.keys:
            self._keys = columns.from_arrow(table.select(self._key_schema.names))


_BEFORE = -(1 << 62)
"""Before all places."""


@dataclass(frozen=True)
class _Moves:
    """What enters and leaves, each by itself.

    Attributes:
        frame: The rows.
        place: int64 place at which each does so.
        came: int64 place at which the row arrived.
        leaves: int64 whether it leaves (1), or enters (0).
    """

    frame: Any
    place: Any
    came: Any
    leaves: Any


def _moves(changes: Changes, device: Device) -> _Moves:
    come, go = device.kernels.keep(changes.enters), device.kernels.keep(changes.leaves)
    take = device.kernels.take
    frame = device.columns.take(changes.frame, np.concatenate([come, go]))
    place = np.concatenate([take(changes.enter, come), take(changes.leave, go)])
    leaves = np.concatenate([np.zeros_like(come), np.ones_like(go)])
    return _Moves(frame, place, device.columns.values(frame, PLACE)[0], leaves)
