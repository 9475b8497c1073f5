"""Kept events of a join that are given where they have no partner: each up to a time, its cursor, which moves on.

Runs never change, so the cursors of now are beside them. A checkpoint names a run as it was made, and the cursors that
have moved since: they are runs of changes, of which a checkpoint writes the new one. Where these become half as many as
the rows, the run is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers, to_arrow
from gpu_ops.core.sorted_runs import Run, SortedRuns
from gpu_ops.core.state_parts import ROW, NewerValues, StatePart
from gpu_ops.operators.aggregates.block import Column
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows

CURSOR = ("cursor", "numbers")
"""The column of times up to which the pieces of an event without a partner have been given."""
_SHOWN = ".".join((*CURSOR, "0"))
"""The column's name in a table of a state."""

_GIVEN, _MOVED, _CHANGES = "given", "moved", "changes"
"""Beside a run: the cursors of now; which rows' have moved since the last checkpoint; the changes up to then."""

_FEW = 1 << 12
"""So many places of rows whose cursors have moved are noted, although some may be there twice."""


@dataclass(frozen=True)
class _CursorMoves:
    """Rows of a run whose cursors have moved: int64 places, ascending, and int64 cursors; on the host."""

    at: Any
    to: Any

    def __len__(self) -> int:
        return len(self.at)

    def to_arrow(self) -> pa.Table:
        """They, as `NewerValues` tells them."""
        places = to_arrow(self.at.astype(np.uint32), pa.uint32())
        return pa.table({ROW: places, _SHOWN: to_arrow(self.to, pa.int64())})


class _MovesOfRun(SortedRuns[_CursorMoves]):
    """The changes of a run; of a row in several pieces the newest holds."""

    def _merged(self, pieces: Sequence[_CursorMoves]) -> _CursorMoves:
        at, to = (np.concatenate([getattr(each, name) for each in pieces]) for name in ("at", "to"))
        order = np.argsort(at, kind="stable")
        at, to = at[order], to[order]
        last = np.append(at[1:] != at[:-1], True)
        return _CursorMoves(at[last], to[last])

    def restore(self, changed: Sequence[NewerValues]) -> None:
        """Have the changes of a part."""
        for each in changed:
            table = each.rows()
            at = integers(in_one(table[ROW])).view(np.uint32).astype(np.int64)
            moves = _CursorMoves(at, integers(in_one(table[_SHOWN])))
            self.runs.append(Run(each.name, moves, len(moves)))


def given_up_to(run: Run[AxisRows]) -> Any:
    """The cursors of a run's rows, of now."""
    return run.beside[_GIVEN]


def move(run: Run[AxisRows], at: Any, to: Any) -> None:
    """Move the cursors of some rows of a run."""
    if not len(at):
        return
    run.beside[_GIVEN][at] = to
    moved = run.beside[_MOVED]
    moved.append(at)
    if len(moved) > 1 and sum(map(len, moved)) > max(len(run.rows), _FEW):
        moved[:] = [np.unique(np.concatenate(moved))]


class GivenUpTo(RowRuns):
    """The kept events of a side, with their cursors."""

    def _run(self, rows: AxisRows) -> Run[AxisRows]:
        run = super()._run(rows)
        self._note(run)
        return run

    def _note(self, run: Run[AxisRows], part: StatePart | None = None) -> None:
        if CURSOR not in run.rows.columns:  # rows without any, as of a restore from none
            return
        changes, given = _MovesOfRun(), run.rows.columns[CURSOR].arrays[0].copy()
        changes.restore(() if part is None else part.changed)
        for each in changes.runs:
            given[self._device.columns.array(each.rows.at)] = self._device.columns.array(each.rows.to)
        run.beside |= {_GIVEN: given, _MOVED: [], _CHANGES: changes}

    def _rest(self, run: Run[AxisRows]) -> AxisRows:
        if CURSOR not in run.rows.columns:
            return super()._rest(run)
        return super()._rest(replace(run, rows=self._of_now(run)))

    def _of_now(self, run: Run[AxisRows]) -> AxisRows:
        return replace(run.rows, columns={CURSOR: Column((run.beside[_GIVEN].copy(),), None)})

    def _part(self, run: Run[AxisRows], table: Callable[[AxisRows], pa.Table]) -> StatePart:
        host, changes, moved = self._device.columns.host, run.beside[_CHANGES], run.beside[_MOVED]
        if moved:
            at = np.unique(np.concatenate(moved))
            changes.add(_CursorMoves(host(at), host(run.beside[_GIVEN][at])))
            moved.clear()
        if 2 * len(changes) > len(run.rows):
            made = super()._run(self._of_now(run))
            run.name, run.rows = made.name, made.rows
            run.beside[_CHANGES] = changes = _MovesOfRun()
        changed = [NewerValues(each.name, partial(_CursorMoves.to_arrow, each.rows)) for each in changes.runs]
        return replace(super()._part(run, table), changed=changed)
