"""What a data window remembers, as tables: written, declared and read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.state_tables import Field, Rule, StateTable, Tables, counter
from gpu_ops.core.time import MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.row_windows.each import RunningEach
from gpu_ops.operators.row_windows.groups import Groups
from gpu_ops.operators.state.fields import NUMBERED_TIME, TIME, group_columns, row_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import GroupNumbers, Rows, rows_from_arrow, shown_time
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.window_kinds import UNKNOWN

NUMBER, ENTER, FLOOR = (("row", name) for name in ("number", "enter", "floor"))
"""The columns of the rows that are kept, beside that of the kind's `RowNote`."""

_MAYBE = replace(NUMBERED_TIME, besides=(UNKNOWN,))

_MOST_ROWS = 1 << 48
"""So many rows no group has had."""


class DataWindowState(ABC):
    """The state of a data window; `RunningDataWindow` steps it."""

    _node: DataWindow
    _device: Device
    _numbers: GroupNumbers
    _waiting: RowRuns
    _kept: RowRuns
    _groups: Groups
    _each_of: RunningEach | None

    @abstractmethod
    def _keep(self, rows: Rows) -> None:
        """Keep rows."""

    def tables(self) -> dict[str, pa.Table]:
        """The state: groups, rows that wait for their turn, and rows whose leave is not known yet."""
        if not self._numbers.seen:
            return {}
        device, schema, count = self._device, self._node.input.schema, len(self._numbers)
        self._groups.grow(count)
        made: dict[str, Any] = {
            name: to_arrow(device.columns.host(each[:count]).copy(), pa.int64())
            for name, each in vars(self._groups).items()
        }
        if self._numbers.keys is not None:
            keys = pa.schema([schema.field(name) for name in self._node.group])
            table = device.columns.to_arrow(self._numbers.keys, keys)
            made |= {f"key/{name}": table[name] for name in table.column_names}
        tables = {"groups": pa.table(made)}
        for name, runs in (("waiting", self._waiting), ("kept", self._kept)):
            rows = runs.rows()
            if rows is not None:
                tables[name] = rows.to_arrow(schema, device, shown_time)
        return tables if self._each_of is None else tables | self._each_of.tables()

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        if not tables:
            return
        node, schema = self._node, self._node.input.schema
        keys = group_columns(node.group, schema)
        later = Field(pa.int64(), least=MIN_TIME, most=UNKNOWN)
        known = {"seen": counter(_MOST_ROWS), "first": _MAYBE, "due": later, "closed": later}
        yield StateTable("groups", known | keys, None if keys else 1, required=True, unique=tuple(keys))
        groups = tables["groups"].num_rows
        columns = row_columns(TIME, replace(TIME, above="low"), groups, frame=schema)
        yield StateTable("waiting", columns)
        if self._each_of is not None:
            yield from self._each_of.declared(tables)
        number = ".".join(NUMBER) + ".0"
        rules = (
            Rule(number, "is not below the number of rows that its group has had", lambda kept: _counted(kept, tables)),
            Rule("low", "is before a row that came earlier in its group", _in_order),
        )
        unique = () if node.window.counts == "starts" else ("group", number)
        yield StateTable(
            "kept", columns | row_columns(TIME, TIME, groups, numbers=self._noted()), None, False, unique, rules
        )

    def _noted(self) -> dict[tuple[str, str], Field]:
        """What is noted of the rows that are kept."""
        noted = {NUMBER: counter(_MOST_ROWS), ENTER: _MAYBE, FLOOR: _MAYBE}
        note = self._node.window.note
        if note is not None:
            above = "low" if note.after_start else None
            noted["row", note.name] = Field(pa.int64(), least=note.least, most=note.most, above=above)
        return noted

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if not tables:
            return
        array, groups = self._device.columns.array, tables["groups"].combine_chunks()
        keys = {name: groups[f"key/{name}"] for name in self._node.group}
        self._numbers.restore(self._device.columns.from_arrow(pa.table(keys)) if keys else None)
        self._groups = Groups(*(array(integers(groups[name].combine_chunks()).copy()) for name in vars(self._groups)))
        if "waiting" in tables:
            self._waiting.add(rows_from_arrow(tables["waiting"], self._device))
        if self._each_of is not None:
            self._each_of.restore(tables)
        if "kept" in tables:
            self._keep(rows_from_arrow(tables["kept"], self._device))


def _counted(kept: pa.Table, tables: Tables) -> npt.NDArray[np.bool_]:
    seen = integers(tables["groups"]["seen"].combine_chunks())
    number, group = (integers(kept[name].combine_chunks()) for name in (".".join(NUMBER) + ".0", "group"))
    return np.asarray(number < seen[group])


def _in_order(kept: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether each row starts at or after those of its group that have lower numbers."""
    names = (".".join(NUMBER) + ".0", "group")
    number, group = (integers(kept[name].combine_chunks()) for name in names)
    start = integers(kept["low"].combine_chunks())
    order = np.lexsort((number, group))
    held = np.ones(len(order), np.bool_)
    here, before = order[1:], order[:-1]
    held[here] = (group[here] != group[before]) | (start[here] >= start[before])
    return held
