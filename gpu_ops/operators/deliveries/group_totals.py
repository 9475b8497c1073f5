"""Counts and exact sums of groups after each turn: one walk over what enters and leaves, and no row is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import PartName, Places, column_name
from gpu_ops.operators.deliveries.changes import Changes, Edges
from gpu_ops.operators.deliveries.group_values import GroupValues, RunningSums, numbered
from gpu_ops.operators.deliveries.touched import Touched
from gpu_ops.operators.events import Events, present
from gpu_ops.operators.state.rows import grown
from gpu_ops.operators.windows.incremental_block import ROWS, RunningBlock, places_among
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.windows import WindowAggregate


@dataclass(frozen=True)
class GroupWalk:
    """The rows of a step: one for each touched group, behind one for each group with what was before, if asked for.

    Attributes:
        groups: int64 numbers of the step's groups, ascending.
        group: int32 place of each row's group among them.
        moved: int64 place of each row of a touched group; these are the last ones.
        earlier: int64: for each of them the one of the same group before it; -1 for none.
        weights: int64: how many events each of those that come and go is; None where each is one.
    """

    groups: Any
    group: Any
    moved: Any
    earlier: Any
    weights: Any = None

    @property
    def begin(self) -> int:
        """The first of the rows of touched groups."""
        return len(self.group) - len(self.moved)

    @cached_property
    def place(self) -> Any:
        """int64 place of each row."""
        none = np.full_like(self.groups, MIN_TIME, shape=(self.begin,))
        return np.concatenate([none, self.moved])

    @cached_property
    def before(self) -> Any:
        """int64 row of the same group before each touched one; it is asked for only if there is always one."""
        return np.where(self.earlier < 0, self.group[self.begin :], self.earlier + self.begin)

    @cached_property
    def until(self) -> Any:
        """int64 place of the next row of the same group; `MAX_TIME` for the last."""
        made = np.full_like(self.place, MAX_TIME)
        known = self.before if self.begin else self.earlier
        there = known >= 0
        made[known[there]] = self.moved[there]
        return made


@dataclass
class WalkedBlock(RunningBlock):
    """A block whose slots are the rows of a walk; its events come at their first slot and go at their last.

    Attributes:
        walk: The rows.
    """

    walk: GroupWalk = None  # type: ignore[assignment]
    _whole: dict[PartName, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = np.ones_like(self.first) if self.walk.weights is None else self.walk.weights
        rows = self._walked(ROWS, [count], self.first, self.last)[0]
        self.there = rows > 0
        self.slots = self.device.kernels.keep(self.there)
        self.rows = self._shown(rows)

    def _shown(self, values: Any) -> Any:
        """The values of the rows whose groups hold any event."""
        return values if len(self.slots) == len(values) else self.device.kernels.take(values, self.slots)

    def _walked(self, name: PartName, values: Sequence[Any], first: Any, last: Any) -> list[Any]:
        """Totals at each row: what the state has, and what has come and gone since."""
        kernels, walk, known = self.device.kernels, self.walk, self.totals.limbs.get(name, [])
        if name in self._whole:
            total, after = kernels.walked_totals(values[0], first, last, walk.group, self._whole[name])
            self._sums[name] = list(kernels.exact_limbs_int(after))
            return [total]
        below = self.totals.below(name, self._plans) if known else 0
        made, after = [], []
        for at in range(max(len(values), below + len(known))):
            there = below <= at < below + len(known)
            base = kernels.take(known[at - below], walk.groups) if there else np.zeros_like(walk.groups)
            if at < len(values):
                total, behind = kernels.walked_totals(values[at], first, last, walk.group, base)
                after.append(behind)
            else:
                total = kernels.take(base, walk.group)
            made.append(total)
        self._sums[name] = after
        return made

    def _totals(self, name: PartName, values: Callable[[], Sequence[Any]], first: Any, last: Any) -> list[Any]:
        def compute() -> list[Any]:
            return [self._shown(each) for each in self._walked(name, values(), first, last)]

        return self.part(("total", *name), compute)

    def counts(self, aggregate: Aggregate, form: str | None) -> Any:
        """How many events take part at each row: a merged one is as many as its weight."""
        identity, indices, first, last = self.selection(aggregate, form)
        if self.walk.weights is None or indices is None:
            return super().counts(aggregate, form)
        name: PartName = ("count", *identity)
        weights = self.device.kernels.take(self.walk.weights, indices)
        return self.part(name, lambda: self.sums(name, [weights], first, last)[0])

    def count(self, name: PartName, first: Any, last: Any) -> Any:
        """How many of some events are there at each row."""
        return self._totals(name, lambda: [np.ones_like(first)], first, last)[0]

    def sums(self, name: PartName, limbs: Sequence[Any], first: Any, last: Any) -> list[Any]:
        """The sums of each limb of some numbers at each row, modulo 2**64."""
        return self._totals(name, lambda: limbs, first, last)

    def _integers(self, aggregate: Aggregate) -> tuple[list[Any], Any, Any, int]:
        """One array instead of two limbs where no sum leaves 64 bits, whatever comes and goes."""
        _, (values,), first, last = self.picked(aggregate, "numbers")
        if values.dtype != np.int64 or not len(values):
            return super()._integers(aggregate)
        name: PartName = ("integer", column_name(aggregate.expression), self.which(aggregate))
        base = [self.device.kernels.take(each, self.walk.groups) for each in self.totals.limbs.get(name, [])]
        low, high = map(_greatest, base) if base and len(self.walk.groups) else (0, 0)
        most = (high << 32) + low + _greatest(values) * len(values)
        if most >= 1 << 62:
            return super()._integers(aggregate)
        self._whole[name] = base[0] + (base[1] << 32) if base else np.zeros_like(self.walk.groups)
        return [values], first, last, most

    def update(self) -> None:
        """Update the state to what is behind the last row."""
        self.totals.widen(self._plans)
        for part, sums in self._sums.items():
            self.totals.put(part, self.walk.groups, sums)


def _greatest(values: Any) -> int:
    """The greatest absolute value of integers."""
    return max(-int(values.min()), int(values.max()))


class RunningTotals(RunningSums):
    """The state: groups with their totals."""

    def walked(self, frame: Any, codes: Any, walk: GroupWalk, first: Any, last: Any) -> WalkedBlock:
        """A block over the rows of a walk, on top of the state.

        Args:
            frame: The events.
            codes: int32 group of each.
            walk: The rows.
            first: int64 row at which each comes; the number of rows for none.
            last: int64 row at which each goes, likewise.
        """
        columns = self._with_valid(self._loaded(frame, codes)).columns
        size, schema = len(walk.group), self._node.input.schema
        block = WalkedBlock(self._device, first, last, size, columns, schema, totals=self._totals, walk=walk)
        shown, take = block.slots, self._device.kernels.take  # the block itself would be a circle

        def places() -> Places:
            group, start, end = (take(each, shown) for each in (walk.group, walk.place, walk.until))
            return Places(group, start, end, self._groups.keys_of(walk.groups), self._node.group)

        block.places = places
        return block

    def groups_of(self, codes: Any, *, every: bool) -> Any:
        """int64 numbers of the groups of some codes, and of every group that holds an event."""
        self._totals.grow(self._last, len(self._groups))
        self._last = grown(self._last, len(self._groups))
        if not every:
            return present(codes, len(self._groups), self._device)
        found = self._counts[: len(self._groups)] > 0
        found[present(codes, len(found), self._device)] = True
        return self._device.kernels.keep(found)

    def held(self, groups: Any) -> Any:
        """Whether each of some groups holds an event."""
        return self._device.kernels.take(self._counts, groups) > 0

    def done_upto(self, limit: int, groups: Any) -> None:
        """The state is that behind a place; int64 numbers of the groups of which it has changed."""
        self._done = limit
        self._changed(groups)


class GroupTotals(GroupValues):
    """Counts and exact sums with one key and one life.

    Args:
        aggregates: The aggregates, all of one key and life.
        schema: The rows' columns.
        device: Where arrays live.
    """

    _window: RunningTotals
    reads_edges = True

    def __init__(self, aggregates: Sequence[Delivered], schema: pa.Schema, device: Device) -> None:
        super().__init__(aggregates, schema, device)
        self._walk: GroupWalk | None = None
        self._edges: tuple[Edges, Touched] | None = None
        self._block: WalkedBlock | None = None
        self._values: Any = None

    @staticmethod
    def _running(node: WindowAggregate, device: Device) -> RunningTotals:
        return RunningTotals(node, device)

    @staticmethod
    def takes(aggregates: Sequence[Delivered], schema: pa.Schema) -> bool:
        """Whether all of some aggregates are counts and sums."""
        return all(each.aggregate.keeps(schema) == "sums" for each in aggregates)

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
        assert edges is not None and not momentary  # noqa: S101, PT018  (deliveries see to it)
        kernels, window = self._device.kernels, self._window
        codes = self.codes(changes.frame)
        here = kernels.take(codes, edges.rows)
        groups = window.groups_of(here, every=forced)
        local = places_among(groups, self.groups, self._device)(here)
        touched = Touched.of(local, edges.place, len(groups), self._device)
        group = touched.each(local, self._device)
        if forced or before:
            group = np.concatenate([np.arange(len(groups), like=local).astype(np.int32), group])
        walk = GroupWalk(groups, group, edges.place[touched.first], touched.before)
        first, last = self._stay(changes, edges, touched.row + walk.begin, len(group))
        self._edges = edges, touched
        self._taken_in(changes.frame, codes, walk, first, last, limit)

    def answered(self, changes: Changes, asked: Any, places: Any, limit: int) -> Any:
        """Take in a part of a step; a frame of the values of some groups at some places, null where one holds no row.

        Args:
            changes: The rows that enter and leave.
            asked: int32: the groups.
            places: int64: behind what happens at which place each is asked for.
            limit: The odd place up to which the step goes.
        """
        kernels, take, window = self._device.kernels, self._device.kernels.take, self._window
        codes = self.codes(changes.frame)
        come, go = kernels.keep(changes.enters), kernels.keep(changes.leaves)
        # A question is an edge that changes nothing.
        place = np.concatenate([take(changes.enter, come), take(changes.leave, go), places])
        here = np.concatenate([take(codes, come), take(codes, go), asked])
        order = np.argsort(place, kind="stable")
        place, here = take(place, order), take(here, order)
        groups = window.groups_of(here, every=False)
        local = places_among(groups, self.groups, self._device)(here)
        touched = Touched.of(local, place, len(groups), self._device)
        walk = GroupWalk(groups, touched.each(local, self._device), take(place, touched.first), touched.before)
        row = np.empty_like(touched.row)
        row[order] = touched.row
        first, last = (np.full_like(changes.enter, len(touched.first)) for _ in range(2))
        first[come], last[go] = row[: len(come)], row[len(come) : len(come) + len(go)]
        self._taken_in(changes.frame, codes, walk, first, last, limit)
        return self.at_rows(row[len(come) + len(go) :])

    def _taken_in(
        self, frame: Any, codes: Any, walk: GroupWalk, first: Any, last: Any, limit: int, carried: int = 0
    ) -> None:
        """Have the values at the rows of a walk, and the state behind it.

        Args:
            frame: The events.
            codes: int32 group of each.
            walk: The rows.
            first: int64 row at which each comes; the number of rows for none.
            last: int64 row at which each goes, likewise.
            limit: The place up to which that is all.
            carried: How many of the first touched rows are of groups that were touched before, since the last output.
        """
        window = self._window
        self._walk, self._sorted = walk, None
        self._block = window.walked(frame, codes, walk, first, last)
        if window.order is not None:
            window.order.begin(*self._begun_in(walk, self._block.there[walk.begin :], carried))
        self._values = self._block.results(self._aggregates)
        self._block.update()
        window.done_upto(limit, walk.groups)

    def _begun_in(self, walk: GroupWalk, there: Any, carried: int) -> tuple[Any, Any]:
        """(groups, places): the groups that hold rows at one of the touched rows, and held none before it."""
        take, group = self._device.kernels.take, walk.group[walk.begin :].astype(np.int64)
        held = take(self._window.held(walk.groups), group)
        if len(there):
            held = np.where(walk.earlier < 0, held, take(there, np.maximum(walk.earlier, 0)))
        # They hold rows, or have done so in this stretch between two outputs.
        held[:carried] = True
        anew = self._device.kernels.keep(there & ~held)
        return take(walk.groups, take(group, anew)), take(walk.moved, anew)

    def _stay(self, changes: Changes, edges: Edges, row: Any, size: int) -> tuple[Any, Any]:
        """(the row at which each changed row comes, that at which it goes; the number of rows for none)."""
        at = np.empty_like(row)
        at[edges.order] = row
        come, go = at[: len(edges.come)], at[len(edges.come) :]
        first, last = (np.full_like(changes.enter, size) for _ in range(2))
        if self.life == "left":
            first[edges.go] = go
        else:
            first[edges.come] = come
            if self.life != "ever":
                last[edges.go] = go
        return first, last

    def touched_by(self, edges: Edges) -> Touched | None:
        """Which groups some edges touch, if it has taken these in."""
        return self._edges[1] if self._edges is not None and self._edges[0] is edges else None

    def at_rows(self, rows: Any | None, *, before: bool = False) -> Any:
        """A frame of values at some of the touched rows, or at all: null where the group holds no row.

        Args:
            rows: int64 numbers of touched rows; None for all, in their order.
            before: Whether they are the values before those rows.
        """
        assert self._walk is not None and self._block is not None  # noqa: S101, PT018  (a step has been taken)
        columns, take, walk, block = self._device.columns, self._device.kernels.take, self._walk, self._block
        begin, size = walk.begin, len(walk.group)
        whole = len(block.slots) == size
        if rows is None and not before and whole:
            return columns.cut(self._values, begin, size)
        if before:
            at = walk.before if rows is None else take(walk.before, rows)
        else:
            at = np.arange(begin, size, like=walk.groups) if rows is None else rows + begin
        if whole:
            return columns.take(self._values, at)
        there = take(block.there, at)
        index = take(np.maximum(np.cumsum(block.there) - 1, 0), at)
        if not len(block.slots):
            return columns.nulls(self._values, len(at))
        return columns.null_where(columns.take(self._values, index), there)

    @property
    def _found(self) -> Events | None:
        """The values of all groups, by group and place."""
        walk, block, take = self._walk, self._block, self._device.kernels.take
        if walk is None or block is None or not len(block.slots):
            return None
        if self._sorted is None:
            group, place, until = (take(each, block.slots) for each in (walk.group, walk.place, walk.until))
            order = self._device.kernels.group_order(group, len(walk.groups), place)
            frame = self._device.columns.beside(numbered(walk.groups[group], self._device), self._values)
            self._sorted = Events(place, until, frame).take(order, self._device)
        return self._sorted

    def rest(self) -> None:
        """Drop the values of the last step."""
        self._walk = self._edges = self._block = self._values = self._sorted = None
        self._rest_window()
