"""Sorted runs: rows in a few pieces, each in order, each more than twice as long as the next, the newest last.

New rows make a run. As long as the run before is not twice as long, both become one. So a row is moved as often as the
logarithm of how many there are, and a step costs what it brings, not what is kept. What a run holds never changes:
merging makes a new one, under a new name. Which of its rows are still wanted is noted beside it.

This module holds the common part. The users differ in:

| user | a row's key | how a row goes | noted beside | what is asked | factor |
|---|---|---|---|---|---|
| rows that wait, or end (`RowRuns` by a place) | the place | time passes its place: from the front of each run on | the least of a column from each row on | all that are due | 2 |
| rows that may be met (`RowRuns` by group) | group, place | time passes its end; or it is dropped by its index | rows in order of their ends; of a join: up to where each has been given | rows of groups, by search | 2 |
| `ParetoRuns` | group, end | time passes its end; or another stands in its way when runs are merged | how many of the run have ended | per group those that end in a step, and one more | 2 |
| `OrderStatistics` | group, code | a row of the opposite weight cancels it when runs are merged | all runs one behind the other, to be searched at once | codes by rank | 4 |
| `GroupInterner` | the group's number | never: all are numbered anew | nothing | keys by number | 4, none below 4096 |
| `TableRuns` | its place in the table, as a group's number | never: all are placed anew | what has changed since, as runs of changes | all rows, and which of them are new or have changed | 2 |
| `NumberedRuns` | its number | it is no longer there when somebody compares | the numbers and the changing values of the last time; what has changed since, as runs of changes | all rows, and which of them are new, have changed or are gone | 2 |
| `RunChanges` | the place of a row in its run | a newer value of the same row takes its place when runs are merged | nothing | the newest value of each | 2 |
| `HeldRows` | the number of arrival | dropped by its number | nothing | payloads by number | 2 |
"""  # noqa: E501

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

R = TypeVar("R", bound=Sized)


@dataclass(eq=False)
class Run(Generic[R]):
    """Rows that stand in order and never change, and what is known of them beside.

    Attributes:
        name: A name that no other run has, had or will have. A run that was saved keeps it when it is restored.
        rows: The rows.
        left: How many of them are wanted.
        passed: How many of them time has passed, in order of time.
        gone: Which of them were dropped; None if none was.
        beside: What a user notes of them, by names.
    """

    name: str
    rows: R
    left: int
    passed: int = 0
    gone: Any | None = None
    beside: dict[str, Any] = field(default_factory=dict)


class SortedRuns(ABC, Generic[R]):
    """Rows in runs; see the module's text. Users say how runs are merged, and what is left of one.

    Attributes:
        runs: The runs, the oldest first.
    """

    _factor = 2
    """A run is merged with the next one, once it is less than this many times as long."""

    _least = 0
    """Below this length it is in any case."""

    _most = 1 << 62
    """From this length on it is not, where a few runs more cost less than to move their rows."""

    def __init__(self) -> None:
        self.runs: list[Run[R]] = []
        self._token, self._named = secrets.token_hex(8), 0

    def __len__(self) -> int:
        """How many rows are wanted."""
        return sum(run.left for run in self.runs)

    def add(self, rows: R) -> None:
        """More rows, in any order unless a user says otherwise."""
        fresh = [self._run(self._ordered(rows))] if len(rows) else []
        made: list[Run[R]] = []
        for run in (*self._tidied(), *fresh):
            at, count = len(made), len(run.rows)
            while at and len(made[at - 1].rows) < max(min(self._factor * count, self._most), self._least):
                at -= 1
                count += made[at].left
            made.append(run)
            if at < len(made) - 1:
                made[at:] = [self._run(self._merged([self._rest(each) for each in made[at:]]))]
            if not len(made[-1].rows):
                made.pop()
        self.runs = made

    def drop(self, run: Run[R], at: Any) -> None:
        """Rows of a run, by their indices, are no longer wanted; they are so far."""
        if run.gone is None:
            run.gone = np.zeros_like(at, shape=(len(run.rows),), dtype=np.bool_)
        run.gone[at] = True
        run.left -= len(at)

    def pieces(self) -> list[R]:
        """All rows that are wanted, run by run."""
        return [self._rest(run) for run in self.runs if run.left]

    def replace(self, pieces: Sequence[R]) -> None:
        """Have other runs, of which each is in order."""
        self.runs = list(map(self._run, pieces))

    def _run(self, rows: R) -> Run[R]:
        self._named += 1
        return Run(f"{self._token}-{self._named}", rows, len(rows))

    def _tidied(self) -> list[Run[R]]:
        """The runs without empty ones; runs that lost most of their rows are rebuilt."""
        return [run if 2 * run.left >= len(run.rows) else self._run(self._rest(run)) for run in self.runs if run.left]

    def _ordered(self, rows: R) -> R:
        """New rows in order."""
        return rows

    def _rest(self, run: Run[R]) -> R:
        """The rows of a run that are wanted."""
        return run.rows

    @abstractmethod
    def _merged(self, pieces: Sequence[R]) -> R:
        """The rows of several runs, the oldest first, as those of one."""
