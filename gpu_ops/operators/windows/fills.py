"""Results for windows that hold no event: between those of a group, or over a given span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import BatchInput, StepInput
from gpu_ops.operators.row_order import run_ends, run_starts
from gpu_ops.operators.sizes import expanded
from gpu_ops.operators.state.fields import AFTER, BEFORE, extent, nullable_columns
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.rows import grown
from gpu_ops.operators.windows import grids
from gpu_ops.plan.fills import Fill

_FEW = 4096


class IncrementalFill(IncrementalOperator, nodes=(Fill,)):
    """The steps of one fill; a batch is one step.

    A group's windows come in order of their numbers. For each group it knows the last number with a result, and that
    result. Results are in a store that is rebuilt when most of them are no longer needed.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Fill
    _has_clock, _may_batch = False, False

    def __init__(self, node: Fill, device: Device) -> None:
        super().__init__(node, node.group, node.schema, device, {})
        none = device.columns.array(np.zeros(0, np.int64))
        self._number, self._row = none, none
        self._store: list[Any] = []
        self._rows = 0
        self._low, self._high = (BEFORE, AFTER) if node.span is None else self._numbers_of(*node.span)

    def _numbers_of(self, begin: int, end: int) -> tuple[int, int]:
        """(low, high): the windows ``low … high - 1`` overlap a span."""
        array, window = self._device.columns.array, self._node.window
        start, finish = array(np.array([begin])), array(np.array([end]))
        regular = window.regular
        if regular is not None and regular.membership == "start":
            # The grid point T holds what starts in (T - size, T]: those points within the span.
            low, high = -(-(start - regular.align) // regular.hop), -(-(finish - regular.align) // regular.hop)
        else:
            low, high = grids.overlapped(window, start, finish, self._device)
        return int(low[0]), int(high[0])

    def _first_unsettled(self, cti: int) -> int:
        """The number below which no window can get more events."""
        if cti == MAX_TIME:
            return AFTER
        time = self._device.columns.array(np.array([cti]))
        return int(grids.starting_from(self._node.window, time, self._device)[0])

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """All columns: a window without events has a value in each."""
        return [tuple(self._schema.names)]

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """All results at once, with those of the empty windows between them."""
        yield from self.step([StepInput(list(whole.inputs[0]))], [MAX_TIME])[0].events

    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        made: list[Events] = []
        if events[0] is not None and len(events[0]):
            made = self._filled(events[0])
        elif self._node.span is not None and not self._node.group and not len(self._number):
            # Without a key there is one group, whether it has any event or not.
            self._groups.restore(None)
            self._number = self._device.columns.array(np.array([self._low - 1]))
            self._row = self._device.columns.array(np.array([-1]))
        if self._node.span is not None:
            made += self._trailing(min(self._high, self._first_unsettled(cti)))
        promised = self._output_cti(cti)
        if cti == MAX_TIME:
            self._number, self._row, self._store, self._rows = self._number[:0], self._row[:0], [], 0
        return StepInput(made), promised

    def _filled(self, events: Events) -> list[Events]:
        kernels = self._device.kernels
        codes = self._groups.codes(events.frame).astype(np.int64)
        before = len(self._number)
        self._number, self._row = (grown(each, len(self._groups)) for each in (self._number, self._row))
        self._number[before:], self._row[before:] = BEFORE, -1
        numbers = grids.starting_from(self._node.window, events.start, self._device)
        # On a GPU lexsort of a single event gives a number, not an array.
        order = np.lexsort(np.stack([numbers, codes])) if len(codes) > 1 else np.zeros_like(codes)
        codes, numbers = kernels.take(codes, order), kernels.take(numbers, order)
        placed = order + self._rows
        self._store.append(events.frame)
        self._rows += len(events)
        first = run_starts(codes)
        source = np.concatenate([placed[:1], placed[:-1]])
        previous = np.concatenate([numbers[:1], numbers[:-1]])
        known, stored = kernels.take(self._number, codes), kernels.take(self._row, codes)
        previous, source = np.where(first, known, previous), np.where(first, stored, source)
        if self._node.span is None:
            previous = np.where(previous == BEFORE, numbers - 1, previous)
        at = kernels.keep(run_ends(codes))
        self._number[kernels.take(codes, at)] = np.maximum(
            kernels.take(self._number, kernels.take(codes, at)), kernels.take(numbers, at)
        )
        self._row[kernels.take(codes, at)] = kernels.take(placed, at)
        gaps = self._gaps(codes, previous + 1, numbers, source)
        self._changed(kernels.take(codes, at))
        self._compact()
        return [events, *gaps]

    def _trailing(self, settled: int) -> list[Events]:
        """Rows after each group's last one, up to a window's number."""
        numbers = self._number[: len(self._groups)]
        behind = self._device.kernels.keep((numbers + 1 < settled) & (numbers != BEFORE))
        if not len(behind):
            return []
        take = self._device.kernels.take
        upto = np.full_like(behind, settled)
        made = self._gaps(behind, take(numbers, behind) + 1, upto, take(self._row, behind))
        self._number[behind] = np.maximum(take(self._number, behind), settled - 1)
        self._changed(behind)
        return made

    def _gaps(self, codes: Any, low: Any, high: Any, source: Any) -> list[Events]:
        """Rows for the windows ``low … high - 1`` of some groups; ``source`` is the place of the last result, or -1."""
        device, kernels = self._device, self._device.kernels
        low, high = np.maximum(low, self._low), np.minimum(high, self._high)
        remedy = "Choose longer windows, a shorter span, or fewer groups: each has a row for each window."
        at, offset = expanded(np.maximum(high - low, 0), device, what="fill", remedy=remedy)
        if not len(at):
            return []
        numbers = kernels.take(low, at) + offset
        start, end = grids.result_times(self._node.window, numbers, device)
        frame = self._values(kernels.take(codes, at), kernels.take(source, at))
        return [Events(start, end, frame)]

    def _values(self, codes: Any, source: Any) -> Any:
        """The payload of rows of empty windows."""
        columns, node = self._device.columns, self._node
        names = self._store[0].columns if self._store else node.schema.names
        plain = [name for name in names if node.values.get(name) in {"null", "zero"}]
        parts = [] if not node.group else [self._groups.keys_of(codes)]
        if plain:
            made = {name: _one(node.schema.field(name).type, node.values[name]) for name in plain}
            row = columns.from_arrow(pa.table(made))
            parts.append(columns.take(row, np.zeros_like(codes)))
        last = [name for name in names if node.values.get(name) == "last"]
        if last and self._store:
            whole = columns.select(self._whole(), last)
            known = source >= 0
            valid = None if bool(known.all()) else known
            parts.append(columns.null_where(columns.take(whole, np.maximum(source, 0)), valid))
        elif last:
            none = columns.from_arrow(empty_table(pa.schema([node.schema.field(name) for name in last])))
            parts += [columns.nulls(columns.select(none, [name]), len(codes)) for name in last]
        return columns.select(columns.beside(*parts), list(names))

    def _whole(self) -> Any:
        if len(self._store) > 1:
            self._store = [self._device.columns.concat(self._store)]
        return self._store[0]

    def _compact(self) -> None:
        """Forget results that are not their group's last one, once they are the majority."""
        groups = len(self._groups)
        if self._rows <= 2 * groups + _FEW:
            return
        known = self._device.kernels.keep(self._row[:groups] >= 0)
        rows = self._device.kernels.take(self._row, known)
        self._store = [self._device.columns.take(self._whole(), rows)]
        self._row[known] = self._device.columns.array(np.arange(len(known)))
        self._rows = len(known)

    def _output_cti(self, cti: int) -> int:
        if cti == MAX_TIME:
            return cti
        numbers = self._number[: len(self._groups)]
        if self._node.span is None:
            # A group's next row may be the one after its last.
            oldest = None if not len(numbers) else int(numbers.min()) + 1
        elif self._node.group:
            # A new group may have rows from the span's beginning on.
            oldest = self._low
        else:
            oldest = None if not len(numbers) else max(self._low, int(numbers.min()) + 1)
            oldest = self._low if oldest is None else oldest
        if oldest is None or oldest <= BEFORE + 1 or oldest >= self._high:
            return cti
        number = self._device.columns.array(np.array([oldest]))
        return max(MIN_TIME, min(cti, int(grids.result_times(self._node.window, number, self._device)[0][0])))

    # The state, to be looked at and kept

    @property
    def alive(self) -> int:
        """How many groups it remembers."""
        return min(len(self._groups), len(self._number))

    def state_parts(self) -> Parts:
        """The state: of each group its key, the number of the last window that has a row, and its last result."""
        return super().state_parts() if len(self._number) else {}

    def _group_columns(self, numbers: Any) -> dict[str, Any]:
        device, take = self._device, self._device.kernels.take
        row = take(self._row, numbers)
        made = {"number": to_arrow(device.columns.host(take(self._number, numbers)), pa.int64())}
        made["known"] = to_arrow(device.columns.host(row >= 0), pa.bool_())
        if self._store:
            whole = self._whole()
            schema = pa.schema([self._schema.field(name) for name in whole.columns])
            last = device.columns.to_arrow(device.columns.take(whole, np.maximum(row, 0)), schema)
            made |= {f"last/{name}": last[name] for name in last.column_names}
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        node, (least, most) = self._node, extent(self._node.window)
        if not tables:
            return
        last = nullable_columns(node.schema, "last/")
        columns = {
            "number": Field(pa.int64(), least=max(least, self._low - 1), most=min(most, self._high), besides=(BEFORE,)),
            "known": Field(pa.bool_()),
        }
        # A group without rows has no last result.
        held = {name: replace(each, optional=True) for name, each in last.items()}
        if "groups" in tables and any(name.startswith("last/") for name in tables["groups"].column_names):
            held = last
        yield from self._groups_declared(columns | held)

    def _restore_groups(self, groups: pa.Table) -> None:
        device = self._device
        self._number = device.columns.array(integers(groups["number"].combine_chunks()).copy())
        known = groups["known"].to_numpy()
        self._row = device.columns.array(np.where(known, np.arange(len(groups)), -1))
        last = {name[5:]: groups[name] for name in groups.column_names if name.startswith("last/")}
        self._store = [device.columns.from_arrow(pa.table(last))] if last else []
        self._rows = len(groups) if last else 0


def _one(dtype: pa.DataType, value: str) -> pa.Array:
    return pa.nulls(1, dtype) if value == "null" else pa.array([0], dtype)
