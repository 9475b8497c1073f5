"""Rows of events in sorted runs of which some columns change: up to when each was given, how many matches it has.

Runs never change, so the values of now are beside them. A checkpoint names a run as it was made, and the values that
have changed since: they are runs of changes, of which a checkpoint writes the new one. Where these become half as many
as the rows, the run is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers, to_arrow
from gpu_ops.core.sorted_runs import Run
from gpu_ops.core.state_parts import StatePart
from gpu_ops.core.table_runs import RunChanges, places_in
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state.row_runs import Key, RowRuns
from gpu_ops.operators.state.rows import AxisRows

_NOW, _CHANGED, _CHANGES = "now", "changed", "changes"
"""Beside a run: the values of now; which rows' have changed since the last checkpoint; the changes up to then."""

_FEW = 1 << 12
"""So many places of rows that have changed are noted, although some may be there twice."""

Name = tuple[str, str]


def now(run: Run[AxisRows], name: Name) -> Any:
    """The values of now of a column that changes, for each row of a run."""
    return run.beside[_NOW][name]


def change(run: Run[AxisRows], at: Any, values: Mapping[Name, Any]) -> None:
    """Change all columns that change of some rows of a run, by their places."""
    if not len(at):
        return
    for name, each in values.items():
        run.beside[_NOW][name][at] = each
    changed = run.beside[_CHANGED]
    changed.append(at)
    if len(changed) > 1 and sum(map(len, changed)) > max(len(run.rows), _FEW):
        changed[:] = [np.unique(np.concatenate(changed))]


class ChangingRuns(RowRuns):
    """Such rows. Rows may lack the columns, as of a restore from none; then nothing of them changes.

    Args:
        key: As `RowRuns`.
        names: The columns that change, of int64.
        device: Where arrays live.
    """

    def __init__(self, key: Key, names: tuple[Name, ...], device: Device) -> None:
        super().__init__(key, device)
        self._names = names

    def _lacks(self, rows: AxisRows) -> bool:
        return not all(name in rows.columns for name in self._names)

    def _run(self, rows: AxisRows) -> Run[AxisRows]:
        run = super()._run(rows)
        self._note(run)
        return run

    def _note(self, run: Run[AxisRows], part: StatePart | None = None) -> None:
        if self._lacks(run.rows):
            return
        changes, values = RunChanges(), {name: run.rows.columns[name].arrays[0].copy() for name in self._names}
        changes.restore(() if part is None else part.changed)
        array = self._device.columns.array
        for each in changes.runs:
            at = array(places_in(each.rows))
            for name in self._names:
                values[name][at] = array(integers(in_one(each.rows[_shown(name)])).copy())
        run.beside |= {_NOW: values, _CHANGED: [], _CHANGES: changes}

    def _rest(self, run: Run[AxisRows]) -> AxisRows:
        return super()._rest(run if self._lacks(run.rows) else replace(run, rows=self._of_now(run)))

    def _of_now(self, run: Run[AxisRows]) -> AxisRows:
        values = {name: Column((each.copy(),), None) for name, each in run.beside[_NOW].items()}
        return replace(run.rows, columns=run.rows.columns | values)

    def _part(self, run: Run[AxisRows], table: Callable[[AxisRows], pa.Table]) -> StatePart:
        if self._lacks(run.rows):
            return super()._part(run, table)
        host, changes, changed = self._device.columns.host, run.beside[_CHANGES], run.beside[_CHANGED]
        if changed:
            at = np.unique(np.concatenate(changed))
            newer = {_shown(name): host(each[at]) for name, each in run.beside[_NOW].items()}
            changes.note(host(at), pa.table({name: to_arrow(each, pa.int64()) for name, each in newer.items()}))
            changed.clear()
        if changes.change_most(len(run.rows)):
            made = super()._run(self._of_now(run))
            run.name, run.rows = made.name, made.rows
            run.beside[_CHANGES] = changes = RunChanges()
        return replace(super()._part(run, table), changed=changes.newer())


def _shown(name: Name) -> str:
    """A column's name in a table of a state."""
    return ".".join((*name, "0"))
