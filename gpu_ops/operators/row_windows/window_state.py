"""The state of a data window; as tables it is written, declared and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_parts import Parts
from gpu_ops.core.state_tables import Field, RowRule, StateTable, Tables, counter
from gpu_ops.core.time import MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.row_windows.each import EACH, IncrementalEach
from gpu_ops.operators.row_windows.groups import GroupStates, at_rest
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, row_columns
from gpu_ops.operators.state.incremental import IncrementalOperator
from gpu_ops.operators.state.least import Least
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.window_kinds import UNKNOWN

NUMBER, ENTER, FLOOR = (("row", name) for name in ("number", "enter", "floor"))
"""The columns of kept rows, beside that of the kind's `RowNote`."""

_MAYBE = replace(NUMBERED_TIME, besides=(UNKNOWN,))

_MOST_ROWS = 1 << 48
"""More rows than any group has had."""


class DataWindowState(IncrementalOperator, family=True):
    """The state of a data window; `IncrementalDataWindow` steps it.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _has_clock = False

    _node: DataWindow

    def __init__(self, node: DataWindow, device: Device) -> None:
        self._waiting, self._kept = RowRuns(("low",), device), RowRuns(("group", "low"), device)
        runs = {"waiting": self._waiting, "kept": self._kept}
        super().__init__(node, node.group, node.input.schema, device, runs)
        self._floors = Least()
        self._known = GroupStates.new(0, device)
        self._each_of = IncrementalEach.of(node, device)

    def state_parts(self) -> Parts:
        """The state: groups, rows that wait for a CTI past their start, and rows whose leave is not known yet."""
        made = super().state_parts()
        return {**made, **self._each_of.state_parts()} if made and self._each_of is not None else made

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """Its own, and those of the aggregates over what is in."""
        own = super().entire_tables
        return own if self._each_of is None else (*own, *self._each_of.entire_tables)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        super().put_back({name: each for name, each in parts.items() if not name.startswith(EACH)})
        if self._each_of is not None:
            self._each_of.put_back(parts)

    def _group_columns(self, numbers: Any) -> dict[str, Any]:
        host, take = self._device.columns.host, self._device.kernels.take
        return {name: to_arrow(host(take(each, numbers)), pa.int64()) for name, each in vars(self._known).items()}

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if not tables:
            return
        node, schema = self._node, self._schema
        later = Field(pa.int64(), least=MIN_TIME, most=UNKNOWN)
        known = {"seen": counter(_MOST_ROWS), "first": _MAYBE, "due": later, "closed": later}
        yield from self._groups_declared(known)
        groups = self._group_count(tables)
        columns = row_columns(TIME, replace(TIME, above="low"), groups, frame=schema)
        yield StateTable("waiting", columns)
        if self._each_of is not None:
            yield from self._each_of.declared(tables)
        number = ".".join(NUMBER) + ".0"
        rules = (
            RowRule(
                number, "is not below the number of rows that its group has had", lambda kept: _below_seen(kept, tables)
            ),
            RowRule("low", "is before a row that came earlier in its group", _starts_ascend),
        )
        unique = () if node.window.counts == "starts" else ("group", number)
        yield StateTable(
            "kept", columns | row_columns(TIME, TIME, groups, numbers=self._noted()), None, False, unique, rules
        )

    def _noted(self) -> dict[tuple[str, str], Field]:
        """The noted columns of kept rows."""
        noted = {NUMBER: counter(_MOST_ROWS), ENTER: _MAYBE, FLOOR: _MAYBE}
        note = self._node.window.note
        if note is not None:
            above = "low" if note.after_start else None
            noted["row", note.name] = Field(pa.int64(), least=note.least, most=note.most, above=above)
        return noted

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        super().restore(tables)
        if self._each_of is not None and tables:
            self._each_of.restore(tables)

    def _restore_groups(self, groups: pa.Table) -> None:
        array = self._device.columns.array
        self._known = GroupStates(
            *(array(integers(groups[name].combine_chunks()).copy()) for name in vars(self._known))
        )

    def _again(self, name: str, rows: AxisRows) -> None:
        if name == "kept":
            self._floors.add(floors_of(rows, self._device))

    def _note_used(self, used: Any) -> None:
        remains = at_rest(self._node.window, self._known, len(used), self._done)
        used |= True if remains is None else ~self._device.columns.host(remains)

    def _renumber(self, numbers: Any, left: Any) -> None:
        self._known = self._known.left(left)


def floors_of(rows: AxisRows, device: Device) -> Any:
    """Host int64: the times before which no CTI may pass some rows, of the rows that hold a CTI back."""
    floor = rows.columns[FLOOR].arrays[0]
    return device.columns.host(floor[floor != UNKNOWN])


def _below_seen(kept: pa.Table, tables: Tables) -> npt.NDArray[np.bool_]:
    seen = integers(tables["groups"]["seen"].combine_chunks())
    number, group = (integers(kept[name].combine_chunks()) for name in (".".join(NUMBER) + ".0", "group"))
    return np.asarray(number < seen[group])


def _starts_ascend(kept: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether each row starts at or after those of its group that have lower numbers."""
    names = (".".join(NUMBER) + ".0", "group")
    number, group = (integers(kept[name].combine_chunks()) for name in names)
    start = integers(kept["low"].combine_chunks())
    order = np.lexsort((number, group))
    held = np.ones(len(order), np.bool_)
    here, before = order[1:], order[:-1]
    held[here] = (group[here] != group[before]) | (start[here] >= start[before])
    return held
