"""Tables of a state whose rows have numbers that ascend: rows come, change and go, and a comparison says which.

A table is kept in runs of rows, as they were when the run was made, and beside each run what has changed and is gone.
The users of `gpu_ops.core.table_runs.TableRuns` note each change; here the rows of now are compared with those of the
last time, which costs some nanoseconds a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers
from gpu_ops.core.sorted_runs import Run, SortedRuns
from gpu_ops.core.state_parts import StatePart, with_changes
from gpu_ops.core.table_runs import RunChanges, TableRuns, giver

Numbers = npt.NDArray[np.int64]

_CHANGES, _WANTED, _VALUES = "changes", "wanted", "values"
"""Beside a run: its changes; the numbers of the rows that are wanted; the values that they had the last time."""


class NumberedRuns(SortedRuns[pa.Table]):
    """A table by runs of its rows, in order of their numbers.

    Args:
        number: The column of the numbers, of int64.
        changing: The columns whose values may change, of int64.

    Examples:
        >>> rows = {"number": np.array([3, 5, 8]), "n": np.array([10, 20, 30])}
        >>> runs = NumberedRuns("number", ["n"])
        >>> given = lambda: runs.parts(rows, lambda at: pa.table({name: each[at] for name, each in rows.items()}))
        >>> [part.name is None for part in given()]
        [False]
        >>> rows = {"number": np.array([3, 8]), "n": np.array([10, 31])}
        >>> (part,) = given()
        >>> part.rows()["n"].to_pylist(), part.wanted()["n"].to_pylist()
        ([10, 20, 30], [10, 31])
    """

    def __init__(self, number: str, changing: Sequence[str] = ()) -> None:
        super().__init__()
        self._number, self._names = number, tuple(changing)

    def parts(self, now: Mapping[str, Numbers], rows: Callable[[Numbers], pa.Table]) -> list[StatePart]:
        """The table of now.

        Args:
            now: The numbers, which ascend, and the columns that may change. A number is never another row's.
            rows: Gives the rows at some places.
        """
        nothing = rows(np.zeros(0, np.int64))
        if self.runs and nothing.schema != self.runs[0].rows.schema:
            self.runs = []
        begin = self._compared(now)
        count = len(now[self._number])
        if begin < count:
            self.add(rows(np.arange(begin, count)))
        else:
            self.runs = self._tidied()
        if not self.runs:
            return [StatePart.of(nothing)]
        return [
            StatePart(giver(run.rows), run.name, gone=run.gone, changed=run.beside[_CHANGES].newer())
            for run in self.runs
        ]

    def restore(self, parts: Collection[StatePart]) -> None:
        """Have the rows of parts under their names, if those are what `parts` may have given."""
        self.runs = []
        if any(part.name is None or part.passed or part.beyond or not len(part.rows()) for part in parts):
            return
        for part in parts:
            rows = part.rows()
            if any(name not in rows.column_names for name in (self._number, *self._names)):
                self.runs = []
                return
            run = Run(str(part.name), rows, len(rows), gone=part.gone)
            run.left -= 0 if part.gone is None else int(np.count_nonzero(part.gone))
            if not run.left:
                continue
            changes = RunChanges()
            changes.restore(part.changed)
            self._note(run, changes)
            self.runs.append(run)

    def _compared(self, now: Mapping[str, Numbers]) -> int:
        """Note what has changed and gone; gives how many of the rows of now are in a run."""
        numbers, begin = now[self._number], 0
        for at, run in enumerate(self.runs):
            end = begin + int(np.searchsorted(numbers[begin:], run.beside[_WANTED][-1], side="right"))
            if not self._compare(run, {name: each[begin:end] for name, each in now.items()}):
                # A row came that is older than others were.
                self.runs = self.runs[:at]
                return begin
            begin = end
        return begin

    def _compare(self, run: Run[pa.Table], now: Mapping[str, Numbers]) -> bool:
        """Note what has changed of a run and is gone; whether all rows of now are in it."""
        numbers, wanted, values = now[self._number], run.beside[_WANTED], run.beside[_VALUES]
        if not np.array_equal(numbers, wanted):
            stays = np.isin(wanted, numbers, assume_unique=True)
            if np.count_nonzero(stays) < len(numbers):
                return False
            self.drop(run, _places(run)[~stays])
            run.beside[_WANTED] = wanted[stays]
            values = run.beside[_VALUES] = {name: each[stays] for name, each in values.items()}
        changed = np.zeros(len(numbers), np.bool_)
        for name in self._names:
            changed |= values[name] != now[name]
        at = np.flatnonzero(changed)
        if not len(at):
            return True
        newer = {name: now[name][at] for name in self._names}
        for name, each in newer.items():
            values[name][at] = each
        changes: RunChanges = run.beside[_CHANGES]
        changes.note(_places(run)[at], pa.table(newer))
        if changes.change_most(len(run.rows)):
            made = self._run(self._rest(run))
            run.name, run.rows, run.gone, run.left, run.beside = made.name, made.rows, None, made.left, made.beside
        return True

    def _note(self, run: Run[pa.Table], changes: RunChanges) -> None:
        """Note beside a run what is wanted of it."""
        run.beside[_CHANGES] = changes
        rest = self._rest(replace(run, rows=run.rows.select([self._number, *self._names])))
        numbers, *values = (integers(in_one(rest[name])).astype(np.int64) for name in (self._number, *self._names))
        run.beside |= {_WANTED: numbers, _VALUES: dict(zip(self._names, values, strict=True))}

    def _run(self, rows: pa.Table) -> Run[pa.Table]:
        run = super()._run(rows.combine_chunks())
        self._note(run, RunChanges())
        return run

    def _rest(self, run: Run[pa.Table]) -> pa.Table:
        changes: RunChanges = run.beside[_CHANGES]
        rows = with_changes(run.rows, [each.rows for each in changes.runs])
        return rows if run.gone is None else rows.take(pa.array(_places(run)))

    def _merged(self, pieces: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(pieces)


def _places(run: Run[pa.Table]) -> Numbers:
    """The places of the rows of a run that are wanted."""
    return np.arange(len(run.rows)) if run.gone is None else np.flatnonzero(~run.gone)


class PlacedRuns:
    """A table of int64 columns by runs of its rows, which keep their places: what has changed is found by comparing.

    Args:
        names: The columns.

    Examples:
        >>> runs, rows = PlacedRuns(["n"]), np.array([[10], [20], [30]])
        >>> [part.name is None for part in runs.parts(rows)]
        [False]
        >>> rows[1] = 21
        >>> (part,) = runs.parts(rows)
        >>> part.rows()["n"].to_pylist(), part.wanted()["n"].to_pylist()
        ([10, 20, 30], [10, 21, 30])
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._runs = tuple(names), TableRuns()
        self._known = self._none = np.zeros((0, len(self._names)), np.int64)

    def __len__(self) -> int:
        """How many rows there were the last time."""
        return len(self._known)

    def parts(self, rows: Numbers) -> list[StatePart]:
        """The table of now.

        Args:
            rows: int64[rows, columns], no fewer than the last time.
        """
        both = len(self._known)
        changed = np.flatnonzero((rows[:both] != self._known[:both]).any(axis=1))
        self._runs.note(changed)
        self._known[changed] = rows[changed]
        if both < len(rows):
            self._known = np.concatenate([self._known, rows[both:]])
        return self._runs.parts(len(self._known), self._table)

    def _table(self, at: Numbers) -> pa.Table:
        rows = self._known[at]
        return pa.table({name: pa.array(np.ascontiguousarray(rows[:, at])) for at, name in enumerate(self._names)})

    def forget(self) -> None:
        """All rows have other places."""
        self._known = self._none
        self._runs.forget()

    def restore(self, parts: Collection[StatePart], rows: Numbers) -> None:
        """Have the rows of parts under their names, if those are what `parts` may have given.

        Args:
            parts: The parts.
            rows: Their rows.
        """
        self._known = rows.copy()
        self._runs.restore(parts)
        if not self._runs.runs:
            self.forget()
