"""Aggregates of groups after each turn: running windows over places, which give each group's value up to the CTI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import PartName
from gpu_ops.operators.deliveries.changes import Changes, Edges, arrived_in
from gpu_ops.operators.deliveries.group_order import GroupOrder, ListedGroups
from gpu_ops.operators.deliveries.touched import Touched
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import run_starts, stable_order
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.operators.windows.incremental_window import IncrementalWindow, Placed
from gpu_ops.operators.windows.recomputing_window import RecomputingWindow
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.nodes import Feed
from gpu_ops.plan.windows import Snapshot, WindowAggregate

_GROUP = "@group"

T = TypeVar("T")


class RunningSums(ListedGroups, IncrementalWindow):
    """Snapshots of groups by number; each group's last one is given too, up to the end of the step."""

    _may_batch = False
    forced = False

    def _forces(self, limit: int) -> bool:
        return self.forced

    def _bound(self, limit: int) -> int:
        return limit

    def _forget(self) -> None:
        """Not in a step: its values name groups by their numbers."""

    def rest(self) -> None:
        """Forget groups without events, once they are most of all."""
        super()._forget()

    def _keys_of(self, numbers: Any) -> Any:
        return numbered(numbers, self._device)

    def _placed(
        self, events: AxisRows, ended: int, known: dict[PartName, AxisRows], touched: Any, limit: int
    ) -> Placed:
        self.before = touched, self._device.kernels.take(self._counts, touched) > 0
        return super()._placed(events, ended, known, touched, limit)


class _RunningRows(ListedGroups, RecomputingWindow):
    """The same for aggregates that need the rows."""

    _may_batch = False
    forced = False

    def _forces(self, limit: int) -> bool:
        return self.forced

    def _newest(self, codes: Any, bounds: Any, groups: int, limit: int) -> Any:
        return np.full_like(bounds, limit, shape=(groups,))

    def _forget(self) -> None:
        """Not in a step: its values name groups by their numbers."""

    def rest(self) -> None:
        """Forget groups without events, once they are most of all."""
        super()._forget()

    def _results(self, touched: Any, held: Any, limit: int) -> list[Events]:
        self.before = touched, self._device.kernels.take(held, touched)
        return super()._results(touched, held, limit)

    @property
    def _telling(self) -> list[str]:
        return [PLACE] if PLACE in self._reads else list(self._reads)

    def _lows(self, low: Any) -> Any:
        # Of rows that are alike, all that entered in earlier steps are alike from now on.
        return np.maximum(low, self._done)

    def _keys_of(self, numbers: Any) -> Any:
        return numbered(numbers, self._device)


def numbered(numbers: Any, device: Device) -> Any:
    """A frame of the numbers of groups."""
    return device.columns.build({_GROUP: (numbers.astype(np.int32), None, pa.int32())})


class GroupValues:
    """Aggregates with one key and one life.

    Args:
        aggregates: The aggregates, all of one key and life.
        schema: The rows' columns.
        device: Where arrays live.
    """

    def __init__(self, aggregates: Sequence[Delivered], schema: pa.Schema, device: Device) -> None:
        first = aggregates[0]
        self.keys, self.life, self._device = first.keys or (), first.life, device
        self.names = [each.aggregate.name for each in aggregates]
        self._aggregates = tuple(each.aggregate for each in aggregates)
        self._window = self._running(
            WindowAggregate(Feed(schema, self.keys, None), Snapshot(), self._aggregates), device
        )
        self._sorted: Events | None = None

    @staticmethod
    def _running(node: WindowAggregate, device: Device) -> RunningSums | _RunningRows:
        by_rows = any(each.keeps(node.input.schema) == "events" for each in node.aggregates)
        made: RunningSums | _RunningRows = _RunningRows(node, device) if by_rows else RunningSums(node, device)
        if isinstance(made, RunningSums) and not made.take_open():
            made = _RunningRows(node, device)
        return made

    @property
    def _found(self) -> Events | None:
        """The values of all groups, by group and place."""
        return self._sorted

    reads_edges = False
    """Whether a step needs the edges of the changes."""

    def list_in_order(self) -> None:
        """Know the order of groups, as they are to be listed."""
        self._window.order = GroupOrder(self._device)

    @property
    def groups(self) -> int:
        """How many groups have a number."""
        return len(self._window._groups)  # noqa: SLF001

    def touched_by(self, edges: Edges) -> Touched | None:
        """Which groups some edges touch, if it knows."""
        del edges
        return None

    def at_rows(self, rows: Any | None, *, before: bool = False) -> Any:
        """A frame of values at touched groups, for one that knows them."""
        raise NotImplementedError

    def codes(self, frame: Any) -> Any:
        """int32 number of the group of each of some rows."""
        return self._window._groups.codes(frame)  # noqa: SLF001  (the window of this object)

    def keys_of(self, numbers: Any) -> Any | None:
        """The keys of some groups."""
        return self._window._groups.keys_of(numbers)  # noqa: SLF001

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
        """Take in a part of a step.

        Args:
            changes: The rows that enter and leave.
            limit: The odd place up to which values are given.
            forced: Whether every group has a value up to there, changed or not.
            momentary: Whether each row is there for its own moment only.
            edges: The same rows, in order of place.
            before: Whether values from before the part are asked for, of the groups that change.
        """
        del edges, before
        kernels, take = self._device.kernels, self._device.kernels.take
        enter, leave, enters, leaves = changes.enter, changes.leave, changes.enters, changes.leaves
        both = enters & leaves

        def some(which: Any, start: Any, end: Any) -> list[Events]:
            at = kernels.keep(which)
            if not len(at):
                return []
            span = end if isinstance(end, int) else take(end, at)
            return [Events(take(start, at), span, self._device.columns.take(changes.frame, at))]

        # A row that is in for no time makes a boundary: it is in just before it, where nobody looks.
        instant = both & (enter == leave)
        if momentary:
            given = StepInput(some(enters, enter, 1))
        elif self.life not in {"ever", "left"}:
            given = StepInput(
                some(both & ~instant, enter, leave) + some(instant, enter - 1, 1),
                some(enters & ~leaves, enter, 1),
                some(leaves & ~enters, enter, leave),
            )
        elif self.life == "ever":
            given = StepInput(some(leaves & ~instant, leave - 1, 1), some(enters, enter, 1))
        else:
            given = StepInput(some(enters & ~instant, enter - 1, 1), some(leaves, leave, 1))
        self._window.forced = forced
        results, _ = self._window.step([given], [limit])
        self._sorted = self._by_group(concat(results.events, self._device))
        if self._window.order is not None and self._sorted is not None:
            self._window.order.begin(*self._begun(self._sorted, changes))

    def _begun(self, found: Events, changes: Changes) -> tuple[Any, Any]:
        """(groups, places): the groups that get a row when they had none, in the order in which they do."""
        kernels, take = self._device.kernels, self._device.kernels.take
        codes = self._device.columns.values(found.frame, _GROUP)[0]
        begins = run_starts(codes)
        anew = ~begins & (found.start != np.concatenate([found.ends[:1], found.ends[:-1]]))
        assert self._window.before is not None  # noqa: S101  (there are results)
        touched, held = self._window.before
        first = kernels.keep(begins)
        anew[first] = ~take(held, np.searchsorted(touched, take(codes, first)))
        some = kernels.keep(anew)
        # A row that is in for no time is in just before its place.
        groups, places = take(codes, some), (take(found.start, some) + 1) & ~1
        keys = [places]
        if len(some) > 1:
            ordered = np.sort(places)
            if bool((ordered[1:] == ordered[:-1]).any()):
                keys.append(self._entered(changes, groups, places))
        order = stable_order(keys, places, self._device)
        return take(groups, order), take(places, order)

    def _entered(self, changes: Changes, groups: Any, places: Any) -> Any:
        """int64: of groups that rows enter at some places, the order in which the first ones do."""
        kernels, take = self._device.kernels, self._device.kernels.take
        come = kernels.keep(changes.enters)
        place, really = (take(changes.enter if each is None else each, come) for each in (None, changes.came))
        codes = take(self.codes(changes.frame), come)
        came = stable_order([really, take(arrived_in(changes.frame, self._device), come)], really, self._device)
        codes, place = take(codes, came), take(place, came)
        order = stable_order([codes, place], place, self._device)
        codes, place = take(codes, order), take(place, order)
        begins = kernels.keep(run_starts(codes, place))
        codes, place, order = (take(each, begins) for each in (codes, place, order))
        found = kernels.search_pairs(codes, place, groups, places)
        return take(order, np.maximum(found - 1, 0))

    def _by_group(self, found: Events | None) -> Events | None:
        if found is None or not len(found):
            return None
        codes = self._device.columns.values(found.frame, _GROUP)[0]
        if self._device.kernels.ascends(codes.astype(np.int64)):
            return found
        return found.take(np.argsort(codes, kind="stable"), self._device)

    def at(self, codes: Any, places: Any) -> Any:
        """A frame of the values of some groups at some places: null where the group has no row."""
        return self.taken(*self.rows(codes, places))

    def rows(self, codes: Any, places: Any) -> tuple[Any, Any]:
        """(int64 row of the values of some groups at some places, whether the group has one)."""
        found, take = self._found, self._device.kernels.take
        if found is None:
            none = np.zeros_like(places)
            return none, none != 0
        groups = self._device.columns.values(found.frame, _GROUP)[0]
        index = np.maximum(self._device.kernels.search_pairs(groups, found.start, codes, places) - 1, 0)
        there = (take(groups, index) == codes) & (take(found.start, index) <= places)
        return index, there & (take(found.ends, index) > places)

    def taken(self, index: Any, there: Any) -> Any:
        """A frame of the values of some rows: null where there is none."""
        columns = self._device.columns
        if self._found is None:
            return columns.nulls(columns.select(self._nothing(), self.names), len(index))
        values = columns.take(columns.select(self._found.frame, self.names), index)
        return values if bool(there.all()) else columns.null_where(values, there)

    def held_at(self, places: Any) -> tuple[Any, Any, Any]:
        """(int64 index of a place, group, row of the values): the groups that have rows at some places, as listed.

        Args:
            places: int64, ascending, before the end of a forced step.
        """
        kernels, found = self._device.kernels, self._found
        if found is None:
            return places[:0], places[:0], places[:0]
        first = np.searchsorted(places, found.start)
        counts = np.searchsorted(places, found.ends) - first
        rows, offsets = kernels.expand(counts)
        groups = kernels.take(self._device.columns.values(found.frame, _GROUP)[0], rows)
        at = kernels.take(first, rows) + offsets
        order = self.listed(at, groups, kernels.take(places, at))
        return kernels.take(at, order), kernels.take(groups, order).astype(np.int64), kernels.take(rows, order)

    def listed(self, at: Any, groups: Any, places: Any) -> Any:
        """int64 order of groups at some places, as they are listed there; see `GroupOrder.ordered`."""
        if self._window.order is None:
            return np.arange(len(at), like=at)
        return self._window.order.ordered(at, groups, places)

    def _nothing(self) -> Any:
        schema = self._window._node.schema  # noqa: SLF001
        fields = [pa.field(_GROUP, pa.int32()), *(schema.field(name) for name in self.names)]
        return self._device.columns.from_arrow(empty_table(pa.schema(fields)))

    def rest(self) -> None:
        """Drop the values of the last step."""
        self._sorted = None
        self._rest_window()

    def _rest_window(self) -> None:
        if self._window.order is not None:
            self._window.order.rest()
        self._window.rest()

    # The state

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return self._window.alive

    def state_parts(self, prefix: str) -> Parts:
        """The state: that of the running window."""
        return {f"{prefix}{name}": parts for name, parts in self._window.state_parts().items()}

    def entire_tables(self, prefix: str) -> tuple[str, ...]:
        """As `gpu_ops.operators.operator.Operator.entire_tables`."""
        return tuple(f"{prefix}{name}" for name in self._window.entire_tables)

    def declared(self, tables: Tables, prefix: str) -> Iterator[StateTable]:
        """The tables that `state_parts` gives."""
        for each in self._window.declared(_own(tables, prefix)):
            yield replace(each, name=f"{prefix}{each.name}")

    def put_back(self, parts: Parts, prefix: str) -> None:
        """The state that `state_parts` gave."""
        self._window.put_back(_own(parts, prefix))


def _own(tables: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name.removeprefix(prefix): table for name, table in tables.items() if name.startswith(prefix)}
