"""Tables of a state whose rows keep their places: rows are appended, and of some the values change.

A table is kept in runs of rows, as they were when the run was made, and beside each run what has changed since: runs of
changes. Neither changes any more, so a checkpoint writes those that are new, and names the others again. Where the
changes become half as many as the rows, the run is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers, to_arrow
from gpu_ops.core.sorted_runs import Run, SortedRuns
from gpu_ops.core.state_parts import ROW, NewerValues, StatePart, with_changes

Places = npt.NDArray[np.int64]

_FEW = 1 << 12
"""So many places of rows that have changed are noted, although some may be there twice."""


class RunChanges(SortedRuns[pa.Table]):
    """What has changed of a run: tables of `ROW`, ascending, and newer values. Of several values the newest holds."""

    def note(self, at: Places, values: pa.Table) -> None:
        """Note newer values.

        Args:
            at: The places of their rows in the run, ascending.
            values: The values.
        """
        self.add(values.add_column(0, ROW, to_arrow(at.astype(np.uint32), pa.uint32())))

    def change_most(self, rows: int) -> bool:
        """Whether a run of so many rows is better made anew."""
        return 2 * len(self) > rows

    def newer(self) -> list[NewerValues]:
        """They, as a `StatePart` tells them."""
        return [NewerValues(run.name, giver(run.rows)) for run in self.runs]

    def restore(self, changed: Sequence[NewerValues]) -> None:
        """Have the changes of a part."""
        tables = [(each.name, each.rows()) for each in changed]
        self.runs = [Run(name, table, len(table)) for name, table in tables]

    def _merged(self, pieces: Sequence[pa.Table]) -> pa.Table:
        whole = pa.concat_tables(pieces).combine_chunks()
        at = places_in(whole)
        order = np.argsort(at, kind="stable")
        at = at[order]
        return whole.take(order[np.append(at[1:] != at[:-1], True)]).combine_chunks()


def giver(table: pa.Table) -> Callable[[], pa.Table]:
    """What gives a table."""
    return lambda: table


def places_in(changes: pa.Table) -> Places:
    """The places of the rows that newer values are of."""
    return integers(in_one(changes[ROW])).view(np.uint32).astype(np.int64)


class TableRuns(SortedRuns[pa.Table]):
    """A table by runs of its rows, in order.

    Args:
        fixed: The columns whose values never change begin with this; None if all may change.

    Examples:
        >>> values = np.array([10, 20, 30])
        >>> runs = TableRuns()
        >>> rows = lambda at: pa.table({"n": values[at]})
        >>> [part.name is None for part in runs.parts(3, rows)]
        [False]
        >>> values[1] = 21
        >>> runs.note(np.array([1]))
        >>> (part,) = runs.parts(3, rows)
        >>> part.rows()["n"].to_pylist(), part.wanted()["n"].to_pylist()
        ([10, 20, 30], [10, 21, 30])
    """

    _CHANGES = "changes"

    def __init__(self, fixed: str | None = None) -> None:
        super().__init__()
        self._fixed = fixed
        self._noted: list[Places] = []
        self._many = 0

    def note(self, at: Places) -> None:
        """The values of some rows have changed since `parts` was asked for."""
        if self.runs and len(at):
            self._noted.append(at)
            self._many += len(at)
            if self._many > 2 * len(self) + _FEW:
                self._noted = [self._places()]
                self._many = len(self._noted[0])

    def forget(self) -> None:
        """All rows have other places, or there are none."""
        self.runs, self._noted, self._many = [], [], 0

    def parts(self, count: int, rows: Callable[[Places], pa.Table], nothing: pa.Table | None = None) -> list[StatePart]:
        """The table of now.

        Args:
            count: How many rows it has: no fewer than at the last call, unless `forget` was called.
            rows: Gives the rows at some places as they are now.
            nothing: What it gives for no place, if that is at hand.
        """
        if nothing is None:
            nothing = rows(np.zeros(0, np.int64))
        if self.runs and nothing.schema != self.runs[0].rows.schema:
            self.forget()
        noted, begins = self._places(), list(accumulate((len(run.rows) for run in self.runs), initial=0))
        self._noted, self._many = [], 0
        for at, (run, begin) in enumerate(zip(self.runs, begins, strict=False)):
            low, high = np.searchsorted(noted, (begin, begins[at + 1]))
            if low == high:
                continue
            changes: RunChanges = run.beside[self._CHANGES]
            changes.note(noted[low:high] - begin, self._changing(rows(noted[low:high])))
            if changes.change_most(len(run.rows)):
                self.runs[at] = self._run(rows(np.arange(begin, begins[at + 1])))
        if begins[-1] < count:
            self.add(rows(np.arange(begins[-1], count)))
        if not self.runs:
            return [StatePart.of(nothing)]
        return [StatePart(giver(run.rows), run.name, changed=run.beside[self._CHANGES].newer()) for run in self.runs]

    def restore(self, parts: Collection[StatePart]) -> None:
        """Have the rows of parts under their names, if those are what `parts` may have given."""
        self.forget()
        if any(part.name is None or part.passed or part.beyond or part.gone is not None for part in parts):
            return
        for part in parts:
            run = Run(str(part.name), part.rows(), len(part.rows()), beside={self._CHANGES: RunChanges()})
            run.beside[self._CHANGES].restore(part.changed)
            self.runs.append(run)

    def _places(self) -> Places:
        """The rows that were noted, ascending."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self._noted]))

    def _changing(self, rows: pa.Table) -> pa.Table:
        fixed = self._fixed
        return rows if fixed is None else rows.select([n for n in rows.column_names if not n.startswith(fixed)])

    def _run(self, rows: pa.Table) -> Run[pa.Table]:
        run = super()._run(rows.combine_chunks())
        run.beside[self._CHANGES] = RunChanges()
        return run

    def _rest(self, run: Run[pa.Table]) -> pa.Table:
        changes: RunChanges = run.beside[self._CHANGES]
        return with_changes(run.rows, [each.rows for each in changes.runs])

    def _merged(self, pieces: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(pieces)
